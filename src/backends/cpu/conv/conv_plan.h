// How convolutions are told to their loops: what the kernels of one node and cascades share.
#pragma once

#include "backends/cpu/conv/depthwise_loops.h"
#include "backends/cpu/conv/few_channels_loops.h"
#include "backends/cpu/gemm/gemm_loops.h"
#include "backends/cpu/support.h"
#include "ops/infra/window.h"

namespace evn {

// Of one to three spatial axes.
simd_gemm::Patches patches_of(const Window& window);

simd_depthwise::Geometry depthwise_geometry(const OpDesc& d);
std::int64_t depthwise_weight_step(const Shape& weight);  // floats from one tap of the packed weight to the next

simd_few_channels::Geometry few_channels_geometry(const OpDesc& d);
// Floats of the lines that a tile copies.
std::int64_t few_channels_line_floats(const simd_few_channels::Loops& loops, const simd_few_channels::Geometry& g);

// Whether Winograd's F(4 x 4, 3 x 3) in float32 takes a Conv and is faster there than a direct convolution whose instructions do
// twice as many multiply-adds.
bool winograd_halves(const OpDesc& d);

}  // namespace evn
