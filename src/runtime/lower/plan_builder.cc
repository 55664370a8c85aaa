#include "runtime/lower/plan_builder.h"

#include <algorithm>

#include "base/cancel.h"
#include "base/checked.h"
#include "runtime/lower/dead_nodes.h"

namespace evn {

void PlanBuilder::reserve(std::size_t end) {
  std::size_t args = 0;
  for (std::size_t i = w_.state.first_node; i < end; ++i) {
    cancellation_point(4);
    const Node& node = w_.graph.nodes[i];
    const std::size_t own = node.inputs.size() + w_.c.nodes[i].fused.size() + node.outputs.size();
    args += w_.c.nodes[i].segment < 0 ? own : 3 * own;  // a segment has descs of its own, and those of its nodes
  }
  if (end < w_.graph.nodes.size() || w_.state.first_node > 0) args *= 2;
  w_.plan->descs.reserve(args);
  const std::size_t at_end = end == w_.graph.nodes.size() ? 2 * w_.graph.outputs.size() : 0;  // copies of outputs
  w_.plan->steps.reserve(end - w_.state.first_node + at_end);
  w_.plan->buffers.reserve(args + end - w_.state.first_node);
  w_.state.buffer_roots.reserve(w_.plan->buffers.capacity());
}

void PlanBuilder::begin_part(const PlanState& before) {
  w_.state = before;
  for (std::size_t i = before.first_node; i < before.next_node; ++i) {
    cancellation_point();
    w_.state.step_of[i] = -1;
  }
  w_.state.buffer_roots.clear();
  w_.state.other_steps.clear();
  w_.state.first_node = w_.state.next_node;
  w_.state.first_root = w_.state.roots.size();
}

void PlanBuilder::start() {
  const std::size_t n = w_.graph.values.size();
  reserve(w_.graph.nodes.size());
  w_.state.step_of.assign(w_.graph.nodes.size(), -1);
  w_.state.descs.resize(n);
  w_.state.values.resize(n);
  for (std::size_t v = 0; v < n; ++v) {
    cancellation_point(8);
    w_.state.descs[v] = w_.c.constants[v].desc;
    w_.state.values[v] = w_.c.constants[v].data;
  }
  w_.state.storage = ValueStorage(n, w_.c.devices.size());
  w_.state.parent_of.assign(n, -1);
  w_.state.output_of.assign(n, -1);
  for (std::size_t j = w_.graph.outputs.size(); j-- > 0;) {
    cancellation_point();
    if (!w_.is_skipped(j)) w_.state.output_of[w_.graph.outputs[j]] = static_cast<std::int32_t>(j);
  }
  if (const std::vector<std::uint8_t>& skipped = w_.plan->signature->skipped; !skipped.empty())
    w_.state.dead = std::make_shared<const std::vector<bool>>(find_dead_nodes(w_.c, skipped));
  w_.plan->known.resize(n);
  w_.state.without_step.assign(w_.graph.nodes.size(), false);
  w_.plan->outputs.resize(w_.graph.outputs.size());
  w_.plan->output_slots.resize(w_.graph.outputs.size());
  for (std::size_t i = 0; i < w_.graph.inputs.size(); ++i) {
    cancellation_point(16);
    const ValueId v = w_.graph.inputs[i];
    w_.state.descs[v] = w_.plan->signature->inputs[i];
    if (w_.state.descs[v].wraps || !w_.state.descs[v].shape.is_known()) continue;
    const int slot = w_.plan->signature->input_slots[i];
    const bool is_paged = is_paged_slot(w_.plan->signature->input_slots[i]);
    PlanRoot r;
    r.source = Source::kInput;
    r.slot = is_paged ? std::uint8_t{0} : static_cast<std::uint8_t>(slot);
    r.index = static_cast<std::int32_t>(i);
    r.bytes = w_.state.descs[v].size_bytes();
    r.last_user = INT32_MAX;  // never written over
    if (is_paged) r.paged_axis = static_cast<std::int8_t>(slot - kPagedSlot);
    (is_paged ? w_.state.storage.root(v, Representation::paged()) : w_.root(v, slot)) = roots_.add_root(r);
    const auto& bytes = w_.plan->signature->values[i];
    if ((!w_.c.only_estimated() || !bytes.empty()) && is_key(w_.c, i, w_.state.descs[v]))
      w_.set_known(v, bytes.data(), bytes.size());
  }
}

void PlanBuilder::add_node(std::int32_t index) {
  const NodeMode mode = w_.c.nodes[index].mode;
  if (mode == NodeMode::kKernel || mode == NodeMode::kSegment) {
    steps_.add_kernel(index);
    add_early_outputs();
  }
  if (mode == NodeMode::kView) add_view(index);
}

void PlanBuilder::add_view(std::int32_t index) {
  const Node& node = w_.graph.nodes[index];
  const ValueId out = node.outputs[0];
  const int slot = w_.c.nodes[index].slot;
  const std::int32_t r = roots_.need(node.inputs[0], slot);
  w_.root(out, slot) = r;
  roots_.keep_for(r, out);
}

void PlanBuilder::share(ValueId from, ValueId to) {
  if (w_.root(from, 0, Layout::kChannelsLast) >= 0 || w_.state.storage.root(from, Representation::paged()) >= 0)
    roots_.need(from, 0);
  for (std::size_t slot = 0; slot < w_.c.devices.size(); ++slot) {
    std::int32_t r = w_.root(from, static_cast<int>(slot));
    if (r < 0 && w_.state.values[from] != nullptr && slot == 0) r = roots_.need(from, 0);
    w_.root(to, static_cast<int>(slot)) = r;
    if (r >= 0) roots_.keep_for(r, to);
  }
}

// Outputs of the latest step that go from a device to the host: copied at once, while the device goes on, and not at the end.
void PlanBuilder::add_early_outputs() {
  const StepDraft& draft = former_.draft();
  if (w_.host(draft.slot)) return;
  for (const ValueId v : draft.outputs) {
    const std::int32_t j = v == kNoValue ? -1 : w_.state.output_of[v];
    if (j < 0 || w_.plan->signature->output_slots[j] != 0 || w_.root(v, 0) >= 0) continue;
    const std::int32_t made = w_.root(v, draft.slot);
    if (made < 0 || w_.state.roots[made].source != Source::kArena) continue;
    add_output(static_cast<std::size_t>(j));
    w_.root(v, 0) = static_cast<std::int32_t>(w_.state.roots.size()) - 1;  // add_output's
  }
}

void PlanBuilder::add_output(std::size_t j) {
  const ValueId v = w_.graph.outputs[j];
  const int slot = roots_.slot_for_output(j);
  const auto index = static_cast<std::int32_t>(j);
  const auto is_output = [&](std::int32_t r) {
    return r >= 0 && w_.state.roots[r].source == Source::kOutput && w_.state.roots[r].index == index;
  };
  w_.plan->outputs[j] = w_.state.descs[v];
  if (w_.state.descs[v].wraps) return;
  const int at = w_.plan->output_slots[j];
  if (!w_.host(at) && w_.host(slot) && is_output(w_.root(v, at))) return;  // made in the host's memory
  if (is_paged_slot(w_.plan->signature->output_slots[j])) {
    EVN_CHECK(w_.state.storage.root(v, Representation::paged()) >= 0);
    return;
  }
  if (w_.state.storage.root(v, Representation::paged()) >= 0) roots_.need(v, 0);
  const std::int32_t last = slot == 0 && w_.root(v, 0) < 0 ? w_.root(v, 0, Layout::kChannelsLast) : -1;
  if (last >= 0 && w_.state.roots[last].source == Source::kOutput) return;  // raw
  if (last >= 0 && !PlanWork::same_in_all_layouts(w_.state.descs[v].shape))
    return roots_.add_relayout(v, last, roots_.add_output_root(j, slot), Layout::kPlain);
  const std::int32_t made = last >= 0 ? roots_.need(v, 0) : w_.root(v, slot);
  if (is_output(made)) return;
  std::int32_t from = made >= 0 || w_.state.values[v] != nullptr ? roots_.need(v, slot) : w_.state.storage.any_plain(v);
  EVN_CHECK(from >= 0);
  const auto output_slot = static_cast<std::uint8_t>(slot);
  if (made < 0 && w_.graph.values[v].constant == nullptr)
    roots_.note_given_copy({true, index, output_slot, roots_.slot_that_made(v)}, w_.state.roots[from].bytes);
  if (!w_.host(w_.state.roots[from].slot) && !w_.host(slot) && w_.state.roots[from].slot != slot) from = roots_.need(v, 0);
  roots_.add_copy(v, from, roots_.add_output_root(j, slot));
}

}  // namespace evn
