// Depthwise convolution of values that lie channels last: vectors run over channels, so that a tap is one multiply-add of a pixel's
// vector with the tap's. The usual kernels go along some rows at once and load each pixel once for all outputs that see it.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"
#include "core/epilogue.h"

namespace evn::simd_depthwise {

struct Geometry {
  std::int64_t height, width, channels;
  std::int64_t out_height, out_width;
  std::int64_t kernel_h, kernel_w;
  std::int64_t stride_h, stride_w;
  std::int64_t dilation_h, dilation_w;
  std::int64_t pad_top, pad_left;
  std::int64_t pixel, out_pixel;  // floats from one position to the next
};

// Some rows and channels of the output of one image.
struct Tile {
  const Geometry* geometry;
  const float* x;  // of the image
  float* y;        // of the image
  std::int64_t row_begin, row_end;
  std::int64_t channel, channels;  // the first, a multiple of kPackedLanes, and how many
  const float* weight;             // packed: [taps][weight_step]
  std::int64_t weight_step;
  const float* bias;  // per channel; may be null
  const Epilogue* epilogue;
  CancelPoints* points;  // null: none
};

inline constexpr std::int64_t kPackedLanes =
    16;  // channels of the packed weight are padded to a multiple, the same in all clusters

inline constexpr std::int64_t kRowsTogether = 4;  // rows of outputs that share pixels: those of a tile should be a multiple

struct Loops {
  // Each output is a chain of multiply-adds over its taps inside the image, from its bias on, in an order that the kernel's size
  // and steps alone decide.
  void (*run)(const Tile&);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_depthwise
