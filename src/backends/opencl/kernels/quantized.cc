// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, QLinearAdd, QLinearMul, QLinearGlobalAveragePool and ByteTable.
#include "backends/opencl/kernels/quantized.h"

#include "backends/opencl/kernels/broadcast.h"
#include "backends/opencl/kernels/quantized_dynamic.h"
#include "ops/byte_table.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr OpenClFunction kQuantize{"quantized", "quantize"};
constexpr OpenClFunction kDequantize{"quantized", "dequantize"};
constexpr OpenClFunction kRangeOfParts{"quantized", "range_of_parts"};
constexpr OpenClFunction kQuantizeByRange{"quantized", "quantize_by_range"};
constexpr OpenClFunction kCombine{"quantized", "combine_bytes"};
constexpr OpenClFunction kMean{"quantized", "mean_of_bytes"};
constexpr OpenClFunction kLookUp{"quantized", "look_up"};

// ---- QuantizeLinear, DequantizeLinear ----

enum : int { kX, kScale, kZero };
enum : int { kAxis, kBlockSize };

struct LinearState {
  std::int64_t count, inner, length;
  std::int32_t type, zero;
};

Refusal refuse_blocks(const OpDesc& desc) {
  if (!is_float(desc.inputs[kScale])) return "scales must be float32";
  const std::size_t attributes = desc.node->op->attributes.size();
  const bool blocks = attributes > kBlockSize && attr_given(*desc.node, kBlockSize) && attr_int(*desc.node, kBlockSize) != 0;
  return blocks ? "blocks" : nullptr;
}

Refusal supports_quantize(const OpDesc& desc) {
  if (!is_float(desc.inputs[kX]) || !is_byte(desc.outputs[0].dtype)) return "only float32 to int8 and uint8";
  return desc.node->epilogue.empty() ? refuse_blocks(desc) : "no fused steps";
}

// The type's number in quantized.cl; -1: none.
std::int32_t number_type(DType dtype) {
  switch (dtype) {
    case DType::kUint8: return 0;
    case DType::kInt8: return 1;
    case DType::kUint16: return 2;
    case DType::kInt16: return 3;
    case DType::kInt32: return 4;
    default: return -1;
  }
}

Refusal supports_dequantize(const OpDesc& desc) {
  if (number_type(desc.inputs[kX].dtype) < 0 || !is_float(desc.outputs[0])) return "only integers of up to 32 bits to float32";
  return refuse_blocks(desc);
}

LinearState& plan_linear(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[kX].shape;
  LinearState& s = plan->state<LinearState>();
  s.count = x.elements();
  s.inner = s.count < 1 ? 1 : s.count;
  s.length = 1;
  if (desc.inputs[kScale].shape.elements() != 1) {
    const int axis = normalize_axis(attr_int(*desc.node, kAxis), x.rank());
    s.inner = x.elements(axis + 1, x.rank());
    s.length = x[axis];
  }
  plan->flops = static_cast<double>(s.count);
  count_bytes(desc, plan);
  return s;
}

void plan_quantize(const OpDesc& desc, KernelPlan* plan) {
  LinearState& s = plan_linear(desc, plan);
  s.type = desc.outputs[0].dtype == DType::kInt8 ? 2 : 1;
  s.zero = byte_kind(desc, kZero);
}

void plan_dequantize(const OpDesc& desc, KernelPlan* plan) {
  LinearState& s = plan_linear(desc, plan);
  s.type = number_type(desc.inputs[kX].dtype);
  s.zero = desc.has_input(kZero) ? 1 : 0;
}

const Buffer& zero_or_scale(const KernelArgs& args) { return args.inputs[args.desc->has_input(kZero) ? kZero : kScale]; }

void run_quantize(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const LinearState& s = args.plan->state<LinearState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, s.count);
  cl.run(kQuantize, {ceil_div(s.count, chunk)}, args.inputs[kX], args.inputs[kScale], zero_or_scale(args), args.outputs[0], s.count,
         chunk, s.inner, s.length, s.type, s.zero);
}

void run_dequantize(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const LinearState& s = args.plan->state<LinearState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, s.count);
  cl.run(kDequantize, {ceil_div(s.count, chunk)}, args.inputs[kX], args.inputs[kScale], zero_or_scale(args), args.outputs[0],
         s.count, chunk, s.inner, s.length, s.type, s.zero, args.desc->node->epilogue);
}

// ---- DynamicQuantizeLinear ----

void quantize_by_range(Launcher& cl, const Buffer& x, std::int64_t count, const Buffer& range, const Buffer& y, const Buffer& scale,
                       const Buffer& zero, std::int32_t wants) {
  cl.run(kRangeOfParts, {kRangeParts}, x, range, count, ceil_div(count, kRangeParts));
  const std::int64_t chunk = chunk_elements(cl, count);
  cl.run(kQuantizeByRange, {std::max<std::int64_t>(ceil_div(count, chunk), 1)}, x, range, y, scale, zero, count, chunk, wants);
}

Refusal supports_dynamic(const OpDesc& desc) {
  if (!is_float(desc.inputs[0])) return "only float32";
  return desc.node->epilogue.empty() ? nullptr : "no fused steps";
}

void plan_dynamic(const OpDesc& desc, KernelPlan* plan) {
  plan->scratch_bytes = kRangeBytes;
  plan->flops = 2.0 * static_cast<double>(desc.inputs[0].shape.elements());
  plan->bytes = 2.25 * static_cast<double>(desc.inputs[0].size_bytes());
}

void run_dynamic(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const auto wanted = [&](std::size_t i) { return i < args.outputs.size() && args.outputs[i].memory != nullptr; };
  const auto output = [&](std::size_t i) { return wanted(i) ? args.outputs[i] : args.scratch; };
  const std::int32_t wants = (wanted(1) ? 1 : 0) | (wanted(2) ? 2 : 0) | (wanted(0) ? 4 : 0);
  const std::int64_t count = args.desc->inputs[0].shape.elements();
  quantize_by_range(launcher(args), args.inputs[0], count, args.scratch, output(0), output(1), output(2), wants);
}

// ---- QLinearAdd, QLinearMul ----

enum : int { kA = 0, kB = 3, kYScale = 6 };

// The struct that quantized.cl takes, laid out as there.
struct ByteSum {
  std::int32_t multiplies, kind, rank, padding;
  float a_zero, b_zero, a_scale, b_scale, zero, low, high, unused;
  std::int64_t inner, rows, row_chunk, chunk;
  std::int32_t a_step, b_step;
  std::int64_t dim[kMaxRank], a_stride[kMaxRank], b_stride[kMaxRank];
};

Refusal supports_sum(const OpDesc& desc) {
  if (!desc.node->epilogue.empty()) return "no fused steps";
  for (const int i : {kA + 1, kA + 2, kB + 1, kB + 2, int{kYScale}, kYScale + 1}) {
    if (!is_constant(desc, i)) return "scales and zero points must be constant";
  }
  return nullptr;
}

template <bool kMultiplies>
void plan_sum(const OpDesc& desc, KernelPlan* plan) {
  ByteSum& p = plan->state<ByteSum>();
  p.multiplies = kMultiplies ? 1 : 0;
  p.kind = byte_kind(desc, kA);
  merge_pair(desc.inputs[kA].shape, desc.inputs[kB].shape, desc.outputs[0].shape, &p);
  p.a_zero = static_cast<float>(byte_of(desc, kA + 2));
  p.b_zero = static_cast<float>(byte_of(desc, kB + 2));
  const float a = float_of(desc, kA + 1), b = float_of(desc, kB + 1), y = float_of(desc, kYScale);
  p.a_scale = kMultiplies ? static_cast<float>(static_cast<double>(a) * static_cast<double>(b) / static_cast<double>(y)) : a / y;
  p.b_scale = b / y;
  set_byte_range(desc.outputs[0].dtype, byte_of(desc, kYScale + 1), &p.low, &p.high, &p.zero);
  for (const int i : {kA, kB}) {
    if (desc.inputs[static_cast<std::size_t>(i)].shape == desc.outputs[0].shape) plan->in_place |= 1u << i;
  }
  plan->flops = 2.0 * static_cast<double>(desc.outputs[0].shape.elements());
  count_bytes(desc, plan);
}

void run_sum(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  ByteSum p = args.plan->state<ByteSum>();
  Launcher& cl = launcher(args);
  p.chunk = chunk_elements(cl, p.inner * p.rows);
  p.row_chunk = p.inner >= p.chunk ? 1 : ceil_div(p.chunk, p.inner > 0 ? p.inner : 1);
  cl.run(kCombine, {ceil_div(p.inner, p.chunk), ceil_div(p.rows, p.row_chunk)}, args.inputs[kA], args.inputs[kB], args.outputs[0],
         p);
}

// ---- QLinearGlobalAveragePool ----

enum : int { kMeanScale = 3, kMeanZero = 4 };

struct MeanState {
  std::int64_t planes, elements, step, up, down;
  std::int32_t shift, x_zero, y_zero, is_signed;
};

// x scale / y scale is up / down * 2^shift, where up and down are whole numbers of 24 bits and down is positive. Beyond the bounds
// of shift each mean is 0, or an end of the bytes unless it is 0.
void set_scale_fraction(float x, float y, MeanState* s) {
  int x_power = 0, y_power = 0;
  s->up = static_cast<std::int64_t>(std::ldexp(std::frexp(y < 0 ? -x : x, &x_power), 24));
  s->down = static_cast<std::int64_t>(std::ldexp(std::frexp(std::fabs(y), &y_power), 24));
  s->shift = std::clamp(x_power - y_power, -10, 80);
}

Refusal supports_mean(const OpDesc& desc) {
  if (!desc.node->epilogue.empty()) return "no fused steps";
  for (const int i : {1, 2, int{kMeanScale}, int{kMeanZero}}) {
    if (!is_constant(desc, i)) return "scales and zero points must be constant";
  }
  const float x = float_of(desc, 1), y = float_of(desc, kMeanScale);
  return std::isfinite(x) && std::isfinite(y) && y != 0 ? nullptr : "scales that are infinite or NaN, or a scale of 0";
}

void plan_mean(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const bool channels_last = attr_int(*desc.node, 0) != 0;
  MeanState& s = plan->state<MeanState>();
  const std::int64_t channels = x[channels_last ? x.rank() - 1 : 1];
  s.planes = x[0] * channels;
  s.elements = channels_last ? x.elements(1, x.rank() - 1) : x.elements(2, x.rank());
  s.step = channels_last ? channels : 1;
  set_scale_fraction(float_of(desc, 1), float_of(desc, kMeanScale), &s);
  s.x_zero = byte_of(desc, 2);
  s.y_zero = byte_of(desc, kMeanZero);
  s.is_signed = desc.inputs[0].dtype == DType::kInt8 ? 1 : 0;
  plan->flops = static_cast<double>(x.elements());
  count_bytes(desc, plan);
}

void run_mean(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const MeanState& s = args.plan->state<MeanState>();
  launcher(args).run(kMean, {s.planes}, args.inputs[0], args.outputs[0], s.planes, s.elements, s.step, s.up, s.down, s.shift,
                     s.x_zero, s.y_zero, s.is_signed);
}

// ---- ByteTable ----

Refusal supports_table(const OpDesc& desc) { return desc.node->epilogue.empty() ? nullptr : "no fused steps"; }

void plan_table(const OpDesc& desc, KernelPlan* plan) {
  plan->in_place = 1;
  plan->flops = static_cast<double>(desc.outputs[0].shape.elements());
  count_bytes(desc, plan);
}

void run_table(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Launcher& cl = launcher(args);
  const std::int64_t count = args.desc->outputs[0].shape.elements(), chunk = chunk_elements(cl, count);
  cl.run(kLookUp, {ceil_div(count, chunk)}, args.inputs[0], args.inputs[1], args.outputs[0], count, chunk);
}

constexpr const char* kMicrosoft = "com.microsoft";
constexpr Kernel row(const char* name, const char* op, const char* domain, Refusal (*supports)(const OpDesc&),
                     void (*plan)(const OpDesc&, KernelPlan*),
                     void (*run)(const KernelArgs&, std::int64_t, std::int64_t, const Cancel&)) {
  return {.name = name, .op = op, .domain = domain, .rank = 10, .supports = supports, .plan = plan, .run = run};
}

constexpr Kernel kKernels[] = {
    row("quantize_linear", "QuantizeLinear", "", supports_quantize, plan_quantize, run_quantize),
    row("dequantize_linear", "DequantizeLinear", "", supports_dequantize, plan_dequantize, run_dequantize),
    row("dynamic_quantize_linear", "DynamicQuantizeLinear", "", supports_dynamic, plan_dynamic, run_dynamic),
    row("qlinear_add", "QLinearAdd", kMicrosoft, supports_sum, plan_sum<false>, run_sum),
    row("qlinear_mul", "QLinearMul", kMicrosoft, supports_sum, plan_sum<true>, run_sum),
    row("qlinear_global_average_pool", "QLinearGlobalAveragePool", kMicrosoft, supports_mean, plan_mean, run_mean),
    row("byte_table", kByteTable, kInternalDomain, supports_table, plan_table, run_table),
};

}  // namespace

void run_dynamic_quantize(Launcher& cl, const Buffer& x, std::int64_t elements, const Buffer& range, const Buffer& y,
                          const Buffer& scale, const Buffer& zero) {
  quantize_by_range(cl, x, elements, range, y, scale, zero, 7);
}

extern const KernelFamily quantized_opencl_kernels;
const KernelFamily quantized_opencl_kernels = {kKernels};

}  // namespace evn
