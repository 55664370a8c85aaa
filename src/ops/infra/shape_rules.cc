// Ready-made shape rules, and the checks of inputs that shape rules share.
#include "ops/infra/check.h"

#include <algorithm>

#include "base/checked.h"

namespace evn {

bool InferContext::int_value(int i, Ints* out) const {
  const auto index = static_cast<std::size_t>(i);
  if (!has_input(i) || index >= values.size() || values[index].data == nullptr) return false;
  const ConstTensor& value = values[index];
  const std::int64_t count = value.desc.shape.elements();
  if (value.desc.shape.rank() > 1) fail(EVN_ERROR_INVALID_MODEL, "input %d must be a list of integers", i);
  if (count > kMaxValues) {
    fail(EVN_ERROR_INVALID_MODEL, "input %d has %lld values, more than %d", i, static_cast<long long>(count), kMaxValues);
  }
  out->count = static_cast<int>(count);
  read_ints(value, out->v);
  return true;
}

void read_ints(const ConstTensor& value, std::int64_t* out) {
  const std::int64_t count = value.desc.shape.elements();
  if (value.desc.dtype == DType::kInt64) {
    std::copy_n(value.as<std::int64_t>(), count, out);
  } else if (value.desc.dtype == DType::kInt32) {
    std::copy_n(value.as<std::int32_t>(), count, out);
  } else {
    fail(EVN_ERROR_INVALID_MODEL, "integers are expected, not %s", dtype_name(value.desc.dtype));
  }
}

void infer_same_shape(InferContext& c) {
  for (TensorDesc& output : c.outputs) output.shape = c.shape(0);
}

Shape broadcast_partial(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out = Shape::of_rank(rank);
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    const std::int64_t da = ia < 0 ? 1 : a[ia];
    const std::int64_t db = ib < 0 ? 1 : b[ib];
    if (da == db || db == 1) {
      out[i] = da;
    } else if (da == 1) {
      out[i] = db;
    } else if (da < 0 || db < 0) {
      out[i] = std::max(da, db);
    } else {
      fail(EVN_ERROR_INVALID_ARGUMENT, "shapes %s and %s do not broadcast", a.to_string().c_str(), b.to_string().c_str());
    }
  }
  return out;
}

void require_input(const InferContext& c, int i) {
  if (!c.has_input(i)) fail(EVN_ERROR_INVALID_MODEL, "input %d is missing", i);
}

void require_dtype(const InferContext& c, int i, std::uint32_t allowed) {
  if (!c.has_input(i)) return;
  const auto number = static_cast<std::uint32_t>(c.inputs[i].dtype);
  if (number >= 32 || (allowed >> number & 1u) == 0) {
    fail(EVN_ERROR_INVALID_MODEL, "input %d must not be %s", i, dtype_name(c.inputs[i].dtype));
  }
}

void require_same_dtype(const InferContext& c, int first, int last) {
  for (int i = first + 1; i <= last; ++i) {
    if (c.has_input(i) && c.inputs[i].dtype != c.inputs[first].dtype) {
      fail(EVN_ERROR_INVALID_MODEL, "input %d is %s, but input %d is %s", i, dtype_name(c.inputs[i].dtype), first,
           dtype_name(c.inputs[first].dtype));
    }
  }
}

void require_rank(const InferContext& c, int i, int low, int high) {
  if (c.has_input(i) && (c.shape(i).rank() < low || c.shape(i).rank() > high)) {
    fail(EVN_ERROR_INVALID_MODEL, "input %d has rank %d; from %d to %d is possible", i, c.shape(i).rank(), low, high);
  }
}

void require_vector(const InferContext& c, int i, std::int64_t length) {
  if (!c.has_input(i)) return;
  require_rank(c, i, 1, 1);
  require_dim(c.shape(i)[0], length, i);
}

void require_dim(std::int64_t dim, std::int64_t expected, int input) {
  if (dim >= 0 && expected >= 0 && dim != expected) {
    fail(EVN_ERROR_INVALID_MODEL, "input %d has a dimension of %lld where %lld is needed", input, static_cast<long long>(dim),
         static_cast<long long>(expected));
  }
}

void require_scalar(const InferContext& c, int i) {
  if (!c.has_input(i)) return;
  for (std::int64_t dim : c.shape(i).dims()) require_dim(dim, 1, i);
}

ConstTensor known_input(const InferContext& c, int i) {
  const auto index = static_cast<std::size_t>(i);
  if (index < c.values.size() && c.values[index].data != nullptr) return c.values[index];
  return {c.inputs[index], nullptr};
}

bool model_gives(const Node& node, const char* attribute) {
  return std::any_of(node.attributes.begin(), node.attributes.end(), [&](const Attribute& a) { return a.name == attribute; });
}

void infer_shape_of_length(InferContext& c, std::int64_t length) {
  if (length < 0) return c.set_unknown_rank(0);
  if (length > kMaxRank) fail(EVN_ERROR_LIMIT, "rank %lld is above the limit of %d", static_cast<long long>(length), kMaxRank);
  c.outputs[0].shape = Shape::of_rank(static_cast<int>(length), -1);
}

std::int64_t dim_elements(const Shape& s, int begin, int end) {
  std::int64_t n = 1;
  for (int i = begin; i < end; ++i) n = n < 0 || s[i] < 0 ? -1 : checked_mul(n, s[i]);
  return n;
}

std::uint32_t axes_mask(std::span<const std::int64_t> axes, int rank) {
  std::uint32_t mask = 0;
  for (std::int64_t axis : axes) {
    const std::uint32_t bit = 1u << normalize_axis(axis, rank);
    if ((mask & bit) != 0) fail(EVN_ERROR_INVALID_MODEL, "axis %lld is given twice", static_cast<long long>(axis));
    mask |= bit;
  }
  return mask;
}

}  // namespace evn
