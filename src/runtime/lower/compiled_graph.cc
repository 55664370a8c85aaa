#include "runtime/lower/compile.h"

#include <bit>

#include <algorithm>

namespace evn {

std::vector<TensorDesc> descs_of(const Graph& graph, const Node& node) {
  std::vector<TensorDesc> descs;
  const auto add = [&](ValueId v) {
    descs.push_back(v == kNoValue ? TensorDesc{} : TensorDesc{graph.values[v].dtype, graph.values[v].shape});
  };
  std::for_each(node.inputs.begin(), node.inputs.end(), add);
  std::for_each(node.outputs.begin(), node.outputs.end(), add);
  return descs;
}

OpDesc desc_of(const Node& node, const CompiledNode& n, std::span<const TensorDesc> descs) {
  OpDesc desc{&node, descs.first(node.inputs.size()), descs.subspan(node.inputs.size()), n.constants};
  n.set_choices(&desc);
  return desc;
}

std::int32_t only_reader(const CompiledGraph& c, std::int32_t node) {
  const Node& maker = c.graph().nodes[node];
  if (maker.outputs.size() != 1 || maker.outputs[0] == kNoValue) return -1;
  const auto v = static_cast<std::size_t>(maker.outputs[0]);
  if (c.reader_begin[v + 1] - c.reader_begin[v] != 1 || c.last_user[v] == INT32_MAX) return -1;
  const std::int32_t reader = c.readers[c.reader_begin[v]];
  const Node& node_after = c.graph().nodes[reader];
  return node_after.region == maker.region && node_after.inputs[0] == maker.outputs[0] ? reader : -1;
}

int pipeline_depth_of(const CompiledGraph& c) {
  std::uint32_t used = 0;
  for (const CompiledNode& n : c.nodes) {
    if (n.mode == NodeMode::kKernel || n.mode == NodeMode::kSegment) used |= std::uint32_t{1} << n.slot;
  }
  return used <= 1 ? 0 : std::popcount(used) + 1;
}

}  // namespace evn
