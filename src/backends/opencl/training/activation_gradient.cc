// The derivatives of activations, float32.
#include "backends/opencl/training/support.h"

namespace evn {
namespace {

constexpr OpenClFunction kGradient{"activation_gradient", "activation_gradient"};

// Numbers as activation_gradient.cl has them.
enum class Slope : std::int32_t { kRelu, kSigmoid, kTanh, kHardSwish, kErf, kGelu, kGeluTanh };

Refusal supports(const OpDesc& desc) { return refuse_unless_plain(desc); }

void plan(const OpDesc& desc, KernelPlan* plan) {
  plan->in_place = 3;
  plan->flops = 8.0 * static_cast<double>(desc.inputs[0].shape.elements());
  count_bytes(desc, plan);
}

template <Slope kSlope>
void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Launcher& cl = launcher(args);
  Slope slope = kSlope;
  if (slope == Slope::kGelu && attr_string(*args.desc->node, 0) == "tanh") slope = Slope::kGeluTanh;
  const std::int64_t n = args.desc->inputs[0].shape.elements(), chunk = chunk_elements(cl, n);
  cl.run(kGradient, {ceil_div(n, chunk)}, args.inputs[0], args.inputs[1], args.outputs[0], n, chunk, slope);
}

template <Slope kSlope>
constexpr Kernel row(const char* name, const char* op) {
  return {.name = name, .op = op, .domain = kInternalDomain, .rank = 10, .supports = supports, .plan = plan, .run = run<kSlope>};
}

constexpr Kernel kKernels[] = {
    row<Slope::kRelu>("relu_gradient", kReluGradient), row<Slope::kSigmoid>("sigmoid_gradient", kSigmoidGradient),
    row<Slope::kTanh>("tanh_gradient", kTanhGradient), row<Slope::kHardSwish>("hard_swish_gradient", kHardSwishGradient),
    row<Slope::kErf>("erf_gradient", kErfGradient),    row<Slope::kGelu>("gelu_gradient", kGeluGradient),
};

}  // namespace

extern const KernelFamily activation_gradient_opencl_kernels;
const KernelFamily activation_gradient_opencl_kernels = {kKernels};

}  // namespace evn
