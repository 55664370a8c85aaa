// Runs a graph node by node with the reference kernels only: what plans, fused kernels and rewrites are compared with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "graph/infer.h"
#include "ops/op.h"
#include "tests/support/graph_builder.h"

namespace evn::test {

// A dense tensor with bytes of its own.
struct HostTensor {
  TensorDesc desc;
  std::vector<std::uint64_t> bytes;

  HostTensor() = default;
  explicit HostTensor(const TensorDesc& d) : desc(d), bytes((d.size_bytes() + 7) / 8 + 1) {}
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(bytes.data()), static_cast<std::size_t>(desc.shape.elements())};
  }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes.data()), static_cast<std::size_t>(desc.shape.elements())};
  }
};

inline HostTensor random_tensor(const Shape& shape, std::uint64_t seed, float low = -4, float high = 4) {
  HostTensor t({DType::kFloat32, shape});
  Random random(seed);
  for (float& e : t.as<float>()) e = random.uniform(low, high);
  return t;
}

class GraphRunner {
 public:
  explicit GraphRunner(const Graph& graph) : graph_(graph), tensors_(graph.values.size()), known_(graph.values.size(), false) {}

  // `inputs` in the order of graph.inputs; the result in the order of graph.outputs. Throws evn::Error.
  std::vector<HostTensor> run(const std::vector<HostTensor>& inputs) {
    if (inputs.size() != graph_.inputs.size()) fail(EVN_ERROR_INVALID_ARGUMENT, "the graph has %zu inputs", graph_.inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) put(graph_.inputs[i], inputs[i]);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].constant != nullptr) put(static_cast<ValueId>(v), copy_of(*graph_.values[v].constant));
    }
    for (const Node& node : graph_.nodes) run_node(node);
    std::vector<HostTensor> outputs;
    for (ValueId v : graph_.outputs) {
      if (!known_[v]) fail(EVN_ERROR_INVALID_MODEL, "output \"%s\" is not computed", graph_.values[v].name.c_str());
      outputs.push_back(tensors_[v]);
    }
    return outputs;
  }

 private:
  static HostTensor copy_of(const Weight& weight) {
    HostTensor t(weight.desc);
    std::memcpy(t.bytes.data(), weight.data.get(), weight.size_bytes);
    return t;
  }

  void put(ValueId v, HostTensor tensor) {
    tensors_[v] = std::move(tensor);
    known_[v] = true;
  }

  void run_node(const Node& node) {
    std::vector<TensorDesc> descs;
    std::vector<ConstTensor> inputs;
    for (ValueId v : node.inputs) {
      if (v != kNoValue && !known_[v]) fail(EVN_ERROR_INVALID_MODEL, "an input of %s is not computed yet", node.name.c_str());
      descs.push_back(v == kNoValue ? TensorDesc{} : tensors_[v].desc);
      inputs.push_back(v == kNoValue ? ConstTensor{} : ConstTensor{tensors_[v].desc, tensors_[v].bytes.data()});
    }
    std::vector<TensorDesc> out_descs(node.outputs.size());
    infer_node(node, descs, inputs, out_descs);
    std::vector<HostTensor> results(node.outputs.size());
    std::vector<MutableTensor> outputs(node.outputs.size());
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      results[i] = HostTensor(out_descs[i]);
      outputs[i] = {out_descs[i], results[i].bytes.data()};
    }
    run_reference({node, inputs, outputs});
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) put(node.outputs[i], std::move(results[i]));
    }
  }

  const Graph& graph_;
  std::vector<HostTensor> tensors_;
  std::vector<bool> known_;
};

inline std::vector<HostTensor> run_graph(const Graph& graph, const std::vector<HostTensor>& inputs) {
  return GraphRunner(graph).run(inputs);
}

// |a-b| <= rtol*|b| + atol*max|b|; fails too when all of b is one number, because then the comparison says little.
inline void expect_close(const HostTensor& a, const HostTensor& b, double rtol, double atol) {
  ASSERT_EQ(a.desc.shape.to_string(), b.desc.shape.to_string());
  ASSERT_EQ(a.desc.dtype, DType::kFloat32);
  ASSERT_EQ(b.desc.dtype, DType::kFloat32);
  double largest = 0;
  bool varies = false;
  const std::span<const float> x = a.as<float>();
  const std::span<const float> y = b.as<float>();
  for (float v : y) {
    largest = std::max(largest, std::fabs(static_cast<double>(v)));
    varies |= v != y[0];
  }
  EXPECT_TRUE(varies || y.size() < 2) << "the expected tensor is constant";
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    const double bound = rtol * std::fabs(static_cast<double>(y[i])) + atol * largest;
    ASSERT_LE(std::fabs(static_cast<double>(x[i]) - y[i]), bound) << "at " << i << ": " << x[i] << " against " << y[i];
  }
}

}  // namespace evn::test
