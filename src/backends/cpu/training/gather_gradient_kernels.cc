// GatherGradient of float32. A tile is some places of the axis that was gathered from, for one index of the axes before it; it goes
// through all indices, and adds what belongs to its places in their order.
#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/support.h"
#include "ops/gather.h"
#include "ops/gradient.h"
#include "ops/infra/index.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr std::int64_t kMostBlocks = 64;  // of the axis, each of which reads all indices
constexpr std::int64_t kShort = 8;        // elements that are added without a call

struct GatherState {
  Isa isa;
  std::int64_t places, inner, count;  // `count` indices
  std::int64_t blocks, per_block;     // of places
};

Refusal supports(const OpDesc& d) {
  if (epilogue_of(d) != nullptr) return kNoEpilogue;
  return d.inputs[2].dtype == DType::kFloat32 ? nullptr : kNeedsFloat32;
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<GatherState>();
  const Shape& x = d.inputs[0].shape;
  const int axis = normalize_axis(attr_int(*d.node, GatherAttr::kAxis), x.rank());
  s.isa = cpu_isa();
  s.places = x[axis];
  s.inner = x.elements(axis + 1, x.rank());
  s.count = d.inputs[1].shape.elements();
  const std::int64_t elements = checked_mul(s.places, s.inner);
  s.blocks =
      std::clamp<std::int64_t>(ceil_div(elements, kElementsPerTile), 1, std::min(kMostBlocks, std::max<std::int64_t>(s.places, 1)));
  s.per_block = ceil_div(s.places, s.blocks);
  p->tiles = checked_mul(x.elements(0, axis), s.blocks);
  p->flops = static_cast<double>(d.inputs[2].shape.elements());
  p->bytes = bytes_of(d);
}

// Returns false if the run is to stop.
bool add_line(const GatherState& s, const float* dy, float* dx, CancelPoints* points) {
  if (s.inner < kShort) {
    for (std::int64_t i = 0; i < s.inner; ++i) dx[i] += dy[i];
    return true;
  }
  return by_parts(points, s.inner, 64, 1, [&](std::int64_t i, std::int64_t end) {
    simd_elementwise::loops(s.isa).binary(simd_elementwise::Binary::kAdd, dx + i, 1, dy + i, 1, dx + i, end - i, {1, 0, 0, 0},
                                          false, nullptr);
  });
}

// Returns false if the run is to stop.
bool fill_block(const KernelArgs& args, const GatherState& s, std::int64_t tile, CancelPoints* points) {
  const std::int64_t outer = tile / s.blocks, first = tile % s.blocks * s.per_block;
  const std::int64_t last = std::min(first + s.per_block, s.places);
  if (first >= last) return true;
  float* const dx = args.out<float>() + outer * s.places * s.inner;
  const float* const dy = args.in<float>(2) + outer * s.count * s.inner;
  if (!fill_by_parts(points, dx + first * s.inner, (last - first) * s.inner, 0.0f)) return false;
  const ConstTensor indices = {args.desc->inputs[1], args.inputs[1].address()};
  for (std::int64_t i = 0; i < s.count; ++i) {
    const std::int64_t place = index_at(indices, i, s.places);
    const bool is_here = place >= first && place < last;
    if (stops(points, is_here ? kFarElement : 2)) return false;
    if (is_here && !add_line(s, dy + i * s.inner, dx + place * s.inner, points)) return false;
  }
  return true;
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<GatherState>();
  CancelPoints points = points_of(cancel);
  for (std::int64_t tile = begin; tile < end && !cancel.stop(); ++tile) {
    if (!fill_block(args, s, tile, &points)) return;
  }
}

constexpr Kernel kKernels[] = {
    {.name = "gather_gradient",
     .op = kGatherGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run},
};

}  // namespace

extern const KernelFamily gather_gradient_kernels;
const KernelFamily gather_gradient_kernels = {kKernels};

}  // namespace evn
