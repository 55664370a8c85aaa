// Binary, variadic, unary, comparisons, Where, Clip: hand-checked values and the edges of integer arithmetic.
#include <bit>
#include <cmath>
#include <limits>

#include "ops/infra/numeric.h"
#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::int32_t kMin32 = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t kMax32 = std::numeric_limits<std::int32_t>::max();

TEST(Add, BroadcastsBothWays) {
  const auto y = Op("Add", 13).run({f32({2, 1}, {10, 20}), f32({3}, {1, 2, 3})});
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 3}));
  EXPECT_EQ(y[0].floats(), (Floats{11, 12, 13, 21, 22, 23}));
}

TEST(Add, IntegersWrap) {
  EXPECT_EQ(Op("Add", 13).run({i32({1}, {kMax32}), i32({1}, {1})})[0].values<std::int32_t>()[0], kMin32);
  const Tensor big = tensor<std::uint16_t>({1}, {65535});
  EXPECT_EQ(Op("Mul", 14).run({big, big})[0].values<std::uint16_t>()[0], 1);
}

TEST(Add, UnlikeDtypesAreInvalid) {
  EXPECT_EQ(Op("Add", 13).status({f32({1}, {1}), tensor<std::int8_t>({1}, {1})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Add, ShapesThatDoNotBroadcastAreAnArgumentError) {
  EXPECT_EQ(Op("Add", 13).status({f32({2}, {1, 2}), f32({3}, {1, 2, 3})}), EVN_ERROR_INVALID_ARGUMENT);
}

TEST(Add, EmptyInputGivesEmptyOutput) {
  EXPECT_EQ(Op("Add", 13).run({f32({0, 2}, {}), f32({2}, {1, 2})})[0].desc.shape, (Shape{0, 2}));
}

TEST(Div, IntegersTruncateAndTheLowestByMinusOneWraps) {
  const auto y = Op("Div", 14).run({i32({3}, {-7, 7, kMin32}), i32({3}, {2, -2, -1})});
  EXPECT_EQ(y[0].values<std::int32_t>(), (std::vector<std::int32_t>{-3, -3, kMin32}));
}

TEST(Div, IntegerByZeroIsAnArgumentError) {
  EXPECT_EQ(Op("Div", 14).status({i32({1}, {7}), i32({1}, {0})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("Mod", 13).status({i32({1}, {7}), i32({1}, {0})}), EVN_ERROR_INVALID_ARGUMENT);
}

TEST(Mod, SignFollowsTheDivisorOrWithFmodTheDividend) {
  const auto divisor = Op("Mod", 13).run({i32({3}, {-7, 7, kMin32}), i32({3}, {3, -3, -1})});
  EXPECT_EQ(divisor[0].values<std::int32_t>(), (std::vector<std::int32_t>{2, -2, 0}));
  const auto dividend = Op("Mod", 13).with("fmod", 1).run({i32({2}, {-7, 7}), i32({2}, {3, -3})});
  EXPECT_EQ(dividend[0].values<std::int32_t>(), (std::vector<std::int32_t>{-1, 1}));
}

TEST(Pow, IntegersAreExactAndNegativePowersVanish) {
  const auto y = Op("Pow", 15).run({i32({5}, {3, 2, -1, 5, 2}), i32({5}, {19, 33, -3, -1, 0})});
  EXPECT_EQ(y[0].values<std::int32_t>(), (std::vector<std::int32_t>{1162261467, 0, -1, 0, 1}));
  EXPECT_EQ(Op("Pow", 15).status({i32({1}, {0}), i32({1}, {-1})}), EVN_ERROR_INVALID_ARGUMENT);
}

TEST(Pow, TheExponentMayBeHalf) {
  const Tensor half = tensor<Float16>({2}, {Float16::from(0.5), Float16::from(-2)});
  EXPECT_EQ(Op("Pow", 15).run({f32({2}, {16, 4}), half})[0].floats(), (Floats{4, 0.0625f}));
}

TEST(Pow, FloatingExponentOfAnIntegerSaturates) {
  EXPECT_EQ(Op("Pow", 15).run({i32({1}, {10}), f32({1}, {12})})[0].values<std::int32_t>()[0], kMax32);
}

TEST(PRelu, SlopeMayNotWidenTheInput) {
  EXPECT_EQ(Op("PRelu", 9).run({f32({1, 2}, {-2, 2}), f32({1}, {0.5f})})[0].floats(), (Floats{-1, 2}));
  EXPECT_EQ(Op("PRelu", 9).status({f32({2}, {-2, 2}), f32({2, 1}, {1, 1})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Max, TakesManyInputsAndKeepsNan) {
  const auto y = Op("Max", 13).run({f32({3}, {1, 5, kNan}), f32({1}, {2}), f32({3}, {0, 9, 9})})[0].floats();
  EXPECT_EQ(y[0], 2);
  EXPECT_EQ(y[1], 9);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_TRUE(std::isnan(Op("Min", 13).run({f32({1}, {1}), f32({1}, {kNan})})[0].floats()[0]));
}

TEST(Sum, AndMeanAddAllInputs) {
  EXPECT_EQ(Op("Sum", 13).run({f32({2}, {1, 2}), f32({2}, {3, 4}), f32({1}, {5})})[0].floats(), (Floats{9, 11}));
  EXPECT_EQ(Op("Mean", 13).run({f32({2}, {1, 2}), f32({2}, {3, 4})})[0].floats(), (Floats{2, 3}));
}

TEST(Max, BroadcastsUnknownDims) {
  EXPECT_EQ(Op("Max", 13).infer({desc({-1, 1}), desc({3}), desc({-1, 1, 1})})[0], (Shape{-1, -1, 3}));
  EXPECT_EQ(Op("Max", 13).run({f32({2, 1}, {1, 4}), f32({3}, {2, 3, 5})})[0].floats(), (Floats{2, 3, 5, 4, 4, 5}));
  EXPECT_EQ(Op("Max", 13).status({f32({1}, {1}), i32({1}, {1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Sum", 13).status({f32({2}, {1, 1}), f32({3}, {1, 1, 1})}), EVN_ERROR_INVALID_ARGUMENT);
}

TEST(Compare, GivesBoolAndNanComparesFalse) {
  const Tensor a = f32({4}, {1, 2, 3, kNan});
  const Tensor b = f32({4}, {2, 2, 2, kNan});
  using Bytes = std::vector<std::uint8_t>;
  EXPECT_EQ(bool_values(Op("Equal", 13).run({a, b})[0]), (Bytes{0, 1, 0, 0}));
  EXPECT_EQ(bool_values(Op("Less", 13).run({a, b})[0]), (Bytes{1, 0, 0, 0}));
  EXPECT_EQ(bool_values(Op("GreaterOrEqual", 16).run({a, b})[0]), (Bytes{0, 1, 1, 0}));
  EXPECT_EQ(bool_values(Op("LessOrEqual", 16).run({a, b})[0]), (Bytes{1, 1, 0, 0}));
  EXPECT_EQ(bool_values(Op("IsNaN", 13).run({a})[0]), (Bytes{0, 0, 0, 1}));
}

TEST(Compare, IsNanAndIsInfReadFloat8) {
  using Bytes = std::vector<std::uint8_t>;
  const auto result = [](const char* op, DType dtype, const Bytes& codes) {
    Tensor x = tensor<std::uint8_t>({static_cast<std::int64_t>(codes.size())}, codes);
    x.desc.dtype = dtype;
    return bool_values(Op(op, 20).run({x})[0]);
  };
  EXPECT_EQ(result("IsNaN", DType::kFloat8E4M3FN, {0x7F, 0xFF, 0x7E, 0}), (Bytes{1, 1, 0, 0}));
  EXPECT_EQ(result("IsNaN", DType::kFloat8E4M3FNUZ, {0x80, 0x7F, 0}), (Bytes{1, 0, 0}));
  EXPECT_EQ(result("IsNaN", DType::kFloat8E5M2, {0x7D, 0xFF, 0x7C, 0}), (Bytes{1, 1, 0, 0}));
  EXPECT_EQ(result("IsNaN", DType::kFloat8E5M2FNUZ, {0x80, 0x7F, 0}), (Bytes{1, 0, 0}));
  EXPECT_EQ(result("IsInf", DType::kFloat8E5M2, {0x7C, 0xFC, 0x7D, 0x7B}), (Bytes{1, 1, 0, 0}));
  EXPECT_EQ(result("IsInf", DType::kFloat8E4M3FN, {0x7F, 0x7E, 0xFE}), (Bytes{0, 0, 0}));
}

TEST(Logic, HasItsTruthTables) {
  const Tensor a = bools({4}, {0, 0, 1, 1});
  const Tensor b = bools({4}, {0, 1, 0, 1});
  using Bytes = std::vector<std::uint8_t>;
  EXPECT_EQ(bool_values(Op("And", 7).run({a, b})[0]), (Bytes{0, 0, 0, 1}));
  EXPECT_EQ(bool_values(Op("Or", 7).run({a, b})[0]), (Bytes{0, 1, 1, 1}));
  EXPECT_EQ(bool_values(Op("Xor", 7).run({a, b})[0]), (Bytes{0, 1, 1, 0}));
  EXPECT_EQ(bool_values(Op("Not", 7).run({a})[0]), (Bytes{1, 1, 0, 0}));
}

TEST(Compare, IntegersOfFullWidthAndBools) {
  const Tensor a = tensor<std::uint64_t>({2}, {UINT64_MAX, UINT64_MAX});
  const Tensor b = tensor<std::uint64_t>({2}, {UINT64_MAX - 1, UINT64_MAX});
  EXPECT_EQ(bool_values(Op("Equal", 13).run({a, b})[0]), (std::vector<std::uint8_t>{0, 1}));
  EXPECT_EQ(bool_values(Op("Greater", 13).run({a, b})[0]), (std::vector<std::uint8_t>{1, 0}));
  EXPECT_EQ(bool_values(Op("Equal", 13).run({bools({2}, {1, 0}), bools({1}, {1})})[0]), (std::vector<std::uint8_t>{1, 0}));
  EXPECT_EQ(Op("Less", 13).status({a, i64({1, 2})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Less", 13).infer({desc({-1, 1}), desc({4})})[0], (Shape{-1, 4}));
}

TEST(Where, BroadcastsAllThree) {
  const auto y = Op("Where", 16).run({bools({2, 1}, {1, 0}), f32({2}, {1, 2}), f32({}, {9})});
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 2}));
  EXPECT_EQ(y[0].floats(), (Floats{1, 2, 9, 9}));
  EXPECT_EQ(Op("Where", 16).status({f32({1}, {1}), f32({1}, {1}), f32({1}, {1})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Where, ChoicesAreOfOneDtypeAndMayHaveUnknownDims) {
  EXPECT_EQ(Op("Where", 16).status({bools({1}, {1}), f32({1}, {1}), i32({1}, {1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Where", 16).status({bools({2}, {1, 0}), f32({3}, {1, 2, 3}), f32({1}, {1})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("Where", 16).infer({desc({-1, 1}, DType::kBool), desc({-1}), desc({1, 3, 1})})[0], (Shape{1, 3, -1}));
  EXPECT_EQ(Op("Where", 16).run({bools({2}, {1, 0}), i64({1, 2}), i64({3, 4})})[0].ints(), (Ints{1, 4}));
}

TEST(Unary, ValuesAtSimplePoints) {
  const Tensor x = f32({3}, {-2, 0, 2});
  expect_near(Op("Exp", 13).run({x})[0].floats(), {0.13533528f, 1, 7.389056f});
  expect_near(Op("Sigmoid", 13).run({x})[0].floats(), {0.11920292f, 0.5f, 0.8807971f});
  expect_near(Op("Erf", 13).run({x})[0].floats(), {-0.9953223f, 0, 0.9953223f});
  expect_near(Op("HardSwish", 14).run({x})[0].floats(), {-1.0f / 3, 0, 5.0f / 3});
  expect_near(Op("HardSigmoid", 13).run({x})[0].floats(), {0.1f, 0.5f, 0.9f});
  expect_near(Op("LeakyRelu", 16).run({x})[0].floats(), {-0.02f, 0, 2});
  expect_near(Op("Gelu", 20).run({x})[0].floats(), {-0.04550026f, 0, 1.9544997f});
  expect_near(Op("Softplus", 13).run({f32({2}, {-200, 200})})[0].floats(), {0, 200});
}

TEST(Round, TiesGoToEven) {
  EXPECT_EQ(Op("Round", 11).run({f32({7}, {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 2.4f, -2.6f})})[0].floats(),
            (Floats{0, 2, 2, -0.0f, -2, 2, -3}));
}

TEST(Abs, OfTheLowestIntegerIsItself) {
  EXPECT_EQ(Op("Abs", 13).run({i32({2}, {kMin32, -5})})[0].values<std::int32_t>(), (std::vector<std::int32_t>{kMin32, 5}));
  EXPECT_EQ(Op("Neg", 13).run({i32({2}, {kMin32, -5})})[0].values<std::int32_t>(), (std::vector<std::int32_t>{kMin32, 5}));
}

TEST(Relu, KeepsNan) {
  const Floats y = Op("Relu", 14).run({f32({3}, {-1, 3, kNan})})[0].floats();
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 3);
  EXPECT_TRUE(std::isnan(y[2]));
}

TEST(Clip, BoundsComeFromAttributesThenFromInputs) {
  const Tensor x = f32({3}, {-5, 0, 5});
  EXPECT_EQ(Op("Clip", 6).with("min", AttributeValue(-1.0f)).with("max", AttributeValue(2.0f)).run({x})[0].floats(),
            (Floats{-1, 0, 2}));
  EXPECT_EQ(Op("Clip", 11).run({x, f32({}, {-1}), f32({}, {2})})[0].floats(), (Floats{-1, 0, 2}));
  EXPECT_EQ(Op("Clip", 11).run({x, absent(), f32({}, {2})})[0].floats(), (Floats{-5, 0, 2}));
}

TEST(Clip, MaximumWinsOverALargerMinimum) {
  EXPECT_EQ(Op("Clip", 13).run({f32({2}, {0, 9}), f32({}, {5}), f32({}, {1})})[0].floats(), (Floats{1, 1}));
}

TEST(Clip, BoundMustBeAScalarOfTheSameDtype) {
  EXPECT_EQ(Op("Clip", 13).status({f32({1}, {0}), f32({2}, {5, 5})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Clip", 13).status({f32({1}, {0}), i32({}, {5})}), EVN_ERROR_INVALID_MODEL);
}

TEST(Mod, OfFloatsIsExactForQuotientsOfAnySize) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kTiny = std::numeric_limits<float>::denorm_min();
  Floats a, b;
  const auto add = [&](float x, float y) {
    for (const float sign : {1.0f, -1.0f}) {
      a.insert(a.end(), {sign * x, x});
      b.insert(b.end(), {y, sign * y});
    }
  };
  std::uint32_t bits = 1;
  for (int i = 0; i < 20000; ++i) {
    const auto next = [&] { return static_cast<float>(bits = bits * 1664525u + 1013904223u); };
    const float x = std::ldexp(next(), i % 70 - 60), y = std::ldexp(next(), -(i % 31));
    add(x, y);
    add(y * static_cast<float>(i % 17), y);                   // whole quotients, or what is next to them
    add(std::nextafter(y * static_cast<float>(i), 0.0f), y);  // just below
  }
  for (const float x : {0.0f, 1.0f, kTiny, 3 * kTiny, kInf, std::nanf(""), 3.4e38f}) {
    for (const float y : {0.0f, 1.0f, kTiny, 2 * kTiny, kInf, std::nanf(""), 1e-38f}) add(x, y);
  }
  const auto count = static_cast<std::int64_t>(a.size());
  const Floats y = Op("Mod", 13).with("fmod", 1).run({f32({count}, a), f32({count}, b)})[0].floats();
  for (std::size_t i = 0; i < y.size(); ++i) {
    const float expected = std::fmod(a[i], b[i]);
    if (std::isnan(expected)) ASSERT_TRUE(std::isnan(y[i])) << a[i] << " mod " << b[i];
    else ASSERT_EQ(std::bit_cast<std::uint32_t>(y[i]), std::bit_cast<std::uint32_t>(expected)) << a[i] << " mod " << b[i];
  }
}

TEST(BitShift, OfLongAndBroadcastInputs) {
  std::vector<std::uint8_t> x, by;
  for (int i = 0; i < 3 * 37; ++i) {
    x.push_back(static_cast<std::uint8_t>(i * 91));
    by.push_back(static_cast<std::uint8_t>(i % 10));
  }
  const std::vector<std::uint8_t> row(by.begin(), by.begin() + 37);
  for (const bool left : {true, false}) {
    const auto shifted = [&](std::uint8_t a, std::uint8_t b) {
      return static_cast<std::uint8_t>(b > 7 ? 0 : left ? a << b : a >> b);
    };
    const auto run = [&](const Tensor& b) {
      return Op("BitShift", 11)
          .with("direction", left ? "LEFT" : "RIGHT")
          .run({tensor<std::uint8_t>({3, 37}, x), b})[0]
          .values<std::uint8_t>();
    };
    const auto y = run(tensor<std::uint8_t>({3, 37}, by)), z = run(tensor<std::uint8_t>({37}, row));
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(y[i], shifted(x[i], by[i]));
      ASSERT_EQ(z[i], shifted(x[i], row[i % 37]));
    }
  }
}

}  // namespace
}  // namespace evn::test
