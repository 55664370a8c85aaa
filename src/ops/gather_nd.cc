// GatherElements: y[p..., i, q...] = x[p..., indices[p..., i, q...], q...], along `axis`.
// GatherND: the last axis of the indices holds leading coordinates of x, after batch_dims axes that both share; y is what they
// point at: y[b..., i...] = x[b..., indices[b..., i..., :]].
// dtypes: x any; indices int32 or int64 (GatherND: int64). Failures: axis outside the rank, ranks and dims that do not fit; at run:
// an index outside [-dim, dim). Exact.
#include <algorithm>

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

// x is walked along the shape of the indices, standing still on the axis.
WalkAxes<1> element_axes(const ReferenceContext& c, int axis) {
  Strides strides = dense_strides(c.input(0).desc.shape);
  strides.step[axis] = 0;
  return {c.input(1).desc.shape, {strides}};
}

std::int64_t parts_of_gather_elements(const ReferenceContext& c) {
  return element_axes(c, normalize_axis(attr_int(c.node, 0), c.input(0).desc.shape.rank())).lines();
}

// y[i] = x[base + i * lane + indices[i] * step].
struct PickedAxis {
  std::int64_t dim, step, lane;
};

template <std::size_t W, typename Index>
void pick(void* y, const void* x, const void* indices, std::int64_t count, const PickedAxis& picked) {
  const PickedAxis axis = picked;
  std::int64_t lane = 0;
  for (std::int64_t i = 0; i < count; ++i, lane += axis.lane) {
    std::int64_t index = static_cast<const Index*>(indices)[i];
    if (static_cast<std::uint64_t>(index) >= static_cast<std::uint64_t>(axis.dim)) [[unlikely]]
      index = wrap_index(index, axis.dim);
    move_element<W>(y, i, x, lane + index * axis.step);
  }
}

void reference_gather_elements(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, 0), x.rank());
  if (c.output().desc.shape.elements() == 0) return;
  const WalkAxes<1> axes = element_axes(c, axis);
  const PickedAxis picked{x[axis], x.elements(axis + 1, x.rank()), axes.steps[0][0]};
  const bool wide = c.input(1).desc.dtype == DType::kInt64;
  const std::int64_t index_size = wide ? 8 : 4;
  const auto size = static_cast<std::int64_t>(dtype_size(c.input(0).desc.dtype));
  auto* some = pick<1, std::int64_t>;
  with_width(c.input(0).desc.dtype, [&](auto width) { some = wide ? pick<width(), std::int64_t> : pick<width(), std::int32_t>; });
  const auto gather_line = [&](std::int64_t position, const std::int64_t* base) {
    in_pieces(axes.dims[0], 1, [&](std::int64_t i, std::int64_t end) {
      some(c.output().as<char>() + (position + i) * size, c.input(0).as<char>() + (base[0] + i * picked.lane) * size,
           c.input(1).as<char>() + (position + i) * index_size, end - i, picked);
    });
  };
  walk_lines(axes, gather_line, nullptr, c.begin, c.end);
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

std::int64_t parts_of_gather_nd(const ReferenceContext& c) {
  const Shape& indices = c.input(1).desc.shape;
  return indices.elements(0, indices.rank() - 1);
}

void reference_gather_nd(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const Shape& indices = c.input(1).desc.shape;
  const int batch = batch_dims(c.node);
  const int depth = static_cast<int>(indices[indices.rank() - 1]);
  const auto size = static_cast<std::int64_t>(dtype_size(c.input(0).desc.dtype));
  const std::int64_t per_batch = indices.elements(batch, indices.rank() - 1);
  const std::int64_t batch_bytes = x.elements(batch, x.rank()) * size;
  const std::int64_t block = x.elements(batch + depth, x.rank()) * size;
  std::int64_t dim[kMaxRank], step[kMaxRank];  // of each coordinate; the steps in bytes
  for (int k = 0; k < depth; ++k) {
    dim[k] = x[batch + k];
    step[k] = x.elements(batch + k + 1, x.rank()) * size;
  }
  const std::int64_t end = std::min(c.end, parts_of_gather_nd(c));
  for (std::int64_t i = c.begin; i < end;) {
    const char* const from = c.input(0).as<char>() + i / per_batch * batch_bytes;
    for (const std::int64_t last = std::min(end, (i / per_batch + 1) * per_batch); i < last; ++i) {
      const std::int64_t* index = c.input(1).as<std::int64_t>() + i * depth;
      std::int64_t at = 0;
      for (int k = 0; k < depth; ++k) at += wrap_index(index[k], dim[k]) * step[k];
      copy_block(c.output().as<char>() + i * block, from + at, block);
    }
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
     .reference = reference_gather_elements,
     .parts = parts_of_gather_elements},
    {.name = "GatherND",
     .since = 11,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_gather_nd,
     .reference = reference_gather_nd,
     .parts = parts_of_gather_nd},
    {.name = "GatherND",
     .since = 12,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kBatchDims,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_gather_nd,
     .reference = reference_gather_nd,
     .parts = parts_of_gather_nd},
};

}  // namespace

extern const OpFamily gather_nd_family;
const OpFamily gather_nd_family = {kOps};

}  // namespace evn
