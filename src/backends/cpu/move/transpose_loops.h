// Transposition and copies of matrices of elements of 4 bytes. Only bits are moved: the elements may be of any type of that size.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"

namespace evn::simd_transpose {

struct Loops {
  // y[j * y_step + i] = x[i * x_step + j] for i < rows, j < columns.
  void (*transpose)(const float* x, std::int64_t x_step, std::int64_t rows, std::int64_t columns, float* y, std::int64_t y_step);
  // y[i * y_step + j] = x[i * x_step + j] for i < rows, j < columns.
  void (*copy)(const float* x, std::int64_t x_step, std::int64_t rows, std::int64_t columns, float* y, std::int64_t y_step);
  // y[i * y_step + j] = x[i * x_step + 2 * j] for i < rows, j < columns.
  void (*copy_even)(const float* x, std::int64_t x_step, std::int64_t rows, std::int64_t columns, float* y, std::int64_t y_step);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_transpose
