// DFT, STFT, HannWindow and HammingWindow of float32.
#include <algorithm>

#include "backends/opencl/kernels/support.h"
#include "ops/op.h"

namespace evn {
namespace {

constexpr OpenClFunction kTurns{"spectrum", "turns"};
constexpr OpenClFunction kTransform{"spectrum", "transform"};
constexpr OpenClFunction kWindow{"spectrum", "window_sum"};

// The struct that spectrum.cl takes, laid out as there.
struct Transform {
  std::int32_t parts, out_parts, inverse, mirrored, has_window, padding;
  std::int64_t given, length, outputs, inner;
  std::int64_t x_outer, x_inner, x_step;
  std::int64_t y_outer, y_inner, y_step;
};

struct TransformState {
  Transform p;
  std::int64_t signals;
};

std::int64_t whole_value(const Weight& w) { return w.desc.dtype == DType::kInt64 ? *w.as<std::int64_t>() : *w.as<std::int32_t>(); }

Refusal supports(const OpDesc& desc) { return is_float(desc.inputs[0]) ? nullptr : "only float32"; }

void finish_plan(KernelPlan* plan) {
  const TransformState& s = plan->state<TransformState>();
  plan->scratch_bytes = checked_mul<std::size_t>(2 * sizeof(float), static_cast<std::size_t>(s.p.length));
  plan->flops = 8.0 * static_cast<double>(s.signals) * static_cast<double>(s.p.outputs) * static_cast<double>(s.p.length);
}

// ---- DFT ----

enum : int { kInverse, kOneSided, kAxis17 };

void plan_dft(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const Shape& y = desc.outputs[0].shape;
  const int parts = x.rank() - 1;
  std::int64_t wanted = -2;
  if (desc.node->op->since < 20) wanted = attr_int(*desc.node, kAxis17);
  else if (desc.has_input(2)) wanted = whole_value(*desc.constant(2));
  const int axis = normalize_axis(wanted, x.rank());
  const bool inverse = attr_int(*desc.node, kInverse) != 0;
  const bool one_sided = attr_int(*desc.node, kOneSided) != 0;
  const bool to_real = inverse && one_sided;
  TransformState& s = plan->state<TransformState>();
  Transform& p = s.p;
  p.parts = static_cast<std::int32_t>(x[parts]);
  p.out_parts = static_cast<std::int32_t>(y[parts]);
  p.inverse = inverse;
  p.mirrored = to_real;
  p.length = desc.has_input(1) ? whole_value(*desc.constant(1)) : to_real ? 2 * (x[axis] - 1) : x[axis];
  p.given = std::min(p.length, x[axis]);
  p.outputs = y[axis];
  p.inner = x.elements(axis + 1, parts);
  s.signals = x.elements(0, axis) * p.inner;
  p.x_inner = p.parts;
  p.x_step = p.inner * p.parts;
  p.x_outer = x[axis] * p.x_step;
  p.y_inner = p.out_parts;
  p.y_step = p.inner * p.out_parts;
  p.y_outer = y[axis] * p.y_step;
  finish_plan(plan);
  count_bytes(desc, plan);
}

// ---- STFT ----

enum : int { kSignal, kStep, kFrameWindow, kFrameLength };

void plan_stft(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[kSignal].shape;
  const Shape& y = desc.outputs[0].shape;
  TransformState& s = plan->state<TransformState>();
  Transform& p = s.p;
  p.parts = x.rank() == 3 ? static_cast<std::int32_t>(x[2]) : 1;
  p.out_parts = 2;
  p.has_window = desc.has_input(kFrameWindow);
  p.length = desc.has_input(kFrameLength) ? whole_value(*desc.constant(kFrameLength))
             : p.has_window != 0          ? desc.inputs[kFrameWindow].shape[0]
                                          : x[1];
  p.given = p.length;
  p.outputs = y[2];
  p.inner = y[1];
  s.signals = y[0] * y[1];
  p.x_outer = x[1] * p.parts;
  p.x_inner = whole_value(*desc.constant(kStep)) * p.parts;
  p.x_step = p.parts;
  p.y_outer = y[1] * y[2] * 2;
  p.y_inner = y[2] * 2;
  p.y_step = 2;
  finish_plan(plan);
  count_bytes(desc, plan);
}

void run_transform(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const TransformState& s = args.plan->state<TransformState>();
  Launcher& cl = launcher(args);
  const std::int64_t piece = chunk_elements(cl, s.p.length);
  cl.run(kTurns, {ceil_div(s.p.length, piece)}, args.scratch, s.p.length, piece);
  const std::int64_t chunk = cl.is_cpu() ? std::max<std::int64_t>(1, 16384 / s.p.length) : 1;
  const Buffer& window = s.p.has_window != 0 ? args.inputs[kFrameWindow] : args.inputs[0];
  cl.run(kTransform, {ceil_div(s.p.outputs, chunk), s.signals}, args.inputs[0], window, args.scratch, args.outputs[0], s.p, chunk,
         args.desc->node->epilogue);
}

// ---- windows, whose size is an input that is read by value ----

struct WindowState {
  std::int64_t n, steps;
  float a0, a1;
};

Refusal supports_window(const OpDesc& desc) { return is_float(desc.outputs[0]) ? nullptr : "only to float32"; }

void plan_window(const OpDesc& desc, float a0, float a1, KernelPlan* plan) {
  const std::int64_t n = desc.outputs[0].shape[0];
  const bool periodic = attr_int(*desc.node, 0) != 0;
  plan->state<WindowState>() = {n, std::max<std::int64_t>(periodic ? n : n - 1, 1), a0, a1};
}

void plan_hann(const OpDesc& desc, KernelPlan* plan) { plan_window(desc, 0.5f, 0.5f, plan); }
void plan_hamming(const OpDesc& desc, KernelPlan* plan) { plan_window(desc, 25.0f / 46, 21.0f / 46, plan); }

void run_window(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const WindowState& s = args.plan->state<WindowState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, s.n);
  cl.run(kWindow, {ceil_div(s.n, chunk)}, args.outputs[0], s.n, chunk, s.steps, s.a0, s.a1, args.desc->node->epilogue);
}

constexpr Kernel kKernels[] = {
    {.name = "dft", .op = "DFT", .rank = 10, .supports = supports, .plan = plan_dft, .run = run_transform},
    {.name = "stft", .op = "STFT", .rank = 10, .supports = supports, .plan = plan_stft, .run = run_transform},
    {.name = "hann_window", .op = "HannWindow", .rank = 10, .supports = supports_window, .plan = plan_hann, .run = run_window},
    {.name = "hamming_window",
     .op = "HammingWindow",
     .rank = 10,
     .supports = supports_window,
     .plan = plan_hamming,
     .run = run_window},
};

}  // namespace

extern const KernelFamily spectrum_opencl_kernels;
const KernelFamily spectrum_opencl_kernels = {kKernels};

}  // namespace evn
