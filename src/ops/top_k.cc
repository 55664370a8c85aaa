// TopK: the k largest elements along `axis` (from 11 with largest = 0 the smallest) and where they are, in order. Of equal elements
// the one before comes first; NaN counts as larger than any number. `sorted` = 0 allows any order; this one is kept.
// k is an attribute before 10, later input 1.
// dtypes: all numbers; output 1 int64. Failures: axis outside the rank; k below 0 or above the axis. Exact.
#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

enum : int { kAxis, kLargest, kSorted };
constexpr int kAttributeK = 1;  // before 10

DType top_k_dtype(const Node&, std::span<const DType> inputs, int output) { return output == 0 ? inputs[0] : DType::kInt64; }

void infer_top_k(InferContext& c) {
  const Shape& x = c.shape(0);
  const int axis = normalize_axis(attr_int(c.node, kAxis), x.rank());
  std::int64_t k = -1;
  if (c.node.op->since < 10) {
    k = attr_int(c.node, kAttributeK);
    if (k < 0) fail(EVN_ERROR_INVALID_MODEL, "k is negative");
  } else {
    require_dtype(c, 1, dtype_bit(DType::kInt64));
    require_scalar(c, 1);
    if (const ConstTensor value = known_input(c, 1); value.data != nullptr) {
      k = *value.as<std::int64_t>();
      if (k < 0) fail(EVN_ERROR_INVALID_ARGUMENT, "k is negative");
    }
  }
  if (x[axis] >= 0 && k > x[axis]) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "k is %lld, but the axis has %lld elements", static_cast<long long>(k),
         static_cast<long long>(x[axis]));
  }
  for (TensorDesc& output : c.outputs) {
    output.shape = x;
    output.shape[axis] = k;
  }
}

template <typename T>
bool is_less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  }
  return a < b;
}

template <typename T>
void top_k(const ReferenceContext& c, int axis, bool largest) {
  const Shape& x = c.input(0).desc.shape;
  const std::int64_t k = c.output(c.outputs[0].present() ? 0 : 1).desc.shape[axis];
  const std::int64_t inner = x.elements(axis + 1, x.rank());
  const std::int64_t rows = x.elements(0, axis) * inner;
  std::vector<std::int64_t> order(static_cast<std::size_t>(x[axis]));
  for (std::int64_t row = 0; row < rows; ++row) {
    cancellation_point();
    const T* from = c.input(0).as<T>() + row / inner * x[axis] * inner + row % inner;
    in_pieces(x[axis], 1,
              [&](std::int64_t begin, std::int64_t end) { std::iota(order.begin() + begin, order.begin() + end, begin); });
    std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](std::int64_t i, std::int64_t j) {
      cancellation_point();
      const T a = from[i * inner];
      const T b = from[j * inner];
      if (is_less(a, b)) return !largest;
      if (is_less(b, a)) return largest;
      return i < j;
    });
    for (std::int64_t n = 0; n < k; ++n) {
      cancellation_point();
      const std::int64_t to = (row / inner * k + n) * inner + row % inner;
      const std::int64_t at = order[static_cast<std::size_t>(n)];
      if (c.outputs[0].present()) c.output().as<T>()[to] = from[at * inner];
      if (c.outputs.size() > 1 && c.output(1).present()) c.output(1).as<std::int64_t>()[to] = at;
    }
  }
}

void reference_top_k(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, kAxis), x.rank());
  const bool largest = c.node.op->since < 11 || attr_int(c.node, kLargest) != 0;
  if (x.elements() == 0) return;
  dispatch_numbers(c.input(0).desc.dtype, [&](auto zero) { top_k<decltype(zero)>(c, axis, largest); });
}

constexpr AttributeSpec kAttributes1[] = {int_attribute("axis", -1), required_attribute("k", AttributeType::kInt)};
constexpr AttributeSpec kAttributes10[] = {int_attribute("axis", -1)};
constexpr AttributeSpec kAttributes11[] = {int_attribute("axis", -1), int_attribute("largest", 1), int_attribute("sorted", 1)};
constexpr OpDef kOps[] = {
    {.name = "TopK",
     .since = 1,
     .min_outputs = 2,
     .max_outputs = 2,
     .attributes = kAttributes1,
     .dtypes = kNumbers,
     .output_dtype = top_k_dtype,
     .infer = infer_top_k,
     .reference = reference_top_k},
    {.name = "TopK",
     .since = 10,
     .min_inputs = 2,
     .max_inputs = 2,
     .min_outputs = 2,
     .max_outputs = 2,
     .attributes = kAttributes10,
     .dtypes = kNumbers,
     .value_inputs = 2,
     .output_dtype = top_k_dtype,
     .infer = infer_top_k,
     .reference = reference_top_k},
    {.name = "TopK",
     .since = 11,
     .min_inputs = 2,
     .max_inputs = 2,
     .min_outputs = 2,
     .max_outputs = 2,
     .attributes = kAttributes11,
     .dtypes = kNumbers,
     .value_inputs = 2,
     .output_dtype = top_k_dtype,
     .infer = infer_top_k,
     .reference = reference_top_k},
};

}  // namespace

extern const OpFamily top_k_family;
const OpFamily top_k_family = {kOps};

}  // namespace evn
