// MatMulNBits by constant weights of 4 or 8 bits, which stay that small in memory; those of 2 bits become 4. A few rows are
// multiplied as the weights are read; for more, panels of the weights become float32, some rows of k at a time. A tile is a range
// of rows and columns. Neither the tile nor the number of rows changes a bit of a row: requests of one row are joined to batches.
#include <algorithm>

#include "backends/cpu/gemm/packed_gemm_plan.h"
#include "backends/cpu/nbits/nbits_loops.h"
#include "backends/cpu/nbits/nbits_pack.h"
#include "backends/cpu/support.h"
#include "ops/block_quantized.h"

namespace evn {
namespace {

using namespace matmul_nbits;

constexpr std::int64_t kMostRows = 630;  // of a tile
constexpr double kLeastTile = 400'000;   // multiply-adds of a tile that is worth dealing out
constexpr std::int64_t kTilesPerThread = 8;
constexpr double kStreamTile = 300'000;         // multiply-adds of a tile of few rows, some 10 us
constexpr std::int64_t kMostInChain = 1 << 12;  // products of a block, which are one chain of sums: longer ones round more

struct NBitsState {
  Isa isa;
  BlockShape b;
  std::int64_t m;
  bool is_many;
  PackedGemmTiling tiling;
};

Refusal supports(const OpDesc& d) {
  if (quantizes_rows(*d.node, given(d, kGroups))) return "accuracy_level 4, whose rows are quantized";
  const BlockShape b = block_shape(*d.node);
  if (std::min(b.block, b.k) > kMostInChain) return "its sums are long";
  return refusal_of_weights(d);
}

// ------------------------------------------------------------------------------------------------------- packing --

std::int64_t panels_of(const BlockShape& b, const simd_nbits::Loops& loops) { return ceil_div(b.n, std::int64_t{loops.width}); }

// Weights that lie nowhere.
simd_nbits::Weights shape_of(const BlockShape& b) {
  return {.bits = static_cast<int>(b.bits),
          .k = b.k,
          .block = b.block,
          .elements = nullptr,
          .scales = nullptr,
          .zeros = nullptr,
          .float_zeros = nullptr};
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  const BlockShape b = packed_shape(d);
  const simd_nbits::Loops& loops = simd_nbits::loops(cpu_isa());
  const std::int64_t columns = checked_mul(panels_of(b, loops), std::int64_t{loops.width});
  const simd_nbits::Weights w = shape_of(b);
  const std::int64_t blocks = checked_mul(columns, b.blocks);
  const auto bytes = [](std::int64_t count, std::size_t size) { return checked_mul(static_cast<std::size_t>(count), size); };
  switch (input) {
    case kB: return bytes(checked_mul(columns, w.groups()), b.bits == 4 ? 4 : 1);
    case kScales: return bytes(blocks, sizeof(float));
    case kZeros: return bytes(blocks, has_float_zeros(d) ? sizeof(float) : 1);
    default: return 0;
  }
}

std::uint64_t prepack_variant(const OpDesc& d, int) {
  const BlockShape b = packed_shape(d);
  return static_cast<std::uint64_t>(b.k) << 16 | static_cast<std::uint64_t>(b.bits) << 8 | static_cast<std::uint64_t>(cpu_isa());
}

void pack_elements(const BlockShape& b, const simd_nbits::Loops& loops, const std::uint8_t* rows, std::int64_t begin,
                   std::int64_t end, void* packed) {
  const std::int64_t column_bytes = b.column_bytes();
  if (b.bits == 8) {
    auto* const to = static_cast<std::uint8_t*>(packed);
    for_each_column(loops.width, begin, end, b.k, [&](std::int64_t j, std::int64_t at) {
      const std::uint8_t* const from = rows + j * column_bytes;
      for (std::int64_t k = 0; k < b.k; ++k) to[at + k * loops.width] = from[k] ^ 0x80u;
    });
    return;
  }
  auto* const to = static_cast<std::uint32_t*>(packed);
  const std::int64_t groups = ceil_div(b.k, std::int64_t{8});
  for_each_column(loops.width, begin, end, groups, [&](std::int64_t j, std::int64_t at) {
    const std::uint8_t* from = rows + j * column_bytes;
    for (std::int64_t g = 0; g < groups; ++g, from += 4) {
      std::uint32_t word = from[0] | static_cast<std::uint32_t>(from[1]) << 8 | static_cast<std::uint32_t>(from[2]) << 16 |
                           static_cast<std::uint32_t>(from[3]) << 24;
      if (loops.high_first) {
        word = __builtin_bswap32(word);
        word = (word & 0x0f0f0f0fu) << 4 | (word >> 4 & 0x0f0f0f0fu);
      }
      to[at + g * loops.width] = word ^ 0x88888888u;
    }
  });
}

void pack_zeros(const BlockShape& b, const simd_nbits::Loops& loops, const std::uint8_t* from, std::int64_t begin, std::int64_t end,
                void* packed) {
  pack_numbers(b, loops.width, begin, end, static_cast<std::int8_t*>(packed), [&](std::int64_t j, std::int64_t i) {
    const std::uint8_t* const column = from + j * b.zero_bytes;
    const int zero = b.bits == 4 ? (column[i / 2] >> (i % 2 * 4) & 15) - 8 : column[i] - 128;
    return static_cast<std::int8_t>(zero);
  });
}

void pack_part(const OpDesc& d, int input, const void* rows, std::int64_t begin, std::int64_t end, void* packed) {
  const BlockShape b = packed_shape(d), given = block_shape(*d.node);
  const simd_nbits::Loops& loops = simd_nbits::loops(cpu_isa());
  if (input == kB) {
    return with_4_bits(d, given.column_bytes(), rows, begin, end,
                       [&](const std::uint8_t* from, std::int64_t first, std::int64_t last) {
                         pack_elements(b, loops, from, first, last, packed);
                       });
  }
  const bool are_bytes = input == kZeros && !has_float_zeros(d);
  if (are_bytes) {
    return with_4_bits(d, given.zero_bytes, rows, begin, end, [&](const std::uint8_t* from, std::int64_t first, std::int64_t last) {
      pack_zeros(b, loops, from, first, last, packed);
    });
  }
  const auto* const from = static_cast<const float*>(rows);
  const auto middle = static_cast<float>(input == kZeros ? (1 << (given.bits - 1)) : 0);
  pack_numbers(b, loops.width, begin, end, static_cast<float*>(packed),
               [&](std::int64_t j, std::int64_t i) { return from[j * b.blocks + i] - middle; });
}

std::int64_t width_of() { return simd_nbits::loops(cpu_isa()).width; }

// ---------------------------------------------------------------------------------------------------------- plan --

// Few tiles of rows: each makes float32 of its columns of the weights.
PackedGemmTiling tile_many(const NBitsState& s, std::int64_t panels, int width, std::uint32_t threads) {
  const double all = static_cast<double>(s.m) * static_cast<double>(s.b.n) * static_cast<double>(s.b.k);
  const auto wanted = std::max<std::int64_t>(1, std::min(kTilesPerThread * threads, static_cast<std::int64_t>(all / kLeastTile)));
  PackedGemmTiling t;
  t.row_tiles = ceil_div(s.m, kMostRows);
  while (threads > 1 && t.row_tiles * panels < 2 * threads && s.m / t.row_tiles >= kMostRows / 4) ++t.row_tiles;
  t.rows = ceil_div(s.m, t.row_tiles);
  t.row_tiles = ceil_div(s.m, t.rows);
  t.columns = std::max<std::int64_t>(1, panels * t.row_tiles / wanted) * width;
  return t;
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<NBitsState>();
  s = NBitsState{};
  s.isa = cpu_isa();
  s.b = packed_shape(d);
  const Shape& a = d.inputs[kA].shape;
  s.m = a.elements(0, a.rank() - 1);
  const simd_nbits::Loops& loops = simd_nbits::loops(s.isa);
  s.is_many = s.m > loops.rows;
  const std::int64_t panels = panels_of(s.b, loops);
  if (s.is_many) {
    s.tiling = tile_many(s, panels, loops.width, d.threads);
  } else {
    s.tiling = {s.m, 0, 1, 0};
    const double cost = static_cast<double>(s.b.k) * loops.width;
    s.tiling.columns = units_per_tile(panels, cost, kStreamTile) * loops.width;
  }
  const std::int64_t unpacked = s.is_many ? loops.unpacked_floats(shape_of(s.b)) : 0;
  const std::int64_t sums = given(d, kZeros) ? checked_mul(s.is_many ? s.tiling.rows : s.m, s.b.blocks) : 0;
  p->thread_scratch_bytes = checked_mul(static_cast<std::size_t>(checked_add(unpacked, sums)), sizeof(float));
  s.tiling.column_tiles = ceil_div(s.b.n, s.tiling.columns);
  p->tiles = s.m == 0 ? 0 : s.tiling.tiles();
  p->flops = 2.0 * static_cast<double>(s.b.k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

// ----------------------------------------------------------------------------------------------------------- run --

simd_nbits::Weights weights_of(const KernelArgs& args, const BlockShape& b) {
  simd_nbits::Weights w = {.bits = static_cast<int>(b.bits),
                           .k = b.k,
                           .block = b.block,
                           .elements = args.pack<void>(kB),
                           .scales = args.pack<float>(kScales),
                           .zeros = nullptr,
                           .float_zeros = nullptr};
  if (has_float_zeros(*args.desc)) {
    w.float_zeros = args.pack<float>(kZeros);
  } else if (given(*args.desc, kZeros)) {
    w.zeros = args.pack<std::int8_t>(kZeros);
  }
  return w;
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<NBitsState>();
  const OpDesc& d = *args.desc;
  const simd_nbits::Loops& loops = simd_nbits::loops(s.isa);
  const float* const bias = given(d, kBias) ? args.in<float>(kBias) : nullptr;
  const float* const residual = args.residual<float>();
  CancelPoints points = points_of(cancel);
  simd_nbits::Tile t{};
  t.w = weights_of(args, s.b);
  t.lda = s.b.k;
  t.ldc = t.ldr = s.b.n;
  t.epilogue = epilogue_of(d);
  t.unpacked = static_cast<float*>(args.thread_scratch);
  t.sums = t.unpacked + (s.is_many ? loops.unpacked_floats(t.w) : 0);
  t.points = &points;
  for_each_packed_gemm_tile(s.tiling, s.m, s.b.n, begin, end,
                            [&](std::int64_t, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
                              t.panel = column / loops.width;
                              t.m = rows;
                              t.n = columns;
                              t.a = args.in<float>(kA) + row * s.b.k;
                              t.c = args.out<float>() + row * s.b.n + column;
                              t.bias = bias == nullptr ? nullptr : bias + column;
                              t.residual = residual == nullptr ? nullptr : residual + row * s.b.n + column;
                              (s.is_many ? loops.run_many : loops.run)(t);
                              return !cancel.stop();
                            });
}

constexpr Kernel kKernels[] = {
    {.name = "matmul_nbits",
     .op = "MatMulNBits",
     .domain = "com.microsoft",
     .rank = 10,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack_panels<prepack_bytes, pack_part>,
     .plan = plan,
     .run = run,
     .prepack_parts = {.step = panels_step<width_of>, .run = prepack_some_panels<width_of, prepack_bytes, pack_part>},
     .fusion = {.epilogue = kFusesResidual}},
};

}  // namespace

extern const KernelFamily nbits_gemm_kernels;
const KernelFamily nbits_gemm_kernels = {kKernels};

}  // namespace evn
