// Scales of quantized tensors.
#pragma once

#include "ops/infra/numeric.h"

namespace evn {

inline constexpr std::uint32_t kScaleDtypes = dtype_bit(DType::kFloat32) | dtype_bit(DType::kFloat16) | dtype_bit(DType::kBfloat16);

inline float scale_value(const ConstTensor& scale, std::int64_t i) {
  if (scale.desc.dtype == DType::kFloat16) return static_cast<float>(scale.as<Float16>()[i].value());
  if (scale.desc.dtype == DType::kBfloat16) return static_cast<float>(scale.as<Bfloat16>()[i].value());
  return scale.as<float>()[i];
}

}  // namespace evn
