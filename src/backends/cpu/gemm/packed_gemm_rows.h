// How gemm/packed_gemm_loops.cc reads A: micro-panels of rows that lie a constant distance apart, each row a few runs of k. Rows of
// a matrix and pixels well inside an image are read where they lie; pixels whose window leaves the image, or that stand in several
// lines of it, are copied. Included by gemm/packed_gemm_loops.cc only.
#pragma once

#include "backends/cpu/gemm/packed_gemm_loops.h"
#include "backends/cpu/simd/copy.h"

namespace evn::EVN_ISA {
namespace {

using simd_packed_gemm::Tile;
using simd_packed_gemm::Window;

// A run of k that lies together: `at` floats behind the row's begin.
struct Segment {
  std::int64_t at, count;
};
constexpr std::int64_t kShortRun = 8;  // below: pixels are always copied, so that runs of k are not short
constexpr int kMaxSegments = 72;
constexpr std::int64_t kFewestRows = 4;  // of panels that are kept this low rather than copied

// Whether the pixels under one line of the window lie together.
inline bool is_together(const Window& w) { return w.dilation_w == 1 && w.pixel == w.channels; }

inline bool has_short_runs(const Window& w) { return (is_together(w) ? w.kernel_w * w.channels : w.channels) < kShortRun; }

struct Panel {
  std::int32_t row, rows;  // in the block
  const float* a;          // begin of row 0; null: copied
};

// Position of an output row in its image.
struct Position {
  std::int64_t image, y, x;
};

inline Position position_of(const Window& w, std::int64_t row) {
  const std::int64_t line = row / w.out_width;
  return {line / w.out_height, line % w.out_height, row % w.out_width};
}

inline bool is_inside(const Window& w, const Position& p, std::int64_t rows) {
  const std::int64_t y = p.y * w.stride_h - w.pad_top;
  const std::int64_t x = p.x * w.stride_w - w.pad_left;
  return p.x + rows <= w.out_width && y >= 0 && x >= 0 && y + (w.kernel_h - 1) * w.dilation_h < w.height &&
         x + (rows - 1) * w.stride_w + (w.kernel_w - 1) * w.dilation_w < w.width;
}

// The rows of the first of the fewest panels of like size that `left` rows make.
inline std::int64_t even_rows(std::int64_t left, int mr) {
  const std::int64_t panels = (left + mr - 1) / mr;
  return (left + panels - 1) / panels;
}

// Cuts rows [row, row + m) of a matrix into panels of `mr` rows and what is left, in panels of at most `most`. Returns how many.
int cut_even_panels(const Tile& t, std::int64_t row, std::int64_t m, int mr, int most, Panel* panels) {
  int n = 0;
  for (std::int64_t r = 0; r < m; r += panels[n++].rows) {
    const std::int64_t rows = m - r >= mr ? mr : m - r < most ? m - r : most;
    panels[n] = {static_cast<std::int32_t>(r), static_cast<std::int32_t>(rows), t.a + (row + r) * t.lda};
  }
  return n;
}

// Cuts rows [row, row + m) of the tile into panels of at most `mr` rows. Returns how many.
int cut_panels(const Tile& t, std::int64_t row, std::int64_t m, int mr, bool few_columns, Panel* panels) {
  int n = 0;
  if (t.window == nullptr) {
    const auto count = static_cast<std::int32_t>((m + mr - 1) / mr);
    const std::int32_t rows = static_cast<std::int32_t>(m) / count;
    const std::int32_t larger = static_cast<std::int32_t>(m) % count;  // so many panels have one row more
    for (std::int32_t r = 0; n < count; r += panels[n++].rows)
      panels[n] = {r, rows + (n < larger ? 1 : 0), t.a + (row + r) * t.lda};
    return n;
  }
  const Window& w = *t.window;
  const bool short_runs = has_short_runs(w);
  // Panels end with the line; narrow lines are mostly copied anyway, but where nothing is outside and copies for few columns do not
  // pay.
  const bool is_all_inside = few_columns && w.pad_left == 0 && is_inside(w, {0, 0, 0}, w.out_width);
  const bool by_line = w.out_width >= (is_all_inside ? kFewestRows : 2 * mr);
  for (std::int64_t r = 0; r < m;) {
    const Position p = position_of(w, t.first_row + row + r);
    const std::int64_t left = by_line && m - r > w.out_width - p.x ? w.out_width - p.x : m - r;
    const std::int64_t rows = even_rows(left, mr);
    const bool copied = short_runs || !is_inside(w, p, rows);
    const float* const a =
        t.a + ((p.image * w.height + p.y * w.stride_h - w.pad_top) * w.width + p.x * w.stride_w - w.pad_left) * w.pixel;
    panels[n++] = {static_cast<std::int32_t>(r), static_cast<std::int32_t>(rows), copied ? nullptr : a};
    r += rows;
  }
  return n;
}

// The runs of k in [k0, k0 + kc) of a row that is read where it lies. Returns how many.
int find_segments(const Tile& t, std::int64_t k0, std::int64_t kc, Segment* segments) {
  if (t.window == nullptr) {
    segments[0] = {k0, kc};
    return 1;
  }
  const Window& w = *t.window;
  const std::int64_t taps = is_together(w) ? w.kernel_w : 1;  // of a run
  const std::int64_t run = taps * w.channels;
  int n = 0;
  for (std::int64_t k = k0; k < k0 + kc;) {
    const std::int64_t tap = k / run * taps;
    const std::int64_t at = k % run;
    const std::int64_t left = k0 + kc - k;
    const std::int64_t count = run - at < left ? run - at : left;
    const std::int64_t pixels = tap / w.kernel_w * w.dilation_h * w.width + tap % w.kernel_w * w.dilation_w;
    segments[n++] = {pixels * w.pixel + at, count};
    k += count;
  }
  return n;
}

// Copies floats [q0, q1) of the line of pixels that begins at x (which may lie outside), counted in channels of taps: the taps are
// neighbours and channels fill their pixels.
inline float* copy_line(float* to, const Window& w, const float* line, std::int64_t x, std::int64_t q0, std::int64_t q1) {
  std::int64_t low = x < 0 ? -x * w.channels : 0;
  std::int64_t high = (w.width - x) * w.channels;
  low = low < q0 ? q0 : low > q1 ? q1 : low;
  high = high < low ? low : high > q1 ? q1 : high;
  if (low > q0) zero_over(to, low - q0);
  if (high > low) copy_over(to + (low - q0), line + x * w.channels + low, high - low);
  if (q1 > high) zero_over(to + (high - q0), q1 - high);
  return to + (q1 - q0);
}

// Copies a line as copy_line does, tap by tap.
inline float* copy_taps(float* to, const Window& w, const float* line, std::int64_t x, std::int64_t q0, std::int64_t q1) {
  for (std::int64_t q = q0; q < q1;) {
    const std::int64_t tap = q / w.channels;
    const std::int64_t channel = q % w.channels;
    const std::int64_t count = w.channels - channel < q1 - q ? w.channels - channel : q1 - q;
    const std::int64_t ix = x + tap * w.dilation_w;
    if (ix < 0 || ix >= w.width) {
      zero_over(to, count);
    } else {
      copy_over(to, line + ix * w.pixel + channel, count);
    }
    to += count;
    q += count;
  }
  return to;
}

// A part of a block of k that belongs to one line of the window: floats [q0, q1) of it, counted in channels of taps.
struct LinePart {
  std::int64_t ky, q0, q1;
};

// The parts of [k0, k0 + kc), of which there are at most kc. Returns how many.
int find_line_parts(const Window& w, std::int64_t k0, std::int64_t kc, LinePart* parts) {
  const std::int64_t line_k = w.kernel_w * w.channels;
  int n = 0;
  std::int64_t ky = k0 / line_k;
  std::int64_t q0 = k0 % line_k;
  for (std::int64_t left = kc; left > 0; ++ky, q0 = 0) {
    const std::int64_t count = line_k - q0 < left ? line_k - q0 : left;
    parts[n++] = {ky, q0, q0 + count};
    left -= count;
  }
  return n;
}

// Writes those parts of k of the panel's rows to `to`, `step` floats apart. May write a vector beyond the end of a row.
void copy_panel(const Tile& t, std::int64_t row, const Panel& panel, const LinePart* parts, int part_count, float* to,
                std::int64_t step) {
  const Window& w = *t.window;
  const bool together = is_together(w);
  Position p = position_of(w, t.first_row + row + panel.row);
  for (std::int32_t r = 0; r < panel.rows; ++r, to += step) {
    const std::int64_t x = p.x * w.stride_w - w.pad_left;
    const std::int64_t y0 = p.y * w.stride_h - w.pad_top;
    const float* const image = t.a + p.image * w.height * w.width * w.pixel;
    float* at = to;
    if (together && is_inside(w, p, 1)) {
      const float* const from = image + (y0 * w.width + x) * w.pixel;
      for (int i = 0; i < part_count; ++i) {
        const LinePart& part = parts[i];
        copy_over(at, from + part.ky * w.dilation_h * w.width * w.pixel + part.q0, part.q1 - part.q0);
        at += part.q1 - part.q0;
      }
    } else {
      for (int i = 0; i < part_count; ++i) {
        const LinePart& part = parts[i];
        const std::int64_t y = y0 + part.ky * w.dilation_h;
        const float* const line = image + y * w.width * w.pixel;
        if (y < 0 || y >= w.height) {
          zero_over(at, part.q1 - part.q0);
          at += part.q1 - part.q0;
        } else {
          at = together ? copy_line(at, w, line, x, part.q0, part.q1) : copy_taps(at, w, line, x, part.q0, part.q1);
        }
      }
    }
    if (++p.x == w.out_width) {
      p.x = 0;
      if (++p.y == w.out_height) {
        p.y = 0;
        ++p.image;
      }
    }
  }
}

}  // namespace
}  // namespace evn::EVN_ISA
