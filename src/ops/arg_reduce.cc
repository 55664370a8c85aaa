// ArgMax and ArgMin: the position of the largest or smallest element along `axis`, int64; of equal ones the first, or, with
// select_last_index (from 12), the last. keepdims leaves an axis of 1. NaN counts as the extreme, and all NaN as equal.
// dtypes: all numbers. Failures: axis outside the rank; at run: an axis without elements. Exact.
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

enum : int { kAxis, kKeepDims, kSelectLast };

DType int64_output(const Node&, std::span<const DType>, int) { return DType::kInt64; }

void infer_arg(InferContext& c) {
  const Shape& x = c.shape(0);
  const int axis = normalize_axis(attr_int(c.node, kAxis), x.rank());
  Shape out;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) {
      out.push_back(x[i]);
    } else if (attr_int(c.node, kKeepDims) != 0) {
      out.push_back(1);
    }
  }
  c.outputs[0].shape = out;
}

template <bool kMax, typename T>
bool beats(T x, T best, bool or_equal) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(best)) return or_equal && std::isnan(x);
    if (std::isnan(x)) return true;
  }
  return (kMax ? x > best : x < best) || (or_equal && x == best);
}

template <bool kMax>
void reference_arg(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, kAxis), x.rank());
  const bool last = attr_given(c.node, kSelectLast) && attr_int(c.node, kSelectLast) != 0;
  const std::int64_t inner = x.elements(axis + 1, x.rank());
  const std::int64_t count = c.output().desc.shape.elements();
  if (count > 0 && x[axis] == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "the axis has no elements");
  dispatch_numbers(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < count; ++i) {
      cancellation_point();
      const T* from = c.input(0).as<T>() + i / inner * x[axis] * inner + i % inner;
      std::int64_t best = 0;
      for (std::int64_t n = 1; n < x[axis]; ++n) {
        cancellation_point();
        if (beats<kMax>(from[n * inner], from[best * inner], last)) best = n;
      }
      c.output().as<std::int64_t>()[i] = best;
    }
  });
}

constexpr AttributeSpec kAttributes1[] = {int_attribute("axis", 0), int_attribute("keepdims", 1)};
constexpr AttributeSpec kAttributes12[] = {int_attribute("axis", 0), int_attribute("keepdims", 1),
                                           int_attribute("select_last_index", 0)};

constexpr OpDef kOps[] = {
    {.name = "ArgMax",
     .since = 1,
     .attributes = kAttributes1,
     .dtypes = kNumbers,
     .output_dtype = int64_output,
     .infer = infer_arg,
     .reference = reference_arg<true>},
    {.name = "ArgMax",
     .since = 12,
     .attributes = kAttributes12,
     .dtypes = kNumbers,
     .output_dtype = int64_output,
     .infer = infer_arg,
     .reference = reference_arg<true>},
    {.name = "ArgMin",
     .since = 1,
     .attributes = kAttributes1,
     .dtypes = kNumbers,
     .output_dtype = int64_output,
     .infer = infer_arg,
     .reference = reference_arg<false>},
    {.name = "ArgMin",
     .since = 12,
     .attributes = kAttributes12,
     .dtypes = kNumbers,
     .output_dtype = int64_output,
     .infer = infer_arg,
     .reference = reference_arg<false>},
};

}  // namespace

extern const OpFamily arg_reduce_family;
const OpFamily arg_reduce_family = {kOps};

}  // namespace evn
