// MatMulNBits with an accuracy_level of 4: rows of A become int8 with a scale for each block, and are multiplied by constant
// weights of 4 or 8 bits (those of 2 become 4) as they are read. A tile is a range of columns for some rows; the thread that takes
// it quantizes the rows, if it has not done so for the tile before. Scales that float16 holds exactly, as those of weights from
// checkpoints of 16 bits often are, are packed so: one row reads them from memory with the weights.
#include <algorithm>

#include "backends/cpu/nbits/nbits_dot_loops.h"
#include "backends/cpu/nbits/nbits_pack.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

using namespace matmul_nbits;

constexpr std::int64_t kMostRows = 60;       // of a tile
constexpr double kStreamTile = 400'000;      // multiply-adds of a tile of one row, some 10 us of reading from memory
constexpr double kProductTile = 6'000'000;   // and of many, at least
constexpr std::int64_t kTilesPerThread = 2;  // of many rows

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

// Stands before packed scales. Which kind they are is seen when they are packed, so that there is room for either.
struct ScalesHeader {
  std::uint32_t are_halves;
  std::uint32_t unused[15];  // a cache line: the scales are as aligned as the copy
};

std::size_t prepack_bytes(const OpDesc& d, int input) {
  const BlockShape b = packed_shape(d);
  const std::int64_t width = width_of(), columns = checked_mul(ceil_div(b.n, width), width);
  const auto numbers = static_cast<std::size_t>(checked_mul(columns, b.blocks));
  switch (input) {
    case kB: return checked_mul(numbers, static_cast<std::size_t>(b.block * b.bits / 8));
    case kScales: return checked_add(sizeof(ScalesHeader), checked_mul(numbers, sizeof(float)));
    case kZeros: return checked_mul(numbers, has_float_zeros(d) ? sizeof(float) : 1);
    default: return 0;
  }
}

std::uint64_t prepack_variant(const OpDesc& d, int) {
  const BlockShape b = packed_shape(d);
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

bool is_half(float x) { return static_cast<float>(Float16::from(x).value()) == x; }

void pack_scales(const OpDesc& d, const float* scales, void* packed) {
  const BlockShape b = packed_shape(d);
  auto* const header = static_cast<ScalesHeader*>(packed);
  const bool halves = simd_nbits_dot::loops(dot_isa()).takes_half_scales && std::all_of(scales, scales + b.n * b.blocks, is_half);
  header->are_halves = halves ? 1 : 0;
  const auto scale = [&](std::int64_t j, std::int64_t i) { return scales[j * b.blocks + i]; };
  if (halves) {
    pack_numbers(b, width_of(), 0, b.n, reinterpret_cast<Float16*>(header + 1),
                 [&](std::int64_t j, std::int64_t i) { return Float16::from(scale(j, i)); });
  } else {
    pack_numbers(b, width_of(), 0, b.n, reinterpret_cast<float*>(header + 1), scale);
  }
}

void pack_zeros(const BlockShape& b, const std::uint8_t* from, std::int64_t begin, std::int64_t end, void* packed) {
  pack_numbers(b, width_of(), begin, end, static_cast<std::uint8_t*>(packed), [&](std::int64_t j, std::int64_t i) {
    const std::uint8_t* const column = from + j * b.zero_bytes;
    return static_cast<std::uint8_t>(b.bits == 4 ? column[i / 2] >> (i % 2 * 4) & 15 : column[i]);
  });
}

void pack_part(const OpDesc& d, int input, const void* rows, std::int64_t begin, std::int64_t end, void* packed) {
  const BlockShape b = packed_shape(d), given = block_shape(*d.node);
  if (input == kB) {
    return with_4_bits(
        d, given.column_bytes(), rows, begin, end,
        [&](const std::uint8_t* from, std::int64_t first, std::int64_t last) { pack_elements(b, from, first, last, packed); });
  }
  if (input == kScales) return pack_scales(d, static_cast<const float*>(rows), packed);
  if (has_float_zeros(d)) {
    const auto* const from = static_cast<const float*>(rows);
    const auto more = static_cast<float>(packed_offset(d));
    return pack_numbers(b, width_of(), begin, end, static_cast<float*>(packed),
                        [&](std::int64_t j, std::int64_t i) { return from[j * b.blocks + i] + more; });
  }
  with_4_bits(d, given.zero_bytes, rows, begin, end,
              [&](const std::uint8_t* from, std::int64_t first, std::int64_t last) { pack_zeros(b, from, first, last, packed); });
}

// ----------------------------------------------------------------------------------------------------------- run --

std::int64_t numbers_of_row(const BlockShape& b) { return b.blocks * b.block; }

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<DotState>();
  s.isa = dot_isa();
  s.b = packed_shape(d);
  const Shape& a = d.inputs[kA].shape;
  s.m = a.elements(0, a.rank() - 1);
  const std::int64_t threads = d.threads;
  s.row_tiles = std::max<std::int64_t>(1, ceil_div(s.m, kMostRows));
  if (s.row_tiles > threads) s.row_tiles = ceil_div(s.row_tiles, threads) * threads;
  s.rows = ceil_div(s.m, s.row_tiles);
  const std::int64_t width = width_of(), panels = ceil_div(s.b.n, width);
  const double cost =
      static_cast<double>(s.b.k) * static_cast<double>(width) * static_cast<double>(std::max<std::int64_t>(1, s.rows));
  // As many tiles for each thread as for the others: they are few, and the last ones are waited for. Each quantizes its rows.
  const std::int64_t most = ceil_div(panels, units_per_tile(panels, cost, s.rows > 1 ? kProductTile : kStreamTile));
  const std::int64_t wanted = s.rows > 1 ? ceil_div(kTilesPerThread * threads, s.row_tiles) : ceil_div(most, threads) * threads;
  s.columns = ceil_div(panels, std::clamp<std::int64_t>(wanted, 1, std::max(most, threads))) * width;
  s.column_tiles = ceil_div(s.b.n, s.columns);
  p->tiles = s.m == 0 ? 0 : checked_mul(s.row_tiles, s.column_tiles);
  const std::int64_t row =
      checked_add(numbers_of_row(s.b), checked_mul<std::int64_t>(s.b.blocks, sizeof(float) + sizeof(std::int32_t)));
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul(std::max<std::int64_t>(1, s.rows), row));
  p->flops = 2.0 * static_cast<double>(s.b.k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

// Scales are packed as a whole.
std::int64_t rows_of_parts(const OpDesc& d, int input) { return input == kScales ? 0 : panels_step<width_of>(d, input); }

simd_nbits_dot::Weights weights_of(const KernelArgs& args, const BlockShape& b) {
  const auto* const header = args.pack<ScalesHeader>(kScales);
  simd_nbits_dot::Weights w = {.bits = static_cast<int>(b.bits),
                               .block = b.block,
                               .blocks = b.blocks,
                               .elements = args.pack<void>(kB),
                               .scales = header + 1,
                               .half_scales = header->are_halves != 0,
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
     .prepack_parts = {.step = rows_of_parts, .run = prepack_some_panels<width_of, prepack_bytes, pack_part>},
     .fusion = {.epilogue = kFusesResidual}},
};

}  // namespace

extern const KernelFamily nbits_dot_kernels;
const KernelFamily nbits_dot_kernels = {kKernels};

}  // namespace evn
