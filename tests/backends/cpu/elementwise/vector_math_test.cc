// The functions of simd/vec.h against the C library's in double precision, on every cluster: the largest error in units in the last
// place of the result, over floats of both signs a fixed distance apart. EVN_TEST_FULL=1 takes all of them (half an hour) but with
// the sanitizers.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/isa.h"
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

using simd_elementwise::Unary;

struct Function {
  const char* name;
  Unary function;
  double (*exact)(double);
  double ulps;   // bound as vec.h states it
  bool flushes;  // what is below the smallest normal number may be 0
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double gelu(double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }
double gelu_tanh(double x) { return x * sigmoid(std::sqrt(8 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)); }
double swish(double x) { return x * sigmoid(x); }

const Function kGates[] = {
    {"gelu", Unary::kGelu, gelu, 0, true},
    {"gelu_tanh", Unary::kGeluTanh, gelu_tanh, 0, true},
    {"swish", Unary::kSwish, swish, 0, true},
};

const Function kFunctions[] = {
    {"exp", Unary::kExp, std::exp, 2, false},       {"sigmoid", Unary::kSigmoid, sigmoid, 4, true},
    {"tanh", Unary::kTanh, std::tanh, 6, false},    {"erf", Unary::kErf, std::erf, 4, false},
    {"log", Unary::kLog, std::log, 2, false},       {"sin", Unary::kSin, std::sin, 2, false},
    {"cos", Unary::kCos, std::cos, 2, false},       {"tan", Unary::kTan, std::tan, 5, false},
    {"asin", Unary::kAsin, std::asin, 4, false},    {"acos", Unary::kAcos, std::acos, 4, false},
    {"atan", Unary::kAtan, std::atan, 3, false},    {"sinh", Unary::kSinh, std::sinh, 6, false},
    {"cosh", Unary::kCosh, std::cosh, 6, false},    {"asinh", Unary::kAsinh, std::asinh, 5, false},
    {"acosh", Unary::kAcosh, std::acosh, 5, false}, {"atanh", Unary::kAtanh, std::atanh, 5, false},
};

// From one float to the next. With the sanitizers never all: they look at memory, which is the same for each.
std::uint32_t stride() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (const char* all = std::getenv("EVN_TEST_FULL"); all != nullptr && all[0] == '1') return 1;
#endif
  return 8191;
}

double ulp_of(double exact) {
  const auto f = static_cast<float>(std::abs(exact));
  return static_cast<double>(std::nextafter(f, INFINITY)) - static_cast<double>(f);
}

struct Worst {
  double ulps = 0;
  float at = 0;
};

// Where the exact result is no float, so must be the computed one.
Worst worst_error(const Function& f, Isa isa) {
  constexpr std::size_t kBlock = 1 << 14;
  std::vector<float> x, y(kBlock);
  Worst worst;
  const auto flush = [&] {
    simd_elementwise::loops(isa).unary(f.function, 0, 0, x.data(), y.data(), static_cast<std::int64_t>(x.size()), false, nullptr);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = f.exact(static_cast<double>(x[i]));
      const auto rounded = static_cast<float>(exact);
      if (std::isnan(exact) || std::isinf(rounded)) {
        EXPECT_TRUE(std::isnan(exact) ? std::isnan(y[i]) : y[i] == rounded) << f.name << " of " << x[i] << " is " << y[i];
        continue;
      }
      if (f.flushes && y[i] == 0 && std::abs(exact) < static_cast<double>(std::numeric_limits<float>::min())) continue;
      const double ulps = std::abs(static_cast<double>(y[i]) - exact) / ulp_of(exact);
      if (!(ulps <= worst.ulps)) worst = {ulps, x[i]};
    }
    x.clear();
  };
  for (std::uint64_t bits = 0; bits <= UINT32_MAX; bits += stride()) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    if (x.size() == kBlock) flush();
  }
  flush();
  return worst;
}

class VectorMath : public testing::TestWithParam<Isa> {};

TEST_P(VectorMath, ErrorsStayWithinTheirBounds) {
  for (const Function& f : kFunctions) {
    const Worst w = worst_error(f, GetParam());
    EXPECT_LE(w.ulps, f.ulps) << f.name << " of " << w.at;
    RecordProperty(f.name, std::to_string(w.ulps));
  }
}

std::vector<float> values_of(Unary f, const std::vector<float>& x, Isa isa) {
  std::vector<float> y(x.size());
  simd_elementwise::loops(isa).unary(f, 1, 0, x.data(), y.data(), static_cast<std::int64_t>(x.size()), false, nullptr);
  return y;
}

// An error of Gelu is one of erf, which counts as a part of x; of the others one of the sigmoid.
TEST_P(VectorMath, GatesAreWithinAPartOfX) {
  std::vector<float> x;
  for (float v = -12; v < 12; v += 1.0f / 1024) x.push_back(v);
  for (const Function& f : kGates) {
    const std::vector<float> y = values_of(f.function, x, GetParam());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = static_cast<double>(x[i]);
      EXPECT_NEAR(y[i], f.exact(at), 3e-7 * std::abs(at) + 1e-12) << f.name << " of " << at;
    }
  }
}

TEST_P(VectorMath, EndsAndNaN) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 3e38f, -3e38f, 1e15f, -1e15f, 200, -200, 0};
  for (const Function& f : kFunctions) {
    const bool has_ends =
        f.function != Unary::kLog && f.function != Unary::kSin && f.function != Unary::kCos && f.function != Unary::kTan;
    if (!has_ends) continue;
    const std::vector<float> y = values_of(f.function, x, GetParam());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto exact = static_cast<float>(f.exact(static_cast<double>(x[i])));
      EXPECT_TRUE(std::isnan(exact) ? std::isnan(y[i]) : y[i] == exact) << f.name << " of " << x[i] << " is " << y[i];
    }
  }
  for (const Function& f : kGates) {
    const std::vector<float> y = values_of(f.function, x, GetParam());
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] == -kInf) continue;
      const bool right = std::isnan(x[i]) ? std::isnan(y[i]) : y[i] == (x[i] > 0 ? x[i] : 0);
      EXPECT_TRUE(right) << f.name << " of " << x[i] << " is " << y[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, VectorMath, testing::ValuesIn(available_isas()), [](const auto& of) { return isa_name(of.param); });

}  // namespace
}  // namespace evn::test
