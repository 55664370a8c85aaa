#include "quant/weights.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "base/cancel.h"
#include "base/error.h"

namespace evn {
namespace {

// Calls body(index along the axis, element) for all elements.
template <typename F>
void for_each_element(const Shape& shape, int axis, F&& body) {
  const std::int64_t all = shape.elements(), inner = axis < 0 ? all : shape.elements(axis + 1, shape.rank()),
                     count = axis < 0 ? 1 : shape[axis];
  in_pieces(all, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t outer = i / inner, next = std::min(end, (outer + 1) * inner);
      for (; i < next; ++i) body(static_cast<std::size_t>(outer % count), i);
    }
  });
}

// Elements of a weight that need not be aligned.
float element(const void* bytes, std::int64_t i) {
  float x;
  std::memcpy(&x, static_cast<const char*>(bytes) + static_cast<std::size_t>(i) * sizeof x, sizeof x);
  return x;
}

}  // namespace

void fail_not_finite(const std::string& weight) {
  fail(EVN_ERROR_INVALID_MODEL, "weight \"%.128s\" has elements that are NaN or infinite", weight.c_str());
}

std::vector<float> scales_for_bias(const Weight& bias, float input_scale, int axis) {
  constexpr double kMostBias = 1 << 29;
  std::vector<float> scales(axis < 0 ? 1 : static_cast<std::size_t>(bias.desc.shape.elements()), 0.0f);
  const void* const from = bias.bytes();
  for (std::int64_t i = 0; i < bias.desc.shape.elements(); ++i) {
    cancellation_point();
    const double scale = std::fabs(static_cast<double>(element(from, i))) / (static_cast<double>(input_scale) * kMostBias);
    float& least = scales[axis < 0 ? 0 : static_cast<std::size_t>(i)];
    if (scale < FLT_MAX) least = std::max(least, static_cast<float>(scale));
    if (least > 0)
      least = std::max({least, FLT_MIN, FLT_MIN / input_scale});  // its product with the input's scale is a normal number
  }
  return scales;
}

QuantizedWeight quantize_weight(const Weight& weight, const std::string& name, int axis, const LedgerPtr& ledger,
                                std::span<const float> least) {
  const Shape& shape = weight.desc.shape;
  const void* const from = weight.bytes();
  std::vector<float> largest(axis < 0 ? 1 : static_cast<std::size_t>(shape[axis]), 0.0f);
  bool finite = true;
  for_each_element(shape, axis, [&](std::size_t index, std::int64_t i) {
    const float x = std::fabs(element(from, i));
    finite &= x <= FLT_MAX;
    largest[index] = std::max(largest[index], x);
  });
  if (!finite) fail_not_finite(name);
  QuantizedWeight q;
  for (std::size_t i = 0; i < largest.size(); ++i) {
    cancellation_point();
    const float bound = i < least.size() ? least[i] : 0.0f;
    const float free = bound > 0 ? bound : 1.0f;  // zeros have any scale: the finest that the bias may have
    q.scales.push_back(largest[i] == 0 ? free : std::max({largest[i] / 127, FLT_MIN, bound}));
  }
  void* to = nullptr;
  q.values = make_unfilled_weight({DType::kInt8, shape}, ledger, &to);
  auto* const bytes = static_cast<std::int8_t*>(to);
  for_each_element(shape, axis, [&](std::size_t index, std::int64_t i) {
    bytes[i] = static_cast<std::int8_t>(std::clamp(std::nearbyint(element(from, i) / q.scales[index]), -127.0f, 127.0f));
  });
  return q;
}

WeightPtr quantize_bias(const Weight& bias, float input_scale, std::span<const float> weight_scales, const LedgerPtr& ledger) {
  void* to = nullptr;
  WeightPtr weight = make_unfilled_weight({DType::kInt32, bias.desc.shape}, ledger, &to);
  auto* const numbers = static_cast<std::int32_t*>(to);
  const void* const from = bias.bytes();
  for (std::int64_t i = 0; i < bias.desc.shape.elements(); ++i) {
    cancellation_point();
    const float weight_scale = weight_scales[weight_scales.size() == 1 ? 0 : static_cast<std::size_t>(i)];
    const double scale = static_cast<double>(input_scale) * static_cast<double>(weight_scale);
    const double x = std::nearbyint(static_cast<double>(element(from, i)) / scale);
    if (!(std::fabs(x) < 2147483648.0)) return nullptr;
    numbers[i] = static_cast<std::int32_t>(x);
  }
  return weight;
}

}  // namespace evn
