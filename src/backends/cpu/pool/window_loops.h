// Depthwise convolution of one plane. Some output rows (a strip) at a time; the input rows
// that they need are first copied into a padded buffer, de-interleaved by the stride, so that each tap is a run of whole vectors.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"
#include "core/epilogue.h"

namespace evn::simd_window {

struct Geometry {
  std::int64_t height, width;  // of the input plane
  std::int64_t out_height, out_width;
  std::int64_t kernel_h, kernel_w;
  std::int64_t stride_h, stride_w;
  std::int64_t dilation_h, dilation_w;
  std::int64_t pad_top, pad_left, pad_bottom, pad_right;
};

struct Strip {
  const Geometry* geometry;
  const float* plane;
  std::int64_t row_begin, row_end;  // of the output
  float* out;                       // of row_begin
  const float* weight;              // kernel_h x kernel_w
  float bias;
  const Epilogue* epilogue;
  float* buffer;         // buffer_floats, aligned to 64, prepared for the geometry
  CancelPoints* points;  // null: none
};

struct Loops {
  int lanes;
  // Writes the tables at the start of the buffer; once for any number of strips.
  void (*prepare)(const Geometry& geometry, float* buffer, CancelPoints* points);
  void (*depthwise)(const Strip&);
};
const Loops& loops(Isa isa);

// Floats of one padded row in the buffer: stride_w phases of the same length.
static inline std::int64_t phase_floats(const Geometry& g, int lanes) {
  const std::int64_t beyond = (g.kernel_w - 1) * g.dilation_w / g.stride_w + 1;
  return ((g.out_width + lanes - 1) / lanes * lanes + beyond + lanes - 1) / lanes * lanes;
}
static inline std::int64_t row_floats(const Geometry& g, int lanes) { return phase_floats(g, lanes) * g.stride_w; }
static inline std::int64_t buffer_rows(const Geometry& g, std::int64_t out_rows) {
  return (out_rows - 1) * g.stride_h + (g.kernel_h - 1) * g.dilation_h + 1;
}
// The tables: 64-bit offsets of the taps and bounds of the phases.
static inline std::int64_t table_floats(const Geometry& g, int lanes) {
  const std::int64_t words = 2 * (g.kernel_h * g.kernel_w + 2 * g.stride_w);
  return (words + lanes - 1) / lanes * lanes;
}
static inline std::int64_t buffer_floats(const Geometry& g, int lanes, std::int64_t out_rows) {
  return table_floats(g, lanes) + buffer_rows(g, out_rows) * row_floats(g, lanes) + lanes;
}

}  // namespace evn::simd_window
