// What each layer alone loses: a float32 graph in which a double of every product that is to be quantized reads the same float32
// values as the product itself. Rewritten by the probe's scheme (quant/rewrite), the doubles compute with what 8 bits leave of
// their inputs and weights, and nothing comes from the layers before them.
#pragma once

#include "quant/scheme.h"

namespace evn {

struct Probe {
  Graph graph;         // its outputs
  QuantScheme scheme;  // groups have the numbers that they have in the scheme that the probe is of
  struct Layer {
    std::size_t node = 0;                         // of the graph that the probe is of
    ValueId product = kNoValue, twin = kNoValue;  // outputs, unless the layer is in a branch or body
    bool is_output = false;
  };
  std::vector<Layer> layers;
};

Probe make_probe(const Graph& graph, const QuantScheme& scheme);

}  // namespace evn
