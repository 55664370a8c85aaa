// Scales, zero points and elements of quantized tensors. A scale and its zero point are one number, or one for each of several
// indices.
#pragma once

#include <cmath>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/round.h"

namespace evn {

inline constexpr std::uint32_t kScaleDtypes = dtype_bit(DType::kFloat32) | dtype_bit(DType::kFloat16) | dtype_bit(DType::kBfloat16);

inline float scale_value(const ConstTensor& scale, std::int64_t i) {
  if (scale.desc.dtype == DType::kFloat16) return static_cast<float>(scale.as<Float16>()[i].value());
  if (scale.desc.dtype == DType::kBfloat16) return static_cast<float>(scale.as<Bfloat16>()[i].value());
  return scale.as<float>()[i];
}

// Writes element i of a tensor of a scale's dtype.
inline void put_scaled(const MutableTensor& y, std::int64_t i, double value) {
  if (y.desc.dtype == DType::kFloat16) {
    y.as<Float16>()[i] = Float16::from(value);
  } else if (y.desc.dtype == DType::kBfloat16) {
    y.as<Bfloat16>()[i] = Bfloat16::from(value);
  } else {
    y.as<float>()[i] = static_cast<float>(value);
  }
}

inline constexpr std::uint32_t kByteDtypes = dtype_bit(DType::kInt8) | dtype_bit(DType::kUint8);

// Element i of an int8 or uint8 tensor.
inline std::int32_t byte_at(const ConstTensor& t, std::int64_t i) {
  return t.desc.dtype == DType::kInt8 ? t.as<std::int8_t>()[i] : t.as<std::uint8_t>()[i];
}

// Writes it, saturated; NaN becomes the least number of the type.
inline void put_byte(const MutableTensor& t, std::int64_t i, double value) {
  if (t.desc.dtype == DType::kInt8) {
    t.as<std::int8_t>()[i] = quantized_to<std::int8_t>(value);
  } else {
    t.as<std::uint8_t>()[i] = quantized_to<std::uint8_t>(value);
  }
}

// A sum of products of bytes, as the 32 bits that products have for it.
inline std::int32_t wrapped(std::int64_t sum) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum)); }

// Writes y = saturate(round(sum * scale) + zero), where the product is a float32, as it is in the standard's own implementations,
// and rounding is to even.
inline void put_requantized(const MutableTensor& t, std::int64_t i, std::int32_t sum, float scale, std::int32_t zero) {
  const float y = static_cast<float>(sum) * scale;
  put_byte(t, i, round_even(static_cast<double>(y)) + zero);
}

// Where the number for index i stands in a tensor that has one number or one for each index.
inline std::int64_t place_in(const ConstTensor& t, std::int64_t i) { return t.desc.shape.elements() == 1 ? 0 : i; }

// The zero point that is input `input`, 0 when it is not given.
inline std::int32_t zero_at(const ReferenceContext& c, int input, std::int64_t i = 0) {
  return c.has_input(input) ? byte_at(c.input(input), place_in(c.input(input), i)) : 0;
}

inline double scale_at(const ReferenceContext& c, int input, std::int64_t i = 0) {
  return static_cast<double>(scale_value(c.input(input), place_in(c.input(input), i)));
}

// A tensor less its zero point, of which there is one, or `count` of them, one for each `inner` elements in turn.
inline std::vector<std::int32_t> centered(const ReferenceContext& c, int tensor, int zero, std::int64_t inner, std::int64_t count) {
  const std::int64_t elements = c.input(tensor).desc.shape.elements();
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(elements));
  const bool one = !c.has_input(zero) || c.input(zero).desc.shape.elements() == 1;
  const std::int32_t all = one ? zero_at(c, zero) : 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    cancellation_point();
    numbers[static_cast<std::size_t>(i)] = byte_at(c.input(tensor), i) - (one ? all : zero_at(c, zero, i / inner % count));
  }
  return numbers;
}

// From products of steps to steps of the result.
inline float quantized_factor(float a_scale, float b_scale, float y_scale) {
  return static_cast<float>(static_cast<double>(a_scale) * static_cast<double>(b_scale) / static_cast<double>(y_scale));
}

// Element i of input `first`, whose scale and zero point follow it, as the number that it stands for.
inline double dequantized_at(const ReferenceContext& c, int first, std::int64_t i) {
  return (byte_at(c.input(first), i) - zero_at(c, first + 2)) * scale_at(c, first + 1);
}

// Writes the number y to element i of the output, whose scale is input `scale` and whose zero point follows that.
inline void put_quantized(const ReferenceContext& c, int scale, std::int64_t i, double y) {
  put_byte(c.output(), i, round_even(y / scale_at(c, scale)) + zero_at(c, scale + 1));
}

// One number, or `length` of them: [length], or in front of or behind an axis of 1.
inline void require_numbers(const InferContext& c, int input, std::int64_t length) {
  if (!c.has_input(input)) return;
  const Shape& s = c.shape(input);
  const std::int64_t count = dim_elements(s, 0, s.rank());
  if (count >= 0 && count != 1) require_dim(count, length, input);
}

// A zero point has the type of what it belongs to.
inline void require_zero_point(const InferContext& c, int zero, DType dtype) {
  if (c.has_input(zero) && c.inputs[static_cast<std::size_t>(zero)].dtype != dtype) {
    fail(EVN_ERROR_INVALID_MODEL, "zero point %d has another element type", zero);
  }
}

// What belongs to one operand: its number, that of its scale, of a dtype of `scales`, and of its zero point, of which there are
// one or `length`.
inline void require_quantized(const InferContext& c, int tensor, int scale, int zero, std::int64_t length, std::uint32_t scales) {
  require_dtype(c, tensor, kByteDtypes);
  require_dtype(c, scale, scales);
  require_zero_point(c, zero, c.inputs[static_cast<std::size_t>(tensor)].dtype);
  require_numbers(c, scale, length);
  require_numbers(c, zero, length);
}

// The scale of an output and, behind it, its zero point: one number each.
inline void require_quantized_output(const InferContext& c, int scale, DType dtype) {
  require_dtype(c, scale, dtype_bit(DType::kFloat32));
  require_scalar(c, scale);
  require_zero_point(c, scale + 1, dtype);
  require_scalar(c, scale + 1);
}

}  // namespace evn
