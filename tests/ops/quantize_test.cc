// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.
#include <limits>
#include <utility>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

TEST(QuantizeLinear, TiesGoToEvenAndEndsSaturate) {
  const Tensor zero = tensor<std::uint8_t>({}, {10});
  const auto y = Op("QuantizeLinear", 13).run({f32({5}, {1, 3, -100, 1000, 5}), f32({}, {2}), zero});
  EXPECT_EQ(y[0].values<std::uint8_t>(), (Bytes{10, 12, 0, 255, 12}));
}

TEST(QuantizeLinear, NotANumberAndScaleOfZeroDoNoHarm) {
  const Tensor x = f32({3}, {std::numeric_limits<float>::quiet_NaN(), 1, -1});
  EXPECT_EQ(Op("QuantizeLinear", 13).run({x, f32({}, {0})})[0].values<std::uint8_t>(), (Bytes{0, 255, 0}));
}

template <typename T>
void expect_least_of_nan(Tensor zero, const Tensor& scale, int block) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Tensor x = f32({1, 4}, {std::numeric_limits<float>::quiet_NaN(), -kInfinity, kInfinity, 1});
  Op op("QuantizeLinear", 21);
  op.with("axis", 0).with("block_size", block);
  const std::vector<T> y = op.run({x, scale, std::move(zero)})[0].values<T>();
  EXPECT_EQ(y[0], std::numeric_limits<T>::min());
  EXPECT_EQ(y[1], std::numeric_limits<T>::min());
  EXPECT_EQ(y[2], std::numeric_limits<T>::max());
  EXPECT_EQ(y[3], 5);
}

// As ONNX Runtime has it.
TEST(QuantizeLinear, NotANumberBecomesTheLeastOfTheType) {
  const auto each = [](auto zero) {
    using T = decltype(zero);
    expect_least_of_nan<T>(tensor<T>({}, {3}), f32({}, {0.5f}), 0);
    expect_least_of_nan<T>(tensor<T>({1}, {3}), f32({1}, {0.5f}), 0);
    expect_least_of_nan<T>(tensor<T>({1, 4}, {3, 3, 3, 3}), f32({1, 4}, {0.5f, 0.5f, 0.5f, 0.5f}), 1);
  };
  each(std::uint8_t{});
  each(std::int8_t{});
  each(std::uint16_t{});
  each(std::int16_t{});
  const Tensor x = f32({2}, {std::numeric_limits<float>::quiet_NaN(), 1});
  Tensor zero = blank(DType::kInt4, {});
  zero.bytes.assign(1, 3);
  Tensor y = Op("QuantizeLinear", 21).run({x, f32({}, {0.5f}), zero})[0];
  EXPECT_EQ(y.bytes[0] & 255, 0x58u);  // -8, then 5
  zero.desc.dtype = DType::kUint4;
  y = Op("QuantizeLinear", 21).run({x, f32({}, {0.5f}), zero})[0];
  EXPECT_EQ(y.bytes[0] & 255, 0x50u);
}

TEST(DynamicQuantizeLinear, RangesWithoutAnEndAreThoseOfOnnxRuntime) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto run = [](const Floats& x) { return Op("DynamicQuantizeLinear", 11).outputs(3).run({f32({4}, x)}); };
  const auto below = run({-kInfinity, 1, 2, 0});
  EXPECT_EQ(below[0].values<std::uint8_t>(), (Bytes{0, 255, 255, 255}));
  EXPECT_EQ(below[2].values<std::uint8_t>(), (Bytes{255}));
  const auto above = run({kInfinity, 1, 2, 0});
  EXPECT_EQ(above[0].values<std::uint8_t>(), (Bytes{0, 0, 0, 0}));
  EXPECT_EQ(above[2].values<std::uint8_t>(), (Bytes{0}));
  const auto both = run({-kInfinity, kInfinity, 2, 0});
  EXPECT_EQ(both[0].values<std::uint8_t>(), (Bytes{0, 0, 255, 255}));
  const auto nan = run({std::numeric_limits<float>::quiet_NaN(), 1, -1, 0});
  EXPECT_EQ(nan[0].values<std::uint8_t>(), (Bytes{0, 254, 0, 127}));
}

TEST(QuantizeLinear, ScaleForEachIndexOfTheAxis) {
  const auto y = Op("QuantizeLinear", 13).with("axis", 0).run({f32({2, 2}, {2, 4, 2, 4}), f32({2}, {1, 2})});
  EXPECT_EQ(y[0].values<std::uint8_t>(), (Bytes{2, 4, 1, 2}));
  EXPECT_EQ(Op("QuantizeLinear", 13).status({f32({2, 2}, {2, 4, 2, 4}), f32({3}, {1, 2, 3})}), EVN_ERROR_INVALID_MODEL);
}

TEST(DequantizeLinear, ScaleForEachBlock) {
  const Tensor x = tensor<std::int8_t>({1, 3}, {1, 2, 3});
  const auto y = Op("DequantizeLinear", 21).with("block_size", 2).run({x, f32({1, 2}, {10, 100})});
  EXPECT_EQ(y[0].floats(), (Floats{10, 20, 300}));
  EXPECT_EQ(Op("DequantizeLinear", 21).with("block_size", 1).status({x, f32({1, 2}, {10, 100})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("DequantizeLinear", 21).with("block_size", -1).status({x, f32({1, 2}, {10, 100})}), EVN_ERROR_INVALID_MODEL);
}

TEST(DequantizeLinear, OutputDtypeIsATypeOfScales) {
  const auto status = [](std::int64_t dtype) {
    Op op("DequantizeLinear", 23);
    return op.with("output_dtype", AttributeValue(dtype)).status({tensor<std::int8_t>({2}, {1, 2}), f32({}, {0.5f})});
  };
  EXPECT_EQ(status(0), EVN_OK);
  EXPECT_EQ(status(1), EVN_OK);
  const std::int64_t wide = std::int64_t{1} << 32;  // wide + 1 has float32, 1, in its lower half
  for (const std::int64_t dtype : {std::int64_t{-1}, std::int64_t{7}, std::int64_t{32}, wide, wide + 1, -wide + 1, INT64_MIN + 1}) {
    EXPECT_EQ(status(dtype), EVN_ERROR_UNSUPPORTED) << dtype;
  }
}

TEST(DynamicQuantizeLinear, ZeroIsExact) {
  const auto y = Op("DynamicQuantizeLinear", 11).outputs(3).run({f32({3}, {-51, 0, 204})});
  EXPECT_EQ(y[0].values<std::uint8_t>(), (Bytes{0, 51, 255}));
  EXPECT_EQ(y[1].floats(), (Floats{1}));
  EXPECT_EQ(y[2].values<std::uint8_t>(), (Bytes{51}));
}

// As ONNX Runtime has it.
TEST(DynamicQuantizeLinear, ZerosHaveTheScaleOne) {
  const auto y = Op("DynamicQuantizeLinear", 11).outputs(3).run({f32({2}, {0, -0.0f})});
  EXPECT_EQ(y[0].values<std::uint8_t>(), (Bytes{0, 0}));
  EXPECT_EQ(y[1].floats(), (Floats{1}));
  EXPECT_EQ(y[2].values<std::uint8_t>(), (Bytes{0}));
}

}  // namespace
}  // namespace evn::test
