// The rewrite fold_batch_norm: normalization, scales and biases go into the weights before them.
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/pass_check.h"

namespace evn::test::fold_batch_norm_test {
namespace {

constexpr char kPass[] = "fold_batch_norm";
const std::vector<Attribute> kSame = {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}};

ValueId batch_norm(GraphBuilder& b, ValueId x, std::int64_t channels, const std::string& name = "bn") {
  return b.node("BatchNormalization",
                {x, b.random(name + ".scale", Shape{channels}, 0.5f, 2), b.random(name + ".bias", Shape{channels}),
                 b.random(name + ".mean", Shape{channels}), b.random(name + ".var", Shape{channels}, 0.2f, 3)},
                {{"epsilon", 1e-3f}}, name);
}

// Conv of x [2, 4, 5, 5] to 6 channels, followed by what `rest` adds; y is the output.
Graph conv_and(const std::function<ValueId(GraphBuilder&, ValueId)>& rest, bool bias = true) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 4, 5, 5});
  std::vector<ValueId> inputs = {x, b.random("w", Shape{6, 4, 3, 3})};
  if (bias) inputs.push_back(b.random("b", Shape{6}));
  b.output(rest(b, b.node("Conv", inputs, kSame, "conv")));
  return b.build();
}

void expect_folded(const Graph& original, std::size_t nodes) {
  Graph graph = original;
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), nodes);
  expect_same_results(graph, original, 1e-5, 1e-5);
}

void expect_unchanged(const Graph& original) {
  Graph graph = original;
  EXPECT_FALSE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), original.nodes.size());
}

TEST(FoldBatchNorm, GoesIntoAConvolutionWithAndWithoutBias) {
  for (const bool bias : {true, false}) {
    expect_folded(conv_and([](GraphBuilder& b, ValueId c) { return batch_norm(b, c, 6); }, bias), 1);
  }
}

TEST(FoldBatchNorm, GoesIntoAGroupedConvolution) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{1, 4, 5, 5});
  const ValueId c = b.node("Conv", {x, b.random("w", Shape{6, 2, 3, 3})}, {{"group", std::int64_t{2}}});
  b.output(batch_norm(b, c, 6));
  expect_folded(b.build(), 1);
}

TEST(FoldBatchNorm, GoesIntoAGroupedTransposedConvolution) {
  for (const std::int64_t group : {1, 2}) {
    GraphBuilder b;
    const ValueId x = b.input("x", Shape{1, 4, 3, 3});
    const ValueId c = b.node("ConvTranspose", {x, b.random("w", Shape{4, 6 / group, 2, 2})},
                             {{"group", group}, {"strides", std::vector<std::int64_t>{2, 2}}});
    b.output(batch_norm(b, c, 6));
    expect_folded(b.build(), 1);
  }
}

TEST(FoldBatchNorm, GoesIntoGemmOfEitherOrientation) {
  for (const std::int64_t transposed : {0, 1}) {
    GraphBuilder b;
    const ValueId x = b.input("x", Shape{3, 4});
    const ValueId g = b.node("Gemm", {x, b.random("w", transposed != 0 ? Shape{6, 4} : Shape{4, 6}), b.random("c", Shape{6})},
                             {{"transB", transposed}, {"alpha", 0.5f}});
    b.output(b.node("Mul", {batch_norm(b, g, 6), b.random("row", Shape{1, 6}, 1, 2)}, {}, "y"));
    expect_folded(b.build(), 1);
  }
}

TEST(FoldBatchNorm, GemmWithAnotherBetaStays) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{3, 4});
  const ValueId g = b.node("Gemm", {x, b.random("w", Shape{4, 6}), b.random("c", Shape{6})}, {{"beta", 2.0f}});
  b.output(batch_norm(b, g, 6));
  expect_unchanged(b.build());
}

TEST(FoldBatchNorm, BiasAsAnAdditionPerChannelOrScalar) {
  for (const Shape& shape : {Shape{1, 6, 1, 1}, Shape{6, 1, 1}, Shape{1}, Shape{}, Shape{1, 1, 1, 1}}) {
    const auto add = [&](GraphBuilder& b, ValueId c) { return b.node("Add", {b.random("k", shape), c}, {}, "y"); };
    expect_folded(conv_and(add, false), 1);
  }
}

TEST(FoldBatchNorm, ConstantsOfOtherShapesStay) {
  for (const Shape& shape : {Shape{5}, Shape{1, 1, 5, 1}, Shape{2, 1, 1, 1}, Shape{1, 1, 1, 1, 1}, Shape{2, 6, 1, 1}}) {
    expect_unchanged(conv_and([&](GraphBuilder& b, ValueId c) { return b.node("Add", {c, b.random("k", shape)}, {}, "y"); }));
  }
}

TEST(FoldBatchNorm, ScaleAndOffsetBlocksFoldInOneGo) {
  expect_folded(conv_and([](GraphBuilder& b, ValueId c) {
                  ValueId v = b.node("Mul", {b.constant<float>("s", Shape{1}, {0.9f}), c});
                  v = b.node("Add", {v, b.constant<float>("t", Shape{1}, {0.5f})});
                  v = batch_norm(b, v, 6);
                  v = b.node("Div", {v, b.random("d", Shape{6, 1, 1}, 1, 2)});
                  v = b.node("Sub", {v, b.scalar(0.25f)});
                  return b.node("Sub", {b.scalar(3), v}, {}, "y");
                }),
                1);
}

TEST(FoldBatchNorm, FoldedNodesAreListed) {
  Graph graph = conv_and([](GraphBuilder& b, ValueId c) { return b.node("Add", {batch_norm(b, c, 6), b.scalar(1)}, {}, "plus"); });
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes[0].name, "conv");
  EXPECT_EQ(graph.nodes[0].fused, (std::vector<std::string>{"bn", "plus"}));
}

TEST(FoldBatchNorm, StopsWhereTheValueIsReadTwiceOrIsAnOutput) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{1, 4, 5, 5});
  const ValueId w = b.random("w", Shape{6, 4, 3, 3});
  const ValueId twice = b.node("Conv", {x, w});
  b.output(batch_norm(b, twice, 6));
  b.output(b.node("Relu", {twice}));
  const ValueId out = b.node("Conv", {x, w});
  b.output(out);
  b.output(batch_norm(b, out, 6, "bn2"));
  expect_unchanged(b.build());
}

TEST(FoldBatchNorm, SharedWeightKeepsItsValueForTheOtherReader) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{1, 4, 5, 5});
  const ValueId w = b.random("w", Shape{6, 4, 3, 3});
  b.output(batch_norm(b, b.node("Conv", {x, w}), 6));
  b.output(b.node("Conv", {x, w}, {}, "plain"));
  Graph graph = b.build();
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(graph.nodes.size(), 2u);
  expect_same_results(graph, b.build(), 1e-5, 1e-5);
}

TEST(FoldBatchNorm, ComputedWeightsAndStatisticsStay) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{1, 4, 5, 5});
  const ValueId w = b.input("w", Shape{6, 4, 3, 3});
  b.output(batch_norm(b, b.node("Conv", {x, w}), 6));
  const ValueId c = b.node("Conv", {x, b.random("k", Shape{6, 4, 3, 3})});
  const ValueId ones = b.random("ones", Shape{6}, 1, 2);
  b.output(b.node("BatchNormalization", {c, ones, ones, ones, b.input("variance", Shape{6})}));
  expect_unchanged(b.build());
}

TEST(FoldBatchNorm, ScaleThatIsNoNumberStays) {
  expect_unchanged(conv_and([](GraphBuilder& b, ValueId c) { return b.node("Div", {c, b.scalar(0)}, {}, "y"); }));
}

// Conv by one weight, followed by a sum with 1 and a product by `scale`.
Graph scaled_conv(float weight, float scale) {
  GraphBuilder b;
  const ValueId c = b.node("Conv", {b.input("x", Shape{1, 1, 2, 2}), b.constant<float>("w", Shape{1, 1, 1, 1}, {weight})});
  b.output(b.node("Mul", {b.node("Add", {c, b.scalar(1)}), b.scalar(scale)}, {}, "y"));
  return b.build();
}

TEST(FoldBatchNorm, ScaleThatTakesAWeightOutOfTheNormalNumbersStays) {
  const float lost[][2] = {{1e30f, 1e10f}, {-1e30f, 1e10f}, {1e-20f, 1e-20f}, {1e-30f, 1e-30f}};
  for (const auto& [weight, scale] : lost) {
    SCOPED_TRACE(testing::Message() << weight << " * " << scale);
    Graph graph = scaled_conv(weight, scale);
    EXPECT_TRUE(run_pass(graph, kPass));
    ASSERT_EQ(graph.nodes.size(), 2u);  // the sum is folded
    EXPECT_EQ(graph.nodes[1].op_type, "Mul");
  }
  const float kept[][2] = {{1e-30f, 0}, {0, 1e10f}, {1e-30f, 1e30f}, {1e-40f, 0.5f}};
  for (const auto& [weight, scale] : kept) {
    Graph graph = scaled_conv(weight, scale);
    EXPECT_TRUE(run_pass(graph, kPass));
    EXPECT_EQ(graph.nodes.size(), 1u) << weight << " * " << scale;
  }
}

TEST(FoldBatchNorm, EpilogueOfTheLastNodeMovesToTheConvolution) {
  Graph original = conv_and([](GraphBuilder& b, ValueId c) { return batch_norm(b, c, 6); });
  original.nodes.back().epilogue.push({EpilogueOpKind::kRelu, 0, 0});
  expect_folded(original, 1);
}

TEST(FoldBatchNorm, NodeAfterAnEpilogueStays) {
  Graph original = conv_and([](GraphBuilder& b, ValueId c) { return batch_norm(b, c, 6); });
  original.nodes.front().epilogue.push({EpilogueOpKind::kRelu, 0, 0});
  expect_unchanged(original);
}

}  // namespace
}  // namespace evn::test::fold_batch_norm_test
