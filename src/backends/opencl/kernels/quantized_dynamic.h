// Quantization of a tensor by its own range, for kernels that do it on the way.
#pragma once

#include "backends/opencl/kernels/quantized.h"

namespace evn {

inline constexpr std::int64_t kRangeParts = 64;
inline constexpr std::size_t kRangeBytes = 2 * kRangeParts * sizeof(float);

// Enqueues DynamicQuantizeLinear. `range` is scratch of kRangeBytes.
void run_dynamic_quantize(Launcher& cl, const Buffer& x, std::int64_t elements, const Buffer& range, const Buffer& y,
                          const Buffer& scale, const Buffer& zero);

}  // namespace evn
