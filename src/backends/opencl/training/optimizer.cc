// OptimizerStep and GradientNorm of float32: a kernel for each tensor, which reads the rates where they lie.
#include "ops/training/optimizer_step.h"

#include <cmath>

#include "backends/opencl/training/support.h"

namespace evn {
namespace {

constexpr OpenClFunction kStep{"optimizer", "optimizer_step"};
constexpr OpenClFunction kSumSquares{"optimizer", "sum_squares"};
constexpr OpenClFunction kFinishNorm{"optimizer", "finish_norm"};

constexpr std::size_t kFirst = OptimizerInput::kFirst;

// ---- the step ----

// The struct that optimizer.cl takes, laid out as there.
enum class Update : std::int32_t { kPlain, kMomentum, kAdam, kAdagrad, kRmsprop };
struct Rule {
  Update kind;
  std::int32_t nesterov, centered, decoupled;
  float momentum, new_momentum, new_average, old_square, new_square, epsilon, log_beta1, log_beta2, rate_decay;
};

struct StepState {
  Rule rule;
  std::int32_t kept;
  std::int64_t parameters;
};

Refusal supports_step(const OpDesc& desc) {
  if (const Refusal refusal = refuse_unless_plain(desc)) return refusal;
  for (const TensorDesc& t : desc.outputs) {
    if (!is_float(t)) return "only with all outputs, float32";
  }
  return nullptr;
}

Update update_of(const OptimizerRule& r) {
  switch (r.kind) {
    case OptimizerKind::kSgd: return r.kept == 0 ? Update::kPlain : Update::kMomentum;
    case OptimizerKind::kAdagrad: return Update::kAdagrad;
    case OptimizerKind::kRmsprop: return Update::kRmsprop;
    default: return Update::kAdam;
  }
}

void plan_step(const OpDesc& desc, KernelPlan* plan) {
  const OptimizerRule r = optimizer_rule(*desc.node);
  const auto narrow = [](double x) { return static_cast<float>(x); };
  StepState& s = plan->state<StepState>();
  const bool is_adam = update_of(r) == Update::kAdam;
  s.rule = {.kind = update_of(r),
            .nesterov = r.nesterov ? 1 : 0,
            .centered = r.centered ? 1 : 0,
            .decoupled = r.kind == OptimizerKind::kAdamW ? 1 : 0,
            .momentum = narrow(r.momentum),
            .new_momentum = narrow(1 - r.dampening),
            .new_average = narrow(1 - r.beta1),
            .old_square = narrow(is_adam ? r.beta2 : r.alpha),
            .new_square = narrow(is_adam ? 1 - r.beta2 : 1 - r.alpha),
            .epsilon = narrow(r.epsilon),
            .log_beta1 = narrow(std::log(r.beta1)),
            .log_beta2 = narrow(std::log(r.beta2)),
            .rate_decay = narrow(r.rate_decay)};
  s.kept = static_cast<std::int32_t>(r.kept);
  s.parameters = static_cast<std::int64_t>(optimizer_parameters(r.kept, desc.inputs.size()));
  count_bytes(desc, plan);
  plan->flops = 2.0 * plan->bytes;
}

int step_written_over(const OpDesc& desc, int output) {
  return optimizer_input_of(optimizer_kept(*desc.node), desc.inputs.size(), output);
}

void run_step(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const StepState& s = args.plan->state<StepState>();
  Launcher& cl = launcher(args);
  const auto count = static_cast<std::size_t>(s.parameters);
  for (std::size_t t = 0; t < count; ++t) {
    const std::int64_t n = args.desc->outputs[t].shape.elements(), chunk = chunk_elements(cl, n);
    const auto in = [&](std::size_t kind) -> const Buffer& { return args.inputs[kFirst + kind * count + t]; };
    // Kinds that are not kept are not read: the parameter takes their place.
    const auto kept = [&](std::size_t k) -> const Buffer& { return in(static_cast<std::int32_t>(k) < s.kept ? 2 + k : 0); };
    const auto to_kept = [&](std::size_t k) -> const Buffer& {
      return args.outputs[(static_cast<std::int32_t>(k) < s.kept ? 1 + k : 0) * count + t];
    };
    cl.run(kStep, {ceil_div(n, chunk)}, args.inputs[OptimizerInput::kRates], args.inputs[OptimizerInput::kApply], in(0), in(1),
           kept(0), kept(1), kept(2), args.outputs[t], to_kept(0), to_kept(1), to_kept(2), n, chunk, s.kept, s.rule);
  }
}

// ---- the norm ----

constexpr std::int64_t kPiece = 1 << 14;  // elements whose squares are summed up by themselves

Refusal supports_norm(const OpDesc& desc) { return refuse_unless_plain(desc); }

std::int64_t pieces_of(const TensorDesc& t) { return ceil_div(t.shape.elements(), kPiece); }

void plan_norm(const OpDesc& desc, KernelPlan* plan) {
  std::int64_t pieces = 1;
  for (const TensorDesc& t : desc.inputs.subspan(GradientNormInput::kFirst)) {
    pieces = checked_add(pieces, pieces_of(t));
    plan->flops += 2.0 * static_cast<double>(t.shape.elements());
  }
  plan->scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(pieces, 3 * sizeof(float)));
  count_bytes(desc, plan);
}

void run_norm(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Launcher& cl = launcher(args);
  std::int64_t pieces = 0;
  for (std::size_t t = GradientNormInput::kFirst; t < args.inputs.size(); ++t) {
    const TensorDesc& desc = args.desc->inputs[t];
    cl.run(kSumSquares, {pieces_of(desc)}, args.inputs[t], args.inputs[GradientNormInput::kScale], args.scratch,
           desc.shape.elements(), kPiece, pieces);
    pieces += pieces_of(desc);
  }
  const std::int32_t has_norm = is_wanted(*args.desc, 0), has_finite = is_wanted(*args.desc, 1);
  const Buffer& norm = args.outputs[has_norm != 0 ? 0 : 1];
  cl.run(kFinishNorm, {1}, args.scratch, norm, has_finite != 0 ? args.outputs[1] : norm, pieces, has_norm, has_finite);
}

constexpr Kernel kKernels[] = {
    {.name = "optimizer_step",
     .op = kOptimizerStep,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports_step,
     .plan = plan_step,
     .run = run_step,
     .takes_empty = true,
     .written_over = step_written_over},
    {.name = "gradient_norm",
     .op = kGradientNorm,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports_norm,
     .plan = plan_norm,
     .run = run_norm,
     .takes_empty = true},
};

}  // namespace

extern const KernelFamily optimizer_opencl_kernels;
const KernelFamily optimizer_opencl_kernels = {kKernels};

}  // namespace evn
