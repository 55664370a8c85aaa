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

template <bool kProduct, typename T>
T next_of(T total, T x) {
  if constexpr (std::is_floating_point_v<T>) return kProduct ? total * x : total + x;
  else return kProduct ? wrap_mul(total, x) : wrap_add(total, x);
}

// One row of `length` elements, `step` (1 or -1) apart, from its first to its last.
template <bool kProduct, typename T>
void accumulate(const T* x, T* y, std::int64_t length, std::int64_t step, bool exclusive) {
  T total = kProduct ? 1 : 0;
  each_element(length, [&](std::int64_t i) {
    const T next = next_of<kProduct>(total, x[i * step]);
    y[i * step] = exclusive ? total : next;
    total = next;
  });
}

// `length` rows of `inner` elements, `step` apart, from the first to the last: each from the one before.
template <bool kProduct, typename T>
void accumulate_rows(const T* x, T* y, std::int64_t length, std::int64_t step, std::int64_t inner, bool exclusive) {
  for (std::int64_t i = 0; i < length; ++i, x += step, y += step) {
    const T* const from = exclusive ? x - step : x;
    in_pieces(inner, 1, [&](std::int64_t n, std::int64_t end) {
      for (; n < end; ++n) {
        const T before = i > 0 ? y[n - step] : kProduct ? T{1} : T{0};
        y[n] = exclusive && i == 0 ? before : next_of<kProduct>(before, from[n]);
      }
    });
  }
}

int axis_of(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const std::int64_t given = int_at(c.input(1), 0);
  if (given < -x.rank() || given >= x.rank()) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "axis %lld is outside [-%d, %d)", static_cast<long long>(given), x.rank(), x.rank());
  }
  return normalize_axis(given, x.rank());
}

template <bool kProduct>
void reference_cumulative(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = axis_of(c);
  const bool exclusive = attr_int(c.node, kExclusive) != 0;
  const bool reverse = attr_int(c.node, kReverse) != 0;
  const std::int64_t inner = x.elements(axis + 1, x.rank());
  const std::int64_t block = x[axis] * inner;
  const std::int64_t step = reverse ? -inner : inner;
  if (block == 0) return;
  dispatch<float, double, std::int32_t, std::int64_t, std::uint32_t, std::uint64_t>(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < x.elements(0, axis); ++i) {
      const std::int64_t start = i * block + (reverse ? block - inner : 0);
      const T* from = c.input(0).as<T>() + start;
      T* to = c.output().as<T>() + start;
      if (inner == 1) {
        accumulate<kProduct>(from, to, x[axis], step, exclusive);
      } else {
        accumulate_rows<kProduct>(from, to, x[axis], step, inner, exclusive);
      }
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
