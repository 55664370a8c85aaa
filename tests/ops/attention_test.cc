// Attention and RotaryEmbedding.
#include <cmath>
#include <initializer_list>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

// One head of depth 1; keys of 0 are seen alike, so that Y is the mean of the values that are seen.
Tensor zeros(std::int64_t steps) { return f32({1, 1, steps, 1}, Floats(static_cast<std::size_t>(steps), 0)); }

TEST(Attention, CausalRowsSeeThePast) {
  const Tensor v = f32({1, 1, 3, 1}, {3, 5, 10});
  expect_near(Op("Attention", 23).run({zeros(3), zeros(3), v})[0].floats(), {6, 6, 6});
  expect_near(Op("Attention", 23).with("is_causal", 1).run({zeros(3), zeros(3), v})[0].floats(), {3, 4, 6});
  const auto y = Op("Attention", 23)
                     .with("is_causal", 1)
                     .outputs(3)
                     .run({zeros(1), zeros(1), f32({1, 1, 1, 1}, {9}), absent(), zeros(2), f32({1, 1, 2, 1}, {3, 6})});
  expect_near(y[0].floats(), {6});
  EXPECT_EQ(y[2].floats(), (Floats{3, 6, 9}));
}

TEST(Attention, MaskedRowIsZeroAndShortMaskHidesTheRest) {
  const Tensor v = f32({1, 1, 3, 1}, {3, 5, 10});
  expect_near(Op("Attention", 23).run({zeros(2), zeros(3), v, bools({2, 2}, {0, 0, 1, 1})})[0].floats(), {0, 4});
  EXPECT_EQ(Op("Attention", 23).status({zeros(2), zeros(3), v, bools({2, 4}, {0, 0, 1, 1, 0, 0, 1, 1})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Attention, LengthsAndWindowsBoundTheKeys) {
  const Tensor v = f32({1, 1, 4, 1}, {3, 5, 10, 100});
  expect_near(Op("Attention", 24).run({zeros(1), zeros(4), v, absent(), absent(), absent(), i64({2})})[0].floats(), {4});
  expect_near(Op("Attention", 24).run({zeros(1), zeros(4), v, absent(), absent(), absent(), i64({-7})})[0].floats(), {0});
  expect_near(Op("Attention", 25).with("left_window_size", 1).with("right_window_size", 0).run({zeros(2), zeros(4), v})[0].floats(),
              {3, 4});
}

// Two keys whose scores differ by less than half precision sees near 1000: float32 tells them apart.
TEST(Attention, SoftmaxPrecisionRoundsScoresAndWeights) {
  const auto attention = [](int precision) {
    Op op("Attention", 23);
    op.with("scale", AttributeValue(1.0f)).with("qk_matmul_output_mode", 3).outputs(4);
    if (precision != 0) op.with("softmax_precision", precision);
    return op.run({f32({1, 1, 1, 1}, {1}), f32({1, 1, 2, 1}, {1000, 1000.2f}), f32({1, 1, 2, 1}, {0, 1})});
  };
  const double exact = 1 / (1 + std::exp(-static_cast<double>(1000.2f - 1000.0f)));
  for (const int precision : std::initializer_list<int>{0, EVN_DTYPE_FLOAT32, EVN_DTYPE_FLOAT64}) {
    expect_near(attention(precision)[0].floats(), {static_cast<float>(exact)});
  }
  EXPECT_EQ(attention(EVN_DTYPE_FLOAT16)[0].floats(), (Floats{0.5f}));   // steps of 0.5 there
  EXPECT_EQ(attention(EVN_DTYPE_BFLOAT16)[0].floats(), (Floats{0.5f}));  // of 4
  // Scores that half precision has as they are: the weights alone are rounded.
  const auto weights = [](int precision) {
    return Op("Attention", 23)
        .with("scale", AttributeValue(1.0f))
        .with("softmax_precision", precision)
        .with("qk_matmul_output_mode", 3)
        .outputs(4)
        .run({f32({1, 1, 1, 1}, {1}), f32({1, 1, 2, 1}, {0, 1}), f32({1, 1, 2, 1}, {0, 1})})[3]
        .floats();
  };
  EXPECT_EQ(weights(EVN_DTYPE_FLOAT16), (Floats{0.26904296875f, 0.73095703125f}));
  EXPECT_EQ(weights(EVN_DTYPE_BFLOAT16), (Floats{0.26953125f, 0.73046875f}));
}

TEST(Attention, SoftmaxPrecisionIsAFloatingType) {
  for (const int none : std::initializer_list<int>{EVN_DTYPE_INT32, -1, 99}) {
    EXPECT_EQ(Op("Attention", 23).with("softmax_precision", none).status({zeros(1), zeros(1), zeros(1)}), EVN_ERROR_INVALID_MODEL)
        << none;
  }
}

TEST(Attention, HeadsMustFit) {
  const auto heads = [](std::int64_t n) { return f32({1, n, 1, 1}, Floats(static_cast<std::size_t>(n), 1)); };
  EXPECT_EQ(Op("Attention", 23).status({heads(4), heads(2), heads(2)}), EVN_OK);
  EXPECT_EQ(Op("Attention", 23).status({heads(4), heads(3), heads(3)}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Attention", 23).status({heads(4), heads(2), heads(4)}), EVN_ERROR_INVALID_MODEL);
  const Tensor flat = f32({1, 1, 4}, {1, 2, 3, 4});
  EXPECT_EQ(Op("Attention", 23).status({flat, flat, flat}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Attention", 23).with("q_num_heads", 2).with("kv_num_heads", 2).status({flat, flat, flat}), EVN_OK);
}

TEST(RotaryEmbedding, TurnsHalvesOrNeighbours) {
  const Tensor x = f32({1, 1, 1, 4}, {1, 2, 3, 4});
  const Tensor cosine = f32({1, 1, 2}, {0, 1});
  const Tensor sine = f32({1, 1, 2}, {1, 0});
  expect_near(Op("RotaryEmbedding", 23).run({x, cosine, sine})[0].floats(), {-3, 2, 1, 4});
  expect_near(Op("RotaryEmbedding", 23).with("interleaved", 1).run({x, cosine, sine})[0].floats(), {-2, 1, 3, 4});
}

TEST(RotaryEmbedding, PositionsMustBeInTheCaches) {
  const Tensor x = f32({1, 1, 1, 2}, {1, 2});
  const Tensor cache = f32({3, 1}, {1, 1, 1});
  const auto status = [&](std::int64_t at) {
    return Op("RotaryEmbedding", 23).status({x, cache, cache, tensor<std::int64_t>({1, 1}, {at})});
  };
  EXPECT_EQ(status(2), EVN_OK);
  EXPECT_EQ(status(3), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("RotaryEmbedding", 23).with("rotary_embedding_dim", 4).status({x, cache, cache}), EVN_ERROR_INVALID_MODEL);
}

}  // namespace
}  // namespace evn::test
