// LRN of float32.
#include "ops/lrn.h"

#include "backends/opencl/kernels/support.h"

namespace evn {
namespace {

constexpr OpenClFunction kLrn{"lrn", "lrn"};

struct State {
  std::int64_t planes, channels, inner, before, after;
  float scale, beta, bias;
};

Refusal supports(const OpDesc& desc) { return refuse_unless_float(desc); }

void plan(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const Node& node = *desc.node;
  const LrnWindow window = lrn_window(node, x[1]);
  State& s = plan->state<State>();
  s = {x.elements(0, 2), x[1], x.elements(2, x.rank()),          window.before,
       window.after,     0,    attr_float(node, LrnAttr::kBeta), attr_float(node, LrnAttr::kBias)};
  s.scale = attr_float(node, LrnAttr::kAlpha) / static_cast<float>(attr_int(node, LrnAttr::kSize));
  plan->flops = 2.0 * static_cast<double>(x.elements()) * static_cast<double>(window.before + window.after + 1);
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, s.inner);
  cl.run(kLrn, {ceil_div(s.inner, chunk), s.planes}, args.inputs[0], args.outputs[0], s.channels, s.inner, chunk, s.before, s.after,
         s.scale, s.beta, s.bias, args.desc->node->epilogue);
}

constexpr Kernel kKernels[] = {{.name = "lrn", .op = "LRN", .rank = 10, .supports = supports, .plan = plan, .run = run}};

}  // namespace

extern const KernelFamily lrn_opencl_kernels;
const KernelFamily lrn_opencl_kernels = {kKernels};

}  // namespace evn
