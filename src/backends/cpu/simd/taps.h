// Which taps of a sliding window lie where, along one axis. Included by simd/*.cc only.
#pragma once

#include <cstdint>

namespace evn::EVN_ISA {

struct Range {
  std::int64_t begin, end;
};

// Which of the positions first, first + step, ... (count of them) lie inside [0, size).
static inline Range inside(std::int64_t first, std::int64_t step, std::int64_t count, std::int64_t size) {
  if (first >= 0 && first + (count - 1) * step < size) return {0, count};  // without divisions
  std::int64_t begin = first >= 0 ? 0 : (-first + step - 1) / step;
  std::int64_t end = first >= size ? 0 : (size - 1 - first) / step + 1;
  if (begin > count) begin = count;
  if (end > count) end = count;
  return {begin, end < begin ? begin : end};
}

// How many taps of output position o lie inside the input; with padding, inside the input and its padding.
static inline std::int64_t count_taps(std::int64_t o, std::int64_t stride, std::int64_t pad, std::int64_t dilation,
                                      std::int64_t kernel, std::int64_t input, std::int64_t pad_end, bool include_pad) {
  const std::int64_t start = o * stride - pad;
  const std::int64_t limit = include_pad ? input + pad_end : input;
  std::int64_t n = 0;
  for (std::int64_t k = 0; k < kernel; ++k) {
    const std::int64_t at = start + k * dilation;
    if (at < limit && (include_pad || at >= 0)) ++n;
  }
  return n;
}

}  // namespace evn::EVN_ISA
