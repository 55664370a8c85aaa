// MatMulNBits by constant weights of 4 or 8 bits, which stay that small on the device.
#include "backends/opencl/kernels/support.h"
#include "ops/block_quantized.h"

namespace evn {
namespace {

using namespace matmul_nbits;

constexpr OpenClFunction kMultiply8{"nbits", "multiply_nbits_8"};
constexpr OpenClFunction kMultiply1{"nbits", "multiply_nbits_1"};

constexpr OpenClFunction kRoundBlocks{"nbits", "round_blocks"};

constexpr std::int64_t kPanel = 32;   // columns
constexpr std::int64_t kFewRows = 4;  // up to these the tiles are of one row

// The struct that nbits.cl takes, laid out as there.
struct Params {
  std::int64_t m, n, k;
  std::int32_t words, blocks, block, bits;
  std::int32_t has_zeros, has_bias, rows_first, padding;
};

Refusal supports(const OpDesc& desc) {
  for (const int i : {kA, kScales, kBias}) {
    if (desc.has_input(i) && !is_float(desc.inputs[static_cast<std::size_t>(i)])) return "only float32";
  }
  const std::int64_t bits = attr_int(*desc.node, kBits);
  if (bits != 4 && bits != 8) return "neither 4 nor 8 bits";
  for (const int i : {kB, kScales, kZeros}) {
    if (desc.has_input(i) && desc.constant(i) == nullptr) return "weights, scales and zero points must be constant";
  }
  return desc.has_input(kGroups) ? "blocks that g_idx names" : nullptr;
}

std::int64_t panels_of(const BlockShape& b) { return ceil_div(b.n, kPanel); }

std::size_t prepack_bytes(const OpDesc& desc, int input) {
  if (input != kB && input != kScales && input != kZeros) return 0;
  const BlockShape b = block_shape(*desc.node);
  const std::int64_t rows = input == kB ? b.column_bytes() / 4 : b.blocks;
  return static_cast<std::size_t>(checked_mul<std::int64_t>(checked_mul(checked_mul(panels_of(b), kPanel), rows), sizeof(float)));
}

std::uint64_t prepack_variant(const OpDesc& desc, int) {
  const BlockShape b = block_shape(*desc.node);
  return static_cast<std::uint64_t>(b.blocks) << 8 | static_cast<std::uint64_t>(b.bits);
}

// Words of 32 bits, row i of column n: `word(n, i)`.
template <typename F>
void pack(const BlockShape& b, std::int64_t rows, void* packed, F&& word) {
  auto* to = static_cast<char*>(packed);
  for (std::int64_t panel = 0; panel < panels_of(b); ++panel) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t n = panel * kPanel; n < (panel + 1) * kPanel; ++n, to += sizeof(float)) {
        const auto value = n < b.n ? word(n, i) : decltype(word(n, i)){};
        std::memcpy(to, &value, sizeof(float));
      }
    }
  }
}

void prepack(const OpDesc& desc, int input, void* packed) {
  const BlockShape b = block_shape(*desc.node);
  const Weight& weight = *desc.constant(input);
  if (input == kB) {
    return pack(b, b.column_bytes() / 4, packed, [&](std::int64_t n, std::int64_t i) {
      std::uint32_t word = 0;
      std::memcpy(&word, weight.as<char>() + n * b.column_bytes() + i * 4, sizeof word);
      return word;
    });
  }
  pack(b, b.blocks, packed, [&](std::int64_t n, std::int64_t i) {
    if (weight.desc.dtype == DType::kFloat32) return weight.as<float>()[n * b.blocks + i];
    const std::int32_t bits = static_cast<std::int32_t>(b.bits) * static_cast<std::int32_t>(i % (8 / b.bits));
    const std::uint8_t byte = weight.as<std::uint8_t>()[n * b.zero_bytes + i / (8 / b.bits)];
    return static_cast<float>(byte >> bits & ((1 << b.bits) - 1));
  });
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  const BlockShape b = block_shape(*desc.node);
  Params& p = plan->state<Params>();
  p.m = desc.inputs[kA].shape.elements(0, desc.inputs[kA].shape.rank() - 1);
  p.n = b.n;
  p.k = b.k;
  p.words = to_int(b.column_bytes() / 4);
  p.blocks = to_int(b.blocks);
  p.block = to_int(b.block);
  p.bits = to_int(b.bits);
  p.has_zeros = desc.has_input(kZeros) ? 1 : 0;
  p.has_bias = desc.has_input(kBias) ? 1 : 0;
  plan->flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  count_bytes(desc, plan);
  if (quantizes_rows(*desc.node, desc.has_input(kGroups))) plan->scratch_bytes = desc.inputs[kA].size_bytes();
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Params p = args.plan->state<Params>();
  Launcher& cl = launcher(args);
  p.rows_first = cl.is_cpu() ? 1 : 0;
  const bool few = p.m <= kFewRows;
  const std::int64_t rows = few ? p.m : ceil_div(p.m, std::int64_t{kBlockRows}), columns = ceil_div(p.n, std::int64_t{cl.lanes()});
  const Grid grid = p.rows_first != 0 ? Grid{rows, columns} : Grid{columns, rows};
  const bool rounds = args.plan->scratch_bytes > 0;
  if (rounds) cl.run(kRoundBlocks, {p.m, std::int64_t{p.blocks}}, args.inputs[kA], args.scratch, p);
  cl.run(few ? kMultiply1 : kMultiply8, grid, rounds ? args.scratch : args.inputs[kA], args.packed[kB], args.packed[kScales],
         args.packed[p.has_zeros != 0 ? kZeros : kScales], args.inputs[p.has_bias != 0 ? kBias : kA], args.outputs[0], p,
         args.desc->node->epilogue);
}

constexpr Kernel kKernels[] = {
    {.name = "matmul_nbits",
     .op = "MatMulNBits",
     .domain = "com.microsoft",
     .rank = 10,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack,
     .plan = plan,
     .run = run},
};

}  // namespace

extern const KernelFamily nbits_opencl_kernels;
const KernelFamily nbits_opencl_kernels = {kKernels};

}  // namespace evn
