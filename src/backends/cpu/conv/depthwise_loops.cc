#include "backends/cpu/conv/depthwise_loops.h"

#include "backends/cpu/simd/finish.h"
#include "backends/cpu/simd/taps.h"

namespace evn::EVN_ISA {
namespace {

using simd_depthwise::Geometry;
using simd_depthwise::Tile;

// Rows of outputs that are computed together, by the height of the kernel.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTall3 = 4, kTall5 = 2;
#else
constexpr int kTall3 = 2, kTall5 = 2;  // 16 registers
#endif
static_assert(simd_depthwise::kRowsTogether % kTall3 == 0 && simd_depthwise::kRowsTogether % kTall5 == 0);
constexpr std::int64_t kMostWork = 1 << 17;  // between two cancellation points
constexpr std::int64_t kWidth = 512;         // outputs of a row between two cancellation points
constexpr int kColumns = 4;                  // outputs of a row that the kernel for any geometry computes together

// Rows of outputs and kLanes channels of them, or fewer. Rows of pixels are numbered from the first tap of the first row of
// outputs.
struct Band {
  const float* x;               // column 0 of pixel row 0, which may be outside the image
  std::int64_t row_step;        // floats from one row of pixels to the next
  std::int64_t pixel, y_pixel;  // floats from one pixel to the next
  std::int64_t width, pad_left;
  Range rows;  // of pixels inside the image
  float* y;
  std::int64_t y_row_step, out_width;
  const float* weight;
  std::int64_t weight_step, lanes;
  Vec bias;
};

// Goes along the rows. A pixel is loaded once, for all the outputs that see it: those of Rows rows and of kSlots places of a row,
// whose sums are all in registers. A sum is over columns of taps, from top to bottom in each, and taps outside the image are left
// out.
template <int K, int SH, int SW, int Rows, bool Whole>
void run_band(const Band& b, const Chain& chain) {
  constexpr int kSlots = (K + SW - 1) / SW;  // outputs of a row that see a column of pixels
  constexpr int kPixelRows = (Rows - 1) * SH + K;
  Vec w[K * K];
#pragma GCC unroll 25
  for (int i = 0; i < K * K; ++i) w[i] = load(b.weight + i * b.weight_step);
  Vec acc[Rows][kSlots];  // of outputs n, n - 1, ...
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 5
    for (int i = 0; i < kSlots; ++i) acc[r][i] = b.bias;
  }
  for (std::int64_t n = 0; n < b.out_width + kSlots - 1; ++n) {
#pragma GCC unroll 2
    for (int d = 0; d < SW; ++d) {
      const std::int64_t q = n * SW + d - b.pad_left;
      if (q < 0 || q >= b.width) continue;
      const float* const column = b.x + q * b.pixel;
#pragma GCC unroll 16
      for (int j = 0; j < kPixelRows; ++j) {
        if (j < b.rows.begin || j >= b.rows.end) continue;
        const Vec v = Whole ? load(column + j * b.row_step) : load_n(column + j * b.row_step, b.lanes);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          const int ky = j - r * SH;
          if (ky < 0 || ky >= K) continue;
#pragma GCC unroll 5
          for (int i = 0; i < kSlots; ++i) {
            if (i * SW + d < K) acc[r][i] = fma(w[ky * K + i * SW + d], v, acc[r][i]);
          }
        }
      }
    }
    if (n >= kSlots - 1) {
      float* const y = b.y + (n - kSlots + 1) * b.y_pixel;
      const Chain* end = &chain;
      __asm__("" : "+r"(end));  // its numbers are loaded here each time: registers are for taps
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        Vec v = bounded(*end, acc[r][kSlots - 1]);
        if (end->gate.is_rest) v = gated(end->gate, v);
        if (Whole) {
          store(y + r * b.y_row_step, v);
        } else {
          store_n(y + r * b.y_row_step, v, b.lanes);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 5
      for (int i = kSlots - 1; i > 0; --i) acc[r][i] = acc[r][i - 1];
      acc[r][0] = b.bias;
    }
  }
  if (chain.rest_count == 0 || chain.gate.is_rest) return;
  for (int r = 0; r < Rows; ++r) apply_rest(chain, b.y + r * b.y_row_step, b.out_width, b.y_pixel, b.lanes);
}

// Computes outputs [x, x + width) of Rows rows. A part that begins within a row reads the pixels that its first outputs share with
// the part before it once more.
template <int K, int SH, int SW, int Rows>
void run_rows(const Tile& t, const Chain& chain, std::int64_t y, std::int64_t x, std::int64_t width) {
  const Geometry& g = *t.geometry;
  const std::int64_t y0 = y * SH - g.pad_top;
  Band b{};
  b.row_step = g.width * g.pixel;
  b.pixel = g.pixel;
  b.y_pixel = g.out_pixel;
  b.width = g.width;
  b.pad_left = g.pad_left - x * SW;
  b.rows = inside(y0, 1, (Rows - 1) * SH + K, g.height);
  b.y_row_step = g.out_width * g.out_pixel;
  b.out_width = width;
  b.weight_step = t.weight_step;
  const std::int64_t end = t.channel + t.channels;
  for (std::int64_t c = t.channel; c < end; c += kLanes) {
    if (stops(t.points, width * Rows * K * K * kLanes)) return;
    b.x = t.x + y0 * b.row_step + c;
    b.y = t.y + y * b.y_row_step + x * b.y_pixel + c;
    b.weight = t.weight + c;
    b.lanes = end - c < kLanes ? end - c : kLanes;
    b.bias = t.bias == nullptr ? zero() : load_some(t.bias + c, b.lanes);
    if (b.lanes == kLanes) {
      run_band<K, SH, SW, Rows, true>(b, chain);
    } else {
      run_band<K, SH, SW, Rows, false>(b, chain);
    }
  }
}

template <int K, int SH, int SW>
void square(const Tile& t) {
  constexpr int kTall = K == 3 ? kTall3 : kTall5;
  const Chain chain = split_chain(t.epilogue);
  const std::int64_t all = t.geometry->out_width;
  for (std::int64_t x = 0, width = 0; x < all; x += width) {
    width = all - x < kWidth + kWidth / 2 ? all - x : kWidth;
    std::int64_t y = t.row_begin;
    for (; y + kTall <= t.row_end; y += kTall) run_rows<K, SH, SW, kTall>(t, chain, y, x, width);
    if constexpr (kTall > 2) {
      for (; y + 2 <= t.row_end; y += 2) run_rows<K, SH, SW, 2>(t, chain, y, x, width);
    }
    for (; y < t.row_end; ++y) run_rows<K, SH, SW, 1>(t, chain, y, x, width);
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
      const float* const from = x + (ky * g.dilation_h * g.width + kx * g.dilation_w) * g.pixel + c;
#pragma GCC unroll 4
      for (int i = 0; i < Count; ++i) acc[i] = fma(w, load_some(from + i * g.stride_w * g.pixel, lanes), acc[i]);
    }
  }
  finish(chain, acc);
#pragma GCC unroll 4
  for (int i = 0; i < Count; ++i) store_some(y + i * g.out_pixel + c, acc[i], lanes);
}

// Returns false if the run is to stop.
template <int Count>
bool any_outputs(const Tile& t, const float* x, float* y, Range rows, Range columns, const Chain& chain) {
  const std::int64_t end = t.channel + t.channels;
  std::int64_t c = t.channel;
  const std::int64_t work = Count * (rows.end - rows.begin) * (columns.end - columns.begin) + 1;  // of a channel
  const std::int64_t at_once = t.channels * work < kMostWork ? t.channels : kLanes;
  if (stops(t.points, at_once * work)) return false;
  for (; c + kLanes <= end; c += kLanes) {
    if (at_once < t.channels && stops(t.points, at_once * work)) return false;
    any_lanes<Count>(t, x, y, rows, columns, chain, c, kLanes);
  }
  if (c < end) any_lanes<Count>(t, x, y, rows, columns, chain, c, end - c);
  return true;
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
      const float* const from = t.x + (y0 * g.width + x0) * g.pixel;
      float* const to = t.y + (y * g.out_width + x) * g.out_pixel;
      if (x + kColumns <= g.out_width && first.begin == 0 && last.end == g.kernel_w) {
        if (!any_outputs<kColumns>(t, from, to, rows, first, chain)) return;
        x += kColumns;
      } else {
        if (!any_outputs<1>(t, from, to, rows, first, chain)) return;
        ++x;
      }
    }
  }
}

// Outputs of a row that the kernel for wide windows computes together: with its taps they fit into 16 registers.
constexpr int kWide = 7;

// kWide outputs of a row, of which `count` are stored, for windows whose K taps of a row lie side by side, with a stride of one: a
// pixel is loaded once for all of them. `x` is tap 0 of the first one's first row; of the columns of pixels from there on, `inside`
// are in the image.
template <int K>
inline void wide_vector(const Tile& t, const float* x, Range rows, Range inside, std::int64_t c, std::int64_t lanes, float* y,
                        std::int64_t count, const Chain& chain) {
  const Geometry& g = *t.geometry;
  const Vec start = t.bias == nullptr ? zero() : load_some(t.bias + c, lanes);
  Vec acc[kWide];
#pragma GCC unroll 8
  for (int i = 0; i < kWide; ++i) acc[i] = start;
  for (std::int64_t ky = rows.begin; ky < rows.end; ++ky) {
    const float* const weight = t.weight + ky * K * t.weight_step + c;
    const float* const from = x + ky * g.dilation_h * g.width * g.pixel;
    Vec w[K];
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) w[k] = load(weight + k * t.weight_step);
#pragma GCC unroll 16
    for (int p = 0; p < kWide + K - 1; ++p) {
      if (p < inside.begin || p >= inside.end) continue;
      const Vec v = load_n(from + p * g.pixel, lanes);
#pragma GCC unroll 8
      for (int i = 0; i < kWide; ++i) {
        if (p >= i && p - i < K) acc[i] = fma(w[p - i], v, acc[i]);
      }
    }
  }
  finish(chain, acc);
#pragma GCC unroll 8
  for (int i = 0; i < kWide; ++i) {
    if (i < count) store_some(y + i * g.out_pixel, acc[i], lanes);
  }
}

// All rows of kLanes channels in turn: the pixels that rows share stay in the first cache.
template <int K>
[[maybe_unused]] void wide(const Tile& t) {
  const Geometry& g = *t.geometry;
  const Chain chain = split_chain(t.epilogue);
  const std::int64_t end = t.channel + t.channels;
  for (std::int64_t c = t.channel; c < end; c += kLanes) {
    const std::int64_t lanes = end - c < kLanes ? end - c : kLanes;
    for (std::int64_t y = t.row_begin; y < t.row_end; ++y) {
      const std::int64_t y0 = y * g.stride_h - g.pad_top;
      const Range rows = inside(y0, g.dilation_h, g.kernel_h, g.height);
      for (std::int64_t x = 0; x < g.out_width; x += kWide) {
        if (stops(t.points, (rows.end - rows.begin) * K * kWide * kLanes + kFarElement)) return;
        const std::int64_t x0 = x - g.pad_left;
        wide_vector<K>(t, t.x + (y0 * g.width + x0) * g.pixel + c, rows, inside(x0, 1, kWide + K - 1, g.width), c, lanes,
                       t.y + (y * g.out_width + x) * g.out_pixel + c, g.out_width - x, chain);
      }
    }
  }
}

template <int K>
[[maybe_unused]] void square(const Tile& t) {
  const Geometry& g = *t.geometry;
  if (g.stride_h == 1) return g.stride_w == 1 ? square<K, 1, 1>(t) : square<K, 1, 2>(t);
  return g.stride_w == 1 ? square<K, 2, 1>(t) : square<K, 2, 2>(t);
}

void run(const Tile& t) {
#if !defined(EVN_SMALL_CLUSTER)
  const Geometry& g = *t.geometry;
  const bool is_square = g.kernel_h == g.kernel_w && g.dilation_h == 1 && g.dilation_w == 1 && g.stride_h <= 2 && g.stride_w <= 2;
  if (is_square && g.kernel_w == 3) return square<3>(t);
  if (is_square && g.kernel_w == 5) return square<5>(t);
  if (g.kernel_w == 7 && g.dilation_w == 1 && g.stride_w == 1) return wide<7>(t);
#endif
  any(t);
}

}  // namespace

extern const simd_depthwise::Loops loops_depthwise;
const simd_depthwise::Loops loops_depthwise = {run};

}  // namespace evn::EVN_ISA
