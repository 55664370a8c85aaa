#include "quant/probe.h"

#include <algorithm>

#include "base/cancel.h"

namespace evn {

Probe make_probe(const Graph& graph, const QuantScheme& scheme) {
  Probe probe;
  bool inside = false;
  probe.graph = Graph(graph);
  probe.graph.nodes.clear();
  probe.graph.outputs.clear();
  probe.scheme.group = scheme.group;
  probe.scheme.group_count = scheme.group_count;
  std::vector<bool> is_output(graph.values.size());  // of the probe
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    cancellation_point(kNodeWork);
    probe.graph.nodes.push_back(graph.nodes[i]);
    probe.scheme.nodes.emplace_back();
    if (scheme.nodes[i].role != QuantRole::kProduct) continue;
    Node twin = graph.nodes[i];
    const auto wanted = std::find_if(twin.outputs.begin(), twin.outputs.end(), [](ValueId v) { return v != kNoValue; });
    Value y = graph.values[static_cast<std::size_t>(*wanted)];
    Probe::Layer& layer = probe.layers.emplace_back();
    layer.node = i;
    layer.product = *wanted;
    layer.twin = static_cast<ValueId>(probe.graph.values.size());
    layer.is_output = twin.region < 0;
    inside |= !layer.is_output;
    if (layer.is_output) {
      probe.graph.outputs.insert(probe.graph.outputs.end(), {layer.product, layer.twin});
      is_output[static_cast<std::size_t>(layer.product)] = true;
    }
    twin.name += "/probe";
    y.name += "/probe";
    *wanted = layer.twin;
    std::replace_if(
        wanted + 1, twin.outputs.end(), [](ValueId) { return true; }, kNoValue);
    probe.graph.values.push_back(std::move(y));
    probe.graph.nodes.push_back(std::move(twin));
    probe.scheme.nodes.push_back(scheme.nodes[i]);
  }
  // What is in branches and bodies is there for these.
  for (const ValueId v : graph.outputs) {
    cancellation_point();
    if (!inside || is_output[static_cast<std::size_t>(v)]) continue;
    is_output[static_cast<std::size_t>(v)] = true;
    probe.graph.outputs.push_back(v);
  }
  probe.scheme.group.resize(probe.graph.values.size(), -1);
  return probe;
}

}  // namespace evn
