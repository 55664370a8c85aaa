// The loops of qgemm/qgemm_loops.h by vpdpbusd.
#include "backends/cpu/qgemm/qgemm_tile.h"

namespace evn::EVN_ISA {

extern const simd_qgemm::Loops loops_qgemm;
const simd_qgemm::Loops loops_qgemm = {.lanes = kLanes, .k_step = 4, .tile_cost = 6e6, .run = run_vectors, .flip = flip_bytes};

}  // namespace evn::EVN_ISA
