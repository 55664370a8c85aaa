// The loops of simd/dot.h for one cluster, by products of 16 bits.
#include "backends/cpu/simd/dot_tile.h"

namespace evn::EVN_ISA {

extern const simd_dot::Loops loops_dot;
#if defined(EVN_DOT_WORDS)
constexpr simd_dot::WinogradLoops kWinograd = {winograd_pixels, winograd_filters, winograd_product, winograd_outputs, winograd_store};
const simd_dot::Loops loops_dot = {kLanes, 4, 3e6, run_vectors_or_words, flip_bytes, kWordColumns, widen_bytes, &kWinograd, 2};
#else
const simd_dot::Loops loops_dot = {kLanes, 4, 2e6, run_vectors, flip_bytes};
#endif

}  // namespace evn::EVN_ISA
