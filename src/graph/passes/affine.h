// What batch normalization and arithmetic with constants do to each channel.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/graph.h"

namespace evn {

// y[c] = scale[c] * x[c] + shift[c].
struct Affine {
  std::vector<double> scale;
  std::vector<double> shift;

  bool is_finite() const;
  bool scales() const;
};

// Returns true if a finite number `from` has become infinite or NaN, or a normal one subnormal or 0.
inline bool is_lost(float from, float to) {
  return std::isfinite(from) && (!std::isfinite(to) || (std::isnormal(from) && !std::isnormal(to)));
}

// What a BatchNormalization with constants does after *affine. False, with *affine as it was: it is no such node.
bool compose_batch_norm(const Graph& graph, const Node& node, std::int64_t channels, Affine* affine);

}  // namespace evn
