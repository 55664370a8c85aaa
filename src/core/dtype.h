// Element types: names and sizes. The numbers are the public header's, which are ONNX's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evener/evener.h"

namespace evn {

enum class DType : std::int32_t {
  kUndefined = EVN_DTYPE_UNDEFINED,
  kFloat32 = EVN_DTYPE_FLOAT32,
  kUint8 = EVN_DTYPE_UINT8,
  kInt8 = EVN_DTYPE_INT8,
  kUint16 = EVN_DTYPE_UINT16,
  kInt16 = EVN_DTYPE_INT16,
  kInt32 = EVN_DTYPE_INT32,
  kInt64 = EVN_DTYPE_INT64,
  kString = EVN_DTYPE_STRING,
  kBool = EVN_DTYPE_BOOL,
  kFloat16 = EVN_DTYPE_FLOAT16,
  kFloat64 = EVN_DTYPE_FLOAT64,
  kUint32 = EVN_DTYPE_UINT32,
  kUint64 = EVN_DTYPE_UINT64,
  kComplex64 = EVN_DTYPE_COMPLEX64,
  kComplex128 = EVN_DTYPE_COMPLEX128,
  kBfloat16 = EVN_DTYPE_BFLOAT16,
  kFloat8E4M3FN = EVN_DTYPE_FLOAT8E4M3FN,
  kFloat8E4M3FNUZ = EVN_DTYPE_FLOAT8E4M3FNUZ,
  kFloat8E5M2 = EVN_DTYPE_FLOAT8E5M2,
  kFloat8E5M2FNUZ = EVN_DTYPE_FLOAT8E5M2FNUZ,
  kUint4 = EVN_DTYPE_UINT4,
  kInt4 = EVN_DTYPE_INT4,
  kFloat4E2M1 = EVN_DTYPE_FLOAT4E2M1,
  kFloat8E8M0 = EVN_DTYPE_FLOAT8E8M0,
  kUint2 = EVN_DTYPE_UINT2,
  kInt2 = EVN_DTYPE_INT2,
};
inline constexpr int kDTypeCount = EVN_DTYPE_INT2 + 1;

// ONNX's name ("float32"); "undefined" for a number that is no type.
const char* dtype_name(DType dtype);

// Bits of one element: 2, 4 or a multiple of 8; 0 for numbers that are no type. A complex number is its real and its imaginary
// part. A string's are those of an address (core/text.h).
std::size_t dtype_bits(DType dtype);

// Bytes of one element; 0 for types that are not stored and for those of less than a byte.
std::size_t dtype_size(DType dtype);

inline bool is_stored(DType dtype) { return dtype_bits(dtype) != 0; }
// Several elements to a byte, the first in the lowest bits.
inline bool is_sub_byte(DType dtype) { return dtype_bits(dtype) % 8 != 0; }
// The type of the two parts of a complex number; kUndefined for all others.
inline DType complex_part(DType dtype) {
  if (dtype == DType::kComplex64) return DType::kFloat32;
  return dtype == DType::kComplex128 ? DType::kFloat64 : DType::kUndefined;
}
// float16 or bfloat16.
inline bool is_16bit_float(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBfloat16; }
inline bool is_complex(DType dtype) { return complex_part(dtype) != DType::kUndefined; }
// What the address of a tensor's first element must be a multiple of. No more than 8, as for C's own types.
inline std::size_t dtype_alignment(DType dtype) {
  const std::size_t size = dtype_size(dtype);
  return size == 0 ? 1 : size < 8 ? size : 8;
}

// The DType of a C++ element type.
template <typename T>
struct DTypeOf;
// clang-format off
template <> struct DTypeOf<float> { static constexpr DType value = DType::kFloat32; };
template <> struct DTypeOf<double> { static constexpr DType value = DType::kFloat64; };
template <> struct DTypeOf<std::int8_t> { static constexpr DType value = DType::kInt8; };
template <> struct DTypeOf<std::uint8_t> { static constexpr DType value = DType::kUint8; };
template <> struct DTypeOf<std::int16_t> { static constexpr DType value = DType::kInt16; };
template <> struct DTypeOf<std::uint16_t> { static constexpr DType value = DType::kUint16; };
template <> struct DTypeOf<std::int32_t> { static constexpr DType value = DType::kInt32; };
template <> struct DTypeOf<std::uint32_t> { static constexpr DType value = DType::kUint32; };
template <> struct DTypeOf<std::int64_t> { static constexpr DType value = DType::kInt64; };
template <> struct DTypeOf<std::uint64_t> { static constexpr DType value = DType::kUint64; };
template <> struct DTypeOf<bool> { static constexpr DType value = DType::kBool; };
// clang-format on
template <typename T>
inline constexpr DType kDTypeOf = DTypeOf<T>::value;

}  // namespace evn
