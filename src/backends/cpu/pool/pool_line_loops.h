// One line of a pool's output. A window is a product of axes: the input lines under it are joined element by element into one,
// which is taken apart by the stride on the way, and that line's taps are then runs of whole vectors. Narrow windows are read from
// the input.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"

namespace evn::simd_pool_line {

// The innermost axis, and where the joined line lies: phase f of it holds the padded positions f, f + stride, ...
struct Geometry {
  std::int64_t stride, pad;  // pad: at the beginning
  std::int64_t used;         // elements of an input line that some window reaches
  std::int64_t kernel;
  const std::int64_t* taps;     // where tap k of output 0 lies among the phases
  std::int64_t phases, length;  // elements of a phase
  float* joined;                // the phases, filled with what padding counts as
};

// A narrow window, whose lines need not be joined beforehand: two or three taps side by side, and a stride of two. Outputs
// [begin, end) of a line, at least `lanes` of them, have all taps inside the input.
struct Narrow {
  std::int64_t kernel, pad, input, output, begin, end;
  std::int64_t row_step;   // floats from a line under a window to the next
  std::int64_t line_step;  // from the first line under the windows of an output line to that of the next
};

struct Loops {
  int lanes;
  // Elements [begin, end) of the joined line, begin a multiple of 2 * lanes: the maximum, or the sum, of so many lines. join_max
  // returns whether there may be a NaN among the elements.
  bool (*join_max)(const Geometry& g, const float* const* lines, std::int64_t count, std::int64_t begin, std::int64_t end);
  void (*join_sum)(const Geometry& g, const float* const* lines, std::int64_t count, std::int64_t begin, std::int64_t end);
  // Outputs [begin, end) from the joined line: the maximum of the taps, or their sum divided by scale * divisors[i], 0 where that
  // is 0. `nan`: there may be one in the joined line.
  void (*max)(const Geometry& g, bool nan, float* y, std::int64_t begin, std::int64_t end);
  void (*average)(const Geometry& g, float scale, const float* divisors, float* y, std::int64_t begin, std::int64_t end);
  // So many output lines of narrow windows over `rows` lines each, the first of which is x. The same bits as those of join_max and
  // max, join_sum and average. narrow_max gives how many lines it computed: it ends at one where there may be a NaN. Null in the
  // cluster for machines without AVX2.
  std::int64_t (*narrow_max)(const Narrow& g, const float* x, std::int64_t rows, float* y, std::int64_t lines);
  void (*narrow_average)(const Narrow& g, const float* x, std::int64_t rows, float scale, const float* divisors, float* y,
                         std::int64_t lines);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_pool_line
