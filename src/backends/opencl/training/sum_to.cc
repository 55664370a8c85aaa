// SumTo and RepeatTo of float32.
#include "backends/opencl/kernels/reduce.h"
#include "backends/opencl/training/support.h"

namespace evn {
namespace {

constexpr OpenClFunction kRepeat{"sum_to", "repeat_to"};

enum : int { kLike, kX };

Refusal supports(const OpDesc& desc) { return refuse_unless_plain(desc); }

// Calls f(dim, whether `small` repeats along it) for the axes of `large`, an axis of which may be two.
template <typename F>
void each_axis(const Shape& large, const Shape& small, F&& f) {
  const int missing = large.rank() - small.rank();
  for (int i = 0; i < large.rank(); ++i) {
    const std::int64_t kept = i < missing ? 1 : small[i - missing];
    f(kept == 0 ? 1 : large[i] / kept, true);
    f(kept, false);
  }
}

void plan_sum(const OpDesc& desc, KernelPlan* plan) {
  MergedAxes axes;
  each_axis(desc.inputs[kX].shape, desc.inputs[kLike].shape, [&](std::int64_t n, bool repeats) { axes.add(n, repeats); });
  plan->state<Reduce>() = make_reduce(axes, Fold::kSum);
  plan->flops = static_cast<double>(desc.inputs[kX].shape.elements());
  plan->bytes = static_cast<double>(desc.inputs[kX].size_bytes());
}

void run_sum(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  run_reduce(launcher(args), args.plan->state<Reduce>(), args.inputs[kX], args.outputs[0], {});
}

// The struct that sum_to.cl takes, laid out as there.
struct Repeat {
  std::int32_t rank, step;
  std::int64_t inner, rows, row_chunk, chunk;
  std::int64_t dim[2 * kMaxRank], stride[2 * kMaxRank];
};
static_assert(sizeof(Repeat) <= KernelPlan::kStateBytes);

void plan_repeat(const OpDesc& desc, KernelPlan* plan) {
  MergedAxes axes;
  each_axis(desc.outputs[0].shape, desc.inputs[kX].shape, [&](std::int64_t n, bool repeats) { axes.add(n, repeats); });
  Repeat& p = plan->state<Repeat>();
  p.inner = p.rows = 1;
  p.rank = std::max(axes.rank - 1, 0);
  std::int64_t elements = 1;
  for (int i = axes.rank - 1; i >= 0; --i) {
    const bool is_inner = i == axes.rank - 1;
    (is_inner ? p.inner : p.dim[i]) = axes.dim[i];
    if (is_inner) p.step = axes.is_reduced[i] ? 0 : 1;
    else p.rows *= axes.dim[i];
    p.stride[i] = axes.is_reduced[i] ? 0 : elements;
    if (!axes.is_reduced[i]) elements *= axes.dim[i];
  }
  count_bytes(desc, plan);
}

void run_repeat(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Launcher& cl = launcher(args);
  Repeat p = args.plan->state<Repeat>();
  p.chunk = chunk_elements(cl, p.inner * p.rows);
  p.row_chunk = p.inner >= p.chunk ? 1 : ceil_div(p.chunk, p.inner);
  cl.run(kRepeat, {ceil_div(p.inner, p.chunk), ceil_div(p.rows, p.row_chunk)}, args.inputs[kX], args.outputs[0], p);
}

constexpr Kernel kKernels[] = {
    {.name = "sum_to", .op = kSumTo, .domain = kInternalDomain, .rank = 10, .supports = supports, .plan = plan_sum, .run = run_sum},
    {.name = "repeat_to",
     .op = kRepeatTo,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports,
     .plan = plan_repeat,
     .run = run_repeat},
};

}  // namespace

extern const KernelFamily sum_to_opencl_kernels;
const KernelFamily sum_to_opencl_kernels = {kKernels};

}  // namespace evn
