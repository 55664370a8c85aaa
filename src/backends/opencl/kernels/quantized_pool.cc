// MaxPool of bytes and QLinearAveragePool.
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

// ---- QLinearAveragePool ----

enum : int { kX, kXScale, kXZero, kYScale, kYZero };

constexpr OpenClFunction kAverage{"quantized_product", "average_bytes"};
constexpr std::int64_t kMostTaps = 1 << 16;  // whose sums are exact as floats
constexpr std::int64_t kCounts = 64;

// The struct that quantized_product.cl takes, laid out as there.
struct Mean {
  std::int32_t include_pad, zero_x, limit_h, limit_w;
  float scales[kCounts];
};

struct AverageState {
  QuantizedWindow window;
  QuantizedOutput output;
  Mean mean;
  std::int64_t planes;
};

// True if windows may count unlike numbers of elements, as those over an axis of unknown length may.
bool counts_vary(const OpDesc& desc, const Window& window) {
  const bool include_pad = attr_int(*desc.node, AveragePoolAttr::kCountIncludePad) != 0;
  for (int i = 0; i < window.rank; ++i) {
    const WindowAxis& a = window.axis[i];
    if (a.output < 0) return true;
    if (!include_pad && a.pad_begin > 0) return true;
    if ((a.output - 1) * a.stride - a.pad_begin + a.extent() > a.input + (include_pad ? a.pad_end : 0)) return true;
  }
  return false;
}

Refusal supports_average(const OpDesc& desc) {
  const int rank = desc.inputs[kX].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  if (attr_int(*desc.node, AveragePoolAttr::kChannelsLast) != 0) return "channels_last";
  for (const int i : {int{kXScale}, int{kXZero}, int{kYScale}, int{kYZero}}) {
    if (!is_constant(desc, i)) return "scales and zero points must be constant";
  }
  const Window window = pool_window(*desc.node, desc.inputs[kX].shape);
  if (window.kernel_elements() > (counts_vary(desc, window) ? kCounts : kMostTaps)) return "the kernel is too large";
  return desc.node->epilogue.empty() ? nullptr : "no fused steps";
}

void plan_average(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[kX].shape;
  const Window window = pool_window(*desc.node, x);
  AverageState& s = plan->state<AverageState>();
  set_axes(window, &s.window);
  s.window.flips = desc.inputs[kX].dtype == DType::kInt8 ? 1 : 0;
  s.planes = x.elements(0, 2);
  s.output.kind = QuantizedResult::kByte;
  set_byte_range(desc.outputs[0].dtype, byte_of(desc, kYZero), &s.output.low, &s.output.high, &s.output.zero);
  const WindowAxis h = window.rank == 1 ? WindowAxis{} : window.axis[0];
  const WindowAxis& w = window.axis[window.rank - 1];
  Mean& m = s.mean;
  m.include_pad = attr_int(*desc.node, AveragePoolAttr::kCountIncludePad) != 0 ? 1 : 0;
  m.zero_x = byte_of(desc, kXZero);
  m.limit_h = to_int(h.input + (m.include_pad != 0 ? h.pad_end : 0));
  m.limit_w = to_int(w.input + (m.include_pad != 0 ? w.pad_end : 0));
  const bool vary = counts_vary(desc, window);
  for (std::int64_t i = 0; i < kCounts; ++i) {
    const double count = static_cast<double>(vary ? i + 1 : window.kernel_elements());
    m.scales[i] =
        static_cast<float>(static_cast<double>(float_of(desc, kXScale)) / (static_cast<double>(float_of(desc, kYScale)) * count));
  }
  plan->flops = static_cast<double>(desc.outputs[0].shape.elements()) * static_cast<double>(window.kernel_elements());
  count_bytes(desc, plan);
}

void run_average(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const AverageState& s = args.plan->state<AverageState>();
  const QuantizedWindow& p = s.window;
  launcher(args).run(kAverage, {ceil_div(p.out_h, p.row_chunk), s.planes}, args.inputs[kX], args.outputs[0], p, s.output, s.mean,
                     args.desc->inputs[kX].shape.elements());
}

constexpr Kernel kKernels[] = {
    {.name = "max_pool_bytes", .op = "MaxPool", .rank = 11, .supports = supports, .plan = plan, .run = run},
    {.name = "qlinear_average_pool",
     .op = "QLinearAveragePool",
     .domain = "com.microsoft",
     .rank = 10,
     .supports = supports_average,
     .plan = plan_average,
     .run = run_average},
};

}  // namespace

extern const KernelFamily quantized_pool_opencl_kernels;
const KernelFamily quantized_pool_opencl_kernels = {kKernels};

}  // namespace evn
