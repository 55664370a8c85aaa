// From what calibration has seen to a scale and a zero point: x is taken for (q - zero) * scale, with q = saturate(round(x
// / scale) + zero), as ONNX's QuantizeLinear has it.
#pragma once

#include "core/dtype.h"
#include "quant/observer.h"

namespace evn {

enum class Calibration : std::uint8_t {
  kMinMax,      // all that was seen
  kPercentile,  // without the outermost elements on either side
  kEntropy,     // the range whose 8-bit image is least surprising: least Kullback-Leibler divergence (Migacz, "8-bit inference with
                // TensorRT", GTC 2017)
  kMse,         // the range with the least mean square error
};

struct Range {
  float low = 0, high = 0;
};

struct QuantParams {
  float scale = 1;
  std::int32_t zero = 0;
};

// `percentile`: of elements that stay inside, in percent. Zero is always inside the result.
Range choose_range(const Observer& seen, Calibration calibration, double percentile);

inline Range join(const Range& a, const Range& b) { return {a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high}; }

// kUint8: asymmetric; kInt8: symmetric, zero 0, never -128. A range of nothing but 0 has scale 1.
QuantParams params_of(const Range& range, DType dtype);

}  // namespace evn
