// MaxUnpool: a tensor of zeros with the elements of x at the places that a MaxPool's indices give, which count over all of a tensor
// [N, C, (dim - 1) * stride - pads + kernel ...]. With output_shape the result has that shape; elements keep their coordinates.
//   inputs  x [N, C, spatial...], indices of its shape, int64, optional output_shape int64
// dtypes: floating point. Failures: lists that do not fit, sizes below 1; at run: an index outside. Exact.
#include <algorithm>

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

enum : int { kKernel, kPads, kStrides };

// What the indices count over.
Shape pooled_shape(const Node& node, const Shape& x) {
  const auto kernel = attr_ints(node, kKernel);
  const auto pads = attr_ints(node, kPads);
  const auto strides = attr_ints(node, kStrides);
  const std::size_t axes = static_cast<std::size_t>(x.rank()) - 2;
  if (kernel.size() != axes || (!strides.empty() && strides.size() != axes) || (!pads.empty() && pads.size() != 2 * axes)) {
    fail(EVN_ERROR_INVALID_MODEL, "the lists do not fit the rank of x");
  }
  Shape shape = {x[0], x[1]};
  for (std::size_t i = 0; i < axes; ++i) {
    const std::int64_t dim = x[static_cast<int>(i) + 2];
    const std::int64_t stride = strides.empty() ? 1 : strides[i];
    if (kernel[i] < 1 || stride < 1) fail(EVN_ERROR_INVALID_MODEL, "a kernel or a stride below 1");
    std::int64_t size = checked_add(checked_mul(dim - 1, stride), kernel[i]);
    if (!pads.empty()) size = checked_sub(checked_sub(size, pads[i]), pads[i + axes]);
    if (dim >= 0 && size < 0) fail(EVN_ERROR_INVALID_MODEL, "the pads are larger than the output");
    shape.push_back(dim < 0 ? -1 : size);
  }
  return shape;
}

void infer_unpool(InferContext& c) {
  require_dtype(c, 1, dtype_bit(DType::kInt64));
  require_dtype(c, 2, dtype_bit(DType::kInt64));
  require_rank(c, 0, 3);
  const Shape& x = c.shape(0);
  require_rank(c, 1, x.rank(), x.rank());
  for (int i = 0; i < x.rank(); ++i) require_dim(c.shape(1)[i], x[i], 1);
  c.outputs[0].shape = pooled_shape(c.node, x);
  if (!c.has_input(2)) return;
  require_vector(c, 2, x.rank());
  InferContext::Ints dims;
  const bool known = c.int_value(2, &dims);
  for (int i = 0; i < x.rank(); ++i) {
    if (known && dims.v[i] < 0) fail(EVN_ERROR_INVALID_ARGUMENT, "a negative dimension");
    c.outputs[0].shape[i] = known ? dims.v[i] : -1;
  }
}

void reference_unpool(const ReferenceContext& c) {
  const Shape counted = pooled_shape(c.node, c.input(0).desc.shape);
  const Shape& out = c.output().desc.shape;
  const Strides strides = dense_strides(out);
  const std::int64_t places = counted.elements();
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    fill_in_pieces(c.output().as<T>(), out.elements(), T{0});
    for (std::int64_t i = 0; i < c.input(0).desc.shape.elements(); ++i) {
      cancellation_point();
      std::int64_t rest = c.input(1).as<std::int64_t>()[i];
      if (rest < 0 || rest >= places) fail(EVN_ERROR_INVALID_ARGUMENT, "index %lld is outside", static_cast<long long>(rest));
      std::int64_t to = 0;
      for (int axis = out.rank() - 1; axis >= 0; --axis) {
        const std::int64_t at = rest % counted[axis];
        rest /= counted[axis];
        if (at >= out[axis]) fail(EVN_ERROR_INVALID_ARGUMENT, "an index is outside output_shape");
        to += at * strides.step[axis];
      }
      c.output().as<T>()[to] = c.input(0).as<T>()[i];
    }
  });
}

constexpr AttributeSpec kAttributes[] = {required_attribute("kernel_shape", AttributeType::kInts),
                                         optional_attribute("pads", AttributeType::kInts),
                                         optional_attribute("strides", AttributeType::kInts)};
constexpr OpDef kOps[] = {
    {.name = "MaxUnpool",
     .since = 9,
     .min_inputs = 2,
     .max_inputs = 3,
     .attributes = kAttributes,
     .dtypes = kFloats,
     .value_inputs = 4,
     .infer = infer_unpool,
     .reference = reference_unpool},
};

}  // namespace

extern const OpFamily unpool_family;
const OpFamily unpool_family = {kOps};

}  // namespace evn
