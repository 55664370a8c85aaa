// com.microsoft's attention operators: values worked out by hand, shapes, what is refused.
#include <cmath>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

// Heads of width 1. All scores are 0, so that the result is the mean of the values that are seen.
TEST(ContribAttention, ProjectsThenTakesTheMeanOfWhatIsSeen) {
  const Tensor x = f32({1, 3, 1}, {3, 6, 12}), weight = f32({1, 3}, {0, 0, 1}), bias = f32({3}, {0, 0, 1});
  const Op attention = Op("com.microsoft::Attention", 1).with("num_heads", 1);
  expect_near(Op(attention).run({x, weight, bias})[0].floats(), {8, 8, 8});
  expect_near(Op(attention).run({x, weight})[0].floats(), {7, 7, 7});
  expect_near(Op(attention).with("unidirectional", 1).run({x, weight, bias})[0].floats(), {4, 5.5f, 8});
  expect_near(Op(attention).run({x, weight, bias, i32({1}, {2})})[0].floats(), {5.5f, 5.5f, 5.5f});
  expect_near(Op(attention).run({x, weight, bias, i32({2}, {3, 1})})[0].floats(), {10, 10, 10});
  expect_near(Op(attention).run({x, weight, bias, i32({1, 3}, {1, 0, 1})})[0].floats(), {8.5f, 8.5f, 8.5f});
  const auto y = Op(attention).outputs(2).run({x, weight, bias, absent(), f32({2, 1, 1, 1, 1}, {5, 0})});
  expect_near(y[0].floats(), {6, 6, 6});
  EXPECT_EQ(y[1].desc.shape, (Shape{2, 1, 1, 4, 1}));
  expect_near(y[1].floats(), {5, 0, 0, 0, 0, 4, 7, 13});
}

TEST(ContribAttention, RefusesWhatDoesNotFit) {
  const Tensor x = f32({1, 2, 1}, {3, 6}), weight = f32({1, 3}, {0, 0, 1});
  const Op attention = Op("com.microsoft::Attention", 1).with("num_heads", 1);
  EXPECT_EQ(Op(attention).status({x, f32({2, 3}, Floats(6, 0))}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(attention).status({x, f32({1, 4}, Floats(4, 0))}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(attention).with("qkv_hidden_sizes", Ints{1, 2, 1}).status({x, f32({1, 4}, Floats(4, 0))}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(attention).status({x, weight, absent(), i32({1, 3}, {1, 1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(attention).status({x, weight, absent(), i32({4}, {1, 1, 1, 1})}), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(Op(attention).with("do_rotary", 1).status({x, weight}), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(Op("com.microsoft::Attention", 1).with("num_heads", 0).status({x, weight}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(attention).infer({desc({-1, -1, 4}), desc({4, 24})})[0], (Shape{-1, -1, 8}));
}

TEST(QAttention, DequantizesTheProjection) {
  const Tensor x = tensor<std::uint8_t>({1, 2, 1}, {5, 9}), weight = tensor<std::int8_t>({1, 3}, {0, 0, 4});
  const Tensor bias = f32({3}, {0, 0, 1});
  const auto y = Op("com.microsoft::QAttention", 1)
                     .with("num_heads", 1)
                     .run({x, weight, bias, f32({}, {0.5f}), f32({}, {0.25f}), absent(), tensor<std::uint8_t>({}, {1})});
  expect_near(y[0].floats(), {4, 4});  // the mean of (4 and 8) * 4 / 8, and 1
}

TEST(MultiHeadAttention, TakesEachFormOfKeysAndValues) {
  const Op attention = Op("com.microsoft::MultiHeadAttention", 1).with("num_heads", 2);
  const Tensor q = f32({1, 1, 2}, {0, 0}), k = f32({1, 2, 2}, {9, 8, 7, 6}), v = f32({1, 2, 2}, {1, 10, 3, 30});
  expect_near(Op(attention).run({q, k, v})[0].floats(), {2, 20});
  expect_near(Op(attention).run({q, k, v, f32({6}, {0, 0, 0, 0, 5, 50})})[0].floats(), {7, 70});
  const Tensor by_head = f32({1, 2, 2, 1}, {1, 3, 10, 30});
  expect_near(Op(attention).run({q, f32({1, 2, 2, 1}, {9, 7, 8, 6}), by_head, f32({6}, {0, 0, 0, 0, 5, 50})})[0].floats(), {2, 20});
  expect_near(Op(attention).run({q, f32({1, 2, 2, 2, 1}, {9, 1, 8, 10, 7, 3, 6, 30})})[0].floats(), {2, 20});
  expect_near(Op(attention).run({f32({1, 2, 2, 3, 1}, {0, 9, 1, 0, 8, 10, 0, 7, 3, 0, 6, 30})})[0].floats(), {2, 20, 2, 20});
  EXPECT_EQ(Op(attention).status({q, k}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(attention).status({q, k, f32({1, 1, 2}, {1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(attention).status({q, k, v, absent(), absent(), absent(), by_head}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(attention).infer({desc({-1, 5, 8}), desc({-1, -1, 8}), desc({-1, -1, 6})})[0], (Shape{-1, 5, 6}));
}

// One head of keys for two of queries; all scores are 0.
class GroupQueryAttention : public ::testing::Test {
 protected:
  std::vector<Tensor> inputs(const Tensor& past, std::int32_t length, std::int32_t total) {
    const Tensor query = f32({1, 1, 4}, {0, 0, 0, 0}), key = f32({1, 1, 2}, {1, 2}), value = f32({1, 1, 2}, {6, 60});
    return {query, key, value, past, past, i32({1}, {length}), i32({}, {total})};
  }
  Op op() { return Op("com.microsoft::GroupQueryAttention", 1).with("num_heads", 2).with("kv_num_heads", 1).outputs(3); }
  const Tensor past_ = f32({1, 1, 3, 2}, {1, 10, 2, 20, 100, 100});
};

TEST_F(GroupQueryAttention, TheNewKeyGoesBehindWhatCounts) {
  const auto y = op().run(inputs(past_, 2, 3));
  expect_near(y[0].floats(), {3, 30, 3, 30});  // of 1, 2 and 6
  EXPECT_EQ(y[2].floats(), (Floats{1, 10, 2, 20, 6, 60}));
  EXPECT_EQ(y[1].floats(), (Floats{1, 10, 2, 20, 1, 2}));
}

TEST_F(GroupQueryAttention, ThePresentIsAsLongAsTheTotal) {
  const auto y = op().run(inputs(past_, 1, 4));
  EXPECT_EQ(y[2].floats(), (Floats{1, 10, 6, 60, 0, 0, 0, 0}));
  expect_near(y[0].floats(), {3.5f, 35, 3.5f, 35});
  const std::vector<TensorDesc> in = {desc({1, 1, 4}),    desc({1, 1, 2}),          desc({1, 1, 2}),        desc({1, 1, 3, 2}),
                                      desc({1, 1, 3, 2}), desc({1}, DType::kInt32), desc({}, DType::kInt32)};
  EXPECT_EQ(op().infer(in)[1], (Shape{1, 1, -1, 2}));
}

TEST_F(GroupQueryAttention, WindowAndSinkTakeWeightAway) {
  expect_near(op().with("local_window_size", 2).run(inputs(past_, 2, 3))[0].floats(), {4, 40, 4, 40});
  const auto smooth = op().with("smooth_softmax", 1).run(inputs(past_, 2, 3));
  expect_near(smooth[0].floats(), {2.25f, 22.5f, 2.25f, 22.5f});
}

TEST_F(GroupQueryAttention, ASlidingCacheHasTheNewestRows) {
  const auto sliding = [&](std::int32_t length, std::int32_t total) {
    return op().with("sliding_window_cache", 1).with("local_window_size", 2).run(inputs(past_, length, total));
  };
  for (const std::int32_t total : {10, INT32_MAX - 1}) {  // of three rows the last and the new one stay
    const auto y = sliding(total - 1, total);
    expect_near(y[0].floats(), {53, 80, 53, 80});
    EXPECT_EQ(y[2].floats(), (Floats{100, 100, 6, 60, 0, 0}));
  }
  EXPECT_EQ(sliding(10, 11)[2].floats(), (Floats{1, 10, 2, 20, 6, 60}));  // where two were left
  const Op window = op().with("sliding_window_cache", 1);
  for (const std::int32_t length : {-2, -1, 11, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(Op(window).with("local_window_size", 2).status(inputs(past_, length, 11)), EVN_ERROR_INVALID_ARGUMENT) << length;
  }
  EXPECT_EQ(Op(window).with("local_window_size", 4).status(inputs(past_, 10, 11)), EVN_ERROR_INVALID_ARGUMENT);
}

TEST_F(GroupQueryAttention, QuantizedCachesHoldWhatIsMultipliedByTheScale) {
  const Tensor half = f32({1}, {0.5f}), none = absent();
  const auto run = [&](const Tensor& past, int bits, const Tensor& scale) {
    auto in = inputs(past, 2, 3);
    for (int i = 7; i < 12; ++i) in.push_back(none);
    in.push_back(scale);
    in.push_back(scale);
    return op().with("k_quant_type", "PER_TENSOR").with("v_quant_type", "PER_TENSOR").with("kv_cache_bit_width", bits).run(in);
  };
  const auto bytes = run(tensor<std::int8_t>({1, 1, 3, 2}, {2, 20, 4, 40, 9, 9}), 8, half);
  expect_near(bytes[0].floats(), {3, 30, 3, 30});
  EXPECT_EQ(bytes[2].values<std::int8_t>(), (std::vector<std::int8_t>{2, 20, 4, 40, 12, 120}));
  const auto nibbles = run(tensor<std::uint8_t>({1, 1, 3, 1}, {0x69, 0x7a, 0}), 4, f32({1}, {10}));  // (1, -2), (2, -1)
  expect_near(nibbles[0].floats(), {40.0f / 3, 10, 40.0f / 3, 10});
  EXPECT_EQ(nibbles[2].values<std::uint8_t>(), (std::vector<std::uint8_t>{0x69, 0x7a, 0xe9}));
}

TEST_F(GroupQueryAttention, ScoresOfHeadsWithoutElementsAreZero) {
  const Tensor none = f32({1, 1, 0}, {}), past = f32({1, 1, 3, 0}, {});
  for (const int stage : {0, 1, 2}) {
    const auto y = op().outputs(4).with("qk_output", stage).run({none, none, none, past, past, i32({1}, {2}), i32({}, {3})});
    EXPECT_EQ(y[0].desc.shape, (Shape{1, 1, 0}));
    EXPECT_EQ(y[3].desc.shape, (Shape{1, 2, 1, 3}));
    EXPECT_EQ(y[3].floats(), Floats(6, 0)) << "qk_output " << stage;  // run() fills outputs with other bytes
  }
}

TEST_F(GroupQueryAttention, RefusesLengthsThatDoNotFit) {
  for (const std::int32_t length : {-2, -1, 4, 5, INT32_MAX}) {
    EXPECT_EQ(op().status(inputs(past_, length, 4)), EVN_ERROR_INVALID_ARGUMENT) << length;
  }
  EXPECT_EQ(op().status(inputs(past_, 2, -1)), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("com.microsoft::GroupQueryAttention", 1).with("num_heads", 2).with("kv_num_heads", 3).status(inputs(past_, 2, 3)),
            EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(op().with("do_rotary", 1).status(inputs(past_, 2, 3)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(op().with("sliding_window_cache", 1).status(inputs(past_, 2, 3)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(op().with("k_quant_type", "PER_TENSOR").status(inputs(past_, 2, 3)), EVN_ERROR_UNSUPPORTED);
}

}  // namespace
}  // namespace evn::test
