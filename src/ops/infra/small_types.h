// The formats of 8 bits and less that only Cast and quantization compute with: floating point without the usual room for infinities
// (Micikevicius et al., "FP8 Formats for Deep Learning", 2022; "OCP Microscaling Formats", 2023), and integers of 4 and 2 bits.
#pragma once

#include "core/dtype.h"

namespace evn {

// How a number that a format does not have becomes one that it has.
enum class Rounding { kNearestEven, kUp, kDown };  // kUp, kDown: float8e8m0 only

bool is_small_type(DType dtype);     // one of this file's
bool is_small_integer(DType dtype);  // uint4, int4, uint2, int2

// Element `i` of a tensor.
double small_value(DType dtype, const void* data, std::int64_t i);

// Writes element `i`. Floating formats: to nearest, ties to even; a number beyond the largest finite one becomes that one with
// `saturate`, else infinity or NaN, whichever the format has; float4e2m1 always saturates, and NaN becomes -0.
// float8e8m0 has powers of two only: it rounds as `rounding` says, and numbers below its smallest become that with `saturate`, else
// NaN. Integers: towards zero; outside of the range the nearest end of it; NaN is 0. Neighbours in the same byte stay.
void set_small_value(DType dtype, void* data, std::int64_t i, double x, bool saturate, Rounding rounding);

// Sets what is left of the last byte after `count` elements to 0. Every tensor that is written element by element ends with this.
void clear_rest(DType dtype, void* data, std::int64_t count);

// The bits of element `i`, in the lowest ones; and the other way around, of x as many of the lowest as an element has.
std::uint8_t small_bits(DType dtype, const void* data, std::int64_t i);
void set_small_bits(DType dtype, void* data, std::int64_t i, std::uint64_t x);

}  // namespace evn
