#include "backends/cpu/reduce/long_lines.h"

#include <algorithm>
#include <cmath>

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

using simd_rows::Reduce;

constexpr std::int64_t kPart = 4096;      // elements of a line, which stay in the first cache between two loops
constexpr std::int64_t kPartRows = 1024;  // of a column
constexpr std::int64_t kLeastColumns = 32, kMostColumns = 256;  // columns that are processed together
constexpr std::int64_t kRowWork = 16;  // units per row for its first access: rows lie in different cache lines

using simd_rows::joining;

Reduce sum_for(Reduce op) { return op == Reduce::kMean ? Reduce::kSum : op; }

// Reduces up to kMostColumns columns into `to`, which has room for two rows of `width` floats.
bool reduce_some_columns(const simd_rows::Loops& loops, Reduce op, const float* x, std::int64_t n, std::int64_t step,
                         std::int64_t width, float* to, CancelPoints* points) {
  const bool sums = joining(op) == Reduce::kSum;
  double totals[kMostColumns] = {};  // of sums: parts may be many
  const bool goes_on = in_parts(points, n, kPartRows, width + kRowWork, [&](std::int64_t row, std::int64_t end) {
    float* const part = row == 0 ? to : to + width;
    loops.reduce_columns(op, x + row * step, part, end - row, step, width);
    for (std::int64_t c = 0; sums && c < width; ++c) totals[c] += static_cast<double>(part[c]);
    if (!sums && row > 0) loops.reduce_columns(joining(op), to, to, 2, width, width);
  });
  for (std::int64_t c = 0; sums && c < width; ++c) to[c] = static_cast<float>(totals[c]);
  return goes_on;
}

}  // namespace

float reduce_long(Isa isa, Reduce op, const float* x, std::int64_t n, CancelPoints* points) {
  const simd_rows::Loops& loops = simd_rows::loops(isa);
  const bool sums = joining(op) == Reduce::kSum;
  float both[2] = {};
  double total = 0;
  const bool goes_on = in_parts(points, n, kLongLine, 1, [&](std::int64_t i, std::int64_t end) {
    both[i == 0 ? 0 : 1] = loops.reduce(sum_for(op), x + i, end - i);
    if (sums) total += static_cast<double>(both[i == 0 ? 0 : 1]);
    else if (i > 0) both[0] = loops.reduce(joining(op), both, 2);
  });
  if (sums) both[0] = static_cast<float>(total);
  if (!goes_on) return 0;
  return op == Reduce::kMean ? both[0] / static_cast<float>(n) : both[0];
}

void reduce_long_columns(Isa isa, Reduce op, const float* x, float* y, std::int64_t n, std::int64_t step, std::int64_t width,
                         CancelPoints* points) {
  const simd_rows::Loops& loops = simd_rows::loops(isa);
  for (std::int64_t j = 0; j < width; j += kMostColumns) {
    const std::int64_t columns = std::min(kMostColumns, width - j);
    float both[2 * kMostColumns];
    if (!reduce_some_columns(loops, sum_for(op), x + j, n, step, columns, both, points)) return;
    for (std::int64_t c = 0; c < columns; ++c) y[j + c] = op == Reduce::kMean ? both[c] / static_cast<float>(n) : both[c];
  }
}

void softmax_long(Isa isa, const float* x, float* y, std::int64_t n, bool log, const Epilogue* epilogue, CancelPoints* points) {
  const simd_rows::Loops& loops = simd_rows::loops(isa);
  const simd_elementwise::Loops& maps = simd_elementwise::loops(isa);
  const float top = reduce_long(isa, Reduce::kMax, x, n, points);
  float sum = 0;
  if (!in_parts(points, n, kPart, kFunction, [&](std::int64_t i, std::int64_t end) {
        float e[kPart];
        sum += loops.exponentials(x + i, top, log ? e : y + i, end - i);
      }))
    return;
  in_parts(points, n, kPart, epilogue == nullptr ? 2 : kFunction, [&](std::int64_t i, std::int64_t end) {
    if (log) maps.affine(top, 1, 0, x + i, y + i, end - i, nullptr);
    maps.affine(0, log ? 1 : 1 / sum, log ? -std::log(sum) : 0, y + i, y + i, end - i, epilogue);
  });
}

void softmax_columns(Isa isa, const float* x, float* y, std::int64_t n, std::int64_t step, std::int64_t width,
                     const Epilogue* epilogue, CancelPoints* points) {
  const simd_rows::Loops& loops = simd_rows::loops(isa);
  // Some columns at a time stay in the first cache, if they are not long.
  const std::int64_t most =
      std::clamp<std::int64_t>(kPart / std::max<std::int64_t>(n, 1) / kLeastColumns * kLeastColumns, kLeastColumns, kMostColumns);
  const float offsets[kMostColumns] = {};
  for (std::int64_t j = 0; j < width && !has_stopped(points); j += most) {
    const std::int64_t columns = std::min(most, width - j);
    float tops[2 * kMostColumns], sums[kMostColumns] = {};
    if (!reduce_some_columns(loops, Reduce::kMax, x + j, n, step, columns, tops, points)) return;
    const bool goes_on = in_parts(points, n, kPartRows, columns * kFunction + kRowWork, [&](std::int64_t row, std::int64_t end) {
      loops.exponential_columns(x + row * step + j, tops, y + row * step + j, sums, end - row, step, columns);
    });
    if (!goes_on) return;
    for (std::int64_t c = 0; c < columns; ++c) sums[c] = 1 / sums[c];
    in_parts(points, n, kPartRows, columns * (epilogue == nullptr ? 1 : kFunction) + kRowWork,
             [&](std::int64_t row, std::int64_t end) {
               float* const to = y + row * step + j;
               simd_elementwise::loops(isa).affine_rows(sums, offsets, to, step, to, step, end - row, columns, epilogue);
             });
  }
}

void chain_long(Isa isa, float* y, std::int64_t n, const Epilogue* epilogue, CancelPoints* points) {
  by_parts(points, n, 64, kFunction,
           [&](std::int64_t i, std::int64_t end) { simd_elementwise::loops(isa).chain(y + i, end - i, epilogue); });
}

void layer_norm_long(Isa isa, const simd_rows::Norm& norm, const float* x, float* y, std::int64_t n, CancelPoints* points) {
  const simd_rows::Loops& loops = simd_rows::loops(isa);
  const float mean = norm.centered ? reduce_long(isa, Reduce::kMean, x, n, points) : 0;
  float squares = 0;
  if (!in_parts(points, n, kPart, 1, [&](std::int64_t i, std::int64_t end) { squares += loops.squares(x + i, mean, end - i); }))
    return;
  const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(n) + norm.epsilon);
  in_parts(points, n, kPart, norm.epilogue == nullptr ? 2 : kFunction,
           [&](std::int64_t i, std::int64_t end) { loops.normalize(norm, mean, inverse, i, x + i, y + i, end - i); });
}

}  // namespace evn
