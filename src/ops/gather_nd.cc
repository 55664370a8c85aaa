// GatherElements: y[p..., i, q...] = x[p..., indices[p..., i, q...], q...], along `axis`.
// GatherND: the last axis of the indices holds leading coordinates of x, after batch_dims axes that both share; y is what they
// point at: y[b..., i...] = x[b..., indices[b..., i..., :]].
// dtypes: x any; indices int32 or int64 (GatherND: int64). Failures: axis outside the rank, ranks and dims that do not fit; at run:
// an index outside [-dim, dim). Exact.
#include <cstring>

#include "ops/infra/check.h"
#include "ops/infra/index.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

// ---------------------------------------------------------------------------------------------- GatherElements --

void infer_gather_elements(InferContext& c) {
  require_dtype(c, 1, kIndexDtypes);
  const Shape& x = c.shape(0);
  const Shape& indices = c.shape(1);
  const int axis = normalize_axis(attr_int(c.node, 0), x.rank());
  require_rank(c, 1, x.rank(), x.rank());
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis && x[i] >= 0 && indices[i] > x[i]) fail(EVN_ERROR_INVALID_MODEL, "the indices are larger than x on axis %d", i);
  }
  c.outputs[0].shape = indices;
}

void reference_gather_elements(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, 0), x.rank());
  Strides strides = dense_strides(x);
  const std::int64_t step = strides.step[axis];
  strides.step[axis] = 0;
  with_width(c.input(0).desc.dtype, [&](auto width) {
    walk<1>(c.input(1).desc.shape, {strides}, [&](std::int64_t i, const std::int64_t* at) {
      move_element<width()>(c.output().data, i, c.input(0).data, at[0] + index_at(c.input(1), i, x[axis]) * step);
    });
  });
}

// ---------------------------------------------------------------------------------------------------- GatherND --

int batch_dims(const Node& node) { return attr_given(node, 0) ? static_cast<int>(attr_int(node, 0)) : 0; }

void infer_gather_nd(InferContext& c) {
  require_dtype(c, 1, dtype_bit(DType::kInt64));
  require_rank(c, 0, 1);
  require_rank(c, 1, 1);
  const Shape& x = c.shape(0);
  const Shape& indices = c.shape(1);
  const std::int64_t batch = attr_given(c.node, 0) ? attr_int(c.node, 0) : 0;
  if (batch < 0 || batch >= x.rank() || batch >= indices.rank()) fail(EVN_ERROR_INVALID_MODEL, "batch_dims does not fit the ranks");
  for (int i = 0; i < batch; ++i) require_dim(indices[i], x[i], 1);
  const std::int64_t depth = indices[indices.rank() - 1];
  if (depth < 0) return c.set_unknown_rank(0);
  if (depth < 1 || depth > x.rank() - batch)
    fail(EVN_ERROR_INVALID_MODEL, "the indices have more coordinates than x has axes, or none");
  Shape out;
  for (int i = 0; i + 1 < indices.rank(); ++i) out.push_back(indices[i]);
  for (int i = static_cast<int>(batch + depth); i < x.rank(); ++i) out.push_back(x[i]);
  c.outputs[0].shape = out;
}

void reference_gather_nd(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const Shape& indices = c.input(1).desc.shape;
  const int batch = batch_dims(c.node);
  const int depth = static_cast<int>(indices[indices.rank() - 1]);
  const Strides strides = dense_strides(x);
  const std::int64_t count = indices.elements(0, indices.rank() - 1);
  const std::int64_t per_batch = indices.elements(batch, indices.rank() - 1);
  const std::int64_t batch_step = x.elements(batch, x.rank());
  const std::int64_t block = x.elements(batch + depth, x.rank()) * static_cast<std::int64_t>(dtype_size(c.input(0).desc.dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    cancellation_point();
    std::int64_t from = i / per_batch * batch_step;
    for (int k = 0; k < depth; ++k) from += index_at(c.input(1), i * depth + k, x[batch + k]) * strides.step[batch + k];
    if (block == 0) continue;
    move_in_pieces(c.output().as<char>() + i * block,
                   c.input(0).as<char>() + from * static_cast<std::int64_t>(dtype_size(c.input(0).desc.dtype)),
                   static_cast<std::size_t>(block));
  }
}

constexpr AttributeSpec kAxis[] = {int_attribute("axis", 0)};
constexpr AttributeSpec kBatchDims[] = {int_attribute("batch_dims", 0)};
constexpr OpDef kOps[] = {
    {.name = "GatherElements",
     .since = 11,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kAxis,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_gather_elements,
     .reference = reference_gather_elements},
    {.name = "GatherND",
     .since = 11,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_gather_nd,
     .reference = reference_gather_nd},
    {.name = "GatherND",
     .since = 12,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kBatchDims,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_gather_nd,
     .reference = reference_gather_nd},
};

}  // namespace

extern const OpFamily gather_nd_family;
const OpFamily gather_nd_family = {kOps};

}  // namespace evn
