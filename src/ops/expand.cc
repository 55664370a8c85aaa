// Expand: x broadcast together with the shape that input 1 lists (so a 1 there keeps the input's dim).
// Tile: y is x repeated repeats[i] times along axis i.
// dtypes: any; the lists int64. Failures: shapes that do not broadcast, negative dims or repeats, a repeats list of another length
// than the rank. Exact.
#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

void check_not_negative(const InferContext::Ints& list, const char* what) {
  for (int i = 0; i < list.count; ++i) {
    if (list.v[i] < 0) fail(EVN_ERROR_INVALID_MODEL, "%s of %lld", what, static_cast<long long>(list.v[i]));
  }
}

void infer_expand(InferContext& c) {
  require_dtype(c, 1, dtype_bit(DType::kInt64));
  require_rank(c, 1, 1, 1);
  InferContext::Ints dims;
  if (c.int_value(1, &dims)) {
    check_not_negative(dims, "a dimension");
    c.outputs[0].shape = broadcast_partial(c.shape(0), Shape(std::span<const std::int64_t>(dims.v, dims.count)));
    return;
  }
  const std::int64_t length = c.shape(1)[0];
  infer_shape_of_length(c, length < 0 ? -1 : std::max<std::int64_t>(length, c.shape(0).rank()));
}

void reference_expand(const ReferenceContext& c) {
  const TensorDesc& x = c.input(0).desc;
  const Shape& out = c.output().desc.shape;
  gather_strided(out, x.dtype, c.output().data, c.input(0).data, broadcast_strides(x.shape, out));
}

void infer_tile(InferContext& c) {
  const Shape& x = c.shape(0);
  require_dtype(c, 1, dtype_bit(DType::kInt64));
  require_vector(c, 1, x.rank());
  InferContext::Ints repeats;
  Shape out = Shape::of_rank(x.rank(), -1);
  if (c.int_value(1, &repeats)) {
    check_not_negative(repeats, "a repeat");
    for (int i = 0; i < x.rank(); ++i) {
      if (x[i] >= 0) out[i] = checked_mul(x[i], repeats.v[i]);
    }
  }
  c.outputs[0].shape = out;
}

void reference_tile(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const Shape& out = c.output().desc.shape;
  const Strides dense = dense_strides(x);
  const std::int64_t total = out.elements();
  with_width(c.output().desc.dtype, [&](auto width) {
    for (std::int64_t i = 0; i < total; ++i) {
      cancellation_point();
      std::int64_t from = 0;
      std::int64_t rest = i;
      for (int axis = out.rank() - 1; axis >= 0; --axis) {
        from += rest % out[axis] % x[axis] * dense.step[axis];
        rest /= out[axis];
      }
      move_element<width()>(c.output().data, i, c.input(0).data, from);
    }
  });
}

constexpr OpDef kOps[] = {
    {.name = "Expand",
     .since = 8,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kMoved,
     .value_inputs = 2,
     .flags = kOpMoves,
     .infer = infer_expand,
     .reference = reference_expand},
    {.name = "Tile",
     .since = 6,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kMoved,
     .value_inputs = 2,
     .flags = kOpMoves,
     .infer = infer_tile,
     .reference = reference_tile},
};

}  // namespace

extern const OpFamily expand_family;
const OpFamily expand_family = {kOps};

}  // namespace evn
