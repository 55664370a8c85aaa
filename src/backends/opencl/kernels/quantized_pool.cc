// MaxPool of bytes.
#include "backends/opencl/kernels/quantized.h"
#include "ops/pool.h"

namespace evn {
namespace {

constexpr OpenClFunction kLargest{"quantized_product", "largest_bytes"};

struct State {
  QuantizedWindow window;
  std::int64_t planes;
};

Refusal supports(const OpDesc& desc) {
  if (!is_byte(desc.inputs[0].dtype)) return "only int8 and uint8";
  if (desc.outputs.size() > 1 && desc.outputs[1].dtype != DType::kUndefined) return "indices";
  const int rank = desc.inputs[0].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  return desc.node->epilogue.empty() ? nullptr : "no fused steps";
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const Window window = pool_window(*desc.node, x);
  State& s = plan->state<State>();
  set_axes(window, &s.window);
  s.window.flips = desc.inputs[0].dtype == DType::kInt8 ? 1 : 0;
  s.planes = x.elements(0, 2);
  plan->flops = static_cast<double>(desc.outputs[0].shape.elements()) * static_cast<double>(window.kernel_elements());
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  const QuantizedWindow& p = s.window;
  launcher(args).run(kLargest, {ceil_div(p.out_h, p.row_chunk), s.planes}, args.inputs[0], args.outputs[0], p,
                     args.desc->inputs[0].shape.elements());
}

constexpr Kernel kKernels[] = {
    {"max_pool_bytes", "MaxPool", "", 11, supports, nullptr, nullptr, nullptr, plan, run},
};

}  // namespace

extern const KernelFamily quantized_pool_opencl_kernels;
const KernelFamily quantized_pool_opencl_kernels = {kKernels};

}  // namespace evn
