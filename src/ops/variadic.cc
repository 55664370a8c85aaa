// Min, Max, Sum, Mean of any number of broadcast inputs.
//   y = min(x0, x1, ...), and so on, element by element. NaN in any input gives NaN
// dtypes: all numbers for Min and Max, floating point for Sum and Mean (added up in double). All inputs alike.
// Failures: shapes that do not broadcast, unlike dtypes. Tolerance: exact, Sum and Mean rtol 1e-6.
#include <algorithm>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

void infer_variadic(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  Shape out = c.shape(0);
  for (std::size_t i = 1; i < c.inputs.size(); ++i) out = broadcast_partial(out, c.shape(static_cast<int>(i)));
  c.outputs[0].shape = out;
}

// Offset in `from`, broadcast to `out`, of element `position` of `out`.
std::int64_t broadcast_offset(const Shape& from, const Shape& out, std::int64_t position) {
  std::int64_t offset = 0;
  std::int64_t step = 1;
  for (int i = out.rank() - 1; i >= out.rank() - from.rank(); --i) {
    const std::int64_t dim = from[i - (out.rank() - from.rank())];
    if (dim != 1) offset += position % out[i] * step;
    step *= dim;
    position /= out[i];
  }
  return offset;
}

constexpr std::int64_t kAtOnce = 256;  // elements

// Where elements [begin, begin + n) of the output are in an input.
void find_elements(const Shape& from, const Shape& out, std::int64_t begin, std::int64_t n, std::int64_t* at) {
  const bool dense = from.elements() == out.elements();
  for (std::int64_t i = 0; i < n; ++i) at[i] = dense ? begin + i : broadcast_offset(from, out, begin + i);
}

// y = finish(fold(fold(x0, x1), x2) ...), in A, some elements at a time; all inputs of these are read before they are written, so
// that y may be one of them.
template <typename T, typename A, typename Fold, typename Finish>
void fold_inputs(const ReferenceContext& c, Fold&& fold, Finish&& finish) {
  const Shape& out = c.output().desc.shape;
  const std::int64_t count = out.elements();
  T* const y = c.output().as<T>();
  A values[kAtOnce];
  std::int64_t at[kAtOnce];
  for (std::int64_t begin = 0; begin < count; begin += kAtOnce) {
    const std::int64_t n = std::min(kAtOnce, count - begin);
    for (std::size_t input = 0; input < c.inputs.size(); ++input) {
      cancellation_point(n);
      const T* const x = c.inputs[input].as<T>();
      find_elements(c.inputs[input].desc.shape, out, begin, n, at);
      for (std::int64_t i = 0; i < n; ++i) {
        const A element = x[at[i]];
        values[i] = input == 0 ? element : fold(values[i], element);
      }
    }
    for (std::int64_t i = 0; i < n; ++i) y[begin + i] = static_cast<T>(finish(values[i]));
  }
}

template <typename T>
bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(x);
  else return false;
}

void extreme_of_inputs(const ReferenceContext& c, bool largest) {
  dispatch_numbers(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    fold_inputs<T, T>(
        c, [largest](T a, T b) { return is_nan(a) || (largest ? a > b : a < b) ? a : b; }, [](T a) { return a; });
  });
}

void reference_min(const ReferenceContext& c) { extreme_of_inputs(c, false); }
void reference_max(const ReferenceContext& c) { extreme_of_inputs(c, true); }

void sum_inputs(const ReferenceContext& c, double divisor) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    fold_inputs<T, double>(
        c, [](double a, double b) { return a + b; }, [divisor](double a) { return a / divisor; });
  });
}

void reference_sum(const ReferenceContext& c) { sum_inputs(c, 1); }
void reference_mean(const ReferenceContext& c) { sum_inputs(c, static_cast<double>(c.inputs.size())); }

constexpr Tolerance kSums = {1e-6, 1e-6};
constexpr OpDef kOps[] = {
    {.name = "Min",
     .since = 6,
     .max_inputs = kVariadic,
     .dtypes = kNumbers,
     .flags = kOpElementwise,
     .infer = infer_variadic,
     .reference = reference_min},
    {.name = "Max",
     .since = 6,
     .max_inputs = kVariadic,
     .dtypes = kNumbers,
     .flags = kOpElementwise,
     .infer = infer_variadic,
     .reference = reference_max},
    {.name = "Sum",
     .since = 6,
     .max_inputs = kVariadic,
     .dtypes = kFloats,
     .flags = kOpElementwise,
     .infer = infer_variadic,
     .reference = reference_sum,
     .tolerance = kSums},
    {.name = "Mean",
     .since = 6,
     .max_inputs = kVariadic,
     .dtypes = kFloats,
     .flags = kOpElementwise,
     .infer = infer_variadic,
     .reference = reference_mean,
     .tolerance = kSums},
};

}  // namespace

extern const OpFamily variadic_family;
const OpFamily variadic_family = {kOps};

}  // namespace evn
