// Conv 3 x 3 without strides, channels last, by Winograd's F(4 x 4, 3 x 3), or F(2 x 2, 3 x 3) for small images
// (conv/winograd_loops.h). A tile is a block of output tiles of all images, and a range of output channels: its pixels are
// transformed, multiplied by the filters of 36 positions, and transformed back.
#include <algorithm>

#include "backends/cpu/conv/conv_plan.h"
#include "backends/cpu/conv/winograd_loops.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/gemm/pack.h"
#include "backends/cpu/gemm/packed_gemm_plan.h"
#include "backends/cpu/support.h"
#include "base/error.h"
#include "ops/conv.h"

namespace evn {
namespace {

using simd_winograd::kLargeTile;
using simd_winograd::kSmallTile;
using simd_winograd::positions_of;
using simd_winograd::step_of;

constexpr std::int64_t kFewestChannels = 16;
constexpr std::int64_t kFewestTiles =
    9;  // of 4 x 4, of an image: below, the filters, four times as large as they were, cost more than they save
constexpr std::int64_t kFewestSmallTiles = 12;  // of 2 x 2, with filters 1.8 times as large
constexpr std::int64_t kFewTiles = 16;          // of 4 x 4: with many channels reading the filters takes what 4 x 4 saves
constexpr std::int64_t kManyPairs =
    256 * 256;  // of channels: the filters of 4 x 4 are 9 MiB. More only where the size of images is known
constexpr std::int64_t kBlockBytes = 768 << 10;  // of transformed pixels and products: most of L2
constexpr std::int64_t kFewestInBlock = 16;
constexpr std::int64_t kTurned = 4;      // channels whose filters are transposed at once
constexpr std::int64_t kMostWidth = 64;  // of a panel

struct WinogradState {
  Isa isa;
  std::int32_t tile;  // outputs in each direction
  simd_winograd::Geometry geometry;
  std::int64_t tiles;          // of all images
  std::int64_t block, blocks;  // tiles of a block
  std::int64_t columns, column_tiles;
  std::int64_t position_floats;  // of the packed filters
};

bool is_plain_3x3(const OpDesc& d) {
  const Shape& w = d.inputs[1].shape;
  const Window window = conv_window(*d.node, d.inputs[0].shape, w);
  for (int i = 0; i < window.rank; ++i) {
    const WindowAxis& a = window.axis[i];
    if (a.kernel != 3 || a.stride != 1 || a.dilation != 1) return false;
  }
  return true;
}

std::int64_t tiles_of(const Shape& y, int tile) {
  return checked_mul(ceil_div(y[2], std::int64_t{tile}), ceil_div(y[3], std::int64_t{tile}));
}

// Whether tiles of 2 x 2 are taken, where the size of images is known: with many channels and a small image.
bool is_small(const Shape& w, const Shape& y) { return w[0] * w[1] >= kManyPairs && tiles_of(y, kLargeTile) <= kFewTiles; }

// Each size of tiles is a kernel of its own, so that a node's filters are packed for the tiles that every run of it has, also where
// only the run tells the size of images.
template <int Tile>
Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  if (d.strict) return kStrictRefusesWinograd;
  if (d.small) return kSmallRefusesWinograd;
  const Shape& x = d.inputs[0].shape;
  if (x.rank() != 4) return "only two spatial axes";
  if (d.constant(1) == nullptr) return "the weight must be constant";
  if (attr_int(*d.node, ConvAttr::kGroup) != 1) return "only one group";
  const Shape& w = d.inputs[1].shape;
  if (!is_plain_3x3(d)) return "only 3 x 3 without strides and dilations";
  if (w[0] < kFewestChannels || w[1] < kFewestChannels) return "few channels";
  const Shape& y = d.outputs[0].shape;
  const bool known = y.rank() == 4 && y[2] > 0 && y[3] > 0;
  if constexpr (Tile == kSmallTile) {
    if (!known) return "images of any size";
    if (!is_small(w, y)) return "few channels or a large image";
  } else {
    if (!known) return w[0] * w[1] > kManyPairs ? "many channels, and images of any size" : nullptr;
    if (is_small(w, y)) return "many channels and a small image";
  }
  return tiles_of(y, Tile) < (Tile == kLargeTile ? kFewestTiles : kFewestSmallTiles) ? "a small image" : nullptr;
}

std::int64_t position_floats(const OpDesc& d) {
  return packed_gemm_floats(simd_packed_gemm::loops(cpu_isa()), d.inputs[1].shape[0], d.inputs[1].shape[1]);
}

template <int Tile>
std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  return static_cast<std::size_t>(
      checked_mul<std::int64_t>(checked_mul<std::int64_t>(position_floats(d), positions_of(Tile)), sizeof(float)));
}

std::uint64_t prepack_variant(const OpDesc&, int) { return static_cast<std::uint64_t>(cpu_isa()); }

std::int64_t part_step(const OpDesc&, int) { return simd_packed_gemm::loops(cpu_isa()).nr; }

template <int Tile>
void prepack(const OpDesc& d, int, const void* rows, std::int64_t begin, std::int64_t end, void* packed) {
  const simd_packed_gemm::Loops& product = simd_packed_gemm::loops(cpu_isa());
  const simd_winograd::Transforms& loops = simd_winograd::loops(cpu_isa()).of(Tile);
  const Shape& w = d.inputs[1].shape;
  const std::int64_t floats = position_floats(d);
  alignas(64) float turned[kTurned * 9 * kMostWidth];
  EVN_CHECK(product.nr <= kMostWidth);
  for (std::int64_t column = begin; column < end; column += product.nr) {
    const std::int64_t columns = std::min<std::int64_t>(product.nr, end - column);
    const std::int64_t width = ceil_div(columns, product.lanes) * product.lanes;
    const float* const from = static_cast<const float*>(rows) + (column - begin) * w[1] * 9;
    float* const to = static_cast<float*>(packed) + column * w[1];
    for (std::int64_t channel = 0; channel < w[1]; channel += kTurned) {
      const std::int64_t channels = std::min(kTurned, w[1] - channel);
      pack_panel(from + channel * 9, 1, w[1] * 9, columns, width, channels * 9, turned);
      loops.filters(turned, channels, width, to + channel * width, floats);
    }
  }
}

// Cuts the tiles of all images into blocks of at most `most`, and the output channels into ranges, so that the last thread ends
// soon. Each range transforms the block's pixels again, which costs as much as some columns of the product; each block reads the
// filters again, which costs as much as some rows.
void cut(std::int64_t tiles, std::int64_t most, std::int64_t panels, const simd_packed_gemm::Loops& product, std::uint32_t threads,
         WinogradState* s) {
  constexpr std::int64_t kTransform = 12, kFilters = 7, kFinestCut = 4;
  const std::int64_t fewest = ceil_div(tiles, most);
  const std::int64_t finest = threads > 1 && fewest < kManyTiles * threads ? kFinestCut * fewest : fewest;
  std::int64_t least = -1;
  for (std::int64_t blocks = fewest; blocks <= finest; ++blocks) {
    const std::int64_t even = ceil_div(tiles, blocks);
    const std::int64_t block = blocks == 1 ? tiles : std::min(most, ceil_div(even, std::int64_t{product.mr}) * product.mr);
    for (std::int64_t ranges = 1; ranges <= (threads > 1 ? panels : 1); ++ranges) {
      const std::int64_t columns = ceil_div(panels, ranges) * product.nr;
      const std::int64_t calls = ceil_div(tiles, block) * ceil_div(panels * product.nr, columns);
      const std::int64_t span =
          ceil_div(calls, std::max<std::int64_t>(1, threads)) * (block * (columns + kTransform) + kFilters * columns);
      if (least >= 0 && span >= least) continue;
      least = span;
      s->block = block;
      s->columns = columns;
    }
  }
  s->blocks = ceil_div(tiles, s->block);
}

template <int Tile>
void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<WinogradState>();
  const Shape& x = d.inputs[0].shape;
  const Shape& w = d.inputs[1].shape;
  const Window window = conv_window(*d.node, x, w);
  s.isa = cpu_isa();
  s.tile = Tile;
  const std::int64_t positions = positions_of(s.tile);
  simd_winograd::Geometry& g = s.geometry;
  g = {};
  g.height = window.axis[0].input;
  g.width = window.axis[1].input;
  g.channels = w[1];
  g.pixel = d.input_pitch(0);
  g.out_pixel = d.output_pitch();
  g.residual_pixel = d.residual_pitch();
  g.out_height = window.axis[0].output;
  g.out_width = window.axis[1].output;
  g.out_channels = w[0];
  g.pad_top = window.axis[0].pad_begin;
  g.pad_left = window.axis[1].pad_begin;
  g.tiles_y = ceil_div(g.out_height, std::int64_t{s.tile});
  g.tiles_x = ceil_div(g.out_width, std::int64_t{s.tile});
  s.tiles = checked_mul(x[0], checked_mul(g.tiles_y, g.tiles_x));
  s.position_floats = position_floats(d);
  const simd_packed_gemm::Loops& product = simd_packed_gemm::loops(s.isa);

  const std::int64_t per_tile = positions * (w[0] + w[1]) * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t most = std::max<std::int64_t>(kFewestInBlock, kBlockBytes / per_tile / product.mr * product.mr);
  cut(std::max<std::int64_t>(1, s.tiles), most, ceil_div(w[0], std::int64_t{product.nr}), product, d.threads, &s);
  s.column_tiles = ceil_div(w[0], s.columns);
  p->tiles = s.tiles == 0 ? 0 : checked_mul(s.blocks, s.column_tiles);
  const std::int64_t steps = checked_add(step_of(checked_mul(s.block, w[1])), step_of(checked_mul(s.block, w[0])));
  const std::int64_t floats = checked_mul<std::int64_t>(positions, steps);
  p->thread_scratch_bytes = checked_mul(static_cast<std::size_t>(floats), sizeof(float));
  p->flops = 18.0 * static_cast<double>(w[1]) * static_cast<double>(d.outputs[0].shape.elements());  // of the direct method
  p->bytes = bytes_of(d);
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<WinogradState>();
  const OpDesc& d = *args.desc;
  const simd_winograd::Transforms& loops = simd_winograd::loops(s.isa).of(s.tile);
  const simd_packed_gemm::Loops& product = simd_packed_gemm::loops(s.isa);
  const simd_winograd::Geometry& g = s.geometry;
  simd_winograd::Finish f{};
  f.y = args.out<float>();
  f.residual = args.residual<float>();
  f.bias = args.bias<float>(2);
  f.epilogue = epilogue_of(d);
  auto* const pixels = static_cast<float*>(args.thread_scratch);
  CancelPoints points = points_of(cancel);
  const std::int64_t positions = positions_of(s.tile);
  float* const products = pixels + positions * step_of(s.block * g.channels);
  const PackedGemmTiling tiling = {s.block, s.columns, s.blocks, s.column_tiles};
  for_each_packed_gemm_tile(
      tiling, s.tiles, g.out_channels, begin, end,
      [&](std::int64_t, std::int64_t first, std::int64_t count, std::int64_t column, std::int64_t columns) {
        const std::int64_t pixel_step = step_of(count * g.channels);
        const std::int64_t packed_gemm_step = step_of(count * columns);
        by_parts(&points, count, 1, 4 * positions * g.channels, [&](std::int64_t from, std::int64_t until) {
          loops.pixels(g, args.in<float>(0), first + from, until - from, pixels + from * g.channels, pixel_step);
        });
        for (std::int64_t position = 0; position < positions; ++position) {
          simd_packed_gemm::Tile t{};
          t.large_l2 = has_large_l2();
          t.m = count;
          t.n = columns;
          t.k = g.channels;
          t.a = pixels + position * pixel_step;
          t.lda = g.channels;
          t.b = args.pack<float>(1) + position * s.position_floats + column * g.channels;
          t.c = products + position * packed_gemm_step;
          t.ldc = columns;
          t.points = &points;
          if (points.stopped) return false;
          product.run(t);
        }
        f.first = column;
        f.count = columns;
        by_parts(&points, count, 1, (4 * positions + kFunction * 16) * columns, [&](std::int64_t from, std::int64_t until) {
          loops.products(g, products + from * columns, packed_gemm_step, first + from, until - from, f);
        });
        return !cancel.stop();
      });
}

template <int Tile>
constexpr Kernel kernel(const char* name, int rank) {
  return {.name = name,
          .op = "Conv",
          .rank = rank,
          .supports = supports<Tile>,
          .prepack_bytes = prepack_bytes<Tile>,
          .prepack_variant = prepack_variant,
          .prepack = prepack_all<prepack<Tile>>,
          .plan = plan<Tile>,
          .run = run,
          .layouts = channels_last,
          .prepack_parts = {.step = part_step, .run = prepack<Tile>},
          .fusion = {.epilogue = kFusesBias | kFusesResidual,
                     .channel_views = channel_views<kViewInput | kViewResidual | kViewOutputs>}};
}

// Tiles of 4 x 4 of an image from which on Winograd's method is faster than bfloat16 without AMX: by evener bench --layers
// ResNet-50's 64 channels at 56 x 56 take 0.62 of bfloat16's time, SqueezeNet's 32 to 128 at 27 x 27 0.67, and its 64 to 256 at 13
// x 13 1.1.
constexpr std::int64_t kFewestToHalve = 36;

constexpr Kernel kKernels[] = {kernel<kLargeTile>("conv_winograd", 18), kernel<kSmallTile>("conv_winograd_small", 19)};

}  // namespace

bool winograd_halves(const OpDesc& d) {
  const Shape& y = d.outputs[0].shape;
  return supports<kLargeTile>(d) == nullptr && y.rank() == 4 && y[2] > 0 && y[3] > 0 && tiles_of(y, kLargeTile) >= kFewestToHalve;
}

extern const KernelFamily conv_winograd_kernels;
const KernelFamily conv_winograd_kernels = {kKernels};

}  // namespace evn
