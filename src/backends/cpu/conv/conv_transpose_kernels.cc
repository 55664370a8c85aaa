// ConvTranspose over one to three spatial axes: a product of the weight, one row for each output channel and tap, and the image,
// whose rows are added where their taps lie in the output (col2im; conv_transpose_gemm). Where stride equals kernel and nothing is
// padded, each tap is a product of its own whose columns are spread over the output (conv_transpose_blocks). Channels last, a row
// of blocks is a few products whose results lie one after the other: each row of taps by a row of the input (conv_transpose_nhwc).
#include "ops/conv_transpose.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cpu/conv/conv_plan.h"
#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/gemm/pack.h"
#include "backends/cpu/gemm/packed_gemm_plan.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

constexpr std::int64_t kProductRows = 96;       // of a product, at most, or those of one output channel
constexpr std::int64_t kStripFloats = 1 << 16;  // of a product that stays in L2 until it is added

struct UpState {
  Isa isa;
  simd_gemm::Patches patches;
  std::int64_t groups, channels, rows, taps, k;
  std::int64_t out_depth, tile_rows, row_tiles, strip;  // of conv_transpose_gemm: output channels of a tile; columns of a product
  std::int64_t in_plane, out_plane;
  Tiling tiling;
};

[[gnu::cold]] Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  const int rank = d.inputs[0].shape.rank();
  if (rank < 3 || rank > 5) return "only one to three spatial axes";
  if (d.constant(1) == nullptr) return "the weight is not constant";
  return nullptr;
}

bool all_are(std::span<const std::int64_t> list, std::int64_t value) {
  for (const std::int64_t v : list) {
    if (v != value) return false;
  }
  return true;
}

Refusal blocks_supports(const OpDesc& d) {
  if (const Refusal refusal = supports(d)) return refusal;
  if (d.inputs[0].shape.rank() == 5) return "only one or two spatial axes";
  const Node& n = *d.node;
  const Shape& w = d.inputs[1].shape;
  const auto strides = attr_ints(n, ConvTransposeAttr::kStrides);
  if (attr_string(n, ConvTransposeAttr::kAutoPad) != "NOTSET" || !attr_ints(n, ConvTransposeAttr::kOutputShape).empty() ||
      !all_are(attr_ints(n, ConvTransposeAttr::kPads), 0) || !all_are(attr_ints(n, ConvTransposeAttr::kOutputPadding), 0) ||
      !all_are(attr_ints(n, ConvTransposeAttr::kDilations), 1)) {
    return "only without pads and dilation";
  }
  for (int i = 2; i < w.rank(); ++i) {
    const std::int64_t stride = strides.empty() ? 1 : strides[static_cast<std::size_t>(i - 2)];
    if (stride != w[i]) return "only where the stride is the kernel";
  }
  return nullptr;
}

std::uint64_t prepack_variant(const OpDesc& d, int) {
  return static_cast<std::uint64_t>(attr_int(*d.node, ConvTransposeAttr::kGroup)) << 8 | static_cast<std::uint64_t>(cpu_isa());
}

// Output channels of a tile: some rows of the product, as many for any number of threads.
std::int64_t tile_rows_of(const Shape& w) {
  return std::clamp<std::int64_t>(kProductRows / std::max<std::int64_t>(1, w.elements(2, w.rank())), 1,
                                  std::max<std::int64_t>(1, w[1]));
}

std::int64_t tile_floats(const Shape& w, std::int64_t groups) {
  const std::int64_t rows = checked_mul(tile_rows_of(w), w.elements(2, w.rank()));
  return packed_a_floats(simd_gemm::loops(cpu_isa()), rows, w[0] / groups);
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  const Shape& w = d.inputs[1].shape;
  const std::int64_t groups = attr_int(*d.node, ConvTransposeAttr::kGroup);
  const std::int64_t tiles = checked_mul(groups, ceil_div(w[1], tile_rows_of(w)));
  return static_cast<std::size_t>(checked_mul<std::int64_t>(checked_mul(tile_floats(w, groups), tiles), sizeof(float)));
}

// Weight [channels of all groups][rows][taps] -> per group and tile one matrix of (row, tap) by channel.
void prepack(const OpDesc& d, int, void* packed) {
  const simd_gemm::Loops& loops = simd_gemm::loops(cpu_isa());
  const Shape& w = d.inputs[1].shape;
  const std::int64_t groups = attr_int(*d.node, ConvTransposeAttr::kGroup);
  const std::int64_t taps = w.elements(2, w.rank()), channels = w[0] / groups, rows = tile_rows_of(w);
  auto* to = static_cast<float*>(packed);
  for (std::int64_t g = 0; g < groups; ++g) {
    const float* const from = d.constant(1)->as<float>() + g * channels * w[1] * taps;
    for (std::int64_t row = 0; row < w[1]; row += rows, to += tile_floats(w, groups)) {
      pack_a(loops, from + row * taps, 1, w[1] * taps, std::min(rows, w[1] - row) * taps, channels, to);
    }
  }
}

std::size_t blocks_prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  const Shape& w = d.inputs[1].shape;
  const std::int64_t floats = packed_a_floats(simd_gemm::loops(cpu_isa()), w[1], checked_mul(w[0], w.elements(2, w.rank())));
  return static_cast<std::size_t>(checked_mul<std::int64_t>(floats, sizeof(float)));
}

// Packs one matrix of `rows` by channel for each group and tap.
void blocks_prepack(const OpDesc& d, int, void* packed) {
  const simd_gemm::Loops& loops = simd_gemm::loops(cpu_isa());
  const Shape& w = d.inputs[1].shape;
  const std::int64_t groups = attr_int(*d.node, ConvTransposeAttr::kGroup);
  const std::int64_t taps = w.elements(2, w.rank());
  const std::int64_t channels = w[0] / groups;
  const std::int64_t floats = packed_a_floats(loops, w[1], channels);
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      pack_a(loops, d.constant(1)->as<float>() + g * channels * w[1] * taps + tap, taps, w[1] * taps, w[1], channels,
             static_cast<float*>(packed) + (g * taps + tap) * floats);
    }
  }
}

void plan_common(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<UpState>();
  const Shape& w = d.inputs[1].shape;
  const Window window = conv_transpose_window(*d.node, d.inputs[0].shape, w);
  s.isa = cpu_isa();
  s.patches = patches_of(window);
  s.groups = attr_int(*d.node, ConvTransposeAttr::kGroup);
  s.channels = w[0] / s.groups;
  s.rows = w[1];
  s.taps = window.kernel_elements();
  s.in_plane = window.input_elements();
  s.out_plane = window.output_elements();
  p->flops = 2.0 * static_cast<double>(w.elements()) * static_cast<double>(s.in_plane) * static_cast<double>(d.inputs[0].shape[0]);
  p->bytes = bytes_of(d);
}

[[gnu::cold]] void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<UpState>();
  plan_common(d, p);
  const simd_gemm::Loops& loops = simd_gemm::loops(s.isa);
  const Shape& y = d.outputs[0].shape;
  s.k = s.channels;
  s.out_depth = y.rank() == 5 ? y[2] : 1;
  s.patches.out_height = y.rank() >= 4 ? y[y.rank() - 2] : 1;
  s.tile_rows = tile_rows_of(d.inputs[1].shape);
  s.row_tiles = ceil_div(s.rows, s.tile_rows);
  s.strip = std::clamp<std::int64_t>(kStripFloats / std::max<std::int64_t>(1, s.tile_rows * s.taps), loops.nr,
                                     std::max<std::int64_t>(s.in_plane, loops.nr));
  p->tiles = checked_mul(checked_mul(y[0], s.groups), s.row_tiles);
  const std::int64_t product = checked_mul(checked_mul(s.tile_rows, s.taps), s.strip);
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_add(simd_gemm::buffer_floats(loops, 0), product)) * sizeof(float);
}

void blocks_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<UpState>();
  plan_common(d, p);
  const simd_gemm::Loops& loops = simd_gemm::loops(s.isa);
  s.k = s.channels;
  const std::int64_t outer = checked_mul(d.inputs[0].shape[0], s.groups);
  s.tiling = tile_packed_gemm(loops, s.rows, s.in_plane, s.k * s.taps, outer, s.rows);
  p->tiles = checked_mul(outer, s.tiling.column_tiles);
  const std::int64_t spread = checked_mul(s.rows, s.tiling.columns + loops.nr);
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_add(simd_gemm::buffer_floats(loops, 0), spread)) * sizeof(float);
}

simd_gemm::Tile start_tile(const KernelArgs& args, const UpState& s, std::int64_t group, std::int64_t row, CancelPoints* points) {
  simd_gemm::Tile t{};
  t.k = s.k;
  t.a_kind = simd_gemm::AKind::kPacked;
  t.init = args.desc->has_input(2) ? args.in<float>(2) + group * s.rows + row : nullptr;
  t.init_row = 1;
  t.init_scale = 1;
  t.epilogue = epilogue_of(*args.desc);
  t.buffer = static_cast<float*>(args.thread_scratch);
  t.points = points;
  return t;
}

// Adds columns [column, column + n) of one tap's row of the product to an output plane. `beside`: the row of the tap to the right,
// to be added too where the stride is two, or null.
void add_columns(const UpState& s, const float* from, const float* beside, std::int64_t column, std::int64_t n, std::int64_t tap,
                 float* plane) {
  const simd_gemm::Patches& q = s.patches;
  const simd_elementwise::Loops& loops = simd_elementwise::loops(s.isa);
  const std::int64_t kz = tap / (q.kernel_h * q.kernel_w), ky = tap / q.kernel_w % q.kernel_h, kx = tap % q.kernel_w;
  std::int64_t line = column / q.width, x = column % q.width;
  for (std::int64_t j = 0; j < n; ++line) {
    const std::int64_t count = std::min(q.width - x, n - j);
    const std::int64_t z = line / q.height * q.stride_d + kz * q.dilation_d - q.pad_front;
    const std::int64_t y = line % q.height * q.stride_h + ky * q.dilation_h - q.pad_top;
    if (z >= 0 && z < s.out_depth && y >= 0 && y < q.out_height) {
      const std::int64_t first = x * q.stride_w + kx * q.dilation_w - q.pad_left;
      const auto [low, high] = indices_inside(first, q.stride_w, count, q.out_width);
      const auto [low_beside, high_beside] = indices_inside(first + 1, q.stride_w, beside == nullptr ? 0 : count, q.out_width);
      float* const to = plane + (z * q.out_height + y) * q.out_width + first;
      const auto add_each = [&](const float* add, float* here, std::int64_t i, std::int64_t end) {
        if (q.stride_w == 1 && i < end) {
          loops.binary(simd_elementwise::Binary::kAdd, here + i, 1, add + i, 1, here + i, end - i, {1, 0, 0, 0}, false, nullptr);
        } else {
          for (; i < end; ++i) here[i * q.stride_w] += add[i];
        }
      };
      const std::int64_t begin = std::max(low, low_beside), end = std::max(begin, std::min(high, high_beside));
      add_each(from + j, to, low, std::min(begin, high));
      add_each(from + j, to, end, high);
      if (beside != nullptr) {
        add_each(beside + j, to + 1, low_beside, std::min(begin, high_beside));
        add_each(beside + j, to + 1, end, high_beside);
        loops.add_in_turns(from + j + begin, beside + j + begin, to + 2 * begin, end - begin);
      }
    }
    j += count;
    x = 0;
  }
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<UpState>();
  const simd_gemm::Loops& loops = simd_gemm::loops(s.isa);
  const std::int64_t packed = packed_a_floats(loops, s.tile_rows * s.taps, s.k);
  float* const product = static_cast<float*>(args.thread_scratch) + simd_gemm::buffer_floats(loops, 0);
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t row_tile = index % s.row_tiles, plane_group = index / s.row_tiles, group = plane_group % s.groups;
    const std::int64_t row = row_tile * s.tile_rows, rows = std::min(s.tile_rows, s.rows - row);
    float* const planes = args.out<float>() + (plane_group * s.rows + row) * s.out_plane;
    for (std::int64_t r = 0; r < rows; ++r) {
      const float bias = args.desc->has_input(2) ? args.in<float>(2)[group * s.rows + row + r] : 0;
      if (!fill_by_parts(&points, planes + r * s.out_plane, s.out_plane, bias)) return;
    }
    simd_gemm::Tile t{};
    t.m = rows * s.taps;
    t.k = s.k;
    t.a_kind = simd_gemm::AKind::kPacked;
    t.a = args.pack<float>(1) + (group * s.row_tiles + row_tile) * packed;
    t.b_kind = simd_gemm::BKind::kRows;
    t.ldb = s.in_plane;
    t.c = product;
    t.buffer = static_cast<float*>(args.thread_scratch);
    t.points = &points;
    for (std::int64_t column = 0; column < s.in_plane; column += s.strip) {
      t.n = t.ldc = std::min(s.strip, s.in_plane - column);
      t.b = args.in<float>(0) + plane_group * s.channels * s.in_plane + column;
      loops.run(t);
      for (std::int64_t i = 0; i < t.m; ++i) {
        if (stops(&points, 4 * t.n)) return;
        const std::int64_t tap = i % s.taps;
        const float* const row_of_tap = product + i * t.n;
        const bool pairs =
            s.patches.stride_w == 2 && s.patches.dilation_w == 1 && tap % s.patches.kernel_w + 1 < s.patches.kernel_w;
        add_columns(s, row_of_tap, pairs ? row_of_tap + t.n : nullptr, column, t.n, tap, planes + i / s.taps * s.out_plane);
        i += pairs ? 1 : 0;
      }
    }
    chain_long(s.isa, planes, rows * s.out_plane, epilogue_of(*args.desc), &points);
  }
}

// Column j of `from` goes to the place of tap (ky, kx) in the block of input position column + j.
void spread_columns(const UpState& s, const float* from, std::int64_t column, std::int64_t n, std::int64_t tap, float* plane) {
  const simd_gemm::Patches& q = s.patches;
  const std::int64_t ky = tap / q.kernel_w, kx = tap % q.kernel_w;
  std::int64_t y = column / q.width, x = column % q.width;
  for (std::int64_t j = 0; j < n;) {
    const std::int64_t count = q.width - x < n - j ? q.width - x : n - j;
    float* to = plane + (y * q.kernel_h + ky) * q.out_width + x * q.kernel_w + kx;
    for (std::int64_t i = 0; i < count; ++i) to[i * q.kernel_w] = from[j + i];
    j += count;
    x = 0;
    ++y;
  }
}

void blocks_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<UpState>();
  const simd_gemm::Loops& loops = simd_gemm::loops(s.isa);
  float* spread = static_cast<float*>(args.thread_scratch) + simd_gemm::buffer_floats(loops, 0);
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t column_tile = index % s.tiling.column_tiles, plane_group = index / s.tiling.column_tiles;
    const std::int64_t group = plane_group % s.groups;
    const std::int64_t column = column_tile * s.tiling.columns;
    simd_gemm::Tile t = start_tile(args, s, group, 0, &points);
    t.m = s.rows;
    t.n = s.tiling.column_end(column_tile, s.in_plane) - column;
    t.b_kind = simd_gemm::BKind::kRows;
    t.b = args.in<float>(0) + plane_group * s.channels * s.in_plane + column;
    t.ldb = s.in_plane;
    t.c = spread;
    t.ldc = t.n;
    for (std::int64_t tap = 0; tap < s.taps; ++tap) {
      t.a = args.pack<float>(1) + (group * s.taps + tap) * packed_a_floats(loops, s.rows, s.k);
      loops.run(t);
      for (std::int64_t row = 0; row < s.rows; ++row) {
        if (stops(&points, t.n)) return;
        spread_columns(s, spread + row * t.n, column, t.n, tap, args.out<float>() + (plane_group * s.rows + row) * s.out_plane);
      }
    }
  }
}

// ---------------------------------------------------------------------------------------------- channels last --

constexpr std::int64_t kFewColumns = 4;  // products of so many are computed four columns at a time (simd/quads.h)

struct LastState {
  Isa isa;
  std::int64_t lines, width, channels;  // of the input
  std::int64_t outputs, kernel_h, kernel_w;
  std::int64_t packed_floats;  // of a row of taps, or of all of them where they are one product
  bool joined;
  std::int64_t per_tile;  // lines
};

Refusal last_supports(const OpDesc& d) {
  if (const Refusal refusal = blocks_supports(d)) return refusal;
  return attr_int(*d.node, ConvTransposeAttr::kGroup) == 1 ? nullptr : "only one group";
}

void last_layouts(const OpDesc&, std::span<Layout> inputs, std::span<Layout> outputs) {
  std::fill(inputs.begin(), inputs.end(), Layout::kPlain);
  inputs[0] = outputs[0] = Layout::kChannelsLast;
}

std::int64_t kernel_h(const Shape& w) { return w.rank() == 4 ? w[2] : 1; }

// Whether all taps together are few columns: then they are one product, and its columns are dealt out to the lines of the output.
bool is_joined(const Shape& w) { return kernel_h(w) > 1 && w.elements(1, w.rank()) <= kFewColumns; }

std::int64_t last_floats(const Shape& w) {
  const std::int64_t columns = is_joined(w) ? w.elements(1, w.rank()) : checked_mul(w[w.rank() - 1], w[1]);
  return packed_gemm_floats(simd_packed_gemm::loops(cpu_isa()), columns, w[0]);
}

std::size_t last_prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  const Shape& w = d.inputs[1].shape;
  const std::int64_t products = is_joined(w) ? 1 : kernel_h(w);
  return static_cast<std::size_t>(checked_mul<std::int64_t>(checked_mul(last_floats(w), products), sizeof(float)));
}

// For each row of taps a matrix of input channel by (tap of the row, output channel), or one of input channel by (tap, output
// channel).
void last_prepack(const OpDesc& d, int, void* packed) {
  const Shape& w = d.inputs[1].shape;
  const bool joined = is_joined(w);
  const std::int64_t taps = (joined ? kernel_h(w) : 1) * w[w.rank() - 1], rows = w.elements(2, w.rank()) / taps, outputs = w[1];
  const std::int64_t columns = taps * outputs;
  const float* from = d.constant(1)->as<float>();
  std::vector<float> matrix(static_cast<std::size_t>(w[0] * columns));
  for (std::int64_t ky = 0; ky < rows; ++ky) {
    float* to = matrix.data();
    for (std::int64_t c = 0; c < w[0]; ++c) {
      for (std::int64_t kx = 0; kx < taps; ++kx) {
        for (std::int64_t o = 0; o < outputs; ++o) *to++ = from[((c * outputs + o) * rows + ky) * taps + kx];
      }
    }
    pack_packed_gemm(simd_packed_gemm::loops(cpu_isa()), {matrix.data(), 1, w[0], columns, 1}, columns, 1.0f,
                     static_cast<float*>(packed) + ky * last_floats(w));
  }
}

void last_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<LastState>();
  const Shape& x = d.inputs[0].shape;
  const Shape& w = d.inputs[1].shape;
  s.isa = cpu_isa();
  s.width = x[x.rank() - 1];
  s.lines = checked_mul(x[0], x.elements(2, x.rank() - 1));
  s.channels = x[1];
  s.outputs = w[1];
  s.kernel_h = kernel_h(w);
  s.kernel_w = w[w.rank() - 1];
  s.packed_floats = last_floats(w);
  s.joined = is_joined(w);
  const double line = static_cast<double>(s.width) * static_cast<double>(w.elements());
  s.per_tile = units_per_tile(s.lines, line);
  p->tiles = ceil_div(s.lines, s.per_tile);
  // The bias, repeated for each tap, and a line of a joined product.
  const std::int64_t columns = s.joined ? w.elements(1, w.rank()) : checked_mul(s.kernel_w, s.outputs);
  const std::int64_t floats = checked_add(columns, s.joined ? checked_mul(s.width, columns) : 0);
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(floats, sizeof(float)));
  p->flops = 2.0 * line * static_cast<double>(s.lines);
  p->bytes = bytes_of(d);
}

// Columns (ky, rest) of the pixels of one line go to line ky of the output.
void deal_out(const LastState& s, const float* from, float* to, CancelPoints* points) {
  const std::int64_t rest = s.kernel_w * s.outputs;
  for (std::int64_t ky = 0; ky < s.kernel_h; ++ky, to += s.width * rest) {
    by_parts(points, s.width, 1, 4 * rest, [&](std::int64_t begin, std::int64_t end) {
      const float* p = from + ky * rest + begin * s.kernel_h * rest;
      if (rest == 2) {
        for (std::int64_t x = begin; x < end; ++x, p += s.kernel_h * 2) std::memcpy(to + x * 2, p, 2 * sizeof(float));
      } else {
        for (std::int64_t x = begin; x < end; ++x, p += s.kernel_h * rest) std::copy_n(p, rest, to + x * rest);
      }
    });
  }
}

void last_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<LastState>();
  const std::int64_t line_columns = s.kernel_w * s.outputs;
  const std::int64_t columns = s.joined ? s.kernel_h * line_columns : line_columns;
  float* const bias = static_cast<float*>(args.thread_scratch);  // repeated for each tap
  CancelPoints points = points_of(cancel);
  if (args.desc->has_input(2)) {
    const bool goes_on = by_parts(&points, columns, 64, kFarElement, [&](std::int64_t from, std::int64_t until) {
      for (std::int64_t i = from; i < until; ++i) bias[i] = args.in<float>(2)[i % s.outputs];
    });
    if (!goes_on) return;
  }
  simd_packed_gemm::Tile t{};
  t.large_l2 = has_large_l2();
  t.m = s.width;
  t.n = columns;
  t.k = s.channels;
  t.lda = s.channels;
  t.ldc = columns;
  t.init = args.desc->has_input(2) ? bias : nullptr;
  t.init_column = 1;
  t.init_scale = 1;
  // Steps on rows that are narrower than a vector, or that are dealt out, wait for the whole line.
  const bool narrow = s.joined || columns < simd_packed_gemm::loops(s.isa).lanes;
  t.epilogue = narrow ? nullptr : epilogue_of(*args.desc);
  t.points = &points;
  const auto chain = [&](float* y, std::int64_t n) {
    const Epilogue* const epilogue = epilogue_of(*args.desc);
    if (epilogue == nullptr) return;
    chain_long(s.isa, y, n, epilogue, &points);
  };
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = std::min(s.lines, (index + 1) * s.per_tile);
    for (std::int64_t line = index * s.per_tile; line < last; ++line) {
      t.a = args.in<float>(0) + line * s.width * s.channels;
      float* const to = args.out<float>() + line * s.kernel_h * s.width * line_columns;
      if (s.joined) {
        t.b = args.pack<float>(1);
        t.c = bias + columns;
        simd_packed_gemm::loops(s.isa).run(t);
        deal_out(s, t.c, to, &points);
        chain(to, s.width * columns);
        if (points.stopped) return;
        continue;
      }
      for (std::int64_t ky = 0; ky < s.kernel_h; ++ky) {
        t.b = args.pack<float>(1) + ky * s.packed_floats;
        t.c = to + ky * s.width * columns;
        simd_packed_gemm::loops(s.isa).run(t);
        if (narrow) chain(t.c, s.width * columns);
        if (points.stopped) return;
      }
    }
  }
}

constexpr Kernel kKernels[] = {
    {.name = "conv_transpose_gemm",
     .op = "ConvTranspose",
     .rank = 10,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack,
     .plan = plan,
     .run = run},
    {.name = "conv_transpose_blocks",
     .op = "ConvTranspose",
     .rank = 20,
     .supports = blocks_supports,
     .prepack_bytes = blocks_prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = blocks_prepack,
     .plan = blocks_plan,
     .run = blocks_run},
    {.name = "conv_transpose_nhwc",
     .op = "ConvTranspose",
     .rank = 30,
     .supports = last_supports,
     .prepack_bytes = last_prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = last_prepack,
     .plan = last_plan,
     .run = last_run,
     .layouts = last_layouts},
};

}  // namespace

extern const KernelFamily conv_transpose_kernels;
const KernelFamily conv_transpose_kernels = {kKernels};

}  // namespace evn
