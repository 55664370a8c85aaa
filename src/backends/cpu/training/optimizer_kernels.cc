// OptimizerStep and GradientNorm of float32. The elements of all tensors are numbered one after another; a tile is a run of them.
#include <cmath>
#include <limits>

#include "backends/cpu/support.h"
#include "backends/cpu/training/optimizer_loops.h"
#include "ops/merge.h"
#include "ops/training/optimizer_step.h"

namespace evn {
namespace {

using simd_optimizer::Update;

// Calls f(tensor, first element, elements) for the parts of the tensors that elements [begin, end) of all of them are.
template <typename F>
void for_each_part(std::span<const TensorDesc> tensors, std::int64_t begin, std::int64_t end, F&& f) {
  std::int64_t base = 0;
  for (std::size_t t = 0; t < tensors.size() && base < end; ++t) {
    const std::int64_t n = tensors[t].shape.elements();
    const std::int64_t first = std::max(begin - base, std::int64_t{0}), last = std::min(end - base, n);
    if (first < last) f(t, first, last - first);
    base += n;
  }
}

std::int64_t elements_of(std::span<const TensorDesc> tensors) {
  std::int64_t n = 0;
  for (const TensorDesc& t : tensors) n = checked_add(n, t.shape.elements());
  return n;
}

// --------------------------------------------------------------------------------------------------------- the step --

struct StepState {
  Isa isa;
  OptimizerRule rule;
  std::int64_t parameters, count;
};

Refusal step_supports(const OpDesc& d) {
  if (epilogue_of(d) != nullptr) return kNoEpilogue;
  for (std::size_t i = OptimizerInput::kFirst; i < d.inputs.size(); ++i) {
    if (d.inputs[i].dtype != DType::kFloat32) return kNeedsFloat32;
  }
  for (const TensorDesc& t : d.outputs) {
    if (t.dtype != DType::kFloat32) return "only with all outputs";
  }
  return nullptr;
}

void step_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<StepState>();
  s.isa = cpu_isa();
  s.rule = optimizer_rule(*d.node);
  s.parameters = static_cast<std::int64_t>(optimizer_parameters(s.rule.kept, d.inputs.size()));
  s.count = elements_of(d.outputs.first(static_cast<std::size_t>(s.parameters)));
  p->tiles = ceil_div(s.count, kElementsPerTile);
  p->flops = 8.0 * static_cast<double>(s.count);
  p->bytes = bytes_of(d);
}

int step_written_over(const OpDesc& d, int output) { return optimizer_input_of(optimizer_kept(*d.node), d.inputs.size(), output); }

Update update_of(const OptimizerRule& r) {
  switch (r.kind) {
    case OptimizerKind::kSgd: return r.kept == 0 ? Update::kPlain : Update::kMomentum;
    case OptimizerKind::kAdagrad: return Update::kAdagrad;
    case OptimizerKind::kRmsprop: {
      if (r.momentum != 0) return r.centered ? Update::kRmspropBoth : Update::kRmspropMomentum;
      return r.centered ? Update::kRmspropCentered : Update::kRmsprop;
    }
    default: return Update::kAdam;
  }
}

simd_optimizer::Step numbers_of(const OptimizerRule& r, const float* rates) {
  const OptimizerNumbers n = optimizer_numbers(r, rates);
  const auto narrow = [](double x) { return static_cast<float>(x); };
  const bool is_adam = update_of(r) == Update::kAdam, is_sgd = r.kind == OptimizerKind::kSgd;
  return {.scale = narrow(n.scale),
          .clip = n.clip > 0 ? narrow(n.clip) : std::numeric_limits<float>::infinity(),
          .weight_decay = narrow(n.weight_decay),
          .decay = narrow(n.decay),
          .rate = narrow(n.rate),
          .second = narrow(n.second),
          .epsilon = narrow(r.epsilon),
          .old_average = narrow(r.momentum),
          .new_average = narrow(is_adam ? 1 - r.beta1 : 1 - r.dampening),
          .old_square = narrow(is_adam ? r.beta2 : r.alpha),
          .new_square = narrow(is_adam ? 1 - r.beta2 : 1 - r.alpha),
          .of_gradient = is_sgd && r.nesterov ? 1.0f : 0.0f,
          .of_momentum = is_sgd && r.nesterov ? narrow(r.momentum) : 1.0f};
}

// A run of elements of one parameter and of what belongs to it.
simd_optimizer::Run run_of(const KernelArgs& args, const StepState& s, std::size_t tensor, std::int64_t first) {
  const auto in = [&](std::int64_t kind) {
    return args.in<float>(static_cast<int>(OptimizerInput::kFirst + kind * s.parameters + static_cast<std::int64_t>(tensor))) +
           first;
  };
  const auto out = [&](std::int64_t kind) {
    return args.out<float>(static_cast<int>(kind * s.parameters + static_cast<std::int64_t>(tensor))) + first;
  };
  simd_optimizer::Run run = {.x = in(0), .gradient = in(1), .kept = {}, .to_x = out(0), .to_kept = {}};
  for (std::size_t k = 0; k < s.rule.kept; ++k) {
    run.kept[k] = in(2 + static_cast<std::int64_t>(k));
    run.to_kept[k] = out(1 + static_cast<std::int64_t>(k));
  }
  return run;
}

void copy_unless_there(float* to, const float* from, std::int64_t n) {
  if (to != from) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
}

void step_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<StepState>();
  const simd_optimizer::Loops& loops = simd_optimizer::loops(s.isa);
  const bool applies = *args.in<std::uint8_t>(OptimizerInput::kApply) != 0;
  const simd_optimizer::Step numbers = numbers_of(s.rule, args.in<float>(OptimizerInput::kRates));
  Update update = update_of(s.rule);
  const bool is_first = args.in<float>(OptimizerInput::kRates)[OptimizerRate::kStep] <= 1;
  if (update == Update::kMomentum && is_first) update = Update::kFirstMomentum;
  const std::span<const TensorDesc> parameters = args.desc->outputs.first(static_cast<std::size_t>(s.parameters));
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t last = std::min(s.count, (index + 1) * kElementsPerTile);
    for_each_part(parameters, index * kElementsPerTile, last, [&](std::size_t tensor, std::int64_t first, std::int64_t n) {
      const simd_optimizer::Run run = run_of(args, s, tensor, first);
      if (!applies) {
        copy_unless_there(run.to_x, run.x, n);
        for (std::size_t k = 0; k < s.rule.kept; ++k) copy_unless_there(run.to_kept[k], run.kept[k], n);
      } else {
        loops.step(update, numbers, run, n);
      }
    });
  }
}

// ----------------------------------------------------------------------------------------------------- GradientNorm --

struct NormState {
  Isa isa;
  std::int64_t count;
};

std::span<const TensorDesc> tensors_of(const OpDesc& d) { return d.inputs.subspan(GradientNormInput::kFirst); }

// The sum of each tile, behind the number of those that are done.
static_assert(kDoneBytes == sizeof(double));
double* sums_of(const KernelArgs& args) { return static_cast<double*>(args.scratch.address()) + 1; }

Refusal norm_supports(const OpDesc& d) {
  if (epilogue_of(d) != nullptr) return kNoEpilogue;
  for (const TensorDesc& t : d.inputs) {
    if (t.dtype != DType::kFloat32) return kNeedsFloat32;
  }
  return nullptr;
}

void norm_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<NormState>();
  s.isa = cpu_isa();
  s.count = elements_of(tensors_of(d));
  p->tiles = std::max<std::int64_t>(1, ceil_div(s.count, kElementsPerTile));
  p->scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(p->tiles + 1, sizeof(double)));
  p->cleared_bytes = kDoneBytes;
  p->flops = 2.0 * static_cast<double>(s.count);
  p->bytes = bytes_of(d);
}

void finish_norm(const KernelArgs& args) {
  double sum = 0;
  for (std::int64_t i = 0; i < args.plan->tiles; ++i) sum += sums_of(args)[i];
  const auto is_wanted = [&](std::size_t i) {
    return i < args.desc->outputs.size() && args.desc->outputs[i].dtype != DType::kUndefined;
  };
  const auto scale = static_cast<double>(*args.in<float>(GradientNormInput::kScale));
  if (is_wanted(0)) *args.out<float>(0) = static_cast<float>(std::sqrt(sum * scale * scale));
  // The squares of all finite floats have a finite sum in double.
  if (is_wanted(1)) *args.out<std::uint8_t>(1) = std::isfinite(sum) ? 1 : 0;
}

void norm_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<NormState>();
  const simd_optimizer::Loops& loops = simd_optimizer::loops(s.isa);
  for (std::int64_t index = begin; index < end; ++index) {
    if (cancel.stop()) return;
    double sum = 0;
    const std::int64_t last = std::min(s.count, (index + 1) * kElementsPerTile);
    for_each_part(tensors_of(*args.desc), index * kElementsPerTile, last,
                  [&](std::size_t tensor, std::int64_t first, std::int64_t n) {
                    sum += loops.sum_squares(args.in<float>(GradientNormInput::kFirst + static_cast<int>(tensor)) + first, n);
                  });
    sums_of(args)[index] = sum;
  }
  if (are_all_done(args, end - begin)) finish_norm(args);
}

constexpr Kernel kKernels[] = {
    {.name = "optimizer_step",
     .op = kOptimizerStep,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = step_supports,
     .plan = step_plan,
     .run = step_run,
     .takes_empty = true,
     .written_over = step_written_over},
    {.name = "gradient_norm",
     .op = kGradientNorm,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = norm_supports,
     .plan = norm_plan,
     .run = norm_run,
     .takes_empty = true},
};

}  // namespace

extern const KernelFamily optimizer_kernels;
const KernelFamily optimizer_kernels = {kKernels};

}  // namespace evn
