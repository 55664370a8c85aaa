// Depthwise Conv with a constant weight, channels last, one or two spatial axes. A tile is some rows of some channels of an image.
#include <algorithm>

#include "backends/cpu/conv/conv_plan.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/gemm/pack.h"
#include "backends/cpu/pool/window_plan.h"
#include "ops/conv.h"

namespace evn {
namespace {

constexpr double kCheapTile = kTileCost / 4;  // tiles need not cost more, so that few rows are shared out
constexpr std::int64_t kFewestChannels = 8;   // fewer leave most lanes of a vector empty
constexpr std::int64_t kChannelsOfTile = 64;  // at least, of a tile that does not have all of them: lines of memory in a row

struct DepthwiseState {
  Isa isa;
  simd_depthwise::Geometry geometry;
  std::int64_t weight_step;
  std::int64_t rows, channels;  // of a tile
  std::int64_t row_blocks, channel_blocks;
};

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  const int rank = d.inputs[0].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  if (d.constant(1) == nullptr) return "the weight must be constant";
  const Shape& w = d.inputs[1].shape;
  if (w[1] != 1 || w[0] != attr_int(*d.node, ConvAttr::kGroup)) return "only one filter for each channel";
  if (w[0] < kFewestChannels) return "too few channels";
  if (w.elements(2, w.rank()) > kMaxWindowTaps) return "the kernel is too large";
  return nullptr;
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  const Shape& w = d.inputs[1].shape;
  const std::int64_t floats = checked_mul(w.elements(2, w.rank()), depthwise_weight_step(w));
  return static_cast<std::size_t>(checked_mul<std::int64_t>(floats, sizeof(float)));
}

void prepack(const OpDesc& d, int, void* packed) {
  const Shape& w = d.inputs[1].shape;
  const std::int64_t taps = w.elements(2, w.rank()), step = depthwise_weight_step(w);
  const float* from = d.constant(1)->as<float>();
  float* to = static_cast<float*>(packed);
  pack_panel(from, 1, taps, w[0], step, taps, to);
}

// Rows first, as they share pixels; channels where there are few rows.
void cut(const simd_depthwise::Geometry& g, std::int64_t images, DepthwiseState* s) {
  const double row_cost = static_cast<double>(g.out_width * g.channels) * static_cast<double>(g.kernel_h * g.kernel_w);
  const std::int64_t wanted = units_per_tile(g.out_height, row_cost, kCheapTile);
  s->rows = std::min(g.out_height, ceil_div(wanted, simd_depthwise::kRowsTogether) * simd_depthwise::kRowsTogether);
  s->row_blocks = ceil_div(g.out_height, std::max<std::int64_t>(1, s->rows));
  const double tile_cost = row_cost * static_cast<double>(s->rows);
  const std::int64_t enough = std::max<std::int64_t>(1, kManyTiles / std::max<std::int64_t>(1, images * s->row_blocks));
  const auto fit = static_cast<std::int64_t>(std::max(1.0, tile_cost / (kCheapTile / 4)));
  const std::int64_t blocks = std::min({enough, fit, ceil_div(g.channels, kChannelsOfTile)});
  s->channels = ceil_div(ceil_div(g.channels, blocks), simd_depthwise::kPackedLanes) * simd_depthwise::kPackedLanes;
  s->channel_blocks = ceil_div(g.channels, s->channels);
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<DepthwiseState>();
  const Shape& x = d.inputs[0].shape;
  const Shape& w = d.inputs[1].shape;
  s.isa = cpu_isa();
  s.geometry = depthwise_geometry(d);
  s.weight_step = depthwise_weight_step(w);
  cut(s.geometry, x[0], &s);
  p->tiles = checked_mul(x[0], checked_mul(s.row_blocks, s.channel_blocks));
  p->flops = 2.0 * static_cast<double>(w.elements(2, w.rank())) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<DepthwiseState>();
  const simd_depthwise::Geometry& g = s.geometry;
  simd_depthwise::Tile tile{};
  tile.geometry = &g;
  tile.weight = args.pack<float>(1);
  tile.weight_step = s.weight_step;
  tile.bias = args.desc->has_input(2) ? args.in<float>(2) : nullptr;
  tile.epilogue = epilogue_of(*args.desc);
  CancelPoints points = points_of(cancel);
  tile.points = &points;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t blocks = s.row_blocks * s.channel_blocks;
    const std::int64_t image = index / blocks;
    tile.x = args.in<float>(0) + image * g.height * g.width * g.pixel;
    tile.y = args.out<float>() + image * g.out_height * g.out_width * g.out_pixel;
    tile.row_begin = index % blocks / s.channel_blocks * s.rows;
    tile.row_end = std::min(g.out_height, tile.row_begin + s.rows);
    tile.channel = index % s.channel_blocks * s.channels;
    tile.channels = std::min(s.channels, g.channels - tile.channel);
    simd_depthwise::loops(s.isa).run(tile);
  }
}

constexpr Kernel kKernels[] = {
    {.name = "conv_depthwise_nhwc",
     .op = "Conv",
     .rank = 30,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack = prepack,
     .plan = plan,
     .run = run,
     .layouts = channels_last,
     .fusion = {.channel_views = channel_views<kViewInput | kViewOutputs>, .stages = kDepthwiseStage}},
};

}  // namespace

extern const KernelFamily conv_depthwise_nhwc_kernels;
const KernelFamily conv_depthwise_nhwc_kernels = {kKernels};

}  // namespace evn
