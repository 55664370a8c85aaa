// Matrix products over broadcast batches, as their references see them: two sides, each with its matrix and the axes before that.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/walk.h"

namespace evn {

// Steps are in elements.
struct ProductSide {
  Shape batch;
  Strides batch_steps;
  std::int64_t rows = 1, columns = 1;
  std::int64_t row_step = 0, column_step = 1;
};

// A vector is a row on the left, a column on the right. With `outer_rows` the rows stand before the batch,
// [rows, batch..., columns]; `transposed` then swaps rows and columns.
inline ProductSide side_of(const Shape& s, bool is_left, bool transposed = false, bool outer_rows = false) {
  ProductSide side;
  if (s.rank() == 1) {
    (is_left ? side.columns : side.rows) = s[0];
    side.row_step = is_left ? 0 : 1;
    side.column_step = is_left ? 1 : 0;
    return side;
  }
  const Strides dense = s.is_known() ? dense_strides(s) : Strides{};
  const int row_axis = outer_rows ? 0 : s.rank() - 2;
  const int first = outer_rows ? 1 : 0;
  for (int i = 0; i < s.rank() - 2; ++i) {
    side.batch.push_back(s[first + i]);
    side.batch_steps.step[i] = dense.step[first + i];
  }
  side.rows = s[row_axis];
  side.columns = s[s.rank() - 1];
  side.row_step = dense.step[row_axis];
  if (transposed) {
    std::swap(side.rows, side.columns);
    std::swap(side.row_step, side.column_step);
  }
  return side;
}

// The shape of the product; `a_rank` and `b_rank` are of the operands. Throws where the sides do not fit.
inline Shape product_shape(const ProductSide& a, int a_rank, const ProductSide& b, int b_rank, int b_input) {
  require_dim(b.rows, a.columns, b_input);
  Shape out = broadcast_partial(a.batch, b.batch);
  if (a_rank > 1) out.push_back(a.rows);
  if (b_rank > 1) out.push_back(b.columns);
  return out;
}

inline Strides batch_steps_in(const ProductSide& side, const Shape& batch) {
  Strides s;
  const int missing = batch.rank() - side.batch.rank();
  for (int i = 0; i < side.batch.rank(); ++i) s.step[i + missing] = side.batch[i] == 1 ? 0 : side.batch_steps.step[i];
  return s;
}

// Puts the columns of the right-hand matrices, which stand row by row in `values`, one behind the other, as the sums want them.
template <typename T>
void turn_columns(ProductSide* b, std::vector<T>* values) {
  const std::int64_t size = b->rows * b->columns;
  if (size == 0 || b->row_step != b->columns || b->column_step != 1) return;
  std::vector<T> matrix(static_cast<std::size_t>(size));
  for (auto from = values->begin(); from != values->end(); from += size) {
    cancellation_point();
    for (std::int64_t i = 0; i < size; ++i) {
      cancellation_point();
      matrix[static_cast<std::size_t>(i % b->columns * b->rows + i / b->columns)] = from[i];
    }
    copy_in_pieces(matrix.data(), size, &*from);
  }
  b->row_step = 1;
  b->column_step = b->rows;
}

// store(i, row, column, sum over k of term(element of a, row, element of b, column)) for each element i of the product.
template <typename A, typename Term, typename Store>
void multiply(const ProductSide& a, const ProductSide& b, Term&& term, Store&& store) {
  const Shape batch = broadcast_partial(a.batch, b.batch);
  walk<2>(batch, {batch_steps_in(a, batch), batch_steps_in(b, batch)}, [&](std::int64_t i, const std::int64_t* at) {
    for (std::int64_t m = 0; m < a.rows; ++m) {
      cancellation_point();
      for (std::int64_t n = 0; n < b.columns; ++n) {
        cancellation_point();
        A sum = 0;
        for (std::int64_t k = 0; k < a.columns; ++k) {
          cancellation_point();
          sum += term(at[0] + m * a.row_step + k * a.column_step, m, at[1] + k * b.row_step + n * b.column_step, n);
        }
        store((i * a.rows + m) * b.columns + n, m, n, sum);
      }
    }
  });
}

}  // namespace evn
