#include "runtime/lower/plan_roots.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"

namespace evn {

std::int32_t PlanRoots::add_root(const PlanRoot& r) {
  w_.state.roots.push_back(r);
  return static_cast<std::int32_t>(w_.state.roots.size() - 1);
}

std::int32_t PlanRoots::add_arena_root(ValueId v, int slot, std::int32_t step) {
  const std::int32_t r = add_scratch_root(slot, w_.state.descs[v].size_bytes(), step);
  w_.state.roots[r].last_user = last_user(v);
  return r;
}

std::int32_t PlanRoots::add_scratch_root(int slot, std::size_t bytes, std::int32_t step) {
  PlanRoot r;
  r.source = Source::kArena;
  r.slot = static_cast<std::uint8_t>(slot);
  r.subplan = w_.plan->subplan;
  r.bytes = bytes;
  r.first = r.last = step;
  return add_root(r);
}

std::int32_t PlanRoots::add_fixed_root(ValueId v, int slot, const Buffer& fixed) {
  PlanRoot r;
  r.source = Source::kFixed;
  r.slot = static_cast<std::uint8_t>(slot);
  r.bytes = w_.state.descs[v].size_bytes();
  r.last_user = INT32_MAX;
  r.fixed = fixed;
  return add_root(r);
}

std::uint32_t PlanRoots::add_buffer(std::int32_t r) {
  w_.plan->buffers.emplace_back();
  w_.state.buffer_roots.push_back(r);
  if (r >= 0 && w_.state.roots[r].subplan == w_.plan->subplan) {
    w_.owner(r).last = std::max(w_.owner(r).last, w_.now());
  }
  return static_cast<std::uint32_t>(w_.plan->buffers.size() - 1);
}

void PlanRoots::add_copy(ValueId v, std::int32_t from, std::int32_t to) {
  if (w_.state.roots[from].bytes == 0) return;
  PlanStep step;
  step.kind = PlanStep::Kind::kCopy;
  step.value = v;
  step.from_slot = w_.state.roots[from].slot;
  step.to_slot = w_.state.roots[to].slot;
  step.slot = w_.host(step.from_slot) ? step.to_slot : step.from_slot;
  step.buffers = add_buffer(from);
  add_buffer(to);
  w_.state.other_steps.push_back(w_.now());
  w_.plan->steps.push_back(step);
}

void PlanRoots::add_relayout(ValueId v, std::int32_t from, std::int32_t to, Layout wanted) {
  static constexpr Layout kLayouts[] = {Layout::kPlain, Layout::kChannelsLast, Layout::kChannelsLast, Layout::kPlain};
  const bool from_last = from == w_.root(v, 0, Layout::kChannelsLast);
  if (w_.state.roots[from].bytes == 0) return;
  const TensorDesc& desc = w_.plan->relayouts.emplace_back(w_.state.descs[v]);
  PlanStep step;
  step.first_desc = static_cast<std::uint32_t>(w_.plan->relayouts.size() - 1);
  step.kind = PlanStep::Kind::kRelayout;
  step.value = v;
  step.kernel = w_.c.devices[0]->relayout_kernel();
  step.desc = {nullptr, {&desc, 1}, {&desc, 1}, {}, kLayouts + (wanted == Layout::kPlain ? 2 : from_last ? 1 : 0)};
  step.desc.threads = w_.threads_of(step.slot);
  if (const RootView& view = w_.state.roots[from].view; view.is_strided())
    step.desc.fusion.pitches = w_.plan->pitches.emplace_back(std::vector{view.pitch, std::int64_t{0}}).data();
  step.kernel->plan(step.desc, &step.plan);
  step.buffers = add_buffer(from);
  add_buffer(to);
  add_buffer(-1);
  w_.state.other_steps.push_back(w_.now());
  w_.plan->steps.push_back(step);
}

void PlanRoots::add_append(ValueId v, std::int32_t paged, std::int64_t first) {
  const std::int32_t from = need(v, 0);
  PlanStep step;
  step.kind = PlanStep::Kind::kAppend;
  step.value = v;
  step.plan.state<PagedRows>() = {first, w_.state.descs[v].shape[w_.state.roots[paged].paged_axis], w_.state.descs[v].dtype};
  step.buffers = add_buffer(from);
  add_buffer(paged);
  w_.state.other_steps.push_back(w_.now());
  w_.plan->steps.push_back(step);
}

void PlanRoots::add_extend(ValueId v, std::int32_t paged, std::int64_t first) {
  PlanStep step;
  step.kind = PlanStep::Kind::kExtend;
  step.value = v;
  step.plan.state<PagedRows>() = {first, w_.state.descs[v].shape[w_.state.roots[paged].paged_axis] - first,
                                  w_.state.descs[v].dtype};
  step.buffers = add_buffer(-1);
  add_buffer(paged);
  w_.state.other_steps.push_back(w_.now());
  w_.plan->steps.push_back(step);
  w_.state.storage.root(v, Representation::paged()) = paged;
}

std::int32_t PlanRoots::gather(ValueId v, std::int32_t paged) {
  const std::int32_t to = add_arena_root(v, 0, w_.now());
  if (w_.state.roots[to].bytes == 0) return to;
  PlanStep step;
  step.kind = PlanStep::Kind::kGather;
  step.value = v;
  step.plan.state<PagedRows>() = {0, w_.state.descs[v].shape[w_.state.roots[paged].paged_axis], w_.state.descs[v].dtype};
  step.buffers = add_buffer(to);
  add_buffer(paged);
  w_.state.other_steps.push_back(w_.now());
  w_.plan->steps.push_back(step);
  return to;
}

std::int32_t PlanRoots::relayout(ValueId v, std::int32_t from, Layout wanted) {
  if (PlanWork::same_in_all_layouts(w_.state.descs[v].shape) && !w_.state.roots[from].view.is_strided())
    return w_.root(v, 0, wanted) = from;
  const std::int32_t to = add_arena_root(v, 0, w_.now());
  add_relayout(v, from, to, wanted);
  return w_.root(v, 0, wanted) = to;
}

std::int32_t PlanRoots::need(ValueId v, int slot, Layout layout, bool may_be_view) {
  if (layout == Layout::kPlain) return need(v, slot);
  const std::int32_t r = w_.root(v, slot, layout);
  if (r < 0) return relayout(v, need(v, slot), layout);
  if (may_be_view || !w_.state.roots[r].view.is_strided()) return r;
  std::int32_t& materialized = w_.state.storage.root(v, Representation::materialized());
  if (materialized < 0) {
    materialized = add_arena_root(v, 0, w_.now());
    add_relayout(v, r, materialized, layout);
  }
  return materialized;
}

std::int32_t PlanRoots::need(ValueId v, int slot) {
  if (const std::int32_t r = w_.root(v, slot); r >= 0) return r;
  if (const std::int32_t r = w_.state.storage.root(v, Representation::paged()); r >= 0 && w_.root(v, 0) < 0) {
    w_.root(v, 0) = gather(v, r);
    return need(v, slot);
  }
  if (const std::int32_t r = w_.root(v, 0, Layout::kChannelsLast); r >= 0 && w_.root(v, 0) < 0) {
    relayout(v, r, Layout::kPlain);
    return need(v, slot);
  }
  const WeightPtr& constant = w_.graph.values[v].constant;
  if (constant != nullptr || (w_.state.values[v] != nullptr && w_.host(slot))) {
    Buffer fixed = {const_cast<void*>(w_.state.values[v]), 0, w_.state.descs[v].size_bytes()};
    if (constant != nullptr && !w_.c.only_estimated()) {
      if (w_.state.values[v] == nullptr) PlainWeights::Access(*w_.c.model).keep(*constant);
      fixed = w_.c.model->store.plain(*w_.c.devices[slot], *constant, *w_.c.kept);
    }
    return w_.root(v, slot) = add_fixed_root(v, slot, fixed);
  }
  std::int32_t from = w_.state.values[v] != nullptr ? need(v, 0) : w_.state.storage.any_plain(v);
  EVN_CHECK(from >= 0);
  if (reads_in_place(from, v, slot)) {
    PlanRoot r = w_.state.roots[from];
    r.slot = static_cast<std::uint8_t>(slot);
    return w_.root(v, slot) = add_root(r);
  }
  note_copy_of_input(from, slot);
  if (!w_.host(w_.state.roots[from].slot) && !w_.host(slot)) from = need(v, 0);  // between two devices by way of the host
  const std::int32_t to = add_arena_root(v, slot, w_.now());
  add_copy(v, from, to);
  return w_.root(v, slot) = to;
}

bool PlanRoots::reads_in_place(std::int32_t from, ValueId v, int slot) const {
  const PlanState& s = w_.state;
  const PlanRoot& r = s.roots[from];
  return w_.plan->signature->shares_inputs && r.source == Source::kInput && w_.host(r.slot) && r.paged_axis < 0 &&
         !r.view.exists() && shares_input(w_.c, static_cast<std::size_t>(r.index), slot, s.descs[v]);
}

void PlanRoots::note_given_copy(const GivenCopy& copy, std::size_t bytes) {
  const auto same = [&](const GivenCopy& c) { return c.is_output == copy.is_output && c.index == copy.index; };
  std::vector<GivenCopy>& all = w_.plan->given_copies;
  if (bytes > 0 && !w_.host(copy.given_slot) && std::none_of(all.begin(), all.end(), same)) all.push_back(copy);
}

void PlanRoots::note_copy_of_input(std::int32_t from, int slot) {
  const PlanRoot& r = w_.state.roots[from];
  if (r.source == Source::kInput) note_given_copy({false, r.index, r.slot, static_cast<std::uint8_t>(slot)}, r.bytes);
}

std::int32_t PlanRoots::add_output_root(std::size_t j, int slot) {
  w_.plan->output_slots[j] = static_cast<std::uint8_t>(slot);
  PlanRoot r;
  r.source = Source::kOutput;
  r.slot = static_cast<std::uint8_t>(slot);
  r.index = static_cast<std::int32_t>(j);
  r.bytes = w_.state.descs[w_.graph.outputs[j]].size_bytes();
  r.last_user = INT32_MAX;
  return add_root(r);
}

// Roots are numbered in the order in which they are added: copies come behind what they copy.
std::uint8_t PlanRoots::slot_that_made(ValueId v) {
  if (w_.state.values[v] != nullptr) return 0;
  std::int32_t first = INT32_MAX;
  for (const std::int32_t r : w_.state.storage.roots(v)) {
    if (r >= 0) first = std::min(first, r);
  }
  return first != INT32_MAX ? w_.state.roots[first].slot : 0;
}

std::uint8_t PlanRoots::slot_for_output(std::size_t j) {
  const std::uint8_t wanted = w_.plan->signature->output_slots[j];
  return wanted == kAnySlot ? slot_that_made(w_.graph.outputs[j]) : wanted;
}

bool PlanRoots::is_output_on(std::int32_t j, int slot) const {
  if (j < 0) return false;
  const Signature& s = *w_.plan->signature;
  const std::uint8_t wanted = s.output_slots[j];
  if (wanted == slot || wanted == kAnySlot) return true;
  const auto index = static_cast<std::size_t>(j);
  return s.shares_outputs && wanted == 0 &&
         shares_output(w_.c, index, slot, std::as_const(w_.state).descs[w_.graph.outputs[index]]);
}

std::int32_t PlanRoots::last_user(ValueId v) const {
  const PlanState& s = w_.state;
  if (w_.c.last_user[v] != INT32_MAX || w_.plan->signature->skipped.empty() || s.output_of[v] >= 0) return w_.c.last_user[v];
  const std::uint32_t begin = w_.c.reader_begin[v], end = w_.c.reader_begin[static_cast<std::size_t>(v) + 1];
  return begin == end ? -1 : w_.c.readers[end - 1];
}

std::int32_t PlanRoots::add_view_root(ValueId v, std::int32_t of, std::int64_t first, std::int64_t channels, std::int64_t pitch) {
  const std::int32_t r = add_part_root(v, of, static_cast<std::size_t>(first) * dtype_size(w_.state.descs[v].dtype));
  RootView& view = w_.state.roots[r].view;
  view.channels = channels;
  if (!view.is_strided()) view.pitch = pitch;
  return r;
}

std::int32_t PlanRoots::add_part_root(ValueId v, std::int32_t of, std::size_t skip) {
  PlanRoot r = w_.state.roots[of];
  if (!r.view.exists()) r.view.parent = of;
  r.view.skip += skip;
  r.bytes = w_.state.descs[v].size_bytes();
  r.is_viewed = w_.owner(of).is_viewed = true;
  keep_for(of, v);
  return add_root(r);
}

void PlanRoots::keep_for(std::int32_t r, ValueId v) {
  for (PlanRoot* root : {&w_.state.roots[r], &w_.owner(r)}) root->last_user = std::max(root->last_user, last_user(v));
}

}  // namespace evn
