// Which elements MaxPool takes, and its derivative over windows of 2 x 2 that lie side by side.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"

namespace evn::simd_pool_gradient {

struct Loops {
  // For n windows over two lines of 2 * n elements each: each dy goes to the element that MaxPool takes, the others become 0.
  void (*max_pairs)(const float* above, const float* below, const float* dy, float* to_above, float* to_below, std::int64_t n);
  // For n windows of a line, of which number i reads x[offsets[t] + i * stride] for each tap t: the tap that MaxPool takes. The
  // stride is 1 or 2.
  void (*max_taps)(const float* x, const std::int64_t* offsets, std::int32_t taps, std::int64_t stride, std::int32_t* taken,
                   std::int64_t n);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_pool_gradient
