// The loops of simd/epilogue_ops_loops.h for one cluster.
#include "backends/cpu/simd/epilogue_ops_loops.h"

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

template <EpilogueOpKind Kind>
void apply_rows(EpilogueOp step, float* p, std::int64_t rows, std::int64_t ld, std::int64_t n) {
  step.kind = Kind;
  map_rows(p, rows, ld, n, [step](Vec x) { return apply_epilogue_op(step, x); });
}

// One look at the kind of a step serves all floats.
void apply(const EpilogueOp* steps, int count, float* p, std::int64_t rows, std::int64_t ld, std::int64_t n) {
  const Gate gate = gate_of(steps, count);
  if (gate.is_rest) return map_rows(p, rows, ld, n, [gate](Vec x) { return gated(gate, x); });
  for (int s = 0; s < count; ++s) {
    const EpilogueOp step = steps[s];
    switch (step.kind) {
      case EpilogueOpKind::kRelu: apply_rows<EpilogueOpKind::kRelu>(step, p, rows, ld, n); break;
      case EpilogueOpKind::kClip: apply_rows<EpilogueOpKind::kClip>(step, p, rows, ld, n); break;
      case EpilogueOpKind::kLeakyRelu: apply_rows<EpilogueOpKind::kLeakyRelu>(step, p, rows, ld, n); break;
      case EpilogueOpKind::kHardSigmoid: apply_rows<EpilogueOpKind::kHardSigmoid>(step, p, rows, ld, n); break;
      case EpilogueOpKind::kHardSwish: apply_rows<EpilogueOpKind::kHardSwish>(step, p, rows, ld, n); break;
      case EpilogueOpKind::kSigmoid: apply_rows<EpilogueOpKind::kSigmoid>(step, p, rows, ld, n); break;
      case EpilogueOpKind::kTanh: apply_rows<EpilogueOpKind::kTanh>(step, p, rows, ld, n); break;
      case EpilogueOpKind::kScale: apply_rows<EpilogueOpKind::kScale>(step, p, rows, ld, n); break;
      case EpilogueOpKind::kOffset: apply_rows<EpilogueOpKind::kOffset>(step, p, rows, ld, n); break;
      case EpilogueOpKind::kGelu: apply_rows<EpilogueOpKind::kGelu>(step, p, rows, ld, n); break;
      case EpilogueOpKind::kGeluTanh: apply_rows<EpilogueOpKind::kGeluTanh>(step, p, rows, ld, n); break;
      case EpilogueOpKind::kSwish: apply_rows<EpilogueOpKind::kSwish>(step, p, rows, ld, n); break;
    }
  }
}

}  // namespace

extern const simd_epilogue_ops::Loops loops_epilogue_ops;
const simd_epilogue_ops::Loops loops_epilogue_ops = {apply};

}  // namespace evn::EVN_ISA
