// The end of outputs that were summed up in registers: a chain of steps over all of them, and stores of some lanes. Included by
// simd/*.cc only.
#pragma once

#include "backends/cpu/simd/epilogue.h"

namespace evn::EVN_ISA {
namespace {

inline Vec load_some(const float* p, std::int64_t lanes) { return lanes >= kLanes ? load(p) : load_n(p, lanes); }

inline void store_some(float* p, Vec v, std::int64_t lanes) {
  if (lanes >= kLanes) {
    store(p, v);
  } else {
    store_n(p, v, lanes);
  }
}

template <StepKind Kind, int Count>
inline void apply_kind(Step step, Vec (&v)[Count]) {
  step.kind = Kind;
#pragma GCC unroll 32
  for (int i = 0; i < Count; ++i) v[i] = apply_step(step, v[i]);
}

// One look at the kind of a step serves all vectors.
template <int Count>
__attribute__((noinline)) void apply_steps(const Chain& chain, Vec (&v)[Count]) {
  for (int s = 0; s < chain.rest_count; ++s) {
    const Step step = chain.rest[s];
    switch (step.kind) {
      case StepKind::kRelu: apply_kind<StepKind::kRelu>(step, v); break;
      case StepKind::kClip: apply_kind<StepKind::kClip>(step, v); break;
      case StepKind::kHardSwish: apply_kind<StepKind::kHardSwish>(step, v); break;
      case StepKind::kSwish: apply_kind<StepKind::kSwish>(step, v); break;
      case StepKind::kScale: apply_kind<StepKind::kScale>(step, v); break;
      case StepKind::kOffset: apply_kind<StepKind::kOffset>(step, v); break;
      default:
        for (int i = 0; i < Count; ++i) v[i] = apply_step(step, v[i]);
    }
  }
}

template <int Count>
inline void finish(const Chain& chain, Vec (&v)[Count]) {
#pragma GCC unroll 32
  for (int i = 0; i < Count; ++i) v[i] = bounded(chain, v[i]);
  if (chain.rest_count == 0) return;
  if (chain.rest_count == 1 && chain.rest->kind == StepKind::kHardSwish) return apply_kind<StepKind::kHardSwish>(*chain.rest, v);
  Vec copy[Count];  // what is handed over lies in memory: not `v` itself, which stays in registers otherwise
#pragma GCC unroll 32
  for (int i = 0; i < Count; ++i) copy[i] = v[i];
  apply_steps(chain, copy);
#pragma GCC unroll 32
  for (int i = 0; i < Count; ++i) v[i] = copy[i];
}

}  // namespace
}  // namespace evn::EVN_ISA
