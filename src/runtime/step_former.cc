#include "runtime/step_former.h"

#include <algorithm>

namespace evn {

void StepFormer::form(std::int32_t index) {
  const Node& node = graph_.nodes[index];
  const CompiledNode& n = c_.nodes[index];
  StepDraft& d = draft_;
  d.node = index;
  d.slot = n.slot;
  d.kernel = n.kernel;
  d.computes = true;
  d.absorbed = {};
  d.packed = n.packed;
  d.descs.clear();
  d.parts.clear();
  d.constants.clear();
  add_descs(index, 0);
  if (n.next >= 0 && form_bands()) return;
  const std::size_t inputs = d.descs.size() - node.outputs.size();
  const std::span<const TensorDesc> all(d.descs);
  d.desc = {&node, all.first(inputs), all.subspan(inputs), n.constants};
  d.desc.threads = threads_of(n.slot);
  d.desc.precision = n.precision;
  d.desc.strict = n.strict;
  if (!n.layouts.empty()) d.desc.layouts = n.layouts.data();
  if (n.has_planned_input) set_constants();
  if (n.choose_late) choose_late();
  choose_for_empty();
  if (d.computes && d.kernel == n.kernel) take_sums();
}

void StepFormer::add_descs(std::int32_t index, std::size_t first) {
  const Node& node = graph_.nodes[index];
  const CompiledNode& n = c_.nodes[index];
  std::vector<TensorDesc>& descs = draft_.descs;
  for (std::size_t k = first; k < node.inputs.size(); ++k) descs.push_back(node.inputs[k] == kNoValue ? TensorDesc{} : s_.descs[node.inputs[k]]);
  for (const FollowingSum* sum : {&n.bias, &n.residual}) {
    if (sum->node >= 0) descs.emplace_back();
  }
  for (const ValueId v : node.outputs) descs.push_back(v == kNoValue ? TensorDesc{} : s_.descs[v]);
}

OpDesc StepFormer::part_desc(std::int32_t index, std::size_t first) const {
  const CompiledNode& n = c_.nodes[index];
  const std::size_t inputs = draft_.descs.size() - 1 - first;
  OpDesc d{&graph_.nodes[index], {draft_.descs.data() + first, inputs}, {draft_.descs.data() + first + inputs, 1}, n.constants};
  d.layouts = n.layouts.data();
  d.threads = threads_of(0);
  d.strict = n.strict;
  return d;
}

bool StepFormer::form_bands() {
  const Bands& bands = *c_.devices[0]->bands();
  StepDraft& d = draft_;
  std::int32_t last = d.node;
  d.parts.push_back(part_desc(last, 0));
  while (d.parts.size() < kMostParts && may_join(c_.nodes[last].next) && bands.joins(d.parts)) {
    last = c_.nodes[last].next;
    const std::size_t first = d.descs.size() - 1;
    add_descs(last, 1);
    d.parts.push_back(part_desc(last, first));
    d.absorbed.push(last);
  }
  if (d.parts.size() == 1) {
    d.parts.clear();
    return false;
  }
  take_residual(last);
  const OpDesc& front = d.parts.front();
  const OpDesc& back = d.parts.back();
  d.kernel = &bands.kernel;
  d.desc = {};
  d.desc.node = front.node;
  d.desc.tail = back.tail != nullptr ? back.tail : back.node;
  d.desc.inputs = {front.inputs.data(), back.outputs.data()};
  d.desc.outputs = back.outputs;
  d.desc.parts = d.parts;
  d.desc.strict = front.strict;  // all are, or none
  d.desc.threads = threads_of(0);
  return true;
}

void StepFormer::take_residual(std::int32_t last) {
  OpDesc& part = draft_.parts.back();
  const FollowingSum& sum = c_.nodes[last].residual;
  if (sum.node < 0 || sum.maker >= draft_.node || s_.descs[sum.operand].shape != part.outputs[0].shape) return;
  part.residual = static_cast<int>(part.inputs.size()) - 1;
  part.tail = &graph_.nodes[sum.node];
  part.byte_sum = sum.byte_sum();
  draft_.descs[draft_.descs.size() - 2] = s_.descs[sum.operand];
  s_.descs[part.tail->outputs[0]] = part.outputs[0];
  draft_.absorbed.push(sum.node);
}

void StepFormer::take_sums() {
  StepDraft& d = draft_;
  const CompiledNode& n = c_.nodes[d.node];
  auto at = static_cast<int>(d.desc.node->inputs.size());
  const auto take = [&](const FollowingSum& sum) {
    d.desc.tail = &graph_.nodes[sum.node];
    d.desc.byte_sum = sum.byte_sum();
    d.descs[static_cast<std::size_t>(at)] = s_.descs[sum.operand];
    s_.descs[d.desc.tail->outputs[0]] = d.desc.outputs[0];  // which the walk may not have reached
    d.absorbed.push(sum.node);
    return at++;
  };
  if (n.bias.node >= 0) d.desc.bias = take(n.bias);
  if (n.residual.node >= 0 && s_.descs[n.residual.operand].shape == d.desc.outputs[0].shape) d.desc.residual = take(n.residual);
}

// Only of inputs that are read by value: a kernel takes any other constant for one that it has packed.
void StepFormer::set_constants() {
  const Node& node = graph_.nodes[draft_.node];
  draft_.constants = c_.nodes[draft_.node].constants;
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const bool by_value = k < 32 && (node.op->value_inputs >> k & 1) != 0;
    if (by_value && node.inputs[k] != kNoValue && plan_->known[node.inputs[k]] != nullptr) draft_.constants[k] = plan_->known[node.inputs[k]];
  }
  draft_.desc.constants = draft_.constants;
}

void StepFormer::choose_late() {
  StepDraft& d = draft_;
  const std::span<const OpDesc> desc(&d.desc, 1);
  Claim claim = c_.devices[d.slot]->claim(desc);
  if (claim.segments.empty() && c_.placement.nodes[d.node].may_move) {
    d.slot = 0;
    claim = c_.devices[0]->claim(desc);
  }
  Device& device = *c_.devices[d.slot];
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
    d.late_packed[k] = c_.model->store.packed(device, *d.kernel, d.desc, static_cast<int>(k), nullptr);
  }
  d.packed = d.late_packed;
}

void StepFormer::choose_for_empty() {
  StepDraft& d = draft_;
  const auto empty = [](const TensorDesc& desc) { return desc.dtype != DType::kUndefined && desc.shape.elements() == 0; };
  bool some_empty = false;
  for (std::size_t k = 0; k < d.desc.inputs.size(); ++k) {
    const bool by_value = k < 32 && (d.desc.node->op->value_inputs >> k & 1) != 0;
    some_empty |= !by_value && empty(d.desc.inputs[k]);
  }
  d.computes = std::any_of(d.desc.outputs.begin(), d.desc.outputs.end(),
                           [&](const TensorDesc& desc) { return desc.dtype != DType::kUndefined && !empty(desc); });
  if (!d.computes || !some_empty || d.kernel->takes_empty) return;
  const Device& device = *c_.devices[d.slot];
  d.kernel = device.reference_kernel(d.desc);
  d.desc.layouts = nullptr;
  d.packed = {};
  if (d.kernel == nullptr) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "an input has no elements, which this device does not run").with_device(device.name().c_str());
  }
}

}  // namespace evn
