// What kernels/grouped.cl has for GPUs: a work group to each row.
#pragma once

#include "backends/opencl/launcher.h"

namespace evn {

constexpr std::size_t kRowGroup = 128;  // EVN_GROUP of grouped.cl

constexpr OpenClFunction row_function(const char* name) { return {"grouped", name, kRowGroup}; }

// Rows of fewer elements are one work item's: a group would mostly wait.
inline bool wants_row_groups(const Launcher& cl, std::int64_t length) { return !cl.is_cpu() && length >= 32; }

inline Grid row_grid(std::int64_t rows) { return {checked_mul(rows, static_cast<std::int64_t>(kRowGroup))}; }

// Numbers as grouped.cl and rows.cl have them.
enum class Fold : std::int32_t { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare };

// Softmax of rows of a buffer, in place or not; grouped.cl's.
inline constexpr OpenClFunction kGroupedSoftmax = row_function("softmax_rows");

}  // namespace evn
