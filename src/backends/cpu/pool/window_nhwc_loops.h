// Maximum and average under sliding windows of values that lie channels last: vectors run over channels.
#pragma once

#include "backends/cpu/pool/window_loops.h"

namespace evn::simd_window_nhwc {

// Some rows of the output of one image.
struct Strip {
  const simd_window::Geometry* geometry;
  std::int64_t channels, pixel, out_pixel;  // floats from one position to the next
  const float* image;
  float* out;  // of row_begin
  std::int64_t row_begin, row_end;
  bool include_pad;  // average: padding counts
  const Epilogue* epilogue;
  CancelPoints* points;  // null: none
};

struct Loops {
  void (*max)(const Strip&);
  void (*average)(const Strip&);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_window_nhwc
