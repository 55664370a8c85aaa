// The rewrite dead_code.
#include <gtest/gtest.h>

#include "tests/support/pass_check.h"

namespace evn::test {
namespace {

constexpr char kPass[] = "dead_code";

TEST(DeadCode, DropsChainsThatLeadNowhereAndTheirConstants) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 3});
  b.random("never read", Shape{8});
  const ValueId dead = b.node("Add", {x, b.random("w", Shape{3})}, {}, "dead");
  b.node("Relu", {dead}, {}, "end of the dead");
  b.output(b.node("Relu", {x}, {}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.values.size(), 2u);
  expect_same_results(graph, b.build());
}

TEST(DeadCode, KeepsInputsThatNobodyReads) {
  GraphBuilder b;
  b.input("unused", Shape{5});
  b.output(b.node("Relu", {b.input("x", Shape{2})}, {}, "y"));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
  EXPECT_EQ(graph.inputs.size(), 2u);
  EXPECT_EQ(graph.values[graph.inputs[0]].name, "unused");
}

TEST(DeadCode, SplitKeepsTheNumberOfItsOutputs) {
  GraphBuilder b;
  const std::vector<ValueId> parts = b.nodes("Split", {b.input("x", Shape{6, 2})}, 3, {{"axis", std::int64_t{0}}});
  b.output(b.node("Relu", {parts[1]}, {}, "y"));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes[0].outputs.size(), 3u);
  expect_same_results(graph, b.build());
}

TEST(DeadCode, OptionalOutputThatNobodyReadsIsNotWanted) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{1, 1, 4, 4});
  const std::vector<ValueId> pooled = b.nodes("MaxPool", {x}, 2, {{"kernel_shape", std::vector<std::int64_t>{2, 2}}});
  b.output(pooled[0]);
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes[0].outputs[1], kNoValue);
  expect_same_results(graph, b.build());
}

}  // namespace
}  // namespace evn::test
