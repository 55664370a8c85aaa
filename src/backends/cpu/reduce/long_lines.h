// Reductions, softmax and normalizations of lines of any length. The loops of reduce/rows_loops.h finish what they are given; lines
// that take them long are cut here into parts with cancellation points between them, which short lines do not pay for.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/reduce/rows_loops.h"
#include "backends/cpu/simd/cancel_points.h"

namespace evn {

// Elements of a line, and rows of a column, that reduce/rows_loops.h may be given: longer ones come here.
inline constexpr std::int64_t kLongLine = std::int64_t{1} << 15;
inline constexpr std::int64_t kLongColumn = std::int64_t{1} << 12;

// reduce_long and reduce_long_columns compute what reduce and reduce_columns of reduce/rows_loops.h do. If the run stops, outputs
// are incomplete and reduce_long returns 0.
float reduce_long(Isa isa, simd_rows::Reduce op, const float* x, std::int64_t n, CancelPoints* points);
void reduce_long_columns(Isa isa, simd_rows::Reduce op, const float* x, float* y, std::int64_t n, std::int64_t step,
                         std::int64_t width, CancelPoints* points);
void softmax_long(Isa isa, const float* x, float* y, std::int64_t n, bool log, const Epilogue* epilogue, CancelPoints* points);
// Softmax over `n` elements that lie `step` apart, for `width` neighbours, width <= step. Columns of any length.
void softmax_columns(Isa isa, const float* x, float* y, std::int64_t n, std::int64_t step, std::int64_t width,
                     const Epilogue* epilogue, CancelPoints* points);
// The steps of an epilogue on n elements, in place.
void chain_long(Isa isa, float* y, std::int64_t n, const Epilogue* epilogue, CancelPoints* points);
// Layer normalization of one line of n elements. y may be x.
void layer_norm_long(Isa isa, const simd_rows::Norm& norm, const float* x, float* y, std::int64_t n, CancelPoints* points);

}  // namespace evn
