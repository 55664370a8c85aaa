#include "quant/probe.h"

namespace evn {

Probe make_probe(const Graph& graph, const QuantScheme& scheme) {
  Probe probe;
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
    probe.graph.outputs.push_back(twin.outputs[0]);
    twin.name += "/probe";
    y.name += "/probe";
    twin.outputs = {static_cast<ValueId>(probe.graph.values.size())};
    probe.graph.outputs.push_back(twin.outputs[0]);
    probe.graph.values.push_back(std::move(y));
    probe.graph.nodes.push_back(std::move(twin));
    probe.scheme.nodes.push_back(scheme.nodes[i]);
    probe.layers.push_back(i);
  }
  probe.scheme.group.resize(probe.graph.values.size(), -1);
  return probe;
}

}  // namespace evn
