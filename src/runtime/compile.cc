#include "runtime/compile.h"

#include <algorithm>

#include "base/error.h"
#include "graph/inline_if.h"
#include "runtime/constant_uses.h"

namespace evn {
namespace {

std::uint8_t slot_of(CompiledGraph& c, Device* device) {
  const auto it = std::find(c.devices.begin(), c.devices.end(), device);
  if (it != c.devices.end()) return static_cast<std::uint8_t>(it - c.devices.begin());
  if (c.devices.size() >= kMaxSlots) fail(EVN_ERROR_LIMIT, "a session uses at most %d devices", kMaxSlots);
  c.devices.push_back(device);
  return static_cast<std::uint8_t>(c.devices.size() - 1);
}

void compile_values(CompiledGraph& c) {
  const Graph& graph = c.graph();
  c.needed = values_needed_for_shapes(graph);
  c.conditions = region_conditions(graph);
  c.last_user.assign(graph.values.size(), -1);
  c.constants.resize(graph.values.size());
  c.input_of.assign(graph.values.size(), -1);
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) c.input_of[graph.inputs[i]] = static_cast<std::int32_t>(i);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId v : graph.nodes[i].inputs) {
      if (v != kNoValue) c.last_user[v] = static_cast<std::int32_t>(i);
    }
  }
  for (const ValueId v : graph.outputs) c.last_user[v] = INT32_MAX;
  for (const ValueId v : graph.inputs) c.has_boxes |= static_cast<bool>(graph.values[v].wraps);
}

void find_sums(CompiledGraph& c) {
  const FollowingSumFinder finder(c.graph());
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    const NodePlacement& placed = c.placement.nodes[i];
    if (placed.mode != NodeMode::kKernel || placed.kernel == nullptr || placed.kernel->takes == 0) continue;
    const auto beside = [&](std::int32_t other) {
      const NodePlacement& p = c.placement.nodes[other];
      return p.mode == NodeMode::kKernel && p.device == placed.device;
    };
    const FollowingSums sums = finder.find(static_cast<std::int32_t>(i), placed.kernel->takes, beside);
    c.nodes[i].bias = sums.bias;
    c.nodes[i].residual = sums.residual;
  }
}

// A sum's operand is read by the node with which it is computed as well.
void find_readers(CompiledGraph& c) {
  const Graph& graph = c.graph();
  const auto each = [&](const auto& visit) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueId v : graph.nodes[i].inputs) {
        if (v != kNoValue) visit(v, i);
      }
      if (c.nodes[i].residual.node >= 0) visit(c.nodes[i].residual.operand, i);
    }
  };
  c.reader_begin.assign(graph.values.size() + 1, 0);
  each([&](ValueId v, std::size_t) { ++c.reader_begin[static_cast<std::size_t>(v) + 1]; });
  for (std::size_t v = 0; v < graph.values.size(); ++v) c.reader_begin[v + 1] += c.reader_begin[v];
  c.readers.resize(c.reader_begin.back());
  std::vector<std::uint32_t> next(c.reader_begin.begin(), c.reader_begin.end() - 1);
  each([&](ValueId v, std::size_t i) { c.readers[next[v]++] = static_cast<std::int32_t>(i); });
}

// `made`: per value, the layout in which its node makes it.
void choose_layouts(const Node& node, std::span<const TensorDesc> descs, CompiledNode* n, std::vector<Layout>* made) {
  const std::size_t inputs = node.inputs.size();
  std::vector<Layout> layouts(descs.size(), Layout::kPlain);
  for (std::size_t k = 0; k < inputs; ++k) {
    if (node.inputs[k] != kNoValue && n->slot == 0) layouts[k] = (*made)[node.inputs[k]];
  }
  const std::span<Layout> all(layouts);
  const OpDesc desc{&node, descs.first(inputs), descs.subspan(inputs), n->constants};
  n->kernel->layouts(desc, all.first(inputs), all.subspan(inputs));
  if (std::all_of(layouts.begin(), layouts.end(), [](Layout l) { return l == Layout::kPlain; })) return;
  EVN_CHECK(n->slot == 0);
  for (std::size_t k = 0; k < node.outputs.size(); ++k) {
    if (node.outputs[k] != kNoValue) (*made)[node.outputs[k]] = layouts[inputs + k];
  }
  // Before the outputs, the operands of sums that follow.
  if (n->residual.node >= 0) layouts.insert(layouts.begin() + static_cast<std::ptrdiff_t>(inputs), layouts[inputs]);
  if (n->bias.node >= 0) layouts.insert(layouts.begin() + static_cast<std::ptrdiff_t>(inputs), Layout::kPlain);
  n->layouts = std::move(layouts);
}

void compile_node(CompiledGraph& c, std::size_t index, std::vector<Layout>* layouts, ConstantUses* uses) {
  const Graph& graph = c.graph();
  const Node& node = graph.nodes[index];
  const NodePlacement& p = c.placement.nodes[index];
  CompiledNode& n = c.nodes[index];
  n.mode = p.mode;
  c.has_boxes |= p.mode == NodeMode::kHost;
  n.slot = slot_of(c, p.device);
  n.kernel = p.kernel;
  std::vector<TensorDesc> descs;
  for (const ValueId v : node.inputs) {
    n.constants.push_back(v == kNoValue ? nullptr : graph.values[v].constant);
    n.has_planned_input |= v != kNoValue && c.needed[v];
    n.choose_late |= v != kNoValue && !graph.values[v].has_shape;
    descs.push_back(v == kNoValue ? TensorDesc{} : TensorDesc{graph.values[v].dtype, graph.values[v].shape});
  }
  const std::size_t inputs = descs.size();
  for (const ValueId v : node.outputs) {
    descs.push_back(v == kNoValue ? TensorDesc{} : TensorDesc{graph.values[v].dtype, graph.values[v].shape});
    n.choose_late |= v != kNoValue && !graph.values[v].has_shape;
  }
  n.packed.resize(inputs);
  if (n.mode == NodeMode::kKernel && !n.choose_late) {
    const std::span<const TensorDesc> all(descs);
    const OpDesc desc{&node, all.first(inputs), all.subspan(inputs), n.constants};
    for (std::size_t k = 0; k < inputs; ++k) {
      n.packed[k] = c.model->store.packed(*p.device, *n.kernel, desc, static_cast<int>(k), uses->plain());
    }
  }
  for (std::size_t k = 0; k < inputs; ++k) {
    uses->done(node.inputs[k], n.packed[k].memory != nullptr && p.device->traits().host_addressable);
  }
  if (n.mode == NodeMode::kKernel && !n.choose_late && n.kernel->layouts != nullptr) choose_layouts(node, descs, &n, layouts);
  c.arg_count += descs.size() + (n.bias.node >= 0 ? 1u : 0u) + (n.residual.node >= 0 ? 1u : 0u);
  c.packed_count += inputs;
  c.kernel_nodes += n.mode == NodeMode::kKernel ? 1u : 0u;
}

}  // namespace

CompiledGraph compile(ModelPtr model, const std::string& default_device) {
  CompiledGraph c;
  c.model = std::move(model);
  c.placement = place(*c.model, default_device);
  c.devices.push_back(&c.model->runtime->cpu());
  compile_values(c);
  c.nodes.resize(c.graph().nodes.size());
  find_sums(c);
  find_readers(c);
  ConstantUses uses(c);
  std::vector<Layout> layouts(c.graph().values.size(), Layout::kPlain);
  for (std::size_t i = 0; i < c.nodes.size(); ++i) {
    try {
      compile_node(c, i, &layouts, &uses);
    } catch (Error& e) {
      if (e.node[0] == '\0') e.with_node(c.graph().nodes[i].name.c_str());
      throw;
    }
  }
  uses.set_constants(&c.constants);
  c.devices[0]->pool().trim_models();
  return c;
}

}  // namespace evn
