// The table of a cluster without products of bfloat16: simd/bfloat_gemm_avx512_amx.cc and simd/bfloat_gemm_avx512_bf16.cc have
// them.
#include "backends/cpu/simd/bfloat_gemm.h"

namespace evn::EVN_ISA {

extern const simd_bfloat_gemm::Loops loops_bfloat_gemm;
const simd_bfloat_gemm::Loops loops_bfloat_gemm = {0, 0, 0, nullptr, nullptr, nullptr};

}  // namespace evn::EVN_ISA
