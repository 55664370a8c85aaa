#include "quant/probe.h"

#include <algorithm>

namespace evn {

Probe make_probe(const Graph& graph, const QuantScheme& scheme) {
  Probe probe;
  bool inside = false;
  probe.graph = graph;
  probe.graph.nodes.clear();
  probe.graph.outputs.clear();
  probe.scheme.group = scheme.group;
  probe.scheme.group_count = scheme.group_count;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    probe.graph.nodes.push_back(graph.nodes[i]);
    probe.scheme.nodes.emplace_back();
    if (scheme.nodes[i].role != QuantRole::kProduct) continue;
    Node twin = graph.nodes[i];
    Value y = graph.values[static_cast<std::size_t>(twin.outputs[0])];
    Probe::Layer& layer = probe.layers.emplace_back();
    layer.node = i;
    layer.product = twin.outputs[0];
    layer.twin = static_cast<ValueId>(probe.graph.values.size());
    layer.is_output = twin.region < 0;
    inside |= !layer.is_output;
    if (layer.is_output) probe.graph.outputs.insert(probe.graph.outputs.end(), {layer.product, layer.twin});
    twin.name += "/probe";
    y.name += "/probe";
    twin.outputs = {layer.twin};
    probe.graph.values.push_back(std::move(y));
    probe.graph.nodes.push_back(std::move(twin));
    probe.scheme.nodes.push_back(scheme.nodes[i]);
  }
  // What is in branches and bodies is there for these.
  for (const ValueId v : graph.outputs) {
    if (inside && std::find(probe.graph.outputs.begin(), probe.graph.outputs.end(), v) == probe.graph.outputs.end()) probe.graph.outputs.push_back(v);
  }
  probe.scheme.group.resize(probe.graph.values.size(), -1);
  return probe;
}

}  // namespace evn
