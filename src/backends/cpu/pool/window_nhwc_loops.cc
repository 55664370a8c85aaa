#include "backends/cpu/pool/window_nhwc_loops.h"

#include "backends/cpu/simd/finish.h"
#include "backends/cpu/simd/taps.h"

namespace evn::EVN_ISA {
namespace {

using simd_window::Geometry;
using simd_window_nhwc::Strip;

constexpr int kAtOnce = 4;                   // vectors of channels whose chains run side by side
constexpr std::int64_t kMostWork = 1 << 17;  // between two cancellation points

// The taps of one output that lie inside the image.
struct Pixels {
  const float* first;  // of tap (0, 0), which may lie outside
  std::int64_t row_step, step;
  Range rows, columns;
};

// Handles `Count` vectors, of which only the last may have fewer than kLanes lanes.
template <int Count>
inline Vec load_at(const float* p, int i, std::int64_t lanes) {
  return i + 1 < Count || lanes == kLanes ? load(p + i * kLanes) : load_n(p + i * kLanes, lanes);
}

template <typename F>
inline void each_pixel(const Pixels& p, F f) {
  for (std::int64_t ky = p.rows.begin; ky < p.rows.end; ++ky) {
    const float* at = p.first + ky * p.row_step + p.columns.begin * p.step;
    for (std::int64_t kx = p.columns.begin; kx < p.columns.end; ++kx, at += p.step) f(at);
  }
}

// Compares twice for each pixel, so that a NaN stays.
__attribute__((noinline)) Vec max_with_nan(const Pixels& p, std::int64_t c, std::int64_t lanes) {
  Vec top = splat(-__builtin_inff());
  each_pixel(p, [&](const float* at) {
    const Vec x = load_some(at + c, lanes);
    top = ((x > top) | (x != x)) ? x : top;
  });
  return top;
}

inline bool has_nan(Vec v) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0;
#else
  const IntVec is_nan = v != v;
  std::int32_t any = 0;
  for (int i = 0; i < kLanes; ++i) any |= is_nan[i];
  return any != 0;
#endif
}

struct Max {
  // The sum is NaN where a pixel is (or where infinities of both signs meet).
  template <int Count>
  static void vectors(const Pixels& p, float, std::int64_t c, std::int64_t lanes, Vec (&to)[Count]) {
    Vec top[Count], sum[Count];  // not `to`, which may be in memory
#pragma GCC unroll 4
    for (int i = 0; i < Count; ++i) {
      top[i] = splat(-__builtin_inff());
      sum[i] = zero();
    }
    each_pixel(p, [&](const float* at) {
#pragma GCC unroll 4
      for (int i = 0; i < Count; ++i) {
        const Vec x = load_at<Count>(at + c, i, lanes);
        top[i] = max_of(top[i], x);
        sum[i] += x;
      }
    });
    Vec all = sum[0];
#pragma GCC unroll 4
    for (int i = 1; i < Count; ++i) all += sum[i];
#pragma GCC unroll 4
    for (int i = 0; i < Count; ++i) to[i] = top[i];
    if (!has_nan(all)) return;
    for (int i = 0; i < Count; ++i) to[i] = max_with_nan(p, c + i * kLanes, i + 1 < Count ? kLanes : lanes);
  }
};

struct Average {
  template <int Count>
  static void vectors(const Pixels& p, float count, std::int64_t c, std::int64_t lanes, Vec (&to)[Count]) {
    Vec sum[Count];
#pragma GCC unroll 4
    for (int i = 0; i < Count; ++i) sum[i] = zero();
    each_pixel(p, [&](const float* at) {
#pragma GCC unroll 4
      for (int i = 0; i < Count; ++i) sum[i] += load_at<Count>(at + c, i, lanes);
    });
#pragma GCC unroll 4
    for (int i = 0; i < Count; ++i) to[i] = count == 0 ? zero() : sum[i] / splat(count);
  }
};

template <typename Op, int Count>
inline void output(const Pixels& p, float count, float* y, std::int64_t c, std::int64_t lanes, const Chain& chain) {
  Vec v[Count];
  Op::template vectors<Count>(p, count, c, lanes, v);
#pragma GCC unroll 4
  for (int i = 0; i < Count; ++i) store_some(y + c + i * kLanes, bounded(chain, v[i]), i + 1 < Count ? kLanes : lanes);
}

// What is left, less than kAtOnce vectors: the last one with its tail of channels.
template <typename Op>
inline void last_vectors(const Pixels& p, float count, float* y, std::int64_t c, std::int64_t left, const Chain& chain) {
  if (left > 3 * kLanes) return output<Op, 4>(p, count, y, c, left - 3 * kLanes, chain);
  if (left > 2 * kLanes) return output<Op, 3>(p, count, y, c, left - 2 * kLanes, chain);
  if (left > kLanes) return output<Op, 2>(p, count, y, c, left - kLanes, chain);
  if (left > 0) output<Op, 1>(p, count, y, c, left, chain);
}

// Computes all channels of one output position; a channel takes `work` units. If Long, there is a cancellation point before each
// group of kAtOnce vectors.
template <typename Op, bool Long>
inline void all_channels(const Strip& s, const Pixels& p, float count, float* y, std::int64_t work, const Chain& chain) {
  const std::int64_t channels = s.channels;
  std::int64_t c = 0;
  for (; c + kAtOnce * kLanes <= channels; c += kAtOnce * kLanes) {
    if (Long && stops(s.points, kAtOnce * kLanes * work)) return;
    output<Op, kAtOnce>(p, count, y, c, kLanes, chain);
  }
  last_vectors<Op>(p, count, y, c, channels - c, chain);
}

template <typename Op>
__attribute__((noinline)) void many_channels(const Strip& s, const Pixels& p, float count, float* y, std::int64_t work,
                                             const Chain& chain) {
  all_channels<Op, true>(s, p, count, y, work, chain);
}

template <typename Op>
void run(const Strip& s, bool counts) {
  const Geometry& g = *s.geometry;
  const Chain chain = split_chain(s.epilogue);
  float* y = s.out;
  for (std::int64_t row = s.row_begin; row < s.row_end; ++row) {
    const std::int64_t y0 = row * g.stride_h - g.pad_top;
    const std::int64_t rows =
        counts ? count_taps(row, g.stride_h, g.pad_top, g.dilation_h, g.kernel_h, g.height, g.pad_bottom, s.include_pad) : 0;
    const Range row_taps = inside(y0, g.dilation_h, g.kernel_h, g.height);
    const std::int64_t work = 2 * (row_taps.end - row_taps.begin) * g.kernel_w + 1;  // of a channel, at most
    const bool many = s.channels * work > kMostWork;
    const std::int64_t at_once = many ? 1 : kMostWork / (s.channels * work + 1) + 1;
    float* const line = y;
    for (std::int64_t begin = 0; begin < g.out_width; begin += at_once) {
      const std::int64_t end = g.out_width - begin < at_once ? g.out_width : begin + at_once;
      if (stops(s.points, many ? kFarElement : (end - begin) * s.channels * work)) return;
      for (std::int64_t x = begin; x < end; ++x, y += s.out_pixel) {
        const std::int64_t x0 = x * g.stride_w - g.pad_left;
        const std::int64_t columns =
            counts ? count_taps(x, g.stride_w, g.pad_left, g.dilation_w, g.kernel_w, g.width, g.pad_right, s.include_pad) : 0;
        const Pixels p = {s.image + (y0 * g.width + x0) * s.pixel, g.dilation_h * g.width * s.pixel, g.dilation_w * s.pixel,
                          row_taps, inside(x0, g.dilation_w, g.kernel_w, g.width)};
        const auto count = static_cast<float>(rows * columns);
        many ? many_channels<Op>(s, p, count, y, work, chain) : all_channels<Op, false>(s, p, count, y, work, chain);
      }
    }
    apply_rest(chain, line, g.out_width, s.out_pixel, s.channels, s.points);
  }
}

void max(const Strip& s) { run<Max>(s, false); }
void average(const Strip& s) { run<Average>(s, true); }

}  // namespace

extern const simd_window_nhwc::Loops loops_window_nhwc;
const simd_window_nhwc::Loops loops_window_nhwc = {max, average};

}  // namespace evn::EVN_ISA
