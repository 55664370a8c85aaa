// The table of a cluster without products of bfloat16: bfloat/bfloat_gemm_loops_avx512_amx.cc and
// bfloat/bfloat_gemm_loops_avx512_bf16.cc have them.
#include "backends/cpu/bfloat/bfloat_gemm_loops.h"

namespace evn::EVN_ISA {

extern const simd_bfloat_gemm::Loops loops_bfloat_gemm;
const simd_bfloat_gemm::Loops loops_bfloat_gemm = {
    .lanes = 0, .k_step = 0, .tile_cost = 0, .run = nullptr, .convert = nullptr, .copy = nullptr};

}  // namespace evn::EVN_ISA
