// GlobalAveragePool, GlobalMaxPool, MaxPool and AveragePool.
#include "ops/pool.h"

#include <algorithm>

#include "backends/opencl/kernels/grouped.h"
#include "backends/opencl/kernels/support.h"

namespace evn {
namespace {

constexpr OpenClFunction kGlobalAverage{"pool", "global_average"};
constexpr OpenClFunction kGlobalMaximum{"pool", "global_maximum"};
constexpr OpenClFunction kPool{"pool", "pool"};
constexpr OpenClFunction kGroupedFold = row_function("fold_rows");

struct GlobalState {
  std::int64_t planes;
  std::int64_t elements;
};

// The struct that pool.cl takes, laid out as there.
struct Params {
  std::int32_t in_h, in_w, out_h, out_w, kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  std::int32_t border_h, border_w, include_pad, maximum, piece;
};
struct PoolState {
  Params params;
  std::int64_t planes;
};

Refusal supports_global(const OpDesc& desc) { return refuse_unless_float(desc); }

void plan_global(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  plan->state<GlobalState>() = {x.elements(0, 2), x.elements(2, x.rank())};
  plan->flops = static_cast<double>(x.elements());
  count_bytes(desc, plan);
}

template <const OpenClFunction& kFunction, Fold kFold>
void run_global(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const GlobalState& s = args.plan->state<GlobalState>();
  Launcher& cl = launcher(args);
  if (wants_row_groups(cl, s.elements)) {
    return cl.run(kGroupedFold, row_grid(s.planes), args.inputs[0], args.outputs[0], s.elements, kFold, args.desc->node->epilogue);
  }
  cl.run(kFunction, {s.planes}, args.inputs[0], args.outputs[0], s.planes, s.elements, args.desc->node->epilogue);
}

Refusal supports_pool(const OpDesc& desc) {
  if (const Refusal refusal = refuse_unless_float(desc)) return refusal;
  const int rank = desc.inputs[0].shape.rank();
  return rank == 3 || rank == 4 ? nullptr : "only one or two spatial axes";
}

// Longer sums are those of window.cc.
Refusal supports_average(const OpDesc& desc) {
  constexpr std::int64_t kLongest = 1024;
  if (const Refusal refusal = supports_pool(desc)) return refusal;
  std::int64_t elements = 1;
  for (const std::int64_t dim : attr_ints(*desc.node, AveragePoolAttr::kKernelShape)) elements = checked_mul(elements, dim);
  return elements <= kLongest ? nullptr : "its window is long";
}

void plan_pool(const OpDesc& desc, KernelPlan* plan, bool maximum) {
  const Shape& x = desc.inputs[0].shape;
  const Window window = pool_window(*desc.node, x);
  const WindowAxis h = window.rank == 1 ? WindowAxis{} : window.axis[0];
  const WindowAxis w = window.rank == 1 ? window.axis[0] : window.axis[1];
  PoolState& state = plan->state<PoolState>();
  state.planes = x.elements(0, 2);
  Params& p = state.params;
  p.in_h = to_int(h.input), p.in_w = to_int(w.input);
  p.out_h = to_int(h.output), p.out_w = to_int(w.output);
  p.kernel_h = to_int(h.kernel), p.kernel_w = to_int(w.kernel);
  p.stride_h = to_int(h.stride), p.stride_w = to_int(w.stride);
  p.dilation_h = to_int(h.dilation), p.dilation_w = to_int(w.dilation);
  p.pad_h = to_int(h.pad_begin), p.pad_w = to_int(w.pad_begin);
  p.border_h = to_int(h.input + h.pad_end), p.border_w = to_int(w.input + w.pad_end);
  p.maximum = maximum;
  p.include_pad = !maximum && attr_given(*desc.node, AveragePoolAttr::kCountIncludePad) &&
                  attr_int(*desc.node, AveragePoolAttr::kCountIncludePad) != 0;
  plan->flops = static_cast<double>(desc.outputs[0].shape.elements()) * static_cast<double>(window.kernel_elements());
  count_bytes(desc, plan);
}

void plan_max(const OpDesc& desc, KernelPlan* plan) { plan_pool(desc, plan, true); }
void plan_average(const OpDesc& desc, KernelPlan* plan) { plan_pool(desc, plan, false); }

void run_pool(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const PoolState& s = args.plan->state<PoolState>();
  Launcher& cl = launcher(args);
  Params p = s.params;
  p.piece = cl.is_cpu() ? std::max(p.out_w, 1) : 1;
  const Grid grid{checked_mul<std::int64_t>(p.out_h, ceil_div(p.out_w, p.piece)), s.planes};
  cl.run(kPool, grid, args.inputs[0], args.outputs[0], p, args.desc->node->epilogue);
}

constexpr Kernel kKernels[] = {
    {.name = "global_average_pool",
     .op = "GlobalAveragePool",
     .rank = 10,
     .supports = supports_global,
     .plan = plan_global,
     .run = run_global<kGlobalAverage, Fold::kMean>},
    {.name = "global_max_pool",
     .op = "GlobalMaxPool",
     .rank = 10,
     .supports = supports_global,
     .plan = plan_global,
     .run = run_global<kGlobalMaximum, Fold::kMax>},
    {.name = "max_pool", .op = "MaxPool", .rank = 10, .supports = supports_pool, .plan = plan_max, .run = run_pool},
    {.name = "average_pool", .op = "AveragePool", .rank = 10, .supports = supports_average, .plan = plan_average, .run = run_pool},
};

}  // namespace

extern const KernelFamily pool_opencl_kernels;
const KernelFamily pool_opencl_kernels = {kKernels};

}  // namespace evn
