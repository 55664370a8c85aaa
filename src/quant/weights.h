// Constant weights in 8 bits, and their biases in 32.
#pragma once

#include <vector>

#include "base/ledger.h"
#include "core/weight.h"

namespace evn {

struct QuantizedWeight {
  WeightPtr values;           // int8, in the shape of the weight
  std::vector<float> scales;  // one, or one for each index along the axis
};

// Symmetric: w is taken for q * scale, with |q| <= 127. axis < 0: one scale. An index with nothing but zeros has scale 1. Throws
// EVN_ERROR_INVALID_MODEL where an element is NaN or infinite.
QuantizedWeight quantize_weight(const Weight& weight, int axis, const LedgerPtr& ledger);

// round(bias / (input scale * weight scale)); null where one of them is not an int32.
WeightPtr quantize_bias(const Weight& bias, float input_scale, std::span<const float> weight_scales, const LedgerPtr& ledger);

}  // namespace evn
