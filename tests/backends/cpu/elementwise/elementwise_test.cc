// Element-wise operators of one and two inputs on the CPU.
#include <cmath>
#include <limits>

#include "ops/infra/numeric.h"
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

std::vector<float> special_values() {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> v = {0.0f,    -0.0f,   1.0f,   -1.0f,   inf,     -inf,  std::nanf(""), 88.7f, 88.8f, -87.5f,
                          -103.0f, -110.0f, 200.0f, -200.0f, 0.64f,   0.66f, -0.64f,        0.99f, 1.01f, -1.01f,
                          3.99f,   4.01f,   9.5f,   1e-30f,  -1e-30f, 1e-6f, 3.0f,          -3.0f, 6.0f,  1e30f};
  Random random(9);
  while (v.size() < 3001) v.push_back(random.uniform(-12, 12));
  return v;
}

void check_unary(const std::string& op, const std::string& kernel, int opset = 13) {
  const std::vector<float> x = special_values();
  KernelCheck(op, opset).input_of<float>(Shape{static_cast<std::int64_t>(x.size())}, x).kernel(kernel).run();
  KernelCheck(op, opset).input(Shape{3, 5, 7}, false, 0.1f, 3).step(EpilogueOpKind::kClip, -0.5f, 0.7f).kernel(kernel).run();
  KernelCheck(op, opset).input(Shape{70001}, false, 0.01f, 4).step(EpilogueOpKind::kTanh).kernel(kernel).run();
}

TEST(CpuElementwise, FunctionsOfOneInput) {
  check_unary("Identity", "identity");
  check_unary("Relu", "relu");
  check_unary("LeakyRelu", "leaky_relu");
  check_unary("HardSigmoid", "hard_sigmoid");
  check_unary("Sigmoid", "sigmoid");
  check_unary("Tanh", "tanh");
  check_unary("Sqrt", "sqrt");
  check_unary("Exp", "exp");
  check_unary("Erf", "erf");
  check_unary("Abs", "abs");
  check_unary("Neg", "neg");
  check_unary("Reciprocal", "reciprocal");
  check_unary("Softplus", "softplus");
  check_unary("Floor", "floor");
  check_unary("Ceil", "ceil");
  check_unary("Log", "log");
  check_unary("Sin", "sin");
  check_unary("Cos", "cos");
  check_unary("Round", "round");
  check_unary("Sign", "sign");
  check_unary("Softsign", "softsign");
  check_unary("ThresholdedRelu", "thresholded_relu");
  check_unary("Elu", "elu");
  check_unary("Selu", "selu");
  check_unary("Celu", "celu");
  check_unary("Mish", "mish", 18);
  check_unary("Tan", "tan");
  check_unary("Asin", "asin");
  check_unary("Acos", "acos");
  check_unary("Atan", "atan");
  check_unary("Sinh", "sinh");
  check_unary("Cosh", "cosh");
  check_unary("Asinh", "asinh");
  check_unary("Acosh", "acosh");
  check_unary("Atanh", "atanh");
}

// Where exp(x) - 1 and log(1 + exp(x)) have lost x: the largest result is small too, so that the tolerance is.
TEST(CpuElementwise, SmallResultsKeepTheirDigits) {
  for (const float scale : {1e-3f, 1e-6f, 1e-20f}) {
    KernelCheck("Elu").input(Shape{999}, false, -scale, scale).real("alpha", 1.3f).kernel("elu").run();
    KernelCheck("Selu").input(Shape{999}, false, -scale, scale).kernel("selu").run();
    KernelCheck("Celu").input(Shape{999}, false, -scale, scale).real("alpha", 0.7f).kernel("celu").run();
    KernelCheck("Mish", 18).input(Shape{999}, false, -scale, scale).kernel("mish").run();
  }
  KernelCheck("Softplus").input(Shape{999}, false, -30, -15).kernel("softplus").run();
  KernelCheck("ThresholdedRelu").input(Shape{999}, false, -3, 3).real("alpha", 0.7f).kernel("thresholded_relu").run();
}

TEST(CpuElementwise, RoundsHalvesToEven) {
  std::vector<float> x;
  for (float v = -9.5f; v <= 9.5f; v += 0.5f) x.push_back(v);
  for (const float v : {8388607.5f, 4194303.5f, 4194304.5f, 8388609.0f, 16777216.0f, 3e38f, 0.49999997f, 1e-40f}) {
    x.push_back(v);
    x.push_back(-v);
  }
  KernelCheck("Round").input_of<float>(Shape{static_cast<std::int64_t>(x.size())}, x).kernel("round").run();
}

TEST(CpuElementwise, NewerFunctions) {
  KernelCheck("HardSwish", 14).input(Shape{999}, false, -5, 5).kernel("hard_swish").run();
  KernelCheck("Gelu", 20).input(Shape{999}, false, -5, 5).kernel("gelu").run();
  KernelCheck("Gelu", 20).input(Shape{99}).attribute("approximate", std::string("tanh")).kernel("gelu_tanh").run();
  KernelCheck("Swish", 24).input(Shape{999}, false, -9, 9).real("alpha", 1.7f).kernel("swish").run();
}

TEST(CpuElementwise, ClipTakesItsBoundsFromAttributesOrInputs) {
  KernelCheck("Clip", 6).input(Shape{1000}, false, -9, 9).real("min", -2).real("max", 3).kernel("clip").run();
  KernelCheck("Clip")
      .input(Shape{1000}, false, -9, 9)
      .input_of<float>(Shape{}, {-1.5f})
      .input_of<float>(Shape{}, {6.0f})
      .kernel("clip")
      .run();
  KernelCheck("Clip").input(Shape{1000}, false, -9, 9).absent().input_of<float>(Shape{}, {6.0f}, true).kernel("clip").run();
  KernelCheck("Clip").input(Shape{1000}, false, -9, 9).input_of<float>(Shape{}, {0.0f}).kernel("clip").run();
}

TEST(CpuElementwise, TwoInputsBroadcastEveryWay) {
  const std::pair<Shape, Shape> shapes[] = {
      {Shape{3, 50}, Shape{3, 50}},
      {Shape{3, 50}, Shape{}},
      {Shape{}, Shape{2, 3}},
      {Shape{2, 5, 6, 7}, Shape{1, 5, 1, 1}},
      {Shape{2, 5, 6, 7}, Shape{5, 1, 1}},
      {Shape{4, 33}, Shape{33}},
      {Shape{33}, Shape{4, 33}},
      {Shape{4, 1}, Shape{1, 35}},
      {Shape{2, 3, 4, 5}, Shape{2, 1, 4, 1}},
      {Shape{1, 3, 1, 5}, Shape{2, 1, 4, 1}},
      {Shape{2, 3, 4, 5}, Shape{2, 3, 1, 1}},
      {Shape{7, 60000}, Shape{7, 1}},
      {Shape{1}, Shape{1}},
      {Shape{3, 1, 40}, Shape{3, 8, 40}},
      {Shape{1000, 8}, Shape{8}},
      {Shape{2, 1, 7}, Shape{2, 301, 7}},
      {Shape{3, 5000, 24}, Shape{3, 1, 24}},
      {Shape{500, 3}, Shape{500, 3}},
      {Shape{90, 95}, Shape{95}},
      {Shape{2, 12, 31, 17}, Shape{2, 12, 1, 1}},
  };
  const std::pair<const char*, const char*> ops[] = {{"Add", "add"}, {"Sub", "sub"}, {"Mul", "mul"}, {"Div", "div"},
                                                     {"Min", "min"}, {"Max", "max"}, {"Sum", "sum"}};
  for (const auto& [a, b] : shapes) {
    for (const auto& [op, kernel] : ops) {
      KernelCheck(op).input(a).input(b, false, 0.5f, 2).kernel(kernel).run();
      KernelCheck(op)
          .input(a)
          .input(b, false, 0.5f, 2)
          .step(EpilogueOpKind::kHardSigmoid, 0.2f, 0.5f)
          .step(EpilogueOpKind::kScale, 3)
          .kernel(kernel)
          .run();
    }
    KernelCheck("Pow").input(a, false, 0.1f, 3).input(b, false, -2, 2).kernel("pow").run();
  }
}

TEST(CpuElementwise, PowersOfTwoAndHalf) {
  for (float power : {2.0f, 0.5f, 3.0f, -1.0f}) {
    KernelCheck("Pow").input(Shape{5, 77}, false, 0.1f, 2).input_of<float>(Shape{}, {power}, true).kernel("pow").run();
  }
  KernelCheck("Pow")
      .input(Shape{2, 77}, false, -2, 2)
      .input_of<float>(Shape{1}, {2.0f})
      .step(EpilogueOpKind::kOffset, 1)
      .kernel("pow")
      .run();
}

TEST(CpuElementwise, PReluHasASlopePerChannel) {
  KernelCheck("PRelu").input(Shape{2, 5, 6, 7}).weight(Shape{5, 1, 1}).kernel("prelu").run();
}

TEST(CpuElementwise, NaNPassesMinAndMaxFromEitherSide) {
  const float nan = std::nanf("");
  const std::vector<float> a = {nan, 1, nan, 2, 5}, b = {1, nan, nan, 3, 4};
  KernelCheck("Min").input_of<float>(Shape{5}, a).input_of<float>(Shape{5}, b).kernel("min").run();
  KernelCheck("Max").input_of<float>(Shape{5}, a).input_of<float>(Shape{5}, b).kernel("max").run();
}

TEST(CpuElementwise, OtherDtypesAndCountsAreLeftToTheReference) {
  KernelCheck("Add")
      .input_of<std::int64_t>(Shape{3}, {1, 2, 3})
      .input_of<std::int64_t>(Shape{3}, {4, 5, 6})
      .kernel("reference")
      .run();
  KernelCheck("Max").input(Shape{3}).input(Shape{3}).input(Shape{3}).kernel("reference").run();
}

TEST(CpuCast, EveryHalf) {
  std::vector<std::uint16_t> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<Float16> halves;
  for (const std::uint16_t bits : all) halves.push_back({bits});
  KernelCheck("Cast").input_of<Float16>(Shape{1 << 16}, halves).integer("to", EVN_DTYPE_FLOAT32).kernel("cast_from_half").run();
  KernelCheck("Cast")
      .input_of<Float16>(Shape{13}, {halves.begin() + 15361, halves.begin() + 15374})
      .integer("to", EVN_DTYPE_FLOAT32)
      .kernel("cast_from_half")
      .run();
}

TEST(CpuCast, EveryConversionOfManyNumbers) {
  constexpr std::int64_t kCount = 700;  // whole vectors and a tail
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float specials[] = {nan,
                            inf,
                            -inf,
                            0.0f,
                            -0.0f,
                            0.9f,
                            -0.9f,
                            254.9f,
                            255.0f,
                            256.0f,
                            1e-40f,
                            3e9f,
                            -3e9f,
                            2147483520.0f,
                            2147483648.0f,
                            -2147483648.0f,
                            9.2e18f,
                            9223372036854775808.0f,
                            -9223372036854775808.0f,
                            1e30f,
                            -1e30f,
                            16777217.0f};
  std::vector<float> floats;
  std::vector<std::int64_t> longs;
  std::vector<std::int32_t> ints;
  std::vector<std::uint8_t> bytes, bools;
  std::vector<std::int8_t> signed_bytes;
  Random random(7);
  for (std::int64_t i = 0; i < kCount; ++i) {
    floats.push_back(i % 3 == 0 ? random.uniform(-300, 300) : specials[static_cast<std::size_t>(i) % std::size(specials)]);
    longs.push_back(i % 4 == 0 ? 0 : static_cast<std::int64_t>(random.next()) >> i % 64);
    ints.push_back(static_cast<std::int32_t>(longs.back()));
    bytes.push_back(static_cast<std::uint8_t>(i));
    bools.push_back(static_cast<std::uint8_t>(i % 5 == 0 ? i % 3 : i % 2));  // any byte but 0 is true
    signed_bytes.push_back(static_cast<std::int8_t>(i));
  }
  const auto to = [](KernelCheck&& c, std::int64_t dtype) { c.integer("to", dtype).kernel("cast").run(); };
  const Shape shape = {kCount};
  for (const std::int64_t t : {EVN_DTYPE_UINT8, EVN_DTYPE_BOOL, EVN_DTYPE_INT32, EVN_DTYPE_INT64})
    to(std::move(KernelCheck("Cast").input_of<float>(shape, floats)), t);
  for (const std::int64_t t : {EVN_DTYPE_FLOAT32, EVN_DTYPE_INT32, EVN_DTYPE_BOOL})
    to(std::move(KernelCheck("Cast").input_of<std::int64_t>(shape, longs)), t);
  for (const std::int64_t t : {EVN_DTYPE_FLOAT32, EVN_DTYPE_INT64, EVN_DTYPE_BOOL})
    to(std::move(KernelCheck("Cast").input_of<std::int32_t>(shape, ints)), t);
  for (const std::int64_t t : {EVN_DTYPE_FLOAT32, EVN_DTYPE_INT64, EVN_DTYPE_INT32})
    to(std::move(KernelCheck("Cast").bools(shape, bools)), t);
  to(std::move(KernelCheck("Cast").input_of<std::uint8_t>(shape, bytes)), EVN_DTYPE_FLOAT32);
  to(std::move(KernelCheck("Cast").input_of<std::int8_t>(shape, signed_bytes)), EVN_DTYPE_FLOAT32);
}

TEST(CpuCast, FloatsAreRoundedToHalves) {
  std::vector<float> x = special_values();
  for (std::uint32_t i = 0; i < 0x7c00; ++i) {  // every half, the middle to the next, and what is beside that
    const auto value = static_cast<float>(Float16{static_cast<std::uint16_t>(i)}.value());
    const auto next = i + 1 == 0x7c00 ? 65536.0f : static_cast<float>(Float16{static_cast<std::uint16_t>(i + 1)}.value());
    const float middle = (value + next) / 2;
    for (const float v : {value, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e6f)})
      x.push_back(i % 2 == 0 ? v : -v);
  }
  KernelCheck("Cast")
      .input_of<float>(Shape{static_cast<std::int64_t>(x.size())}, x)
      .integer("to", EVN_DTYPE_FLOAT16)
      .kernel("cast_to_half")
      .run();
  KernelCheck("Cast")
      .input_of<float>(Shape{7}, {x.begin(), x.begin() + 7})
      .integer("to", EVN_DTYPE_FLOAT16)
      .kernel("cast_to_half")
      .run();
}

}  // namespace
}  // namespace evn::test
