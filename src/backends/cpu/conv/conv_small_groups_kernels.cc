// Conv in groups of few channels with a constant weight, channels last, over two spatial axes: vectors run over the channels of
// several groups. A tile is some rows and channels of an image.
#include <algorithm>

#include "backends/cpu/conv/conv_plan.h"
#include "backends/cpu/conv/small_groups_loops.h"
#include "backends/cpu/follow.h"
#include "ops/conv.h"

namespace evn {
namespace {

constexpr std::int64_t kMostChannels = 16;  // of a group: from there on products of matrices are as fast

struct GroupsState {
  Isa isa;
  simd_depthwise::Geometry geometry;
  std::int64_t group, rows, channels;  // of a tile
  std::int64_t row_blocks, channel_blocks;
};

Refusal supports(const OpDesc& d) {
  const simd_small_groups::Loops& loops = simd_small_groups::loops(cpu_isa());
  if (loops.run == nullptr) return "no permutation of a vector by indices";
  if (!all_float32(d)) return kNeedsFloat32;
  if (d.inputs[0].shape.rank() != 4) return "only two spatial axes";
  if (d.constant(1) == nullptr) return "the weight must be constant";
  const Shape& w = d.inputs[1].shape;
  const std::int64_t groups = attr_int(*d.node, ConvAttr::kGroup), channels = w[1];
  if (w[0] != groups * channels || channels < 2 || channels > kMostChannels)
    return "only groups of few channels, as many in as out";
  if (channels % loops.lanes != 0 && loops.lanes % channels != 0) return "vectors do not have whole groups";
  if (w[0] % loops.lanes != 0) return "channels are no whole vectors";
  const simd_depthwise::Geometry g = depthwise_geometry(d);
  if (g.kernel_w != simd_small_groups::kTaps || g.dilation_w != 1) return "only windows of three pixels side by side";
  return g.stride_w <= 2 ? nullptr : "only strides of one or two";
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  return static_cast<std::size_t>(checked_mul<std::int64_t>(d.inputs[1].shape.elements(), sizeof(float)));
}

std::uint64_t prepack_variant(const OpDesc&, int) { return static_cast<std::uint64_t>(simd_small_groups::loops(cpu_isa()).lanes); }

// [output][channel][ky][kx] -> [vector of outputs][ky][channel][kx][output].
void prepack(const OpDesc& d, int, void* packed) {
  const std::int64_t lanes = simd_small_groups::loops(cpu_isa()).lanes;
  const Shape& w = d.inputs[1].shape;
  const std::int64_t channels = w[1], height = w[2], width = w[3], filter = channels * height * width;
  const float* const from = d.constant(1)->as<float>();
  auto* to = static_cast<float*>(packed);
  for (std::int64_t first = 0; first < w[0]; first += lanes) {
    for (std::int64_t tap = 0; tap < filter; ++tap) {
      const std::int64_t kx = tap % width, channel = tap / width % channels, ky = tap / width / channels;
      for (std::int64_t i = 0; i < lanes; ++i) *to++ = from[(first + i) * filter + (channel * height + ky) * width + kx];
    }
  }
}

// Channels first, which share nothing; rows where these are few.
void cut(std::int64_t images, std::int64_t lanes, GroupsState* s) {
  const simd_depthwise::Geometry& g = s->geometry;
  const std::int64_t vectors = g.channels / lanes;
  const double row_cost = static_cast<double>(g.out_width * lanes * s->group) * static_cast<double>(g.kernel_h * g.kernel_w);
  const std::int64_t at_once = units_per_tile(vectors, row_cost * static_cast<double>(g.out_height));
  s->channels = at_once * lanes;
  s->channel_blocks = ceil_div(vectors, at_once);
  const std::int64_t enough = ceil_div(kManyTiles, std::max<std::int64_t>(1, images * s->channel_blocks));
  const std::int64_t rows =
      std::max(ceil_div(g.out_height, enough), units_per_tile(g.out_height, row_cost * static_cast<double>(at_once)));
  s->rows = std::max<std::int64_t>(1, rows);
  s->row_blocks = ceil_div(g.out_height, s->rows);
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<GroupsState>();
  const Shape& w = d.inputs[1].shape;
  const std::int64_t images = d.inputs[0].shape[0];
  s.isa = cpu_isa();
  s.geometry = depthwise_geometry(d);
  s.group = w[1];
  cut(images, simd_small_groups::loops(s.isa).lanes, &s);
  p->tiles = d.outputs[0].shape.elements() == 0 ? 0 : checked_mul(images, checked_mul(s.row_blocks, s.channel_blocks));
  p->flops = 2.0 * static_cast<double>(w.elements(1, 4)) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<GroupsState>();
  const simd_depthwise::Geometry& g = s.geometry;
  simd_small_groups::Tile tile{};
  tile.geometry = &g;
  tile.group = s.group;
  tile.weight = args.pack<float>(1);
  tile.bias = args.bias<float>(2);
  tile.epilogue = epilogue_of(*args.desc);
  CancelPoints points = points_of(cancel);
  tile.points = &points;
  for (std::int64_t index = begin; index < end && !points.stopped && !cancel.stop(); ++index) {
    const std::int64_t block = index % s.channel_blocks, rows = index / s.channel_blocks, image = rows / s.row_blocks;
    tile.x = args.in<float>(0) + image * g.height * g.width * g.pixel;
    tile.y = args.out<float>() + image * g.out_height * g.out_width * g.out_pixel;
    tile.row_begin = rows % s.row_blocks * s.rows;
    tile.row_end = std::min(g.out_height, tile.row_begin + s.rows);
    tile.channel = block * s.channels;
    tile.channels = std::min(s.channels, g.channels - tile.channel);
    simd_small_groups::loops(s.isa).run(tile);
  }
}

constexpr Kernel kKernels[] = {
    {.name = "conv_small_groups",
     .op = "Conv",
     .rank = 22,
     .supports = supports,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack,
     .plan = plan,
     .run = run,
     .layouts = channels_last,
     .fusion = {.epilogue = kFusesBias, .channel_views = channel_views<kViewInput | kViewOutputs>}},
};

}  // namespace

extern const KernelFamily conv_small_groups_kernels;
const KernelFamily conv_small_groups_kernels = {kKernels};

}  // namespace evn
