// The derivative by the input of a 1 x 1 Conv without strides and pads, over any number of axes: a product of the turned weight,
// packed by each call, and the planes of the gradient as they lie. A tile is a range of positions of some images.
#include <algorithm>

#include "backends/cpu/conv_gradient/conv_pieces.h"
#include "backends/cpu/gemm/pack.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr std::int64_t kSums = 1 << 17;                             // of a tile in one image: partial sums stay in L2
constexpr std::int64_t kColumns = 1 << 12;                          // of a tile in one image, at most
constexpr std::int64_t kFewPositions = 128, kManyPositions = 4096;  // of a tile
enum : int { kInput, kWeight, kGradient };

struct PointwiseState {
  Isa isa;
  std::int64_t images, groups, channels, outputs, plane;  // channels and outputs of a group
  std::int64_t columns, column_tiles;
  std::int64_t tile_images, image_tiles;
};

bool all_are(std::span<const std::int64_t> list, std::int64_t value) {
  return std::all_of(list.begin(), list.end(), [value](std::int64_t v) { return v == value; });
}

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  const Shape& w = d.inputs[kWeight].shape;
  if (w.rank() < 3) return "no spatial axes";
  if (!w.is_known()) return "the weight's shape is not known";
  if (w.elements(2, w.rank()) != 1) return "only 1 x 1";
  if (!all_are(attr_ints(*d.node, ConvAttr::kStrides), 1) || !all_are(attr_ints(*d.node, ConvAttr::kPads), 0))
    return "only without strides and pads";
  return nullptr;
}

void choose_tiles(PointwiseState* s, std::uint32_t threads, double flops) {
  const std::int64_t nr = simd_gemm::loops(s->isa).nr;
  const auto cut = [&](std::int64_t columns, std::int64_t positions) {
    const std::int64_t parts = ceil_div(s->plane, std::max(nr, columns));
    s->columns = ceil_div(ceil_div(s->plane, parts), nr) * nr;
    s->column_tiles = ceil_div(s->plane, s->columns);
    s->tile_images = std::clamp<std::int64_t>(positions / std::min(s->columns, s->plane), 1, s->images);
    s->image_tiles = ceil_div(s->images, s->tile_images);
  };
  std::int64_t columns = std::min(kColumns, kSums / s->channels), positions = kManyPositions;
  cut(columns, positions);
  const double wanted = threads < 2 ? 1 : std::min(2.0 * threads, flops / (2 * kTileCost));
  while (static_cast<double>(s->groups * s->column_tiles * s->image_tiles) < wanted && positions > kFewPositions) {
    positions /= 2;
    columns = std::min(columns, positions);
    cut(columns, positions);
  }
}

std::int64_t packed_floats(const PointwiseState& s) { return packed_a_floats(simd_gemm::loops(s.isa), s.channels, s.outputs); }

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<PointwiseState>();
  const Shape &x = d.inputs[kInput].shape, &w = d.inputs[kWeight].shape;
  s.isa = cpu_isa();
  s.images = x[0];
  s.groups = attr_int(*d.node, ConvAttr::kGroup);
  s.channels = w[1];
  s.outputs = w[0] / s.groups;
  s.plane = x.elements(2, x.rank());
  p->flops = 2.0 * static_cast<double>(s.outputs) * static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
  p->tiles = 0;
  if (x.elements() == 0) return;
  choose_tiles(&s, d.threads, p->flops);
  p->tiles = checked_mul(checked_mul(s.groups, s.image_tiles), s.column_tiles);
  const std::int64_t floats = checked_add(simd_gemm::buffer_floats(simd_gemm::loops(s.isa), 0), packed_floats(s));
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(floats, sizeof(float)));
}

// Element (c, m) of the turned weight is w[m * channels + c]. Returns false if the run is to stop.
bool pack_weight(const PointwiseState& s, const float* w, float* to, CancelPoints* points) {
  const simd_gemm::Loops& loops = simd_gemm::loops(s.isa);
  for (std::int64_t c = 0; c < s.channels; c += loops.mr, to += loops.mr * s.outputs) {
    if (stops(points, 2 * loops.mr * s.outputs)) return false;
    pack_panel(w + c, s.channels, 1, std::min<std::int64_t>(loops.mr, s.channels - c), loops.mr, s.outputs, to);
  }
  return true;
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<PointwiseState>();
  const simd_gemm::Loops& loops = simd_gemm::loops(s.isa);
  float* const buffer = static_cast<float*>(args.thread_scratch);
  float* const packed = buffer + simd_gemm::buffer_floats(loops, 0);
  CancelPoints points = points_of(cancel);
  std::int64_t packed_group = -1;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t column = index % s.column_tiles * s.columns, image_tile = index / s.column_tiles % s.image_tiles;
    const std::int64_t group = index / s.column_tiles / s.image_tiles;
    if (group != packed_group && !pack_weight(s, args.in<float>(kWeight) + group * s.outputs * s.channels, packed, &points)) return;
    packed_group = group;
    simd_gemm::Tile t{};
    t.m = s.channels;
    t.n = std::min(s.columns, s.plane - column);
    t.k = s.outputs;
    t.a_kind = simd_gemm::AKind::kPacked;
    t.a = packed;
    t.b_kind = simd_gemm::BKind::kRows;
    t.ldb = t.ldc = s.plane;
    t.epilogue = epilogue_of(*args.desc);
    t.buffer = buffer;
    t.points = &points;
    const std::int64_t last = std::min(s.images, (image_tile + 1) * s.tile_images);
    for (std::int64_t image = image_tile * s.tile_images; image < last && !points.stopped; ++image) {
      t.b = args.in<float>(kGradient) + (image * s.groups + group) * s.outputs * s.plane + column;
      t.c = args.out<float>() + (image * s.groups + group) * s.channels * s.plane + column;
      loops.run(t);
    }
  }
}

constexpr Kernel kKernels[] = {
    {.name = "conv_input_gradient_pointwise",
     .op = kConvInputGradient,
     .domain = kInternalDomain,
     .rank = 15,
     .supports = supports,
     .plan = plan,
     .run = run,
     .takes_empty = true},
};

}  // namespace

extern const KernelFamily pointwise_gradient_kernels;
const KernelFamily pointwise_gradient_kernels = {kKernels};

}  // namespace evn
