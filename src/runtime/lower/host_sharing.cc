// Which inputs and outputs of a graph devices use in memory of the host, where it lies so that they can.
#include "runtime/lower/compile.h"

namespace evn {

void find_sharing(CompiledGraph& c) {
  const Graph& graph = c.graph();
  std::uint32_t sharing = 0;
  for (std::size_t slot = 0; slot < c.devices.size(); ++slot) {
    if (c.devices[slot]->host_sharing().exists()) sharing |= std::uint32_t{1} << slot;
  }
  if (sharing == 0) return;
  c.shared_inputs.assign(graph.inputs.size(), 0);
  c.shared_outputs.assign(graph.outputs.size(), 0);
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const auto v = static_cast<std::size_t>(graph.inputs[i]);
    if (c.needed[v] || graph.values[v].wraps) continue;  // shapes may depend on its bytes, which are read on the host
    for (std::uint32_t r = c.reader_begin[v]; r < c.reader_begin[v + 1]; ++r)
      c.shared_inputs[i] |= sharing & std::uint32_t{1} << c.nodes[static_cast<std::size_t>(c.readers[r])].slot;
  }
  std::vector<std::int32_t> maker(graph.values.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const NodeMode mode = c.nodes[i].mode;
    if (mode != NodeMode::kKernel && mode != NodeMode::kSegment) continue;
    for (const ValueId v : graph.nodes[i].outputs) {
      if (v != kNoValue) maker[v] = static_cast<std::int32_t>(i);
    }
  }
  for (std::size_t j = 0; j < graph.outputs.size(); ++j) {
    const std::int32_t node = maker[graph.outputs[j]];
    if (node >= 0) c.shared_outputs[j] = sharing & std::uint32_t{1} << c.nodes[static_cast<std::size_t>(node)].slot;
  }
}

}  // namespace evn
