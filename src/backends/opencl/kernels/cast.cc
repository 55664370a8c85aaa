// Cast and CastLike between float32, float16, bfloat16, bool and integers. Exact, as ops/cast.cc says.
#include "backends/opencl/kernels/support.h"

namespace evn {
namespace {

constexpr OpenClFunction kCast{"cast", "cast"};

struct State {
  std::int64_t count;
  std::int32_t from, to;
};

// Numbers of cast.cl; -1: none.
std::int32_t number_of(DType dtype) {
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBool,  DType::kUint8, DType::kInt8,   DType::kUint16,
                              DType::kInt16,   DType::kUint32,  DType::kInt32, DType::kInt64, DType::kUint64, DType::kBfloat16};
  for (std::size_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i] == dtype) return static_cast<std::int32_t>(i);
  }
  return -1;
}

Refusal supports(const OpDesc& desc) {
  if (number_of(desc.inputs[0].dtype) < 0 || number_of(desc.outputs[0].dtype) < 0) return "not for this element type";
  // The bits of these may change on the way through: a NaN's payload, a bool that is neither 0 nor 1.
  const bool changes = is_16bit_float(desc.inputs[0].dtype) || desc.inputs[0].dtype == DType::kBool;
  return changes && desc.inputs[0].dtype == desc.outputs[0].dtype ? "only to another type" : nullptr;
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  plan->state<State>() = {desc.outputs[0].shape.elements(), number_of(desc.inputs[0].dtype), number_of(desc.outputs[0].dtype)};
  plan->bytes = static_cast<double>(desc.inputs[0].size_bytes()) + static_cast<double>(desc.outputs[0].size_bytes());
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, s.count);
  cl.run(kCast, {ceil_div(s.count, chunk)}, args.inputs[0], args.outputs[0], s.count, chunk, s.from, s.to,
         args.desc->node->epilogue);
}

constexpr Kernel kKernels[] = {
    {.name = "cast", .op = "Cast", .rank = 10, .supports = supports, .plan = plan, .run = run},
    {.name = "cast_like", .op = "CastLike", .rank = 10, .supports = supports, .plan = plan, .run = run},
};

}  // namespace

bool can_cast_to_float(DType dtype) { return number_of(dtype) >= 0; }

void run_cast_to_float(Launcher& cl, const Buffer& x, DType dtype, std::int64_t elements, const Buffer& y) {
  const std::int64_t chunk = chunk_elements(cl, elements);
  cl.run(kCast, {ceil_div(elements, chunk)}, x, y, elements, chunk, number_of(dtype), number_of(DType::kFloat32), Epilogue{});
}

extern const KernelFamily cast_opencl_kernels;
const KernelFamily cast_opencl_kernels = {kKernels};

}  // namespace evn
