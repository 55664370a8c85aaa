// A model that was exported for training becomes the inference model that was meant.
#pragma once

#include "core/graph.h"

namespace evn {

// BatchNormalization normalizes by its statistics: it has one output, and whatever reads its moved statistics reads the statistics.
// Dropout hands its input on: it has no third input, and no mask that nobody reads. The graph has been validated, bodies are flat
// (graph/subgraphs.h), and it has to be loaded again before it runs. Throws EVN_ERROR_UNSUPPORTED with the node's name if something
// reads the statistics of the batch itself (outputs 3 and 4 before opset 14).
void take_inference_form(Graph& graph);

}  // namespace evn
