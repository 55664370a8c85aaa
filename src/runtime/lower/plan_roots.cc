#include "runtime/lower/plan_roots.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"

namespace evn {

std::int32_t PlanRoots::add_root(const PlanRoot& r) {
  s_.roots.push_back(r);
  return static_cast<std::int32_t>(s_.roots.size() - 1);
}

std::int32_t PlanRoots::add_arena_root(ValueId v, int slot, std::int32_t step) {
  PlanRoot r;
  r.source = Source::kArena;
  r.slot = static_cast<std::uint8_t>(slot);
  r.bytes = s_.descs[v].size_bytes();
  r.first = r.last = step;
  r.last_user = last_user(v);
  r.subplan = plan_->subplan;
  return add_root(r);
}

std::int32_t PlanRoots::add_fixed_root(ValueId v, int slot, const Buffer& fixed) {
  PlanRoot r;
  r.source = Source::kFixed;
  r.slot = static_cast<std::uint8_t>(slot);
  r.bytes = s_.descs[v].size_bytes();
  r.last_user = INT32_MAX;
  r.fixed = fixed;
  return add_root(r);
}

std::uint32_t PlanRoots::add_buffer(std::int32_t r) {
  plan_->buffers.emplace_back();
  s_.buffer_roots.push_back(r);
  if (r >= 0 && s_.roots[r].subplan == plan_->subplan) {
    owner(r).last = std::max(owner(r).last, now());
  }
  return static_cast<std::uint32_t>(plan_->buffers.size() - 1);
}

void PlanRoots::add_copy(ValueId v, std::int32_t from, std::int32_t to) {
  if (s_.roots[from].bytes == 0) return;
  PlanStep step;
  step.kind = PlanStep::Kind::kCopy;
  step.value = v;
  step.from_slot = s_.roots[from].slot;
  step.to_slot = s_.roots[to].slot;
  step.slot = host(step.from_slot) ? step.to_slot : step.from_slot;
  step.buffers = add_buffer(from);
  add_buffer(to);
  s_.other_steps.push_back(now());
  plan_->steps.push_back(step);
}

void PlanRoots::add_relayout(ValueId v, std::int32_t from, std::int32_t to, Layout wanted) {
  static constexpr Layout kLayouts[] = {Layout::kPlain, Layout::kChannelsLast, Layout::kChannelsLast, Layout::kPlain};
  const bool from_last = from == root(v, 0, Layout::kChannelsLast);
  if (s_.roots[from].bytes == 0) return;
  const TensorDesc& desc = plan_->relayouts.emplace_back(s_.descs[v]);
  PlanStep step;
  step.first_desc = static_cast<std::uint32_t>(plan_->relayouts.size() - 1);
  step.kind = PlanStep::Kind::kRelayout;
  step.value = v;
  step.kernel = c_.devices[0]->relayout_kernel();
  step.desc = {nullptr, {&desc, 1}, {&desc, 1}, {}, kLayouts + (wanted == Layout::kPlain ? 2 : from_last ? 1 : 0)};
  step.desc.threads = threads_of(step.slot);
  if (const RootView& view = s_.roots[from].view; view.is_strided())
    step.desc.fusion.pitches = plan_->pitches.emplace_back(std::vector{view.pitch, std::int64_t{0}}).data();
  step.kernel->plan(step.desc, &step.plan);
  step.buffers = add_buffer(from);
  add_buffer(to);
  add_buffer(-1);
  s_.other_steps.push_back(now());
  plan_->steps.push_back(step);
}

void PlanRoots::add_append(ValueId v, std::int32_t paged, std::int64_t first) {
  const std::int32_t from = need(v, 0);
  PlanStep step;
  step.kind = PlanStep::Kind::kAppend;
  step.value = v;
  step.plan.state<PagedRows>() = {first, s_.descs[v].shape[s_.roots[paged].paged_axis], s_.descs[v].dtype};
  step.buffers = add_buffer(from);
  add_buffer(paged);
  s_.other_steps.push_back(now());
  plan_->steps.push_back(step);
}

void PlanRoots::add_extend(ValueId v, std::int32_t paged, std::int64_t first) {
  PlanStep step;
  step.kind = PlanStep::Kind::kExtend;
  step.value = v;
  step.plan.state<PagedRows>() = {first, s_.descs[v].shape[s_.roots[paged].paged_axis] - first, s_.descs[v].dtype};
  step.buffers = add_buffer(-1);
  add_buffer(paged);
  s_.other_steps.push_back(now());
  plan_->steps.push_back(step);
  s_.storage.root(v, Representation::paged()) = paged;
}

std::int32_t PlanRoots::gather(ValueId v, std::int32_t paged) {
  const std::int32_t to = add_arena_root(v, 0, now());
  if (s_.roots[to].bytes == 0) return to;
  PlanStep step;
  step.kind = PlanStep::Kind::kGather;
  step.value = v;
  step.plan.state<PagedRows>() = {0, s_.descs[v].shape[s_.roots[paged].paged_axis], s_.descs[v].dtype};
  step.buffers = add_buffer(to);
  add_buffer(paged);
  s_.other_steps.push_back(now());
  plan_->steps.push_back(step);
  return to;
}

std::int32_t PlanRoots::relayout(ValueId v, std::int32_t from, Layout wanted) {
  if (same_in_all_layouts(s_.descs[v].shape) && !s_.roots[from].view.is_strided()) return root(v, 0, wanted) = from;
  const std::int32_t to = add_arena_root(v, 0, now());
  add_relayout(v, from, to, wanted);
  return root(v, 0, wanted) = to;
}

std::int32_t PlanRoots::need(ValueId v, int slot, Layout layout, bool may_be_view) {
  if (layout == Layout::kPlain) return need(v, slot);
  const std::int32_t r = root(v, slot, layout);
  if (r < 0) return relayout(v, need(v, slot), layout);
  if (may_be_view || !s_.roots[r].view.is_strided()) return r;
  std::int32_t& materialized = s_.storage.root(v, Representation::materialized());
  if (materialized < 0) {
    materialized = add_arena_root(v, 0, now());
    add_relayout(v, r, materialized, layout);
  }
  return materialized;
}

std::int32_t PlanRoots::need(ValueId v, int slot) {
  if (const std::int32_t r = root(v, slot); r >= 0) return r;
  if (const std::int32_t r = s_.storage.root(v, Representation::paged()); r >= 0 && root(v, 0) < 0) {
    root(v, 0) = gather(v, r);
    return need(v, slot);
  }
  if (const std::int32_t r = root(v, 0, Layout::kChannelsLast); r >= 0 && root(v, 0) < 0) {
    relayout(v, r, Layout::kPlain);
    return need(v, slot);
  }
  const WeightPtr& constant = graph_.values[v].constant;
  if (constant != nullptr || (s_.values[v] != nullptr && host(slot))) {
    Buffer fixed = {const_cast<void*>(s_.values[v]), 0, s_.descs[v].size_bytes()};
    if (constant != nullptr && !c_.only_estimated()) {
      if (s_.values[v] == nullptr) PlainWeights::Access(*c_.model).keep(*constant);
      fixed = c_.model->store.plain(*c_.devices[slot], *constant, *c_.kept);
    }
    return root(v, slot) = add_fixed_root(v, slot, fixed);
  }
  std::int32_t from = s_.values[v] != nullptr ? need(v, 0) : s_.storage.any_plain(v);
  EVN_CHECK(from >= 0);
  if (reads_in_place(from, v, slot)) {
    PlanRoot r = s_.roots[from];
    r.slot = static_cast<std::uint8_t>(slot);
    return root(v, slot) = add_root(r);
  }
  note_copy_of_input(from, slot);
  if (!host(s_.roots[from].slot) && !host(slot)) from = need(v, 0);  // between two devices by way of the host
  const std::int32_t to = add_arena_root(v, slot, now());
  add_copy(v, from, to);
  return root(v, slot) = to;
}

bool PlanRoots::reads_in_place(std::int32_t from, ValueId v, int slot) const {
  const PlanRoot& r = s_.roots[from];
  return plan_->signature->shares_inputs && r.source == Source::kInput && host(r.slot) && r.paged_axis < 0 && !r.view.exists() &&
         shares_input(c_, static_cast<std::size_t>(r.index), slot, s_.descs[v]);
}

void PlanRoots::note_given_copy(const GivenCopy& copy, std::size_t bytes) {
  const auto same = [&](const GivenCopy& c) { return c.is_output == copy.is_output && c.index == copy.index; };
  std::vector<GivenCopy>& all = plan_->given_copies;
  if (bytes > 0 && !host(copy.given_slot) && std::none_of(all.begin(), all.end(), same)) all.push_back(copy);
}

void PlanRoots::note_copy_of_input(std::int32_t from, int slot) {
  const PlanRoot& r = s_.roots[from];
  if (r.source == Source::kInput) note_given_copy({false, r.index, r.slot, static_cast<std::uint8_t>(slot)}, r.bytes);
}

std::int32_t PlanRoots::output_root(const PlanStep& step, std::size_t k, const std::vector<std::int32_t>& inputs) {
  const ValueId v = draft_.outputs[k];
  const int slot = step.slot;
  if (v == kNoValue) return -1;
  if (const std::int32_t j = s_.output_of[v]; j >= 0 && is_paged_slot(plan_->signature->output_slots[j]))
    return s_.storage.root(v, Representation::paged());
  const std::int32_t last_node = step.absorbed.of_segment != nullptr ? step.absorbed.end()[-1] : step.node;
  const Layout layout = step.desc.output_layout(static_cast<int>(k));
  const bool plain = layout == Layout::kPlain || same_in_all_layouts(s_.descs[v].shape);
  if (const std::int32_t j = s_.output_of[v]; (plain || c_.raw_outputs) && is_output_on(j, slot)) {
    plan_->outputs[j] = s_.descs[v];
    return root(v, slot, plain ? Layout::kPlain : layout) = add_output_root(static_cast<std::size_t>(j), slot);
  }
  if (output_roots_[k] >= 0) return root(v, slot, layout) = output_roots_[k];
  const InPlace in_place = step.kernel->in_place(step.desc, step.plan, k);
  for (std::size_t i = 0; in_place.any() && i < inputs.size(); ++i) {
    if (inputs[i] < 0 || !in_place.allows(i)) continue;
    PlanRoot& r = s_.roots[inputs[i]];
    bool is_read_elsewhere = false;  // by another operand, after the kernel has written there
    for (std::size_t other = 0; other < inputs.size(); ++other) {
      if (other == i || inputs[other] < 0 || &owner(inputs[other]) != &r) continue;
      if (k > 0 || inputs[other] != inputs[i] || !in_place.allows(other)) is_read_elsewhere = true;
    }
    if (is_read_elsewhere) continue;
    if (r.source != Source::kArena || r.view.exists() || r.last_user != last_node || r.bytes != s_.descs[v].size_bytes()) continue;
    r.last_user = last_user(v);
    r.last = std::max(r.last, now());
    return root(v, slot, layout) = inputs[i];
  }
  return root(v, slot, layout) = add_arena_root(v, slot, now());
}

std::int32_t PlanRoots::add_output_root(std::size_t j, int slot) {
  plan_->output_slots[j] = static_cast<std::uint8_t>(slot);
  PlanRoot r;
  r.source = Source::kOutput;
  r.slot = static_cast<std::uint8_t>(slot);
  r.index = static_cast<std::int32_t>(j);
  r.bytes = s_.descs[graph_.outputs[j]].size_bytes();
  r.last_user = INT32_MAX;
  return add_root(r);
}

std::int32_t PlanRoots::scratch_root(int slot, const KernelPlan& p) {
  const std::size_t bytes = scratch_bytes(slot, p);
  if (bytes == 0) return -1;
  PlanRoot r;
  r.source = Source::kArena;
  r.slot = static_cast<std::uint8_t>(slot);
  r.subplan = plan_->subplan;
  r.bytes = bytes;
  r.first = r.last = now();
  return add_root(r);
}

// Roots are numbered in the order in which they are added: copies come behind what they copy.
std::uint8_t PlanRoots::slot_that_made(ValueId v) {
  if (s_.values[v] != nullptr) return 0;
  std::int32_t first = INT32_MAX;
  for (const std::int32_t r : s_.storage.roots(v)) {
    if (r >= 0) first = std::min(first, r);
  }
  return first != INT32_MAX ? s_.roots[first].slot : 0;
}

std::uint8_t PlanRoots::slot_for_output(std::size_t j) {
  const std::uint8_t wanted = plan_->signature->output_slots[j];
  return wanted == kAnySlot ? slot_that_made(graph_.outputs[j]) : wanted;
}

bool PlanRoots::is_output_on(std::int32_t j, int slot) const {
  if (j < 0) return false;
  const Signature& s = *plan_->signature;
  const std::uint8_t wanted = s.output_slots[j];
  if (wanted == slot || wanted == kAnySlot) return true;
  const auto index = static_cast<std::size_t>(j);
  return s.shares_outputs && wanted == 0 && shares_output(c_, index, slot, s_.descs[graph_.outputs[index]]);
}

std::int32_t PlanRoots::last_user(ValueId v) const {
  if (c_.last_user[v] != INT32_MAX || plan_->signature->skipped.empty() || s_.output_of[v] >= 0) return c_.last_user[v];
  const std::uint32_t begin = c_.reader_begin[v], end = c_.reader_begin[static_cast<std::size_t>(v) + 1];
  return begin == end ? -1 : c_.readers[end - 1];
}

std::int32_t PlanRoots::add_view_root(ValueId v, std::int32_t of, std::int64_t first, std::int64_t channels, std::int64_t pitch) {
  const std::int32_t r = add_part_root(v, of, static_cast<std::size_t>(first) * dtype_size(s_.descs[v].dtype));
  RootView& view = s_.roots[r].view;
  view.channels = channels;
  if (!view.is_strided()) view.pitch = pitch;
  return r;
}

std::int32_t PlanRoots::add_part_root(ValueId v, std::int32_t of, std::size_t skip) {
  PlanRoot r = s_.roots[of];
  if (!r.view.exists()) r.view.parent = of;
  r.view.skip += skip;
  r.bytes = s_.descs[v].size_bytes();
  r.is_viewed = owner(of).is_viewed = true;
  keep_for(of, v);
  return add_root(r);
}

void PlanRoots::keep_for(std::int32_t r, ValueId v) {
  for (PlanRoot* root : {&s_.roots[r], &owner(r)}) root->last_user = std::max(root->last_user, last_user(v));
}

void PlanRoots::set_output_roots(PlanStep* step, std::uint8_t views, const std::vector<std::int32_t>& inputs) {
  const std::size_t outputs = step->desc.outputs.size();
  output_roots_.assign(outputs, -1);
  bool any = false;
  for (std::size_t k = 0; k < outputs && (views & kViewOutputs) != 0; ++k) {
    const ValueId v = draft_.outputs[k];
    if (v == kNoValue || step->desc.output_layout(static_cast<int>(k)) != Layout::kChannelsLast) continue;
    const bool plain = same_in_all_layouts(s_.descs[v].shape) || c_.raw_outputs;
    if (const std::int32_t j = s_.output_of[v]; plain && is_output_on(j, step->slot)) continue;
    for (std::size_t p = 0; p < c_.passes.size() && output_roots_[k] < 0; ++p) {
      output_roots_[k] = c_.passes[p].pass->output_root(*this, v, step->node);
      if (output_roots_[k] >= 0) step->passes |= 1u << c_.passes[p].number;
    }
    any |= output_roots_[k] >= 0 && s_.roots[output_roots_[k]].view.is_strided();
  }
  for (const std::int32_t r : inputs) any |= r >= 0 && s_.roots[r].view.is_strided();
  if (!any) return;
  std::vector<std::int64_t>& pitches = plan_->pitches.emplace_back();
  for (const std::int32_t r : inputs) pitches.push_back(r >= 0 ? s_.roots[r].view.pitch : 0);
  for (const std::int32_t r : output_roots_) pitches.push_back(r >= 0 ? s_.roots[r].view.pitch : 0);
  step->desc.fusion.pitches = pitches.data();
}

}  // namespace evn
