// Four bytes of each of some columns side by side: the k4 interleave of int8 products. Bytes of a column lie together.
#pragma once

#include <cstdint>

namespace evn {

inline constexpr int kInterleaved = 4;  // columns at a time

// `units` of four bytes of up to kInterleaved columns, one of each side by side; what a column that is not there (null) would have
// is 0. `step`: bytes from a unit of the first column to its next one.
void interleave_columns(const std::uint8_t* const (&columns)[kInterleaved], std::int64_t units, std::int64_t step,
                        std::uint8_t* to);

// Flips the highest bit of bytes, if wanted, and returns the sum of what they are as int8 then, modulo 2^32.
std::uint32_t flip_and_sum(std::uint8_t* bytes, std::int64_t n, bool flip);

}  // namespace evn
