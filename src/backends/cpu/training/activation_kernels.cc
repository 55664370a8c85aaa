// Derivatives of activations of float32, in any layout. A tile is a run of elements.
#include "backends/cpu/follow.h"
#include "backends/cpu/support.h"
#include "backends/cpu/training/activation_loops.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {
namespace {

using simd_activation::Slope;

struct ActivationState {
  Isa isa;
  std::int64_t count;
};

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<ActivationState>();
  s.isa = cpu_isa();
  s.count = d.outputs[0].shape.elements();
  p->tiles = ceil_div(s.count, kElementsPerTile);
  p->in_place = 3;
  p->flops = 8.0 * static_cast<double>(s.count);
  p->bytes = bytes_of(d);
}

template <Slope S>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<ActivationState>();
  Slope slope = S;
  if (S == Slope::kGelu && attr_string(*args.desc->node, 0) == "tanh") slope = Slope::kGeluTanh;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * kElementsPerTile;
    const std::int64_t n = std::min(s.count - first, kElementsPerTile);
    simd_activation::loops(s.isa).gradient(slope, args.in<float>(0) + first, args.in<float>(1) + first, args.out<float>() + first,
                                           n);
  }
}

template <Slope S>
constexpr Kernel row(const char* name, const char* op) {
  return {.name = name,
          .op = op,
          .domain = kInternalDomain,
          .rank = 10,
          .supports = plain_float32,
          .plan = plan,
          .run = run<S>,
          .layouts = follow_broadcast};
}

constexpr Kernel kKernels[] = {
    row<Slope::kRelu>("relu_gradient", kReluGradient), row<Slope::kSigmoid>("sigmoid_gradient", kSigmoidGradient),
    row<Slope::kTanh>("tanh_gradient", kTanhGradient), row<Slope::kHardSwish>("hard_swish_gradient", kHardSwishGradient),
    row<Slope::kErf>("erf_gradient", kErfGradient),    row<Slope::kGelu>("gelu_gradient", kGeluGradient),
};

}  // namespace

extern const KernelFamily activation_kernels;
const KernelFamily activation_kernels = {kKernels};

}  // namespace evn
