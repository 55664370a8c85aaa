// MatMul and Gemm of two matrices that are computed, where their elements are rounded as they are packed: which product a node is,
// and how it is cut into tiles. Blocks of k are the same whatever the tiles are, so that sums do not depend on these.
#pragma once

#include <algorithm>

#include "device/kernel.h"

namespace evn {

struct DynamicGemm {
  std::int32_t batch_rank;
  bool a_turned, b_turned;  // the rows of A, or the columns of B, are the columns, or rows, of what lies in memory
  std::int64_t m, n, k, lda, ldb;
  std::int64_t batch[kMaxRank], a_stride[kMaxRank], b_stride[kMaxRank];  // in elements, 0 where broadcast
  std::int64_t init_row, init_column;
  float init_scale;
  std::int64_t outer;                                   // products
  std::int64_t rows, columns, row_tiles, column_tiles;  // of a tile; of a product

  std::int64_t tiles() const { return row_tiles * column_tiles; }
};

// What a tile is: rows of A by columns of B, of which the first elements are there, and where C begins.
struct DynamicGemmTile {
  const float *a, *b, *init;  // init: null: 0
  float* c;
  std::int64_t rows, columns;
};

// Whether the node is such a product.
Refusal refuse_dynamic_gemm(const OpDesc& d);
// Whether fewer columns or k than 16 are known, which would waste most of what is packed.
bool is_narrow_gemm(const OpDesc& d);
// Tiles have at most so many columns, and but for the last ones multiples of 64.
void plan_dynamic_gemm(const OpDesc& d, std::int64_t most_columns, DynamicGemm* g, KernelPlan* p);
DynamicGemmTile dynamic_gemm_tile(const DynamicGemm& g, const KernelArgs& args, std::int64_t index);

}  // namespace evn
