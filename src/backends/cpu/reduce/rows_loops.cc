#include "backends/cpu/reduce/rows_loops.h"

#include "backends/cpu/simd/epilogue.h"
#include "backends/cpu/simd/lanes.h"

namespace evn::EVN_ISA {
namespace {

using simd_rows::Norm;
using simd_rows::Reduce;

inline Vec max_with_nan(Vec a, Vec x) { return x != x ? x : x > a ? x : a; }
inline Vec min_with_nan(Vec a, Vec x) { return x != x ? x : x < a ? x : a; }

struct SumOp {
  static constexpr float kStart = 0;
  static Vec add(Vec a, Vec x) { return a + x; }
};
struct MaxOp {
  static constexpr float kStart = -__builtin_inff();
  static Vec add(Vec a, Vec x) { return max_with_nan(a, x); }
};
// For values of which a NaN shows otherwise.
struct LooseMaxOp {
  static constexpr float kStart = -__builtin_inff();
  static Vec add(Vec a, Vec x) { return max_of(a, x); }
};
struct MinOp {
  static constexpr float kStart = __builtin_inff();
  static Vec add(Vec a, Vec x) { return min_with_nan(a, x); }
};

template <typename Op>
inline float fold_lanes(Vec all) {
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) all = Op::add(zip_low(all, all), zip_high(all, all));
  return all[0];
}

// Four chains of vectors, the last of which also takes the tail, then the lanes in a tree. `f` maps an element first.
template <typename Op, typename F>
inline float fold(const float* x, std::int64_t n, F f) {
  Vec a[4] = {splat(Op::kStart), splat(Op::kStart), splat(Op::kStart), splat(Op::kStart)};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) a[j] = Op::add(a[j], f(load(x + i + j * kLanes)));
  }
  for (; i + kLanes <= n; i += kLanes) a[0] = Op::add(a[0], f(load(x + i)));
  if (i < n) a[3] = Op::add(a[3], first_lanes(f(load_n(x + i, n - i)), splat(Op::kStart), n - i));
  return fold_lanes<Op>(Op::add(Op::add(a[0], a[1]), Op::add(a[2], a[3])));
}

inline Vec same(Vec x) { return x; }
inline Vec absolute(Vec x) { return max_of(x, -x); }
inline Vec square(Vec x) { return x * x; }

float reduce(Reduce op, const float* x, std::int64_t n) {
  switch (op) {
    case Reduce::kSum: return fold<SumOp>(x, n, same);
    case Reduce::kMean: return fold<SumOp>(x, n, same) / static_cast<float>(n);
    case Reduce::kMax: return fold<MaxOp>(x, n, same);
    case Reduce::kMin: return fold<MinOp>(x, n, same);
    case Reduce::kAbsSum: return fold<SumOp>(x, n, absolute);
    case Reduce::kSquareSum: return fold<SumOp>(x, n, square);
  }
  return 0;
}

// Two vectors of columns, in four chains of rows each: row i belongs to chain i % 4.
template <typename Op, typename F>
inline void fold_columns(const float* x, std::int64_t n, std::int64_t step, std::int64_t lanes, Vec (&to)[2], F f) {
  Vec a[4][2];
  for (int j = 0; j < 4; ++j) a[j][0] = a[j][1] = splat(Op::kStart);
  const bool whole = lanes == 2 * kLanes;
  std::int64_t i = 0;
  for (; whole && i + 4 <= n; i += 4) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      a[j][0] = Op::add(a[j][0], f(load(x + (i + j) * step)));
      a[j][1] = Op::add(a[j][1], f(load(x + (i + j) * step + kLanes)));
    }
  }
  const std::int64_t first = lanes < kLanes ? lanes : kLanes;
  const std::int64_t second = lanes - first;
  for (; i < n; ++i) {
    const auto j = static_cast<int>(i % 4);
    a[j][0] = Op::add(a[j][0], f(load_n(x + i * step, first)));
    if (second > 0) a[j][1] = Op::add(a[j][1], f(load_n(x + i * step + kLanes, second)));
  }
  for (int k = 0; k < 2; ++k) to[k] = Op::add(Op::add(a[0][k], a[1][k]), Op::add(a[2][k], a[3][k]));
}

template <typename Op, typename F>
void reduce_columns_of(const float* x, float* y, std::int64_t n, std::int64_t step, std::int64_t width, float divisor, F f) {
  for (std::int64_t j = 0; j < width; j += 2 * kLanes) {
    const std::int64_t lanes = width - j < 2 * kLanes ? width - j : 2 * kLanes;
    Vec v[2];
    fold_columns<Op>(x + j, n, step, lanes, v, f);
    for (int k = 0; k < 2 && k * kLanes < lanes; ++k) {
      const std::int64_t left = lanes - k * kLanes;
      store_n(y + j + k * kLanes, divisor == 1 ? v[k] : v[k] / splat(divisor), left < kLanes ? left : kLanes);
    }
  }
}

void reduce_columns(Reduce op, const float* x, float* y, std::int64_t n, std::int64_t step, std::int64_t width) {
  switch (op) {
    case Reduce::kSum: return reduce_columns_of<SumOp>(x, y, n, step, width, 1, same);
    case Reduce::kMean: return reduce_columns_of<SumOp>(x, y, n, step, width, static_cast<float>(n), same);
    case Reduce::kMax: return reduce_columns_of<MaxOp>(x, y, n, step, width, 1, same);
    case Reduce::kMin: return reduce_columns_of<MinOp>(x, y, n, step, width, 1, same);
    case Reduce::kAbsSum: return reduce_columns_of<SumOp>(x, y, n, step, width, 1, absolute);
    case Reduce::kSquareSum: return reduce_columns_of<SumOp>(x, y, n, step, width, 1, square);
  }
}

// y[i] = f(x[i]) over a line.
template <typename F>
inline void map(const float* x, float* y, std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, f(load(x + i)));
  if (i < n) store_n(y + i, f(load_n(x + i, n - i)), n - i);
}

constexpr std::int64_t kNearFloats = 2048;  // lines of so many wait in L1 for their second half
constexpr std::int64_t kGroup = 4;          // short lines that go together, so that none waits for the sum of the other's lanes

// How many lines of n go together, of those that are left.
inline std::int64_t group_of(std::int64_t left, std::int64_t n, std::int64_t floats) {
  const std::int64_t most = n * kGroup <= floats ? kGroup : n * 2 <= floats ? 2 : 1;
  return left < most ? left : most;
}

// A value as it is, and in passing the fetch of what lies `step` floats behind where it was.
struct Fetching {
  const float* next;
  Vec operator()(Vec v) {
    __builtin_prefetch(next);
    next += kLanes;
    return v;
  }
};

// Where a line is written: past the caches, if that is wanted and it consists of whole vectors.
class Line {
 public:
  Line(float* y, std::int64_t n, bool past)
      : y_(y), past_(past && n % kLanes == 0 && reinterpret_cast<std::uintptr_t>(y) % sizeof(Vec) == 0) {}
  void put(std::int64_t i, Vec v) const { past_ ? store_past(y_ + i, v) : store(y_ + i, v); }
  void put_n(std::int64_t i, Vec v, std::int64_t n) const { store_n(y_ + i, v, n); }

 private:
  float* y_;
  bool past_;
};

// 2^((x - top) log2 e) to y, and their sum in the chains of fold.
inline float exp_line(const float* x, float* y, std::int64_t n, Vec top) {
  const Vec log2e = splat(1.44269504088896341f);
  Vec a[4] = {zero(), zero(), zero(), zero()};
  const auto at = [&](std::int64_t i) {
    const Vec e = exp2_of((load(x + i) - top) * log2e);
    store(y + i, e);
    return e;
  };
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) a[j] = a[j] + at(i + j * kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) a[0] = a[0] + at(i);
  if (i < n) {
    const Vec e = exp2_of((load_n(x + i, n - i) - top) * log2e);
    store_n(y + i, e, n - i);
    a[3] = a[3] + first_lanes(e, zero(), n - i);
  }
  return fold_lanes<SumOp>((a[0] + a[1]) + (a[2] + a[3]));
}

void log_softmax(const float* x, float* y, std::int64_t n, const Chain& chain) {
  const Vec top = splat(fold<LooseMaxOp>(x, n, same));  // a NaN that is lost here comes back with the sum
#if defined(__AVX512F__)
  const auto exponential = [](Vec v) { return exp2_of(v * splat(1.44269504088896341f)); };  // there, 1 of 0
#else
  const auto exponential = [](Vec v) { return exp_of(v); };
#endif
  const float sum = fold<SumOp>(x, n, [&](Vec v) { return exponential(v - top); });
  const Vec shift = splat(__builtin_logf(sum));
  map(x, y, n, [&](Vec v) { return bounded(chain, v - top - shift); });
  apply_rest(chain, y, n);
}

void softmax(const float* x, float* y, std::int64_t rows, std::int64_t n, bool log, bool past, const Epilogue* epilogue) {
  const Chain chain = split_chain(epilogue);
  for (std::int64_t r = 0; r < rows && log; ++r) log_softmax(x + r * n, y + r * n, n, chain);
  if (log) return;
  const bool is_near = n <= kNearFloats;
  const bool passes = past && is_near && chain.rest_count == 0;
  float near[kNearFloats];
  Vec tops[kGroup], scales[kGroup];
  for (std::int64_t r = 0; r < rows;) {
    const std::int64_t count = group_of(rows - r, n, kNearFloats);
    float* const e = is_near ? near : y;
    // A NaN may be lost here: it comes back with the sum.
    for (std::int64_t q = 0; q < count; ++q) tops[q] = splat(fold<LooseMaxOp>(x + q * n, n, Fetching{x + (q + count) * n}));
    for (std::int64_t q = 0; q < count; ++q) scales[q] = splat(1.0f / exp_line(x + q * n, e + q * n, n, tops[q]));
    for (std::int64_t q = 0; q < count; ++q) {
      const Line line(y + q * n, n, passes);
      const float* const from = e + q * n;
      std::int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes) line.put(i, bounded(chain, load(from + i) * scales[q]));
      if (i < n) line.put_n(i, bounded(chain, load_n(from + i, n - i) * scales[q]), n - i);
    }
    apply_rest(chain, y, count * n);
    r += count;
    x += count * n;
    y += count * n;
  }
  if (passes) fence_past();
}

void exponential_columns(const float* x, const float* tops, float* y, float* sums, std::int64_t n, std::int64_t step,
                         std::int64_t width) {
  for (std::int64_t j = 0; j < width; j += kLanes) {
    const std::int64_t lanes = width - j < kLanes ? width - j : kLanes;
    const Vec top = load_n(tops + j, lanes);
    Vec sum = load_n(sums + j, lanes);
    for (std::int64_t i = 0; i < n; ++i) {
      const Vec e = exp_of(load_n(x + i * step + j, lanes) - top);
      sum = sum + e;
      store_n(y + i * step + j, e, lanes);
    }
    store_n(sums + j, sum, lanes);
  }
}

float exponentials(const float* x, float top, float* y, std::int64_t n) { return exp_line(x, y, n, splat(top)); }

inline float squares_of(const float* x, Vec mean, std::int64_t n) {
  return fold<SumOp>(x, n, [=](Vec v) { return (v - mean) * (v - mean); });
}

// (x - mean) * inverse * scale + bias, bounded.
inline void write_line(const float* scale, const float* bias, const Chain& chain, Vec mean, Vec inverse, const float* x,
                       const Line& line, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec v = (load(x + i) - mean) * inverse;
    line.put(i, bounded(chain, fma(v, load(scale + i), bias == nullptr ? zero() : load(bias + i))));
  }
  if (i < n) {
    const Vec v = (load_n(x + i, n - i) - mean) * inverse;
    const Vec b = bias == nullptr ? zero() : load_n(bias + i, n - i);
    line.put_n(i, bounded(chain, fma(v, load_n(scale + i, n - i), b)), n - i);
  }
}

void layer_norm(const Norm& norm, const float* x, float* y, std::int64_t rows, std::int64_t n) {
  const Chain chain = split_chain(norm.epilogue);
  const float count = static_cast<float>(n);
  const bool past = norm.past && chain.rest_count == 0;
  Vec means[kGroup], inverses[kGroup];
  for (std::int64_t r = 0; r < rows;) {
    const std::int64_t lines = group_of(rows - r, n, 2 * kNearFloats);
    for (std::int64_t q = 0; q < lines; ++q) {
      means[q] = norm.centered ? splat(fold<SumOp>(x + q * n, n, Fetching{x + (q + lines) * n}) / count) : zero();
    }
    for (std::int64_t q = 0; q < lines; ++q) {
      const Vec mean = means[q];
      const Fetching fetch = {x + (q + lines) * n};
      const float squares = norm.centered ? squares_of(x + q * n, mean, n)
                                          : fold<SumOp>(x + q * n, n, [f = fetch](Vec v) mutable { return f(v) * v; });
      const float variance = squares / count;
      inverses[q] = splat(1.0f / __builtin_sqrtf(variance + norm.epsilon));
    }
    for (std::int64_t q = 0; q < lines; ++q, x += n, y += n) {
      const Vec mean = means[q], inverse = inverses[q];
      const Line line(y, n, past);
      write_line(norm.scale, norm.bias, chain, mean, inverse, x, line, n);
      apply_rest(chain, y, n);
    }
    r += lines;
  }
  if (past) fence_past();
}

float squares(const float* x, float mean, std::int64_t n) { return squares_of(x, splat(mean), n); }

void normalize(const Norm& norm, float mean, float inverse, std::int64_t first, const float* x, float* y, std::int64_t n) {
  const Chain chain = split_chain(norm.epilogue);
  write_line(norm.scale + first, norm.bias == nullptr ? nullptr : norm.bias + first, chain, splat(mean), splat(inverse), x,
             Line(y, n, false), n);
  apply_rest(chain, y, n);
}

}  // namespace

extern const simd_rows::Loops loops_rows;
const simd_rows::Loops loops_rows = {.softmax = softmax,
                                     .reduce = reduce,
                                     .reduce_columns = reduce_columns,
                                     .layer_norm = layer_norm,
                                     .exponentials = exponentials,
                                     .exponential_columns = exponential_columns,
                                     .squares = squares,
                                     .normalize = normalize};

}  // namespace evn::EVN_ISA
