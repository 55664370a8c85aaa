// Operators that keep the elements and change the shape: Reshape, Flatten, Squeeze, Unsqueeze, Identity.
//   Reshape    the dims of input 1; 0 keeps the input's dim (with allowzero, from 14: it is 0), one -1 takes what is left
//   Flatten    [product of the dims before `axis`, product of the rest]
//   Squeeze    without the axes listed, which must be 1; without a list, without every axis of 1
//   Unsqueeze  with axes of 1 at the output positions listed
// Axes are an attribute before 13, input 1 later. dtypes: any. Failures: counts that differ, axes outside the rank or twice. Exact.
#include <algorithm>

#include "base/checked.h"
#include "ops/host.h"
#include "ops/infra/check.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

void reference_copy(const ReferenceContext& c) { copy_all(c.input(0), c.output()); }

// --- Reshape

[[noreturn]] void fail_reshape(const Shape& from, const Shape& to) {
  fail(EVN_ERROR_INVALID_MODEL, "%s cannot be reshaped to %s", from.to_string().c_str(), to.to_string().c_str());
}

// Replaces the one -1 at `hole` by what the input leaves. Axes that are copied from the input cancel: known or not, and without
// elements too.
void fill_hole(const Shape& x, Shape& out, int hole, std::uint32_t copied) {
  std::int64_t rest_in = 1;
  std::int64_t rest_out = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if ((copied >> i & 1u) != 0) continue;
    rest_in = rest_in < 0 || x[i] < 0 ? -1 : checked_mul(rest_in, x[i]);
  }
  for (int i = 0; i < out.rank(); ++i) {
    if (i == hole || (copied >> i & 1u) != 0) continue;
    rest_out = checked_mul(rest_out, out[i]);
  }
  if (rest_in < 0) return;
  if (rest_out == 0 || rest_in % rest_out != 0) fail_reshape(x, out);
  out[hole] = rest_in / rest_out;
}

void infer_reshape(InferContext& c) {
  require_dtype(c, 1, dtype_bit(DType::kInt64));
  require_rank(c, 1, 1, 1);
  InferContext::Ints dims;
  if (!c.int_value(1, &dims)) return infer_shape_of_length(c, c.shape(1)[0]);
  const Shape& x = c.shape(0);
  const bool allow_zero = attr_given(c.node, 0) && attr_int(c.node, 0) != 0;
  Shape out(std::span<const std::int64_t>(dims.v, dims.count));
  int hole = -1;
  std::uint32_t copied = 0;
  for (int i = 0; i < out.rank(); ++i) {
    if (out[i] == 0 && !allow_zero) {
      if (i >= x.rank()) fail(EVN_ERROR_INVALID_MODEL, "dimension %d is to be copied, but the input has rank %d", i, x.rank());
      out[i] = x[i];
      copied |= 1u << i;
    } else if (out[i] == -1) {
      if (hole >= 0) fail(EVN_ERROR_INVALID_MODEL, "two dimensions of -1");
      hole = i;
    } else if (out[i] < 0) {
      fail(EVN_ERROR_INVALID_MODEL, "a dimension of %lld", static_cast<long long>(out[i]));
    }
  }
  if (hole >= 0) {
    fill_hole(x, out, hole, copied);
  } else if (x.is_known() && out.is_known() && x.elements() != out.elements()) {
    fail_reshape(x, out);
  }
  c.outputs[0].shape = out;
}

// --- Flatten

void infer_flatten(InferContext& c) {
  const Shape& x = c.shape(0);
  const std::int64_t axis = attr_int(c.node, 0);
  const int split = axis == x.rank() ? x.rank() : normalize_axis(axis, x.rank());
  c.outputs[0].shape = {dim_elements(x, 0, split), dim_elements(x, split, x.rank())};
}

// --- Squeeze and Unsqueeze

// The axes, from the attribute or the input; false when they are an input that is not known now.
bool find_axes(const InferContext& c, InferContext::Ints* axes) {
  if (c.node.op->max_inputs == 2) {
    require_dtype(c, 1, kIndexDtypes);
    axes->count = 0;
    return !c.has_input(1) || c.int_value(1, axes);
  }
  const std::span<const std::int64_t> given = attr_ints(c.node, 0);
  if (given.size() > InferContext::kMaxValues) fail(EVN_ERROR_INVALID_MODEL, "too many axes");
  axes->count = static_cast<int>(given.size());
  std::copy(given.begin(), given.end(), axes->v);
  return true;
}

void infer_squeeze(InferContext& c) {
  const Shape& x = c.shape(0);
  InferContext::Ints axes;
  if (!find_axes(c, &axes)) {
    const std::int64_t count = dim_elements(c.shape(1), 0, c.shape(1).rank());
    if (count > x.rank()) fail(EVN_ERROR_INVALID_MODEL, "more axes than the input has");
    return infer_shape_of_length(c, count < 0 ? -1 : x.rank() - count);
  }
  const bool all = !c.has_input(1) && axes.count == 0;
  if (all && !x.is_known()) {
    // Which axes go depends on the dims that are not known.
    return c.set_unknown_rank(0);
  }
  std::uint32_t drop = axes_mask({axes.v, static_cast<std::size_t>(axes.count)}, x.rank());
  Shape out;
  for (int i = 0; i < x.rank(); ++i) {
    if (all ? x[i] == 1 : (drop >> i & 1u) != 0) {
      require_dim(x[i], 1, 0);
    } else {
      out.push_back(x[i]);
    }
  }
  c.outputs[0].shape = out;
}

void infer_unsqueeze(InferContext& c) {
  const Shape& x = c.shape(0);
  InferContext::Ints axes;
  if (!find_axes(c, &axes)) {
    const std::int64_t count = dim_elements(c.shape(1), 0, c.shape(1).rank());
    return infer_shape_of_length(c, count < 0 ? -1 : checked_add<std::int64_t>(count, x.rank()));
  }
  const int rank = x.rank() + axes.count;
  if (rank > kMaxRank) fail(EVN_ERROR_LIMIT, "rank %d is above the limit of %d", rank, kMaxRank);
  const std::uint32_t added = axes_mask({axes.v, static_cast<std::size_t>(axes.count)}, rank);
  Shape out;
  for (int i = 0, from = 0; i < rank; ++i) out.push_back((added >> i & 1u) != 0 ? 1 : x[from++]);
  c.outputs[0].shape = out;
}

// --- Identity, also of what is more than a tensor

void infer_identity(InferContext& c) { c.outputs[0] = c.inputs[0]; }

void host_identity(HostContext& c) { c.outputs[0] = c.inputs[0]; }

// --- tables

constexpr AttributeSpec kReshape14[] = {int_attribute("allowzero", 0)};
constexpr AttributeSpec kFlatten[] = {int_attribute("axis", 1)};
constexpr AttributeSpec kSqueeze[] = {optional_attribute("axes", AttributeType::kInts)};
constexpr AttributeSpec kUnsqueeze[] = {required_attribute("axes", AttributeType::kInts)};

constexpr OpDef kOps[] = {
    {.name = "Identity",
     .since = 1,
     .dtypes = kStoredDtype,
     .flags = kOpView | kOpAnyRank,
     .infer = infer_identity,
     .reference = reference_copy,
     .host = host_identity},
    {.name = "Reshape",
     .since = 5,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kStoredDtype,
     .value_inputs = 2,
     .flags = kOpView,
     .infer = infer_reshape,
     .reference = reference_copy},
    {.name = "Reshape",
     .since = 14,
     .min_inputs = 2,
     .max_inputs = 2,
     .attributes = kReshape14,
     .dtypes = kStoredDtype,
     .value_inputs = 2,
     .flags = kOpView,
     .infer = infer_reshape,
     .reference = reference_copy},
    {.name = "Flatten",
     .since = 1,
     .attributes = kFlatten,
     .dtypes = kStoredDtype,
     .flags = kOpView,
     .infer = infer_flatten,
     .reference = reference_copy},
    {.name = "Squeeze",
     .since = 1,
     .attributes = kSqueeze,
     .dtypes = kStoredDtype,
     .flags = kOpView,
     .infer = infer_squeeze,
     .reference = reference_copy},
    {.name = "Squeeze",
     .since = 13,
     .max_inputs = 2,
     .dtypes = kStoredDtype,
     .value_inputs = 2,
     .flags = kOpView,
     .infer = infer_squeeze,
     .reference = reference_copy},
    {.name = "Unsqueeze",
     .since = 1,
     .attributes = kUnsqueeze,
     .dtypes = kStoredDtype,
     .flags = kOpView,
     .infer = infer_unsqueeze,
     .reference = reference_copy},
    {.name = "Unsqueeze",
     .since = 13,
     .min_inputs = 2,
     .max_inputs = 2,
     .dtypes = kStoredDtype,
     .value_inputs = 2,
     .flags = kOpView,
     .infer = infer_unsqueeze,
     .reference = reference_copy},
};

}  // namespace

extern const OpFamily reshape_family;
const OpFamily reshape_family = {kOps};

}  // namespace evn
