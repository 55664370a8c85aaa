// One step of an optimizer over a run of elements, in one pass over memory, and sums of squares.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"

namespace evn::simd_optimizer {

inline constexpr int kMostKept = 3;

enum class Update : std::int32_t {
  kPlain,
  kFirstMomentum,
  kMomentum,
  kAdam,
  kAdagrad,
  kRmsprop,
  kRmspropMomentum,
  kRmspropCentered,
  kRmspropBoth
};

// The numbers of ops/training/optimizer_step.h, as the loops want them.
struct Step {
  float scale, clip;  // of gradients; the clip is infinity where there is none
  float weight_decay, decay, rate, second, epsilon;
  float old_average, new_average;  // what the average or the momentum counts, and what the gradient counts in it
  float old_square, new_square;    // the same of the average of squares
  float of_gradient, of_momentum;  // what the update is made of (kMomentum)
};

// A contiguous range of a parameter, its gradient and the optimizer's state; to_... may be what is read.
struct Run {
  const float *x, *gradient, *kept[kMostKept];
  float *to_x, *to_kept[kMostKept];
};

struct Loops {
  void (*step)(Update update, const Step& step, const Run& run, std::int64_t n);
  double (*sum_squares)(const float* x, std::int64_t n);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_optimizer
