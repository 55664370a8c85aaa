// SumTo: y has the shape of input 0; y[i] is the sum of the elements of input 1 whose position is i modulo that shape, dims counted
// from the last one: what undoes broadcasting (where a dim is 1, or not there) and tiling.
// RepeatTo: y has the shape of input 0; y[i] is the element of input 1 at i modulo the shape of input 1: what undoes SumTo.
// Not operators of the format (ops/gradient.h).
// dtypes: floating point. Failures: dims of the larger shape that are no multiples of the smaller one's. Tolerance: sums of
// float32.
#include <vector>

#include "ops/gradient.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"
#include "ops/merge.h"

namespace evn {
namespace {

void require_folds(const Shape& large, const Shape& small) {
  const int missing = large.rank() - small.rank();
  bool folds = missing >= 0;
  for (int i = 0; folds && i < small.rank(); ++i) {
    const std::int64_t n = large[i + missing], d = small[i];
    if (n >= 0 && d >= 0) folds = d == 0 ? n == 0 : n % d == 0;
  }
  if (!folds) {
    fail(EVN_ERROR_INVALID_MODEL, "shape %s does not fold into shape %s", large.to_string().c_str(), small.to_string().c_str());
  }
}

void infer_sum_to(InferContext& c) {
  require_same_dtype(c, 0, 1);
  require_folds(c.shape(1), c.shape(0));
  c.outputs[0].shape = c.shape(0);
}

void infer_repeat_to(InferContext& c) {
  require_same_dtype(c, 0, 1);
  require_folds(c.shape(0), c.shape(1));
  c.outputs[0].shape = c.shape(0);
}

// Calls f(position in `large`, position in `small`) for each element of `large`, in order.
template <typename F>
void walk_folded(const Shape& large, const Shape& small, F&& f) {
  const int missing = large.rank() - small.rank();
  std::int64_t dim[kMaxRank], step[kMaxRank] = {}, at[kMaxRank] = {}, within[kMaxRank] = {};
  std::int64_t dense[kMaxRank] = {};
  row_major_strides(small, dense);
  for (int i = 0; i < large.rank(); ++i) {
    dim[i] = i < missing ? 1 : small[i - missing];
    step[i] = i < missing ? 0 : dense[i - missing];
  }
  const std::int64_t total = large.elements();
  std::int64_t folded = 0;
  for (std::int64_t position = 0; position < total; ++position) {
    cancellation_point();
    f(position, folded);
    for (int axis = large.rank() - 1; axis >= 0; --axis) {
      folded += step[axis];
      if (++within[axis] == dim[axis]) {
        within[axis] = 0;
        folded -= step[axis] * dim[axis];
      }
      if (++at[axis] < large[axis]) break;
      at[axis] = 0;
    }
  }
}

void reference_sum_to(const ReferenceContext& c) {
  const Shape &large = c.input(1).desc.shape, &small = c.output().desc.shape;
  if (large.elements() == small.elements()) return copy_all(c.input(1), c.output());
  dispatch_floats(c.output().desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<double> sums(static_cast<std::size_t>(small.elements()));
    const T* x = c.input(1).as<T>();
    walk_folded(large, small,
                [&](std::int64_t from, std::int64_t to) { sums[static_cast<std::size_t>(to)] += static_cast<double>(x[from]); });
    for (std::size_t i = 0; i < sums.size(); ++i) {
      cancellation_point();
      c.output().as<T>()[i] = static_cast<T>(sums[i]);
    }
  });
}

void reference_repeat_to(const ReferenceContext& c) {
  const Shape &large = c.output().desc.shape, &small = c.input(1).desc.shape;
  if (large.elements() == small.elements()) return copy_all(c.input(1), c.output());
  dispatch_floats(c.output().desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    walk_folded(large, small, [&](std::int64_t to, std::int64_t from) { c.output().as<T>()[to] = c.input(1).as<T>()[from]; });
  });
}

constexpr OpDef kOps[] = {
    {.name = kSumTo,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kFloats,
     .flags = kOpShapeOnly,
     .infer = infer_sum_to,
     .reference = reference_sum_to,
     .tolerance = {1e-5, 1e-6}},
    {.name = kRepeatTo,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kFloats,
     .flags = kOpShapeOnly,
     .infer = infer_repeat_to,
     .reference = reference_repeat_to},
};

}  // namespace

extern const OpFamily sum_to_family;
const OpFamily sum_to_family = {kOps};

}  // namespace evn
