// Matrices in blocks of 8 and 4 bits.
#include "quant/block_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"

namespace evn {
namespace {

std::shared_ptr<Weight> matrix(std::int64_t rows, std::int64_t columns, float shift = 0) {
  void* bytes = nullptr;
  std::shared_ptr<Weight> w = make_weight({DType::kFloat32, {rows, columns}}, nullptr, &bytes);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < rows * columns; ++i) static_cast<float*>(bytes)[i] = normal(random) + shift;
  return w;
}

// Root of the mean square error over that of the elements.
double error_of(const Weight& weight, const BlockWeight& q, int axis) {
  double error = 0, all = 0;
  for (std::int64_t j = 0; j < q.n; ++j) {
    for (std::int64_t k = 0; k < q.k; ++k) {
      const float x = weight.as<float>()[axis == 0 ? k * q.n + j : j * q.k + k];
      const auto b = static_cast<std::size_t>(j * q.blocks() + k / q.block);
      const float y = static_cast<float>(q.numbers[static_cast<std::size_t>(j * q.k + k)] - q.zeros[b]) * q.scales[b];
      error += static_cast<double>((x - y) * (x - y));
      all += static_cast<double>(x * x);
    }
  }
  return std::sqrt(error / all);
}

TEST(BlockWeights, ErrorsAreThoseOfTheBits) {
  for (const int axis : {0, 1}) {
    const auto w = matrix(70, 96);
    EXPECT_LT(error_of(*w, quantize_blocks(*w, "w", axis, 8, 32), axis), 0.007);
    EXPECT_LT(error_of(*w, quantize_blocks(*w, "w", axis, 4, 32), axis), 0.09);
  }
}

TEST(BlockWeights, ZeroPointsFollowARangeOnOneSide) {
  const auto w = matrix(64, 8, 5);
  EXPECT_LT(error_of(*w, quantize_blocks(*w, "w", 0, 4, 32), 0), 0.04);
}

TEST(BlockWeights, ANarrowerRangeIsBetterThanAllOfIt) {
  const auto w = matrix(4096, 4);
  const BlockWeight q = quantize_blocks(*w, "w", 0, 4, 1024);
  const std::span<const float> all(w->as<float>(), 4096 * 4);
  const auto [low, high] = std::minmax_element(all.begin(), all.end());
  for (const float scale : q.scales) EXPECT_LT(scale, 0.95f * (*high - *low) / 15);
}

TEST(BlockWeights, ZeroIsExact) {
  void* bytes = nullptr;
  const std::shared_ptr<Weight> w = make_weight({DType::kFloat32, {32, 2}}, nullptr, &bytes);
  for (std::int64_t k = 0; k < 32; ++k) static_cast<float*>(bytes)[2 * k] = k % 3 == 0 ? 0.0f : 0.1f * static_cast<float>(k);
  for (const int bits : {4, 8}) {
    const BlockWeight q = quantize_blocks(*w, "w", 0, bits, 16);
    for (std::size_t k = 0; k < 32; ++k) {
      if (k % 3 == 0) {
        EXPECT_EQ(q.numbers[k], q.zeros[k / 16]);
      }
      EXPECT_EQ(q.numbers[32 + k], q.zeros[2 + k / 16]);  // a column of nothing else
    }
  }
}

TEST(BlockWeights, NanAndInfinityAreRefused) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const auto w = matrix(32, 2);
    const_cast<float*>(w->as<float>())[17] = bad;
    try {
      quantize_blocks(*w, "w", 0, 4, 16);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_STREQ(e.message, "weight \"w\" has elements that are NaN or infinite");
    }
  }
}

}  // namespace
}  // namespace evn
