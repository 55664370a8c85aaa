// The rewrite fold_gate: x + x * g.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/pass_check.h"

namespace evn::test::fold_gate_test {
namespace {

constexpr char kPass[] = "fold_gate";

// x + x * sigmoid(g), with the operands in either order.
Graph gated(const Shape& x_shape, const Shape& g_shape, bool swapped) {
  GraphBuilder b;
  const ValueId x = b.input("x", x_shape);
  const ValueId g = b.node("Sigmoid", {b.input("g", g_shape)});
  const ValueId product = swapped ? b.node("Mul", {g, x}) : b.node("Mul", {x, g});
  b.output(swapped ? b.node("Add", {product, x}, {}, "y") : b.node("Add", {x, product}, {}, "y"));
  return b.build();
}

TEST(FoldGate, AdditionMovesToTheSmallTensor) {
  for (const bool swapped : {false, true}) {
    const Graph original = gated(Shape{2, 3, -1, -1}, Shape{2, 3, 1, 1}, swapped);
    Graph graph = original;
    EXPECT_TRUE(run_pass(graph, kPass));
    ASSERT_EQ(graph.nodes.size(), 3u);
    EXPECT_EQ(graph.nodes[1].op_type, "Add");
    EXPECT_EQ(graph.values[graph.nodes[1].outputs[0]].shape.to_string(), "[2,3,1,1]");
    EXPECT_EQ(graph.nodes[2].op_type, "Mul");
    expect_same_results(graph, original, 1e-6, 1e-6);
  }
}

TEST(FoldGate, StaysWhereItSavesNothingOrWouldBroadcastX) {
  for (const Shape& g : {Shape{2, 3, 2, 2}, Shape{3, 1, 1}, Shape{5, 3, 1, 1}}) {
    const Shape x = g == Shape{5, 3, 1, 1} ? Shape{1, 3, 2, 2} : Shape{2, 3, 2, 2};
    Graph graph = gated(x, g, false);
    EXPECT_FALSE(run_pass(graph, kPass)) << g.to_string();
  }
}

TEST(FoldGate, ProductThatIsReadElsewhereOrIsOfAnotherTensorStays) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 3, 2, 2});
  const ValueId z = b.input("z", Shape{2, 3, 2, 2});
  const ValueId g = b.node("Sigmoid", {b.input("g", Shape{2, 3, 1, 1})});
  const ValueId product = b.node("Mul", {x, g});
  b.output(b.node("Add", {x, product}));
  b.output(b.node("Neg", {product}));
  b.output(b.node("Add", {z, b.node("Mul", {x, g})}));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
}

// x + x * g, where g is made of an input, and the bounds of a Clip, by one node.
Graph gated_by(const char* op, const std::vector<float>& bounds = {}) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{1, 1, 2, 2});
  std::vector<ValueId> inputs = {b.input("g", Shape{1, 1, 1, 1})};
  for (const float bound : bounds) inputs.push_back(b.scalar(bound));
  b.output(b.node("Add", {x, b.node("Mul", {x, b.node(op, inputs)})}, {}, "y"));
  return b.build();
}

TEST(FoldGate, GatesThatMayBeNegativeStay) {
  for (const Graph& original : {gated_by("Sigmoid"), gated_by("HardSigmoid"), gated_by("Relu"), gated_by("Clip", {0, 6})}) {
    Graph graph = original;
    EXPECT_TRUE(run_pass(graph, kPass)) << original.nodes[0].op_type;
  }
  for (const Graph& original : {gated_by("Neg"), gated_by("Tanh"), gated_by("Clip", {-1, 1})}) {
    Graph graph = original;
    EXPECT_FALSE(run_pass(graph, kPass)) << original.nodes[0].op_type;
    graph.nodes[0].epilogue.push({EpilogueOpKind::kHardSigmoid, 0.2f, 0.5f});
    EXPECT_TRUE(run_pass(graph, kPass)) << original.nodes[0].op_type;
  }
}

TEST(FoldGate, InfinitiesAndOverflowsAreThoseOfTheGraph) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const char* op : {"Sigmoid", "Neg"}) {
    const Graph original = gated_by(op);
    Graph graph = original;
    optimize_graph(graph, {});
    for (const float g : {0.5f, 2.0f}) {
      std::vector<HostTensor> inputs = {random_tensor(Shape{1, 1, 2, 2}, 3), random_tensor(Shape{1, 1, 1, 1}, 4)};
      std::ranges::copy(std::vector<float>{kInfinity, -kInfinity, 3e38f, 2}, inputs[0].as<float>().begin());
      inputs[1].as<float>()[0] = g;
      const HostTensor wanted = run_graph(original, inputs)[0], got = run_graph(graph, inputs)[0];
      for (std::size_t i = 0; i < 4; ++i) {
        const float x = wanted.as<float>()[i], y = got.as<float>()[i];
        EXPECT_TRUE(std::isnan(x) ? std::isnan(y) : x == y || std::fabs(x - y) <= 1e-6f * std::fabs(x))
            << op << " " << g << " " << i;
      }
    }
  }
}

TEST(FoldGate, BecomesAStepOfWhatComputesTheGate) {
  const Graph original = gated(Shape{2, 3, 4, 4}, Shape{2, 3, 1, 1}, false);
  Graph graph = original;
  optimize_graph(graph, {});
  ASSERT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(graph.nodes[0].op_type, "Sigmoid");
  EXPECT_EQ(graph.nodes[0].epilogue.count, 1);
  expect_same_results(graph, original, 1e-6, 1e-6);
}

}  // namespace
}  // namespace evn::test::fold_gate_test
