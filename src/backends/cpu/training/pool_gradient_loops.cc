#include "backends/cpu/training/pool_gradient_loops.h"

#include "backends/cpu/simd/lanes.h"

namespace evn::EVN_ISA {
namespace {

// Every second lane of a and b, from the first or the second on.
#if defined(__AVX512F__)
inline Vec even_lanes(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
inline Vec odd_lanes(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
#elif defined(__AVX2__)
inline Vec even_lanes(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
inline Vec odd_lanes(Vec a, Vec b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
#else
inline Vec even_lanes(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6); }
inline Vec odd_lanes(Vec a, Vec b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7); }
#endif

// Whether MaxPool takes x rather than what it has (ops/pool.h).
inline IntVec beats(Vec x, Vec best) { return (x > best) | ((x != x) & (best == best)); }

inline Vec where(IntVec mask, Vec v) { return as_float(mask & as_int(v)); }

// One vector of windows: two of each line. Returns what goes to the four places of a window.
struct Shares {
  Vec v[4];
};
inline Shares shares_of(const Vec (&x)[4], Vec dy) {
  Vec best = x[0];
  IntVec taken[4];  // whether it has been taken when it was looked at
#pragma GCC unroll 4
  for (int i = 1; i < 4; ++i) {
    taken[i] = beats(x[i], best);
    best = taken[i] ? x[i] : best;
  }
  Shares s;
  IntVec left = splat_int(-1);
#pragma GCC unroll 4
  for (int i = 3; i > 0; --i) {
    s.v[i] = where(left & taken[i], dy);
    left &= ~taken[i];
  }
  s.v[0] = where(left, dy);
  return s;
}

void max_pairs(const float* above, const float* below, const float* dy, float* to_above, float* to_below, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t left = n - i, first = 2 * left, second = first - kLanes, at = 2 * i;
    const Vec a = load_some(above + at, first), b = load_some(above + at + kLanes, second);
    const Vec c = load_some(below + at, first), d = load_some(below + at + kLanes, second);
    const Shares s = shares_of({even_lanes(a, b), odd_lanes(a, b), even_lanes(c, d), odd_lanes(c, d)}, load_some(dy + i, left));
    store_some(to_above + at, zip_low(s.v[0], s.v[1]), first);
    store_some(to_above + at + kLanes, zip_high(s.v[0], s.v[1]), second);
    store_some(to_below + at, zip_low(s.v[2], s.v[3]), first);
    store_some(to_below + at + kLanes, zip_high(s.v[2], s.v[3]), second);
  }
}

// Every element, or every second one, for `left` lanes.
template <int Stride>
inline Vec strided(const float* p, std::int64_t left) {
  if constexpr (Stride == 1) return load_some(p, left);
  const std::int64_t floats = 2 * left - 1;
  return even_lanes(load_some(p, floats), load_some(p + kLanes, floats - kLanes));
}

template <int Stride>
void max_taps_of(const float* x, const std::int64_t* offsets, std::int32_t taps, std::int32_t* taken, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t left = n - i;
    Vec best = strided<Stride>(x + offsets[0] + i * Stride, left);
    IntVec at = splat_int(0);
    for (std::int32_t t = 1; t < taps; ++t) {
      const Vec v = strided<Stride>(x + offsets[t] + i * Stride, left);
      const IntVec takes = beats(v, best);
      best = takes ? v : best;
      at = takes ? splat_int(t) : at;
    }
    store_some(reinterpret_cast<float*>(taken) + i, as_float(at), left);
  }
}

void max_taps(const float* x, const std::int64_t* offsets, std::int32_t taps, std::int64_t stride, std::int32_t* taken,
              std::int64_t n) {
  return stride == 1 ? max_taps_of<1>(x, offsets, taps, taken, n) : max_taps_of<2>(x, offsets, taps, taken, n);
}

}  // namespace

extern const simd_pool_gradient::Loops loops_pool_gradient;
const simd_pool_gradient::Loops loops_pool_gradient = {.max_pairs = max_pairs, .max_taps = max_taps};

}  // namespace evn::EVN_ISA
