// What kernels/tiled.cl has for GPUs: tiles of products and convolutions, of 128, 64 and 32 rows and columns.
#pragma once

#include "backends/opencl/launcher.h"

namespace evn {

struct TiledFunctions {
  struct Sized {
    std::int64_t side;
    OpenClFunction function;
  };
  Sized sized[3];  // the largest first
};

// Enqueues the largest tiles that leave no compute unit without one, else the smallest. `products`: of the batch; `counted` of them
// count for that, where results must not depend on how many there are.
template <typename... Args>
void run_tiled(Launcher& cl, const TiledFunctions& tiled, std::int64_t m, std::int64_t n, std::int64_t products,
               std::int64_t counted, const Args&... args) {
  for (const TiledFunctions::Sized& s : tiled.sized) {
    const std::int64_t tiles = checked_mul(ceil_div(m, s.side), ceil_div(n, s.side));
    if (&s != &tiled.sized[2] && checked_mul(tiles, counted) < cl.compute_units()) continue;
    cl.run(s.function, {checked_mul(tiles, static_cast<std::int64_t>(s.function.group)), products}, args...);
    return;
  }
}

}  // namespace evn
