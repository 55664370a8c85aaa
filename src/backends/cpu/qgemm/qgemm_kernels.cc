// Products of matrices of bytes: QLinearMatMul and MatMulInteger, and com.microsoft's QGemm, MatMulIntegerToFloat and
// DynamicQuantizeMatMul. Exact, as the reference. A tile is some rows by some columns. B is packed once where it is one constant
// matrix; of others a tile packs the columns that it needs, for all of its rows, which are many. Rows of A are read where they lie
// if they are uint8 and whole steps of k; others are copied, and DynamicQuantizeMatMul's are quantized.
#include <algorithm>

#include "backends/cpu/elementwise/bytes_loops.h"
#include "backends/cpu/qgemm/qgemm_plan.h"
#include "backends/cpu/support.h"
#include "ops/infra/dynamic.h"
#include "ops/matmul.h"

namespace evn {
namespace {

// The inputs' numbers; -1: the operator has none.
struct Inputs {
  int a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero;
  int added;  // to sums
  int bias;   // to floats
};
constexpr Inputs kLinear = {1, 2, 3, 4, 5, 6, 7, -1, -1};
constexpr Inputs kInteger = {-1, 2, 1, -1, 3, -1, -1, -1, -1};
constexpr Inputs kGemm = {1, 2, 3, 4, 5, 7, 8, 6, -1};
constexpr Inputs kToFloat = {2, 4, 1, 3, 5, -1, -1, -1, 6};
constexpr Inputs kDynamic = {-1, -1, 1, 2, 3, -1, -1, -1, 4};
enum : int { kAlpha, kTransA, kTransB };  // QGemm's attributes

constexpr std::int64_t kRowsForB = 128;  // of a tile that packs its B, at least

struct PackedGemmState {
  Isa isa;
  std::int64_t m, n, k;
  bool packed;                                                           // B, before
  int batch_rank;                                                        // of several B
  std::int64_t batch[kMaxRank], a_stride[kMaxRank], b_stride[kMaxRank];  // in elements, 0 where broadcast
  bool copies, dynamic, wide;                                            // wide: rows are copied as 16 bits
  std::int64_t lda;                                                      // of copied rows
  // In a thread's block, behind what columns need; row_at: for one that is quantized; b_at: for B.
  std::size_t row_sums_at, room_at, rows_at, row_at, b_at;
  PackedGemmTiling tiling;
};

const Inputs& inputs_of(const OpDesc& d) {
  const std::string& op = d.node->op_type;
  if (op == "QLinearMatMul") return kLinear;
  if (op == "MatMulInteger") return kInteger;
  if (op == "QGemm") return kGemm;
  return op == "MatMulIntegerToFloat" ? kToFloat : kDynamic;
}

bool is_gemm(const Inputs& in) { return &in == &kGemm; }
bool trans_b(const OpDesc& d, const Inputs& in) { return is_gemm(in) && attr_int(*d.node, kTransB) != 0; }
bool given(const OpDesc& d, int i) { return i >= 0 && d.has_input(i); }

// Whether B is one matrix that is known.
bool is_packed(const OpDesc& d, const Inputs& in) {
  return d.constant(in.b) != nullptr && d.inputs[static_cast<std::size_t>(in.b)].shape.rank() == 2;
}

Refusal supports(const OpDesc& d) {
  const Inputs& in = inputs_of(d);
  const auto is_float = [&](int i) { return !given(d, i) || d.inputs[static_cast<std::size_t>(i)].dtype == DType::kFloat32; };
  if (!is_float(in.a_scale) || !is_float(in.b_scale) || !is_float(in.y_scale) || !is_float(in.bias))
    return "scales other than float32";
  if (d.inputs[static_cast<std::size_t>(in.b)].shape.rank() < 2) return "the right-hand side is a vector";
  if (d.inputs[0].dtype == DType::kFloat32 && !is_packed(d, in)) return "the right-hand matrix must be constant";
  for (const int i : {in.a_scale, in.a_zero, in.y_scale, in.y_zero}) {
    if (!is_one_number(d, i)) return "scales and zero points for each row";
  }
  if (is_gemm(in)) {
    if (attr_int(*d.node, kTransA) != 0) return "a transposed left-hand matrix";
    const Shape added = given(d, in.added) ? d.inputs[static_cast<std::size_t>(in.added)].shape : Shape{};
    if (added.rank() == 2 && added[0] != 1) return "a sum of matrices";
  }
  const bool to_floats = d.outputs[0].dtype == DType::kFloat32;
  return to_floats || d.node->epilogue.empty() ? nullptr : "fused steps";
}

QgemmSource source_of(const OpDesc& d, const Inputs& in, const std::uint8_t* b) {
  const TensorDesc& desc = d.inputs[static_cast<std::size_t>(in.b)];
  const bool t = trans_b(d, in);
  const std::int64_t rows = desc.shape[desc.shape.rank() - 2], row = desc.shape[desc.shape.rank() - 1];
  QgemmSource s{b, t ? row : 1, t ? row : rows, t ? 1 : row};
  s.flip = is_uint8(desc);
  return s;
}

std::int64_t columns_of(const OpDesc& d, const Inputs& in) {
  const Shape& b = d.inputs[static_cast<std::size_t>(in.b)].shape;
  return b[b.rank() - (trans_b(d, in) ? 2 : 1)];
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  const Inputs& in = inputs_of(d);
  if (input != in.b || !is_packed(d, in)) return 0;
  return static_cast<std::size_t>(
      qgemm_bytes(simd_qgemm::loops(integer_isa()), source_of(d, in, nullptr).shape(columns_of(d, in))));
}

std::uint64_t prepack_variant(const OpDesc& d, int) {
  const Inputs& in = inputs_of(d);
  return (trans_b(d, in) ? 256u : 0u) | static_cast<std::uint64_t>(integer_isa());
}

void prepack(const OpDesc& d, int input, void* packed) {
  const Inputs& in = inputs_of(d);
  const Weight& weight = *d.constant(input);
  pack_qgemm(simd_qgemm::loops(integer_isa()), source_of(d, in, weight.as<std::uint8_t>()), columns_of(d, in), packed);
}

// Sets the products of one matrix of each side; returns how many there are.
std::int64_t set_batch(const OpDesc& d, const Inputs& in, PackedGemmState* s) {
  const Shape &a = d.inputs[0].shape, &b = d.inputs[static_cast<std::size_t>(in.b)].shape;
  if (b.rank() == 2) return 1;  // all rows of A are of one matrix
  s->m = a.rank() == 1 ? 1 : a[a.rank() - 2];
  s->batch_rank = std::max(a.rank(), b.rank()) - 2;
  matmul_batch_strides(a, s->batch_rank, matmul_matrix_elements(a), s->a_stride);
  matmul_batch_strides(b, s->batch_rank, matmul_matrix_elements(b), s->b_stride);
  std::int64_t outer = 1;
  for (int i = 0; i < s->batch_rank; ++i) outer = checked_mul(outer, s->batch[i] = d.outputs[0].shape[i]);
  return outer;
}

// Tiles that pack their columns of B: by columns first, and by rows only where there are many of them.
PackedGemmTiling tile_packing(const simd_qgemm::Loops& loops, const QgemmWork& work) {
  const std::int64_t pieces = ceil_div(qgemm_pieces(loops, work), std::max<std::int64_t>(1, work.outer));
  const std::int64_t column_tiles = std::min(pieces, ceil_div(work.n, kQgemmColumnStep));
  const std::int64_t row_tiles = std::min(ceil_div(pieces, column_tiles), std::max<std::int64_t>(1, work.m / kRowsForB));
  PackedGemmTiling t;
  t.rows = std::min(ceil_div(work.m, row_tiles), std::max(kRowsForB, kQgemmRowsBytes / std::max<std::int64_t>(1, work.k)));
  t.columns = ceil_div(ceil_div(work.n, column_tiles), kQgemmColumnStep) * kQgemmColumnStep;
  t.row_tiles = ceil_div(work.m, t.rows);
  t.column_tiles = ceil_div(work.n, t.columns);
  return t;
}

void plan(const OpDesc& d, KernelPlan* p) {
  const Inputs& in = inputs_of(d);
  auto& s = p->state<PackedGemmState>();
  s = PackedGemmState{};
  s.isa = integer_isa();
  const simd_qgemm::Loops& loops = simd_qgemm::loops(s.isa);
  const TensorDesc& a = d.inputs[0];
  s.k = a.shape[a.shape.rank() - 1];
  s.m = a.shape.elements(0, a.shape.rank() - 1);
  s.n = columns_of(d, in);
  s.packed = is_packed(d, in);
  const std::int64_t outer = set_batch(d, in, &s);
  s.dynamic = a.dtype == DType::kFloat32;
  s.wide = loops.wide_columns != 0 && s.m >= simd_qgemm::kWideRows;
  s.copies = s.wide || !is_uint8(a) || s.k % loops.k_step != 0;
  s.lda = qgemm_padded(loops, s.k);
  if (s.lda % 1024 == 0) s.lda += 64;  // or rows fall into one set of the cache
  const bool is_empty = d.outputs[0].shape.elements() == 0;
  const QgemmWork work = {is_empty ? 1 : s.m, is_empty ? 1 : s.n, s.k, outer, d.threads};
  s.tiling = s.packed ? tile_qgemm(loops, work) : tile_packing(loops, work);
  p->tiles = is_empty ? 0 : checked_mul(outer, s.tiling.tiles());
  s.row_sums_at = qgemm_columns_bytes(loops, s.n);
  s.room_at = s.row_sums_at + align_up(static_cast<std::size_t>(s.tiling.rows) * sizeof(std::int32_t), 64);
  s.rows_at = s.room_at + (s.wide ? static_cast<std::size_t>(qgemm_room_bytes(loops, {s.n, 1, s.k})) : 0);
  const std::int64_t copied =
      s.copies ? checked_mul(s.tiling.rows, checked_mul<std::int64_t>(s.lda, s.wide ? 2 : 1)) + simd_qgemm::kOverread : 0;
  s.row_at = s.rows_at + align_up(static_cast<std::size_t>(copied), 64);
  s.b_at = s.row_at + align_up(s.wide && s.dynamic ? static_cast<std::size_t>(s.k) : 0, 64);
  p->thread_scratch_bytes = s.b_at + (s.packed ? 0 : static_cast<std::size_t>(qgemm_bytes(loops, {s.n, 1, s.k})));
  p->flops = 2.0 * static_cast<double>(outer) * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  p->bytes = bytes_of(d);
}

QgemmParameters numbers_of(const KernelArgs& args, const Inputs& in) {
  const OpDesc& d = *args.desc;
  QgemmParameters n;
  n.a_zero = zero_point_of(args, in.a_zero) + (d.inputs[0].dtype == DType::kInt8 ? 128 : 0);
  n.flip_b = is_uint8(d.inputs[static_cast<std::size_t>(in.b)]);
  if (given(d, in.b_zero)) {
    n.b_zero = args.in<std::uint8_t>(in.b_zero);
    n.b_zero_step = step_of(d, in.b_zero);
  }
  if (given(d, in.added)) {
    n.added = args.in<std::int32_t>(in.added);
    n.added_step = step_of(d, in.added);
  }
  if (is_gemm(in)) n.a_scale = static_cast<double>(attr_float(*d.node, kAlpha));
  if (given(d, in.a_scale)) n.a_scale *= static_cast<double>(*args.in<float>(in.a_scale));
  if (given(d, in.b_scale)) {
    n.b_scale = args.in<float>(in.b_scale);
    n.b_scale_step = step_of(d, in.b_scale);
  }
  const bool to_bytes = d.outputs[0].dtype != DType::kFloat32;
  if (given(d, in.y_scale) && to_bytes) n.divisor = static_cast<double>(*args.in<float>(in.y_scale));
  if (given(d, in.bias)) n.bias = args.in<float>(in.bias);
  return n;
}

// The range of all of A is found for each tile anew, for there is nothing before the tiles.
DynamicRange range_of(const KernelArgs& args, const PackedGemmState& s, CancelPoints* points) {
  float low = 0, high = 0;
  by_parts(points, s.m * s.k, 64, 1, [&](std::int64_t begin, std::int64_t end) {
    simd_bytes::loops(cluster_of(s.isa)).range(args.in<float>(0) + begin, end - begin, &low, &high);
  });
  return dynamic_range_of(low, high);
}

// Rows from element `first` of A on.
void copy_rows(const simd_qgemm::Loops& loops, const KernelArgs& args, const PackedGemmState& s, const DynamicRange& range,
               std::int64_t first, std::int64_t rows, std::uint8_t* memory, CancelPoints* points) {
  const simd_bytes::Loops& floats = simd_bytes::loops(cluster_of(s.isa));
  const bool flip = args.desc->inputs[0].dtype == DType::kInt8;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t at = first + r * s.k;
    auto* const words = reinterpret_cast<std::int16_t*>(memory + s.rows_at) + r * s.lda;
    std::uint8_t* const row = s.wide ? memory + s.row_at : memory + s.rows_at + r * s.lda;
    const bool goes_on = by_parts(points, s.k, 64, s.dynamic ? 2 : 1, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t n = end - begin;
      std::uint8_t* const to = row + begin;
      if (s.wide && !s.dynamic) {
        loops.widen(args.in<std::uint8_t>(0) + at + begin, flip, n, words + begin);
        return;
      }
      if (s.dynamic && range.scale != 0) {
        floats.quantize(args.in<float>(0) + at + begin, n, range.scale, static_cast<std::int32_t>(range.zero), false, to);
      } else if (s.dynamic) {
        std::fill_n(to, n, static_cast<std::uint8_t>(range.zero));
      } else if (flip) {
        loops.flip(args.in<std::uint8_t>(0) + at + begin, n, to);
      } else {
        std::copy_n(args.in<std::uint8_t>(0) + at + begin, n, to);
      }
      if (s.wide) loops.widen(to, false, n, words + begin);
    });
    if (!goes_on) return;
    // Behind the row, and behind the last row what it may read.
    const std::int64_t behind = s.lda - s.k + (r + 1 == rows ? simd_qgemm::kOverread / (s.wide ? 2 : 1) : 0);
    if (s.wide) std::fill_n(words + s.k, behind, std::int16_t{0});
    else std::fill_n(row + s.k, behind, std::uint8_t{0});
  }
}

// The columns of B that a tile has packed.
struct PackedColumns {
  std::int64_t product, column, columns;
  bool operator==(const PackedColumns&) const = default;
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const Inputs& in = inputs_of(*args.desc);
  const auto& s = args.plan->state<PackedGemmState>();
  const OpDesc& d = *args.desc;
  const simd_qgemm::Loops& loops = simd_qgemm::loops(s.isa);
  CancelPoints points = points_of(cancel);
  QgemmParameters numbers = numbers_of(args, in);
  DynamicRange range;
  if (s.dynamic) {
    range = range_of(args, s, &points);
    if (points.stopped) return;
    numbers.a_scale = static_cast<double>(range.scale);
    numbers.a_zero = static_cast<std::int32_t>(range.zero);
  }
  auto* const memory = static_cast<std::uint8_t*>(args.thread_scratch);
  const std::size_t element = dtype_size(d.outputs[0].dtype);
  const std::int64_t start = 0;
  PackedColumns there{-1, 0, 0};
  const auto run_columns = [&](std::int64_t product, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                               bool copies) {
    simd_qgemm::Tile t{};
    t.n = columns;
    t.points = &points;
    std::int64_t a = row * s.k, b = 0;  // elements
    for (std::int64_t i = s.batch_rank - 1, rest = product; i >= 0; rest /= s.batch[i--]) {
      a += rest % s.batch[i] * s.a_stride[i];
      b += rest % s.batch[i] * s.b_stride[i];
    }
    if (s.packed) {
      if (!set_columns(loops, numbers, {s.n, 1, s.k}, args.pack<std::uint8_t>(in.b), column, memory, &t)) return;
    } else {
      if (const PackedColumns wanted{product, column, columns}; !(wanted == there)) {
        QgemmSource source = source_of(d, in, args.in<std::uint8_t>(in.b) + b);
        source.b += column * source.column_step;
        pack_qgemm(loops, source, columns, memory + s.b_at, &points);
        there = wanted;
      }
      if (!set_columns(loops, numbers.from(column), {columns, 1, s.k}, memory + s.b_at, 0, memory, &t)) return;
    }
    if (s.wide) {
      t.words = reinterpret_cast<const std::int16_t*>(memory + s.rows_at);
      t.room = reinterpret_cast<std::int16_t*>(memory + s.room_at);
    } else {
      t.a = s.copies ? memory + s.rows_at : args.in<std::uint8_t>(0) + a;
    }
    t.lda = s.copies ? s.lda : s.k;
    if (copies) copy_rows(loops, args, s, range, a, rows, memory, &points);
    if (points.stopped) return;
    t.lines = 1;
    t.width = rows;
    t.offsets = &start;
    t.row_sums = reinterpret_cast<std::int32_t*>(memory + s.row_sums_at);
    t.zero = zero_point_of(args, in.y_zero);
    t.output = qgemm_output(d.outputs[0].dtype);
    t.c = args.out<std::uint8_t>() + static_cast<std::size_t>((product * s.m + row) * s.n + column) * element;
    t.ldc = s.n;
    loops.run(t);
    apply_steps(epilogue_of(d), cluster_of(s.isa), t.c, 1, 0, rows, s.n, columns, &points);
  };
  for_each_packed_gemm_tile(
      s.tiling, s.m, s.n, begin, end,
      [&](std::int64_t product, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
        for (std::int64_t done = 0; done < columns && !points.stopped; done += kMostQgemmColumns) {
          run_columns(product, row, rows, column + done, std::min(kMostQgemmColumns, columns - done), s.copies && done == 0);
        }
        return !cancel.stop();
      });
}

constexpr Kernel kernel(const char* name, const char* op, const char* domain) {
  return {.name = name,
          .op = op,
          .domain = domain,
          .rank = 10,
          .supports = supports,
          .prepack_bytes = prepack_bytes,
          .prepack_variant = prepack_variant,
          .prepack = prepack,
          .plan = plan,
          .run = run};
}

constexpr const char* kContrib = "com.microsoft";
constexpr Kernel kKernels[] = {
    kernel("qlinear_matmul_packed", "QLinearMatMul", ""),
    kernel("matmul_integer_packed", "MatMulInteger", ""),
    kernel("qgemm_packed", "QGemm", kContrib),
    kernel("matmul_integer_to_float_packed", "MatMulIntegerToFloat", kContrib),
    kernel("dynamic_quantize_matmul_packed", "DynamicQuantizeMatMul", kContrib),
};

}  // namespace

extern const KernelFamily qgemm_kernels;
const KernelFamily qgemm_kernels = {kKernels};

}  // namespace evn
