// MatMul and Gemm by OpenBLAS in libevener_openblas.so: of float64, which the reference code runs without that module, and of
// float32 where `products` asks for it (docs/decisions/0010-openblas.md, 0067-products-by-rule.md). A tile is a block of one
// product and works in a buffer of its thread. Rows go in groups of eight: OpenBLAS adds up a row the same way wherever it stands
// in a group, but not when the group is smaller. Columns are cut by the product's own shape. A block is made in calls of some rows
// and some of k, so that a run can stop between them; a bias and a residual are there before the first one adds to them, the
// epilogue follows the last one.
#include <algorithm>
#include <climits>

#include "backends/cpu/gemm/blas.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/simd/epilogue_ops_loops.h"
#include "backends/cpu/support.h"
#include "base/error.h"
#include "ops/gemm.h"
#include "ops/matmul.h"

namespace evn {
namespace {

constexpr Refusal kNoModule = "libevener_openblas.so is not beside the library or cannot be opened";
constexpr Refusal kNoRowGroups = "its kernels for this CPU add up a row in an order that depends on the rows beside it";
constexpr std::size_t kBufferAlignment = 4096;
constexpr std::int64_t kTileRows = 128;  // the least that keeps packing a block of B below a few percent
constexpr std::int64_t kTileColumns = 256;
constexpr std::int64_t kRowGroup = EVN_BLAS_ROW_GROUP;
constexpr std::int64_t kLeastRows = 32;  // of a tile that is cut for more threads, and of one call: with fewer, packing B dominates
static_assert(kTileRows <= EVN_BLAS_MAX_ROWS && kTileColumns <= EVN_BLAS_MAX_COLUMNS && kTileRows % kRowGroup == 0);

struct BlasState {
  const evn_blas_module_table* module;
  std::int64_t m, n, k, lda, ldb;
  std::int64_t size;  // bytes of an element
  bool transpose_a, transpose_b;
  double alpha, beta;  // of Gemm: beta is what C is multiplied by
  std::int32_t batch_rank;
  std::int64_t batch[kMaxRank], a_stride[kMaxRank], b_stride[kMaxRank];  // in elements, 0 where broadcast
  std::int64_t init_row, init_column;
  std::int64_t row_tiles, column_tiles, tile_rows;
  std::int64_t call;  // multiply-adds of one call: what a slow core of the instruction set does in a millisecond
};

Refusal supports(const OpDesc& d) {
  if (all_float32(d)) {
    if (d.products != Products::kOpenBlas) return "products: openblas is not asked for";
    // OpenBLAS would not look at A and B then, which may have NaN in them.
    if (d.node->op_type == std::string_view("Gemm") && attr_float(*d.node, GemmAttr::kAlpha) == 0) return "alpha is 0";
  } else {
    for (std::size_t i = 0; i < d.inputs.size(); ++i) {
      if (d.has_input(static_cast<int>(i)) && d.inputs[i].dtype != DType::kFloat64) return "only float32 and float64";
    }
    if (d.products == Products::kOwn) return "products: own";
    if (epilogue_of(d) != nullptr) return "no fused steps of float64";
  }
  for (int i = 0; i < 2; ++i) {
    if (d.inputs[i].shape.rank() < 1) return "a scalar";
  }
  const evn_blas_module_table* const module = blas_module();
  if (module == nullptr) return kNoModule;
  return module->row_groups[all_float32(d) ? 1 : 0] != 0 ? nullptr : kNoRowGroups;
}

void finish_plan(const OpDesc& d, std::int64_t outer, KernelPlan* p) {
  auto& s = p->state<BlasState>();
  if (s.k > INT_MAX || s.lda > INT_MAX || s.ldb > INT_MAX || s.n > INT_MAX)
    fail(EVN_ERROR_LIMIT, "a matrix with rows above 2^31 elements");
  s.module = blas_module();
  s.size = d.outputs[0].dtype == DType::kFloat32 ? sizeof(float) : sizeof(double);
  const Isa isa = cpu_isa();
  s.call = (isa == Isa::k_baseline ? 8'800'000 : isa == Isa::k_avx2 ? 68'000'000 : 100'800'000) / s.size;
  s.column_tiles = ceil_div(s.n, kTileColumns);
  const std::int64_t columns = checked_mul(outer, s.column_tiles);
  s.tile_rows = kTileRows;
  // Rows alone are cut finer for more threads: a column's bits may depend on where its tile begins.
  const std::int64_t wanted = d.threads > 1 ? 2 * static_cast<std::int64_t>(d.threads) : 1;
  while (s.tile_rows > kLeastRows && checked_mul(columns, ceil_div(s.m, s.tile_rows)) < wanted) s.tile_rows /= 2;
  s.row_tiles = ceil_div(s.m, s.tile_rows);
  p->tiles = checked_mul(columns, s.row_tiles);
  p->thread_scratch_bytes = s.module->buffer_bytes + kBufferAlignment;
  if (s.m % kRowGroup != 0) {  // a padded group of rows of A, and of the output
    const std::int64_t padded = checked_mul(kRowGroup * s.size, checked_add(s.k, kTileColumns));
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
  s.beta = 1;  // of a fused bias
  s.init_column = 1;
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
  s.beta = 1;
  s.init_column = 1;
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
  char *buffer, *rows;

  Scratch(const BlasState& s, void* memory) {
    buffer = reinterpret_cast<char*>(align_up(reinterpret_cast<std::uintptr_t>(memory), kBufferAlignment));
    rows = buffer + s.module->buffer_bytes;
  }
};

// A block of the output: rows [row, row + p.m), columns [column, column + p.n).
struct Block {
  const BlasState& s;
  const char *a, *b;     // of this block's rows and columns
  const char* init;      // C of Gemm, or a fused bias; null: there is none
  const char* residual;  // of this block; null: there is none
  std::int64_t row, column;
  char* out;
  CancelPoints* points;

  bool adds() const { return init != nullptr || residual != nullptr; }

  // The product in calls of bounded size, between which the run may stop: some of k each, as OpenBLAS cuts it itself, so that no
  // bit is another. False: the run stops.
  bool multiply(evn_blas_product p, const char* from_a, const char* from_b, char* c, void* buffer) const {
    const std::int64_t unit = s.module->depth[p.single], all = p.k;
    const std::int64_t a_step = (p.transpose_a != 0 ? p.lda : 1) * s.size, b_step = (p.transpose_b != 0 ? 1 : p.ldb) * s.size;
    std::int64_t k = 0;
    do {
      p.k = static_cast<int>(unit == 0 || all - k < 2 * unit ? all - k : unit);
      if (stops_now(points)) return false;
      s.module->product(&p, from_a + k * a_step, from_b + k * b_step, c, buffer);
      p.beta = 1;
      k += p.k;
    } while (k < all);
    return true;
  }

  // Writes beta * C and the residual, which the product is then added to.
  template <typename T>
  void start_as(std::int64_t first, std::int64_t rows, std::int64_t columns, T* to, std::int64_t stride) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      const T* const from = reinterpret_cast<const T*>(init) + (row + first + i) * s.init_row + column * s.init_column;
      const T* const added = reinterpret_cast<const T*>(residual) + (first + i) * s.n;
      for (std::int64_t j = 0; j < columns; ++j) {
        const T x = init == nullptr ? T{} : static_cast<T>(s.beta) * from[j * s.init_column];
        to[i * stride + j] = residual == nullptr ? x : x + added[j];
      }
    }
  }
  void start(std::int64_t first, std::int64_t rows, std::int64_t columns, char* to, std::int64_t stride) const {
    if (s.size == sizeof(float)) {
      start_as(first, rows, columns, reinterpret_cast<float*>(to), stride);
    } else {
      start_as(first, rows, columns, reinterpret_cast<double*>(to), stride);
    }
  }

  // Whole groups of rows, where they are. False: the run stops.
  bool groups(evn_blas_product p, const Scratch& scratch) const {
    if (adds()) start(0, p.m, p.n, out, s.n);
    const std::int64_t unit = s.module->depth[p.single];
    const std::int64_t all = p.m, depth = unit == 0 ? s.k : std::min<std::int64_t>(s.k, unit);
    const std::int64_t fit = s.call / std::max<std::int64_t>(1, depth * p.n) / kRowGroup * kRowGroup,
                       most = std::max(kLeastRows, fit);
    for (std::int64_t first = 0; first < all; first += p.m) {
      p.m = static_cast<int>(std::min(most, all - first));
      const std::int64_t from = first * (s.transpose_a ? 1 : s.lda) * s.size;
      if (!multiply(p, a + from, b, out + first * s.n * s.size, scratch.buffer)) return false;
    }
    return true;
  }

  // The last rows, fewer than a group: filled up with zeros, so that their bits do not depend on how many there are.
  bool rest(evn_blas_product p, std::int64_t first, std::int64_t rows, const Scratch& scratch) const {
    char* const padded = scratch.rows;
    char* const result = padded + kRowGroup * s.k * s.size;
    const std::int64_t row_bytes = p.n * s.size;
    const bool copied = by_parts(points, s.k, 64, kRowGroup * 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = 0; i < kRowGroup; ++i) {
        char* const to = padded + i * s.k * s.size;
        if (i >= rows) {
          std::memset(to + begin * s.size, 0, static_cast<std::size_t>((end - begin) * s.size));
        } else if (!s.transpose_a) {
          std::memcpy(to + begin * s.size, a + ((first + i) * s.lda + begin) * s.size,
                      static_cast<std::size_t>((end - begin) * s.size));
        } else {
          for (std::int64_t x = begin; x < end; ++x)
            std::memcpy(to + x * s.size, a + (x * s.lda + first + i) * s.size, static_cast<std::size_t>(s.size));
        }
      }
    });
    if (!copied) return false;
    std::memset(result, 0, static_cast<std::size_t>(kRowGroup * row_bytes));
    if (adds()) start(first, rows, p.n, result, p.n);
    p.m = static_cast<int>(kRowGroup);
    p.transpose_a = 0;
    p.lda = static_cast<int>(s.k);
    p.ldc = p.n;
    if (!multiply(p, padded, b, result, scratch.buffer)) return false;
    for (std::int64_t i = 0; i < rows; ++i)
      std::memcpy(out + (first + i) * s.n * s.size, result + i * row_bytes, static_cast<std::size_t>(row_bytes));
    return true;
  }
};

// float32 alone has an epilogue.
void finish(const KernelArgs& args, const Block& block, std::int64_t rows, std::int64_t columns) {
  const Epilogue* const e = epilogue_of(*args.desc);
  if (e == nullptr) return;
  const auto& apply = simd_epilogue_ops::loops(cpu_isa()).apply;
  const std::int64_t work = columns * e->count * kFunction;
  by_parts(block.points, rows, 1, work, [&](std::int64_t begin, std::int64_t end) {
    apply(e->ops, e->count, reinterpret_cast<float*>(block.out) + begin * block.s.n, end - begin, block.s.n, columns);
  });
}

void run_tile(const KernelArgs& args, std::int64_t index, const Scratch& scratch, CancelPoints* points) {
  const auto& s = args.plan->state<BlasState>();
  const std::int64_t row = index % s.row_tiles * s.tile_rows;
  const std::int64_t column = index / s.row_tiles % s.column_tiles * kTileColumns;
  const std::int64_t product = index / (s.row_tiles * s.column_tiles);
  std::int64_t a = s.transpose_a ? row : row * s.lda;
  std::int64_t b = s.transpose_b ? column * s.ldb : column;
  for (std::int64_t i = s.batch_rank - 1, rest = product; i >= 0; --i) {
    const std::int64_t at = rest % s.batch[i];
    rest /= s.batch[i];
    a += at * s.a_stride[i];
    b += at * s.b_stride[i];
  }
  const std::int64_t at = ((product * s.m + row) * s.n + column) * s.size;
  const char* const residual = args.residual<char>();
  const Block block = {s,
                       args.in<char>(0) + a * s.size,
                       args.in<char>(1) + b * s.size,
                       args.bias<char>(2),
                       residual == nullptr ? nullptr : residual + at,
                       row,
                       column,
                       args.out<char>() + at,
                       points};
  const std::int64_t rows = std::min(s.tile_rows, s.m - row);
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
  p.beta = block.adds() ? 1 : 0;
  p.single = s.size == sizeof(float);
  if (grouped > 0 && !block.groups(p, scratch)) return;
  if (grouped < rows && !block.rest(p, grouped, rows - grouped, scratch)) return;
  finish(args, block, rows, p.n);
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const Scratch scratch(args.plan->state<BlasState>(), args.thread_scratch);
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) run_tile(args, index, scratch, &points);
}

// Above the kernels of all precisions: who asks for OpenBLAS has its float32.
constexpr Kernel kernel(const char* name, const char* op, void (*plan)(const OpDesc&, KernelPlan*)) {
  return {.name = name,
          .op = op,
          .rank = 30,
          .supports = supports,
          .plan = plan,
          .run = run,
          .library = Products::kOpenBlas,
          .fusion = {.epilogue = kFusesBias | kFusesResidual}};
}

constexpr Kernel kKernels[] = {kernel("matmul_openblas", "MatMul", matmul_plan), kernel("gemm_openblas", "Gemm", gemm_plan)};

}  // namespace

extern const KernelFamily openblas_kernels;
const KernelFamily openblas_kernels = {kKernels};

}  // namespace evn
