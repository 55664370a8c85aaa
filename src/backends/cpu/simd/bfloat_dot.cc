// The table of a cluster without products of bfloat16: simd/bfloat_dot_avx512_amx.cc and simd/bfloat_dot_avx512_bf16.cc have them.
#include "backends/cpu/simd/bfloat_dot.h"

namespace evn::EVN_ISA {

extern const simd_bfloat_dot::Loops loops_bfloat_dot;
const simd_bfloat_dot::Loops loops_bfloat_dot = {0, 0, 0, nullptr, nullptr, nullptr};

}  // namespace evn::EVN_ISA
