// The rewrite fold_gate: x + x * g.
#include <gtest/gtest.h>

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
  const ValueId g = b.input("g", Shape{2, 3, 1, 1});
  const ValueId product = b.node("Mul", {x, g});
  b.output(b.node("Add", {x, product}));
  b.output(b.node("Neg", {product}));
  b.output(b.node("Add", {z, b.node("Mul", {x, g})}));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
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
