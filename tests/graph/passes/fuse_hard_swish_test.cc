// The rewrite fuse_hard_swish: the forms in which exporters write hard-swish and hard-sigmoid.
#include <gtest/gtest.h>

#include "tests/support/pass_check.h"

namespace evn::test::fuse_hard_swish_test {
namespace {

constexpr char kPass[] = "fuse_hard_swish";
constexpr float kSixth = 1.0f / 6.0f;

struct Form {
  bool divide_first = false;    // before the multiplication with x
  bool multiply_sixth = false;  // instead of dividing by six
  bool swapped = false;         // operands the other way round
  int opset = 13;
};

struct Numbers {
  float three = 3;
  float low = 0;
  float high = 6;
  float six = 6;
};

ValueId binary(GraphBuilder& b, const char* op, ValueId a, ValueId c, bool swapped) {
  return swapped ? b.node(op, {c, a}) : b.node(op, {a, c});
}

ValueId clip(GraphBuilder& b, ValueId v, const Numbers& n, int opset) {
  if (opset < 11) return b.node("Clip", {v}, {{"min", n.low}, {"max", n.high}});
  return b.node("Clip", {v, b.scalar(n.low), b.scalar(n.high)});
}

ValueId by_six(GraphBuilder& b, ValueId v, const Form& form, const Numbers& n) {
  if (form.multiply_sixth) return binary(b, "Mul", v, b.scalar(1 / n.six), form.swapped);
  return b.node("Div", {v, b.scalar(n.six)});
}

ValueId hard_swish(GraphBuilder& b, ValueId x, const Form& form, const Numbers& n = {}) {
  const ValueId c = clip(b, binary(b, "Add", x, b.scalar(n.three), form.swapped), n, form.opset);
  if (form.divide_first) return binary(b, "Mul", x, by_six(b, c, form, n), form.swapped);
  return by_six(b, binary(b, "Mul", x, c, form.swapped), form, n);
}

TEST(FuseHardSwish, EachFormBecomesOneNode) {
  for (const int opset : {10, 13}) {
    for (int bits = 0; bits < 8; ++bits) {
      const Form form{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, opset};
      GraphBuilder b(opset);
      b.output(hard_swish(b, b.input("x", Shape{3, 5}), form));
      Graph graph = b.build();
      EXPECT_TRUE(run_pass(graph, kPass)) << bits;
      ASSERT_EQ(graph.nodes.size(), 1u) << bits;
      EXPECT_EQ(graph.nodes[0].op_type, "HardSwish");
      EXPECT_EQ(graph.nodes[0].fused.size(), 3u);
      expect_same_results(graph, b.build(), 1e-5, 1e-6);
    }
  }
}

TEST(FuseHardSwish, OtherNumbersStay) {
  for (const Numbers& n : {Numbers{2.9f}, Numbers{3, 0.1f}, Numbers{3, 0, 5}, Numbers{3, 0, 6, 5}}) {
    GraphBuilder b;
    b.output(hard_swish(b, b.input("x", Shape{3, 5}), {}, n));
    Graph graph = b.build();
    EXPECT_FALSE(run_pass(graph, kPass));
    EXPECT_EQ(graph.nodes.size(), 4u);
  }
}

TEST(FuseHardSwish, IntermediateThatIsReadElsewhereStays) {
  for (int kept = 0; kept < 3; ++kept) {
    GraphBuilder b;
    const ValueId x = b.input("x", Shape{3, 5});
    b.output(hard_swish(b, x, {}));
    b.output(b.node("Neg", {b.graph().nodes[kept].outputs[0]}));
    Graph graph = b.build();
    EXPECT_FALSE(run_pass(graph, kPass)) << kept;
  }
}

TEST(FuseHardSwish, IntermediateThatIsAnOutputStays) {
  GraphBuilder b;
  b.output(hard_swish(b, b.input("x", Shape{3, 5}), {}));
  b.output(b.graph().nodes[1].outputs[0]);
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
}

TEST(FuseHardSwish, AnotherTensorAsTheFactorStays) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{3, 5});
  const ValueId z = b.input("z", Shape{3, 5});
  const ValueId c = clip(b, b.node("Add", {x, b.scalar(3)}), {}, 13);
  b.output(b.node("Div", {b.node("Mul", {z, c}), b.scalar(6)}));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
}

TEST(FuseHardSwish, ComputedThreeStays) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{3, 5});
  const ValueId c = clip(b, b.node("Add", {x, b.input("three", Shape{1})}), {}, 13);
  b.output(b.node("Div", {b.node("Mul", {x, c}), b.scalar(6)}));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
}

TEST(FuseHardSwish, WithoutTheFactorItIsHardSigmoid) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{3, 5});
  const Form form{true, false, false, 13};
  b.output(b.node("Neg", {by_six(b, clip(b, b.node("Add", {x, b.scalar(3)}), {}, 13), form, {})}, {}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(count_op(graph, "HardSigmoid"), 1);
  expect_same_results(graph, b.build(), 1e-5, 1e-6);
}

TEST(FuseHardSwish, SigmoidTimesItsInputIsSwish) {
  for (const bool swapped : {false, true}) {
    GraphBuilder b;
    const ValueId x = b.input("x", Shape{3, 5});
    b.output(binary(b, "Mul", x, b.node("Sigmoid", {x}), swapped));
    Graph graph = b.build();
    EXPECT_TRUE(run_pass(graph, kPass));
    ASSERT_EQ(graph.nodes.size(), 1u);
    EXPECT_EQ(graph.nodes[0].op_type, "Swish");
    expect_same_results(graph, b.build(), 1e-5, 1e-6);
  }
}

TEST(FuseHardSwish, SigmoidOfAnotherTensorStays) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{3, 5});
  b.output(b.node("Mul", {b.input("z", Shape{3, 5}), b.node("Sigmoid", {x})}));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
}

TEST(FuseHardSwish, SigmoidOfAMultipleIsSwishToo) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{3, 5});
  b.output(b.node("Mul", {x, b.node("Sigmoid", {b.node("Mul", {x, b.scalar(1.702f)})})}, {}, "y"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].fused.size(), 2u);
  expect_same_results(graph, b.build(), 1e-5, 1e-6);
}

TEST(FuseHardSwish, SigmoidThatIsReadElsewhereStays) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{3, 5});
  const ValueId s = b.node("Sigmoid", {x});
  b.output(b.node("Mul", {x, s}));
  b.output(b.node("Neg", {s}));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
}

TEST(FuseHardSwish, HardSigmoidTimesItsInput) {
  for (const float alpha : {kSixth, 0.16666670143604279f, 0.2f}) {
    GraphBuilder b;
    const ValueId x = b.input("x", Shape{3, 5});
    b.output(b.node("Mul", {b.node("HardSigmoid", {x}, {{"alpha", alpha}, {"beta", 0.5f}}), x}, {}, "y"));
    Graph graph = b.build();
    EXPECT_EQ(run_pass(graph, kPass), alpha != 0.2f);
    EXPECT_EQ(count_op(graph, "HardSwish"), alpha != 0.2f ? 1 : 0);
    expect_same_results(graph, b.build(), 1e-5, 1e-6);
  }
}

TEST(FuseHardSwish, EpilogueBehindTheLastNodeStaysThere) {
  GraphBuilder b;
  b.output(hard_swish(b, b.input("x", Shape{3, 5}), {}));
  b.graph().nodes.back().epilogue.push({EpilogueOpKind::kScale, -2.0f, 0});
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  expect_same_results(graph, b.build(), 1e-5, 1e-6);
}

}  // namespace
}  // namespace evn::test::fuse_hard_swish_test
