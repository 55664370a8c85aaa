#include "runtime/lower/plan_builder.h"

#include <algorithm>

#include "base/cancel.h"
#include "base/checked.h"
#include "runtime/lower/dead_nodes.h"

namespace evn {

void PlanBuilder::reserve(std::size_t end) {
  std::size_t args = 0;
  for (std::size_t i = s_.first_node; i < end; ++i) {
    cancellation_point(4);
    const Node& node = graph_.nodes[i];
    const std::size_t own = node.inputs.size() + c_.nodes[i].fused.size() + node.outputs.size();
    args += c_.nodes[i].segment < 0 ? own : 3 * own;  // a segment has descs of its own, and those of its nodes
  }
  if (end < graph_.nodes.size() || s_.first_node > 0) args *= 2;
  plan_->descs.reserve(args);
  const std::size_t at_end = end == graph_.nodes.size() ? 2 * graph_.outputs.size() : 0;  // copies of outputs
  plan_->steps.reserve(end - s_.first_node + at_end);
  plan_->buffers.reserve(args + end - s_.first_node);
  s_.buffer_roots.reserve(plan_->buffers.capacity());
}

void PlanBuilder::begin_part(const PlanState& before) {
  s_ = before;
  for (std::size_t i = before.first_node; i < before.next_node; ++i) {
    cancellation_point();
    s_.step_of[i] = -1;
  }
  s_.buffer_roots.clear();
  s_.other_steps.clear();
  s_.first_node = s_.next_node;
  s_.first_root = s_.roots.size();
}

void PlanBuilder::start() {
  const std::size_t n = graph_.values.size();
  reserve(graph_.nodes.size());
  s_.step_of.assign(graph_.nodes.size(), -1);
  s_.descs.resize(n);
  s_.values.resize(n);
  for (std::size_t v = 0; v < n; ++v) {
    cancellation_point(8);
    s_.descs[v] = c_.constants[v].desc;
    s_.values[v] = c_.constants[v].data;
  }
  s_.storage = ValueStorage(n, c_.devices.size());
  s_.parent_of.assign(n, -1);
  s_.output_of.assign(n, -1);
  for (std::size_t j = graph_.outputs.size(); j-- > 0;) {
    cancellation_point();
    if (!is_skipped(j)) s_.output_of[graph_.outputs[j]] = static_cast<std::int32_t>(j);
  }
  if (const std::vector<std::uint8_t>& skipped = plan_->signature->skipped; !skipped.empty())
    s_.dead = std::make_shared<const std::vector<bool>>(find_dead_nodes(c_, skipped));
  plan_->known.resize(n);
  s_.without_step.assign(graph_.nodes.size(), false);
  plan_->outputs.resize(graph_.outputs.size());
  plan_->output_slots.resize(graph_.outputs.size());
  for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
    cancellation_point(16);
    const ValueId v = graph_.inputs[i];
    s_.descs[v] = plan_->signature->inputs[i];
    if (s_.descs[v].wraps || !s_.descs[v].shape.is_known()) continue;
    const int slot = plan_->signature->input_slots[i];
    const bool is_paged = is_paged_slot(plan_->signature->input_slots[i]);
    PlanRoot r;
    r.source = Source::kInput;
    r.slot = is_paged ? std::uint8_t{0} : static_cast<std::uint8_t>(slot);
    r.index = static_cast<std::int32_t>(i);
    r.bytes = s_.descs[v].size_bytes();
    r.last_user = INT32_MAX;  // never written over
    if (is_paged) r.paged_axis = static_cast<std::int8_t>(slot - kPagedSlot);
    (is_paged ? s_.storage.root(v, Representation::paged()) : root(v, slot)) = add_root(r);
    const auto& bytes = plan_->signature->values[i];
    if ((!c_.only_estimated() || !bytes.empty()) && is_key(c_, i, s_.descs[v])) set_known(v, bytes.data(), bytes.size());
  }
}

void PlanBuilder::add_node(std::int32_t index) {
  const NodeMode mode = c_.nodes[index].mode;
  if (mode == NodeMode::kKernel || mode == NodeMode::kSegment) {
    add_kernel(index);
    add_early_outputs();
  }
  if (mode == NodeMode::kView) add_view(index);
}

void PlanBuilder::add_view(std::int32_t index) {
  const Node& node = graph_.nodes[index];
  const ValueId out = node.outputs[0];
  const int slot = c_.nodes[index].slot;
  const std::int32_t r = need(node.inputs[0], slot);
  root(out, slot) = r;
  keep_for(r, out);
}

void PlanBuilder::share(ValueId from, ValueId to) {
  if (root(from, 0, Layout::kChannelsLast) >= 0 || s_.storage.root(from, Representation::paged()) >= 0) need(from, 0);
  for (std::size_t slot = 0; slot < c_.devices.size(); ++slot) {
    std::int32_t r = root(from, static_cast<int>(slot));
    if (r < 0 && s_.values[from] != nullptr && slot == 0) r = need(from, 0);
    root(to, static_cast<int>(slot)) = r;
    if (r >= 0) keep_for(r, to);
  }
}

// Outputs of the latest step that go from a device to the host: copied at once, while the device goes on, and not at the end.
void PlanBuilder::add_early_outputs() {
  if (host(draft_.slot)) return;
  for (const ValueId v : draft_.outputs) {
    const std::int32_t j = v == kNoValue ? -1 : s_.output_of[v];
    if (j < 0 || plan_->signature->output_slots[j] != 0 || root(v, 0) >= 0) continue;
    const std::int32_t made = root(v, draft_.slot);
    if (made < 0 || s_.roots[made].source != Source::kArena) continue;
    add_output(static_cast<std::size_t>(j));
    root(v, 0) = static_cast<std::int32_t>(s_.roots.size()) - 1;  // add_output's
  }
}

void PlanBuilder::add_output(std::size_t j) {
  const ValueId v = graph_.outputs[j];
  const int slot = slot_for_output(j);
  plan_->outputs[j] = s_.descs[v];
  if (s_.descs[v].wraps) return;
  if (const int at = plan_->output_slots[j]; !host(at) && host(slot)) {  // made in the host's memory
    const std::int32_t made = root(v, at);
    if (made >= 0 && s_.roots[made].source == Source::kOutput && s_.roots[made].index == static_cast<std::int32_t>(j)) return;
  }
  if (is_paged_slot(plan_->signature->output_slots[j])) {
    EVN_CHECK(s_.storage.root(v, Representation::paged()) >= 0);
    return;
  }
  if (s_.storage.root(v, Representation::paged()) >= 0) need(v, 0);
  const std::int32_t last = slot == 0 && root(v, 0) < 0 ? root(v, 0, Layout::kChannelsLast) : -1;
  if (last >= 0 && s_.roots[last].source == Source::kOutput) return;  // raw
  if (last >= 0 && !same_in_all_layouts(s_.descs[v].shape)) return add_relayout(v, last, add_output_root(j, slot), Layout::kPlain);
  const std::int32_t made = last >= 0 ? need(v, 0) : root(v, slot);
  if (made >= 0 && s_.roots[made].source == Source::kOutput && s_.roots[made].index == static_cast<std::int32_t>(j)) return;
  std::int32_t from = made >= 0 || s_.values[v] != nullptr ? need(v, slot) : s_.storage.any_plain(v);
  EVN_CHECK(from >= 0);
  const auto index = static_cast<std::int32_t>(j);
  const auto output_slot = static_cast<std::uint8_t>(slot);
  if (made < 0 && graph_.values[v].constant == nullptr)
    note_given_copy({true, index, output_slot, slot_that_made(v)}, s_.roots[from].bytes);
  if (!host(s_.roots[from].slot) && !host(slot) && s_.roots[from].slot != slot) from = need(v, 0);
  add_copy(v, from, add_output_root(j, slot));
}

}  // namespace evn
