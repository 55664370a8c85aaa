// MatMul and Gemm, float32. The right-hand matrix is packed into panels: once where it is constant, else in each run, to scratch.
#include "ops/matmul.h"
#include "backends/opencl/kernels/half.h"
#include "backends/opencl/kernels/product.h"
#include "backends/opencl/kernels/support.h"
#include "backends/opencl/kernels/tiled.h"
#include "ops/gemm.h"

namespace evn {
namespace {

constexpr OpenClFunction kPack{"matmul", "pack_panels"};
constexpr OpenClFunction kMultiply8{"matmul", "multiply_8"};
constexpr OpenClFunction kMultiply1{"matmul", "multiply_1"};
constexpr OpenClFunction kHalfMultiply8{"matmul_half", "multiply_8"};
constexpr OpenClFunction kHalfMultiply1{"matmul_half", "multiply_1"};

constexpr TiledFunctions kTiled = EVN_TILES("tiled", "product", kCostOfMatrices);
constexpr TiledFunctions kHalfTiled = EVN_TILES("tiled_half", "product", kCostOfMatrices);
constexpr OpenClFunction kFew{"tiled", "product_few", 256};
constexpr OpenClFunction kHalfFew{"tiled_half", "product_few", 256};

enum : int { kA, kB, kC };
constexpr std::int64_t kPanel = 32;      // columns
constexpr std::int64_t kPackDepth = 16;  // rows of a panel that one work item packs
constexpr std::int64_t kFewRows = 4;     // up to these the tiles are of one row: a tile of 8 would be mostly empty

struct State {
  Product product;
  std::int64_t products;         // of the batch
  std::int64_t matrices;         // right-hand ones
  std::int64_t b_row, b_column;  // their strides
};

// ---- the right-hand matrices ----

struct Right {
  std::int64_t k, n, matrices, row, column;
  std::int64_t panel_floats() const { return checked_mul(checked_mul(ceil_div(n, kPanel), kPanel), k); }
};

Right right_of(const OpDesc& desc) {
  const Shape& b = desc.inputs[kB].shape;
  if (desc.node->op_type == "Gemm" && attr_int(*desc.node, GemmAttr::kTransB) != 0) return {b[1], b[0], 1, 1, b[1]};
  if (b.rank() == 1) return {b[0], 1, 1, 1, 1};
  return {b[b.rank() - 2], b[b.rank() - 1], b.elements(0, b.rank() - 2), b[b.rank() - 1], 1};
}

std::size_t packed_bytes(const Right& r) {
  return static_cast<std::size_t>(checked_mul<std::int64_t>(checked_mul(r.panel_floats(), r.matrices), sizeof(float)));
}

// A vector is not worth it; and whether it is constant may look otherwise once a run is planned.
bool packs_once(const OpDesc& desc) { return desc.constant(kB) != nullptr && desc.inputs[kB].shape.rank() >= 2; }

std::size_t prepack_bytes(const OpDesc& desc, int input) {
  return input == kB && packs_once(desc) ? packed_bytes(right_of(desc)) : 0;
}

std::size_t half_prepack_bytes(const OpDesc& desc, int input) { return prepack_bytes(desc, input) / 2; }

std::uint64_t prepack_variant(const OpDesc& desc, int) { return right_of(desc).column == 1 ? 0 : 1; }

template <typename T>
void prepack(const OpDesc& desc, int, void* packed) {
  const Right r = right_of(desc);
  const float* from = desc.constant(kB)->as<float>();
  auto* to = static_cast<T*>(packed);
  for (std::int64_t matrix = 0; matrix < r.matrices; ++matrix, from += r.k * r.n) {
    for (std::int64_t first = 0; first < r.n; first += kPanel) {
      for (std::int64_t k = 0; k < r.k; ++k) {
        for (std::int64_t n = first; n < first + kPanel; ++n) *to++ = n < r.n ? rounded_to<T>(from[k * r.row + n * r.column]) : T{};
      }
    }
  }
}

// ---- plans ----

State& plan_common(const OpDesc& desc, KernelPlan* plan) {
  const Right r = right_of(desc);
  State& s = plan->state<State>();
  s.product = Product{};
  s.product.n = r.n;
  s.product.k = r.k;
  s.product.panels = r.panel_floats();
  s.product.alpha = 1.0f;
  s.products = 1;
  s.matrices = r.matrices;
  s.b_row = r.row;
  s.b_column = r.column;
  if (!packs_once(desc)) plan->scratch_bytes = packed_bytes(r);
  plan->flops = 2.0 * static_cast<double>(r.k) * static_cast<double>(desc.outputs[0].shape.elements());
  count_bytes(desc, plan);
  return s;
}

Refusal supports_matmul(const OpDesc& desc) {
  if (const Refusal refusal = refuse_unless_float(desc)) return refusal;
  return desc.inputs[kA].shape.rank() < 1 || desc.inputs[kB].shape.rank() < 1 ? "a scalar" : nullptr;
}

void plan_matmul(const OpDesc& desc, KernelPlan* plan) {
  const Shape& a = desc.inputs[kA].shape;
  const Shape& b = desc.inputs[kB].shape;
  State& s = plan_common(desc, plan);
  Product& p = s.product;
  p.a_row = p.k;
  p.a_step = 1;
  p.m = a.rank() >= 2 ? a[a.rank() - 2] : 1;
  if (b.rank() <= 2) {  // one matrix for all: the batch axes are rows
    p.m = a.elements(0, a.rank() - 1);
    return;
  }
  const int longest = a.rank() > b.rank() ? a.rank() : b.rank();
  p.rank = longest - 2;
  matmul_batch_strides(a, p.rank, p.m * p.k, p.a_stride);
  matmul_batch_strides(b, p.rank, 1, p.b_stride);
  for (int i = 0; i < p.rank; ++i) {
    p.batch[i] = desc.outputs[0].shape[i];
    s.products = checked_mul(s.products, p.batch[i]);
  }
}

Refusal supports_gemm(const OpDesc& desc) { return refuse_unless_float(desc); }

void plan_gemm(const OpDesc& desc, KernelPlan* plan) {
  const Shape& a = desc.inputs[kA].shape;
  const bool transposed = attr_int(*desc.node, GemmAttr::kTransA) != 0;
  Product& p = plan_common(desc, plan).product;
  p.m = a[transposed ? 1 : 0];
  p.a_row = transposed ? 1 : p.k;
  p.a_step = transposed ? p.m : 1;
  p.alpha = attr_float(*desc.node, GemmAttr::kAlpha);
  set_addend(desc, kC, attr_float(*desc.node, GemmAttr::kBeta), &p);
}

// Halves are for weights: what is computed would be read and written once more.
template <Refusal (*kSupports)(const OpDesc&)>
Refusal supports_half(const OpDesc& desc) {
  if (desc.precision != Precision::kFloat16) return "only where fp16 is allowed";
  if (!packs_once(desc)) return "only a constant right-hand matrix";
  return kSupports(desc);
}

// ---- runs ----

template <bool kOfHalves>
void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  Launcher& cl = launcher(args);
  Product p = s.product;
  const bool packed = args.packed.size() > kB && args.packed[kB].memory != nullptr;
  const Buffer& b = packed ? args.packed[kB] : args.scratch;
  if (b.memory == nullptr) fail(EVN_ERROR_UNSUPPORTED, "a right-hand matrix that became constant after the model was loaded");
  if (!packed) {
    const Grid grid{ceil_div(p.n, kPanel), ceil_div(p.k, kPackDepth), s.matrices};
    cl.run(kPack, grid, args.inputs[kB], b, p.n, p.k, s.b_row, s.b_column);
  }
  const bool single = p.m <= kFewRows;
  const Buffer& addend = p.has_c != 0 ? args.inputs[kC] : args.inputs[kA];
  const Epilogue& epilogue = args.desc->node->epilogue;
  if (!cl.is_cpu()) {
    if (single) {
      const OpenClFunction& few = kOfHalves ? kHalfFew : kFew;
      const std::int64_t items = checked_mul(ceil_div(p.n, kPanel), static_cast<std::int64_t>(few.group));
      cl.run(few, {items, p.m, s.products}, args.inputs[kA], b, addend, args.outputs[0], p, epilogue, chain_of(p.k));
    } else {
      run_tiled(cl, kOfHalves ? kHalfTiled : kTiled, p.m, p.n, p.k, s.products, args.inputs[kA], b, addend, args.outputs[0], p,
                epilogue);
    }
    return;
  }
  const std::int64_t row_tiles = single ? p.m : ceil_div(p.m, 8);
  const std::int64_t column_tiles = ceil_div(p.n, cl.tile_columns());
  p.rows_first = 1;  // a core keeps a panel in its cache
  const OpenClFunction& of_one = kOfHalves ? kHalfMultiply1 : kMultiply1;
  const OpenClFunction& of_many = kOfHalves ? kHalfMultiply8 : kMultiply8;
  cl.run(single ? of_one : of_many, {row_tiles, column_tiles, s.products}, args.inputs[kA], b, addend, args.outputs[0], p,
         epilogue);
}

constexpr Kernel half_row(const char* name, const char* op, Refusal (*supports)(const OpDesc&),
                          void (*plan)(const OpDesc&, KernelPlan*)) {
  Kernel k{name, op, "", 20, supports, half_prepack_bytes, prepack_variant, prepack<Float16>, plan, run<true>};
  k.operands = Precision::kFloat16;
  return k;
}

constexpr Kernel kKernels[] = {
    {.name = "matmul",
     .op = "MatMul",
     .rank = 10,
     .supports = supports_matmul,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack<float>,
     .plan = plan_matmul,
     .run = run<false>},
    {.name = "gemm",
     .op = "Gemm",
     .rank = 10,
     .supports = supports_gemm,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack<float>,
     .plan = plan_gemm,
     .run = run<false>},
    half_row("matmul_half", "MatMul", supports_half<supports_matmul>, plan_matmul),
    half_row("gemm_half", "Gemm", supports_half<supports_gemm>, plan_gemm),
};

}  // namespace

extern const KernelFamily matmul_opencl_kernels;
const KernelFamily matmul_opencl_kernels = {kKernels};

}  // namespace evn
