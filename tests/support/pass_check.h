// Compares a graph with what the rewrites make of it.
#pragma once

#include <string>
#include <vector>

#include "graph/infer.h"
#include "graph/passes/passes.h"
#include "tests/support/graph_runner.h"

namespace evn::test {

inline int count_op(const Graph& graph, const std::string& op_type) {
  return static_cast<int>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.op_type == op_type; }));
}

inline const Node* find_node(const Graph& graph, const std::string& op_type) {
  for (const Node& n : graph.nodes) {
    if (n.op_type == op_type) return &n;
  }
  return nullptr;
}

// Runs one rewrite, and inference before and after it. Returns whether it changed anything.
inline bool run_pass(Graph& graph, const char* name, const PassContext& context = {}) {
  infer_graph(graph);
  for (const Pass& pass : passes()) {
    if (std::string(pass.name) != name) continue;
    const bool changed = pass.run(graph, context);
    infer_graph(graph);
    return changed;
  }
  ADD_FAILURE() << "no pass is named " << name;
  return false;
}

// Random float32 inputs of the declared shapes; unknown dims are 2.
inline std::vector<HostTensor> random_inputs(const Graph& graph, std::uint64_t seed) {
  std::vector<HostTensor> inputs;
  for (ValueId v : graph.inputs) {
    Shape shape = graph.values[v].shape;
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape[i] < 0) shape[i] = 2;
    }
    inputs.push_back(random_tensor(shape, seed++, -5, 5));
  }
  return inputs;
}

// Both graphs give the same numbers for two random inputs, under the same output names.
inline void expect_same_results(const Graph& rewritten, const Graph& original, double rtol = 1e-5, double atol = 1e-6) {
  ASSERT_EQ(rewritten.outputs.size(), original.outputs.size());
  for (std::uint64_t seed : {11, 1789}) {
    const std::vector<HostTensor> inputs = random_inputs(original, seed);
    const std::vector<HostTensor> expected = run_graph(original, inputs);
    const std::vector<HostTensor> got = run_graph(rewritten, inputs);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(rewritten.values[rewritten.outputs[i]].name, original.values[original.outputs[i]].name);
      expect_close(got[i], expected[i], rtol, atol);
    }
  }
}

}  // namespace evn::test
