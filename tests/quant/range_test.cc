// Observers, ranges, scales and weights.
#include "quant/range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"
#include "quant/weights.h"

namespace evn {
namespace {

std::vector<float> normal(std::size_t n, float spread, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> of(0, spread);
  std::vector<float> x(n);
  for (float& v : x) v = of(random);
  return x;
}

TEST(Observer, KeepsBoundsAndCountsEveryElement) {
  Observer seen(true);
  for (const float spread : {1.0f, 10.0f, 0.1f, 300.0f}) {  // bins have to grow
    const std::vector<float> x = normal(10'007, spread, 1);
    ASSERT_TRUE(seen.add(x));
  }
  EXPECT_EQ(seen.count(), 4u * 10'007u);
  EXPECT_EQ(std::accumulate(seen.bins().begin(), seen.bins().end(), std::uint64_t{0}), seen.count());
  EXPECT_LT(seen.low(), -300);
  EXPECT_GT(seen.high(), 300);
}

TEST(Observer, GrownBinsAreThoseOfOneLook) {
  std::vector<float> small = normal(5000, 1, 2), all = small;
  Observer grown(true), once(true);
  ASSERT_TRUE(grown.add(small));
  const double reach = grown.width() * Observer::kHalf;
  const std::vector<float> large{static_cast<float>(7.5 * reach)};
  ASSERT_TRUE(grown.add(large));  // eight times as wide now
  for (int i = 0; i < 2 * Observer::kHalf; ++i) {
    const double low = (i - Observer::kHalf) * grown.width(), high = low + grown.width();
    const auto inside = std::count_if(all.begin(), all.end(),
                                      [&](float x) { return static_cast<double>(x) >= low && static_cast<double>(x) < high; });
    const std::uint64_t extra = static_cast<double>(large[0]) >= low && static_cast<double>(large[0]) < high ? 1 : 0;
    EXPECT_NEAR(static_cast<double>(grown.bins()[static_cast<std::size_t>(i)]),
                static_cast<double>(inside) + static_cast<double>(extra), 2)
        << i;
  }
}

TEST(Observer, RefusesWhatIsNotFiniteAndAddsNothingOfIt) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t place : {0u, 7u, 40u}) {
      std::vector<float> x(41, 1.0f);
      x[place] = bad;
      Observer seen(true);
      EXPECT_FALSE(seen.add(x));
      EXPECT_TRUE(seen.empty());
    }
  }
}

TEST(Range, MinMaxTakesAllAndAlwaysZero) {
  Observer seen(false);
  ASSERT_TRUE(seen.add(std::vector<float>{2, 3, 7}));
  const Range r = choose_range(seen, Calibration::kMinMax, 0);
  EXPECT_EQ(r.low, 0);
  EXPECT_EQ(r.high, 7);
}

TEST(Range, ThePercentileLeavesOutliersOut) {
  std::vector<float> x = normal(100'000, 1, 3);
  x.push_back(1000);
  Observer seen(true);
  ASSERT_TRUE(seen.add(x));
  EXPECT_EQ(choose_range(seen, Calibration::kMinMax, 0).high, 1000);
  EXPECT_LT(choose_range(seen, Calibration::kPercentile, 99.9).high, 10);
  EXPECT_EQ(choose_range(seen, Calibration::kPercentile, 100).high, 1000);
}

double square_error(const std::vector<float>& x, const QuantParams& p) {
  double error = 0;
  for (const float v : x) {
    const double q = std::clamp(std::nearbyint(static_cast<double>(v) / static_cast<double>(p.scale)) + p.zero, 0.0, 255.0);
    const double d = (q - p.zero) * static_cast<double>(p.scale) - static_cast<double>(v);
    error += d * d;
  }
  return error;
}

TEST(Range, MseAndEntropyCutLongTails) {
  std::vector<float> x = normal(50'000, 1, 4);
  for (int i = 0; i < 5; ++i) x.push_back(12.0f + static_cast<float>(i));
  Observer seen(true);
  ASSERT_TRUE(seen.add(x));
  const double all = square_error(x, params_of(choose_range(seen, Calibration::kMinMax, 0), DType::kUint8));
  EXPECT_LT(square_error(x, params_of(choose_range(seen, Calibration::kMse, 0), DType::kUint8)), 1.001 * all);
  EXPECT_LT(choose_range(seen, Calibration::kEntropy, 0).high, 16);
}

// What a Relu leaves: most elements are zero, the others lie evenly up to 6.
TEST(Range, EntropyDoesNotCutForTheZerosOfARelu) {
  Observer seen(true);
  std::vector<float> x(20000, 0.0f);
  for (std::size_t i = 0; i < x.size(); i += 5) x[i] = 6.0f * static_cast<float>(i) / static_cast<float>(x.size());
  ASSERT_TRUE(seen.add(x));
  EXPECT_GT(choose_range(seen, Calibration::kEntropy, 0).high, 5.0f);
}

TEST(Params, ZeroIsExactAndTheEndsAreReached) {
  const QuantParams p = params_of({-1, 3}, DType::kUint8);
  EXPECT_FLOAT_EQ(p.scale, 4.0f / 255);
  EXPECT_EQ(p.zero, 64);
  const QuantParams s = params_of({-1, 3}, DType::kInt8);
  EXPECT_FLOAT_EQ(s.scale, 3.0f / 127);
  EXPECT_EQ(s.zero, 0);
}

TEST(Params, OfNothingButZeroAreOneAndZero) {
  for (const DType dtype : {DType::kUint8, DType::kInt8}) {
    EXPECT_EQ(params_of({0, 0}, dtype).scale, 1);
    EXPECT_EQ(params_of({0, 0}, dtype).zero, 0);
    EXPECT_GT(params_of({0, 1e-44f}, dtype).scale, 0);
  }
}

WeightPtr weight_of(const Shape& shape, const std::vector<float>& values) {
  void* to = nullptr;
  std::shared_ptr<Weight> w = make_weight({DType::kFloat32, shape}, nullptr, &to);
  std::memcpy(to, values.data(), values.size() * sizeof(float));
  return w;
}

TEST(Weights, HaveAScaleForEachIndexOfTheAxis) {
  const WeightPtr w = weight_of({2, 3}, {1, -2, 0.5f, 0, 0, 0});
  const QuantizedWeight rows = quantize_weight(*w, "w", 0, nullptr), columns = quantize_weight(*w, "w", 1, nullptr),
                        one = quantize_weight(*w, "w", -1, nullptr);
  EXPECT_EQ(rows.scales, (std::vector<float>{2.0f / 127, 1}));
  EXPECT_EQ(columns.scales, (std::vector<float>{1.0f / 127, 2.0f / 127, 0.5f / 127}));
  EXPECT_EQ(one.scales, (std::vector<float>{2.0f / 127}));
  const auto* q = rows.values->as<std::int8_t>();
  EXPECT_EQ((std::vector<int>{q[0], q[1], q[2], q[3]}), (std::vector<int>{64, -127, 32, 0}));
  EXPECT_EQ(columns.values->as<std::int8_t>()[2], 127);
}

TEST(Weights, ThatAreNotFiniteAreRefused) {
  const WeightPtr w = weight_of({2}, {1, std::numeric_limits<float>::infinity()});
  try {
    quantize_weight(*w, "w", 0, nullptr);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_STREQ(e.message, "weight \"w\" has elements that are NaN or infinite");
  }
}

// A channel that is all but dead, whose bias is all that it makes.
TEST(Weights, AreCoarseEnoughForTheirBias) {
  const WeightPtr w = weight_of({2, 2}, {1e-12f, -1e-12f, 1, 0.5f}), bias = weight_of({2}, {3, 3});
  const std::vector<float> least = scales_for_bias(*bias, 0.5f, 0);
  const QuantizedWeight q = quantize_weight(*w, "w", 0, nullptr, least);
  EXPECT_FLOAT_EQ(q.scales[0], 3 / (0.5f * (1 << 29)));
  EXPECT_FLOAT_EQ(q.scales[1], 1.0f / 127);
  const WeightPtr steps = quantize_bias(*bias, 0.5f, q.scales, nullptr);
  ASSERT_NE(steps, nullptr);
  EXPECT_NEAR(static_cast<double>(steps->as<std::int32_t>()[0]) * 0.5 * static_cast<double>(q.scales[0]), 3, 1e-6);
  EXPECT_EQ(quantize_bias(*bias, 0.5f, quantize_weight(*w, "w", 0, nullptr).scales, nullptr), nullptr);
}

TEST(Weights, ABiasIsCountedInSteps) {
  const std::vector<float> scales{0.5f, 0.25f};
  const WeightPtr b = quantize_bias(*weight_of({2}, {3, -1}), 0.5f, scales, nullptr);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->as<std::int32_t>()[0], 12);
  EXPECT_EQ(b->as<std::int32_t>()[1], -8);
  EXPECT_EQ(quantize_bias(*weight_of({2}, {3e9f, -1}), 0.5f, scales, nullptr), nullptr);
}

}  // namespace
}  // namespace evn
