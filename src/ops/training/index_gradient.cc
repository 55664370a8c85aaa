// The derivatives of Gather and Slice. Not operators of the format (ops/gradient.h). dx has the shape of x, of which nothing else
// is used; what is not read is 0.
//   GatherGradient: of inputs x, indices, dy: the sum of the dy that Gather with this `axis` and these indices takes from each
//   place. SliceGradient: of inputs x, starts, ends, axes, steps, dy: dy where Slice takes it from.
// dtypes: floating point. Failures: those of the operators, a dy of another shape; at run: an index outside. Tolerance: sums of
// float32.
#include <vector>

#include "ops/gather.h"
#include "ops/gradient.h"
#include "ops/infra/check.h"
#include "ops/infra/index.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"
#include "ops/merge.h"
#include "ops/slice.h"

namespace evn {
namespace {

constexpr int kSliced = 5;  // SliceGradient's dy

void infer_gather_gradient(InferContext& c) {
  require_dtype(c, 1, kIndexDtypes);
  if (c.inputs[2].dtype != c.inputs[0].dtype) fail(EVN_ERROR_INVALID_MODEL, "dy has another element type than x");
  const Shape &x = c.shape(0), &indices = c.shape(1);
  const int axis = normalize_axis(attr_int(c.node, GatherAttr::kAxis), x.rank());
  require_rank(c, 2, x.rank() - 1 + indices.rank(), x.rank() - 1 + indices.rank());
  for (int i = 0; i < axis; ++i) require_dim(c.shape(2)[i], x[i], 2);
  for (int i = 0; i < indices.rank(); ++i) require_dim(c.shape(2)[axis + i], indices[i], 2);
  for (int i = axis + 1; i < x.rank(); ++i) require_dim(c.shape(2)[i - 1 + indices.rank()], x[i], 2);
  c.outputs[0].shape = x;
}

void reference_gather_gradient(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, GatherAttr::kAxis), x.rank());
  const std::int64_t outer = x.elements(0, axis), inner = x.elements(axis + 1, x.rank());
  const std::int64_t count = c.input(1).desc.shape.elements();
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<double> sums(static_cast<std::size_t>(x.elements()));
    const T* dy = c.input(2).as<T>();
    for (std::int64_t o = 0; o < outer; ++o) {
      cancellation_point();
      for (std::int64_t i = 0; i < count; ++i) {
        cancellation_point();
        const std::int64_t to = (o * x[axis] + index_at(c.input(1), i, x[axis])) * inner;
        for (std::int64_t k = 0; k < inner; ++k) {
          cancellation_point();
          sums[static_cast<std::size_t>(to + k)] += static_cast<double>(*dy++);
        }
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      cancellation_point();
      c.output().as<T>()[i] = static_cast<T>(sums[i]);
    }
  });
}

void infer_slice_gradient(InferContext& c) {
  for (int i = 1; i < kSliced; ++i) require_dtype(c, i, kIndexDtypes);
  require_same_dtype(c, 1, kSliced - 1);
  require_input(c, kSliced);
  if (c.inputs[kSliced].dtype != c.inputs[0].dtype) fail(EVN_ERROR_INVALID_MODEL, "dy has another element type than x");
  require_rank(c, kSliced, c.shape(0).rank(), c.shape(0).rank());
  c.outputs[0].shape = c.shape(0);
}

void reference_slice_gradient(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const MutableTensor& dx = c.output();
  const ConstTensor& dy = c.input(kSliced);
  SliceAxis axes[kMaxRank];
  const Shape taken = resolve_slice(c.node, c.inputs, x, axes);
  if (taken != dy.desc.shape) fail(EVN_ERROR_INVALID_ARGUMENT, "dy has not the shape of the slice");
  if (x.elements() > 0) fill_in_pieces(dx.data, 0, dx.desc.size_bytes());
  if (taken.elements() == 0) return;
  Strides strides = dense_strides(x);
  std::int64_t start = 0;
  for (int i = 0; i < x.rank(); ++i) {
    start += axes[i].start * strides.step[i];
    strides.step[i] = axes[i].count > 1 ? strides.step[i] * axes[i].step : 0;
  }
  with_width(dx.desc.dtype, [&](auto width) {
    walk<1>(
        taken, {strides}, [&](std::int64_t from, const std::int64_t* to) { move_element<width()>(dx.data, to[0], dy.data, from); },
        &start);
  });
}

constexpr AttributeSpec kAxis[] = {int_attribute("axis", 0)};
constexpr OpDef kOps[] = {
    {.name = kGatherGradient,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 3,
     .attributes = kAxis,
     .dtypes = kFloats,
     .flags = kOpShapeOnly,
     .infer = infer_gather_gradient,
     .reference = reference_gather_gradient,
     .tolerance = {1e-5, 1e-6}},
    {.name = kSliceGradient,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 6,
     .dtypes = kFloats,
     .flags = kOpShapeOnly,
     .infer = infer_slice_gradient,
     .reference = reference_slice_gradient},
};

}  // namespace

extern const OpFamily index_gradient_family;
const OpFamily index_gradient_family = {kOps};

}  // namespace evn
