// Conv of few input channels with a constant weight, from plain pixels to channels last: the first layer of a network. A tile is
// some rows of the output of an image.
#include <algorithm>

#include "backends/cpu/conv/conv_plan.h"
#include "ops/conv.h"

namespace evn {
namespace {

constexpr std::int64_t kMostChannels = 4;   // of the input
constexpr std::int64_t kFewestOutputs = 6;  // channels: fewer leave most lanes of a vector empty
constexpr std::int64_t kWidestKernel = 32;  // wider ones read lines of pixels where they lie
constexpr double kCheapTile = kTileCost / 2;

struct FewChannelsState {
  Isa isa;
  simd_few_channels::Geometry geometry;
  std::int64_t rows, row_tiles;
};

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  const Shape& x = d.inputs[0].shape;
  if (x.rank() != 3 && x.rank() != 4) return "only one or two spatial axes";
  if (d.constant(1) == nullptr) return "the weight must be constant";
  if (attr_int(*d.node, ConvAttr::kGroup) != 1) return "only one group";
  const Shape& w = d.inputs[1].shape;
  if (w[1] > kMostChannels) return "many input channels";
  if (w[0] < kFewestOutputs) return "few output channels";
  const Window window = conv_window(*d.node, x, w);
  const WindowAxis& h = window.axis[window.rank - 1];
  for (int i = 0; i < window.rank; ++i) {
    if (window.axis[i].dilation != 1) return "only without dilations";
  }
  if (h.stride > 2 || h.kernel > kWidestKernel) return "a wide step or kernel";
  if (w.elements(1, w.rank() - 1) > simd_few_channels::kMaxLines) return "a high kernel";
  if (w.elements(1, w.rank()) < 2) return "one tap";
  return nullptr;
}

void layouts(const OpDesc&, std::span<Layout> inputs, std::span<Layout> outputs) {
  for (Layout& l : inputs) l = Layout::kPlain;
  outputs[0] = Layout::kChannelsLast;
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  const Shape& w = d.inputs[1].shape;
  const std::int64_t lanes = simd_few_channels::loops(cpu_isa()).lanes;
  const std::int64_t floats = checked_mul(checked_mul(ceil_div(w[0], lanes), lanes), w.elements(1, w.rank()));
  return static_cast<std::size_t>(checked_mul<std::int64_t>(floats, sizeof(float)));
}

std::uint64_t prepack_variant(const OpDesc&, int) { return static_cast<std::uint64_t>(cpu_isa()); }

void prepack(const OpDesc& d, int, void* packed) {
  const simd_few_channels::Loops& loops = simd_few_channels::loops(cpu_isa());
  const Shape& w = d.inputs[1].shape;
  const std::int64_t taps = w.elements(1, w.rank());
  const float* const from = d.constant(1)->as<float>();
  float* to = static_cast<float*>(packed);
  for (std::int64_t first = 0; first < w[0]; first += loops.panel_lanes) {
    const std::int64_t count = std::min<std::int64_t>(loops.panel_lanes, w[0] - first);
    const std::int64_t width = ceil_div(count, std::int64_t{loops.lanes}) * loops.lanes;
    for (std::int64_t tap = 0; tap < taps; ++tap, to += width) {
      for (std::int64_t j = 0; j < width; ++j) to[j] = j < count ? from[(first + j) * taps + tap] : 0.0f;
    }
  }
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<FewChannelsState>();
  const Shape& x = d.inputs[0].shape;
  const Shape& w = d.inputs[1].shape;
  s.isa = cpu_isa();
  s.geometry = few_channels_geometry(d);
  const simd_few_channels::Geometry& g = s.geometry;
  const double row_cost = static_cast<double>(g.out_width * g.out_channels) * static_cast<double>(w.elements(1, w.rank()));
  s.rows = units_per_tile(g.out_height, row_cost, kCheapTile);
  s.row_tiles = ceil_div(g.out_height, s.rows);
  p->tiles = d.outputs[0].shape.elements() == 0 ? 0 : checked_mul(x[0], s.row_tiles);
  const std::int64_t lines = few_channels_line_floats(simd_few_channels::loops(s.isa), g);
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(lines, sizeof(float)));
  p->flops = 2.0 * static_cast<double>(w.elements(1, w.rank())) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<FewChannelsState>();
  const simd_few_channels::Geometry& g = s.geometry;
  simd_few_channels::Tile tile{};
  tile.geometry = &g;
  tile.weight = args.pack<float>(1);
  tile.bias = args.bias<float>(2);
  tile.epilogue = epilogue_of(*args.desc);
  tile.lines = static_cast<float*>(args.thread_scratch);
  CancelPoints points = points_of(cancel);
  tile.points = &points;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t image = index / s.row_tiles;
    tile.x = args.in<float>(0) + image * g.channels * g.height * g.width;
    tile.y = args.out<float>() + image * g.out_height * g.out_width * g.out_pixel;
    tile.row_begin = index % s.row_tiles * s.rows;
    tile.row_end = std::min(g.out_height, tile.row_begin + s.rows);
    simd_few_channels::loops(s.isa).run(tile);
  }
}

constexpr Kernel kKernels[] = {
    {.name = "conv_few_channels",
     .op = "Conv",
     .rank = 24,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack,
     .plan = plan,
     .run = run,
     .layouts = layouts,
     .fusion = {.epilogue = kFusesBias, .channel_views = channel_views<kViewOutputs>, .stages = kFirstLayerStage}},
};

}  // namespace

extern const KernelFamily conv_few_channels_kernels;
const KernelFamily conv_few_channels_kernels = {kKernels};

}  // namespace evn
