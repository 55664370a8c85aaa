#include "backends/cpu/gemm/dynamic_gemm.h"

#include "backends/cpu/support.h"
#include "ops/gemm.h"
#include "ops/matmul.h"

namespace evn {
namespace {

constexpr std::int64_t kColumnStep = 64;
constexpr std::int64_t kFewest = 16;
constexpr std::int64_t kFewRows = 96, kFewColumns = 128;  // of a tile where threads share a product
constexpr std::int64_t kTilesPerThread = 4;

bool is_gemm(const OpDesc& d) { return d.node->op_type == "Gemm"; }

void plan_gemm(const OpDesc& d, DynamicGemm* g) {
  const Shape &a = d.inputs[0].shape, &b = d.inputs[1].shape;
  g->a_turned = attr_int(*d.node, GemmAttr::kTransA) != 0;
  g->b_turned = attr_int(*d.node, GemmAttr::kTransB) != 0;
  g->m = d.outputs[0].shape[0];
  g->n = d.outputs[0].shape[1];
  g->k = a[g->a_turned ? 0 : 1];
  g->lda = a[1];
  g->ldb = b[1];
  g->outer = 1;
  if (!d.has_input(2)) return;
  const Shape& c = d.inputs[2].shape;
  const std::int64_t columns = c.rank() == 0 ? 1 : c[c.rank() - 1];
  g->init_column = columns == 1 ? 0 : 1;
  g->init_row = (c.rank() == 2 ? c[0] : 1) == 1 ? 0 : columns;
  g->init_scale = attr_float(*d.node, GemmAttr::kBeta);
}

// All batch axes of the left matrix are rows where the right one has none.
void plan_matmul(const OpDesc& d, DynamicGemm* g) {
  const Shape &a = d.inputs[0].shape, &b = d.inputs[1].shape;
  g->k = g->lda = a[a.rank() - 1];
  g->n = g->ldb = b[b.rank() - 1];
  g->outer = 1;
  if (b.rank() == 2) {
    g->m = a.elements(0, a.rank() - 1);
    return;
  }
  g->m = a.rank() >= 2 ? a[a.rank() - 2] : 1;
  g->batch_rank = std::max(a.rank(), b.rank()) - 2;
  matmul_batch_strides(a, g->batch_rank, matmul_matrix_elements(a), g->a_stride);
  matmul_batch_strides(b, g->batch_rank, matmul_matrix_elements(b), g->b_stride);
  for (int i = 0; i < g->batch_rank; ++i) {
    g->batch[i] = d.outputs[0].shape[i];
    g->outer = checked_mul(g->outer, g->batch[i]);
  }
}

}  // namespace

Refusal refuse_dynamic_gemm(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  if (d.inputs[0].shape.rank() < 1 || d.inputs[1].shape.rank() < 2) return "a scalar, or a vector on the right";
  if (is_gemm(d) && attr_float(*d.node, GemmAttr::kAlpha) != 1.0f) return "alpha of a matrix that is not constant";
  return nullptr;
}

bool is_narrow_gemm(const OpDesc& d) {
  const Shape& b = d.inputs[1].shape;
  const auto is_few = [](std::int64_t dim) { return dim >= 0 && dim < kFewest; };
  return is_few(b[b.rank() - 1]) || is_few(b[b.rank() - 2]);
}

void plan_dynamic_gemm(const OpDesc& d, std::int64_t most_columns, DynamicGemm* g, KernelPlan* p) {
  *g = DynamicGemm{};
  if (is_gemm(d)) {
    plan_gemm(d, g);
  } else {
    plan_matmul(d, g);
  }
  p->flops = 2.0 * static_cast<double>(g->k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
  p->tiles = 0;
  if (d.outputs[0].shape.elements() == 0) return;
  const auto cut = [&](std::int64_t rows, std::int64_t columns) {
    g->row_tiles = ceil_div(g->m, rows);
    g->rows = ceil_div(g->m, g->row_tiles);
    g->columns = std::min(g->n, ceil_div(ceil_div(g->n, ceil_div(g->n, columns)), kColumnStep) * kColumnStep);
    g->column_tiles = ceil_div(g->n, g->columns);
  };
  std::int64_t rows = g->m, columns = std::min(g->n, most_columns);
  cut(rows, columns);
  const double wanted = d.threads < 2 ? 1 : std::min<double>(kTilesPerThread * d.threads, p->flops / (2 * kTileCost));
  while (static_cast<double>(g->outer) * static_cast<double>(g->tiles()) < wanted) {
    if (rows >= 2 * kFewRows && (rows >= columns || columns < 2 * kFewColumns)) {
      rows = ceil_div(rows, std::int64_t{2});
    } else if (columns >= 2 * kFewColumns) {
      columns = ceil_div(columns, std::int64_t{2});
    } else {
      break;
    }
    cut(rows, columns);
  }
  p->tiles = checked_mul(g->outer, g->tiles());
}

DynamicGemmTile dynamic_gemm_tile(const DynamicGemm& g, const KernelArgs& args, std::int64_t index) {
  // Rows change fastest, so that tiles that follow each other share their part of B.
  const std::int64_t row = index % g.row_tiles * g.rows, column = index / g.row_tiles % g.column_tiles * g.columns;
  const std::int64_t product = index / g.tiles();
  DynamicGemmTile t{args.in<float>(0) + row * (g.a_turned ? 1 : g.lda),
                    args.in<float>(1) + column * (g.b_turned ? g.ldb : 1),
                    nullptr,
                    args.out<float>() + (product * g.m + row) * g.n + column,
                    std::min(g.rows, g.m - row),
                    std::min(g.columns, g.n - column)};
  for (std::int64_t i = g.batch_rank - 1, rest = product; i >= 0; --i) {
    const std::int64_t at = rest % g.batch[i];
    rest /= g.batch[i];
    t.a += at * g.a_stride[i];
    t.b += at * g.b_stride[i];
  }
  if (args.desc->has_input(2)) t.init = args.in<float>(2) + row * g.init_row + column * g.init_column;
  return t;
}

}  // namespace evn
