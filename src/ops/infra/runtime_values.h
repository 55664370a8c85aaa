// What host operators share: runtime values of tensors taken apart and put together.
#pragma once

#include "ops/host.h"

namespace evn {

// The shape of an input or body output whose rank may be unknown.
inline bool rank_unknown(const TensorDesc& d) { return InferContext::is_unknown_rank(d.shape); }
inline Shape unknown_rank() { return Shape::of_rank(1, InferContext::kUnknownRank); }

// Inputs [first, end) of a node with a body are there. Throws EVN_ERROR_INVALID_MODEL.
void require_inputs(const Node& node, std::size_t first, std::size_t end);

// The value with these wraps: itself, put into an optional, or taken out of one. Throws EVN_ERROR_INVALID_ARGUMENT for an empty
// optional.
RuntimeValuePtr with_wraps(const RuntimeValuePtr& runtime_value, Wraps wraps);

// The type that covers both; the wraps and dtypes are alike. Throws EVN_ERROR_INVALID_MODEL naming `what` when they are not.
TensorDesc common_type(const TensorDesc& a, const TensorDesc& b, const char* what);

// `desc` with a further dim in front of axis `axis` (from the end when negative), or without that dim.
Shape with_dim(const Shape& shape, std::int64_t axis, std::int64_t dim);
Shape without_dim(const Shape& shape, int axis);

// The wraps of every input are as said. Throws EVN_ERROR_INVALID_MODEL.
void require_wrap(const InferContext& c, int i, Wrap outer);
void require_tensor(const InferContext& c, int i);

// A scalar tensor.
RuntimeValuePtr integer_runtime_value(HostServices& services, std::int64_t value);
RuntimeValuePtr bool_runtime_value(HostServices& services, bool value);

// [begin, end) of a tensor along an axis; with `drop`, of one element, without the axis. It shares the bytes of `x`, and keeps
// them, if they lie in one piece and are not borrowed.
RuntimeValuePtr slice_runtime_value(HostServices& services, const RuntimeValuePtr& x, int axis, std::int64_t begin,
                                    std::int64_t end, bool drop);

// Pieces of these lengths, one after the other, of a tensor along an axis. They share its bytes, or one copy of them.
std::vector<RuntimeValuePtr> cut_runtime_value(HostServices& services, const RuntimeValuePtr& x, int axis,
                                               std::span<const std::int64_t> lengths, bool drop);

// Tensors of one dtype joined along an axis that they have (axis in [0, rank)). Throws EVN_ERROR_INVALID_ARGUMENT where other dims
// differ.
RuntimeValuePtr concat_runtime_values(HostServices& services, std::span<const RuntimeValuePtr> parts, int axis);

// Tensors of one shape joined along a new axis, which is `axis` of the result.
RuntimeValuePtr stack_runtime_values(HostServices& services, std::span<const RuntimeValuePtr> parts, int axis);

}  // namespace evn
