// The rewrite plain_operators.
#include <gtest/gtest.h>

#include "tests/support/pass_check.h"

namespace evn::test::plain_operators_test {
namespace {

constexpr char kPass[] = "plain_operators";

Attribute attribute(const char* name, AttributeValue value) { return {name, std::move(value)}; }

void expect_becomes(GraphBuilder& b, const char* op_type, int steps) {
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].op_type, op_type);
  EXPECT_EQ(graph.nodes[0].domain, "");
  EXPECT_EQ(graph.nodes[0].epilogue.count, steps);
  EXPECT_FALSE(run_pass(graph, kPass));
  expect_same_results(graph, b.build(), 1e-5, 1e-6);
}

void expect_stays(GraphBuilder& b) {
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes[0].domain, "com.microsoft");
}

const Attribute kPads = attribute("pads", std::vector<std::int64_t>{1, 1, 1, 1});

TEST(PlainOperators, FusedConvIsConvWithItsActivation) {
  for (const char* name : {"Relu", "LeakyRelu", "Clip"}) {
    GraphBuilder b;
    const ValueId x = b.input("x", Shape{2, 3, 6, 5}), w = b.input("w", Shape{4, 3, 3, 3}), bias = b.input("b", Shape{4});
    const Attribute numbers = attribute("activation_params", std::vector<float>{0.1f, 0.5f});
    b.output(b.node("com.microsoft::FusedConv", {x, w, bias}, {kPads, attribute("activation", std::string(name)), numbers}));
    expect_becomes(b, "Conv", 1);
  }
}

TEST(PlainOperators, FusedConvThatAddsStays) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 3, 6, 5}), w = b.input("w", Shape{4, 3, 3, 3}), bias = b.input("b", Shape{4});
  b.output(b.node("com.microsoft::FusedConv", {x, w, bias, b.input("z", Shape{2, 4, 6, 5})}, {kPads}));
  expect_stays(b);
}

TEST(PlainOperators, FusedGemmIsGemmWithItsActivation) {
  GraphBuilder b;
  b.output(
      b.node("com.microsoft::FusedGemm", {b.input("a", Shape{3, 5}), b.input("b", Shape{4, 5}), b.input("c", Shape{4})},
             {attribute("transB", std::int64_t{1}), attribute("alpha", 0.5f), attribute("activation", std::string("HardSigmoid")),
              attribute("activation_alpha", 0.3f), attribute("activation_beta", 0.4f)}));
  expect_becomes(b, "Gemm", 1);
}

TEST(PlainOperators, FusedMatMulIsMatMulOrGemm) {
  GraphBuilder scaled;
  scaled.output(scaled.node("com.microsoft::FusedMatMul", {scaled.input("a", Shape{2, 3, 5}), scaled.input("b", Shape{5, 4})},
                            {attribute("alpha", 0.25f)}));
  expect_becomes(scaled, "MatMul", 1);
  GraphBuilder turned;
  turned.output(
      turned.node("com.microsoft::FusedMatMul", {turned.input("a", Shape{5, 3}), turned.input("b", Shape{4, 5})},
                  {attribute("alpha", 0.25f), attribute("transA", std::int64_t{1}), attribute("transB", std::int64_t{1})}));
  expect_becomes(turned, "Gemm", 0);
}

TEST(PlainOperators, FusedMatMulOfTransposedBatchesIsMatMulBehindTransposes) {
  for (const bool batch_a : {false, true}) {
    for (const bool batch_b : {false, true}) {
      for (const std::int64_t a : {0, 1}) {
        GraphBuilder b;
        b.output(b.node("com.microsoft::FusedMatMul", {b.input("a", Shape{4, 4, 4, 4}), b.input("b", Shape{4, 4, 4, 4})},
                        {attribute("transBatchA", std::int64_t{batch_a}), attribute("transBatchB", std::int64_t{batch_b}),
                         attribute("transA", a), attribute("transB", std::int64_t{1}), attribute("alpha", 0.25f)}));
        Graph graph = b.build();
        EXPECT_TRUE(run_pass(graph, kPass));
        EXPECT_EQ(graph.nodes.back().op_type, "MatMul");
        EXPECT_EQ(graph.nodes.back().epilogue.count, 1);
        EXPECT_EQ(graph.nodes.size(), a == 1 || batch_a ? 3u : 2u);
        for (const Node& node : graph.nodes) EXPECT_EQ(node.domain, "");
        expect_same_results(graph, b.build(), 1e-5, 1e-6);
      }
    }
  }
}

TEST(PlainOperators, GelusWithABiasAreAnAddAndAGelu) {
  const std::pair<const char*, const char*> kinds[] = {{"BiasGelu", "Gelu"}, {"FastGelu", "Gelu"}, {"QuickGelu", "Swish"}};
  for (const auto& [from, to] : kinds) {
    for (const bool has_bias : {false, true}) {
      const std::string name = from;
      if (has_bias ? name == "QuickGelu" : name == "BiasGelu") continue;
      GraphBuilder b;
      std::vector<ValueId> inputs = {b.input("x", Shape{2, 3, 5})};
      if (has_bias) inputs.push_back(b.input("bias", Shape{5}));
      b.output(b.node("com.microsoft::" + name, inputs));
      Graph graph = b.build();
      EXPECT_TRUE(run_pass(graph, kPass)) << name;
      EXPECT_EQ(graph.nodes.size(), has_bias ? 2u : 1u) << name;
      EXPECT_EQ(graph.nodes.back().op_type, to);
      EXPECT_FALSE(run_pass(graph, kPass));
      expect_same_results(graph, b.build(), 1e-5, 1e-6);
    }
  }
}

TEST(PlainOperators, GeluIsOnnxs) {
  GraphBuilder b;
  b.output(b.node("com.microsoft::Gelu", {b.input("x", Shape{3, 5})}));
  expect_becomes(b, "Gelu", 0);
}

}  // namespace
}  // namespace evn::test::plain_operators_test
