// MatMul and Gemm of float64, by OpenBLAS in libevener_openblas.so; without that module the reference code runs them. A tile is a
// block of one product, cut by the product's own shape, and works in a buffer of its thread. Rows go in groups of eight: OpenBLAS
// adds up a row the same way wherever it stands in a group, but not when the group is smaller. A block is made in calls of some
// rows and some of k, so that a run can stop between them. float32 is not here: this library's own kernels win or draw on every
// shape that was measured (docs/decisions/0010-openblas.md).
#include <algorithm>
#include <climits>

#include "backends/cpu/gemm/blas.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/support.h"
#include "base/error.h"
#include "ops/gemm.h"
#include "ops/matmul.h"

namespace evn {
namespace {

constexpr Refusal kNoModule = "libevener_openblas.so, which multiplies float64, is not beside the library or cannot be opened";
constexpr std::size_t kBufferAlignment = 4096;
constexpr std::int64_t kTileRows = 128;  // the least that keeps packing a block of B below a few percent
constexpr std::int64_t kTileColumns = 256;
constexpr std::int64_t kRowGroup = EVN_BLAS_ROW_GROUP;
constexpr std::int64_t kLeastRows = 32;  // of one call: with fewer, packing B dominates
static_assert(kTileRows <= EVN_BLAS_MAX_ROWS && kTileColumns <= EVN_BLAS_MAX_COLUMNS && kTileRows % kRowGroup == 0);

struct BlasState {
  const evn_blas_module_table* module;
  std::int64_t m, n, k, lda, ldb;
  bool transpose_a, transpose_b;
  double alpha, beta;  // of Gemm: beta is what C is multiplied by
  std::int32_t batch_rank;
  std::int64_t batch[kMaxRank], a_stride[kMaxRank], b_stride[kMaxRank];  // in elements, 0 where broadcast
  std::int64_t init_row, init_column;
  std::int64_t row_tiles, column_tiles;
  std::int64_t call;  // multiply-adds of one call: what a slow core of the instruction set does in a millisecond
};

Refusal supports(const OpDesc& d) {
  for (std::size_t i = 0; i < d.inputs.size(); ++i) {
    if (d.has_input(static_cast<int>(i)) && d.inputs[i].dtype != DType::kFloat64) return "only float64";
  }
  if (epilogue_of(d) != nullptr) return "no fused steps";
  for (int i = 0; i < 2; ++i) {
    if (d.inputs[i].shape.rank() < 1) return "a scalar";
  }
  return blas_module() == nullptr ? kNoModule : nullptr;
}

void finish_plan(const OpDesc& d, std::int64_t outer, KernelPlan* p) {
  auto& s = p->state<BlasState>();
  if (s.k > INT_MAX || s.lda > INT_MAX || s.ldb > INT_MAX || s.n > INT_MAX)
    fail(EVN_ERROR_LIMIT, "a matrix with rows above 2^31 elements");
  s.module = blas_module();
  const Isa isa = cpu_isa();
  s.call = isa == Isa::k_baseline ? 1'100'000 : isa == Isa::k_avx2 ? 8'500'000 : 12'600'000;
  s.row_tiles = (s.m + kTileRows - 1) / kTileRows;
  s.column_tiles = (s.n + kTileColumns - 1) / kTileColumns;
  p->tiles = checked_mul(outer, checked_mul(s.row_tiles, s.column_tiles));
  p->thread_scratch_bytes = s.module->buffer_bytes + kBufferAlignment;
  if (s.m % kRowGroup != 0) {  // a padded group of rows of A, and of the output
    const std::int64_t padded = checked_mul(kRowGroup * static_cast<std::int64_t>(sizeof(double)), checked_add(s.k, kTileColumns));
    p->thread_scratch_bytes = checked_add(p->thread_scratch_bytes, static_cast<std::size_t>(padded));
  }
  p->flops = 2.0 * static_cast<double>(s.k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

void matmul_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<BlasState>();
  s = BlasState{};
  const Shape& a = d.inputs[0].shape;
  const Shape& b = d.inputs[1].shape;
  s.k = a[a.rank() - 1];
  s.m = a.rank() >= 2 ? a[a.rank() - 2] : 1;
  s.n = b.rank() >= 2 ? b[b.rank() - 1] : 1;
  s.lda = s.k;
  s.ldb = s.n;
  s.alpha = 1;
  const int longest = std::max(a.rank(), b.rank());
  s.batch_rank = longest > 2 ? longest - 2 : 0;
  matmul_batch_strides(a, s.batch_rank, matmul_matrix_elements(a), s.a_stride);
  matmul_batch_strides(b, s.batch_rank, matmul_matrix_elements(b), s.b_stride);
  std::int64_t outer = 1;
  for (int i = 0; i < s.batch_rank; ++i) {
    s.batch[i] = d.outputs[0].shape[i];
    outer = checked_mul(outer, s.batch[i]);
  }
  finish_plan(d, outer, p);
}

void gemm_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<BlasState>();
  s = BlasState{};
  s.transpose_a = attr_int(*d.node, GemmAttr::kTransA) != 0;
  s.transpose_b = attr_int(*d.node, GemmAttr::kTransB) != 0;
  s.m = d.outputs[0].shape[0];
  s.n = d.outputs[0].shape[1];
  s.k = d.inputs[0].shape[s.transpose_a ? 0 : 1];
  s.lda = d.inputs[0].shape[1];
  s.ldb = d.inputs[1].shape[1];
  s.alpha = attr_float(*d.node, GemmAttr::kAlpha);
  if (d.has_input(2)) {
    const Shape& c = d.inputs[2].shape;
    const std::int64_t columns = c.rank() == 0 ? 1 : c[c.rank() - 1];
    const std::int64_t rows = c.rank() == 2 ? c[0] : 1;
    s.init_column = columns == 1 ? 0 : 1;
    s.init_row = rows == 1 ? 0 : columns;
    s.beta = attr_float(*d.node, GemmAttr::kBeta);
  }
  finish_plan(d, 1, p);
}

// One thread's buffer: the module's, and behind it a group of rows.
struct Scratch {
  void* buffer;
  double* rows;

  Scratch(const BlasState& s, void* memory) {
    char* aligned = reinterpret_cast<char*>(align_up(reinterpret_cast<std::uintptr_t>(memory), kBufferAlignment));
    buffer = aligned;
    rows = reinterpret_cast<double*>(aligned + s.module->buffer_bytes);
  }
};

// A block of the output: rows [row, row + p.m), columns [column, column + p.n).
struct Block {
  const BlasState& s;
  const double *a, *b;  // of this block's rows and columns
  const double* init;   // C of Gemm, or null
  std::int64_t row, column;
  double* out;
  CancelPoints* points;

  // The product in calls of bounded size, between which the run may stop: some of k each, as OpenBLAS cuts it itself, so that no
  // bit is another. False: the run stops.
  bool multiply(evn_blas_product p, const double* from_a, const double* from_b, double* c, void* buffer) const {
    const std::int64_t unit = s.module->depth, all = p.k;
    const std::int64_t a_step = p.transpose_a != 0 ? p.lda : 1, b_step = p.transpose_b != 0 ? 1 : p.ldb;
    std::int64_t k = 0;
    do {
      p.k = static_cast<int>(unit == 0 || all - k < 2 * unit ? all - k : unit);
      if (stops_now(points)) return false;
      s.module->product_f64(&p, from_a + k * a_step, from_b + k * b_step, c, buffer);
      p.beta = 1;
      k += p.k;
    } while (k < all);
    return true;
  }

  // Writes beta * C, which the product is then added to.
  void start(std::int64_t first, int rows, int columns, double* to, std::int64_t stride) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      const double* from = init + (row + first + i) * s.init_row + column * s.init_column;
      for (std::int64_t j = 0; j < columns; ++j) to[i * stride + j] = s.beta * from[j * s.init_column];
    }
  }

  // Whole groups of rows, where they are. False: the run stops.
  bool groups(evn_blas_product p, const Scratch& scratch) const {
    if (init != nullptr) start(0, p.m, p.n, out, s.n);
    const std::int64_t all = p.m, depth = s.module->depth == 0 ? s.k : std::min<std::int64_t>(s.k, s.module->depth);
    const std::int64_t fit = s.call / std::max<std::int64_t>(1, depth * p.n) / kRowGroup * kRowGroup,
                       most = std::max(kLeastRows, fit);
    for (std::int64_t first = 0; first < all; first += p.m) {
      p.m = static_cast<int>(std::min(most, all - first));
      if (!multiply(p, a + first * (s.transpose_a ? 1 : s.lda), b, out + first * s.n, scratch.buffer)) return false;
    }
    return true;
  }

  // The last rows, fewer than a group: filled up with zeros, so that their bits do not depend on how many there are.
  void rest(evn_blas_product p, std::int64_t first, int rows, const Scratch& scratch) const {
    double* padded = scratch.rows;
    double* result = padded + kRowGroup * s.k;
    const bool copied = by_parts(points, s.k, 64, kRowGroup * 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = 0; i < kRowGroup; ++i) {
        for (std::int64_t x = begin; x < end; ++x) {
          padded[i * s.k + x] = i >= rows ? 0.0 : s.transpose_a ? a[x * s.lda + first + i] : a[(first + i) * s.lda + x];
        }
      }
    });
    if (!copied) return;
    std::fill_n(result, kRowGroup * p.n, 0.0);
    if (init != nullptr) start(first, rows, p.n, result, p.n);
    p.m = static_cast<int>(kRowGroup);
    p.transpose_a = 0;
    p.lda = static_cast<int>(s.k);
    p.ldc = p.n;
    if (!multiply(p, padded, b, result, scratch.buffer)) return;
    for (std::int64_t i = 0; i < rows; ++i) std::copy_n(result + i * p.n, p.n, out + (first + i) * s.n);
  }
};

void run_tile(const KernelArgs& args, std::int64_t index, const Scratch& scratch, CancelPoints* points) {
  const auto& s = args.plan->state<BlasState>();
  const std::int64_t row = index % s.row_tiles * kTileRows;
  const std::int64_t column = index / s.row_tiles % s.column_tiles * kTileColumns;
  const std::int64_t product = index / (s.row_tiles * s.column_tiles);
  const double* a = args.in<double>(0);
  const double* b = args.in<double>(1);
  for (std::int64_t i = s.batch_rank - 1, rest = product; i >= 0; --i) {
    const std::int64_t at = rest % s.batch[i];
    rest /= s.batch[i];
    a += at * s.a_stride[i];
    b += at * s.b_stride[i];
  }
  const Block block = {s,
                       a + (s.transpose_a ? row : row * s.lda),
                       b + (s.transpose_b ? column * s.ldb : column),
                       args.desc->has_input(2) ? args.in<double>(2) : nullptr,
                       row,
                       column,
                       args.out<double>() + (product * s.m + row) * s.n + column,
                       points};
  const std::int64_t rows = std::min(kTileRows, s.m - row);
  const std::int64_t grouped = rows / kRowGroup * kRowGroup;
  evn_blas_product p = {};
  p.m = static_cast<int>(grouped);
  p.n = static_cast<int>(std::min(kTileColumns, s.n - column));
  p.k = static_cast<int>(s.k);
  p.transpose_a = s.transpose_a;
  p.transpose_b = s.transpose_b;
  p.lda = static_cast<int>(s.lda);
  p.ldb = static_cast<int>(s.ldb);
  p.ldc = static_cast<int>(s.n);
  p.alpha = s.alpha;
  p.beta = block.init == nullptr ? 0 : 1;
  if (grouped > 0 && !block.groups(p, scratch)) return;
  if (grouped < rows) block.rest(p, grouped, static_cast<int>(rows - grouped), scratch);
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const Scratch scratch(args.plan->state<BlasState>(), args.thread_scratch);
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) run_tile(args, index, scratch, &points);
}

constexpr Kernel kKernels[] = {
    {.name = "matmul_openblas", .op = "MatMul", .rank = 8, .supports = supports, .plan = matmul_plan, .run = run},
    {.name = "gemm_openblas", .op = "Gemm", .rank = 8, .supports = supports, .plan = gemm_plan, .run = run},
};

}  // namespace

extern const KernelFamily openblas_kernels;
const KernelFamily openblas_kernels = {kKernels};

}  // namespace evn
