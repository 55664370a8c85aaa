#include "quant/block_weights.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <span>

#include "base/cancel.h"
#include "quant/weights.h"

namespace evn {
namespace {

struct Numbers {
  float scale = 1;
  int zero = 0;
};

// Ranges of 4 bits that are tried: from all of the block down by these steps.
constexpr int kTries = 10;
constexpr float kTryStep = 0.04f;

// Calls body(element) for all elements, with cancellation points.
template <typename F>
void for_each_element(std::span<const float> block, F&& body) {
  in_pieces(std::ssize(block), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(block[static_cast<std::size_t>(i)]);
  });
}

std::uint8_t number_of(float x, float inverse, int zero, int least, int most) {
  const int q = static_cast<int>(std::nearbyint(std::clamp(x * inverse, -256.0f, 256.0f))) + zero;
  return static_cast<std::uint8_t>(std::clamp(q, least, most));
}

double error_of(std::span<const float> block, const Numbers& n) {
  double error = 0;
  const float inverse = 1 / n.scale;
  for_each_element(block, [&](float x) {
    const float d = static_cast<float>(number_of(x, inverse, n.zero, 0, 15) - n.zero) * n.scale - x;
    error += static_cast<double>(d) * static_cast<double>(d);
  });
  return error;
}

Numbers choose_nibbles(std::span<const float> block) {
  float low = 0, high = 0;
  for_each_element(block, [&](float x) {
    low = std::min(low, x);
    high = std::max(high, x);
  });
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
  for_each_element(block, [&](float x) { largest = std::max(largest, std::fabs(x)); });
  return {largest == 0 ? 1.0f : std::max(largest / 127, FLT_MIN), 128};
}

}  // namespace

BlockWeight quantize_blocks(const Weight& weight, const std::string& name, int axis, int bits, std::int64_t block) {
  const Shape& shape = weight.desc.shape;
  BlockWeight w;
  w.bits = bits;
  w.k = shape[axis];
  w.n = shape[1 - axis];
  w.block = block;
  w.numbers.reserve(static_cast<std::size_t>(shape.elements()));
  w.scales.reserve(static_cast<std::size_t>(w.n * w.blocks()));
  w.zeros.reserve(static_cast<std::size_t>(w.n * w.blocks()));
  const char* const from = static_cast<const char*>(weight.bytes());
  const std::int64_t k_step = axis == 0 ? w.n : 1, n_step = axis == 0 ? 1 : w.k;
  std::vector<float> row(static_cast<std::size_t>(w.k));
  for (std::int64_t j = 0; j < w.n; ++j) {
    bool finite = true;
    in_pieces(w.k, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k) {
        float& x = row[static_cast<std::size_t>(k)];
        std::memcpy(&x, from + (k * k_step + j * n_step) * static_cast<std::int64_t>(sizeof(float)), sizeof(float));
        finite &= std::fabs(x) <= FLT_MAX;
      }
    });
    if (!finite) fail_not_finite(name);
    for (std::int64_t b = 0; b < w.blocks(); ++b) {
      const std::int64_t begin = b * block, end = std::min(w.k, begin + block);
      const std::span<const float> part(row.data() + begin, static_cast<std::size_t>(end - begin));
      const Numbers n = bits == 8 ? choose_bytes(part) : choose_nibbles(part);
      w.scales.push_back(n.scale);
      w.zeros.push_back(static_cast<std::uint8_t>(n.zero));
      const float inverse = 1 / n.scale;
      w.numbers.resize(w.numbers.size() + part.size());
      std::uint8_t* to = w.numbers.data() + w.numbers.size() - part.size();
      for_each_element(part, [&](float x) { *to++ = number_of(x, inverse, n.zero, bits == 8 ? 1 : 0, bits == 8 ? 255 : 15); });
    }
  }
  return w;
}

}  // namespace evn
