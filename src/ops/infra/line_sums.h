// Sums over lines of float or double in double, in an order that depends on the length alone, and what normalizations do with them.
#pragma once

#include <cstdint>

namespace evn {

enum class LineSum { kElements, kMagnitudes, kSquares };

// The sum of x[i * step] - center, of its magnitude or of its square, for i < count.
template <typename T>
double line_sum(LineSum what, const T* x, std::int64_t count, std::int64_t step, double center = 0);

// y[i * step] = (x[i * step] - center) / divisor.
template <typename T>
void normalize_line(const T* x, T* y, std::int64_t count, std::int64_t step, double center, double divisor);

}  // namespace evn
