// Constant weights in 8 bits, and their biases in 32.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/ledger.h"
#include "core/weight.h"

namespace evn {

struct QuantizedWeight {
  WeightPtr values;           // int8, in the shape of the weight
  std::vector<float> scales;  // one, or one for each index along the axis
};

// Throws EVN_ERROR_INVALID_MODEL for a weight of that name, which has elements that are NaN or infinite.
[[noreturn]] void fail_not_finite(const std::string& weight);

// Symmetric: w is taken for q * scale, with |q| <= 127. axis < 0: one scale. No scale is below that of its index in `least`. An
// index with nothing but zeros has that, or 1 if there is none. Throws EVN_ERROR_INVALID_MODEL naming the weight if an element is
// NaN or infinite.
QuantizedWeight quantize_weight(const Weight& weight, const std::string& name, int axis, const LedgerPtr& ledger,
                                std::span<const float> least = {});

// By output channel, the scale that its weight must have for the bias to be an int32, in steps of input scale * weight scale, that
// sums do not overflow with: a channel whose weights are all but zero would otherwise have steps too small for its bias. axis < 0:
// one.
std::vector<float> scales_for_bias(const Weight& bias, float input_scale, int axis);

// round(bias / (input scale * weight scale)); null where one of them is not an int32.
WeightPtr quantize_bias(const Weight& bias, float input_scale, std::span<const float> weight_scales, const LedgerPtr& ledger);

}  // namespace evn
