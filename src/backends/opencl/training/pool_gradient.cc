// The derivatives of MaxPool and AveragePool, float32.
#include <algorithm>

#include "backends/opencl/training/support.h"
#include "ops/pool.h"

namespace evn {
namespace {

constexpr OpenClFunction kMaxPlanes{"pool_gradient", "max_pool_planes"};
constexpr OpenClFunction kMaxPoints{"pool_gradient", "max_pool_points"};
constexpr OpenClFunction kAveragePoints{"pool_gradient", "average_pool_points"};

enum : int { kX, kDy };

// The struct that pool_gradient.cl takes, laid out as there.
struct Pool {
  std::int32_t in_h, in_w, out_h, out_w, kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  std::int32_t border_h, border_w, include_pad, piece;
};
struct PoolState {
  Pool pool;
  std::int64_t planes;
};

Refusal supports(const OpDesc& desc) {
  if (const Refusal refusal = refuse_unless_plain(desc)) return refusal;
  const int rank = desc.inputs[kX].shape.rank();
  return rank == 3 || rank == 4 ? nullptr : "only one or two spatial axes";
}

template <bool kMaximum>
void plan(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[kX].shape;
  const Window window = pool_window(*desc.node, x);
  const WindowAxis h = window.rank == 1 ? WindowAxis{} : window.axis[0];
  const WindowAxis w = window.rank == 1 ? window.axis[0] : window.axis[1];
  PoolState& s = plan->state<PoolState>();
  s.planes = x.elements(0, 2);
  s.pool = {to_int(h.input),
            to_int(w.input),
            to_int(h.output),
            to_int(w.output),
            to_int(h.kernel),
            to_int(w.kernel),
            to_int(h.stride),
            to_int(w.stride),
            to_int(h.dilation),
            to_int(w.dilation),
            to_int(h.pad_begin),
            to_int(w.pad_begin),
            to_int(h.input + h.pad_end),
            to_int(w.input + w.pad_end),
            !kMaximum && attr_int(*desc.node, AveragePoolAttr::kCountIncludePad) != 0 ? 1 : 0,
            1};
  fail_if(refuse_large_plane(h, w));
  plan->flops = static_cast<double>(desc.inputs[kDy].shape.elements()) * static_cast<double>(window.kernel_elements());
  count_bytes(desc, plan);
}

void run_max(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const PoolState& s = args.plan->state<PoolState>();
  Launcher& cl = launcher(args);
  if (cl.is_cpu()) return cl.run(kMaxPlanes, {s.planes}, args.inputs[kX], args.inputs[kDy], args.outputs[0], s.planes, s.pool);
  cl.run(kMaxPoints, {std::int64_t{s.pool.in_h} * s.pool.in_w, s.planes}, args.inputs[kX], args.inputs[kDy], args.outputs[0],
         s.pool);
}

void run_average(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const PoolState& s = args.plan->state<PoolState>();
  Launcher& cl = launcher(args);
  Pool p = s.pool;
  p.piece = cl.is_cpu() ? std::max(p.in_w, 1) : 1;
  cl.run(kAveragePoints, {std::int64_t{p.in_h} * ceil_div(p.in_w, p.piece), s.planes}, args.inputs[kDy], args.outputs[0], p);
}

constexpr Kernel kKernels[] = {
    {.name = "max_pool_gradient",
     .op = kMaxPoolGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports,
     .plan = plan<true>,
     .run = run_max},
    {.name = "average_pool_gradient",
     .op = kAveragePoolGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports,
     .plan = plan<false>,
     .run = run_average},
};

}  // namespace

extern const KernelFamily pool_gradient_opencl_kernels;
const KernelFamily pool_gradient_opencl_kernels = {kKernels};

}  // namespace evn
