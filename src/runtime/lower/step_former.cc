#include "runtime/lower/step_former.h"

#include <algorithm>

#include "runtime/lower/product_trials.h"

namespace evn {

void StepFormer::form(std::int32_t index) {
  const Node& node = w_.graph.nodes[index];
  const CompiledNode& n = w_.c.nodes[index];
  StepDraft& d = draft_;
  d.node = index;
  d.slot = n.slot;
  d.kernel = n.kernel;
  d.absorbed = {};
  d.packed = n.packed;
  d.passes = 0;
  d.why_moved = nullptr;
  d.operands.clear();
  d.descs.clear();
  d.nodes.clear();
  d.constants.clear();
  if (n.segment >= 0) return form_segment(w_.c.segments[static_cast<std::size_t>(n.segment)]);
  d.outputs = node.outputs;
  add_descs(index, 0);
  const std::size_t inputs = d.descs.size() - node.outputs.size();
  const std::span<const TensorDesc> all(d.descs);
  d.desc = {&node, all.first(inputs), all.subspan(inputs), n.constants};
  d.desc.threads = w_.threads_of(n.slot);
  n.set_choices(&d.desc);
  if (!n.layouts.empty()) d.desc.layouts = n.layouts.data();
  if (n.has_planned_input) set_constants();
  if (n.choose_late) choose_late();
  choose_for_empty();
  d.trial = nullptr;
  if (n.rival != nullptr && d.kernel == n.kernel && d.computes) {
    d.trial = &w_.c.trials->of(*w_.c.devices[n.slot], d.desc, n);
    if (d.trial->rival_wins()) {
      d.kernel = n.rival;
      d.packed = {};
    }
  }
  const bool is_settled = d.kernel == n.kernel || d.kernel == n.rival;
  const bool as_compiled = d.kernel == n.kernel && d.desc.layouts == n.layouts.data();
  d.views = as_compiled ? n.views : std::uint8_t{0};
  add_operands(index, 0, d.slot, d.packed, d.views);
  for (std::size_t p = 0; p < w_.c.passes.size() && d.computes && is_settled; ++p) {
    if (w_.c.passes[p].pass->extend(w_, *this)) d.passes |= 1u << w_.c.passes[p].number;
  }
  if (d.desc.fusion.tail != nullptr) d.outputs = d.desc.fusion.tail->outputs;
}

void StepFormer::form_segment(const CompiledSegment& segment) {
  StepDraft& d = draft_;
  const CompiledNode& n = w_.c.nodes[segment.first];
  d.absorbed.refer(segment.others);
  d.packed = segment.packed;
  d.views = 0;
  d.outputs = segment.values.outputs;
  const auto descs_of = [&](std::span<const ValueId> values) {
    const std::size_t first = d.descs.size();
    for (const ValueId v : values) d.descs.push_back(v == kNoValue ? TensorDesc{} : w_.state.descs[v]);
    return std::span<const TensorDesc>(d.descs).subspan(first);
  };
  const auto desc_of = [&](std::int32_t node, std::span<const ValueId> inputs, std::span<const ValueId> outputs,
                           std::span<const WeightPtr> constants) {
    OpDesc desc{&w_.graph.nodes[node], descs_of(inputs), descs_of(outputs), constants};
    desc.threads = w_.threads_of(n.slot);
    n.set_choices(&desc);
    return desc;
  };
  d.desc = desc_of(segment.first, segment.values.inputs, segment.values.outputs, segment.constants);
  d.computes =
      std::any_of(d.desc.outputs.begin(), d.desc.outputs.end(), [](const TensorDesc& desc) { return desc.shape.elements() != 0; });
  for (const ValueId v : segment.values.inputs) d.operands.push_back({v, false});
  const auto add_node = [&](std::int32_t index) {
    const Node& node = w_.graph.nodes[index];
    d.nodes.push_back(desc_of(index, node.inputs, node.outputs, w_.c.nodes[index].constants));
  };
  add_node(segment.first);
  for (const std::int32_t other : segment.others) add_node(other);
  d.desc.nodes = d.nodes;
  d.desc.values = &segment.values;
}

void StepFormer::add_descs(std::int32_t index, std::size_t first) {
  const Node& node = w_.graph.nodes[index];
  std::vector<TensorDesc>& descs = draft_.descs;
  for (std::size_t k = first; k < node.inputs.size(); ++k)
    descs.push_back(node.inputs[k] == kNoValue ? TensorDesc{} : w_.state.descs[node.inputs[k]]);
  descs.resize(descs.size() + w_.c.nodes[index].fused.size());
  for (const ValueId v : node.outputs) descs.push_back(v == kNoValue ? TensorDesc{} : w_.state.descs[v]);
}

void StepFormer::add_operands(std::int32_t index, std::size_t first, int slot, std::span<const Buffer> packed, std::uint8_t views) {
  const Node& node = w_.graph.nodes[index];
  for (std::size_t k = first; k < node.inputs.size(); ++k) {
    const std::uint8_t wanted = k == 0 ? kViewInput : kViewInputs;
    const bool by_value = node.op->reads_value(k);  // kernels of other devices than the host read it from OpDesc::constants
    const bool by_copy = k < packed.size() && packed[k].memory != nullptr;
    const bool by_shape = k == 0 && (node.op->flags & kOpShapeOnly) != 0;
    const bool reads = !by_copy && !by_shape && (!by_value || w_.host(slot));
    draft_.operands.push_back({reads ? node.inputs[k] : kNoValue, (views & wanted) == wanted});
  }
  draft_.operands.resize(draft_.operands.size() + w_.c.nodes[index].fused.size());
}

void StepFormer::absorb(std::int32_t node, const TensorDesc& made) {
  w_.state.descs[w_.graph.nodes[node].outputs[0]] = made;  // which the walk over the shapes may not have reached
  draft_.absorbed.push(node);
}

// Only of inputs that are read by value: a kernel takes any other constant for one that it has packed.
void StepFormer::set_constants() {
  const Node& node = w_.graph.nodes[draft_.node];
  draft_.constants = w_.c.nodes[draft_.node].constants;
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const bool by_value = node.op->reads_value(k);
    if (by_value && node.inputs[k] != kNoValue && w_.plan->known[node.inputs[k]] != nullptr)
      draft_.constants[k] = w_.plan->known[node.inputs[k]];
  }
  draft_.desc.constants = draft_.constants;
}

void StepFormer::choose_late() {
  StepDraft& d = draft_;
  const std::span<const OpDesc> desc(&d.desc, 1);
  Claim claim = w_.c.devices[d.slot]->claim(desc);
  if (claim.segments.empty() && w_.c.placement.nodes[d.node].may_move) {
    d.slot = 0;
    claim = w_.c.devices[0]->claim(desc);
  }
  Device& device = *w_.c.devices[d.slot];
  if (claim.segments.empty()) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "cannot run %s: %s", d.desc.node->op_type.c_str(), claim.refusals[0].c_str())
        .with_device(device.name().c_str());
  }
  d.kernel = claim.segments[0].kernel;
  const std::size_t inputs = d.desc.inputs.size();
  if (d.kernel->layouts != nullptr) {
    d.late_layouts.assign(inputs + d.desc.outputs.size(), Layout::kPlain);
    const std::span<Layout> all(d.late_layouts);
    d.kernel->layouts(d.desc, all.first(inputs), all.subspan(inputs));
    d.desc.layouts = d.late_layouts.data();
  }
  d.late_packed.resize(inputs);
  for (std::size_t k = 0; k < inputs; ++k) {
    d.late_packed[k] = w_.c.model->store.packed(device, *d.kernel, d.desc, static_cast<int>(k), nullptr, *w_.c.kept);
  }
  d.packed = d.late_packed;
}

void StepFormer::choose_for_empty() {
  StepDraft& d = draft_;
  const auto empty = [](const TensorDesc& desc) { return desc.dtype != DType::kUndefined && desc.shape.elements() == 0; };
  std::size_t first = 0;  // input that is empty
  for (; first < d.desc.inputs.size(); ++first) {
    const bool by_value = d.desc.node->op->reads_value(first);
    if (!by_value && empty(d.desc.inputs[first])) break;
  }
  d.computes = std::any_of(d.desc.outputs.begin(), d.desc.outputs.end(),
                           [&](const TensorDesc& desc) { return desc.dtype != DType::kUndefined && !empty(desc); });
  if (!d.computes || first == d.desc.inputs.size() || d.kernel->takes_empty) return;
  d.desc.layouts = nullptr;
  d.packed = {};
  d.kernel = w_.c.devices[d.slot]->reference_kernel(d.desc);
  if (d.kernel != nullptr) return;
  const Device& placed = *w_.c.devices[d.slot];
  d.slot = 0;
  d.why_moved = " does not run an input without elements: ";
  d.desc.threads = w_.threads_of(d.slot);
  d.desc.precision = Precision::kFloat32;
  d.kernel = w_.c.devices[d.slot]->reference_kernel(d.desc);
  if (d.kernel == nullptr) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "input %zu of %s has no elements, which neither this device nor the CPU runs", first,
                     d.desc.node->op_type.c_str())
        .with_device(placed.name().c_str());
  }
}

}  // namespace evn
