// Cast: where the conversion is not obvious.
#include <cmath>
#include <limits>

#include "ops/infra/numeric.h"
#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor cast(const Tensor& x, DType to) { return Op("Cast", 13).with("to", static_cast<int>(to)).run({x})[0]; }

TEST(Cast, FloatToIntegerTruncatesSaturatesAndMakesNanZero) {
  const Tensor x = f32({8}, {1.9f, -1.9f, 1e30f, -1e30f, NAN, kInf, 127.5f, -128.9f});
  EXPECT_EQ(cast(x, DType::kInt8).values<std::int8_t>(), (std::vector<std::int8_t>{1, -1, 127, -128, 0, 127, 127, -128}));
  EXPECT_EQ(cast(x, DType::kUint8).values<std::uint8_t>(), (std::vector<std::uint8_t>{1, 0, 255, 0, 0, 255, 127, 0}));
  EXPECT_EQ(cast(x, DType::kInt64).ints()[2], std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(cast(x, DType::kInt64).ints()[3], std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(cast(x, DType::kUint64).values<std::uint64_t>()[2], std::numeric_limits<std::uint64_t>::max());
}

TEST(Cast, FloatJustOutsideInt32Saturates) {
  EXPECT_EQ(cast(f32({1}, {2147483648.0f}), DType::kInt32).values<std::int32_t>()[0], std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(cast(f32({1}, {2147483520.0f}), DType::kInt32).values<std::int32_t>()[0], 2147483520);
}

TEST(Cast, IntegerToIntegerWraps) {
  EXPECT_EQ(cast(i64({300, -1, 128}), DType::kUint8).values<std::uint8_t>(), (std::vector<std::uint8_t>{44, 255, 128}));
  EXPECT_EQ(cast(i64({300, -1, 128}), DType::kInt8).values<std::int8_t>(), (std::vector<std::int8_t>{44, -1, -128}));
}

TEST(Cast, ToBoolIsNotZero) {
  EXPECT_EQ(bool_values(cast(f32({4}, {0, -0.0f, 0.25f, NAN}), DType::kBool)), (std::vector<std::uint8_t>{0, 0, 1, 1}));
  EXPECT_EQ(cast(bools({2}, {0, 1}), DType::kFloat32).floats(), (Floats{0, 1}));
}

TEST(Cast, ToFloat16RoundsToEven) {
  // 2049 and 2051 lie between halves of which every second is even; 65519 is the last that is finite; 2^-25 ties to zero.
  Tensor y = cast(f32({6}, {2049, 2051, 65519, 65520, 0x1p-25f, 0x1.8p-25f}), DType::kFloat16);
  y.desc.dtype = DType::kUint16;
  EXPECT_EQ(y.values<std::uint16_t>(), (std::vector<std::uint16_t>{0x6800, 0x6802, 0x7bff, 0x7c00, 0x0000, 0x0001}));
}

TEST(Cast, EveryFloat16SurvivesTheWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const Float16 x{static_cast<std::uint16_t>(bits)};
    if (std::isnan(x.value())) continue;
    EXPECT_EQ(Float16::from(x.value()).bits, x.bits);
    const Bfloat16 b{static_cast<std::uint16_t>(bits)};
    if (std::isnan(b.value())) continue;
    EXPECT_EQ(Bfloat16::from(b.value()).bits, b.bits);
  }
}

TEST(Cast, DoubleBeyondFloatIsInfinite) {
  EXPECT_EQ(cast(tensor<double>({2}, {1e300, -1e300}), DType::kFloat32).floats(), (Floats{kInf, -kInf}));
}

TEST(Cast, UnknownTargetsAreRefused) {
  const Tensor x = f32({1}, {0});
  EXPECT_EQ(Op("Cast", 13).with("to", 0).status({x}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Cast", 13).with("to", -1).status({x}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Cast", 13).with("to", 999).status({x}), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(Op("Cast", 13).with("to", static_cast<int>(DType::kString)).status({x}), EVN_ERROR_UNSUPPORTED);
}

}  // namespace
}  // namespace evn::test
