#include "backends/cpu/training/loss_loops.h"

#include "backends/cpu/simd/lanes.h"

namespace evn::EVN_ISA {
namespace {

constexpr float kLowest = -__builtin_inff();

// A NaN may be passed over: it shows in the sum.
inline float top_lane(Vec v) {
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) v = max_of(zip_low(v, v), zip_high(v, v));
  return v[0];
}
inline float all_lanes_sum(Vec v) {
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) v = zip_low(v, v) + zip_high(v, v);
  return v[0];
}

void line_sum(const float* x, std::int64_t n, float* top, float* sum) {
  Vec most = splat(kLowest);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) most = max_of(most, load(x + i));
  if (i < n) most = max_of(most, first_lanes(load_n(x + i, n - i), splat(kLowest), n - i));
  *top = top_lane(most);
  const Vec shift = splat(*top);
  Vec total = zero();
  for (i = 0; i + kLanes <= n; i += kLanes) total += exp_of(load(x + i) - shift);
  if (i < n) total += first_lanes(exp_of(load_n(x + i, n - i) - shift), zero(), n - i);
  *sum = all_lanes_sum(total);
}

// y[i] = f(x[i]).
template <typename F>
inline void map(const float* x, float* y, std::int64_t n, F f) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, f(load(x + i)));
  if (i < n) store_n(y + i, f(load_n(x + i, n - i)), n - i);
}

void line_softmax(const float* x, float top, float factor, float* y, std::int64_t n) {
  map(x, y, n, [&](Vec v) { return splat(factor) * exp_of(v - splat(top)); });
}

void line_logs(const float* x, float top, float log, float* y, std::int64_t n) {
  map(x, y, n, [&](Vec v) { return (v - splat(top)) - splat(log); });
}

void column_sums(const float* x, std::int64_t n, std::int64_t step, std::int64_t width, float* tops, float* sums) {
  for (std::int64_t j = 0; j < width; j += kLanes) {
    const std::int64_t left = width - j;
    Vec most = splat(kLowest), total = zero();
    for (std::int64_t i = 0; i < n; ++i) most = max_of(most, load_some(x + i * step + j, left));
    for (std::int64_t i = 0; i < n; ++i) total += exp_of(load_some(x + i * step + j, left) - most);
    store_some(tops + j, most, left);
    store_some(sums + j, total, left);
  }
}

// y[i * step + j] = f(x[i * step + j], a[j], b[j]).
template <typename F>
inline void map_columns(const float* x, const float* a, const float* b, float* y, std::int64_t n, std::int64_t step,
                        std::int64_t width, F f) {
  for (std::int64_t j = 0; j < width; j += kLanes) {
    const std::int64_t left = width - j;
    const Vec first = load_some(a + j, left), second = load_some(b + j, left);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t at = i * step + j;
      store_some(y + at, f(load_some(x + at, left), first, second), left);
    }
  }
}

void column_softmax(const float* x, const float* tops, const float* factors, float* y, std::int64_t n, std::int64_t step,
                    std::int64_t width) {
  map_columns(x, tops, factors, y, n, step, width, [](Vec v, Vec top, Vec factor) { return factor * exp_of(v - top); });
}

void column_logs(const float* x, const float* tops, const float* logs, float* y, std::int64_t n, std::int64_t step,
                 std::int64_t width) {
  map_columns(x, tops, logs, y, n, step, width, [](Vec v, Vec top, Vec log) { return (v - top) - log; });
}

}  // namespace

extern const simd_loss::Loops loops_loss;
const simd_loss::Loops loops_loss = {.line_sum = line_sum,
                                     .line_softmax = line_softmax,
                                     .line_logs = line_logs,
                                     .column_sums = column_sums,
                                     .column_softmax = column_softmax,
                                     .column_logs = column_logs};

}  // namespace evn::EVN_ISA
