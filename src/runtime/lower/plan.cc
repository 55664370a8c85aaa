#include "runtime/lower/plan.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/cancel.h"
#include "base/heap.h"
#include "kept_features.h"
#include "ops/merge.h"
#include "runtime/lower/plan_builder.h"
#include "runtime/lower/plan_order.h"
#include "runtime/lower/plan_recompute.h"

namespace evn {

Plan::Plan() = default;
Plan::~Plan() = default;

namespace {

class RunPlanner : PlanBuilder {
 public:
  RunPlanner(const CompiledGraph& compiled, Signature signature, bool small) : PlanBuilder(compiled, std::make_shared<Plan>()) {
    plan_->signature = std::make_shared<const Signature>(std::move(signature));
    plan_->is_small = small;
    start();
  }

  RunPlanner(const CompiledGraph& compiled, std::shared_ptr<const Plan> before, std::span<const void* const> fetched,
             std::span<const TensorDesc> made)
      : PlanBuilder(compiled, std::make_shared<Plan>()) {
    begin_part(*before->state);
    plan_->signature = before->signature;
    plan_->subplan = static_cast<std::uint16_t>(before->subplan + 1);
    if (before->subplan == UINT16_MAX) fail(EVN_ERROR_LIMIT, "the run has too many parts whose shapes depend on data");
    plan_->outputs = before->outputs;
    plan_->output_slots = before->output_slots;
    plan_->known = before->known;
    for (std::size_t i = 0; i < fetched.size(); ++i) {
      const ValueId v = before->fetch[i];
      set_known(v, fetched[i], s_.descs[v].size_bytes());
    }
    if (before->host_node >= 0) add_runtime_values(graph_.nodes[before->host_node], made);
    plan_->before = std::move(before);
  }

  std::shared_ptr<Plan> run() {
    const std::size_t first = s_.next_node;
    const End end = walk();
    if (plan_->before != nullptr) reserve(s_.next_node);
    for (std::size_t i = first; i < s_.next_node; ++i) {
      naming_node(graph_.nodes[i].name, [&] {
        cancellation_point(2 * kNodeWork);
        if (!s_.without_step[i]) add(static_cast<std::int32_t>(i));
      });
    }
    if (end == End::kMissing) return cut();
    if (end == End::kHost) return cut_for_host(static_cast<std::int32_t>(s_.next_node));
    for (std::size_t j = 0; j < graph_.outputs.size(); ++j) {
      cancellation_point(kNodeWork);
      if (!is_skipped(j)) add_output(j);
    }
    if (plan_->is_small) plan_->spared_bytes = order_steps(c_, plan_.get(), &s_);
    return finish_under_limit();
  }

 private:
  void add(std::int32_t index) {
    const Node& node = graph_.nodes[index];
    is_merge(node) ? share(chosen_by(node), node.outputs[0]) : add_node(index);
  }

  // Ends the plan before the next node: the missing values are brought to the host, and all that is used later stays.
  std::shared_ptr<Plan> cut() {
    std::unordered_set<ValueId> fetched;
    for (const ValueId v : missing_) {
      cancellation_point(8);
      if (!fetched.insert(v).second) continue;
      plan_->fetch.push_back(v);
      plan_->fetch_buffers.push_back(add_buffer(need(v, 0)));
    }
    for (std::size_t i = s_.first_root; i < s_.roots.size(); ++i) {
      cancellation_point();
      PlanRoot& r = s_.roots[i];
      const bool later = r.last_user >= static_cast<std::int32_t>(s_.next_node);
      if (r.source == Source::kArena && r.subplan == plan_->subplan && later) r.last = now();
    }
    return finish_under_limit();
  }

  std::shared_ptr<Plan> finish_under_limit() {
    assign_offsets();
    if (c_.arena_limit != 0) fit_under_limit(*this, c_.arena_limit);
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

  // What a host node made: tensors that lie in runtime values of the run.
  void add_runtime_values(const Node& node, std::span<const TensorDesc> made) {
    plan_->made.assign(made.begin(), made.end());
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId v = node.outputs[k];
      if (v == kNoValue) continue;
      s_.descs[v] = made[k];
      if (made[k].wraps) continue;
      PlanRoot r;
      r.source = Source::kRuntimeValue;
      r.index = v;
      r.bytes = made[k].size_bytes();
      r.last_user = INT32_MAX;
      r.subplan = plan_->subplan;
      root(v, 0) = add_root(r);
    }
    ++s_.next_node;
  }
};

}  // namespace

std::shared_ptr<Plan> make_plan(const CompiledGraph& graph, Signature signature, bool small) {
  const HeapReclaim allowed(true);
  return RunPlanner(graph, std::move(signature), small || graph.is_small).run();
}

std::shared_ptr<Plan> continue_plan(const CompiledGraph& graph, std::shared_ptr<const Plan> before,
                                    std::span<const void* const> fetched, std::span<const TensorDesc> made) {
  const HeapReclaim allowed(true);
  return RunPlanner(graph, std::move(before), fetched, made).run();
}

}  // namespace evn
