// Conv of few input channels, as the first layer of a network has: plain pixels in, channels last out. Vectors run over output
// channels; one float of a line of pixels serves them all, and a tap's vectors serve a run of outputs. Lines are copied with their
// padding, each once, into a ring of as many as the kernel is high, so that nothing inside asks where the image ends.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"
#include "core/epilogue.h"

namespace evn::simd_few_channels {

struct Geometry {
  std::int64_t channels, height, width;
  std::int64_t out_channels, out_height, out_width;
  std::int64_t kernel_h, kernel_w;
  std::int64_t stride_h, stride_w;  // stride_w: 1 or 2
  std::int64_t pad_top, pad_left;
  std::int64_t out_pixel;  // floats from one output position to the next
};

inline constexpr std::int64_t kMaxLines = 64;  // channels times the kernel's height

// Some rows of the output of one image.
struct Tile {
  const Geometry* geometry;
  const float* x;  // of the image, plain
  float* y;        // of the image, channels last
  std::int64_t row_begin, row_end;
  const float* weight;       // panels of panel_lanes output channels, the last one of whole vectors: [panel][channel][ky][kx][lane]
  const float* bias;         // per channel; may be null
  const Epilogue* epilogue;  // may be null
  float* lines;              // channels * kernel_h * line_floats, aligned to 64
  CancelPoints* points;      // null: none
};

struct Loops {
  int lanes, panel_lanes;
  int columns;  // outputs of a line that are computed together
  // Each output is a chain of multiply-adds over channels and taps, those outside the image as zeros, from its bias on.
  void (*run)(const Tile&);
};
const Loops& loops(Isa isa);

// Floats of a copied line, and from one to the next: copies may write a vector beyond their end.
static inline std::int64_t used_floats(int columns, const Geometry& g) {
  const std::int64_t outputs = (g.out_width + columns - 1) / columns * columns;
  return (outputs - 1) * g.stride_w + g.kernel_w;
}
static inline std::int64_t line_floats(int columns, const Geometry& g) { return (used_floats(columns, g) + 31) / 16 * 16; }

}  // namespace evn::simd_few_channels
