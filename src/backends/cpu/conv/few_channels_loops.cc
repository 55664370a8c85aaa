#include "backends/cpu/conv/few_channels_loops.h"

#include "backends/cpu/simd/copy.h"
#include "backends/cpu/simd/finish.h"

namespace evn::EVN_ISA {
namespace {

using simd_few_channels::Geometry;
using simd_few_channels::Tile;

// Accumulators: outputs times vectors; beside them the vectors of a tap and a float of a pixel.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kOne = 14, kTwo = 14;
#elif defined(EVN_SMALL_CLUSTER)
constexpr int kOne = 4, kTwo = 4;
#else
constexpr int kOne = 12, kTwo = 6;
#endif
constexpr int kColumns = kOne;
static_assert(kOne % kTwo == 0);
constexpr int kPanel = 2 * kLanes;

// Count outputs of a row by NV vectors of channels.
struct Run {
  const float* const* lines;  // where the first output's first tap is on each, channel by channel
  std::int64_t line_count, kernel_w;
  const float* weight;
  const float* bias;  // null: none
  float* y;
  std::int64_t y_step;      // floats from one output to the next
  std::int64_t outputs;     // that are there
  std::int64_t last_lanes;  // of the last vector
};

template <int Count, int NV, int Stride>
void run_outputs(const Run& g, std::int64_t offset, const Chain& chain) {
  Vec acc[Count * NV];
#pragma GCC unroll 2
  for (int v = 0; v < NV; ++v) {
    const Vec start = g.bias == nullptr ? zero() : load_some(g.bias + v * kLanes, v + 1 < NV ? kLanes : g.last_lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Count; ++i) acc[i * NV + v] = start;
  }
  const float* weight = g.weight;
  for (std::int64_t line = 0; line < g.line_count; ++line) {
    const float* at = g.lines[line] + offset;
    for (std::int64_t kx = g.kernel_w; kx > 0; --kx, ++at, weight += NV * kLanes) {
      __asm__(
          ""
          : "+r"(at));  // the compiler must not keep floats of one tap for the next: that takes registers, and loads cost nothing
      Vec w[NV];
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) w[v] = load(weight + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < Count; ++i) {
        const Vec x = splat(at[i * Stride]);
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) acc[i * NV + v] = fma(x, w[v], acc[i * NV + v]);
      }
    }
  }
  finish_in_registers(chain, acc);
#pragma GCC unroll 16
  for (int i = 0; i < Count; ++i) {
    if (i >= g.outputs) break;
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) store_some(g.y + i * g.y_step + v * kLanes, acc[i * NV + v], v + 1 < NV ? kLanes : g.last_lanes);
  }
}

template <int Count, int NV>
void run_part(const Tile& t, Run g, float* y, const Chain& chain, std::int64_t begin, std::int64_t end) {
  const Geometry& geometry = *t.geometry;
  for (std::int64_t x = begin; x < end; x += Count) {
    g.y = y + x * g.y_step;
    g.outputs = geometry.out_width - x;
    if (geometry.stride_w == 1) {
      run_outputs<Count, NV, 1>(g, x, chain);
    } else {
      run_outputs<Count, NV, 2>(g, 2 * x, chain);
    }
  }
}

// With a cancellation point between parts of a line.
template <int Count, int NV>
void run_line(const Tile& t, const Run& g, float* y, const Chain& chain) {
  constexpr std::int64_t kPart = 16 * Count;
  const std::int64_t width = t.geometry->out_width;
  for (std::int64_t x = 0; x < width; x += kPart) {
    const std::int64_t end = width - x < kPart ? width : x + kPart;
    if (stops(t.points, (end - x) * NV * kLanes * g.line_count * g.kernel_w)) return;
    run_part<Count, NV>(t, g, y, chain, x, end);
  }
}

inline std::int64_t slot_of(const Geometry& g, std::int64_t y) { return (y % g.kernel_h + g.kernel_h) % g.kernel_h; }

constexpr std::int64_t kCopied = 1 << 14;  // floats between two cancellation points

// The ring's copies of rows [from, to) of pixels.
void copy_lines(const Tile& t, std::int64_t from, std::int64_t to, std::int64_t floats, std::int64_t line_step) {
  const Geometry& g = *t.geometry;
  const std::int64_t pad = g.pad_left < floats ? g.pad_left : floats;
  const std::int64_t count = floats - pad < g.width ? floats - pad : g.width;
  for (std::int64_t y = from; y < to; ++y) {
    for (std::int64_t c = 0; c < g.channels; ++c) {
      float* const line = t.lines + (c * g.kernel_h + slot_of(g, y)) * line_step;
      if (y < 0 || y >= g.height) {
        in_parts(t.points, floats, kCopied, 1, [&](std::int64_t i, std::int64_t end) { zero_over(line + i, end - i); });
        continue;
      }
      in_parts(t.points, pad, kCopied, 1, [&](std::int64_t i, std::int64_t end) { zero_over(line + i, end - i); });
      const float* const pixels = t.x + (c * g.height + y) * g.width;
      in_parts(t.points, count, kCopied, 1,
               [&](std::int64_t i, std::int64_t end) { copy_over(line + pad + i, pixels + i, end - i); });
      in_parts(t.points, floats - pad - count, kCopied, 1,
               [&](std::int64_t i, std::int64_t end) { zero_over(line + pad + count + i, end - i); });
    }
  }
}

void run(const Tile& t) {
  const Geometry& g = *t.geometry;
  const Chain chain = split_chain(t.epilogue);
  const std::int64_t floats = simd_few_channels::used_floats(kColumns, g);
  const std::int64_t line_step = simd_few_channels::line_floats(kColumns, g);
  const float* lines[simd_few_channels::kMaxLines];
  Run r{};
  r.lines = lines;
  r.line_count = g.channels * g.kernel_h;
  r.kernel_w = g.kernel_w;
  r.y_step = g.out_pixel;
  std::int64_t copied = t.row_begin * g.stride_h - g.pad_top;
  for (std::int64_t row = t.row_begin; row < t.row_end; ++row) {
    const std::int64_t y0 = row * g.stride_h - g.pad_top;
    copy_lines(t, copied > y0 ? copied : y0, y0 + g.kernel_h, floats, line_step);
    copied = y0 + g.kernel_h;
    if (has_stopped(t.points)) return;
    for (std::int64_t c = 0; c < g.channels; ++c) {
      for (std::int64_t ky = 0; ky < g.kernel_h; ++ky) {
        lines[c * g.kernel_h + ky] = t.lines + (c * g.kernel_h + slot_of(g, y0 + ky)) * line_step;
      }
    }
    for (std::int64_t channel = 0; channel < g.out_channels; channel += kPanel) {
      const std::int64_t left = g.out_channels - channel;
      float* const y = t.y + row * g.out_width * g.out_pixel + channel;
      r.weight = t.weight + channel * r.line_count * g.kernel_w;
      r.bias = t.bias == nullptr ? nullptr : t.bias + channel;
      if (left > kLanes) {
        r.last_lanes = left < kPanel ? left - kLanes : kLanes;
        run_line<kTwo, 2>(t, r, y, chain);
      } else {
        r.last_lanes = left;
        run_line<kOne, 1>(t, r, y, chain);
      }
    }
    if (!chain.gate.is_rest)
      apply_rest(chain, t.y + row * g.out_width * g.out_pixel, g.out_width, g.out_pixel, g.out_channels, t.points);
  }
}

}  // namespace

extern const simd_few_channels::Loops loops_few_channels;
const simd_few_channels::Loops loops_few_channels = {kLanes, kPanel, kColumns, run};

}  // namespace evn::EVN_ISA
