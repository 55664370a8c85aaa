// Scales and elements of quantized tensors.
#pragma once

#include "ops/infra/numeric.h"

namespace evn {

inline constexpr std::uint32_t kScaleDtypes = dtype_bit(DType::kFloat32) | dtype_bit(DType::kFloat16) | dtype_bit(DType::kBfloat16);

inline float scale_value(const ConstTensor& scale, std::int64_t i) {
  if (scale.desc.dtype == DType::kFloat16) return static_cast<float>(scale.as<Float16>()[i].value());
  if (scale.desc.dtype == DType::kBfloat16) return static_cast<float>(scale.as<Bfloat16>()[i].value());
  return scale.as<float>()[i];
}

inline constexpr std::uint32_t kByteDtypes = dtype_bit(DType::kInt8) | dtype_bit(DType::kUint8);

// Element i of an int8 or uint8 tensor.
inline std::int32_t byte_at(const ConstTensor& t, std::int64_t i) {
  return t.desc.dtype == DType::kInt8 ? t.as<std::int8_t>()[i] : t.as<std::uint8_t>()[i];
}

}  // namespace evn
