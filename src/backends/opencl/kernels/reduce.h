// Folds of axes by the kernels of rows.cl and, on GPUs, grouped.cl.
#pragma once

#include <algorithm>

#include "backends/opencl/kernels/grouped.h"
#include "backends/opencl/kernels/support.h"

namespace evn {

// The struct that rows.cl takes, laid out as there.
struct Reduce {
  Fold op;
  std::int32_t kept, reduced, padding;
  std::int64_t length, step, inner, outputs, runs, chunk;
  float count, padding2;
  std::int64_t kept_dim[kMaxRank], kept_stride[kMaxRank];
  std::int64_t reduced_dim[kMaxRank], reduced_stride[kMaxRank];
};
static_assert(sizeof(Reduce) <= KernelPlan::kStateBytes);

// The axes of a dense tensor, of which neighbouring ones of one kind are merged; kept and reduced ones take turns then.
struct MergedAxes {
  int rank = 0;
  std::int64_t dim[2 * kMaxRank] = {};
  bool is_reduced[2 * kMaxRank] = {};

  void add(std::int64_t n, bool reduced) {
    if (n == 1) return;
    if (rank == 0 || is_reduced[rank - 1] != reduced) {
      dim[rank] = 1;
      is_reduced[rank++] = reduced;
    }
    dim[rank - 1] *= n;
  }
};

inline Reduce make_reduce(const MergedAxes& m, Fold fold) {
  Reduce p{};
  p.op = fold;
  p.length = p.step = p.inner = p.outputs = p.runs = 1;
  std::int64_t stride[2 * kMaxRank], elements = 1;
  for (int i = m.rank - 1; i >= 0; --i) {
    stride[i] = elements;
    elements *= m.dim[i];
  }
  for (int i = 0; i < m.rank; ++i) {
    if (m.is_reduced[i]) {
      p.reduced_dim[p.reduced] = m.dim[i];
      p.reduced_stride[p.reduced++] = stride[i];
    } else if (i == m.rank - 1) {
      p.inner = m.dim[i];
    } else {
      p.kept_dim[p.kept] = m.dim[i];
      p.kept_stride[p.kept++] = stride[i];
      p.outputs *= m.dim[i];
    }
  }
  if (p.reduced > 0) {
    p.length = p.reduced_dim[--p.reduced];
    p.step = p.reduced_stride[p.reduced];
  }
  for (int i = 0; i < p.reduced; ++i) p.runs *= p.reduced_dim[i];
  if (m.rank > 0 && m.is_reduced[m.rank - 1]) p.inner = 0;
  p.count = static_cast<float>(p.length * p.runs);
  return p;
}

inline constexpr OpenClFunction kReduceRows{"rows", "reduce_rows"};
inline constexpr OpenClFunction kReduceColumns{"rows", "reduce_columns"};
inline constexpr OpenClFunction kGroupedReduce = row_function("reduce_rows");

// Rows of one work item.
inline std::int64_t row_chunk(const Launcher& cl, std::int64_t rows, std::int64_t length) {
  return cl.is_cpu() ? std::max<std::int64_t>(1, chunk_elements(cl, rows * length) / std::max<std::int64_t>(length, 1)) : 1;
}

inline void run_reduce(Launcher& cl, Reduce p, const Buffer& x, const Buffer& y, const Epilogue& epilogue) {
  if (p.inner == 0) {
    if (wants_row_groups(cl, p.length * p.runs)) return cl.run(kGroupedReduce, row_grid(p.outputs), x, y, p, epilogue);
    p.chunk = row_chunk(cl, p.outputs, p.length * p.runs);
    return cl.run(kReduceRows, {ceil_div(p.outputs, p.chunk)}, x, y, p, epilogue);
  }
  p.chunk = cl.is_cpu() ? 4 * cl.lanes() : cl.lanes();
  cl.run(kReduceColumns, {ceil_div(p.inner, p.chunk), p.outputs}, x, y, p, epilogue);
}

}  // namespace evn
