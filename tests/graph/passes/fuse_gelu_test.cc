// The rewrite fuse_gelu.
#include <gtest/gtest.h>

#include "tests/support/pass_check.h"

namespace evn::test::fuse_gelu_test {
namespace {

constexpr char kPass[] = "fuse_gelu";

struct Form {
  bool half_first = false;
  bool multiply = false;  // by 1 / sqrt(2)
  float root = 1.41421356f;
  float one = 1;
  float half = 0.5f;
};

ValueId gelu(GraphBuilder& b, ValueId x, const Form& f) {
  const ValueId t = f.multiply ? b.node("Mul", {b.scalar(1 / f.root), x}) : b.node("Div", {x, b.scalar(f.root)});
  const ValueId h = b.node("Add", {b.node("Erf", {t}), b.scalar(f.one)});
  if (f.half_first) return b.node("Mul", {b.node("Mul", {x, b.scalar(f.half)}), h}, {}, "y");
  return b.node("Mul", {b.node("Mul", {x, h}), b.scalar(f.half)}, {}, "y");
}

TEST(FuseGelu, EachFormBecomesOneNode) {
  for (const Form& f : {Form{}, Form{true}, Form{false, true}, Form{true, true}}) {
    GraphBuilder b;
    b.output(gelu(b, b.input("x", Shape{3, 5}), f));
    Graph graph = b.build();
    EXPECT_TRUE(run_pass(graph, kPass));
    ASSERT_EQ(graph.nodes.size(), 1u);
    EXPECT_EQ(graph.nodes[0].op_type, "Gelu");
    EXPECT_EQ(graph.nodes[0].fused.size(), 4u);
    expect_same_results(graph, b.build(), 1e-5, 1e-6);
  }
}

struct TanhForm {
  bool half_first = false;
  bool power = false;
  float root = 0.7978845834732056f;
  float cubic = 0.044714998453855515f;
};

ValueId gelu_tanh(GraphBuilder& b, ValueId x, const TanhForm& f) {
  const ValueId cube = f.power ? b.node("Pow", {x, b.scalar(3)}) : b.node("Mul", {x, b.node("Mul", {x, x})});
  const ValueId sum = b.node("Add", {x, b.node("Mul", {b.scalar(f.cubic), cube})});
  const ValueId h = b.node("Add", {b.scalar(1), b.node("Tanh", {b.node("Mul", {b.scalar(f.root), sum})})});
  if (f.half_first) return b.node("Mul", {b.node("Mul", {b.scalar(0.5f), x}), h}, {}, "y");
  return b.node("Mul", {b.scalar(0.5f), b.node("Mul", {x, h})}, {}, "y");
}

TEST(FuseGelu, TanhFormsBecomeOneNode) {
  for (const TanhForm& f : {TanhForm{}, TanhForm{true, false}, TanhForm{false, true}, TanhForm{true, true}}) {
    GraphBuilder b;
    b.output(gelu_tanh(b, b.input("x", Shape{3, 5}), f));
    Graph graph = b.build();
    EXPECT_TRUE(run_pass(graph, kPass));
    ASSERT_EQ(graph.nodes.size(), 1u);
    EXPECT_EQ(graph.nodes[0].op_type, "Gelu");
    EXPECT_EQ(graph.nodes[0].fused.size(), f.power ? 7u : 8u);
    expect_same_results(graph, b.build(), 1e-5, 1e-6);
  }
}

TEST(FuseGelu, OtherNumbersOfTheTanhFormStay) {
  for (const TanhForm& f : {TanhForm{false, false, 0.8f}, TanhForm{false, true, 0.7978845834732056f, 0.05f}}) {
    GraphBuilder b;
    b.output(gelu_tanh(b, b.input("x", Shape{3, 5}), f));
    Graph graph = b.build();
    EXPECT_FALSE(run_pass(graph, kPass));
  }
}

TEST(FuseGelu, OtherNumbersStay) {
  Form root, one, half;
  root.root = 1.4f;
  one.one = 1.5f;
  half.half = 0.25f;
  for (const Form& f : {root, one, half}) {
    GraphBuilder b;
    b.output(gelu(b, b.input("x", Shape{3, 5}), f));
    Graph graph = b.build();
    EXPECT_FALSE(run_pass(graph, kPass));
  }
}

TEST(FuseGelu, IntermediateThatIsReadElsewhereStays) {
  for (int kept = 0; kept < 4; ++kept) {
    for (const bool half_first : {false, true}) {
      GraphBuilder b;
      b.output(gelu(b, b.input("x", Shape{3, 5}), {half_first}));
      b.output(b.node("Neg", {b.graph().nodes[kept].outputs[0]}));
      Graph graph = b.build();
      EXPECT_FALSE(run_pass(graph, kPass)) << kept;
    }
  }
}

TEST(FuseGelu, FactorOfAnotherTensorStays) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{3, 5});
  const ValueId z = b.input("z", Shape{3, 5});
  const ValueId h = b.node("Add", {b.node("Erf", {b.node("Div", {x, b.scalar(1.41421356f)})}), b.scalar(1)});
  b.output(b.node("Mul", {b.node("Mul", {z, h}), b.scalar(0.5f)}));
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
}

}  // namespace
}  // namespace evn::test::fuse_gelu_test
