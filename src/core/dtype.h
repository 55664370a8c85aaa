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
};

// ONNX's name ("float32"); "undefined" for a number that is no type.
const char* dtype_name(DType dtype);

// Bytes of one element; 0 for types that this library does not store (strings, complex numbers, unknown numbers).
std::size_t dtype_size(DType dtype);

// The DType of a C++ element type.
template <typename T>
struct DTypeOf;
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
template <typename T>
inline constexpr DType kDTypeOf = DTypeOf<T>::value;

}  // namespace evn
