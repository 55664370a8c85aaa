// RotaryEmbedding's turn of one head at one position.
#pragma once

#include <cstdint>

#include "base/cancel.h"

namespace evn {

// y: the pairs of the first 2 * pairs elements of x, halves or with `interleaved` neighbours, turned by the angles of a position;
// the other elements up to `depth` as they are. y may be x.
template <typename T, typename Angle>
void turn_pairs(const T* x, T* y, std::int64_t depth, const Angle* cosines, const Angle* sines, std::int64_t pairs,
                bool interleaved) {
  for (std::int64_t p = 0; p < pairs; ++p) {
    cancellation_point();
    const auto cosine = static_cast<double>(cosines[p]);
    const auto sine = static_cast<double>(sines[p]);
    const std::int64_t first = interleaved ? 2 * p : p;
    const std::int64_t second = interleaved ? 2 * p + 1 : p + pairs;
    const auto a = static_cast<double>(x[first]);
    const auto b = static_cast<double>(x[second]);
    y[first] = static_cast<T>(cosine * a - sine * b);
    y[second] = static_cast<T>(sine * a + cosine * b);
  }
  for (std::int64_t d = 2 * pairs; d < depth; ++d) {
    cancellation_point();
    y[d] = x[d];
  }
}

}  // namespace evn
