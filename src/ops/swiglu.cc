// SwiGLU: y = a * sigmoid(alpha * a) * b, of two tensors of the same shape (Shazeer, "GLU Variants Improve Transformer", 2020).
// dtypes: floating point, both alike. Failures: unlike shapes. Tolerance: rtol 1e-5, atol 1e-6.
#include <cmath>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_swiglu(InferContext& c) {
  require_same_dtype(c, 0, 1);
  require_rank(c, 1, c.shape(0).rank(), c.shape(0).rank());
  infer_same_shape(c);
  Shape& y = c.outputs[0].shape;
  for (int i = 0; i < y.rank(); ++i) {
    require_dim(c.shape(1)[i], y[i], 1);
    if (y[i] < 0) y[i] = c.shape(1)[i];
  }
}

void reference_swiglu(const ReferenceContext& c) {
  const double alpha = static_cast<double>(attr_float(c.node, 0));
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) {
      cancellation_point();
      const double a = static_cast<double>(c.input(0).as<T>()[i]);
      c.output().as<T>()[i] = static_cast<T>(a / (1 + std::exp(-alpha * a)) * static_cast<double>(c.input(1).as<T>()[i]));
    }
  });
}

constexpr AttributeSpec kAlpha[] = {float_attribute("alpha", 1)};
constexpr OpDef kOps[] = {
    {.name = "SwiGLU",
     .since = 28,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kAlpha,
     .dtypes = kFloats,
     .flags = kOpElementwise,
     .infer = infer_swiglu,
     .reference = reference_swiglu,
     .tolerance = {1e-5, 1e-6}},
};

}  // namespace

extern const OpFamily swiglu_family;
const OpFamily swiglu_family = {kOps};

}  // namespace evn
