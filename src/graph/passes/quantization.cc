#include "graph/passes/quantization.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "graph/passes/match.h"
#include "ops/byte_table.h"
#include "ops/infra/numeric.h"
#include "ops/infra/round.h"
#include "ops/merge.h"

namespace evn {
namespace {

// An attribute by its name, as rows of several versions have it in other places.
std::int64_t named(const Node& node, const char* name, std::int64_t otherwise) {
  for (std::size_t i = 0; i < node.op->attributes.size(); ++i) {
    if (node.op->attributes[i].name == std::string_view(name) && i < node.resolved.size()) {
      const auto* value = std::get_if<std::int64_t>(&node.resolved[i]);
      return value != nullptr ? *value : otherwise;
    }
  }
  return otherwise;
}

bool is_vector(const Shape& s) { return s.rank() <= 1; }

bool read_scales(const GraphEditor& edit, Quantization* q) {
  const Weight* w = edit.value(q->scale).constant.get();
  if (w == nullptr || w->desc.dtype != DType::kFloat32 || !is_vector(w->desc.shape) || w->size_bytes == 0) return false;
  q->scales.resize(w->size_bytes / sizeof(float));
  std::memcpy(q->scales.data(), w->bytes(), w->size_bytes);
  return std::all_of(q->scales.begin(), q->scales.end(), [](float s) { return std::isnormal(s) && s > 0; });
}

bool read_zeros(const GraphEditor& edit, Quantization* q) {
  if (q->zero == kNoValue) {
    q->zeros = {0};
    return true;
  }
  const Weight* w = edit.value(q->zero).constant.get();
  if (w == nullptr || !is_vector(w->desc.shape) || w->size_bytes == 0) return false;
  if (q->dtype == DType::kUndefined) q->dtype = w->desc.dtype;
  if (w->desc.dtype != q->dtype) return false;
  const auto count = static_cast<std::size_t>(w->desc.shape.elements());
  if (count != 1 && count != q->scales.size()) return false;
  std::vector<std::uint64_t> copy;
  const void* bytes = aligned_bytes(*w, copy);
  for (std::size_t i = 0; i < count; ++i) {
    q->zeros.push_back(q->dtype == DType::kInt8    ? static_cast<const std::int8_t*>(bytes)[i]
                       : q->dtype == DType::kUint8 ? static_cast<const std::uint8_t*>(bytes)[i]
                       : q->dtype == DType::kInt32 ? static_cast<const std::int32_t*>(bytes)[i]
                                                   : 0);
  }
  return true;
}

}  // namespace

std::int32_t Quantization::step_of(float x) const {
  const double y = round_even(static_cast<double>(x / scales[0])) + zeros[0];
  return dtype == DType::kInt8 ? quantized_to<std::int8_t>(y) : quantized_to<std::uint8_t>(y);
}

bool Quantization::same(const Quantization& other) const {
  return dtype == other.dtype && scales == other.scales && zeros == other.zeros;
}

bool quantization_of(const GraphEditor& edit, const Node& node, Quantization* q) {
  const bool to_bytes = is_op(node, "QuantizeLinear");
  if (!to_bytes && !is_op(node, "DequantizeLinear")) return false;
  if (node.inputs.size() < 2 || node.inputs[0] == kNoValue || node.inputs[1] == kNoValue || !node.epilogue.empty()) return false;
  if (node.outputs.size() != 1 || node.outputs[0] == kNoValue) return false;
  if (named(node, "block_size", 0) != 0 || named(node, "precision", 0) != 0) return false;
  *q = Quantization{};
  q->scale = node.inputs[1];
  q->zero = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
  q->axis = static_cast<int>(std::clamp<std::int64_t>(named(node, "axis", 1), -kMaxRank, kMaxRank));
  const DType other = edit.value(to_bytes ? node.inputs[0] : node.outputs[0]).dtype;
  q->dtype = edit.value(to_bytes ? node.outputs[0] : node.inputs[0]).dtype;
  if (other != DType::kFloat32 || !(q->is_byte() || (!to_bytes && q->dtype == DType::kInt32))) return false;
  return read_scales(edit, q) && read_zeros(edit, q);
}

bool numbers_of(const GraphEditor& edit, ValueId scale, ValueId zero, DType dtype, Quantization* q) {
  *q = Quantization{};
  q->scale = scale;
  q->zero = zero;
  q->dtype = dtype;
  return scale != kNoValue && q->is_byte() && read_scales(edit, q) && read_zeros(edit, q);
}

int dequantizer_of(const GraphEditor& edit, ValueId v, Quantization* q) {
  const int n = edit.producer(v);
  return n >= 0 && is_op(edit.graph().nodes[n], "DequantizeLinear") && quantization_of(edit, edit.graph().nodes[n], q) ? n : -1;
}

int bytes_behind(const GraphEditor& edit, ValueId v, Quantization* q) {
  const int n = dequantizer_of(edit, v, q);
  if (n < 0 || !q->single() || !q->is_byte()) return -1;
  return edit.value(edit.graph().nodes[n].inputs[0]).constant == nullptr ? n : -1;
}

ValueId zero_point(GraphEditor& edit, const PassContext& context, const Quantization& q) {
  if (q.zero != kNoValue) return q.zero;
  if (q.dtype == DType::kInt8) return add_vector<std::int8_t>(edit, context, "zero_point", {0});
  return add_vector<std::uint8_t>(edit, context, "zero_point", {0});
}

ByteValues requantized(const Quantization& from, const Quantization& to) {
  ByteValues values;
  for (std::int32_t i = 0; i < kByteTableSize; ++i) {
    const std::int32_t step = from.dtype == DType::kInt8 ? static_cast<std::int8_t>(i) : i;
    const float x = static_cast<float>(step - from.zeros[0]) * from.scales[0];
    values[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(to.step_of(x));
  }
  return values;
}

ByteValues requantized_wide(const Quantization& from, const Quantization& to) {
  ByteValues values;
  for (std::int32_t i = 0; i < kByteTableSize; ++i) {
    const std::int32_t step = from.dtype == DType::kInt8 ? static_cast<std::int8_t>(i) : i;
    const double x = static_cast<double>(step - from.zeros[0]) * static_cast<double>(from.scales[0]);
    const double y = round_even(x / static_cast<double>(to.scales[0])) + to.zeros[0];
    values[static_cast<std::size_t>(i)] =
        to.dtype == DType::kInt8 ? static_cast<std::uint8_t>(quantized_to<std::int8_t>(y)) : quantized_to<std::uint8_t>(y);
  }
  return values;
}

ByteValues clamped(const Quantization& q, std::int32_t low, std::int32_t high) {
  ByteValues values;
  for (std::int32_t i = 0; i < kByteTableSize; ++i) {
    const std::int32_t step = q.dtype == DType::kInt8 ? static_cast<std::int8_t>(i) : i;
    values[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(std::min(std::max(step, low), high));
  }
  return values;
}

bool is_identity(const ByteValues& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != i) return false;
  }
  return true;
}

ValueId byte_table(GraphEditor& edit, const PassContext& context, DType dtype, const ByteValues& values) {
  void* bytes = nullptr;
  std::shared_ptr<Weight> weight = make_weight({dtype, Shape{kByteTableSize}}, context.ledger, &bytes);
  std::memcpy(bytes, values.data(), values.size());
  return edit.add_constant("byte_table", std::move(weight));
}

bool become_table(GraphEditor& edit, const PassContext& context, int n, ValueId x, DType dtype, const ByteValues& values) {
  if (!Matcher(edit).set_op(n, kByteTable, 1, {}, kInternalDomain)) return false;
  edit.set_input(n, 0, x);
  edit.set_input(n, 1, byte_table(edit, context, dtype, values));
  edit.shrink_inputs(n, 2);
  edit.value(edit.node(n).outputs[0]).dtype = dtype;
  return true;
}

}  // namespace evn
