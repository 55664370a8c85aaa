#include "runtime/lower/plan_steps.h"

#include <algorithm>

#include "base/cancel.h"

namespace evn {

void PlanSteps::add_kernel(std::int32_t index) {
  for (const ActivePass& p : c_.passes) {
    if (c_.nodes[index].mode == NodeMode::kSegment || !p.pass->elide(*this, index)) continue;
    plan_->elided.push_back({index, 1u << p.number});
    return;
  }
  form(index);
  PlanStep step = keep_draft();
  find_inputs(&step);
  set_output_roots(&step, draft_.views, input_roots_);
  for (OpDesc& stage : draft_.nodes.empty() ? std::span<OpDesc>() : std::span<OpDesc>(plan_->step_nodes.back())) {
    stage.fusion.pitches =
        step.desc.fusion.pitches == nullptr ? nullptr : step.desc.fusion.pitches + (stage.inputs.data() - step.desc.inputs.data());
  }
  for (const ActivePass& p : c_.passes) {
    if (p.pass->finish(*this, &step, input_roots_, output_roots_[0])) step.passes |= 1u << p.number;
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
  step.passes = d.passes;
  step.trial = d.trial;
  step.why_moved = d.why_moved;
  step.desc = d.desc;
  step.first_desc = static_cast<std::uint32_t>(plan_->descs.size());
  plan_->descs.insert(plan_->descs.end(), d.descs.begin(), d.descs.end());
  // Where the plan keeps descs of the draft.
  const auto kept = [&](std::span<const TensorDesc> descs) -> std::span<const TensorDesc> {
    return {plan_->descs.data() + step.first_desc + (descs.data() - d.descs.data()), descs.size()};
  };
  step.desc.inputs = kept(d.desc.inputs);
  step.desc.outputs = kept(d.desc.outputs);
  for (const std::int32_t with : d.absorbed) s_.without_step[static_cast<std::size_t>(with)] = true;
  if (!d.nodes.empty()) {
    std::vector<OpDesc>& nodes = plan_->step_nodes.emplace_back(d.nodes);
    for (OpDesc& node : nodes) {
      node.inputs = kept(node.inputs);
      node.outputs = kept(node.outputs);
    }
    step.desc.nodes = nodes;
    if (step.desc.values == nullptr) keep_stages(&step);
    return step;
  }
  if (!d.constants.empty()) {
    step.constants = static_cast<std::int32_t>(plan_->constants.size());
    step.desc.constants = plan_->constants.emplace_back(d.constants);
  }
  if (c_.nodes[d.node].choose_late && !d.packed.empty()) step.packed = plan_->packed.emplace_back(d.late_packed);
  if (step.desc.layouts != nullptr && step.desc.layouts == d.late_layouts.data())
    step.desc.layouts = plan_->layouts.emplace_back(d.late_layouts).data();
  return step;
}

void PlanSteps::keep_stages(PlanStep* step) {
  std::vector<Layout>& layouts = plan_->layouts.emplace_back();
  std::vector<Buffer>& packed = plan_->packed.emplace_back();
  for (const OpDesc& stage : step->desc.nodes) {
    const CompiledNode& n = c_.nodes[number_of(*stage.node)];
    layouts.insert(layouts.end(), n.layouts.begin(), n.layouts.begin() + static_cast<std::ptrdiff_t>(stage.inputs.size()));
    packed.insert(packed.end(), n.packed.begin(), n.packed.end());
    packed.resize(layouts.size());
  }
  layouts.push_back(step->desc.nodes.back().output_layout());
  step->desc.layouts = layouts.data();
  step->packed = packed;
}

void PlanSteps::find_inputs(PlanStep* step) {
  input_roots_.clear();
  auto* const may_be_paged = step->kernel->fusion.paged_inputs;
  const std::uint32_t pages = may_be_paged != nullptr && step->desc.nodes.empty() ? may_be_paged(step->desc) : 0;
  for (std::size_t k = 0; k < draft_.operands.size(); ++k) {
    cancellation_point(8);
    const StepOperand& o = draft_.operands[k];
    const std::int32_t paged = k < 32 && (pages >> k & 1) != 0 ? paged_root(o.value) : -1;
    if (paged >= 0) step->desc.fusion.paged |= 1u << k;
    input_roots_.push_back(paged >= 0 ? paged
                           : o.value == kNoValue
                               ? -1
                               : need(o.value, step->slot, step->desc.input_layout(static_cast<int>(k)), o.may_be_view));
  }
}

// The root of v in pages of rows that kernels read so, whether or not v lies in plain order too; -1: there is none.
std::int32_t PlanSteps::paged_root(ValueId v) {
  const std::int32_t r = v == kNoValue ? -1 : s_.storage.root(v, Representation::paged());
  return r >= 0 && s_.roots[r].paged_axis == s_.descs[v].shape.rank() - 2 ? r : -1;
}

void PlanSteps::add_step(PlanStep* step) {
  step->buffers = static_cast<std::uint32_t>(plan_->buffers.size());
  for (const std::int32_t r : input_roots_) add_buffer(r);
  bool any_output = false;
  for (std::size_t k = 0; k < step->desc.outputs.size(); ++k) {
    cancellation_point(8);
    const std::int32_t r = output_root(*step, k, input_roots_);
    any_output |= r >= 0 && s_.roots[r].bytes > 0;
    if (k == 0 && r >= 0) s_.roots[r].is_16bit = step->desc.writes_16bit();
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
