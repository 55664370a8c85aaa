// Checks that shape rules share. All throw EVN_ERROR_INVALID_MODEL, take unknown dims (-1) as fitting, and take an absent optional
// input as right.
#pragma once

#include "ops/op.h"

namespace evn {

inline constexpr std::uint32_t kIndexDtypes = dtype_bit(DType::kInt32) | dtype_bit(DType::kInt64);

// For inputs that are required behind optional ones; those before them are checked when a model loads.
void require_input(const InferContext& c, int i);
void require_dtype(const InferContext& c, int i, std::uint32_t allowed);
void require_same_dtype(const InferContext& c, int first, int last);
void require_rank(const InferContext& c, int i, int low, int high = kMaxRank);
void require_vector(const InferContext& c, int i, std::int64_t length);
void require_scalar(const InferContext& c, int i);  // one element, of any rank
void require_dim(std::int64_t dim, std::int64_t expected, int input);

// Output 0 of a rank that is the length of a list, -1 where that is not known; the dims are not known.
void infer_shape_of_length(InferContext& c, std::int64_t length);

// Product of the dims [begin, end); -1 when one is not known.
std::int64_t dim_elements(const Shape& s, int begin, int end);

// Axes of a tensor of that rank as bits; an axis outside the rank or given twice throws.
std::uint32_t axes_mask(std::span<const std::int64_t> axes, int rank);

// An input with its value where that is known now, else with null data.
ConstTensor known_input(const InferContext& c, int i);

// Whether the model itself gives the attribute, where no value of it could stand for "not given".
bool model_gives(const Node& node, const char* attribute);

// All elements of an int32 or int64 tensor.
void read_ints(const ConstTensor& value, std::int64_t* out);

}  // namespace evn
