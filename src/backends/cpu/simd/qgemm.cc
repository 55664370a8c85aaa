// The loops of simd/qgemm.h for one cluster, by products of 16 bits.
#include "backends/cpu/simd/qgemm_tile.h"

namespace evn::EVN_ISA {

extern const simd_qgemm::Loops loops_qgemm;
#if defined(EVN_DOT_WORDS)
constexpr simd_qgemm::WinogradLoops kWinograd = {winograd_pixels, winograd_filters, winograd_product, winograd_outputs,
                                                 winograd_store};
const simd_qgemm::Loops loops_qgemm = {kLanes, 4, 3e6, run_vectors_or_words, flip_bytes, kWordColumns, widen_bytes, &kWinograd, 2};
#else
const simd_qgemm::Loops loops_qgemm = {kLanes, 4, 2e6, run_vectors, flip_bytes};
#endif

}  // namespace evn::EVN_ISA
