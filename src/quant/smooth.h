// SmoothQuant (Xiao et al., ICML 2023): what single columns of a product's input are larger than others moves into the rows of its
// weight, half of it, so that one scale for the input leaves more to the others. x becomes x / factor, by column, where it is
// quantized, and row j of the weight is multiplied by factor j.
#pragma once

#include <map>
#include <span>

#include "quant/range.h"
#include "quant/scheme.h"

namespace evn {

// What calibration has seen of the columns of a value.
struct ColumnRanges {
  std::vector<float> low, high;

  // Elements by rows of as many columns as there were before. False: of another number. Ranges whose add was stopped are of no
  // further use.
  bool add(std::span<const float> elements, std::size_t columns);
};

struct Smoothing {
  std::vector<float> factors;  // by column
  Range range;                 // of the input divided by them
  std::int32_t norm = -1;  // the LayerNormalization that makes the input for these products alone and takes the division into its
                           // constants; -1: a Mul does it
};

// Values that could be smoothed: all that reads them in 8 bits are MatMul and Gemm with a matrix.
std::vector<ValueId> smoothable(const Graph& graph, const QuantScheme& scheme);

// What is to be smoothed of them: where some column is several times as large as most. `seen`: by value.
std::map<ValueId, Smoothing> smooth(const Graph& graph, const QuantScheme& scheme, const std::map<ValueId, ColumnRanges>& seen);

}  // namespace evn
