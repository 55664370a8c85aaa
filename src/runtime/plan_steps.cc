#include "runtime/plan_steps.h"

#include <algorithm>

namespace evn {

void PlanSteps::add_kernel(std::int32_t index) {
  const Node& node = graph_.nodes[index];
  const CompiledNode& n = c_.nodes[index];
  if (n.pitched != 0 && (join(node) || cut_out(node))) {
    plan_->joined.push_back(index);
    return;
  }
  form(index);
  PlanStep step = keep_draft();
  const bool in_bands = !step.desc.parts.empty();
  in_bands ? find_inputs_of_parts(step) : find_inputs(step);
  const std::uint8_t pitched = in_bands ? kPitchedOutputs : pitched_of(step);
  set_places(&step, pitched, input_roots_);
  if (in_bands) {
    for (OpDesc& part : plan_->parts.back()) part.pitches = step.desc.pitches == nullptr ? nullptr : step.desc.pitches + (part.inputs.data() - step.desc.inputs.data());
  } else {
    step.desc.narrow = narrow_of(step, input_roots_, placed_[0] >= 0);
  }
  if (draft_.computes) step.kernel->plan(step.desc, &step.plan);
  add_step(&step);
}

PlanStep PlanSteps::keep_draft() {
  StepDraft& d = draft_;
  PlanStep step;
  step.node = d.node;
  step.slot = d.slot;
  step.kernel = d.kernel;
  step.absorbed = d.absorbed;
  step.packed = d.packed;
  step.desc = d.desc;
  step.first_desc = static_cast<std::uint32_t>(plan_->descs.size());
  plan_->descs.insert(plan_->descs.end(), d.descs.begin(), d.descs.end());
  // The same descs, now the plan's.
  const auto kept = [&](std::span<const TensorDesc> descs) -> std::span<const TensorDesc> {
    return {plan_->descs.data() + step.first_desc + (descs.data() - d.descs.data()), descs.size()};
  };
  step.desc.inputs = kept(d.desc.inputs);
  step.desc.outputs = kept(d.desc.outputs);
  for (const std::int32_t with : d.absorbed) s_.absorbed[static_cast<std::size_t>(with)] = true;
  if (!d.parts.empty()) {
    std::vector<OpDesc>& parts = plan_->parts.emplace_back(d.parts);
    for (OpDesc& part : parts) {
      part.inputs = kept(part.inputs);
      part.outputs = kept(part.outputs);
    }
    step.desc.parts = parts;
    keep_parts(&step);
    return step;
  }
  if (!d.constants.empty()) {
    step.constants = static_cast<std::int32_t>(plan_->constants.size());
    step.desc.constants = plan_->constants.emplace_back(d.constants);
  }
  if (c_.nodes[d.node].choose_late && !d.packed.empty()) step.packed = plan_->packed.emplace_back(d.late_packed);
  if (step.desc.layouts != nullptr && step.desc.layouts == d.late_layouts.data()) step.desc.layouts = plan_->layouts.emplace_back(d.late_layouts).data();
  return step;
}

void PlanSteps::keep_parts(PlanStep* step) {
  std::vector<Layout>& layouts = plan_->layouts.emplace_back();
  std::vector<Buffer>& packed = plan_->packed.emplace_back();
  for (const OpDesc& part : step->desc.parts) {
    const CompiledNode& n = c_.nodes[number_of(*part.node)];
    layouts.insert(layouts.end(), n.layouts.begin(), n.layouts.begin() + static_cast<std::ptrdiff_t>(part.inputs.size()));
    packed.insert(packed.end(), n.packed.begin(), n.packed.end());
    packed.resize(layouts.size());
  }
  layouts.push_back(step->desc.parts.back().output_layout());
  step->desc.layouts = layouts.data();
  step->packed = packed;
}

std::uint8_t PlanSteps::pitched_of(const PlanStep& step) const {
  const CompiledNode& n = c_.nodes[step.node];
  return step.desc.layouts == n.layouts.data() ? n.pitched : 0;
}

void PlanSteps::find_inputs(const PlanStep& step) {
  const OpDesc& d = step.desc;
  const Node& node = graph_.nodes[step.node];
  const CompiledNode& n = c_.nodes[step.node];
  const std::uint8_t pitched = pitched_of(step);
  input_roots_.assign(d.inputs.size(), -1);
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const bool by_copy = k < step.packed.size() && step.packed[k].memory != nullptr && host(step.slot);
    if (!by_copy) input_roots_[k] = input_root(node, k, step.slot, d.input_layout(static_cast<int>(k)), pitched);
  }
  if (d.bias >= 0) input_roots_[static_cast<std::size_t>(d.bias)] = need(n.bias.operand, step.slot);
  if (d.residual >= 0) {
    input_roots_[static_cast<std::size_t>(d.residual)] = need(n.residual.operand, step.slot, d.output_layout(), (pitched & kPitchedResidual) != 0);
  }
}

void PlanSteps::find_inputs_of_parts(const PlanStep& step) {
  input_roots_.clear();
  for (const OpDesc& part : step.desc.parts) {
    const CompiledNode& n = c_.nodes[number_of(*part.node)];
    for (std::size_t k = 0; k < part.inputs.size(); ++k) {
      const bool is_between = k == 0 && &part != &step.desc.parts.front();
      const bool is_sum = k >= part.node->inputs.size();
      const bool by_copy = !is_sum && n.packed[k].memory != nullptr;
      std::int32_t r = -1;
      if (is_sum && part.residual >= 0) r = need(n.residual.operand, 0, part.output_layout(), (n.pitched & kPitchedResidual) != 0);
      if (!is_sum && !is_between && !by_copy) r = input_root(*part.node, k, 0, part.input_layout(static_cast<int>(k)), n.pitched);
      input_roots_.push_back(r);
    }
  }
}

void PlanSteps::add_step(PlanStep* step) {
  for (const std::int32_t r : input_roots_) {
    if (r >= 0 && host(step->slot)) step->wait_slots |= s_.roots[r].pending_slots;
  }
  step->buffers = static_cast<std::uint32_t>(plan_->buffers.size());
  for (const std::int32_t r : input_roots_) add_buffer(r);
  bool any_output = false;
  for (std::size_t k = 0; k < step->desc.outputs.size(); ++k) {
    const std::int32_t r = output_root(*step, k, input_roots_);
    any_output |= r >= 0 && s_.roots[r].bytes > 0;
    if (k == 0 && r >= 0) s_.roots[r].narrow = step->desc.writes_narrow();
    add_buffer(r);
  }
  add_buffer(scratch_root(step->slot, step->plan));
  if (any_output) {
    s_.step_of[static_cast<std::size_t>(step->node)] = now();
    for (const std::int32_t with : step->absorbed) s_.step_of[static_cast<std::size_t>(with)] = now();
    plan_->steps.push_back(*step);
  } else {
    plan_->buffers.resize(step->buffers);
    s_.buffer_roots.resize(step->buffers);
  }
}

}  // namespace evn
