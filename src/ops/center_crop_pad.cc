// CenterCropPad: each of `axes` (default: all) is cut or padded with zeros to the size that input 1 gives, on both sides alike; of
// an odd number of elements one more goes, or comes, at the end. dtypes: any. Failures: axes outside the rank or given twice, a
// size below 0, as many sizes as axes. Exact.
#include <algorithm>
#include <cstring>

#include "ops/infra/check.h"
#include "ops/infra/index.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

struct Axes {
  int count = 0;
  int axis[kMaxRank];
};

Axes axes_of(const Node& node, int rank) {
  Axes a;
  if (!attr_given(node, 0)) {
    for (; a.count < rank; ++a.count) a.axis[a.count] = a.count;
    return a;
  }
  axes_mask(attr_ints(node, 0), rank);
  for (const std::int64_t axis : attr_ints(node, 0)) a.axis[a.count++] = normalize_axis(axis, rank);
  return a;
}

void infer_center(InferContext& c) {
  require_dtype(c, 1, kIndexDtypes);
  infer_same_shape(c);
  const Axes axes = axes_of(c.node, c.shape(0).rank());
  require_vector(c, 1, axes.count);
  InferContext::Ints sizes;
  const bool known = c.int_value(1, &sizes);
  if (known && sizes.count != axes.count) fail(EVN_ERROR_INVALID_MODEL, "%d sizes for %d axes", sizes.count, axes.count);
  for (int i = 0; i < axes.count; ++i) {
    if (known && sizes.v[i] < 0) fail(EVN_ERROR_INVALID_MODEL, "size %d is negative", i);
    c.outputs[0].shape[axes.axis[i]] = known ? sizes.v[i] : -1;
  }
}

void reference_center(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const Shape& y = c.output().desc.shape;
  Shape common = y;  // what both have
  std::int64_t start[2] = {};
  const Strides strides[2] = {dense_strides(x), dense_strides(y)};
  for (int i = 0; i < y.rank(); ++i) {
    common[i] = std::min(x[i], y[i]);
    start[0] += (x[i] - common[i]) / 2 * strides[0].step[i];
    start[1] += (y[i] - common[i]) / 2 * strides[1].step[i];
  }
  if (y.elements() == 0) return;
  if (common != y) fill_in_pieces(c.output().data, 0, c.output().desc.size_bytes());
  const auto size = static_cast<std::int64_t>(dtype_size(c.input(0).desc.dtype));
  const WalkAxes<2> axes(common, strides);
  const bool dense = axes.steps[0][0] == 1 && axes.steps[0][1] == 1;
  walk_lines(
      axes,
      [&](std::int64_t, const std::int64_t* at) {
        char* const to = c.output().as<char>() + at[1] * size;
        const char* const from = c.input(0).as<char>() + at[0] * size;
        if (dense) return copy_block(to, from, axes.dims[0] * size);
        each_element(axes.dims[0], [&](std::int64_t i) {
          std::memcpy(to + i * axes.steps[0][1] * size, from + i * axes.steps[0][0] * size, static_cast<std::size_t>(size));
        });
      },
      start);
}

constexpr AttributeSpec kAxes[] = {optional_attribute("axes", AttributeType::kInts)};
constexpr OpDef kOps[] = {
    {.name = "CenterCropPad",
     .since = 18,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kAxes,
     .dtypes = kMoved,
     .value_inputs = 2,
     .flags = kOpMoves,
     .infer = infer_center,
     .reference = reference_center},
};

}  // namespace

extern const OpFamily center_crop_pad_family;
const OpFamily center_crop_pad_family = {kOps};

}  // namespace evn
