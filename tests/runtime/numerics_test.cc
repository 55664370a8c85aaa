// `numerics: strict`: sums at the error of plain ones, numbers below 2^-126 kept, and who says where that holds.
#include <cmath>
#include <filesystem>

#include "tests/runtime/support.h"
#include "tests/support/forced_cascades.h"
#include "tests/support/isas.h"

namespace evn::test::numerics_test {
namespace {

constexpr Numerics kBoth[] = {Numerics::kFast, Numerics::kStrict};

SessionRequest asks(Numerics numerics, Precision precision = Precision::kDefault) {
  SessionRequest request("");
  request.numerics = numerics;
  request.precision = precision;
  return request;
}

// Kernels flush on x86 alone; other processors keep such numbers in any case.
#if defined(__x86_64__)
constexpr bool kFastFlushes = true;
#else
constexpr bool kFastFlushes = false;
#endif

const NodePlacement& placed(const Session& session, const std::string& node) {
  const CompiledGraph& c = session.compiled();
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    if (c.graph().nodes[i].name == node) return c.placement.nodes[i];
  }
  throw std::runtime_error("no node " + node);
}

// A sum of n terms in float32, added in any order and each rounded at most once as a product and once as it is added, is off by at
// most n u / (1 - n u) of the sum of the terms' magnitudes, u = 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, 3.1
// and 4.2: the first term needs no addition), and by half of the smallest subnormal number for each product that falls below
// 2^-126: n 2^-150. The result in float64 is off by less than 2^-28 of that.
double bound(double n, double magnitudes) { return n * 0x1p-24 / (1 - n * 0x1p-24) * magnitudes + n * 0x1p-150; }

struct Exact {
  std::vector<double> sums, magnitudes;
};

// How far results are from the exact sums, in bounds: the largest.
double worst(const HostTensor& got, const Exact& exact, double terms) {
  double most = 0;
  for (std::size_t i = 0; i < exact.sums.size(); ++i) {
    const double error = std::abs(static_cast<double>(got.as<float>()[i]) - exact.sums[i]);
    most = std::max(most, error == 0 ? 0 : error / bound(terms, exact.magnitudes[i]));
  }
  return most;
}

// ------------------------------------------------------------------------------------------------------- Winograd --

constexpr std::int64_t kChannels = 32, kSide = 24;

std::vector<float> noise(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& v : values) v = std::uniform_real_distribution<float>(-1, 1)(random);
  return values;
}

OnnxWriter convolution(const std::vector<float>& weights) {
  OnnxWriter w(14);
  w.add_input("x", kF32, {1, kChannels, kSide, kSide}).add_output("y").add_initializer("w", {kChannels, kChannels, 3, 3}, weights);
  w.add_node("Conv", {"x", "w"}, {"y"}, {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}}, "conv");
  return w;
}

// Pixels of some 1, and a few of 10^7: the outputs that see none of these share patches of Winograd's transform with them, and take
// over roundings of their size.
HostTensor uneven_image() {
  HostTensor x({DType::kFloat32, {1, kChannels, kSide, kSide}});
  const std::vector<float> values = noise(x.as<float>().size(), 3);
  std::copy(values.begin(), values.end(), x.as<float>().begin());
  for (std::int64_t c = 0; c < kChannels; ++c) {
    for (const std::int64_t at : {2 * kSide + 3, 9 * kSide + 14, 17 * kSide + 6})
      x.as<float>()[static_cast<std::size_t>(c * kSide * kSide + at)] = 1e7f;
  }
  return x;
}

Exact exact_convolution(const HostTensor& x, const std::vector<float>& w) {
  Exact e;
  for (std::int64_t o = 0; o < kChannels; ++o) {
    for (std::int64_t i = 0; i < kSide; ++i) {
      for (std::int64_t j = 0; j < kSide; ++j) {
        double sum = 0, magnitude = 0;
        for (std::int64_t c = 0; c < kChannels; ++c) {
          for (std::int64_t k = 0; k < 9; ++k) {
            const std::int64_t line = i + k / 3 - 1, column = j + k % 3 - 1;
            if (line < 0 || line >= kSide || column < 0 || column >= kSide) continue;
            const double term = static_cast<double>(x.as<float>()[static_cast<std::size_t>((c * kSide + line) * kSide + column)]) *
                                w[static_cast<std::size_t>((o * kChannels + c) * 9 + k)];
            sum += term;
            magnitude += std::abs(term);
          }
        }
        e.sums.push_back(sum);
        e.magnitudes.push_back(magnitude);
      }
    }
  }
  return e;
}

class NumericsTest : public RuntimeTest {
 protected:
  ~NumericsTest() override { force_cascades(CascadeUse::kWhereItPays); }
};

TEST_F(NumericsTest, StrictConvolutionsHaveTheErrorOfPlainSumsWhereWinogradsIsLarger) {
  const std::vector<float> w = noise(kChannels * kChannels * 9, 5);
  const HostTensor x = uneven_image();
  const Exact exact = exact_convolution(x, w);
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(isa_name(isa));
    const ForcedIsa forced(isa);
    for (const int threads : {1, 3}) {
      const ModelPtr model = load(make_runtime({}, 0, threads), convolution(w));
      TestSession fast(model, asks(Numerics::kDefault)), strict(model, asks(Numerics::kStrict));
      ASSERT_STREQ(placed(fast, "conv").kernel->name, "conv_winograd");
      EXPECT_EQ(std::string(placed(strict, "conv").kernel->name).find("winograd"), std::string::npos);
      for (const char* part : {"conv_winograd: ", kStrictRefusesWinograd})
        EXPECT_NE(placed(strict, "conv").refused.find(part), std::string::npos) << placed(strict, "conv").refused;
      EXPECT_GT(worst(run(fast, {x})[0], exact, kChannels * 9), 2);  // the data tells the two apart
      EXPECT_LE(worst(run(strict, {x})[0], exact, kChannels * 9), 1);
    }
  }
}

TEST_F(NumericsTest, TheBytesFormOfWinogradIsRefusedToo) {
  OnnxWriter m(13);
  m.add_input("x", kU8, {1, 64, 16, 16}).add_output("y", kU8).add_initializer("s", {}, std::vector<float>{0.5f});
  m.add_initializer("z", {}, std::vector<std::uint8_t>{0}).add_initializer("wz", {}, std::vector<std::int8_t>{0});
  m.add_initializer("w", {64, 64, 3, 3}, std::vector<std::int8_t>(64 * 64 * 9, 3));
  m.add_node("QLinearConv", {"x", "s", "z", "w", "s", "wz", "s", "z"}, {"y"}, {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}},
             "conv");
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(isa_name(isa));
    const ForcedIsa forced(isa);
    const ModelPtr model = load(make_runtime(), m);
    if (isa == Isa::k_avx2 || isa == Isa::k_avx512) {  // which have this kernel
      EXPECT_STREQ(placed(TestSession(model, asks(Numerics::kFast)), "conv").kernel->name, "qlinear_conv_winograd");
    }
    EXPECT_STRNE(placed(TestSession(model, asks(Numerics::kStrict)), "conv").kernel->name, "qlinear_conv_winograd");
  }
}

// ------------------------------------------------------------------------------------------------ below 2^-126 --

constexpr std::int64_t kRows = 96, kInner = 64, kColumns = 80;  // work for all threads

// y = x w and z = x v, each by a constant.
OnnxWriter two_products(const std::vector<float>& w) {
  OnnxWriter m(14);
  m.add_input("x", kF32, {kRows, kInner}).add_output("y").add_output("z");
  m.add_initializer("w", {kInner, kColumns}, w).add_initializer("v", {kInner, kColumns}, w);
  m.add_node("MatMul", {"x", "w"}, {"y"}, {}, "first").add_node("MatMul", {"x", "v"}, {"z"}, {}, "second");
  return m;
}

HostTensor scaled_rows(float scale) {
  HostTensor x({DType::kFloat32, {kRows, kInner}});
  const std::vector<float> values = noise(kRows * kInner, 11);
  for (std::size_t i = 0; i < values.size(); ++i) x.as<float>()[i] = values[i] * scale;
  return x;
}

std::vector<float> scaled_weight(float scale) {
  std::vector<float> w = noise(kInner * kColumns, 13);
  for (float& v : w) v *= scale;
  return w;
}

Exact exact_product(const HostTensor& x, const std::vector<float>& w) {
  Exact e;
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kColumns; ++j) {
      double sum = 0, magnitude = 0;
      for (std::int64_t k = 0; k < kInner; ++k) {
        const double term = static_cast<double>(x.as<float>()[static_cast<std::size_t>(i * kInner + k)]) *
                            w[static_cast<std::size_t>(k * kColumns + j)];
        sum += term;
        magnitude += std::abs(term);
      }
      e.sums.push_back(sum);
      e.magnitudes.push_back(magnitude);
    }
  }
  return e;
}

bool all_zero(const HostTensor& t) {
  return std::all_of(t.as<float>().begin(), t.as<float>().end(), [](float v) { return v == 0; });
}

// Outputs below 2^-126, and inputs and weights below it whose products are normal numbers; one product of the session is strict.
TEST_F(NumericsTest, AStrictProductKeepsWhatItsFastNeighbourFlushes) {
  struct Case {
    float x, w;
  };
  for (const auto [of_x, of_w] : {Case{1e-20f, 1e-20f}, Case{1e-40f, 1e10f}, Case{1e10f, 1e-40f}}) {
    SCOPED_TRACE(std::to_string(std::log10(of_x)) + " times " + std::to_string(std::log10(of_w)));
    const std::vector<float> w = scaled_weight(of_w);
    const HostTensor x = scaled_rows(of_x);
    const Exact exact = exact_product(x, w);
    Config config;
    config.rules = {rule({}, {"first"}, "", Policy::kRequire, 3)};
    config.rules[0].numerics = Numerics::kStrict;
    for (const Isa isa : available_isas()) {
      SCOPED_TRACE(isa_name(isa));
      const ForcedIsa forced(isa);
      for (const int threads : {1, 4}) {
        TestSession session(load(make_runtime(config, 0, threads), two_products(w)), "");
        const std::vector<HostTensor> got = run(session, {x});
        EXPECT_FALSE(all_zero(got[0]));
        EXPECT_LE(worst(got[0], exact, kInner), 1);
        if (kFastFlushes) {
          EXPECT_TRUE(all_zero(got[1]));
        }
        EXPECT_EQ(placed(session, "first").numerics_reason, "rule at line 3");
        EXPECT_EQ(placed(session, "second").numerics, Numerics::kFast);
      }
    }
  }
}

// y = Relu(Conv(x)) + r as a cascade, with pixels and weights whose products are below 2^-126.
TEST_F(NumericsTest, CascadesAreStrictAsTheirNodesAre) {
  OnnxWriter m(14);
  m.add_input("x", kF32, {1, 16, 40, 40}).add_output("y");
  m.add_initializer("a", {32, 16, 1, 1}, std::vector<float>(32 * 16, 1e-20f))
      .add_initializer("b", {32, 1, 3, 3}, std::vector<float>(32 * 9, 1.0f));
  m.add_node("Conv", {"x", "a"}, {"c"}, {}, "expand");
  m.add_node("Conv", {"c", "b"}, {"y"}, {{"group", 32}, {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}}, "depthwise");
  HostTensor x({DType::kFloat32, {1, 16, 40, 40}});
  for (float& v : x.as<float>()) v = 1e-20f;
  force_cascades(CascadeUse::kAlways);
  for (const Numerics numerics : kBoth) {
    const ModelPtr model = load(make_runtime({}, 0, 3), m);
    TestSession session(model, asks(numerics));
    const HostTensor y = run(session, {x})[0];
    ASSERT_NE(session.explain(EVN_FORMAT_TEXT).find("conv_cascade"), std::string::npos);
    if (numerics == Numerics::kFast && kFastFlushes) {
      EXPECT_TRUE(all_zero(y));
    }
    if (numerics == Numerics::kFast) continue;
    const double inside = 9 * 16 * static_cast<double>(1e-20f) * static_cast<double>(1e-20f);
    EXPECT_NEAR(y.as<float>()[20 * 40 + 20], inside, bound(9 * 16, inside));
  }
}

TEST_F(NumericsTest, ElementwiseNodesReductionsAndSoftmaxKeepSmallResults) {
  OnnxWriter m(14);
  m.add_input("x", kF32, {64, 256}).add_output("product").add_output("sum").add_output("exp").add_output("softmax");
  m.add_initializer("s", {}, std::vector<float>{1e-30f}).add_initializer("low", {}, std::vector<float>{-95.0f});
  m.add_initializer("axes", {1}, std::vector<std::int64_t>{1});
  m.add_node("Mul", {"x", "s"}, {"m"}).add_node("Mul", {"m", "m"}, {"product"});
  m.add_node("ReduceSum", {"product", "axes"}, {"sum"});
  m.add_node("Mul", {"x", "low"}, {"t"}).add_node("Exp", {"t"}, {"exp"}).add_node("Softmax", {"t"}, {"softmax"}, {{"axis", 0}});
  HostTensor x({DType::kFloat32, {64, 256}});
  for (std::size_t i = 0; i < x.as<float>().size(); ++i)
    x.as<float>()[i] = i < 256 ? 0.0f : 1.0f;  // the first row is the largest of each column's e^x
  const auto square = static_cast<double>(1e-30f) * 1e-30f * 1e22;
  HostTensor larger = x;
  for (float& v : larger.as<float>()) v *= 1e11f;
  TestSession strict(load(make_runtime({}, 0, 3), m), asks(Numerics::kStrict)),
      fast(load(make_runtime({}, 0, 3), m), asks(Numerics::kFast));
  const std::vector<HostTensor> got = run(strict, {larger});
  EXPECT_NEAR(got[0].as<float>()[300], square, bound(3, square));
  EXPECT_NEAR(got[1].as<float>()[3], 256 * square, bound(258, 256 * square));
  const std::vector<HostTensor> small = run(strict, {x});
  const double e = std::exp(-95.0);  // 5.5e-42, within the 2 units of the smallest number that e^x may be off
  EXPECT_NEAR(small[2].as<float>()[300], e, 0x1p-148);
  EXPECT_NEAR(small[3].as<float>()[300], e, 0x1p-148);
  if (kFastFlushes) {
    EXPECT_EQ(run(fast, {larger})[0].as<float>()[300], 0);
    EXPECT_EQ(run(fast, {x})[2].as<float>()[300], 0);
  }
}

// An Add that is computed with the fast node before it would flush.
TEST_F(NumericsTest, AStrictSumIsNotComputedWithAFastProduct) {
  OnnxWriter m(14);
  m.add_input("x", kF32, {kRows, kInner}).add_input("r", kF32, {kRows, kColumns}).add_output("y");
  m.add_initializer("w", {kInner, kColumns}, scaled_weight(1)).add_node("MatMul", {"x", "w"}, {"p"}, {}, "product");
  m.add_node("Add", {"p", "r"}, {"y"}, {}, "sum");
  HostTensor r({DType::kFloat32, {kRows, kColumns}});
  for (float& v : r.as<float>()) v = 1e-40f;
  for (const char* strict : {"sum", "product", "*"}) {
    Config config;
    config.rules = {rule({}, {strict}, "", Policy::kRequire, 3)};
    config.rules[0].numerics = Numerics::kStrict;
    TestSession session(load(make_runtime(config), m), "");
    const HostTensor y = run(session, {scaled_rows(0), r})[0];
    const bool with_the_product = session.compiled().nodes[0].fused_as(FusedOperand::Role::kResidual) != nullptr;
    EXPECT_EQ(with_the_product, std::string(strict) != "sum") << strict;
    EXPECT_EQ(y.as<float>()[7], 1e-40f) << strict;
  }
}

// --------------------------------------------------------------------------------------------------- who says it --

TEST_F(NumericsTest, RulesComeBeforeOptionsAndTheseBeforeTheSession) {
  const auto found = [](const Config& config, Numerics asked) {
    const TestSession session(load(make_runtime(config), small_network()), asks(asked));
    const NodePlacement& p = placed(session, "conv");
    return std::string(numerics_name(p.numerics)) + ": " + p.numerics_reason;
  };
  Config c;
  EXPECT_EQ(found(c, Numerics::kDefault), "fast: the default");
  c.session.numerics = Numerics::kStrict;
  EXPECT_EQ(found(c, Numerics::kDefault), "strict: the configuration's session");
  EXPECT_EQ(found(c, Numerics::kFast), "fast: the session's options");
  c.rules = {rule({"Conv"}, {}, "", Policy::kRequire, 9)};
  c.rules[0].numerics = Numerics::kStrict;
  EXPECT_EQ(found(c, Numerics::kFast), "strict: rule at line 9");
  c.rules[0].names = {"gemm"};
  EXPECT_EQ(found(c, Numerics::kFast), "fast: the session's options");
}

// What is left of a node that was fused into another is its name.
TEST_F(NumericsTest, ARuleForAFusedNodeMakesTheWholeStrict) {
  OnnxWriter w(14);
  w.add_input("x", kF32, {1, kChannels, kSide, kSide}).add_output("y");
  w.add_initializer("w", {kChannels, kChannels, 3, 3}, noise(kChannels * kChannels * 9, 5));
  w.add_node("Conv", {"x", "w"}, {"c"}, {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}}, "conv")
      .add_node("Relu", {"c"}, {"y"}, {}, "relu");
  Config c;
  c.rules = {rule({}, {"relu"}, "", Policy::kRequire, 9)};
  c.rules[0].numerics = Numerics::kStrict;
  const TestSession session(load(make_runtime(c), w), "");
  ASSERT_EQ(session.graph().nodes.size(), 1u);
  EXPECT_EQ(session.compiled().placement.nodes[0].numerics, Numerics::kStrict);
}

TEST_F(NumericsTest, StrictProductsAreFloat32WhateverThePrecisionIs) {
  const TestSession session(load(make_runtime({}), small_network()), asks(Numerics::kStrict, Precision::kBfloat16));
  const NodePlacement& p = placed(session, "conv");
  EXPECT_EQ(p.precision, Precision::kFloat32);
  EXPECT_EQ(p.precision_reason, "the session's options; bf16: the node's numerics are strict");
}

TEST_F(NumericsTest, ExplainSaysItOfEachNode) {
  TestSession session(load(make_runtime(), small_network()), asks(Numerics::kStrict));
  const std::string json = session.explain(EVN_FORMAT_JSON);
  EXPECT_NE(json.find(R"("numerics":"strict","numerics_reason":"the session's options")"), std::string::npos) << json;
  EXPECT_NE(session.explain(EVN_FORMAT_TEXT).find("      strict: the session's options\n"), std::string::npos);
  TestSession plain(session.compiled().model, "");
  EXPECT_NE(plain.explain(EVN_FORMAT_JSON).find(R"("numerics":"fast","numerics_reason":"the default")"), std::string::npos);
  EXPECT_EQ(plain.explain(EVN_FORMAT_TEXT).find("fast"), std::string::npos);
}

// Fast and strict sessions of one model share a file of packed weights, where a copy is named by its kernel.
TEST_F(NumericsTest, FastAndStrictSessionsShareACacheFile) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("evener_numerics_" + std::to_string(getpid()) + ".evc")).string();
  const OnnxWriter m = convolution(noise(kChannels * kChannels * 9, 5));
  const HostTensor x = uneven_image();
  std::vector<HostTensor> without;
  for (const Numerics numerics : kBoth) {
    TestSession session(load(make_runtime(), m), asks(numerics));
    without.push_back(run(session, {x})[0]);
  }
  expect_close({without[0]}, {without[1]}, 1, 1);
  EXPECT_NE(std::memcmp(without[0].bytes.data(), without[1].bytes.data(), without[0].desc.size_bytes()), 0);
  for (int round = 0; round < 2; ++round) {
    for (const std::size_t k : {0u, 1u}) {
      TestSession session(load(make_runtime(), m), asks(kBoth[k]), {path, true, false});
      expect_close(run(session, {x}), {without[k]}, 0, 0);
    }
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace evn::test::numerics_test
