// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.
#include <limits>

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

TEST(DynamicQuantizeLinear, ZeroIsExact) {
  const auto y = Op("DynamicQuantizeLinear", 11).outputs(3).run({f32({3}, {-51, 0, 204})});
  EXPECT_EQ(y[0].values<std::uint8_t>(), (Bytes{0, 51, 255}));
  EXPECT_EQ(y[1].floats(), (Floats{1}));
  EXPECT_EQ(y[2].values<std::uint8_t>(), (Bytes{51}));
  EXPECT_EQ(Op("DynamicQuantizeLinear", 11).outputs(3).run({f32({1}, {0})})[0].values<std::uint8_t>(), (Bytes{0}));
}

}  // namespace
}  // namespace evn::test
