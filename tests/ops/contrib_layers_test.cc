// com.microsoft's fused layers and operators on weights in blocks: values worked out by hand, shapes, what is refused.
#include <cmath>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

Tensor u8(const Shape& shape, const Bytes& values) { return tensor<std::uint8_t>(shape, values); }

TEST(SimplifiedLayerNormalization, GivesTheFactorToo) {
  const Op normalization = Op("SimplifiedLayerNormalization", 17).with("epsilon", AttributeValue(0.0f)).outputs(2);
  const auto y = Op(normalization).run({f32({1, 2}, {1, 7}), f32({2}, {5, 10})});
  expect_near(y[0].floats(), {1, 14});
  EXPECT_EQ(y[1].desc.shape, (Shape{1, 1}));
  expect_near(y[1].floats(), {0.2f});
}

TEST(SkipSimplifiedLayerNormalization, AddsFirst) {
  const auto y = Op("com.microsoft::SkipSimplifiedLayerNormalization", 1)
                     .outputs(4)
                     .run({f32({1, 1, 2}, {0, 4}), f32({1, 1, 2}, {0.5f, 1}), f32({2}, {5, 10}), f32({2}, {0.5f, 2})});
  expect_near(y[0].floats(), {1, 14});
  EXPECT_EQ(y[1].floats(), (Floats{0}));
  expect_near(y[2].floats(), {0.2f});
  EXPECT_EQ(y[3].floats(), (Floats{1, 7}));
}

TEST(BiasSplitGelu, TheRightHalfGatesTheLeft) {
  const Op split("com.microsoft::BiasSplitGelu", 1);
  expect_near(Op(split).run({f32({1, 4}, {2, 3, 0, 100}), f32({4}, {1, 1, 0, 0})})[0].floats(), {0, 400});
  EXPECT_EQ(Op(split).status({f32({1, 3}, {2, 3, 0}), f32({3}, {1, 1, 0})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(split).infer({desc({-1, 5, -1}), desc({-1})})[0], (Shape{-1, 5, -1}));
}

TEST(EmbedLayerNormalization, SumsRowsAndCountsTheMask) {
  const Tensor ids = i32({1, 2}, {1, 0}), word = f32({2, 2}, {1, 2, 3, 4}), position = f32({3, 2}, {0, 0, 1, 0, 0, 5});
  const Tensor ones = f32({2}, {1, 1}), zeros = f32({2}, {0, 0});
  const Op embed = Op("com.microsoft::EmbedLayerNormalization", 1).outputs(3);
  const auto y = Op(embed).run({ids, absent(), word, position, absent(), ones, zeros, i32({1, 2}, {1, 0})});
  EXPECT_EQ(y[2].floats(), (Floats{3, 4, 2, 2}));
  EXPECT_EQ(y[1].values<std::int32_t>(), (std::vector<std::int32_t>{1}));
  expect_near(y[0].floats(), {-1, 1, 0, 0});
  const auto moved = Op(embed).run({ids, absent(), word, position, absent(), ones, zeros, absent(), i32({1, 2}, {2, 2})});
  EXPECT_EQ(moved[2].floats(), (Floats{3, 9, 1, 7}));
  EXPECT_EQ(moved[1].values<std::int32_t>(), (std::vector<std::int32_t>{0}));
  EXPECT_EQ(Op(embed).status({i32({1, 2}, {1, 2}), absent(), word, position, absent(), ones, zeros}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op(embed).status({i32({1, 2}, {1, -1}), absent(), word, position, absent(), ones, zeros}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op(embed).status({ids, ids, word, position, absent(), ones, zeros}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(embed).status({ids, absent(), word, f32({1, 3}, {0, 0, 0}), absent(), ones, zeros}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(embed).status({ids, absent(), word, position}), EVN_ERROR_INVALID_MODEL);
}

TEST(FusedConv, AddsAndActivates) {
  const Tensor x = f32({1, 1, 3}, {1, 2, 3}), w = f32({1, 1, 1}, {2}), b = f32({1}, {-5}), z = f32({1, 1, 3}, {0, 3, 0});
  const Op conv("com.microsoft::FusedConv", 1);
  EXPECT_EQ(Op(conv).with("activation", "Relu").run({x, w, b, z})[0].floats(), (Floats{0, 2, 1}));
  EXPECT_EQ(Op(conv).run({x, w, b})[0].floats(), (Floats{-3, -1, 1}));
  const Op leaky = Op(conv).with("activation", "LeakyRelu");
  EXPECT_EQ(Op(leaky).with("activation_params", AttributeValue(Floats{0.5f})).run({x, w, b})[0].floats(),
            (Floats{-1.5f, -0.5f, 1}));
  EXPECT_EQ(Op(leaky).status({x, w, b}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(conv).with("activation", "Sine").status({x, w, b}), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(Op(conv).status({x, w, b, f32({1, 1, 2}, {0, 3})}), EVN_ERROR_INVALID_MODEL);
}

TEST(FusedGemm, ActivatesWhatGemmGives) {
  const Op gemm = Op("com.microsoft::FusedGemm", 1).with("activation", "HardSigmoid");
  const Op half = Op(gemm).with("activation_alpha", AttributeValue(0.5f));
  EXPECT_EQ(Op(half).with("activation_beta", AttributeValue(0.25f)).run({f32({1, 1}, {1}), f32({1, 3}, {-3, 0.5f, 9})})[0].floats(),
            (Floats{0, 0.5f, 1}));
}

TEST(NhwcConv, ChannelsAreLast) {
  const Op conv("com.microsoft::NhwcConv", 1);
  // Two places of two channels; output channels: the sum and the difference of the channels.
  EXPECT_EQ(Op(conv).run({f32({1, 2, 2}, {1, 2, 3, 5}), f32({2, 2, 1}, {1, 1, -1, 1})})[0].floats(), (Floats{3, 1, 8, 2}));
  EXPECT_EQ(Op(conv).infer({desc({-1, 6, 5, 4}), desc({8, 4, 3, 3})})[0], (Shape{-1, 4, 3, 8}));
  EXPECT_EQ(Op(conv).status({f32({1, 2, 2}, {1, 2, 3, 5}), f32({1, 3, 1}, {1, 1, 1})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Inverse, OfEachMatrix) {
  const Op inverse("com.microsoft::Inverse", 1);
  expect_near(Op(inverse).run({f32({2, 2, 2}, {0, 2, 4, 0, 1, 1, 0, 1})})[0].floats(), {0, 0.25f, 0.5f, 0, 1, -1, 0, 1});
  EXPECT_EQ(Op(inverse).status({f32({1, 2}, {1, 2})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_FALSE(std::isfinite(Op(inverse).run({f32({1, 1}, {0})})[0].floats()[0]));
}

TEST(ContribUnique, KeepsTheOrderOfTheFirst) {
  const auto y = Op("com.microsoft::Unique", 1).outputs(3).run({f32({6}, {2, 1, 1, 3, 4, 3})});
  EXPECT_EQ(y[0].floats(), (Floats{2, 1, 3, 4}));
  EXPECT_EQ(y[1].ints(), (Ints{0, 1, 1, 2, 3, 2}));
  EXPECT_EQ(y[2].ints(), (Ints{1, 2, 2, 1}));
  EXPECT_EQ(Op("com.microsoft::Unique", 1).outputs(3).status({f32({1, 2}, {2, 1})}), EVN_ERROR_INVALID_MODEL);
}

TEST(ContribRotaryEmbedding, OnePositionIsWhereABatchBegins) {
  const Tensor x = f32({1, 2, 2}, {1, 0, 1, 0}), cosine = f32({3, 1}, {1, 0, -1}), sine = f32({3, 1}, {0, 1, 0});
  const Op rotary("com.microsoft::RotaryEmbedding", 1);
  EXPECT_EQ(Op(rotary).run({x, i64({1}), cosine, sine})[0].floats(), (Floats{0, 1, -1, 0}));
  EXPECT_EQ(Op(rotary).run({x, tensor<std::int64_t>({1, 2}, {2, 1}), cosine, sine})[0].floats(), (Floats{-1, 0, 0, 1}));
  EXPECT_EQ(Op(rotary).status({x, i64({2}), cosine, sine}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op(rotary).status({x, i64({-1}), cosine, sine}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op(rotary).status({x, i64({INT64_MAX}), cosine, sine}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op(rotary).status({f32({1, 1, 3}, {1, 2, 3}), i64({0}), cosine, sine}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(rotary).with("scale", AttributeValue(2.0f)).status({x, i64({1}), cosine, sine}), EVN_ERROR_UNSUPPORTED);
}

// K 17 in two blocks of 16: the second has one number only.
TEST(MatMulNBits, EachBlockHasItsScaleAndZeroPoint) {
  Bytes b(16, 0x99);
  b[0] = 0x3a;
  b[8] = 0x0c;
  const Tensor a = f32({1, 17}, {1, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100});
  const Op product = Op("com.microsoft::MatMulNBits", 1).with("K", 17).with("N", 1).with("block_size", 16);
  const Tensor weight = u8({1, 2, 8}, b), scales = f32({1, 2}, {1, 0.5f});
  // Without zero points they are 8: 1 * 2 + 10 * -5 + 100 * 4 * 0.5
  EXPECT_EQ(Op(product).run({a, weight, scales})[0].floats(), (Floats{152}));
  // Of the first block 10, of the second 11.
  EXPECT_EQ(Op(product).run({a, weight, scales, u8({1, 1}, {0xba})})[0].floats(), (Floats{-20}));
  EXPECT_EQ(Op(product).run({a, weight, scales, f32({1, 2}, {10, 11}), absent(), f32({1}, {7})})[0].floats(), (Floats{-13}));
  EXPECT_EQ(Op(product).status({f32({1, 2}, {1, 2}), weight, scales}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(product).status({a, u8({1, 1, 8}, Bytes(8, 0)), scales}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(product).status({a, weight, f32({1, 1}, {1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(product).with("bits", 3).status({a, weight, scales}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("com.microsoft::MatMulNBits", 1).with("K", 17).with("N", 1).with("block_size", 24).status({a, weight, scales}),
            EVN_ERROR_INVALID_MODEL);
}

TEST(MatMulNBits, AGroupOutsideTheBlocksIsAnError) {
  const Tensor a = f32({1, 2}, {1, 10}), weight = u8({1, 1, 8}, Bytes(8, 0x99)), scale = f32({1, 1}, {2});
  const Op product = Op("com.microsoft::MatMulNBits", 1).with("K", 2).with("N", 1).with("block_size", 16);
  EXPECT_EQ(Op(product).run({a, weight, scale, absent(), i32({2}, {0, 0})})[0].floats(), (Floats{22}));
  EXPECT_EQ(Op(product).status({a, weight, scale, absent(), i32({2}, {0, 1})}), EVN_ERROR_INVALID_ARGUMENT);
}

TEST(GatherBlockQuantized, RowsOfBytesHoldSeveralNumbers) {
  const Op gather = Op("com.microsoft::GatherBlockQuantized", 1).with("block_size", 16);
  const auto y = Op(gather).run({u8({2, 1}, {0x98, 0x7f}), tensor<std::int64_t>({3}, {1, -2, 2}), f32({2, 1}, {1, 0.5f})});
  EXPECT_EQ(y[0].desc.shape, (Shape{3, 2}));
  EXPECT_EQ(y[0].floats(), (Floats{3.5f, -0.5f, 0, 1, 0, 0}));
  const auto shifted = Op(gather).run({u8({2, 1}, {0x98, 0x7f}), i64({0}), f32({2, 1}, {1, 0.5f}), u8({2, 1}, {9, 1})});
  EXPECT_EQ(shifted[0].floats(), (Floats{-1, 0}));
  EXPECT_EQ(Op(gather).status({u8({2, 1}, {0, 0}), i64({0}), f32({2, 2}, {1, 1, 1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(gather).with("gather_axis", 1).status({u8({2, 1}, {0, 0}), i64({0}), f32({2, 1}, {1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(gather).with("quantize_axis", 0).status({u8({2, 1}, {0, 0}), i64({0}), f32({1, 2}, {1, 1})}),
            EVN_ERROR_INVALID_MODEL);
  const Op whole = Op("com.microsoft::GatherBlockQuantized", 1).with("block_size", 0);
  EXPECT_EQ(Op(whole).status({u8({2, 1}, {0, 0}), i64({0}), f32({2, 1}, {1, 1})}), EVN_ERROR_INVALID_MODEL);
}

}  // namespace
}  // namespace evn::test
