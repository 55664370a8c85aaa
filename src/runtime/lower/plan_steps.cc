#include "runtime/lower/plan_steps.h"

#include <algorithm>

#include "base/cancel.h"

namespace evn {

void PlanSteps::add_kernel(std::int32_t index) {
  for (const ActivePass& p : w_.c.passes) {
    if (w_.c.nodes[index].mode == NodeMode::kSegment || !p.pass->elide(w_, roots_, index)) continue;
    w_.plan->elided.push_back({index, 1u << p.number});
    return;
  }
  former_.form(index);
  PlanStep step = keep_draft();
  find_inputs(&step);
  set_output_roots(&step);
  for (OpDesc& stage : draft_.nodes.empty() ? std::span<OpDesc>() : std::span<OpDesc>(w_.plan->step_nodes.back())) {
    stage.fusion.pitches =
        step.desc.fusion.pitches == nullptr ? nullptr : step.desc.fusion.pitches + (stage.inputs.data() - step.desc.inputs.data());
  }
  for (const ActivePass& p : w_.c.passes) {
    if (p.pass->finish(w_, roots_, &step, input_roots_, output_roots_[0])) step.passes |= 1u << p.number;
  }
  if (draft_.computes) step.kernel->plan(step.desc, &step.plan);
  add_step(&step);
}

PlanStep PlanSteps::keep_draft() {
  const StepDraft& d = draft_;
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
  step.first_desc = static_cast<std::uint32_t>(w_.plan->descs.size());
  w_.plan->descs.insert(w_.plan->descs.end(), d.descs.begin(), d.descs.end());
  // Where the plan keeps descs of the draft.
  const auto kept = [&](std::span<const TensorDesc> descs) -> std::span<const TensorDesc> {
    return {w_.plan->descs.data() + step.first_desc + (descs.data() - d.descs.data()), descs.size()};
  };
  step.desc.inputs = kept(d.desc.inputs);
  step.desc.outputs = kept(d.desc.outputs);
  for (const std::int32_t with : d.absorbed) w_.state.without_step[static_cast<std::size_t>(with)] = true;
  if (!d.nodes.empty()) {
    std::vector<OpDesc>& nodes = w_.plan->step_nodes.emplace_back(d.nodes);
    for (OpDesc& node : nodes) {
      node.inputs = kept(node.inputs);
      node.outputs = kept(node.outputs);
    }
    step.desc.nodes = nodes;
    if (step.desc.values == nullptr) keep_stages(&step);
    return step;
  }
  if (!d.constants.empty()) {
    step.constants = static_cast<std::int32_t>(w_.plan->constants.size());
    step.desc.constants = w_.plan->constants.emplace_back(d.constants);
  }
  if (w_.c.nodes[d.node].choose_late && !d.packed.empty()) step.packed = w_.plan->packed.emplace_back(d.late_packed);
  if (step.desc.layouts != nullptr && step.desc.layouts == d.late_layouts.data())
    step.desc.layouts = w_.plan->layouts.emplace_back(d.late_layouts).data();
  return step;
}

void PlanSteps::keep_stages(PlanStep* step) {
  std::vector<Layout>& layouts = w_.plan->layouts.emplace_back();
  std::vector<Buffer>& packed = w_.plan->packed.emplace_back();
  for (const OpDesc& stage : step->desc.nodes) {
    const CompiledNode& n = w_.c.nodes[number_of(*stage.node)];
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
                               : roots_.need(o.value, step->slot, step->desc.input_layout(static_cast<int>(k)), o.may_be_view));
  }
}

// The root of v in pages of rows that kernels read so, whether or not v lies in plain order too; -1: there is none.
std::int32_t PlanSteps::paged_root(ValueId v) {
  const std::int32_t r = v == kNoValue ? -1 : w_.state.storage.root(v, Representation::paged());
  return r >= 0 && w_.state.roots[r].paged_axis == w_.state.descs[v].shape.rank() - 2 ? r : -1;
}

void PlanSteps::set_output_roots(PlanStep* step) {
  const std::size_t outputs = step->desc.outputs.size();
  output_roots_.assign(outputs, -1);
  bool any = false;
  for (std::size_t k = 0; k < outputs && (draft_.views & kViewOutputs) != 0; ++k) {
    const ValueId v = draft_.outputs[k];
    if (v == kNoValue || step->desc.output_layout(static_cast<int>(k)) != Layout::kChannelsLast) continue;
    const bool plain = PlanWork::same_in_all_layouts(w_.state.descs[v].shape) || w_.c.raw_outputs;
    if (const std::int32_t j = w_.state.output_of[v]; plain && roots_.is_output_on(j, step->slot)) continue;
    for (std::size_t p = 0; p < w_.c.passes.size() && output_roots_[k] < 0; ++p) {
      output_roots_[k] = w_.c.passes[p].pass->output_root(w_, roots_, v, step->node);
      if (output_roots_[k] >= 0) step->passes |= 1u << w_.c.passes[p].number;
    }
    any |= output_roots_[k] >= 0 && w_.state.roots[output_roots_[k]].view.is_strided();
  }
  for (const std::int32_t r : input_roots_) any |= r >= 0 && w_.state.roots[r].view.is_strided();
  if (!any) return;
  std::vector<std::int64_t>& pitches = w_.plan->pitches.emplace_back();
  for (const std::int32_t r : input_roots_) pitches.push_back(r >= 0 ? w_.state.roots[r].view.pitch : 0);
  for (const std::int32_t r : output_roots_) pitches.push_back(r >= 0 ? w_.state.roots[r].view.pitch : 0);
  step->desc.fusion.pitches = pitches.data();
}

void PlanSteps::add_step(PlanStep* step) {
  step->buffers = static_cast<std::uint32_t>(w_.plan->buffers.size());
  for (const std::int32_t r : input_roots_) roots_.add_buffer(r);
  bool any_output = false;
  for (std::size_t k = 0; k < step->desc.outputs.size(); ++k) {
    cancellation_point(8);
    const std::int32_t r = output_root(*step, k);
    any_output |= r >= 0 && w_.state.roots[r].bytes > 0;
    if (k == 0 && r >= 0) w_.state.roots[r].is_16bit = step->desc.writes_16bit();
    roots_.add_buffer(r);
  }
  const std::size_t scratch = w_.scratch_bytes(step->slot, step->plan);
  roots_.add_buffer(scratch > 0 ? roots_.add_scratch_root(step->slot, scratch, w_.now()) : -1);
  if (any_output) {
    w_.state.step_of[static_cast<std::size_t>(step->node)] = w_.now();
    for (const std::int32_t with : step->absorbed) w_.state.step_of[static_cast<std::size_t>(with)] = w_.now();
    w_.plan->steps.push_back(*step);
  } else {
    w_.plan->buffers.resize(step->buffers);
    w_.state.buffer_roots.resize(step->buffers);
  }
}

std::int32_t PlanSteps::output_root(const PlanStep& step, std::size_t k) {
  const ValueId v = draft_.outputs[k];
  const int slot = step.slot;
  if (v == kNoValue) return -1;
  if (const std::int32_t j = w_.state.output_of[v]; j >= 0 && is_paged_slot(w_.plan->signature->output_slots[j]))
    return w_.state.storage.root(v, Representation::paged());
  const std::int32_t last_node = step.absorbed.of_segment != nullptr ? step.absorbed.end()[-1] : step.node;
  const Layout layout = step.desc.output_layout(static_cast<int>(k));
  const bool plain = layout == Layout::kPlain || PlanWork::same_in_all_layouts(w_.state.descs[v].shape);
  if (const std::int32_t j = w_.state.output_of[v]; (plain || w_.c.raw_outputs) && roots_.is_output_on(j, slot)) {
    w_.plan->outputs[j] = w_.state.descs[v];
    return w_.root(v, slot, plain ? Layout::kPlain : layout) = roots_.add_output_root(static_cast<std::size_t>(j), slot);
  }
  if (output_roots_[k] >= 0) return w_.root(v, slot, layout) = output_roots_[k];
  const InPlace in_place = step.kernel->in_place(step.desc, step.plan, k);
  for (std::size_t i = 0; in_place.any() && i < input_roots_.size(); ++i) {
    if (input_roots_[i] < 0 || !in_place.allows(i)) continue;
    PlanRoot& r = w_.state.roots[input_roots_[i]];
    bool is_read_elsewhere = false;  // by another operand, after the kernel has written there
    for (std::size_t other = 0; other < input_roots_.size(); ++other) {
      if (other == i || input_roots_[other] < 0 || &w_.owner(input_roots_[other]) != &r) continue;
      if (k > 0 || input_roots_[other] != input_roots_[i] || !in_place.allows(other)) is_read_elsewhere = true;
    }
    if (is_read_elsewhere) continue;
    if (r.source != Source::kArena || r.view.exists() || r.last_user != last_node || r.bytes != w_.state.descs[v].size_bytes())
      continue;
    r.last_user = roots_.last_user(v);
    r.last = std::max(r.last, w_.now());
    return w_.root(v, slot, layout) = input_roots_[i];
  }
  return w_.root(v, slot, layout) = roots_.add_arena_root(v, slot, w_.now());
}

}  // namespace evn
