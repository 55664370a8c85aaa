// CumSum and CumProd: y[i] = x[0] op ... op x[i] along the axis that input 1 holds; with `exclusive` without x[i] (the first is 0
// or 1), with `reverse` from the end. What has been rounded into an element goes into the next.
// dtypes: floating point, 32- and 64-bit integers (which wrap); the axis int32 or int64, one element. Failures: an axis outside the
// rank. Tolerance: rtol 1e-5, atol 1e-6.
#include "ops/infra/check.h"
#include "ops/infra/index.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

enum : int { kExclusive, kReverse };

void infer_cumulative(InferContext& c) {
  require_dtype(c, 1, kIndexDtypes);
  require_scalar(c, 1);
  require_rank(c, 0, 1);
  if (const ConstTensor axis = known_input(c, 1); axis.data != nullptr) normalize_axis(int_at(axis, 0), c.shape(0).rank());
  infer_same_shape(c);
}

// One row of `length` elements that are `step` apart, from its first to its last.
template <bool kProduct, typename T>
void accumulate(const T* x, T* y, std::int64_t length, std::int64_t step, bool exclusive) {
  T total = kProduct ? 1 : 0;
  for (std::int64_t i = 0; i < length; ++i) {
    cancellation_point();
    const auto element = static_cast<Accumulator<T>>(x[i * step]);
    const T next =
        static_cast<T>(kProduct ? static_cast<Accumulator<T>>(total) * element : static_cast<Accumulator<T>>(total) + element);
    y[i * step] = exclusive ? total : next;
    total = next;
  }
}

template <bool kProduct>
void reference_cumulative(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const std::int64_t given = int_at(c.input(1), 0);
  if (given < -x.rank() || given >= x.rank()) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "axis %lld is outside [-%d, %d)", static_cast<long long>(given), x.rank(), x.rank());
  }
  const int axis = normalize_axis(given, x.rank());
  const bool exclusive = attr_int(c.node, kExclusive) != 0;
  const bool reverse = attr_int(c.node, kReverse) != 0;
  const std::int64_t outer = x.elements(0, axis);
  const std::int64_t inner = x.elements(axis + 1, x.rank());
  if (x[axis] == 0) return;
  dispatch<float, double, std::int32_t, std::int64_t, std::uint32_t, std::uint64_t>(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t row = 0; row < outer * inner; ++row) {
      cancellation_point();
      const std::int64_t begin = row / inner * x[axis] * inner + row % inner;
      const std::int64_t start = reverse ? begin + (x[axis] - 1) * inner : begin;
      accumulate<kProduct>(c.input(0).as<T>() + start, c.output().as<T>() + start, x[axis], reverse ? -inner : inner, exclusive);
    }
  });
}

constexpr AttributeSpec kAttributes[] = {int_attribute("exclusive", 0), int_attribute("reverse", 0)};
constexpr std::uint32_t kDtypes =
    kFloats | dtype_bit(DType::kInt32) | dtype_bit(DType::kInt64) | dtype_bit(DType::kUint32) | dtype_bit(DType::kUint64);
constexpr Tolerance kNear = {1e-5, 1e-6};
constexpr OpDef kOps[] = {
    {.name = "CumSum",
     .since = 11,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kAttributes,
     .dtypes = kDtypes,
     .infer = infer_cumulative,
     .reference = reference_cumulative<false>,
     .tolerance = kNear},
    {.name = "CumProd",
     .since = 26,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kAttributes,
     .dtypes = kDtypes,
     .infer = infer_cumulative,
     .reference = reference_cumulative<true>,
     .tolerance = kNear},
};

}  // namespace

extern const OpFamily cum_sum_family;
const OpFamily cum_sum_family = {kOps};

}  // namespace evn
