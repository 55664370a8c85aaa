// MatMulNBits with an accuracy_level of 4: rows of A become int8 with a scale for each block, and are multiplied by constant
// weights of 4 or 8 bits as they are read. A tile is a range of columns for some rows; the thread that takes it quantizes the rows,
// if it has not done so for the tile before.
#include <algorithm>

#include "backends/cpu/nbits/nbits_dot_loops.h"
#include "backends/cpu/nbits/nbits_pack.h"

namespace evn {
namespace {

using namespace matmul_nbits;

constexpr std::int64_t kMostRows = 60;      // of a tile
constexpr double kStreamTile = 600'000;     // multiply-adds of a tile of one row, some 10 us
constexpr double kProductTile = 6'000'000;  // and of many

struct DotState {
  Isa isa;
  BlockShape b;
  std::int64_t m, rows, row_tiles;
  std::int64_t columns, column_tiles;
};

// The instruction set whose loops run: they do not use AMX, and all CPUs that have it have vpdpbusd.
Isa dot_isa() {
  const Isa isa = integer_isa();
  return isa == Isa::k_avx512_amx ? Isa::k_avx512_vnni : isa;
}

std::int64_t width_of() { return simd_nbits_dot::loops(dot_isa()).width; }

Refusal supports(const OpDesc& d) {
  return quantizes_rows(*d.node, given(d, kGroups)) ? refusal_of_weights(d) : "only an accuracy_level of 4 without g_idx";
}

// ------------------------------------------------------------------------------------------------------- packing --

std::size_t prepack_bytes(const OpDesc& d, int input) {
  const BlockShape b = block_shape(*d.node);
  const std::int64_t width = width_of(), columns = checked_mul(ceil_div(b.n, width), width);
  const auto numbers = static_cast<std::size_t>(checked_mul(columns, b.blocks));
  switch (input) {
    case kB: return checked_mul(numbers, static_cast<std::size_t>(b.block * b.bits / 8));
    case kScales: return checked_mul(numbers, sizeof(float));
    case kZeros: return checked_mul(numbers, has_float_zeros(d) ? sizeof(float) : 1);
    default: return 0;
  }
}

std::uint64_t prepack_variant(const OpDesc& d, int) {
  const BlockShape b = block_shape(*d.node);
  return static_cast<std::uint64_t>(b.k) << 16 | static_cast<std::uint64_t>(b.bits) << 8 | static_cast<std::uint64_t>(width_of());
}

// Words of four bytes, as many for each column as `groups`: word(column, group, bytes).
template <typename F>
void pack_words(std::int64_t groups, std::int64_t begin, std::int64_t end, void* packed, F&& word) {
  for_each_column(width_of(), begin, end, groups, [&](std::int64_t j, std::int64_t at) {
    auto* to = static_cast<std::uint8_t*>(packed) + at * 4;
    for (std::int64_t g = 0; g < groups; ++g, to += width_of() * 4) word(j, g, to);
  });
}

void pack_elements(const BlockShape& b, const std::uint8_t* rows, std::int64_t begin, std::int64_t end, void* packed) {
  const std::int64_t column_bytes = b.column_bytes();
  pack_words(column_bytes / 4, begin, end, packed, [&](std::int64_t j, std::int64_t g, std::uint8_t* to) {
    const std::uint8_t* const from = rows + j * column_bytes + g * 4;
    if (b.bits == 8) {
      std::copy_n(from, 4, to);
      return;
    }
    const auto number = [&](int k) { return from[k / 2] >> (k % 2 * 4) & 15; };
    for (int i = 0; i < 4; ++i) to[i] = static_cast<std::uint8_t>(number(i) | number(i + 4) << 4);
  });
}

void pack_part(const OpDesc& d, int input, const void* rows, std::int64_t begin, std::int64_t end, void* packed) {
  const BlockShape b = block_shape(*d.node);
  if (input == kB) return pack_elements(b, static_cast<const std::uint8_t*>(rows), begin, end, packed);
  if (input == kScales || has_float_zeros(d)) {
    const auto* const from = static_cast<const float*>(rows);
    return pack_numbers(b, width_of(), begin, end, static_cast<float*>(packed),
                        [&](std::int64_t j, std::int64_t i) { return from[j * b.blocks + i]; });
  }
  const auto* const from = static_cast<const std::uint8_t*>(rows);
  pack_numbers(b, width_of(), begin, end, static_cast<std::uint8_t*>(packed), [&](std::int64_t j, std::int64_t i) {
    const std::uint8_t* const column = from + j * b.zero_bytes;
    return static_cast<std::uint8_t>(b.bits == 4 ? column[i / 2] >> (i % 2 * 4) & 15 : column[i]);
  });
}

// ----------------------------------------------------------------------------------------------------------- run --

std::int64_t numbers_of_row(const BlockShape& b) { return b.blocks * b.block; }

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<DotState>();
  s.isa = dot_isa();
  s.b = block_shape(*d.node);
  const Shape& a = d.inputs[kA].shape;
  s.m = a.elements(0, a.rank() - 1);
  s.row_tiles = std::max<std::int64_t>(1, ceil_div(s.m, kMostRows));
  s.rows = ceil_div(s.m, s.row_tiles);
  const std::int64_t width = width_of(), panels = ceil_div(s.b.n, width);
  const double cost =
      static_cast<double>(s.b.k) * static_cast<double>(width) * static_cast<double>(std::max<std::int64_t>(1, s.rows));
  s.columns = units_per_tile(panels, cost, s.rows > 1 ? kProductTile : kStreamTile) * width;
  s.column_tiles = ceil_div(s.b.n, s.columns);
  p->tiles = s.m == 0 ? 0 : checked_mul(s.row_tiles, s.column_tiles);
  const std::int64_t row =
      checked_add(numbers_of_row(s.b), checked_mul<std::int64_t>(s.b.blocks, sizeof(float) + sizeof(std::int32_t)));
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul(std::max<std::int64_t>(1, s.rows), row));
  p->flops = 2.0 * static_cast<double>(s.b.k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

simd_nbits_dot::Weights weights_of(const KernelArgs& args, const BlockShape& b) {
  simd_nbits_dot::Weights w = {.bits = static_cast<int>(b.bits),
                               .block = b.block,
                               .blocks = b.blocks,
                               .elements = args.pack<void>(kB),
                               .scales = args.pack<float>(kScales),
                               .zeros = nullptr,
                               .float_zeros = nullptr};
  if (has_float_zeros(*args.desc)) {
    w.float_zeros = args.pack<float>(kZeros);
  } else if (given(*args.desc, kZeros)) {
    w.zeros = args.pack<std::uint8_t>(kZeros);
  }
  return w;
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<DotState>();
  const OpDesc& d = *args.desc;
  const simd_nbits_dot::Loops& loops = simd_nbits_dot::loops(s.isa);
  auto* const scales = static_cast<float*>(args.thread_scratch);
  auto* const sums = reinterpret_cast<std::int32_t*>(scales + s.rows * s.b.blocks);
  auto* const numbers = reinterpret_cast<std::int8_t*>(sums + s.rows * s.b.blocks);
  const float* const bias = given(d, kBias) ? args.in<float>(kBias) : nullptr;
  const float* const residual = args.residual<float>();
  CancelPoints points = points_of(cancel);
  std::int64_t quantized = -1;  // the tile of rows that is
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t row_tile = index / s.column_tiles, row = row_tile * s.rows, column = index % s.column_tiles * s.columns;
    simd_nbits_dot::Tile t{};
    t.m = std::min(s.rows, s.m - row);
    if (t.m <= 0) continue;
    for (std::int64_t r = 0; r < t.m && row_tile != quantized; ++r) {
      if (stops(&points, s.b.k * 4)) return;
      loops.quantize(args.in<float>(kA) + (row + r) * s.b.k, s.b.k, s.b.block, numbers + r * numbers_of_row(s.b),
                     scales + r * s.b.blocks, sums + r * s.b.blocks);
    }
    quantized = row_tile;
    t.w = weights_of(args, s.b);
    t.panel = column / loops.width;
    t.n = std::min(s.columns, s.b.n - column);
    t.a = {numbers, scales, sums};
    t.c = args.out<float>() + row * s.b.n + column;
    t.ldc = t.ldr = s.b.n;
    t.bias = bias == nullptr ? nullptr : bias + column;
    t.residual = residual == nullptr ? nullptr : residual + row * s.b.n + column;
    t.epilogue = epilogue_of(d);
    t.points = &points;
    loops.run(t);
  }
}

constexpr Kernel kKernels[] = {
    {.name = "matmul_nbits_dot",
     .op = "MatMulNBits",
     .domain = "com.microsoft",
     .rank = 11,
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

extern const KernelFamily nbits_dot_kernels;
const KernelFamily nbits_dot_kernels = {kKernels};

}  // namespace evn
