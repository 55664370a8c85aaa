// The rewrite eliminate_identity.
#include <gtest/gtest.h>

#include "tests/support/pass_check.h"

namespace evn::test::eliminate_identity_test {
namespace {

constexpr char kPass[] = "eliminate_identity";

TEST(EliminateIdentity, TakesChainsOfIdentitiesAway) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 3});
  const ValueId i1 = b.node("Identity", {x});
  const ValueId i2 = b.node("Identity", {i1});
  b.output(b.node("Add", {i2, i1}, {}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 1u);
  expect_same_results(graph, b.build());
}

TEST(EliminateIdentity, OutputKeepsItsNameAndOtherReadersFollow) {
  GraphBuilder b;
  const ValueId r = b.node("Relu", {b.input("x", Shape{2, 3})}, {}, "r");
  b.output(b.node("Identity", {r}, {}, "y"));
  b.output(b.node("Neg", {r}, {}, "z"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(count_op(graph, "Identity"), 0);
  expect_same_results(graph, b.build());
}

TEST(EliminateIdentity, OutputsOfOneNodeGetTheNamesOfTheGraph) {
  GraphBuilder b;
  const std::vector<ValueId> parts = b.nodes("Split", {b.input("x", Shape{6})}, 3);
  for (const std::size_t i : {2u, 0u, 1u}) b.output(b.node("Identity", {parts[i]}, {}, "y" + std::to_string(i)));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(count_op(graph, "Identity"), 0);
  expect_same_results(graph, b.build());
}

TEST(EliminateIdentity, StaysBetweenTwoNamesOfTheGraph) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 3});
  const ValueId r = b.node("Relu", {x}, {}, "r");
  b.output(b.node("Identity", {x}, {}, "copy of an input"));
  b.output(r);
  b.output(b.node("Identity", {r}, {}, "copy of an output"));
  b.output(b.node("Identity", {b.random("w", Shape{3})}, {}, "copy of a constant"));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
  EXPECT_EQ(count_op(graph, "Identity"), 3);
  expect_same_results(graph, b.build());
}

TEST(EliminateIdentity, OnlyCastsToTheSameTypeGo) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 3});
  const ValueId same = b.node("Cast", {x}, {{"to", std::int64_t{EVN_DTYPE_FLOAT32}}});
  const ValueId other = b.node("Cast", {same}, {{"to", std::int64_t{EVN_DTYPE_INT32}}});
  b.output(b.node("Cast", {other}, {{"to", std::int64_t{EVN_DTYPE_FLOAT32}}}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(count_op(graph, "Cast"), 2);
  expect_same_results(graph, b.build());
}

TEST(EliminateIdentity, ReshapeGoesOnlyWhenItsShapeIsKnownToStay) {
  for (const std::int64_t batch : {std::int64_t{2}, std::int64_t{-1}}) {
    GraphBuilder b;
    const ValueId x = b.input("x", Shape{batch, 3});
    b.output(b.node("Relu", {b.node("Reshape", {x, b.ints({2, 3})})}, {}, "y"));
    Graph graph = b.build();
    EXPECT_EQ(run_pass(graph, kPass), batch == 2);
    expect_same_results(graph, b.build());
  }
}

TEST(EliminateIdentity, TransposeGoesOnlyWhenItKeepsTheOrder) {
  for (const bool keeps : {true, false}) {
    GraphBuilder b;
    const std::vector<std::int64_t> perm = keeps ? std::vector<std::int64_t>{0, 1} : std::vector<std::int64_t>{1, 0};
    b.output(b.node("Relu", {b.node("Transpose", {b.input("x", Shape{2, 3})}, {{"perm", perm}})}, {}, "y"));
    Graph graph = b.build();
    EXPECT_EQ(run_pass(graph, kPass), keeps);
    expect_same_results(graph, b.build());
  }
}

TEST(EliminateIdentity, MultiplicationByOneGoesUnlessItRaisesTheRank) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 3});
  const ValueId one = b.node("Mul", {b.scalar(1), x});
  const ValueId divided = b.node("Div", {one, b.constant<float>("one", Shape{1}, {1})});
  const ValueId raised = b.node("Mul", {divided, b.constant<float>("ones", Shape{1, 1, 1}, {1})});
  b.output(b.node("Mul", {raised, b.scalar(2)}, {}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(count_op(graph, "Mul"), 2);
  EXPECT_EQ(count_op(graph, "Div"), 0);
  expect_same_results(graph, b.build());
}

TEST(EliminateIdentity, OneDividedByXStays) {
  GraphBuilder b;
  b.output(b.node("Div", {b.scalar(1), b.node("Exp", {b.input("x", Shape{4})})}, {}, "y"));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
}

}  // namespace
}  // namespace evn::test::eliminate_identity_test
