// C = A B or C += A B, float32, where A is a view of padded planes: element (row, k) of A is x[rows[row] + ks[k]]. With output
// positions as rows and pairs of a channel and a tap as k this is the matrix that im2col makes of an image; with both exchanged it
// is its transpose. By vdpbf16ps the elements are pairs of bfloat16 (cut_words). Each element of C is one chain of multiply-adds in
// the order of k, whatever the blocks are.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"

namespace evn::simd_implicit_gemm {

// Rows of a micro-tile: the table of rows and C have as many rows as the next multiple of it; what is computed beyond m means
// nothing.
inline constexpr std::int64_t kRows = 8;

// B is packed in panels of some whole vectors: [panel][k][column]. C has `ldc` floats in a row, of which all whole vectors are
// written.
struct Product {
  std::int64_t m, n, k;
  const float* x;
  const std::int64_t* rows;
  const std::int64_t* ks;
  const float* b;
  float* c;
  std::int64_t ldc;
  bool add;              // C goes on from what is there
  CancelPoints* points;  // null: none
};

// Some rows and columns of a plane, which may lie outside of it; there they are 0.
struct Cut {
  std::int64_t height, width;  // of the plane
  std::int64_t row, rows, column, columns;
  std::int64_t step = 1;  // from one column to the next
};

// Some rows of columns that are spread out: element (i, j) goes from i * from_row + j to i * to_row + j * to_step.
struct Spread {
  std::int64_t rows, columns, from_row, to_row, to_step;
};

// Columns of B whose elements are words: word (row, column) is low[column * step + row] and high[column * step + row], 0 where
// these are null, and goes to row * width + column. Columns up to the next whole vector are 0.
struct WordPanel {
  const float *low, *high;
  std::int64_t step, columns, rows, width;
};

struct Loops {
  int lanes;
  int panel_vectors;  // of a panel, at most
  void (*run)(const Product&);
  // Writes the cut of a plane, dense. Writes up to a vector beyond its end.
  void (*cut)(const Cut& cut, const float* plane, float* to, CancelPoints* points);
  void (*spread)(const Spread& spread, const float* from, float* to, CancelPoints* points);
  // The cluster k_avx512_bf16 has these two and neither `cut` nor `spread`; x and B of its `run` are words of two bfloat16 that are
  // neighbours in k, and C is float32. `low` and `high`: two planes, rounded to nearest even and put together; null: 0.
  void (*cut_words)(const Cut& cut, const float* low, const float* high, float* to, CancelPoints* points) = nullptr;
  void (*turn_words)(const WordPanel& panel, float* to, CancelPoints* points) = nullptr;
};
const Loops& loops(Isa isa);

// Calls f(first column, columns) for the panels of a matrix of n columns; all but the last are whole vectors.
template <typename F>
static inline void for_each_panel(int lanes, int panel_vectors, std::int64_t n, F&& f) {
  const std::int64_t vectors = (n + lanes - 1) / lanes, panels = (vectors + panel_vectors - 1) / panel_vectors;
  for (std::int64_t i = 0; i < panels; ++i) {
    const std::int64_t begin = i * vectors / panels * lanes, end = (i + 1) * vectors / panels * lanes;
    f(begin, (end < n ? end : n) - begin);
  }
}

}  // namespace evn::simd_implicit_gemm
