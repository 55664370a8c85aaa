// Epilogue chains over floats in memory: one copy of this code for all loops of a cluster.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "core/epilogue.h"

namespace evn::simd_epilogue_ops {

struct Loops {
  // Applies `count` steps to rows of n floats, `ld` apart, in place.
  void (*apply)(const EpilogueOp* steps, int count, float* p, std::int64_t rows, std::int64_t ld, std::int64_t n);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_epilogue_ops
