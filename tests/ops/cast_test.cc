// Cast: where the conversion is not obvious.
#include <cmath>
#include <limits>
#include <numeric>

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

// The bytes of a tensor of a small type.
std::vector<std::uint8_t> codes(Tensor y) {
  y.desc = {DType::kUint8, {static_cast<std::int64_t>(y.desc.size_bytes())}};
  return y.values<std::uint8_t>();
}

Tensor cast_to_small(const Tensor& x, DType to, int saturate = 1) {
  return Op("Cast", 19).with("to", static_cast<int>(to)).with("saturate", saturate).run({x})[0];
}

using Codes = std::vector<std::uint8_t>;

TEST(Cast, Float8RoundsToEvenAndSaturates) {
  // 17 and 19 lie between numbers of which every second is even; 2^-10 ties to zero; the largest are 448, 240, 57344 and 57344.
  const Tensor x = f32({8}, {1, -17, 19, 0x1p-10f, -0.0f, 1e6f, -kInf, NAN});
  EXPECT_EQ(codes(cast_to_small(x, DType::kFloat8E4M3FN)), (Codes{0x38, 0xD8, 0x5A, 0x00, 0x80, 0x7E, 0xFE, 0x7F}));
  EXPECT_EQ(codes(cast_to_small(x, DType::kFloat8E4M3FNUZ)), (Codes{0x40, 0xE0, 0x62, 0x01, 0x00, 0x7F, 0xFF, 0x80}));
  EXPECT_EQ(codes(cast_to_small(x, DType::kFloat8E5M2)), (Codes{0x3C, 0xCC, 0x4D, 0x14, 0x80, 0x7B, 0xFB, 0x7F}));
  EXPECT_EQ(codes(cast_to_small(x, DType::kFloat8E5M2FNUZ)), (Codes{0x40, 0xD0, 0x51, 0x18, 0x00, 0x7F, 0xFF, 0x80}));
}

TEST(Cast, Float8WithoutSaturationOverflowsToWhatTheFormatHas) {
  const Tensor x = f32({3}, {1e6f, -kInf, 448});
  EXPECT_EQ(codes(cast_to_small(x, DType::kFloat8E4M3FN, 0)), (Codes{0x7F, 0xFF, 0x7E}));
  EXPECT_EQ(codes(cast_to_small(x, DType::kFloat8E4M3FNUZ, 0)), (Codes{0x80, 0x80, 0x80}));
  EXPECT_EQ(codes(cast_to_small(x, DType::kFloat8E5M2, 0)), (Codes{0x7C, 0xFC, 0x5F}));
}

TEST(Cast, EveryFloat8SurvivesTheWayThroughFloat) {
  for (const DType type :
       {DType::kFloat8E4M3FN, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2, DType::kFloat8E5M2FNUZ, DType::kFloat8E8M0}) {
    Codes every(256);
    std::iota(every.begin(), every.end(), std::uint8_t{0});
    Tensor all = tensor<std::uint8_t>({256}, every);
    all.desc.dtype = type;
    const Floats values = cast(all, DType::kFloat32).floats();
    const Codes back = codes(cast_to_small(f32({256}, values), type, 0));
    for (std::size_t i = 0; i < 256; ++i) {
      if (std::isnan(values[i])) continue;
      EXPECT_EQ(back[i], i) << dtype_name(type);
    }
  }
}

TEST(Cast, SmallIntegersTakeTheLowBitsAndFillBytesFromBelow) {
  EXPECT_EQ(codes(cast_to_small(f32({3}, {-9, 7, -1}), DType::kInt4)), (Codes{0x77, 0x0F}));  // what is left is 0
  EXPECT_EQ(codes(cast_to_small(i64({17, 254, 3}), DType::kUint4)), (Codes{0xE1, 0x03}));
  EXPECT_EQ(codes(cast_to_small(i64({1, 2, 3, 4, 5}), DType::kUint2)), (Codes{0x39, 0x01}));
  EXPECT_EQ(codes(cast_to_small(f32({2}, {NAN, kInf}), DType::kInt2)), (Codes{0x0C}));
}

TEST(Cast, SmallIntegersComeBackWithTheirSigns) {
  const Tensor x = cast_to_small(i64({-8, -1, 0, 7}), DType::kInt4);
  EXPECT_EQ(cast(x, DType::kInt64).ints(), (Ints{-8, -1, 0, 7}));
  EXPECT_EQ(cast(x, DType::kUint8).values<std::uint8_t>(), (Codes{248, 255, 0, 7}));
  EXPECT_EQ(cast(cast_to_small(x, DType::kInt2), DType::kFloat32).floats(), (Floats{0, -1, 0, -1}));
}

TEST(Cast, Float4HasEightNumbersAndTheirNegatives) {
  const Tensor x = f32({6}, {0.25f, 0.75f, 2.5f, 5, -100, NAN});
  EXPECT_EQ(codes(cast_to_small(x, DType::kFloat4E2M1)), (Codes{0x20, 0x64, 0x8F}));
  EXPECT_EQ(cast(cast_to_small(x, DType::kFloat4E2M1), DType::kFloat32).floats(), (Floats{0, 1, 2, 4, -6, -0.0f}));
}

TEST(Cast, ScalesArePowersOfTwo) {
  const auto to_scale = [](const char* mode, int saturate) {
    return codes(Op("Cast", 24)
                     .with("to", static_cast<int>(DType::kFloat8E8M0))
                     .with("round_mode", mode)
                     .with("saturate", saturate)
                     .run({f32({5}, {1, 1.5f, 1.25f, 0, kInf})})[0]);
  };
  EXPECT_EQ(to_scale("up", 1), (Codes{127, 128, 128, 0, 254}));
  EXPECT_EQ(to_scale("down", 1), (Codes{127, 127, 127, 0, 254}));
  EXPECT_EQ(to_scale("nearest", 0), (Codes{127, 128, 127, 255, 255}));
  EXPECT_EQ(Op("Cast", 24).with("to", static_cast<int>(DType::kFloat8E8M0)).with("round_mode", "sideways").status({f32({1}, {1})}),
            EVN_ERROR_INVALID_MODEL);
}

TEST(Cast, UnknownTargetsAreRefused) {
  const Tensor x = f32({1}, {0});
  EXPECT_EQ(Op("Cast", 13).with("to", 0).status({x}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Cast", 13).with("to", -1).status({x}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Cast", 13).with("to", 999).status({x}), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(Op("Cast", 13).with("to", static_cast<int>(DType::kComplex64)).status({x}), EVN_ERROR_UNSUPPORTED);
}

}  // namespace
}  // namespace evn::test
