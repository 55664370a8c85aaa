// A graph whose values are called by their names.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/graph.h"
#include "graph/attributes.h"

namespace evn_train {

class NamedGraph {
 public:
  using Dims = std::vector<std::int64_t>;

  // The value of the name, which may be new; "": none.
  evn::ValueId value(const std::string& name) {
    if (name.empty()) return evn::kNoValue;
    const auto [found, is_new] = ids_.try_emplace(name, static_cast<evn::ValueId>(graph_.values.size()));
    if (is_new) graph_.values.emplace_back().name = name;
    return found->second;
  }

  evn::Value& constant(const std::string& name, evn::DType dtype, const Dims& dims, const void* bytes = nullptr) {
    void* to = nullptr;
    const std::shared_ptr<evn::Weight> weight =
        evn::make_weight({dtype, evn::Shape(std::span<const std::int64_t>(dims))}, nullptr, &to);
    if (bytes != nullptr) std::memcpy(to, bytes, weight->size_bytes);
    evn::Value& v = declare(name, dtype, dims);
    v.constant = weight;
    return v;
  }
  NamedGraph& weight(const std::string& name, const Dims& dims) {
    constant(name, evn::DType::kFloat32, dims);
    return *this;
  }
  NamedGraph& ints(const std::string& name, const Dims& values) {
    constant(name, evn::DType::kInt64, {static_cast<std::int64_t>(values.size())}, values.data());
    return *this;
  }
  NamedGraph& factors(const std::string& name, const std::vector<float>& values) {
    constant(name, evn::DType::kFloat32, {static_cast<std::int64_t>(values.size())}, values.data());
    return *this;
  }
  // Its name is that of its output.
  NamedGraph& node(const char* op, const std::vector<std::string>& inputs, const std::string& output,
                   std::vector<evn::Attribute> attributes = {}) {
    evn::Node n;
    n.op_type = op;
    n.name = output;
    for (const std::string& input : inputs) n.inputs.push_back(value(input));
    n.outputs = {value(output)};
    n.attributes = std::move(attributes);
    graph_.nodes.push_back(std::move(n));
    return *this;
  }
  // With filters `output`.w.
  NamedGraph& conv(const std::string& x, const std::string& output, const Dims& filters, std::int64_t groups = 1) {
    return weight(output + ".w", filters).node("Conv", {x, output + ".w"}, output, {evn::make_attribute("group", groups)});
  }
  NamedGraph& input(const std::string& name, const Dims& dims) {
    declare(name, evn::DType::kFloat32, dims);
    graph_.inputs.push_back(value(name));
    return *this;
  }
  NamedGraph& output(const std::string& name) {
    graph_.outputs.push_back(value(name));
    return *this;
  }
  evn::Graph& graph() { return graph_; }
  const evn::Graph& graph() const { return graph_; }

 private:
  evn::Graph graph_;
  std::map<std::string, evn::ValueId> ids_;

  evn::Value& declare(const std::string& name, evn::DType dtype, const Dims& dims) {
    evn::Value& v = graph_.values[static_cast<std::size_t>(value(name))];
    v.dtype = dtype;
    v.has_shape = true;
    v.shape = evn::Shape(std::span<const std::int64_t>(dims));
    return v;
  }
};

}  // namespace evn_train
