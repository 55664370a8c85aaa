// The loops of qgemm/qgemm_loops.h for one cluster, by products of 16 bits.
#include "backends/cpu/qgemm/qgemm_tile.h"

namespace evn::EVN_ISA {

extern const simd_qgemm::Loops loops_qgemm;
#if defined(EVN_DOT_WORDS)
constexpr simd_qgemm::WinogradLoops kWinograd = {winograd_pixels, winograd_filters, winograd_product, winograd_outputs,
                                                 winograd_store};
const simd_qgemm::Loops loops_qgemm = {.lanes = kLanes,
                                       .k_step = 4,
                                       .tile_cost = 3e6,
                                       .run = run_vectors_or_words,
                                       .flip = flip_bytes,
                                       .wide_columns = kWordColumns,
                                       .widen = widen_bytes,
                                       .winograd = &kWinograd,
                                       .k_group = 2};
#else
const simd_qgemm::Loops loops_qgemm = {.lanes = kLanes, .k_step = 4, .tile_cost = 2e6, .run = run_vectors, .flip = flip_bytes};
#endif

}  // namespace evn::EVN_ISA
