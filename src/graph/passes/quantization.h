// What the rewrites of quantized graphs ask: which numbers a QuantizeLinear or DequantizeLinear has, and what becomes of nodes.
#pragma once

#include <array>
#include <vector>

#include "graph/edit.h"
#include "ops/op.h"

namespace evn {

inline constexpr const char* kContrib = "com.microsoft";  // the domain of operators on bytes beyond those of ONNX

// The constant numbers of a QuantizeLinear or DequantizeLinear: one scale and zero point, or one for each index of an axis.
struct Quantization {
  ValueId scale = kNoValue;
  ValueId zero = kNoValue;          // kNoValue: 0
  DType dtype = DType::kUndefined;  // of the quantized side: int8, uint8 or int32
  std::vector<float> scales;        // positive, no subnormal numbers, finite
  std::vector<std::int32_t> zeros;  // as many, or one
  int axis = 0;                     // where there are several; may be negative
  bool single() const { return scales.size() == 1; }
  bool is_byte() const { return dtype == DType::kInt8 || dtype == DType::kUint8; }
  std::int32_t least() const { return dtype == DType::kInt8 ? -128 : 0; }
  std::int32_t most() const { return dtype == DType::kInt8 ? 127 : 255; }
  // The step of x, as the operator's reference computes it.
  std::int32_t step_of(float x) const;
  bool same(const Quantization& other) const;
};

// False for other nodes, numbers that are not constant or as above, other types (float16, 16 and 4 bits, float8) and blocks. The
// numbers of one scale and axis fit `x` only if the caller sees to it.
bool quantization_of(const GraphEditor& edit, const Node& node, Quantization* q);

// Reads a scale and zero point of bytes (kNoValue: 0) that stand among the inputs of another operator.
bool numbers_of(const GraphEditor& edit, ValueId scale, ValueId zero, DType dtype, Quantization* q);

// The DequantizeLinear that makes v float32; -1: none that can be told.
int dequantizer_of(const GraphEditor& edit, ValueId v, Quantization* q);

// Finds the DequantizeLinear where it has one scale and makes v of bytes that are no constant.
int bytes_behind(const GraphEditor& edit, ValueId v, Quantization* q);

// The zero point's input, made where there is none.
ValueId zero_point(GraphEditor& edit, const PassContext& context, const Quantization& q);

using ByteValues = std::array<std::uint8_t, 256>;  // by the bits of an element

// The steps of `to` for those of `from`, and the steps of q kept between two.
ByteValues requantized(const Quantization& from, const Quantization& to);
// Requantized as com.microsoft's operators do it, in float64.
ByteValues requantized_wide(const Quantization& from, const Quantization& to);
ByteValues clamped(const Quantization& q, std::int32_t low, std::int32_t high);
bool is_identity(const ByteValues& values);

ValueId byte_table(GraphEditor& edit, const PassContext& context, DType dtype, const ByteValues& values);

// Makes node n a ByteTable of x.
bool become_table(GraphEditor& edit, const PassContext& context, int n, ValueId x, DType dtype, const ByteValues& values);

// A constant of these elements.
template <typename T>
ValueId add_vector(GraphEditor& edit, const PassContext& context, const char* name, const std::vector<T>& elements) {
  void* bytes = nullptr;
  std::shared_ptr<Weight> weight =
      make_weight({kDTypeOf<T>, Shape{static_cast<std::int64_t>(elements.size())}}, context.ledger, &bytes);
  for (std::size_t i = 0; i < elements.size(); ++i) static_cast<T*>(bytes)[i] = elements[i];
  return edit.add_constant(name, std::move(weight));
}

}  // namespace evn
