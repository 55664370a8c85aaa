// What kernels on bytes share: types of zero points, and what quantized_product.cl wants to know of results.
#pragma once

#include <cmath>

#include "backends/opencl/kernels/support.h"
#include "ops/infra/window.h"

namespace evn {

inline bool is_byte(DType d) { return d == DType::kInt8 || d == DType::kUint8; }

// kNoByte, kUnsigned, kSigned of the sources.
inline std::int32_t byte_kind(const OpDesc& desc, int input) {
  if (!desc.has_input(input)) return 0;
  return desc.inputs[static_cast<std::size_t>(input)].dtype == DType::kInt8 ? 2 : 1;
}

inline bool is_one(const OpDesc& desc, int input) {
  return !desc.has_input(input) || desc.inputs[static_cast<std::size_t>(input)].shape.elements() == 1;
}

inline bool is_constant(const OpDesc& desc, int input) { return !desc.has_input(input) || desc.constant(input) != nullptr; }

// The byte of a constant, or 0 where it is not given; one number may stand for all.
inline std::int32_t byte_of(const OpDesc& desc, int input, std::int64_t i = 0) {
  if (!desc.has_input(input)) return 0;
  const Weight& w = *desc.constant(input);
  const std::int64_t at = w.desc.shape.elements() == 1 ? 0 : i;
  return w.desc.dtype == DType::kInt8 ? w.as<std::int8_t>()[at] : w.as<std::uint8_t>()[at];
}

inline float float_of(const OpDesc& desc, int input, std::int64_t i = 0) {
  const Weight& w = *desc.constant(input);
  return w.as<float>()[w.desc.shape.elements() == 1 ? 0 : i];
}

inline Refusal refuse_unless_float_scale(const OpDesc& desc, int input) {
  if (!desc.has_input(input)) return nullptr;
  return is_float(desc.inputs[static_cast<std::size_t>(input)]) ? nullptr : "scales must be float32";
}

// Distinguishes packed copies that hold more than the weight: of all constants that are packed with it.
inline std::uint64_t mix_constant(const OpDesc& desc, int input, std::uint64_t hash) {
  const Weight* w = desc.has_input(input) ? desc.constant(input) : nullptr;
  const std::size_t count = w != nullptr ? w->size_bytes : 0;
  for (std::size_t i = 0; i < count; ++i) hash = (hash ^ w->as<std::uint8_t>()[i]) * 0x100000001b3ull;
  return (hash ^ count) * 0x100000001b3ull;
}

// The struct that quantized_product.cl takes, laid out as there.
struct QuantizedTerm {
  std::int32_t bias, sum, zero;
  float scale;
};
enum class QuantizedResult : std::int32_t { kInt, kByte, kFloat };
struct QuantizedOutput {
  QuantizedResult kind;
  std::int32_t zero_kind, flip, bias, scaled;
  float low, high, zero;
};

struct QuantizedWindow {
  std::int32_t channels, quads;
  std::int32_t outputs, groups, blocks;
  std::int32_t in_h, in_w, out_h, out_w;
  std::int32_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  std::int32_t padded_h, phase_w;
  std::int32_t row_chunk, flips, padding;
  std::int64_t images;
};

inline void set_axes(const Window& window, QuantizedWindow* p) {
  const WindowAxis h = window.rank == 1 ? WindowAxis{} : window.axis[0];
  const WindowAxis& w = window.axis[window.rank - 1];
  p->in_h = to_int(h.input), p->in_w = to_int(w.input);
  p->out_h = to_int(h.output), p->out_w = to_int(w.output);
  p->kernel_h = to_int(h.kernel), p->kernel_w = to_int(w.kernel);
  p->stride_h = to_int(h.stride), p->stride_w = to_int(w.stride);
  p->dilation_h = to_int(h.dilation), p->dilation_w = to_int(w.dilation);
  p->pad_h = to_int(h.pad_begin), p->pad_w = to_int(w.pad_begin);
  p->row_chunk = to_int(ceil_div(1024, w.output < 1 ? 1 : w.output));
}

inline void set_byte_range(DType dtype, std::int32_t zero, float* low, float* high, float* shift) {
  *low = dtype == DType::kInt8 ? -128.0f : 0.0f;
  *high = dtype == DType::kInt8 ? 127.0f : 255.0f;
  *shift = static_cast<float>(zero);
}

}  // namespace evn
