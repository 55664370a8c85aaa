// The loops of qgemm/qgemm_loops.h by usmmla.
#include "backends/cpu/qgemm/qgemm_tile.h"

namespace evn::EVN_ISA {

extern const simd_qgemm::Loops loops_qgemm;
const simd_qgemm::Loops loops_qgemm = {
    .lanes = kLanes, .k_step = kGroup, .tile_cost = 3e6, .run = run_vectors, .flip = flip_bytes, .k_group = kGroup};

}  // namespace evn::EVN_ISA
