// Small questions that the pattern rewrites ask about a node and what is around it. All are about float32 nodes with one output
// that matters, the first.
#pragma once

#include <iterator>
#include <utility>

#include "graph/edit.h"
#include "ops/op.h"

namespace evn {

class Matcher {
 public:
  explicit Matcher(GraphEditor& edit) : edit_(edit) {}

  ValueId out(int n) const { return edit_.node(n).outputs.empty() ? kNoValue : edit_.node(n).outputs[0]; }
  bool is(int n, const char* op_type) const { return n >= 0 && is_op(edit_.node(n), op_type); }

  // Computes one float32 value without an epilogue: it may vanish into another node.
  bool plain(int n) const {
    const Node& node = edit_.node(n);
    return node.epilogue.empty() && node.outputs.size() == 1 && node.outputs[0] != kNoValue &&
           edit_.value(node.outputs[0]).dtype == DType::kFloat32;
  }

  // The node that alone reads the output of plain node n; -1: none.
  int next(int n) const { return plain(n) ? edit_.only_consumer(out(n)) : -1; }

  // The plain node of that operator that computes v, which `uses` inputs of nodes read, and no output; -1: none.
  int maker(ValueId v, const char* op_type, int uses) const {
    const int n = edit_.producer(v);
    if (!is(n, op_type) || !plain(n) || out(n) != v || edit_.is_output(v) || edit_.use_count(v) != uses) return -1;
    return n;
  }

  // The operand beside a scalar constant in a node of two inputs, or kNoValue.
  ValueId beside_scalar(int n, float* scalar) const {
    const Node& node = edit_.node(n);
    if (node.inputs.size() != 2 || node.inputs[0] == kNoValue || node.inputs[1] == kNoValue) return kNoValue;
    for (int i = 0; i < 2; ++i) {
      const ValueId other = node.inputs[1 - i];
      if (scalar_constant(edit_.graph(), node.inputs[i], value_rank(edit_.value(other)), scalar)) return other;
    }
    return kNoValue;
  }

  // The first operand of a node whose second is a scalar constant, or kNoValue.
  ValueId before_scalar(int n, float* scalar) const {
    const Node& node = edit_.node(n);
    if (node.inputs.size() != 2 || node.inputs[0] == kNoValue) return kNoValue;
    const int rank = value_rank(edit_.value(node.inputs[0]));
    return scalar_constant(edit_.graph(), node.inputs[1], rank, scalar) ? node.inputs[0] : kNoValue;
  }

  // The other operand of a node of two inputs that reads v once, or kNoValue.
  ValueId beside(int n, ValueId v) const {
    const Node& node = edit_.node(n);
    if (node.inputs.size() != 2 || (node.inputs[0] == v) == (node.inputs[1] == v)) return kNoValue;
    return node.inputs[0] == v ? node.inputs[1] : node.inputs[0];
  }

  // Makes node n another operator. Inputs are the caller's matter. False, with nothing changed, when the library has no such
  // operator.
  bool set_op(int n, const char* op_type, int since, std::vector<Attribute> attributes = {}, const char* domain = "") const {
    return become(edit_.node(n), op_type, since, std::move(attributes), domain);
  }

  // Makes node n the last of the nodes that compute what the model's operator does, with these inputs.
  void replace(int n, const char* op_type, int since, std::vector<Attribute> attributes, const std::vector<ValueId>& inputs) const {
    const std::string model_op = edit_.node(n).op_type;
    EVN_CHECK(set_op(n, op_type, since, std::move(attributes)));
    edit_.node(n).model_op = model_op;
    for (std::size_t i = 0; i < inputs.size(); ++i) edit_.set_input(n, static_cast<int>(i), inputs[i]);
    edit_.shrink_inputs(n, static_cast<int>(inputs.size()));
  }

  // A new node of an operator that the library has, without inputs and outputs.
  static Node made(const char* op_type, const char* domain, int since, std::string name, std::int32_t region,
                   std::vector<Attribute> attributes = {}) {
    Node node;
    node.name = std::move(name);
    node.region = region;
    EVN_CHECK(become(node, op_type, since, std::move(attributes), domain));
    return node;
  }

  // Node n becomes a part of node `into`.
  void absorb(int into, int n) const {
    std::vector<std::string>& names = edit_.node(into).fused;
    Node& from = edit_.node(n);
    names.insert(names.end(), std::make_move_iterator(from.fused.begin()), std::make_move_iterator(from.fused.end()));
    names.push_back(std::move(from.name));
    edit_.remove_node(n);
  }

 private:
  static bool become(Node& node, const char* op_type, int since, std::vector<Attribute> attributes, const char* domain) {
    const OpDef* op = find_op(domain, op_type, since);
    if (op == nullptr) return false;
    node.op_type = op_type;
    node.domain = domain;
    node.since_version = since;
    node.op = op;
    node.resolved.clear();
    for (const AttributeSpec& spec : op->attributes) node.resolved.push_back(resolve(spec, attributes));
    node.attributes = std::move(attributes);
    return true;
  }

  static AttributeValue resolve(const AttributeSpec& spec, const std::vector<Attribute>& given) {
    for (const Attribute& a : given) {
      if (a.name == spec.name) return a.value;
    }
    if (spec.type == AttributeType::kInt) return spec.default_int;
    if (spec.type == AttributeType::kFloat) return spec.default_float;
    if (spec.type == AttributeType::kString && spec.default_string != nullptr) return std::string(spec.default_string);
    return {};
  }

  GraphEditor& edit_;
};

}  // namespace evn
