// ResizeGradient, not an operator of the format (ops/gradient.h): of inputs x, roi, scales, sizes, dy and the attributes of Resize:
// dx of the shape of x, of which nothing else is used: each dy to the elements that it was sampled from, by their weights.
// dtypes: floating point. Failures: as those of Resize; a dy of another shape or dtype. Tolerance: rtol 1e-4, atol 1e-5.
#include <vector>

#include "ops/gradient.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"
#include "ops/merge.h"
#include "ops/resize.h"

namespace evn {
namespace {

constexpr int kDy = 4;  // ResizeGradient's dy

void infer_resize_gradient(InferContext& c) {
  require_input(c, kDy);
  if (c.inputs[kDy].dtype != c.inputs[0].dtype) fail(EVN_ERROR_INVALID_MODEL, "dy has another element type than x");
  const Shape& x = c.shape(0);
  require_rank(c, kDy, x.rank(), x.rank());
  infer_resize(c);
  for (int i = 0; i < x.rank(); ++i) require_dim(c.shape(kDy)[i], c.outputs[0].shape[i], kDy);
  c.outputs[0].shape = x;
}

// An output position's dy goes to all that it is the sum of.
struct Spreader {
  std::vector<ResizeTaps> axes;
  Strides strides;
  std::vector<double>* sums;

  void spread(const std::int64_t* at, std::size_t axis, std::int64_t to, double share) const {
    if (axis == axes.size()) {
      (*sums)[static_cast<std::size_t>(to)] += share;
      return;
    }
    for (std::size_t i = axes[axis].begin[at[axis]]; i < axes[axis].begin[at[axis] + 1]; ++i) {
      cancellation_point();
      const ResizeTap& tap = axes[axis].taps[i];
      if (tap.weight != 0) spread(at, axis + 1, to + tap.index * strides.step[axis], share * tap.weight);
    }
  }
};

void reference_resize_gradient(const ReferenceContext& c) {
  const Shape &x = c.input(0).desc.shape, &y = c.input(kDy).desc.shape;
  std::vector<double> sums(static_cast<std::size_t>(x.elements()));
  Spreader spreader{{}, dense_strides(x), &sums};
  const ResizeGeometry g = y.elements() == 0 ? ResizeGeometry{} : resize_geometry(c.node, c.inputs.first(kDy), y);
  for (int i = 0; i < x.rank() && y.elements() > 0; ++i) spreader.axes.push_back(resize_axis_taps(g, i));
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < y.elements(); ++i) {
      cancellation_point();
      std::int64_t at[kMaxRank] = {}, rest = i;
      for (int axis = y.rank() - 1; axis >= 0; --axis) {
        at[axis] = rest % y[axis];
        rest /= y[axis];
      }
      spreader.spread(at, 0, 0, static_cast<double>(c.input(kDy).as<T>()[i]));
    }
    copy_in_pieces(sums.data(), static_cast<std::int64_t>(sums.size()), c.output().as<T>());
  });
}

constexpr OpDef kOps[] = {
    {.name = kResizeGradient,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = 1,
     .max_inputs = 5,
     .attributes = kResizeAttributes,
     .dtypes = kFloats,
     .value_inputs = 0b1110,
     .flags = kOpShapeOnly,
     .infer = infer_resize_gradient,
     .reference = reference_resize_gradient,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily resize_gradient_family;
const OpFamily resize_gradient_family = {kOps};

}  // namespace evn
