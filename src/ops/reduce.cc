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

template <typename T>
bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(x);
  else return false;
}

// Steps of a reduction. Each output has a state of its own.
struct Steps {
  void (*add)(void* state, const void* x, std::int64_t count, std::int64_t step);  // takes in x[i * step] for i < count
  // Makes elements [at, at + n) of y, of so many elements each.
  void (*write)(const void* states, std::int64_t n, std::int64_t count, void* y, std::int64_t at);
  // Takes in rows of x, `step` elements apart: of each row x[j] into state j, for j < width. null: outputs are made one by one.
  void (*add_rows)(void* states, const void* x, std::int64_t rows, std::int64_t step, std::int64_t width) = nullptr;
};

constexpr std::int64_t kMostColumns = 256;  // outputs that are made together
constexpr std::int64_t kFewColumns = 4;     // not worth it

std::int64_t parts_of_reduce(const ReferenceContext& c) { return c.output().desc.shape.elements(); }

// Walks over the outputs of the context's parts, and for each over what is reduced to it. Each begins with the state `first`, of
// `bytes` bytes. `states` has room for kMostColumns of them if there is an add_rows, else for one.
void reduce_by(const ReferenceContext& c, const Steps& steps, const void* first, void* states, std::size_t bytes) {
  const std::uint32_t mask = mask_of(c);
  const Shape& x = c.input(0).desc.shape;
  const auto size = static_cast<std::int64_t>(dtype_size(c.input(0).desc.dtype));
  const Strides dense = dense_strides(x);
  Shape shapes[2];  // of what is kept, and of what is reduced
  Strides strides[2];
  for (int i = 0; i < x.rank(); ++i) {
    const int which = static_cast<int>(mask >> i & 1u);
    strides[which].step[shapes[which].rank()] = dense.step[i];
    shapes[which].push_back(x[i]);
  }
  const std::int64_t end = std::min(c.end, shapes[0].elements()), count = shapes[1].elements();
  if (c.begin >= end) return;
  const WalkAxes<1> kept(shapes[0], {strides[0]}), reduced(shapes[1], {strides[1]});
  const std::int64_t row = kept.dims[0], length = reduced.dims[0], step = reduced.steps[0][0];
  const auto reduce_row = [&](std::int64_t position, const std::int64_t* base) {
    const std::int64_t stop = std::min(end, position + row);
    const bool by_rows = steps.add_rows != nullptr && kept.steps[0][0] == 1 && row >= kFewColumns;
    for (std::int64_t i = std::max(position, c.begin), width; i < stop; i += width) {
      width = by_rows ? std::min(kMostColumns, stop - i) : 1;
      cancellation_point(width);
      const char* from = c.input(0).as<char>() + (base[0] + (i - position) * kept.steps[0][0]) * size;
      for (std::int64_t j = 0; j < width; ++j)
        std::memcpy(static_cast<char*>(states) + static_cast<std::size_t>(j) * bytes, first, bytes);
      walk_lines(reduced, [&](std::int64_t, const std::int64_t* at) {
        in_pieces(length, width, [&](std::int64_t n, std::int64_t last) {
          const char* const piece = from + (at[0] + n * step) * size;
          if (by_rows) steps.add_rows(states, piece, last - n, step, width);
          else steps.add(states, piece, last - n, step);
        });
      });
      steps.write(states, width, count, c.output().data, i);
    }
  };
  walk_lines(kept, reduce_row, nullptr, c.begin / row, (end - 1) / row + 1);
}

// Operation that joins parts of a fold whose order does not count. kNone: the order counts.
enum class Join { kNone, kExtreme, kSum, kProduct };

// Joins two parts.
template <Join kJoin, typename Fold, typename A>
A joined(A a, A b) {
  if constexpr (kJoin == Join::kSum) return a + b;
  else if constexpr (kJoin == Join::kProduct) return a * b;
  else return Fold{}(a, b);
}

// A line of elements that lie together, in lanes that are joined at the end. Returns how many were taken in.
template <Join kJoin, typename Fold, typename T, typename A>
std::int64_t fold_line(const T* __restrict__ x, std::int64_t count, A* value) {
  constexpr std::int64_t kLanes = sizeof(T) == 1 && sizeof(A) == 1 ? 64 : 16;
  if (count < 2 * kLanes) return 0;
  A lanes[kLanes];
  std::fill_n(lanes, kLanes, kJoin == Join::kExtreme ? *value : kJoin == Join::kProduct ? A{1} : A{0});
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t n = 0; n < kLanes; ++n) lanes[n] = Fold{}(lanes[n], x[i + n]);
  }
  for (const A lane : lanes) *value = joined<kJoin, Fold>(*value, lane);
  return i;
}

template <typename Fold, typename T, typename A>
void fold_rows(A* __restrict__ states, const T* __restrict__ x, std::int64_t rows, std::int64_t step, std::int64_t width) {
  constexpr std::int64_t kBlock = sizeof(T) == 1 ? 32 : 16;
  for (; rows > 0; --rows, x += step) {
    std::int64_t j = 0;
    for (; j + kBlock <= width; j += kBlock) {
      for (std::int64_t n = 0; n < kBlock; ++n) states[j + n] = Fold{}(states[j + n], x[j + n]);
    }
    for (; j < width; ++j) states[j] = Fold{}(states[j], x[j]);
  }
}

// y = finish(fold(... fold(first, x) ...), number of x) over the reduced axes. A is what is accumulated in; both functions are
// stateless.
template <typename T, typename A, Join kJoin = Join::kNone, typename Fold, typename Finish>
void reduce(const ReferenceContext& c, A first, Fold, Finish) {
  const Steps steps = {[](void* state, const void* x, std::int64_t count, std::int64_t step) {
                         const T* from = static_cast<const T*>(x);
                         A value = *static_cast<A*>(state);
                         if constexpr (kJoin != Join::kNone) {
                           const std::int64_t done = step == 1 ? fold_line<kJoin, Fold>(from, count, &value) : 0;
                           from += done;
                           count -= done;
                         }
                         for (; count > 0; --count, from += step) value = Fold{}(value, *from);
                         *static_cast<A*>(state) = value;
                       },
                       [](const void* states, std::int64_t n, std::int64_t count, void* y, std::int64_t at) {
                         for (std::int64_t i = 0; i < n; ++i)
                           static_cast<T*>(y)[at + i] = Finish{}(static_cast<const A*>(states)[i], count);
                       },
                       [](void* states, const void* x, std::int64_t rows, std::int64_t step, std::int64_t width) {
                         fold_rows<Fold>(static_cast<A*>(states), static_cast<const T*>(x), rows, step, width);
                       }};
  A states[kMostColumns];
  reduce_by(c, steps, &first, states, sizeof(A));
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
    reduce<T, A, std::is_integral_v<T> ? Join::kSum : Join::kNone>(
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

// The largest element so far, and the sum of exp(x - largest). A NaN stays the largest.
template <typename T>
struct ScaledSum {
  // What differences and their exponentials are computed in; for results in float, float will do.
  using Wide = std::conditional_t<std::is_same_v<T, float>, float, double>;
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0;

  void add(const T* x, std::int64_t count, std::int64_t step) {
    if (std::isnan(largest)) return;
    Wide top = -std::numeric_limits<Wide>::infinity();
    for (std::int64_t i = 0; i < count; ++i) {
      const auto element = static_cast<Wide>(x[i * step]);
      top = is_nan(top) || top > element ? top : element;
    }
    if (static_cast<double>(top) > largest || std::isnan(top)) {
      sum = std::isinf(largest) ? 0 : sum * std::exp(largest - static_cast<double>(top));
      largest = static_cast<double>(top);
    }
    if (!std::isfinite(largest)) {  // of nothing but -infinity the sum stays 0
      sum = largest > 0 ? 1 : 0;
      return;
    }
    cancellation_point(count * (kFunctionWork - 1));
    const auto scale = static_cast<Wide>(largest);
    for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(std::exp(static_cast<Wide>(x[i * step]) - scale));
  }
};

void reference_log_sum_exp(const ReferenceContext& c) {
  dispatch_sums(c, [&](auto zero) {
    using T = decltype(zero);
    using State = ScaledSum<T>;
    constexpr Steps kSteps = {[](void* state, const void* x, std::int64_t count, std::int64_t step) {
                                static_cast<State*>(state)->add(static_cast<const T*>(x), count, step);
                              },
                              [](const void* state, std::int64_t, std::int64_t, void* y, std::int64_t at) {
                                const auto* s = static_cast<const State*>(state);
                                static_cast<T*>(y)[at] = from_double<T>(s->largest + std::log(s->sum));
                              }};
    const State first;
    State state;
    reduce_by(c, kSteps, &first, &state, sizeof state);
  });
}

void reference_mean(const ReferenceContext& c) {
  dispatch_sums(c, [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulator<T>;
    using Signed = std::conditional_t<std::is_signed_v<T> && std::is_integral_v<T>, std::int64_t, A>;
    reduce<T, A, std::is_integral_v<T> ? Join::kSum : Join::kNone>(
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
    reduce<T, A, std::is_integral_v<T> ? Join::kProduct : Join::kNone>(
        c, A{1}, [](A a, T x) { return a * static_cast<A>(x); }, [](A a, std::int64_t) { return static_cast<T>(a); });
  });
}

template <bool kMax>
void reference_extreme(const ReferenceContext& c) {
  const DType dtype = c.input(0).desc.dtype;
  dispatch_numbers(dtype == DType::kBool ? DType::kUint8 : dtype, [&](auto zero) {
    using T = decltype(zero);
    using Limits = std::numeric_limits<T>;
    const T lowest = Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
    const T highest = Limits::has_infinity ? Limits::infinity() : dtype == DType::kBool ? T{1} : Limits::max();
    reduce<T, T, std::is_integral_v<T> ? Join::kExtreme : Join::kNone>(
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
