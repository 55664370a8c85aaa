#include "runtime/plan.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "ops/merge.h"
#include "runtime/plan_steps.h"

namespace evn {

Plan::Plan() = default;
Plan::~Plan() = default;

namespace {

class PlanBuilder : PlanSteps {
 public:
  PlanBuilder(const CompiledGraph& compiled, Signature signature) : PlanSteps(compiled, std::make_shared<Plan>()) {
    plan_->signature = std::move(signature);
    start();
  }

  PlanBuilder(const CompiledGraph& compiled, std::shared_ptr<const Plan> before, std::span<const void* const> fetched,
              std::span<const TensorDesc> made)
      : PlanSteps(compiled, std::make_shared<Plan>()) {
    s_ = *before->state;
    plan_->signature = before->signature;
    plan_->part = static_cast<std::uint16_t>(before->part + 1);
    if (before->part == UINT16_MAX) fail(EVN_ERROR_LIMIT, "the run has too many parts whose shapes depend on data");
    plan_->outputs = before->outputs;
    plan_->known = before->known;
    for (PlanRoot& r : s_.roots) r.pending_slots = 0;
    reserve();
    for (std::size_t i = 0; i < fetched.size(); ++i) {
      const ValueId v = before->fetch[i];
      set_known(v, fetched[i], s_.descs[v].size_bytes());
    }
    if (before->host_node >= 0) add_boxes(graph_.nodes[before->host_node], made);
    plan_->before = std::move(before);
  }

  std::shared_ptr<Plan> run() {
    const End end = walk();
    for (const std::int32_t i : runs_) {
      try {
        if (!s_.absorbed[static_cast<std::size_t>(i)]) add_node(i);
      } catch (Error& e) {
        if (e.node[0] == '\0') e.with_node(graph_.nodes[i].name.c_str());
        throw;
      }
    }
    if (end == End::kMissing) return cut();
    if (end == End::kHost) return cut_for_host(static_cast<std::int32_t>(s_.next_node));
    add_outputs();
    place_arenas();
    return finish();
  }

 private:
  void reserve() {
    plan_->descs.reserve(c_.arg_count);
    plan_->steps.reserve(c_.kernel_nodes + 2 * graph_.outputs.size());
    plan_->buffers.reserve(c_.arg_count + graph_.nodes.size());
    s_.buffer_roots.clear();
    s_.buffer_roots.reserve(plan_->buffers.capacity());
    s_.step_of.assign(graph_.nodes.size(), -1);
    s_.other_steps.clear();
  }

  void start() {
    const std::size_t n = graph_.values.size();
    reserve();
    s_.descs.resize(n);
    s_.values.resize(n);
    for (std::size_t v = 0; v < n; ++v) {
      s_.descs[v] = c_.constants[v].desc;
      s_.values[v] = c_.constants[v].data;
    }
    s_.root_of.assign(checked_mul(n, roots_of_value()), -1);
    s_.whole_of.assign(n, -1);
    s_.output_of.assign(n, -1);
    for (std::size_t j = graph_.outputs.size(); j-- > 0;) s_.output_of[graph_.outputs[j]] = static_cast<std::int32_t>(j);
    plan_->known.resize(n);
    s_.absorbed.assign(graph_.nodes.size(), false);
    plan_->outputs.resize(graph_.outputs.size());
    s_.roots.reserve(n);
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const ValueId v = graph_.inputs[i];
      s_.descs[v] = plan_->signature.inputs[i];
      if (s_.descs[v].wraps) continue;
      const int slot = plan_->signature.input_slots[i];
      PlanRoot r;
      r.source = Source::kInput;
      r.slot = static_cast<std::uint8_t>(slot);
      r.index = static_cast<std::int32_t>(i);
      r.bytes = s_.descs[v].size_bytes();
      r.last_user = INT32_MAX;  // never written over
      root(v, slot) = add_root(r);
      if (const auto& bytes = plan_->signature.values[i]; is_key(c_, i, s_.descs[v])) set_known(v, bytes.data(), bytes.size());
    }
  }

  // Ends the plan before the next node: the missing values are brought to the host, and all that is used later stays.
  std::shared_ptr<Plan> cut() {
    for (const ValueId v : missing_) {
      if (std::find(plan_->fetch.begin(), plan_->fetch.end(), v) != plan_->fetch.end()) continue;
      plan_->fetch.push_back(v);
      plan_->fetch_buffers.push_back(add_buffer(need(v, 0)));
    }
    for (PlanRoot& r : s_.roots) {
      const bool later = r.last_user >= static_cast<std::int32_t>(s_.next_node);
      if (r.source == Source::kArena && r.part == plan_->part && later) r.last = now();
    }
    place_arenas();
    return finish();
  }

  // Ends the plan before a node that runs on the host, with its tensors there.
  std::shared_ptr<Plan> cut_for_host(std::int32_t index) {
    const Node& node = graph_.nodes[index];
    missing_.clear();
    for (const ValueId v : node.inputs) {
      const bool given = v != kNoValue && s_.descs[v].dtype != DType::kUndefined;  // not: made by a branch that was not taken
      plan_->host_inputs.push_back(given ? s_.descs[v] : TensorDesc{});
      plan_->host_buffers.push_back(given && !s_.descs[v].wraps ? add_buffer(need(v, 0)) : Plan::kNoBuffer);
    }
    plan_->host_node = index;
    return cut();
  }

  // What a host node made: tensors that lie in boxes of the run.
  void add_boxes(const Node& node, std::span<const TensorDesc> made) {
    plan_->made.assign(made.begin(), made.end());
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId v = node.outputs[k];
      if (v == kNoValue) continue;
      s_.descs[v] = made[k];
      if (made[k].wraps) continue;
      PlanRoot r;
      r.source = Source::kBox;
      r.index = v;
      r.bytes = made[k].size_bytes();
      r.last_user = INT32_MAX;
      r.part = plan_->part;
      root(v, 0) = add_root(r);
    }
    ++s_.next_node;
  }

  // The output lies where what the branch that is taken made lies.
  void add_merge(const Node& node) {
    const ValueId from = chosen_by(node);
    const ValueId to = node.outputs[0];
    if (root(from, 0, Layout::kChannelsLast) >= 0) need(from, 0);
    for (std::size_t slot = 0; slot < c_.devices.size(); ++slot) {
      std::int32_t r = root(from, static_cast<int>(slot));
      if (r < 0 && s_.values[from] != nullptr && slot == 0) r = need(from, 0);
      root(to, static_cast<int>(slot)) = r;
      if (r >= 0 && s_.roots[r].last_user != INT32_MAX) s_.roots[r].last_user = std::max(s_.roots[r].last_user, c_.last_user[to]);
    }
  }

  void add_node(std::int32_t index) {
    const Node& node = graph_.nodes[index];
    const CompiledNode& n = c_.nodes[index];
    if (is_merge(node)) return add_merge(node);
    if (n.mode == NodeMode::kKernel) add_kernel(index);
    if (n.mode == NodeMode::kView) add_view(index, n.slot);
  }

  void add_view(std::int32_t index, int slot) {
    const Node& node = graph_.nodes[index];
    const ValueId out = node.outputs[0];
    const std::int32_t r = need(node.inputs[0], slot);
    root(out, slot) = r;
    if (s_.roots[r].last_user != INT32_MAX) s_.roots[r].last_user = std::max(s_.roots[r].last_user, c_.last_user[out]);
  }

  void add_outputs() {
    for (std::size_t j = 0; j < graph_.outputs.size(); ++j) {
      const ValueId v = graph_.outputs[j];
      const int slot = plan_->signature.output_slots[j];
      plan_->outputs[j] = s_.descs[v];
      if (s_.descs[v].wraps) continue;
      const std::int32_t last = slot == 0 && root(v, 0) < 0 ? root(v, 0, Layout::kChannelsLast) : -1;
      if (last >= 0 && s_.roots[last].source == Source::kOutput) continue;  // raw
      if (last >= 0 && !same_in_all_layouts(s_.descs[v].shape)) {
        add_relayout(v, last, add_output_root(j, slot), Layout::kPlain);
        continue;
      }
      const std::int32_t made = last >= 0 ? need(v, 0) : root(v, slot);
      if (made >= 0 && s_.roots[made].source == Source::kOutput && s_.roots[made].index == static_cast<std::int32_t>(j)) continue;
      std::int32_t from = made >= 0 || s_.values[v] != nullptr ? need(v, slot) : -1;
      for (std::size_t s = 0; s < c_.devices.size() && from < 0; ++s) from = root(v, static_cast<int>(s));
      EVN_CHECK(from >= 0);
      const auto index = static_cast<std::int32_t>(j);
      const auto output_slot = static_cast<std::uint8_t>(slot);
      if (made < 0 && graph_.values[v].constant == nullptr) note_given_copy({true, index, output_slot, slot_that_made(v)}, s_.roots[from].bytes);
      if (!host(s_.roots[from].slot) && !host(slot) && s_.roots[from].slot != slot) from = need(v, 0);
      add_copy(v, from, add_output_root(j, slot));
    }
  }
};

}  // namespace

std::shared_ptr<Plan> make_plan(const CompiledGraph& graph, Signature signature) {
  return PlanBuilder(graph, std::move(signature)).run();
}

std::shared_ptr<Plan> continue_plan(const CompiledGraph& graph, std::shared_ptr<const Plan> before, std::span<const void* const> fetched,
                                    std::span<const TensorDesc> made) {
  return PlanBuilder(graph, std::move(before), fetched, made).run();
}

}  // namespace evn
