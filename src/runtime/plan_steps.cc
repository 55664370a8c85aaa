#include "runtime/plan_steps.h"

#include <algorithm>

namespace evn {

void PlanSteps::take_sums(const CompiledNode& n, PlanStep* step) {
  OpDesc& d = step->desc;
  int at = static_cast<int>(d.node->inputs.size());
  const auto take = [&, extra = const_cast<TensorDesc*>(d.inputs.data())](const FollowingSum& sum) {  // the plan's own
    d.tail = &graph_.nodes[sum.node];
    d.byte_sum = sum.byte_sum();
    extra[at] = s_.descs[sum.operand];
    s_.descs[d.tail->outputs[0]] = d.outputs[0];
    absorb(sum.node, step);
    return at++;
  };
  if (n.bias.node >= 0) d.bias = take(n.bias);
  if (n.residual.node >= 0 && s_.descs[n.residual.operand].shape == d.outputs[0].shape) d.residual = take(n.residual);
}

void PlanSteps::absorb(std::int32_t node, PlanStep* step) {
  s_.absorbed[static_cast<std::size_t>(node)] = true;
  step->absorbed.push(node);
}

OpDesc PlanSteps::part_desc(std::int32_t index, std::size_t first) const {
  const CompiledNode& n = c_.nodes[index];
  const std::size_t inputs = graph_.nodes[index].inputs.size() + (n.residual.node >= 0 ? 1 : 0);
  OpDesc d{&graph_.nodes[index], {plan_->descs.data() + first, inputs}, {plan_->descs.data() + first + inputs, 1}, n.constants};
  d.layouts = n.layouts.data();
  d.threads = threads_of(0);
  d.strict = n.strict;
  return d;
}

bool PlanSteps::add_bands(std::int32_t index, std::size_t first) {
  const Bands& bands = *c_.devices[0]->bands();
  const OpDesc alone = part_desc(index, first);
  if (!bands.joins({&alone, 1})) return false;
  std::vector<OpDesc>& parts = plan_->parts.emplace_back();
  parts.push_back(alone);
  PlanStep step;
  step.node = index;
  step.kernel = &bands.kernel;
  std::int32_t last = index;
  do {
    last = c_.nodes[last].next;
    const Node& node = graph_.nodes[last];
    const std::size_t at = plan_->descs.size() - 1;
    for (std::size_t k = 1; k < node.inputs.size(); ++k) {
      plan_->descs.push_back(node.inputs[k] == kNoValue ? TensorDesc{} : s_.descs[node.inputs[k]]);
    }
    if (c_.nodes[last].residual.node >= 0) plan_->descs.emplace_back();
    plan_->descs.push_back({graph_.values[node.outputs[0]].dtype, {}});
    parts.push_back(part_desc(last, at));  // from the output of the one before on, which is its input 0
    try {
      infer(node, {plan_->descs.data() + at, plan_->descs.size() - at});
    } catch (Error& e) {
      if (e.node[0] == '\0') e.with_node(node.name.c_str());
      throw;
    }
    s_.descs[node.outputs[0]] = plan_->descs.back();
    absorb(last, &step);
  } while (c_.nodes[last].next >= 0 && parts.size() < kMostParts && bands.joins(parts));
  take_residual(index, last, &parts.back(), &step);
  add_band_step(&step, parts);
  return true;
}

void PlanSteps::take_residual(std::int32_t first, std::int32_t last, OpDesc* part, PlanStep* step) {
  const FollowingSum& sum = c_.nodes[last].residual;
  if (sum.node < 0 || sum.maker >= first || s_.descs[sum.operand].shape != part->outputs[0].shape) return;
  part->residual = static_cast<int>(part->inputs.size()) - 1;
  part->tail = &graph_.nodes[sum.node];
  part->byte_sum = sum.byte_sum();
  const_cast<TensorDesc&>(part->inputs.back()) = s_.descs[sum.operand];  // the plan's own
  s_.descs[part->tail->outputs[0]] = part->outputs[0];
  absorb(sum.node, step);
}

void PlanSteps::add_band_step(PlanStep* step, std::span<OpDesc> parts) {
  OpDesc& d = step->desc;
  d.node = parts.front().node;
  d.tail = parts.back().tail != nullptr ? parts.back().tail : parts.back().node;
  d.inputs = {parts.front().inputs.data(), parts.back().outputs.data()};
  d.outputs = parts.back().outputs;
  d.parts = parts;
  d.strict = parts.front().strict;  // all are, or none
  d.threads = threads_of(0);
  std::vector<Layout>& layouts = plan_->layouts.emplace_back();
  std::vector<Buffer>& packed = plan_->packed.emplace_back();
  std::vector<std::int32_t>& in = input_roots_;
  in.clear();
  for (const OpDesc& part : parts) {
    const CompiledNode& n = c_.nodes[static_cast<std::size_t>(part.node - graph_.nodes.data())];
    layouts.insert(layouts.end(), n.layouts.begin(), n.layouts.begin() + static_cast<std::ptrdiff_t>(part.inputs.size()));
    packed.insert(packed.end(), n.packed.begin(), n.packed.end());
    packed.resize(layouts.size());
    for (std::size_t k = 0; k < part.inputs.size(); ++k) {
      const bool is_between = k == 0 && &part != &parts.front();
      const bool is_sum = k >= part.node->inputs.size();
      const bool by_copy = !is_sum && n.packed[k].memory != nullptr;
      std::int32_t r = -1;
      if (is_sum && part.residual >= 0) r = need(n.residual.operand, 0, part.output_layout(), (n.pitched & kPitchedResidual) != 0);
      if (!is_sum && !is_between && !by_copy) r = input_root(*part.node, k, 0, part.input_layout(static_cast<int>(k)), n.pitched);
      in.push_back(r);
    }
  }
  layouts.push_back(parts.back().output_layout());
  d.layouts = layouts.data();
  step->packed = packed;
  set_places(step, kPitchedOutputs, in);
  for (OpDesc& part : parts) part.pitches = d.pitches == nullptr ? nullptr : d.pitches + (part.inputs.data() - d.inputs.data());
  step->kernel->plan(d, &step->plan);
  add_step(step, in);
}

void PlanSteps::add_kernel(std::int32_t index, std::size_t first_desc, std::size_t inputs) {
  const Node& node = graph_.nodes[index];
  const CompiledNode& n = c_.nodes[index];
  const std::span<const TensorDesc> all(plan_->descs.data() + first_desc, inputs + node.outputs.size());
  if (n.pitched != 0 && (join(node) || cut_out(node))) {
    plan_->joined.push_back(index);
    return plan_->descs.resize(first_desc);
  }
  PlanStep step;
  step.node = index;
  step.slot = n.slot;
  step.kernel = n.kernel;
  step.desc = {&node, all.first(inputs), all.subspan(inputs), n.constants};
  step.desc.threads = threads_of(n.slot);
  step.desc.precision = n.precision;
  step.desc.strict = n.strict;
  if (n.has_planned_input) {
    std::vector<WeightPtr>& constants = plan_->constants.emplace_back(n.constants);
    // Only of inputs that are read by value: a kernel takes any other constant for one that it has packed.
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const bool by_value = k < 32 && (node.op->value_inputs >> k & 1) != 0;
      if (by_value && node.inputs[k] != kNoValue && plan_->known[node.inputs[k]] != nullptr) constants[k] = plan_->known[node.inputs[k]];
    }
    step.desc.constants = constants;
  }
  if (!n.layouts.empty()) step.desc.layouts = n.layouts.data();
  step.packed = n.packed;
  if (n.choose_late) choose_late(&step);
  const bool computes = choose_for_empty(&step);
  std::vector<std::int32_t>& in = input_roots_;
  in.assign(inputs, -1);
  if (computes && step.kernel == n.kernel) take_sums(n, &step);
  const std::uint8_t pitched = step.desc.layouts == n.layouts.data() ? n.pitched : 0;
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const bool by_copy = k < step.packed.size() && step.packed[k].memory != nullptr && host(step.slot);
    if (!by_copy) in[k] = input_root(node, k, step.slot, step.desc.input_layout(static_cast<int>(k)), pitched);
  }
  if (step.desc.bias >= 0) in[static_cast<std::size_t>(step.desc.bias)] = need(n.bias.operand, step.slot);
  if (step.desc.residual >= 0) {
    in[static_cast<std::size_t>(step.desc.residual)] = need(n.residual.operand, step.slot, step.desc.output_layout(), (pitched & kPitchedResidual) != 0);
  }
  set_places(&step, pitched, in);
  step.desc.narrow = narrow_of(step, in, placed_[0] >= 0);
  if (computes) step.kernel->plan(step.desc, &step.plan);
  add_step(&step, in);
}

void PlanSteps::add_step(PlanStep* step, const std::vector<std::int32_t>& in) {
  for (const std::int32_t r : in) {
    if (r >= 0 && host(step->slot)) step->wait_slots |= s_.roots[r].pending_slots;
  }
  step->buffers = static_cast<std::uint32_t>(plan_->buffers.size());
  for (const std::int32_t r : in) add_buffer(r);
  bool any_output = false;
  for (std::size_t k = 0; k < step->desc.outputs.size(); ++k) {
    const std::int32_t r = output_root(*step, k, in);
    any_output |= r >= 0 && s_.roots[r].bytes > 0;
    if (k == 0 && r >= 0) s_.roots[r].narrow = step->desc.writes_narrow();
    add_buffer(r);
  }
  add_buffer(scratch_root(step->slot, step->plan));
  if (any_output) {
    s_.step_of[static_cast<std::size_t>(step->node)] = now();
    plan_->steps.push_back(*step);
  } else {
    plan_->buffers.resize(step->buffers);
    s_.buffer_roots.resize(step->buffers);
  }
}

void PlanSteps::choose_late(PlanStep* step) {
  const NodePlacement& placed = c_.placement.nodes[step->node];
  const std::span<const OpDesc> desc(&step->desc, 1);
  Claim claim = c_.devices[step->slot]->claim(desc);
  if (claim.segments.empty() && placed.may_move) {
    step->slot = 0;
    claim = c_.devices[0]->claim(desc);
  }
  Device& device = *c_.devices[step->slot];
  if (claim.segments.empty()) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "cannot run %s: %s", step->desc.node->op_type.c_str(), claim.refusals[0].c_str())
        .with_device(device.name().c_str());
  }
  step->kernel = claim.segments[0].kernel;
  if (step->kernel->layouts != nullptr) {
    const std::size_t inputs = step->desc.inputs.size();
    std::vector<Layout>& layouts = plan_->layouts.emplace_back(inputs + step->desc.outputs.size(), Layout::kPlain);
    const std::span<Layout> all(layouts);
    step->kernel->layouts(step->desc, all.first(inputs), all.subspan(inputs));
    step->desc.layouts = layouts.data();
  }
  std::vector<Buffer>& packed = plan_->packed.emplace_back(step->desc.inputs.size());
  for (std::size_t k = 0; k < packed.size(); ++k) {
    packed[k] = c_.model->store.packed(device, *step->kernel, step->desc, static_cast<int>(k), nullptr);
  }
  step->packed = packed;
}

bool PlanSteps::choose_for_empty(PlanStep* step) {
  const auto empty = [](const TensorDesc& d) { return d.dtype != DType::kUndefined && d.shape.elements() == 0; };
  bool some_empty = false;
  for (std::size_t k = 0; k < step->desc.inputs.size(); ++k) {
    const bool by_value = k < 32 && (step->desc.node->op->value_inputs >> k & 1) != 0;
    some_empty |= !by_value && empty(step->desc.inputs[k]);
  }
  const bool none_out = std::all_of(step->desc.outputs.begin(), step->desc.outputs.end(),
                                    [&](const TensorDesc& d) { return d.dtype == DType::kUndefined || empty(d); });
  if (none_out) return false;
  if (!some_empty || step->kernel->takes_empty) return true;
  const Device& device = *c_.devices[step->slot];
  step->kernel = device.reference_kernel(step->desc);
  step->desc.layouts = nullptr;
  step->packed = {};
  if (step->kernel == nullptr) {
    throw make_error(EVN_ERROR_UNSUPPORTED, "an input has no elements, which this device does not run").with_device(device.name().c_str());
  }
  return true;
}

}  // namespace evn
