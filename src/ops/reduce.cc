// Reductions over some axes: ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceL1, ReduceL2, ReduceSumSquare,
// ReduceLogSum, and ReduceLogSumExp, which is taken relative to the maximum, so that exp does not overflow.
// Axes are an attribute before 13 (ReduceSum) or 18 (the others), later input 1; without them all axes, or, with
// noop_with_empty_axes, none: then each element is reduced by itself. keepdims leaves axes of 1.
// Sums of integers wrap, their means truncate. Over no elements: sum 0, product 1, mean NaN (integers: 0), maximum the lowest value
// and minimum the highest. NaN gives NaN.
// dtypes: floating point, 32- and 64-bit integers; ReduceMax and ReduceMin all numbers, from 20 bool. Failures: axes outside the
// rank or twice. Tolerance: rtol 1e-5, atol 1e-6; maximum and minimum exact.
#include "ops/reduce.h"

#include <algorithm>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

Shape reduced_shape(const Shape& x, std::uint32_t mask, bool keep) {
  Shape out;
  for (int i = 0; i < x.rank(); ++i) {
    const bool reduced = (mask >> i & 1u) != 0;
    if (!reduced || keep) out.push_back(reduced ? 1 : x[i]);
  }
  return out;
}

// The shape while the axes are not known yet, only perhaps how many they are.
void infer_without_axes(InferContext& c, bool keep) {
  const int rank = c.shape(0).rank();
  const std::int64_t count = c.shape(1).rank() == 0 ? 1 : c.shape(1)[0];
  if (count > rank) fail(EVN_ERROR_INVALID_MODEL, "more axes than the input has");
  if (keep) return infer_shape_of_length(c, rank);
  infer_shape_of_length(c, count <= 0 ? -1 : rank - count);
}

void infer_reduce(InferContext& c) {
  const bool keep = attr_int(c.node, ReduceAttr::kKeepDims) != 0;
  InferContext::Ints axes;
  axes.count = 0;
  require_dtype(c, 1, kIndexDtypes);
  require_rank(c, 1, 0, 1);
  const bool unknown = c.has_input(1) && !(c.shape(1).rank() == 1 && c.shape(1)[0] == 0) && !c.int_value(1, &axes);
  if (unknown) return infer_without_axes(c, keep);
  const std::uint32_t mask = reduce_axes(c.node, c.shape(0).rank(), {axes.v, static_cast<std::size_t>(axes.count)});
  c.outputs[0].shape = reduced_shape(c.shape(0), mask, keep);
}

std::uint32_t mask_of(const ReferenceContext& c) {
  std::int64_t axes[InferContext::kMaxValues];
  std::int64_t count = 0;
  if (c.has_input(1)) {
    count = c.input(1).desc.shape.elements();
    if (count > InferContext::kMaxValues) fail(EVN_ERROR_INVALID_MODEL, "too many axes");
    read_ints(c.input(1), axes);
  }
  return reduce_axes(c.node, c.input(0).desc.shape.rank(), {axes, static_cast<std::size_t>(count)});
}

// y = finish(fold(... fold(first, x) ...), number of x) over the reduced axes. A is what is accumulated in.
template <typename T, typename A, typename Fold, typename Finish>
void reduce(const ReferenceContext& c, A first, Fold&& fold, Finish&& finish) {
  const std::uint32_t mask = mask_of(c);
  const Shape& x = c.input(0).desc.shape;
  const Strides dense = dense_strides(x);
  Shape kept;
  Shape reduced;
  Strides kept_strides;
  Strides reduced_strides;
  for (int i = 0; i < x.rank(); ++i) {
    const bool out = (mask >> i & 1u) != 0;
    (out ? reduced_strides.step[reduced.rank()] : kept_strides.step[kept.rank()]) = dense.step[i];
    (out ? reduced : kept).push_back(x[i]);
  }
  const std::int64_t count = reduced.elements();
  walk<1>(kept, {kept_strides}, [&](std::int64_t i, const std::int64_t* base) {
    A value = first;
    const T* from = c.input(0).as<T>() + base[0];
    walk<1>(reduced, {reduced_strides}, [&](std::int64_t, const std::int64_t* at) { value = fold(value, from[at[0]]); });
    c.output().as<T>()[i] = finish(value, count);
  });
}

template <typename F>
void dispatch_sums(const ReferenceContext& c, F&& f) {
  dispatch<float, double, std::int32_t, std::int64_t, std::uint32_t, std::uint64_t>(c.input(0).desc.dtype, f);
}

// Sums of kTerm(x).
template <auto kTerm>
void sum_terms(const ReferenceContext& c) {
  dispatch_sums(c, [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulator<T>;
    reduce<T, A>(
        c, A{0}, [](A a, T x) { return a + kTerm(static_cast<A>(x)); }, [](A a, std::int64_t) { return static_cast<T>(a); });
  });
}

constexpr auto kSame = [](auto x) { return x; };
constexpr auto kSquare = [](auto x) { return x * x; };
constexpr auto kMagnitude = [](auto x) {
  if constexpr (std::is_floating_point_v<decltype(x)>) return std::fabs(x);
  else return static_cast<std::int64_t>(x) < 0 ? 0 - x : x;
};

void reference_l1(const ReferenceContext& c) {
  // Unsigned 64-bit values have no sign to drop.
  c.input(0).desc.dtype == DType::kUint64 ? sum_terms<kSame>(c) : sum_terms<kMagnitude>(c);
}

void reference_l2(const ReferenceContext& c) {
  dispatch_sums(c, [&](auto zero) {
    using T = decltype(zero);
    reduce<T, double>(
        c, 0.0, [](double a, T x) { return a + static_cast<double>(x) * static_cast<double>(x); },
        [](double a, std::int64_t) {
          if constexpr (std::is_integral_v<T>) return saturate_to<T>(std::sqrt(a));
          else return static_cast<T>(std::sqrt(a));
        });
  });
}

// A double as T: integers towards zero.
template <typename T>
T from_double(double x) {
  if constexpr (std::is_integral_v<T>) return saturate_to<T>(x);
  else return static_cast<T>(x);
}

void reference_log_sum(const ReferenceContext& c) {
  dispatch_sums(c, [&](auto zero) {
    using T = decltype(zero);
    reduce<T, double>(
        c, 0.0, [](double a, T x) { return a + static_cast<double>(x); },
        [](double a, std::int64_t) { return from_double<T>(std::log(a)); });
  });
}

// The largest element so far, and the sum of exp(x - largest).
struct ScaledSum {
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0;

  ScaledSum plus(double x) const {
    if (std::isnan(x) || std::isnan(largest)) return {std::numeric_limits<double>::quiet_NaN(), 0};
    if (std::isinf(x) && x < 0) return *this;
    if (x <= largest) return {largest, x == largest ? sum + 1 : sum + std::exp(x - largest)};
    return {x, std::isinf(largest) ? 1 : sum * std::exp(largest - x) + 1};
  }
};

void reference_log_sum_exp(const ReferenceContext& c) {
  dispatch_sums(c, [&](auto zero) {
    using T = decltype(zero);
    reduce<T, ScaledSum>(
        c, ScaledSum{}, [](const ScaledSum& a, T x) { return a.plus(static_cast<double>(x)); },
        [](const ScaledSum& a, std::int64_t) { return from_double<T>(a.largest + std::log(a.sum)); });
  });
}

void reference_mean(const ReferenceContext& c) {
  dispatch_sums(c, [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulator<T>;
    using Signed = std::conditional_t<std::is_signed_v<T> && std::is_integral_v<T>, std::int64_t, A>;
    reduce<T, A>(
        c, A{0}, [](A a, T x) { return a + static_cast<A>(x); },
        [](A a, std::int64_t n) {
          if constexpr (std::is_integral_v<T>) {
            if (n == 0) return T{0};
          }
          return static_cast<T>(static_cast<Signed>(a) / static_cast<Signed>(n));
        });
  });
}

void reference_prod(const ReferenceContext& c) {
  dispatch_sums(c, [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulator<T>;
    reduce<T, A>(
        c, A{1}, [](A a, T x) { return a * static_cast<A>(x); }, [](A a, std::int64_t) { return static_cast<T>(a); });
  });
}

template <typename T>
bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(x);
  else return false;
}

template <bool kMax>
void reference_extreme(const ReferenceContext& c) {
  const DType dtype = c.input(0).desc.dtype;
  dispatch_numbers(dtype == DType::kBool ? DType::kUint8 : dtype, [&](auto zero) {
    using T = decltype(zero);
    using Limits = std::numeric_limits<T>;
    const T lowest = Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
    const T highest = Limits::has_infinity ? Limits::infinity() : dtype == DType::kBool ? T{1} : Limits::max();
    reduce<T, T>(
        c, kMax ? lowest : highest, [](T a, T x) { return is_nan(a) || (kMax ? a > x : a < x) ? a : x; },
        [](T a, std::int64_t) { return a; });
  });
}

constexpr AttributeSpec kWithAxes[] = {int_attribute("keepdims", 1), optional_attribute("axes", AttributeType::kInts)};
constexpr AttributeSpec kWithNoop[] = {int_attribute("keepdims", 1), int_attribute("noop_with_empty_axes", 0)};
constexpr std::uint32_t kSumDtypes =
    kFloats | dtype_bit(DType::kInt32) | dtype_bit(DType::kInt64) | dtype_bit(DType::kUint32) | dtype_bit(DType::kUint64);
constexpr std::uint32_t kOrdered = kNumbers | dtype_bit(DType::kBool);
constexpr Tolerance kNear = {1e-5, 1e-6};
constexpr Tolerance kExact = {};

using Reference = void (*)(const ReferenceContext&);

constexpr OpDef by_attribute(const char* name, Reference reference, std::uint32_t dtypes = kSumDtypes, Tolerance near = kNear) {
  return {.name = name,
          .since = 1,
          .attributes = kWithAxes,
          .dtypes = dtypes,
          .infer = infer_reduce,
          .reference = reference,
          .tolerance = near};
}
constexpr OpDef by_input(const char* name, int since, Reference reference, std::uint32_t dtypes = kSumDtypes,
                         Tolerance near = kNear) {
  return {.name = name,
          .since = since,
          .max_inputs = 2,
          .attributes = kWithNoop,
          .dtypes = dtypes,
          .value_inputs = 2,
          .infer = infer_reduce,
          .reference = reference,
          .tolerance = near};
}

constexpr OpDef kOps[] = {
    by_attribute("ReduceSum", sum_terms<kSame>),
    by_input("ReduceSum", 13, sum_terms<kSame>),
    by_attribute("ReduceMean", reference_mean),
    by_input("ReduceMean", 18, reference_mean),
    by_attribute("ReduceProd", reference_prod),
    by_input("ReduceProd", 18, reference_prod),
    by_attribute("ReduceL1", reference_l1),
    by_input("ReduceL1", 18, reference_l1),
    by_attribute("ReduceL2", reference_l2),
    by_input("ReduceL2", 18, reference_l2),
    by_attribute("ReduceSumSquare", sum_terms<kSquare>),
    by_input("ReduceSumSquare", 18, sum_terms<kSquare>),
    by_attribute("ReduceLogSum", reference_log_sum),
    by_input("ReduceLogSum", 18, reference_log_sum),
    by_attribute("ReduceLogSumExp", reference_log_sum_exp),
    by_input("ReduceLogSumExp", 18, reference_log_sum_exp),
    by_attribute("ReduceMax", reference_extreme<true>, kNumbers, kExact),
    by_input("ReduceMax", 18, reference_extreme<true>, kNumbers, kExact),
    by_input("ReduceMax", 20, reference_extreme<true>, kOrdered, kExact),
    by_attribute("ReduceMin", reference_extreme<false>, kNumbers, kExact),
    by_input("ReduceMin", 18, reference_extreme<false>, kNumbers, kExact),
    by_input("ReduceMin", 20, reference_extreme<false>, kOrdered, kExact),
};

}  // namespace

bool reduce_axes_is_input(const Node& node) { return node.op->max_inputs == 2; }

std::uint32_t reduce_axes(const Node& node, int rank, std::span<const std::int64_t> axes_input) {
  const bool by_value = reduce_axes_is_input(node);
  const std::span<const std::int64_t> axes = by_value ? axes_input : attr_ints(node, ReduceAttr::kAxes);
  if (!axes.empty()) return axes_mask(axes, rank);
  if (by_value && attr_int(node, ReduceAttr::kNoopWithEmptyAxes) != 0) return 0;
  return (1u << rank) - 1;
}

extern const OpFamily reduce_family;
const OpFamily reduce_family = {kOps};

}  // namespace evn
