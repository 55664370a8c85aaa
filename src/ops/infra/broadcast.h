// Operators of two broadcast inputs, element by element: one walk for all of them, around a loop for each type and operation.
#pragma once

#include <algorithm>

#include "ops/op.h"

namespace evn {

// y[i] = f(a[i * a_step], b[i * b_step]). Steps are 0 or 1. The output may be one of the inputs.
using PairLoop = void (*)(void* y, const void* a, std::int64_t a_step, const void* b, std::int64_t b_step, std::int64_t count);

// Runs the loop over the elements of the context's parts. Each element is a part.
void apply_pairs(const ReferenceContext& c, PairLoop loop);
std::int64_t parts_of_pairs(const ReferenceContext& c);

// How the elements of dense inputs are taken: one by one, four at a time, or by vectors, where the processor has instructions for
// what is done. As the output may be an input, a vector is computed before it is written.
enum class Pairs { kSingle, kFour, kVector };

// F is a stateless function.
template <Pairs kPairs, typename Y, typename A, typename B, typename F>
void pair_loop(void* to, const void* from_a, std::int64_t a_step, const void* from_b, std::int64_t b_step, std::int64_t count) {
  Y* const y = static_cast<Y*>(to);
  const A* a = static_cast<const A*>(from_a);
  const B* b = static_cast<const B*>(from_b);
  std::int64_t i = 0;
  if (a_step == 1 && b_step == 1) {
    if constexpr (kPairs == Pairs::kVector) {
      constexpr auto kSome = static_cast<std::int64_t>(16 / std::max(sizeof(Y), sizeof(A)));
      for (; count - i >= kSome; i += kSome) {
        Y some[kSome];
        for (std::int64_t n = 0; n < kSome; ++n) some[n] = static_cast<Y>(F{}(a[i + n], b[i + n]));
        std::copy_n(some, kSome, y + i);
      }
    }
    if constexpr (kPairs == Pairs::kFour) {
      for (; count - i >= 4; i += 4) {
        y[i] = static_cast<Y>(F{}(a[i], b[i]));
        y[i + 1] = static_cast<Y>(F{}(a[i + 1], b[i + 1]));
        y[i + 2] = static_cast<Y>(F{}(a[i + 2], b[i + 2]));
        y[i + 3] = static_cast<Y>(F{}(a[i + 3], b[i + 3]));
      }
    }
    for (; i < count; ++i) y[i] = static_cast<Y>(F{}(a[i], b[i]));
    return;
  }
  for (; i < count; ++i, a += a_step, b += b_step) y[i] = static_cast<Y>(F{}(*a, *b));
}

}  // namespace evn
