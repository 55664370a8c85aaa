// Dropout of float32, with the numbers that the reference draws.
#include "backends/opencl/training/support.h"
#include "ops/infra/random.h"

namespace evn {
namespace {

constexpr OpenClFunction kDropout{"dropout", "dropout"};

enum : int { kX, kRatio, kTrains };

// Before version 12 it never drops anything when a model runs, and has its ratio as an attribute.
Refusal supports(const OpDesc& desc) {
  if (desc.has_input(kRatio) && !is_float(desc.inputs[kRatio])) return "only float32";
  if (is_wanted(desc, 1) && desc.outputs[1].dtype != DType::kBool) return "only with a mask of bools";
  if (!is_wanted(desc, 0)) return "without its first output";
  return refuse_unless_plain(desc);
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  plan->in_place = 1;
  plan->flops = 40.0 * static_cast<double>(desc.inputs[kX].shape.elements());
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const OpDesc& desc = *args.desc;
  Launcher& cl = launcher(args);
  const RandomStream stream({*desc.node, {}, {}, args.services != nullptr ? *args.services : RunServices{}});
  const std::int64_t n = desc.inputs[kX].shape.elements(), chunk = chunk_elements(cl, n);
  const std::int32_t has_ratio = desc.has_input(kRatio), has_trains = desc.has_input(kTrains), has_mask = is_wanted(desc, 1);
  const Buffer& x = args.inputs[kX];
  cl.run(kDropout, {ceil_div(n, chunk)}, x, has_ratio != 0 ? args.inputs[kRatio] : x, has_trains != 0 ? args.inputs[kTrains] : x,
         args.outputs[0], has_mask != 0 ? args.outputs[1] : args.outputs[0], n, chunk, stream.key(), stream.run(), has_ratio,
         has_trains, has_mask);
}

constexpr Kernel kKernels[] = {{.name = "dropout", .op = "Dropout", .rank = 10, .supports = supports, .plan = plan, .run = run}};

}  // namespace

extern const KernelFamily dropout_opencl_kernels;
const KernelFamily dropout_opencl_kernels = {kKernels};

}  // namespace evn
