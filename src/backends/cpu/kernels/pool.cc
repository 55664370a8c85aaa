// MaxPool without indices and AveragePool, one or two spatial axes; GlobalAveragePool and GlobalMaxPool as reductions of a plane.
#include "ops/pool.h"

#include "backends/cpu/simd/elementwise.h"
#include "backends/cpu/simd/rows.h"
#include "backends/cpu/support.h"
#include "backends/cpu/window_plan.h"

namespace evn {
namespace {

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;  // indices are int64
  const int rank = d.inputs[0].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  std::int64_t taps = 1;
  for (const std::int64_t k : attr_ints(*d.node, MaxPoolAttr::kKernelShape)) {
    if (k > kMaxWindowTaps) return "the kernel is too large";
    taps *= k;
  }
  return taps > kMaxWindowTaps ? "the kernel is too large" : nullptr;
}

void plan(const OpDesc& d, KernelPlan* p) {
  const Window window = pool_window(*d.node, d.inputs[0].shape);
  plan_window(d, window, p);
  p->flops = static_cast<double>(window.kernel_elements()) * static_cast<double>(d.outputs[0].shape.elements());
}

void run_max(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const simd_window::Loops& loops = simd_window::loops(args.plan->state<WindowState>().isa);
  for_each_strip(args, begin, end, cancel, [&](simd_window::Strip& strip, std::int64_t) { loops.max(strip); });
}

void run_average(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const simd_window::Loops& loops = simd_window::loops(args.plan->state<WindowState>().isa);
  const bool include_pad = attr_int(*args.desc->node, AveragePoolAttr::kCountIncludePad) != 0;
  for_each_strip(args, begin, end, cancel, [&](simd_window::Strip& strip, std::int64_t) {
    strip.include_pad = include_pad;
    loops.average(strip);
  });
}

struct GlobalState {
  Isa isa;
  std::int64_t planes, plane, per_tile;
};

Refusal global_supports(const OpDesc& d) { return all_float32(d) ? nullptr : kNeedsFloat32; }

void global_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<GlobalState>();
  const Shape& x = d.inputs[0].shape;
  s.isa = cpu_isa();
  s.planes = x.elements(0, 2);
  s.plane = x.elements(2, x.rank());
  s.per_tile = units_per_tile(s.planes, static_cast<double>(s.plane), kElementsPerTile);
  p->tiles = ceil_div(s.planes, s.per_tile);
  p->flops = static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

template <simd_rows::Reduce Op>
void global_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<GlobalState>();
  const simd_rows::Loops& loops = simd_rows::loops(s.isa);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * s.per_tile;
    const std::int64_t last = first + s.per_tile < s.planes ? first + s.per_tile : s.planes;
    for (std::int64_t i = first; i < last; ++i) args.out<float>()[i] = loops.reduce(Op, args.in<float>(0) + i * s.plane, s.plane);
    simd_elementwise::loops(s.isa).chain(args.out<float>() + first, last - first, epilogue_of(*args.desc));
  }
}

constexpr Kernel kKernels[] = {
    {"max_pool", "MaxPool", "", 10, supports, nullptr, nullptr, nullptr, plan, run_max},
    {"average_pool", "AveragePool", "", 10, supports, nullptr, nullptr, nullptr, plan, run_average},
    {"global_average_pool", "GlobalAveragePool", "", 10, global_supports, nullptr, nullptr, nullptr, global_plan,
     global_run<simd_rows::Reduce::kMean>},
    {"global_max_pool", "GlobalMaxPool", "", 10, global_supports, nullptr, nullptr, nullptr, global_plan,
     global_run<simd_rows::Reduce::kMax>},
};

}  // namespace

extern const KernelFamily pool_kernels;
const KernelFamily pool_kernels = {kKernels};

}  // namespace evn
