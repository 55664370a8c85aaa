// The loops of simd/qgemm.h by vpdpbusd.
#include "backends/cpu/simd/qgemm_tile.h"

namespace evn::EVN_ISA {

extern const simd_qgemm::Loops loops_qgemm;
const simd_qgemm::Loops loops_qgemm = {kLanes, 4, 6e6, run_vectors, flip_bytes};

}  // namespace evn::EVN_ISA
