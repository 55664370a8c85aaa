// Plain loops over numbers of several types that the compiler vectorizes for each cluster: conversions, comparisons, logic.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "core/dtype.h"

namespace evn::simd_numbers {

// y[i] from x[i]. y does not overlap x.
using EachFn = void (*)(const void* x, void* y, std::int64_t n);
// y[i] from x[i] and z[i].
using PairFn = void (*)(const void* x, const void* z, std::uint8_t* y, std::int64_t n);

struct Conversion {
  DType from, to;
  EachFn run;
};

struct Comparisons {
  PairFn float32, int32, int64;
};

// A float is one of the infinities that are looked for if its bits, of which only those of `mask` and all of `none` count, are
// `wanted`.
struct Infinities {
  std::uint32_t mask, none, wanted;
};

struct Loops {
  // As ops/cast.cc says: towards zero, the nearest end of the range, NaN to 0; integers modulo 2^bits.
  Conversion conversions[15];
  // Bools from numbers, and from bools: any byte but 0 is true.
  Comparisons equal, less, less_or_equal;
  PairFn logic_and, logic_or, logic_xor;
  EachFn logic_not;
  EachFn is_nan;  // of float32
  void (*is_inf)(const Infinities& wanted, const void* x, void* y, std::int64_t n);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_numbers
