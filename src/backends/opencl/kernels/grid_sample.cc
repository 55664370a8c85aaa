// GridSample of float32, in all of its modes.
#include "backends/opencl/kernels/support.h"
#include "ops/infra/window.h"

namespace evn {
namespace {

constexpr OpenClFunction kGridSample{"grid_sample", "grid_sample"};

// The struct that grid_sample.cl takes, laid out as there.
struct Sample {
  std::int32_t axes, mode, padding, align;
  std::int64_t places, channels, plane, chunk;
  std::int32_t size[kMaxSpatial];
  std::int32_t keeps_place;
};

struct State {
  Sample p;
  std::int64_t images;
};

enum : int { kAlign, kMode, kPadding, kCubicBorder };

Refusal supports(const OpDesc& desc) { return refuse_unless_float(desc); }

void plan(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const std::string& mode = attr_string(*desc.node, kMode);
  const std::string& padding = attr_string(*desc.node, kPadding);
  State& s = plan->state<State>();
  Sample& p = s.p;
  p.axes = x.rank() - 2;
  p.mode = mode == "nearest" ? 1 : mode == "cubic" || mode == "bicubic" ? 2 : 0;
  p.padding = padding == "border" ? 1 : padding == "reflection" ? 2 : 0;
  p.keeps_place = p.mode == 2 && attr_string(*desc.node, kCubicBorder) == "taps";
  p.align = attr_int(*desc.node, kAlign) != 0;
  p.places = desc.inputs[1].shape.elements(1, p.axes + 1);
  p.channels = x[1];
  p.plane = x.elements(2, x.rank());
  for (int i = 0; i < kMaxSpatial; ++i) p.size[i] = i < kMaxSpatial - p.axes ? 1 : to_int(x[2 + i - (kMaxSpatial - p.axes)]);
  s.images = x[0];
  plan->flops = 16.0 * static_cast<double>(desc.outputs[0].shape.elements());
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  Launcher& cl = launcher(args);
  Sample p = s.p;
  p.chunk = cl.is_cpu() ? 64 : 1;
  cl.run(kGridSample, {ceil_div(p.places, p.chunk), s.images}, args.inputs[0], args.inputs[1], args.outputs[0], p,
         args.desc->node->epilogue);
}

constexpr Kernel kKernels[] = {
    {.name = "grid_sample", .op = "GridSample", .rank = 10, .supports = supports, .plan = plan, .run = run},
};

}  // namespace

extern const KernelFamily grid_sample_opencl_kernels;
const KernelFamily grid_sample_opencl_kernels = {kKernels};

}  // namespace evn
