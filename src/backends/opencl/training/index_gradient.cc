// The derivatives of Gather and Slice, float32.
#include <algorithm>

#include "backends/opencl/training/support.h"
#include "ops/gather.h"
#include "ops/slice.h"

namespace evn {
namespace {

constexpr OpenClFunction kClearLists{"index_gradient", "clear_lists"};
constexpr OpenClFunction kLinkLists{"index_gradient", "link_lists"};
constexpr OpenClFunction kGather{"index_gradient", "gather_gradient"};
constexpr OpenClFunction kSlice{"index_gradient", "slice_gradient"};

Refusal supports(const OpDesc& desc) { return refuse_unless_plain(desc); }

// ---- Gather ----

enum : int { kX, kIndices, kDy };

struct GatherState {
  std::int64_t outer, length, inner, count;
  std::int32_t wide;
};

void plan_gather(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[kX].shape;
  const int axis = normalize_axis(attr_int(*desc.node, GatherAttr::kAxis), x.rank());
  GatherState& s = plan->state<GatherState>();
  s = {x.elements(0, axis), x[axis], x.elements(axis + 1, x.rank()), desc.inputs[kIndices].shape.elements(),
       desc.inputs[kIndices].dtype == DType::kInt64};
  plan->scratch_bytes = checked_mul(static_cast<std::size_t>(to_int(checked_add(s.length, s.count))), sizeof(std::int32_t));
  plan->flops = static_cast<double>(desc.inputs[kDy].shape.elements());
  plan->bytes = 2.0 * static_cast<double>(desc.outputs[0].size_bytes());
}

void run_gather(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const GatherState& s = args.plan->state<GatherState>();
  Launcher& cl = launcher(args);
  const std::size_t heads_bytes = static_cast<std::size_t>(s.length) * sizeof(std::int32_t);
  const Buffer heads = part_of(args.scratch, 0, heads_bytes);
  const Buffer next = part_of(args.scratch, heads_bytes, args.scratch.size - heads_bytes);
  const std::int64_t piece = chunk_elements(cl, s.length), chunk = chunk_elements(cl, s.outer * s.length * s.inner);
  cl.run(kClearLists, {ceil_div(s.length, piece)}, heads, s.length, piece);
  cl.run(kLinkLists, {1}, args.inputs[kIndices], heads, next, s.count, s.length, s.wide);
  const std::int64_t places = s.inner >= chunk ? 1 : ceil_div(chunk, s.inner);
  cl.run(kGather, {ceil_div(s.inner, chunk), ceil_div(s.length, places), s.outer}, args.inputs[kDy], heads, next, args.outputs[0],
         s.count, s.length, s.inner, chunk, places);
}

// ---- Slice ----

constexpr std::size_t kSliced = 5;  // dy

// The struct that index_gradient.cl takes, laid out as there.
struct Sliced {
  std::int32_t rank, padding;
  std::int64_t rows, chunk;
  std::int64_t dim[kMaxRank], start[kMaxRank], step[kMaxRank], count[kMaxRank];
};

Refusal supports_slice(const OpDesc& desc) {
  if (desc.inputs[kX].shape.rank() == 0) return "a scalar";
  for (int i = 1; i < static_cast<int>(kSliced); ++i) {
    if (desc.has_input(i) && desc.constant(i) == nullptr) return "starts, ends, axes and steps must be constant";
  }
  return refuse_unless_plain(desc);
}

void plan_slice(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[kX].shape;
  SliceAxis axes[kMaxRank];
  const Shape taken = resolve_slice(*desc.node, KnownInputs(desc).span(), x, axes);
  if (taken != desc.inputs[kSliced].shape) fail(EVN_ERROR_INVALID_ARGUMENT, "dy has not the shape of the slice");
  Sliced& p = plan->state<Sliced>();
  p.rank = x.rank();
  p.rows = x.elements(0, x.rank() - 1);
  for (int i = 0; i < x.rank(); ++i) {
    p.dim[i] = x[i];
    p.start[i] = axes[i].start;
    p.step[i] = axes[i].step;
    p.count[i] = axes[i].count;
  }
  plan->bytes = 2.0 * static_cast<double>(desc.outputs[0].size_bytes());
}

void run_slice(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Sliced p = args.plan->state<Sliced>();
  Launcher& cl = launcher(args);
  const std::int64_t width = std::max<std::int64_t>(p.dim[p.rank - 1], 1);
  p.chunk = cl.is_cpu() ? std::max<std::int64_t>(1, chunk_elements(cl, p.rows * width) / width) : 1;
  cl.run(kSlice, {ceil_div(p.rows, p.chunk)}, args.inputs[kSliced], args.outputs[0], p);
}

constexpr Kernel kKernels[] = {
    {.name = "gather_gradient",
     .op = kGatherGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports,
     .plan = plan_gather,
     .run = run_gather},
    {.name = "slice_gradient",
     .op = kSliceGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports_slice,
     .plan = plan_slice,
     .run = run_slice},
};

}  // namespace

extern const KernelFamily index_gradient_opencl_kernels;
const KernelFamily index_gradient_opencl_kernels = {kKernels};

}  // namespace evn
