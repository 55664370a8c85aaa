#include "backends/cpu/simd/depthwise.h"

#include "backends/cpu/simd/finish.h"
#include "backends/cpu/simd/taps.h"

namespace evn::EVN_ISA {
namespace {

using simd_depthwise::Geometry;
using simd_depthwise::Tile;

constexpr int kColumns = 4;  // outputs of a row that are computed together
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTallRows = 2;  // rows that share pixels; their accumulators and two lines of taps fit in 32 registers
#else
constexpr int kTallRows = 1;
#endif

constexpr std::int64_t kChannels = 64;
alignas(64) constexpr float kZeros[kLanes] = {};

// A block of Rows x kColumns outputs. `x` is where its first tap's pixel would lie, which may be outside the image: rows and columns
// of pixels are numbered from there, and only those inside the ranges are read.
struct Block {
  const float* x;
  std::int64_t row_step;  // floats from one row of pixels to the next
  float* y;
  std::int64_t y_row_step;
  Range rows, columns;
};

// Edge: some columns of pixels are outside the image and are zeros.
template <int K, int S, int Rows, bool Edge>
inline void block_lanes(const Tile& t, const Block& b, const Chain& chain, std::int64_t c, std::int64_t lanes) {
  constexpr int kPixelRows = (Rows - 1) * S + K;
  constexpr int kPixelColumns = (kColumns - 1) * S + K;
  const std::int64_t pixel = t.geometry->channels;
  const Vec start = t.bias == nullptr ? zero() : load_some(t.bias + c, lanes);
  const float* const weight = t.weight + c;
  Vec acc[Rows * kColumns];
#pragma GCC unroll 16
  for (int i = 0; i < Rows * kColumns; ++i) acc[i] = start;
#pragma GCC unroll 16
  for (int j = 0; j < kPixelRows; ++j) {
    if (j < b.rows.begin || j >= b.rows.end) continue;
    const float* const row = b.x + j * b.row_step + c;
#pragma GCC unroll 16
    for (int q = 0; q < kPixelColumns; ++q) {
      const bool there = !Edge || (q >= b.columns.begin && q < b.columns.end);
      const Vec v = load_some(there ? row + q * pixel : kZeros, lanes);
#pragma GCC unroll 2
      for (int r = 0; r < Rows; ++r) {
        const int ky = j - r * S;
        if (ky < 0 || ky >= K) continue;
#pragma GCC unroll 4
        for (int i = 0; i < kColumns; ++i) {
          const int kx = q - i * S;
          if (kx < 0 || kx >= K) continue;
          acc[r * kColumns + i] = fma(load(weight + (ky * K + kx) * t.weight_step), v, acc[r * kColumns + i]);
        }
      }
    }
  }
  finish(chain, acc);
#pragma GCC unroll 2
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kColumns; ++i) store_some(b.y + r * b.y_row_step + i * pixel + c, acc[r * kColumns + i], lanes);
  }
}

template <int K, int S, int Rows, bool Edge>
void block(const Tile& t, const Block& b, const Chain& chain) {
  const std::int64_t end = t.channel + t.channels;
  std::int64_t c = t.channel;
  for (; c + kLanes <= end; c += kLanes) block_lanes<K, S, Rows, Edge>(t, b, chain, c, kLanes);
  if (c < end) block_lanes<K, S, Rows, Edge>(t, b, chain, c, end - c);
}

// Rows x all columns. The last block overlaps the one before it: outputs written twice are the same both times.
template <int K, int S, int Rows>
void square_rows(const Tile& t, const Chain& chain, std::int64_t y) {
  const Geometry& g = *t.geometry;
  const std::int64_t y0 = y * S - g.pad_top;
  const Range rows = inside(y0, 1, (Rows - 1) * S + K, g.height);
  constexpr std::int64_t kPixelColumns = (kColumns - 1) * S + K;
  for (std::int64_t at = 0; at < g.out_width; at += kColumns) {
    const std::int64_t x = at + kColumns <= g.out_width ? at : g.out_width - kColumns;
    const std::int64_t x0 = x * S - g.pad_left;
    const Range columns = inside(x0, 1, kPixelColumns, g.width);
    const std::int64_t row_step = g.width * g.channels;
    const Block b = {t.x + y0 * row_step + x0 * g.channels, row_step, t.y + (y * g.out_width + x) * g.channels, g.out_width * g.channels,
                     rows, columns};
    if (columns.end - columns.begin == kPixelColumns) {
      block<K, S, Rows, false>(t, b, chain);
    } else {
      block<K, S, Rows, true>(t, b, chain);
    }
  }
}

template <int K, int S, int Rows>
void square(const Tile& t) {
  const Chain chain = split_chain(t.epilogue);
  std::int64_t y = t.row_begin;
  for (; y + Rows <= t.row_end; y += Rows) square_rows<K, S, Rows>(t, chain, y);
  if constexpr (Rows > 1) {
    for (; y < t.row_end; ++y) square_rows<K, S, 1>(t, chain, y);
  }
}

// Count outputs of a row whose taps (of `taps`, inside the image for all of them) begin at x.
template <int Count>
inline void any_lanes(const Tile& t, const float* x, float* y, Range rows, Range columns, const Chain& chain, std::int64_t c,
                      std::int64_t lanes) {
  const Geometry& g = *t.geometry;
  const Vec start = t.bias == nullptr ? zero() : load_some(t.bias + c, lanes);
  Vec acc[Count];
#pragma GCC unroll 4
  for (int i = 0; i < Count; ++i) acc[i] = start;
  for (std::int64_t ky = rows.begin; ky < rows.end; ++ky) {
    for (std::int64_t kx = columns.begin; kx < columns.end; ++kx) {
      const Vec w = load(t.weight + (ky * g.kernel_w + kx) * t.weight_step + c);
      const float* const from = x + (ky * g.dilation_h * g.width + kx * g.dilation_w) * g.channels + c;
#pragma GCC unroll 4
      for (int i = 0; i < Count; ++i) acc[i] = fma(w, load_some(from + i * g.stride_w * g.channels, lanes), acc[i]);
    }
  }
  finish(chain, acc);
#pragma GCC unroll 4
  for (int i = 0; i < Count; ++i) store_some(y + i * g.channels + c, acc[i], lanes);
}

template <int Count>
void any_outputs(const Tile& t, const float* x, float* y, Range rows, Range columns, const Chain& chain) {
  const std::int64_t end = t.channel + t.channels;
  std::int64_t c = t.channel;
  for (; c + kLanes <= end; c += kLanes) any_lanes<Count>(t, x, y, rows, columns, chain, c, kLanes);
  if (c < end) any_lanes<Count>(t, x, y, rows, columns, chain, c, end - c);
}

// Any kernel, stride and dilation.
void any(const Tile& t) {
  const Geometry& g = *t.geometry;
  const Chain chain = split_chain(t.epilogue);
  for (std::int64_t y = t.row_begin; y < t.row_end; ++y) {
    const std::int64_t y0 = y * g.stride_h - g.pad_top;
    const Range rows = inside(y0, g.dilation_h, g.kernel_h, g.height);
    for (std::int64_t x = 0; x < g.out_width;) {
      const std::int64_t x0 = x * g.stride_w - g.pad_left;
      const Range first = inside(x0, g.dilation_w, g.kernel_w, g.width);
      const Range last = inside(x0 + (kColumns - 1) * g.stride_w, g.dilation_w, g.kernel_w, g.width);
      const float* const from = t.x + (y0 * g.width + x0) * g.channels;
      float* const to = t.y + (y * g.out_width + x) * g.channels;
      if (x + kColumns <= g.out_width && first.begin == 0 && last.end == g.kernel_w) {
        any_outputs<kColumns>(t, from, to, rows, first, chain);
        x += kColumns;
      } else {
        any_outputs<1>(t, from, to, rows, first, chain);
        ++x;
      }
    }
  }
}

void run_channels(const Tile& t) {
  const Geometry& g = *t.geometry;
  const bool is_square = g.kernel_h == g.kernel_w && g.stride_h == g.stride_w && g.dilation_h == 1 && g.dilation_w == 1 && g.out_width >= kColumns;
  if (is_square && g.kernel_w == 3 && g.stride_w == 1) return square<3, 1, kTallRows>(t);
  if (is_square && g.kernel_w == 3 && g.stride_w == 2) return square<3, 2, 1>(t);
  if (is_square && g.kernel_w == 5 && g.stride_w == 1) return square<5, 1, kTallRows>(t);
  if (is_square && g.kernel_w == 5 && g.stride_w == 2) return square<5, 2, 1>(t);
  return any(t);
}

// Some channels of all pixels after the other, so that their taps and the rows that outputs share stay in L1.
void run(const Tile& t) {
  Tile part = t;
  const std::int64_t end = t.channel + t.channels;
  for (part.channel = t.channel; part.channel < end; part.channel += kChannels) {
    part.channels = end - part.channel < kChannels ? end - part.channel : kChannels;
    run_channels(part);
  }
}

}  // namespace

extern const simd_depthwise::Loops loops_depthwise;
const simd_depthwise::Loops loops_depthwise = {run};

}  // namespace evn::EVN_ISA
