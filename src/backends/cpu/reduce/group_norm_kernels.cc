// InstanceNormalization and GroupNormalization, float32: mean and variance of a group of channels, then a difference and a
// multiply-add for each element. A tile is some groups.
#include <cmath>

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/reduce/rows_loops.h"
#include "backends/cpu/support.h"
#include "ops/layer_norm.h"

namespace evn {
namespace {

struct GroupNormState {
  Isa isa;
  std::int64_t groups, channels, inner;  // of an image; of a group; elements of a channel
  std::int64_t span;                     // channels that share an element of scale and bias
  std::int64_t units, per_tile;          // groups in all; of a tile
};

constexpr std::int64_t kPart = kLongLine;

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  const bool has_stash = d.node->op_type == "GroupNormalization" && d.node->op->since >= 21;
  return !has_stash || stash_is_float32(*d.node, GroupNormAttr::kStashType) ? nullptr : kStashRefusal;
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<GroupNormState>();
  const Shape& x = d.inputs[0].shape;
  s = GroupNormState{};
  s.isa = cpu_isa();
  const bool grouped = d.node->op_type == "GroupNormalization";
  s.groups = grouped ? attr_int(*d.node, GroupNormAttr::kGroups) : x[1];
  s.channels = s.groups > 0 ? x[1] / s.groups : 0;
  s.inner = x.elements(2, x.rank());
  s.span = grouped && d.node->op->since < 21 ? s.channels : 1;
  s.units = x.elements() == 0 ? 0 : checked_mul(x[0], s.groups);
  s.per_tile = units_per_tile(s.units, 2.0 * static_cast<double>(s.channels) * static_cast<double>(s.inner), kElementsPerTile);
  p->tiles = ceil_div(s.units, s.per_tile);
  p->in_place = 1;
  p->flops = 6.0 * static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

// The sum of f(part of x) over parts of n elements. False: the run is to stop.
template <typename F>
bool sum_of_parts(CancelPoints* points, const float* x, std::int64_t n, double* sum, F f) {
  *sum = 0;
  for (std::int64_t at = 0; at < n; at += kPart) {
    const std::int64_t count = std::min(kPart, n - at);
    if (stops(points, count)) return false;
    *sum += static_cast<double>(f(x + at, count));
  }
  return true;
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<GroupNormState>();
  const simd_rows::Loops& rows = simd_rows::loops(s.isa);
  const simd_elementwise::Loops& loops = simd_elementwise::loops(s.isa);
  const Epilogue* const epilogue = epilogue_of(*args.desc);
  const auto epsilon = static_cast<double>(attr_float(*args.desc->node, GroupNormAttr::kEpsilon));
  const std::int64_t size = s.channels * s.inner;
  CancelPoints points = points_of(cancel);
  for (std::int64_t unit = begin * s.per_tile; unit < std::min(end * s.per_tile, s.units) && !cancel.stop(); ++unit) {
    const float* const x = args.in<float>(0) + unit * size;
    float* const y = args.out<float>() + unit * size;
    double sum, squares;
    if (!sum_of_parts(&points, x, size, &sum,
                      [&](const float* at, std::int64_t n) { return rows.reduce(simd_rows::Reduce::kSum, at, n); }))
      return;
    const double mean = sum / static_cast<double>(size);
    const auto near = static_cast<float>(mean);
    if (!sum_of_parts(&points, x, size, &squares, [&](const float* at, std::int64_t n) { return rows.squares(at, near, n); }))
      return;
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(size) + epsilon);
    for (std::int64_t c = 0; c < s.channels; ++c) {
      const std::int64_t at = (unit % s.groups * s.channels + c) / s.span;
      const double scale = static_cast<double>(args.in<float>(1)[at]) * inverse;
      // x - near is small where the elements are alike: x * scale could be large, and the sum with the bias have few digits.
      const double rest = mean - static_cast<double>(near);
      const auto offset = static_cast<float>(static_cast<double>(args.in<float>(2)[at]) - rest * scale);
      const bool goes_on =
          by_parts(&points, s.inner, 64, epilogue == nullptr ? 1 : kFunction, [&](std::int64_t from, std::int64_t until) {
            loops.affine(near, static_cast<float>(scale), offset, x + c * s.inner + from, y + c * s.inner + from, until - from,
                         epilogue);
          });
      if (!goes_on) return;
    }
  }
}

constexpr Kernel row(const char* name, const char* op) {
  return {.name = name, .op = op, .rank = 10, .supports = supports, .plan = plan, .run = run};
}

constexpr Kernel kKernels[] = {row("instance_norm", "InstanceNormalization"), row("group_norm", "GroupNormalization")};

}  // namespace

extern const KernelFamily group_norm_kernels;
const KernelFamily group_norm_kernels = {kKernels};

}  // namespace evn
