// Element types that NumPy lacks. Arrays have them as wider numbers (float32, int8, uint8), or as raw bits, as ml_dtypes saves
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "evener/evener.h"

namespace evn::cli {

struct NarrowType {
  evn_dtype dtype;
  evn_dtype wide;  // the element type of NumPy's that has all its values
  int bits;        // of an element; elements of less than 8 bits share a byte, the first in its lowest bits
  // Fields of floating-point types:
  int mantissa;           // bits
  int bias;               // of the exponent
  std::uint32_t last;     // bits of the largest finite number
  std::int64_t infinity;  // bits; -1: the type has none
  std::int64_t nan;       // bits; -1: the type has none
};

// nullptr if NumPy has the type, or if its elements are no numbers.
const NarrowType* find_narrow(evn_dtype dtype);

double narrow_value(const NarrowType& type, std::uint32_t bits);

// Bits of the nearest number of the type, or of the even one of two; nothing if the value is out of the type's range.
std::optional<std::uint32_t> narrow_bits(const NarrowType& type, double value);

// Bits of element `index` of a tensor's bytes.
std::uint32_t narrow_at(const NarrowType& type, const void* data, std::size_t index);

// Sets element `index` of bytes that are 0 there.
void set_narrow(const NarrowType& type, void* data, std::size_t index, std::uint32_t bits);

// Bytes of a tensor of `count` elements.
std::size_t narrow_size(const NarrowType& type, std::size_t count);

// The elements of a tensor as `type.wide`.
std::vector<unsigned char> widened(const NarrowType& type, const void* data, std::size_t count);

}  // namespace evn::cli
