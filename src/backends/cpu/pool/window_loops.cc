#include "backends/cpu/pool/window_loops.h"

#include "backends/cpu/simd/copy.h"
#include "backends/cpu/simd/epilogue.h"

namespace evn::EVN_ISA {
namespace {

using simd_window::Geometry;
using simd_window::Strip;

constexpr int kAtOnce = 4;                   // vectors of output in flight, to hide the latency of their chains
constexpr std::int64_t kPart = 1 << 14;      // floats between two cancellation points, whole vectors
constexpr std::int64_t kMostWork = 1 << 14;  // multiply-adds between two cancellation points

void fill_zeros(float* to, std::int64_t n) {
  const Vec v = zero();
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, v);
  if (i < n) store_n(to + i, v, n - i);
}

// What is the same for all strips of a node, at the start of the buffer: where each tap lies in the padded rows, and which part of
// each phase of a row comes from the input.
struct Areas {
  std::int64_t* offsets;  // of taps
  std::int64_t* phases;   // begin and end, stride_w times
  float* rows;
};

Areas areas_of(const Geometry& g, float* buffer) {
  Areas a;
  a.offsets = reinterpret_cast<std::int64_t*>(buffer);
  a.phases = a.offsets + g.kernel_h * g.kernel_w;
  a.rows = buffer + simd_window::table_floats(g, kLanes);
  return a;
}

// Phase f of a padded row holds padded positions f, f + stride, ... (padded position = x + pad_left).
void prepare(const Geometry& g, float* buffer, CancelPoints* points) {
  const Areas a = areas_of(g, buffer);
  const std::int64_t length = simd_window::phase_floats(g, kLanes);
  for (std::int64_t ky = 0; ky < g.kernel_h; ++ky) {
    for (std::int64_t kx = 0; kx < g.kernel_w; ++kx) {
      const std::int64_t q = kx * g.dilation_w;
      a.offsets[ky * g.kernel_w + kx] = ky * g.dilation_h * length * g.stride_w + q % g.stride_w * length + q / g.stride_w;
    }
  }
  for (std::int64_t f = 0; f < g.stride_w; ++f) {
    if (stops(points, kFarElement)) return;
    const std::int64_t x0 = f - g.pad_left;
    std::int64_t low = x0 >= 0 ? 0 : (-x0 + g.stride_w - 1) / g.stride_w;
    std::int64_t high = x0 >= g.width ? 0 : (g.width - 1 - x0) / g.stride_w + 1;
    if (low > length) low = length;
    if (high > length) high = length;
    a.phases[2 * f] = low;
    a.phases[2 * f + 1] = high < low ? low : high;
  }
}

// n positions of a phase of an input row.
inline void fill_phase(const Geometry& g, const float* from, std::int64_t n, float* to) {
  if (g.stride_w == 1) {
    copy_over(to, from, n);
  } else if (g.stride_w == 2) {
    copy_even_over(to, from, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * g.stride_w];
  }
}

// One input row. Copies run over the end of a phase by less than a vector, into what is filled next; the buffer has room for that.
void fill_row(const Geometry& g, const Areas& a, const float* row, std::int64_t length, float* to) {
  for (std::int64_t f = 0; f < g.stride_w; ++f, to += length) {
    const std::int64_t low = a.phases[2 * f];
    const std::int64_t high = a.phases[2 * f + 1];
    fill_zeros(to, low);
    fill_phase(g, row + f - g.pad_left + low * g.stride_w, high - low, to + low);
    fill_zeros(to + high, length - high);
  }
}

// Fills one long input row, with cancellation points.
__attribute__((noinline)) void fill_long_row(const Geometry& g, const Areas& a, const float* row, std::int64_t length, float* to,
                                             CancelPoints* points) {
  for (std::int64_t f = 0; f < g.stride_w; ++f, to += length) {
    const std::int64_t low = a.phases[2 * f];
    const std::int64_t high = a.phases[2 * f + 1];
    const float* const from = row + f - g.pad_left + low * g.stride_w;
    if (stops(points, kFarElement)) return;
    in_parts(points, low, kPart, 1, [&](std::int64_t i, std::int64_t end) { fill_zeros(to + i, end - i); });
    in_parts(points, high - low, kPart, 1,
             [&](std::int64_t i, std::int64_t end) { fill_phase(g, from + i * g.stride_w, end - i, to + low + i); });
    in_parts(points, length - high, kPart, 1, [&](std::int64_t i, std::int64_t end) { fill_zeros(to + high + i, end - i); });
  }
}

void fill_rows(const Strip& s, const Areas& a) {
  const Geometry& g = *s.geometry;
  const std::int64_t rows = simd_window::buffer_rows(g, s.row_end - s.row_begin);
  const std::int64_t length = simd_window::phase_floats(g, kLanes);
  const std::int64_t stride = length * g.stride_w;
  const std::int64_t first = s.row_begin * g.stride_h - g.pad_top;
  const bool is_short = stride <= kPart;
  WorkBatch batch{s.points, kPart};
  for (std::int64_t r = 0; r < rows; ++r) {
    if (stops_before(&batch, stride + kFarElement * g.stride_w)) return;
    const std::int64_t y = first + r;
    float* const to = a.rows + r * stride;
    if (y < 0 || y >= g.height) {
      in_parts(s.points, stride, kPart, 1, [&](std::int64_t i, std::int64_t end) { fill_zeros(to + i, end - i); });
    } else if (is_short) {
      fill_row(g, a, s.plane + y * g.width, length, to);
    } else {
      fill_long_row(g, a, s.plane + y * g.width, length, to, s.points);
    }
  }
}

inline void taps_loop(const std::int64_t* offset, const float* weight, std::int64_t taps, const float* const (&from)[kAtOnce],
                      Vec (&acc)[kAtOnce]) {
  for (std::int64_t t = 0; t < taps; ++t) {
    const std::int64_t at = offset[t];
    const float w = weight[t];
#pragma GCC unroll 4
    for (int i = 0; i < kAtOnce; ++i) acc[i] = fma(splat(w), load(from[i] + at), acc[i]);
  }
}

// Vectors of the strip are numbered row by row; kAtOnce of them are computed together, also across rows.
void run_strip(const Strip& s, const Areas& areas) {
  const Geometry& g = *s.geometry;
  const Chain chain = split_chain(s.epilogue);
  const std::int64_t taps = g.kernel_h * g.kernel_w;
  const std::int64_t row_step = simd_window::row_floats(g, kLanes) * g.stride_h;
  const std::int64_t rows = s.row_end - s.row_begin;
  const std::int64_t turn_work = kAtOnce * kLanes * taps;
  WorkBatch batch{s.points, kMostWork};
  std::int64_t y = 0;
  std::int64_t x = 0;
  while (y < rows) {
    if (stops_before(&batch, turn_work)) return;
    const float* from[kAtOnce] = {};
    Vec acc[kAtOnce];
    std::int64_t at_y[kAtOnce] = {};
    std::int64_t at_x[kAtOnce] = {};
    int count = 0;
    for (int i = 0; i < kAtOnce; ++i) {
      acc[i] = splat(s.bias);
      if (y < rows) {
        at_y[i] = y;
        at_x[i] = x;
        from[i] = areas.rows + y * row_step + x;
        ++count;
        x += kLanes;
        if (x >= g.out_width) {
          x = 0;
          ++y;
        }
      } else {
        from[i] = from[0];
      }
    }
    taps_loop(areas.offsets, s.weight, taps, from, acc);
    for (int i = 0; i < kAtOnce; ++i) {
      if (i >= count) break;
      float* to = s.out + at_y[i] * g.out_width + at_x[i];
      const std::int64_t lanes = g.out_width - at_x[i];
      const Vec v = bounded(chain, acc[i]);
      if (lanes >= kLanes) {
        store(to, v);
      } else {
        store_n(to, v, lanes);
      }
    }
  }
  if (stops_behind(&batch)) return;
  apply_rest(chain, s.out, 1, 0, rows * g.out_width, s.points);
}

void depthwise(const Strip& s) {
  const Areas areas = areas_of(*s.geometry, s.buffer);
  fill_rows(s, areas);
  run_strip(s, areas);
}

}  // namespace

extern const simd_window::Loops loops_window;
const simd_window::Loops loops_window = {.lanes = kLanes, .prepare = prepare, .depthwise = depthwise};

}  // namespace evn::EVN_ISA
