// Cross-layer equalization (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019):
// where one product alone reads another through nodes that commute with positive factors (Relu, pools), what a channel is larger
// than others moves from the one's weights into the other's. The function stays what it is but for rounding.
#pragma once

#include "quant/scheme.h"

namespace evn {

// How many pairs were equalized. Changes constants alone; new ones are charged to `ledger`.
int equalize_layers(Graph& graph, const QuantScheme& scheme, const LedgerPtr& ledger);

}  // namespace evn
