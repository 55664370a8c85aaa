#include "quant/block_weights.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <span>

#include "base/error.h"

namespace evn {
namespace {

struct Numbers {
  float scale = 1;
  int zero = 0;
};

// Ranges of 4 bits that are tried: from all of the block down by these steps.
constexpr int kTries = 10;
constexpr float kTryStep = 0.04f;

std::uint8_t number_of(float x, float inverse, int zero, int least, int most) {
  const int q = static_cast<int>(std::nearbyint(std::clamp(x * inverse, -256.0f, 256.0f))) + zero;
  return static_cast<std::uint8_t>(std::clamp(q, least, most));
}

double error_of(std::span<const float> block, const Numbers& n) {
  double error = 0;
  const float inverse = 1 / n.scale;
  for (const float x : block) {
    const float d = static_cast<float>(number_of(x, inverse, n.zero, 0, 15) - n.zero) * n.scale - x;
    error += static_cast<double>(d) * static_cast<double>(d);
  }
  return error;
}

Numbers choose_nibbles(std::span<const float> block) {
  float low = 0, high = 0;
  for (const float x : block) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
  Numbers best;
  best.zero = 8;
  if (low == high) return best;
  double least = -1;
  for (int i = 0; i < kTries && least != 0; ++i) {
    const float share = 1 - static_cast<float>(i) * kTryStep;
    Numbers n;
    n.scale = std::max((high - low) / 15 * share, FLT_MIN);
    n.zero = std::clamp(static_cast<int>(std::nearbyint(-low * share / n.scale)), 0, 15);
    const double error = error_of(block, n);
    if (least >= 0 && error >= least) continue;
    least = error;
    best = n;
  }
  return best;
}

Numbers choose_bytes(std::span<const float> block) {
  float largest = 0;
  for (const float x : block) largest = std::max(largest, std::fabs(x));
  return {largest == 0 ? 1.0f : std::max(largest / 127, FLT_MIN), 128};
}

}  // namespace

BlockWeight quantize_blocks(const Weight& weight, int axis, int bits, std::int64_t block) {
  const Shape& shape = weight.desc.shape;
  BlockWeight w;
  w.bits = bits;
  w.k = shape[axis];
  w.n = shape[1 - axis];
  w.block = block;
  w.numbers.resize(static_cast<std::size_t>(shape.elements()));
  w.scales.resize(static_cast<std::size_t>(w.n * w.blocks()));
  w.zeros.resize(w.scales.size());
  const char* const from = static_cast<const char*>(weight.bytes());
  const std::int64_t k_step = axis == 0 ? w.n : 1, n_step = axis == 0 ? 1 : w.k;
  std::vector<float> row(static_cast<std::size_t>(w.k));
  for (std::int64_t j = 0; j < w.n; ++j) {
    for (std::int64_t k = 0; k < w.k; ++k) {
      std::memcpy(&row[static_cast<std::size_t>(k)], from + (k * k_step + j * n_step) * static_cast<std::int64_t>(sizeof(float)),
                  sizeof(float));
    }
    if (!std::all_of(row.begin(), row.end(), [](float x) { return std::fabs(x) <= FLT_MAX; })) {
      fail(EVN_ERROR_INVALID_MODEL, "a weight has elements that are NaN or infinite");
    }
    for (std::int64_t b = 0; b < w.blocks(); ++b) {
      const std::int64_t begin = b * block, end = std::min(w.k, begin + block);
      const std::span<const float> part(row.data() + begin, static_cast<std::size_t>(end - begin));
      const Numbers n = bits == 8 ? choose_bytes(part) : choose_nibbles(part);
      const auto index = static_cast<std::size_t>(j * w.blocks() + b);
      w.scales[index] = n.scale;
      w.zeros[index] = static_cast<std::uint8_t>(n.zero);
      const float inverse = 1 / n.scale;
      std::uint8_t* const to = w.numbers.data() + j * w.k + begin;
      for (std::size_t i = 0; i < part.size(); ++i) {
        to[i] = number_of(part[i], inverse, n.zero, bits == 8 ? 1 : 0, bits == 8 ? 255 : 15);
      }
    }
  }
  return w;
}

}  // namespace evn
