// How arithmetic of two broadcast inputs is cut: axes along which both inputs move alike are merged, so that same shapes, scalars,
// per-channel and trailing vectors all become a few axes around one inner loop, in any layout.
#pragma once

#include <algorithm>

#include "backends/cpu/isa.h"
#include "backends/cpu/support.h"

namespace evn {

struct BroadcastState {
  Isa isa;
  std::int32_t rank;  // of the merged axes, at least 1; axis 0 is the innermost
  std::int64_t count;
  std::int64_t dims[kMaxRank], x_step[kMaxRank], z_step[kMaxRank], y_step[kMaxRank];
};

// For the inputs of these numbers.
void plan_broadcast(const OpDesc& d, int x, int z, BroadcastState* s);

// Calls f(x, z, y, n, rows) for runs of n elements of the output's elements [at, last): where each begins, in elements; steps
// within a run are those of axis 0, and `rows` like runs follow each other with the steps of axis 1.
template <typename F>
void for_each_run(const BroadcastState& s, std::int64_t at, std::int64_t last, F&& f) {
  const std::int64_t inner = s.dims[0];
  while (at < last) {
    const std::int64_t start = at % inner;
    std::int64_t row = at / inner, rows = 1;
    if (start == 0 && s.rank > 1) rows = std::max<std::int64_t>(std::min((last - at) / inner, s.dims[1] - row % s.dims[1]), 1);
    std::int64_t x = start * s.x_step[0], z = start * s.z_step[0], y = start;
    for (int i = 1; i < s.rank; ++i) {
      x += row % s.dims[i] * s.x_step[i];
      z += row % s.dims[i] * s.z_step[i];
      y += row % s.dims[i] * s.y_step[i];
      row /= s.dims[i];
    }
    const std::int64_t n = std::min(last - at, inner - start);
    f(x, z, y, n, rows);
    at += n * rows;
  }
}

}  // namespace evn
