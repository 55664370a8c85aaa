// Derivatives of activations: dx = slope(v) * dy, where v is the result of the activation or its input.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"

namespace evn::simd_activation {

enum class Slope : std::int32_t { kRelu, kSigmoid, kTanh, kHardSwish, kErf, kGelu, kGeluTanh };

struct Loops {
  // dx may be v or dy.
  void (*gradient)(Slope slope, const float* v, const float* dy, float* dx, std::int64_t n);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_activation
