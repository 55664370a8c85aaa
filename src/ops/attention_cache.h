// The cache of keys or values of GroupQueryAttention: rows of float32, or of whole numbers of 8 or 4 bits with scales; and which
// positions stay in a cache that is shorter than the sequence.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/infra/numeric.h"
#include "ops/infra/round.h"

namespace evn {

// One of the two caches, past or present: [batch, heads, capacity, depth]; with 4 bits two numbers lie in a byte, the first in the
// lower half, 8 more than they are.
struct CacheFormat {
  int bits = 0;                   // 0: float32
  std::int64_t depth = 0;         // numbers in a row
  const float* scales = nullptr;  // one, or with `per_channel` [heads, depth]
  bool per_channel = false;

  std::int64_t row_width() const { return bits == 4 ? (depth + 1) / 2 : depth; }
  double scale(std::int64_t head, std::int64_t d) const {
    return bits == 0 ? 1 : static_cast<double>(scales[per_channel ? head * depth + d : 0]);
  }

  // Row number `row` of all, which belongs to `head`.
  void read(const void* cache, std::int64_t row, std::int64_t head, double* to) const {
    const std::int64_t begin = row * row_width();
    for (std::int64_t d = 0; d < depth; ++d) {
      cancellation_point();
      if (bits == 0) to[d] = static_cast<double>(static_cast<const float*>(cache)[begin + d]);
      if (bits == 8) to[d] = static_cast<const std::int8_t*>(cache)[begin + d] * scale(head, d);
      if (bits == 4) to[d] = ((static_cast<const std::uint8_t*>(cache)[begin + d / 2] >> d % 2 * 4 & 15) - 8) * scale(head, d);
    }
  }

  // x is a multiple of the scale, or is rounded to one.
  void write(const double* x, std::int64_t head, void* cache, std::int64_t row) const {
    const std::int64_t begin = row * row_width();
    for (std::int64_t d = 0; d < depth; ++d) {
      cancellation_point();
      if (bits == 0) static_cast<float*>(cache)[begin + d] = static_cast<float>(x[d]);
      if (bits == 8) static_cast<std::int8_t*>(cache)[begin + d] = number(x[d], head, d);
      if (bits != 4) continue;
      auto& byte = static_cast<std::uint8_t*>(cache)[begin + d / 2];
      const int half = number(x[d], head, d) + 8;
      byte = static_cast<std::uint8_t>(d % 2 == 0 ? half : byte | half << 4);
    }
  }

  // What a row is once it has been in the cache.
  void round(double* x, std::int64_t head) const {
    for (std::int64_t d = 0; d < depth && bits != 0; ++d) {
      cancellation_point();
      x[d] = number(x[d], head, d) * scale(head, d);
    }
  }

 private:
  std::int8_t number(double x, std::int64_t head, std::int64_t d) const {
    const auto whole = saturate_to<std::int8_t>(round_even(x / scale(head, d)));
    return bits == 8 ? whole : std::clamp<std::int8_t>(whole, -8, 7);
  }
};

// How many of the newest of `length` positions a cache of `capacity` rows has with a window of `window`: all that fit; else
// capacity - window + 1 leave at once whenever it is full, so that the window always stays. It depends on `length` alone.
inline std::int64_t resident_rows(std::int64_t length, std::int64_t capacity, std::int64_t window) {
  if (length <= capacity) return length;
  const std::int64_t leaving = capacity - window + 1;
  return length - leaving * ((length - capacity + leaving - 1) / leaving);
}

}  // namespace evn
