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
#include <cstring>

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

// What has been folded so far, of a type that the functions of a Reduction know.
struct Folded {
  alignas(8) unsigned char bytes[16] = {};

  template <typename A>
  A as() const {
    static_assert(sizeof(A) <= sizeof bytes);
    A value;
    std::memcpy(static_cast<void*>(&value), bytes, sizeof value);
    return value;
  }
  template <typename A>
  void set(const A& value) {
    std::memcpy(bytes, static_cast<const void*>(&value), sizeof value);
  }
};

// What makes one element of those that are reduced to it: the innermost loops. The rest is the same for all types and operators.
struct Reduction {
  Folded first;
  void (*fold)(Folded* value, const void* from, std::int64_t step, std::int64_t count);
  void (*finish)(const Folded& value, std::int64_t count, void* to);
};

// y = finish(fold(... fold(first, x) ...), number of x). A is what is accumulated in.
template <typename T, typename A, auto kFold, auto kFinish>
Reduction reduction(const A& first) {
  Reduction r;
  r.first.set(first);
  r.fold = [](Folded* value, const void* from, std::int64_t step, std::int64_t count) {
    A so_far = value->as<A>();
    const T* x = static_cast<const T*>(from);
    for (std::int64_t i = 0; i < count; ++i, x += step) so_far = kFold(so_far, *x);
    value->set(so_far);
  };
  r.finish = [](const Folded& value, std::int64_t count, void* to) {
    *static_cast<T*>(to) = static_cast<T>(kFinish.template operator()<T>(value.as<A>(), count));
  };
  return r;
}

// The axes that are kept and those that are reduced, with their strides in x.
struct Split {
  Shape kept, reduced;
  Strides kept_strides, reduced_strides;

  Split(const Shape& x, std::uint32_t mask) {
    const Strides dense = dense_strides(x);
    for (int i = 0; i < x.rank(); ++i) {
      const bool out = (mask >> i & 1u) != 0;
      (out ? reduced_strides.step[reduced.rank()] : kept_strides.step[kept.rank()]) = dense.step[i];
      (out ? reduced : kept).push_back(x[i]);
    }
  }
};

std::int64_t parts_of_reduce(const ReferenceContext& c) { return c.output().desc.shape.elements(); }

void run_reduction(const ReferenceContext& c, const Reduction& r) {
  const Split split(c.input(0).desc.shape, mask_of(c));
  const auto size = static_cast<std::int64_t>(dtype_size(c.input(0).desc.dtype));
  const std::int64_t count = split.reduced.elements(), end = std::min(c.end, split.kept.elements());
  if (c.begin >= end) return;
  const WalkAxes<1> inner(split.reduced, {split.reduced_strides});
  const std::int64_t line = inner.dims[0], step = inner.steps[0][0];
  OffsetWalk kept(split.kept, split.kept_strides), lines(split.reduced, split.reduced_strides);
  kept.seek(c.begin);
  for (std::int64_t i = c.begin; i < end; ++i, kept.next()) {
    Folded value = r.first;
    for (std::int64_t first = 0; first < count; first += line) {
      if (line != count) lines.seek(first);
      const char* const from = c.input(0).as<char>() + (kept.offset() + lines.offset()) * size;
      in_pieces(line, 1, [&](std::int64_t k, std::int64_t last) { r.fold(&value, from + k * step * size, step, last - k); });
    }
    cancellation_point();
    r.finish(value, count, c.output().as<char>() + i * size);
  }
}

template <typename F>
void dispatch_sums(const ReferenceContext& c, F&& f) {
  dispatch<float, double, std::int32_t, std::int64_t, std::uint32_t, std::uint64_t>(c.input(0).desc.dtype, f);
}

// A double as T: integers towards zero.
template <typename T>
T from_double(double x) {
  if constexpr (std::is_integral_v<T>) return saturate_to<T>(x);
  else return static_cast<T>(x);
}

constexpr auto kSame = [](auto x) { return x; };
constexpr auto kSquare = [](auto x) { return x * x; };
constexpr auto kMagnitude = [](auto x) {
  if constexpr (std::is_floating_point_v<decltype(x)>) return std::fabs(x);
  else return static_cast<std::int64_t>(x) < 0 ? 0 - x : x;
};
constexpr auto kPlus = []<typename A>(A a, auto x) { return a + static_cast<A>(x); };
constexpr auto kTimes = []<typename A>(A a, auto x) { return a * static_cast<A>(x); };
constexpr auto kAsItIs = []<typename T>(auto a, std::int64_t) { return a; };

// Sums of kTerm(x).
template <auto kTerm>
void sum_terms(const ReferenceContext& c) {
  dispatch_sums(c, [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulator<T>;
    run_reduction(c, reduction<T, A, [](A a, T x) { return a + kTerm(static_cast<A>(x)); }, kAsItIs>(0));
  });
}

void reference_l1(const ReferenceContext& c) {
  // Unsigned 64-bit values have no sign to drop.
  c.input(0).desc.dtype == DType::kUint64 ? sum_terms<kSame>(c) : sum_terms<kMagnitude>(c);
}

constexpr auto kRoot = []<typename T>(double a, std::int64_t) { return from_double<T>(std::sqrt(a)); };
constexpr auto kLog = []<typename T>(double a, std::int64_t) { return from_double<T>(std::log(a)); };

void reference_l2(const ReferenceContext& c) {
  constexpr auto kPlusSquare = [](double a, auto x) { return a + static_cast<double>(x) * static_cast<double>(x); };
  dispatch_sums(c, [&](auto zero) { run_reduction(c, reduction<decltype(zero), double, kPlusSquare, kRoot>(0)); });
}

void reference_log_sum(const ReferenceContext& c) {
  dispatch_sums(c, [&](auto zero) { run_reduction(c, reduction<decltype(zero), double, kPlus, kLog>(0)); });
}

// The largest element so far, and the sum of exp(x - largest).
struct ScaledSum {
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0;

  ScaledSum plus(double x) const;
};

[[gnu::noinline]] ScaledSum ScaledSum::plus(double x) const {
  if (std::isnan(x) || std::isnan(largest)) return {std::numeric_limits<double>::quiet_NaN(), 0};
  if (std::isinf(x) && x < 0) return *this;
  if (x <= largest) return {largest, x == largest ? sum + 1 : sum + std::exp(x - largest)};
  return {x, std::isinf(largest) ? 1 : sum * std::exp(largest - x) + 1};
}

void reference_log_sum_exp(const ReferenceContext& c) {
  constexpr auto kPlusExp = [](const ScaledSum& a, auto x) { return a.plus(static_cast<double>(x)); };
  constexpr auto kLogOf = []<typename T>(const ScaledSum& a, std::int64_t) { return from_double<T>(a.largest + std::log(a.sum)); };
  dispatch_sums(c, [&](auto zero) { run_reduction(c, reduction<decltype(zero), ScaledSum, kPlusExp, kLogOf>(ScaledSum{})); });
}

constexpr auto kMean = []<typename T>(auto a, std::int64_t n) -> T {
  using A = decltype(a);
  using Signed = std::conditional_t<std::is_signed_v<T> && std::is_integral_v<T>, std::int64_t, A>;
  if constexpr (std::is_integral_v<T>) {
    if (n == 0) return T{0};
  }
  return static_cast<T>(static_cast<Signed>(a) / static_cast<Signed>(n));
};

void reference_mean(const ReferenceContext& c) {
  dispatch_sums(c, [&](auto zero) {
    using T = decltype(zero);
    run_reduction(c, reduction<T, Accumulator<T>, kPlus, kMean>(0));
  });
}

void reference_prod(const ReferenceContext& c) {
  dispatch_sums(c, [&](auto zero) {
    using T = decltype(zero);
    run_reduction(c, reduction<T, Accumulator<T>, kTimes, kAsItIs>(1));
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
    constexpr auto kFurthest = [](T a, T x) { return is_nan(a) || (kMax ? a > x : a < x) ? a : x; };
    const T lowest = Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
    const T highest = Limits::has_infinity ? Limits::infinity() : dtype == DType::kBool ? T{1} : Limits::max();
    run_reduction(c, reduction<T, T, kFurthest, kAsItIs>(kMax ? lowest : highest));
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
          .tolerance = near,
          .parts = parts_of_reduce};
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
          .tolerance = near,
          .parts = parts_of_reduce};
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
