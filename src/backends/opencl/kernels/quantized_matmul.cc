// QLinearMatMul, QGemm, MatMulInteger, MatMulIntegerToFloat and DynamicQuantizeMatMul by one constant matrix.
#include "backends/opencl/kernels/quantized_dynamic.h"

namespace evn {
namespace {

constexpr OpenClFunction kPackRows{"quantized_product", "pack_rows"};
constexpr OpenClFunction kMultiply8{"quantized_product", "multiply_rows_8"};
constexpr OpenClFunction kMultiply1{"quantized_product", "multiply_rows_1"};

constexpr std::int64_t kPanel = 32;   // columns
constexpr std::int64_t kFewRows = 4;  // up to these the tiles are of one row

// The inputs' numbers; -1: the operator has none. y_scale < 0: the result is a sum, or a float where there is a scale.
struct Inputs {
  int b = 1, a_scale = -1, a_zero = -1, b_scale = -1, b_zero = -1, bias = -1, y_scale = -1, y_zero = -1;
  bool dynamic = false;  // A is float32
};

Inputs inputs_of(const OpDesc& desc) {
  const std::string& op = desc.node->op_type;
  if (op == "MatMulInteger") return {.a_zero = 2, .b_zero = 3};
  if (op == "MatMulIntegerToFloat") return {.a_scale = 2, .a_zero = 4, .b_scale = 3, .b_zero = 5, .bias = 6};
  if (op == "DynamicQuantizeMatMul") return {.b_scale = 2, .b_zero = 3, .bias = 4, .dynamic = true};
  if (op == "QGemm") return {.b = 3, .a_scale = 1, .a_zero = 2, .b_scale = 4, .b_zero = 5, .bias = 6, .y_scale = 7, .y_zero = 8};
  return {.b = 3, .a_scale = 1, .a_zero = 2, .b_scale = 4, .b_zero = 5, .y_scale = 6, .y_zero = 7};
}

enum : int { kAlpha, kTransA, kTransB };

bool is_gemm(const OpDesc& desc) { return desc.node->op_type == "QGemm"; }
bool given(const OpDesc& desc, int input) { return input >= 0 && desc.has_input(input); }
bool to_bytes(const OpDesc& desc) { return is_byte(desc.outputs[0].dtype); }
// The scale of A is looked at in the run: it may be computed.
bool scales_late(const OpDesc& desc) { return !is_gemm(desc) && !to_bytes(desc); }

// The struct that quantized_product.cl takes, laid out as there.
struct Params {
  std::int64_t m, n, k, a_row, a_step;
  std::int32_t block, quads, flip, padding;
};

struct State {
  Params params;
  QuantizedOutput output;
};

Refusal supports(const OpDesc& desc) {
  const Inputs in = inputs_of(desc);
  const Weight* b = desc.constant(in.b);
  if (b == nullptr || b->desc.shape.rank() != 2) return "only one constant right-hand matrix";
  if (desc.inputs[0].shape.rank() < 1) return "a scalar";
  for (const int i : {in.b_scale, in.b_zero, in.y_scale, in.y_zero}) {
    if (i >= 0 && !is_constant(desc, i)) return "scales and zero points must be constant";
  }
  for (const int i : {in.a_scale, in.b_scale, in.y_scale}) {
    if (const Refusal refusal = i < 0 ? nullptr : refuse_unless_float_scale(desc, i)) return refusal;
  }
  for (const int i : {in.a_scale, in.a_zero, in.y_scale, in.y_zero}) {
    if (i >= 0 && !is_one(desc, i)) return "only one scale and zero point of the left-hand matrix";
  }
  if (in.a_scale >= 0 && !scales_late(desc) && !is_constant(desc, in.a_scale)) return "scales and zero points must be constant";
  if (is_gemm(desc) && given(desc, in.bias)) {
    const Weight* c = desc.constant(in.bias);
    if (c == nullptr || (c->desc.shape.rank() == 2 && c->desc.shape[0] != 1)) return "C must be constant, of one row";
  }
  return nullptr;
}

// ---- packed weights: [panel of 32 columns][quads][32] words of 4 rows; behind them a term for each column ----

struct Matrix {
  std::int64_t k, n, row, column;
  std::int64_t quads() const { return ceil_div(k, 4); }
  std::int64_t columns() const { return checked_mul(ceil_div(n, kPanel), kPanel); }
  std::int64_t words() const { return checked_mul(columns(), quads()); }
};

Matrix matrix_of(const OpDesc& desc) {
  const Shape& b = desc.inputs[static_cast<std::size_t>(inputs_of(desc).b)].shape;
  if (is_gemm(desc) && attr_int(*desc.node, kTransB) != 0) return {b[1], b[0], 1, b[1]};
  return {b[0], b[1], b[1], 1};
}

std::size_t prepack_bytes(const OpDesc& desc, int input) {
  if (input != inputs_of(desc).b) return 0;
  const Matrix m = matrix_of(desc);
  const std::int64_t words = checked_add(m.words(), checked_mul<std::int64_t>(m.columns(), 4));
  return static_cast<std::size_t>(checked_mul<std::int64_t>(words, sizeof(float)));
}

std::uint64_t prepack_variant(const OpDesc& desc, int) {
  const Inputs in = inputs_of(desc);
  std::uint64_t hash = matrix_of(desc).column == 1 ? 1 : 2;
  if (is_gemm(desc)) {
    const float alpha = attr_float(*desc.node, kAlpha);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &alpha, sizeof bits);
    hash = (hash ^ bits) * 0x9e3779b97f4a7c15ull;
    hash = mix_constant(desc, in.bias, hash);
  }
  for (const int i : {in.b_scale, in.b_zero, in.y_scale}) {
    if (i >= 0) hash = mix_constant(desc, i, hash);
  }
  return scales_late(desc) || in.a_scale < 0 ? hash : mix_constant(desc, in.a_scale, hash);
}

float scale_of(const OpDesc& desc, const Inputs& in, std::int64_t column) {
  if (in.b_scale < 0) return 0;
  const auto b_scale = static_cast<double>(float_of(desc, in.b_scale, column));
  if (scales_late(desc)) return static_cast<float>(b_scale);  // the product of two floats is rounded once, in float64 as in float32
  double scale = static_cast<double>(float_of(desc, in.a_scale));
  if (is_gemm(desc)) scale *= static_cast<double>(attr_float(*desc.node, kAlpha));
  scale *= b_scale;
  return static_cast<float>(to_bytes(desc) ? scale / static_cast<double>(float_of(desc, in.y_scale)) : scale);
}

void prepack(const OpDesc& desc, int input, void* packed) {
  const Inputs in = inputs_of(desc);
  const Matrix m = matrix_of(desc);
  const Weight& b = *desc.constant(input);
  const bool is_signed = b.desc.dtype == DType::kInt8;
  const auto at = [&](std::int64_t k, std::int64_t n) {
    const std::int64_t i = k * m.row + n * m.column;
    return is_signed ? std::int32_t{b.as<std::int8_t>()[i]} : std::int32_t{b.as<std::uint8_t>()[i]};
  };
  auto* to = static_cast<std::uint32_t*>(packed);
  auto* terms = reinterpret_cast<QuantizedTerm*>(to + m.words());
  for (std::int64_t n = 0; n < m.columns(); ++n) {
    std::uint32_t* column = to + n / kPanel * m.quads() * kPanel + n % kPanel;
    const std::int32_t zero = n < m.n ? byte_of(desc, in.b_zero, n) : 0;
    QuantizedTerm t{};
    for (std::int64_t q = 0; q < m.quads(); ++q, column += kPanel) {
      std::uint32_t word = 0;
      for (std::int64_t j = 0; j < 4 && n < m.n; ++j) {
        const std::int32_t v = q * 4 + j < m.k ? at(q * 4 + j, n) : zero;
        t.sum += v - zero;
        word |= static_cast<std::uint32_t>((is_signed ? v : v - 128) & 0xff) << (8 * j);
      }
      *column = word;
    }
    if (n < m.n) {
      t.zero = is_signed ? zero : zero - 128;
      t.scale = scale_of(desc, in, n);
      if (is_gemm(desc) && given(desc, in.bias)) {
        const Weight& c = *desc.constant(in.bias);
        t.bias = c.as<std::int32_t>()[c.desc.shape.elements() == 1 ? 0 : n];
      }
    }
    terms[n] = t;
  }
}

// ---- runs ----

// Scratch: what a float32 A is quantized to, then its packed rows.
struct Parts {
  std::size_t range, numbers, bytes, rows, end;
};

std::int64_t block_of(std::int64_t m) { return m <= kFewRows ? 1 : kBlockRows; }

Parts parts_of(const Params& p, bool dynamic) {
  constexpr std::size_t kAlign = 128;
  const std::int64_t rows = checked_mul(ceil_div(p.m, std::int64_t{p.block}), std::int64_t{p.block});
  Parts s{};
  if (dynamic) {
    s.numbers = align_up(kRangeBytes, kAlign);  // the scale, and 64 bytes on the zero point
    s.bytes = s.numbers + 2 * kAlign;
    s.rows = align_up(s.bytes + static_cast<std::size_t>(checked_mul(p.m, p.k)), kAlign);
  }
  // Loads of four words may go beyond the last.
  const std::int64_t words = checked_mul(rows, checked_add<std::int64_t>(p.quads, 1));
  s.end = checked_add(s.rows, static_cast<std::size_t>(checked_mul<std::int64_t>(words, 4)) + 16);
  return s;
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  const Inputs in = inputs_of(desc);
  const Matrix matrix = matrix_of(desc);
  const Shape& a = desc.inputs[0].shape;
  State& s = plan->state<State>();
  Params& p = s.params;
  const bool transposed = is_gemm(desc) && attr_int(*desc.node, kTransA) != 0;
  p.m = transposed ? a[1] : a.elements(0, a.rank() - 1);
  p.n = matrix.n;
  p.k = matrix.k;
  p.a_row = transposed ? 1 : p.k;
  p.a_step = transposed ? p.m : 1;
  p.block = to_int(block_of(p.m));
  p.quads = to_int(matrix.quads());
  to_int(checked_mul<std::int64_t>(p.quads, kPanel));
  p.flip = desc.inputs[0].dtype == DType::kInt8 ? 1 : 0;
  QuantizedOutput& o = s.output;
  o.flip = p.flip != 0 ? 128 : 0;
  o.zero_kind = in.dynamic ? 1 : in.a_zero >= 0 ? byte_kind(desc, in.a_zero) : 0;
  if (to_bytes(desc)) {
    o.kind = QuantizedResult::kByte;
    set_byte_range(desc.outputs[0].dtype, byte_of(desc, in.y_zero), &o.low, &o.high, &o.zero);
  } else {
    o.kind = in.b_scale >= 0 ? QuantizedResult::kFloat : QuantizedResult::kInt;
    o.scaled = scales_late(desc) && in.b_scale >= 0 ? 1 : 0;
    o.bias = !is_gemm(desc) && given(desc, in.bias) ? 1 : 0;
  }
  plan->scratch_bytes = parts_of(p, in.dynamic).end;
  plan->flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.k) * static_cast<double>(p.n);
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  const Inputs in = inputs_of(*args.desc);
  const Params& p = s.params;
  Launcher& cl = launcher(args);
  const auto input = [&](int i) { return args.inputs[static_cast<std::size_t>(given(*args.desc, i) ? i : 0)]; };
  const Parts at = parts_of(p, in.dynamic);
  const auto part = [&](std::size_t offset) {
    Buffer b = args.scratch;
    b.offset += offset;
    return b;
  };
  Buffer a = args.inputs[0], scale = input(in.a_scale), zero = input(in.a_zero);
  if (in.dynamic) {
    a = part(at.bytes), scale = part(at.numbers), zero = part(at.numbers + 128);
    run_dynamic_quantize(cl, args.inputs[0], p.m * p.k, part(at.range), a, scale, zero);
  }
  const Buffer rows = part(at.rows);
  const std::int64_t blocks = ceil_div(p.m, std::int64_t{p.block}), tiles = ceil_div(p.n, cl.tile_columns());
  cl.run(kPackRows, {blocks}, a, rows, p);
  const std::int32_t first_is_column = cl.is_cpu() ? 0 : 1;
  const Grid grid = first_is_column != 0 ? Grid{tiles, blocks} : Grid{blocks, tiles};
  cl.run(p.block == 1 ? kMultiply1 : kMultiply8, grid, rows, args.packed[static_cast<std::size_t>(in.b)], zero, scale,
         input(in.bias), args.outputs[0], p, s.output, first_is_column);
  const OpDesc& desc = *args.desc;
  if (!desc.node->epilogue.empty()) run_epilogue(cl, args.outputs[0], desc.outputs[0].shape.elements(), desc.node->epilogue);
}

constexpr const char* kMicrosoft = "com.microsoft";
constexpr Kernel row(const char* name, const char* op, const char* domain) {
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

constexpr Kernel kKernels[] = {
    row("qlinear_matmul", "QLinearMatMul", ""),
    row("matmul_integer", "MatMulInteger", ""),
    row("qgemm", "QGemm", kMicrosoft),
    row("matmul_integer_to_float", "MatMulIntegerToFloat", kMicrosoft),
    row("dynamic_quantize_matmul", "DynamicQuantizeMatMul", kMicrosoft),
};

}  // namespace

extern const KernelFamily quantized_matmul_opencl_kernels;
const KernelFamily quantized_matmul_opencl_kernels = {kKernels};

}  // namespace evn
