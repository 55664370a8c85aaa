// The loops of simd/steps.h for one cluster.
#include "backends/cpu/simd/steps.h"

#include "backends/cpu/simd/epilogue.h"

namespace evn::EVN_ISA {
namespace {

template <typename F>
void map_rows(float* p, std::int64_t rows, std::int64_t ld, std::int64_t n, F f) {
  for (std::int64_t r = 0; r < rows; ++r, p += ld) {
    std::int64_t i = 0;
#pragma GCC unroll 4
    for (; i + kLanes <= n; i += kLanes) store(p + i, f(load(p + i)));
    if (i < n) store_n(p + i, f(load_n(p + i, n - i)), n - i);
  }
}

template <StepKind Kind>
void apply_rows(Step step, float* p, std::int64_t rows, std::int64_t ld, std::int64_t n) {
  step.kind = Kind;
  map_rows(p, rows, ld, n, [step](Vec x) { return apply_step(step, x); });
}

// One look at the kind of a step serves all floats.
void apply(const Step* steps, int count, float* p, std::int64_t rows, std::int64_t ld, std::int64_t n) {
  const Gate gate = gate_of(steps, count);
  if (gate.is_rest) return map_rows(p, rows, ld, n, [gate](Vec x) { return gated(gate, x); });
  for (int s = 0; s < count; ++s) {
    const Step step = steps[s];
    switch (step.kind) {
      case StepKind::kRelu: apply_rows<StepKind::kRelu>(step, p, rows, ld, n); break;
      case StepKind::kClip: apply_rows<StepKind::kClip>(step, p, rows, ld, n); break;
      case StepKind::kLeakyRelu: apply_rows<StepKind::kLeakyRelu>(step, p, rows, ld, n); break;
      case StepKind::kHardSigmoid: apply_rows<StepKind::kHardSigmoid>(step, p, rows, ld, n); break;
      case StepKind::kHardSwish: apply_rows<StepKind::kHardSwish>(step, p, rows, ld, n); break;
      case StepKind::kSigmoid: apply_rows<StepKind::kSigmoid>(step, p, rows, ld, n); break;
      case StepKind::kTanh: apply_rows<StepKind::kTanh>(step, p, rows, ld, n); break;
      case StepKind::kScale: apply_rows<StepKind::kScale>(step, p, rows, ld, n); break;
      case StepKind::kOffset: apply_rows<StepKind::kOffset>(step, p, rows, ld, n); break;
      case StepKind::kGelu: apply_rows<StepKind::kGelu>(step, p, rows, ld, n); break;
      case StepKind::kGeluTanh: apply_rows<StepKind::kGeluTanh>(step, p, rows, ld, n); break;
      case StepKind::kSwish: apply_rows<StepKind::kSwish>(step, p, rows, ld, n); break;
    }
  }
}

}  // namespace

extern const simd_steps::Loops loops_steps;
const simd_steps::Loops loops_steps = {apply};

}  // namespace evn::EVN_ISA
