#include "backends/cpu/training/optimizer_loops.h"

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

using simd_optimizer::kMostKept;
using simd_optimizer::Run;
using simd_optimizer::Step;
using simd_optimizer::Update;

// Vectors of what is the same for all elements.
struct Splats {
  Vec scale, clip, weight_decay, decay, rate, second, epsilon;
  Vec old_average, new_average, old_square, new_square, of_gradient, of_momentum;

  explicit Splats(const Step& s)
      : scale(splat(s.scale)),
        clip(splat(s.clip)),
        weight_decay(splat(s.weight_decay)),
        decay(splat(s.decay)),
        rate(splat(s.rate)),
        second(splat(s.second)),
        epsilon(splat(s.epsilon)),
        old_average(splat(s.old_average)),
        new_average(splat(s.new_average)),
        old_square(splat(s.old_square)),
        new_square(splat(s.new_square)),
        of_gradient(splat(s.of_gradient)),
        of_momentum(splat(s.of_momentum)) {}
};

constexpr int kept_by(Update u) {
  switch (u) {
    case Update::kPlain: return 0;
    case Update::kFirstMomentum:
    case Update::kMomentum:
    case Update::kAdagrad:
    case Update::kRmsprop: return 1;
    case Update::kRmspropBoth: return 3;
    default: return 2;
  }
}

// What the rate multiplies.
template <Update U>
inline Vec descent(const Splats& s, Vec g, Vec* kept) {
  if constexpr (U == Update::kMomentum || U == Update::kFirstMomentum) {
    kept[0] = U == Update::kFirstMomentum ? g : fma(s.old_average, kept[0], s.new_average * g);
    return fma(s.of_momentum, kept[0], s.of_gradient * g);
  } else if constexpr (U == Update::kAdam) {
    kept[0] = fma(s.new_average, g - kept[0], kept[0]);
    kept[1] = fma(s.old_square, kept[1], s.new_square * g * g);
    return kept[0] / fma(sqrt_of(kept[1]), s.second, s.epsilon);
  } else if constexpr (U == Update::kAdagrad) {
    kept[0] = fma(g, g, kept[0]);
    return g / (sqrt_of(kept[0]) + s.epsilon);
  } else if constexpr (U != Update::kPlain) {
    constexpr bool kHasMomentum = U == Update::kRmspropMomentum || U == Update::kRmspropBoth;
    constexpr int kAverage = kHasMomentum ? 2 : 1;
    kept[0] = fma(s.old_square, kept[0], s.new_square * g * g);
    Vec variance = kept[0];
    if constexpr (U == Update::kRmspropCentered || U == Update::kRmspropBoth) {
      kept[kAverage] = fma(s.new_square, g - kept[kAverage], kept[kAverage]);
      variance = max_of(splat(0.0f), variance - kept[kAverage] * kept[kAverage]);
    }
    const Vec update = g / (sqrt_of(variance) + s.epsilon);
    if constexpr (!kHasMomentum) return update;
    return kept[1] = fma(s.old_average, kept[1], update);
  }
  return g;
}

template <Update U>
inline void step_vector(const Splats& s, Vec* x, Vec g, Vec* kept) {
  g = min_of(s.clip, max_of(-s.clip, g * s.scale));
  g = fma(s.weight_decay, *x, g);
  const Vec update = descent<U>(s, g, kept);
  *x = fma(-s.rate, update, *x * s.decay);
}

template <Update U>
void step_run(const Step& step, const Run& run, std::int64_t n) {
  constexpr int kKept = kept_by(U);
  const Splats s(step);
  Vec kept[kMostKept] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Vec x = load(run.x + i);
    for (int k = 0; k < kKept; ++k) kept[k] = load(run.kept[k] + i);
    step_vector<U>(s, &x, load(run.gradient + i), kept);
    store(run.to_x + i, x);
    for (int k = 0; k < kKept; ++k) store(run.to_kept[k] + i, kept[k]);
  }
  const std::int64_t left = n - i;
  if (left == 0) return;
  Vec x = load_n(run.x + i, left);
  for (int k = 0; k < kKept; ++k) kept[k] = load_n(run.kept[k] + i, left);
  step_vector<U>(s, &x, load_n(run.gradient + i, left), kept);
  store_n(run.to_x + i, x, left);
  for (int k = 0; k < kKept; ++k) store_n(run.to_kept[k] + i, kept[k], left);
}

void run_step(Update update, const Step& step, const Run& run, std::int64_t n) {
  switch (update) {
    case Update::kPlain: return step_run<Update::kPlain>(step, run, n);
    case Update::kFirstMomentum: return step_run<Update::kFirstMomentum>(step, run, n);
    case Update::kMomentum: return step_run<Update::kMomentum>(step, run, n);
    case Update::kAdam: return step_run<Update::kAdam>(step, run, n);
    case Update::kAdagrad: return step_run<Update::kAdagrad>(step, run, n);
    case Update::kRmsprop: return step_run<Update::kRmsprop>(step, run, n);
    case Update::kRmspropMomentum: return step_run<Update::kRmspropMomentum>(step, run, n);
    case Update::kRmspropCentered: return step_run<Update::kRmspropCentered>(step, run, n);
    case Update::kRmspropBoth: return step_run<Update::kRmspropBoth>(step, run, n);
  }
}

using Doubles = double __attribute__((vector_size(sizeof(Vec))));
using HalfVec = float __attribute__((vector_size(sizeof(Vec) / 2)));
constexpr int kDoubles = kLanes / 2;

inline Doubles doubles_at(const float* p) {
  HalfVec v;
  __builtin_memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, Doubles);
}

double sum_squares(const float* x, std::int64_t n) {
  Doubles sums[4] = {};
  std::int64_t i = 0;
  for (; i + 4 * kDoubles <= n; i += 4 * kDoubles) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Doubles v = doubles_at(x + i + j * kDoubles);
      sums[j] += v * v;
    }
  }
  const Doubles all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  double sum = 0;
  for (int j = 0; j < kDoubles; ++j) sum += all[j];
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace

extern const simd_optimizer::Loops loops_optimizer;
const simd_optimizer::Loops loops_optimizer = {.step = run_step, .sum_squares = sum_squares};

}  // namespace evn::EVN_ISA
