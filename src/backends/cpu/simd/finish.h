// The end of outputs that were summed up in registers: a chain of steps over all of them, and stores of some lanes. Included by
// simd/*.cc only.
#pragma once

#include "backends/cpu/simd/epilogue.h"

namespace evn::EVN_ISA {
namespace {

// The bounds and, where the rest is a gate, that.
template <int Count>
inline void finish_in_registers(const Chain& chain, Vec (&v)[Count]) {
#pragma GCC unroll 32
  for (int i = 0; i < Count; ++i) v[i] = bounded(chain, v[i]);
  if (!chain.gate.is_rest) return;
#pragma GCC unroll 32
  for (int i = 0; i < Count; ++i) v[i] = gated(chain.gate, v[i]);
}

template <int Count>
inline void finish(const Chain& chain, Vec (&v)[Count]) {
  finish_in_registers(chain, v);
  if (chain.rest_count == 0 || chain.gate.is_rest) return;
  Vec copy[Count];  // what is handed over lies in memory: not `v` itself, which stays in registers otherwise
#pragma GCC unroll 32
  for (int i = 0; i < Count; ++i) copy[i] = v[i];
  loops_epilogue_ops.apply(chain.rest, chain.rest_count, reinterpret_cast<float*>(copy), 1, 0, Count * kLanes);
#pragma GCC unroll 32
  for (int i = 0; i < Count; ++i) v[i] = copy[i];
}

}  // namespace
}  // namespace evn::EVN_ISA
