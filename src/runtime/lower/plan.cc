#include "runtime/lower/plan.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/cancel.h"
#include "base/heap.h"
#include "kept_features.h"
#include "ops/merge.h"
#include "runtime/lower/plan_arenas.h"
#include "runtime/lower/plan_builder.h"
#include "runtime/lower/plan_order.h"
#include "runtime/lower/plan_recompute.h"
#include "runtime/lower/shape_walk.h"

namespace evn {

Plan::Plan() = default;
Plan::~Plan() = default;

namespace {

class RunPlanner {
 public:
  RunPlanner(const CompiledGraph& compiled, Signature signature, bool small) : w_(compiled, std::make_shared<Plan>()) {
    w_.plan->signature = std::make_shared<const Signature>(std::move(signature));
    w_.plan->is_small = small;
    builder_.start();
  }

  RunPlanner(const CompiledGraph& compiled, std::shared_ptr<const Plan> before, std::span<const void* const> fetched,
             std::span<const TensorDesc> made)
      : w_(compiled, std::make_shared<Plan>()) {
    builder_.begin_part(*before->state);
    w_.plan->signature = before->signature;
    w_.plan->subplan = static_cast<std::uint16_t>(before->subplan + 1);
    if (before->subplan == UINT16_MAX) fail(EVN_ERROR_LIMIT, "the run has too many parts whose shapes depend on data");
    w_.plan->outputs = before->outputs;
    w_.plan->output_slots = before->output_slots;
    w_.plan->known = before->known;
    for (std::size_t i = 0; i < fetched.size(); ++i) {
      const ValueId v = before->fetch[i];
      w_.set_known(v, fetched[i], w_.state.descs[v].size_bytes());
    }
    if (before->host_node >= 0) add_runtime_values(w_.graph.nodes[before->host_node], made);
    w_.plan->before = std::move(before);
  }

  std::shared_ptr<Plan> run() {
    const std::size_t first = w_.state.next_node;
    const ShapeWalk::End end = walk_.walk();
    if (w_.plan->before != nullptr) builder_.reserve(w_.state.next_node);
    for (std::size_t i = first; i < w_.state.next_node; ++i) {
      naming_node(w_.graph.nodes[i].name, [&] {
        cancellation_point(2 * kNodeWork);
        if (!w_.state.without_step[i]) add(static_cast<std::int32_t>(i));
      });
    }
    if (end == ShapeWalk::End::kMissing) return cut(walk_.missing());
    if (end == ShapeWalk::End::kHost) return cut_for_host(static_cast<std::int32_t>(w_.state.next_node));
    for (std::size_t j = 0; j < w_.graph.outputs.size(); ++j) {
      cancellation_point(kNodeWork);
      if (!w_.is_skipped(j)) builder_.add_output(j);
    }
    if (w_.plan->is_small) w_.plan->spared_bytes = order_steps(w_.c, w_.plan.get(), &w_.state);
    return finish_under_limit();
  }

 private:
  PlanWork w_;
  ShapeWalk walk_{w_};
  PlanRoots roots_{w_};
  PlanBuilder builder_{w_, roots_};
  PlanArenas arenas_{w_};

  void add(std::int32_t index) {
    const Node& node = w_.graph.nodes[index];
    is_merge(node) ? builder_.share(walk_.chosen_by(node), node.outputs[0]) : builder_.add_node(index);
  }

  // Ends the plan before the next node: the missing values are brought to the host, and all that is used later stays.
  std::shared_ptr<Plan> cut(std::span<const ValueId> missing) {
    std::unordered_set<ValueId> fetched;
    for (const ValueId v : missing) {
      cancellation_point(8);
      if (!fetched.insert(v).second) continue;
      w_.plan->fetch.push_back(v);
      w_.plan->fetch_buffers.push_back(roots_.add_buffer(roots_.need(v, 0)));
    }
    for (std::size_t i = w_.state.first_root; i < w_.state.roots.size(); ++i) {
      cancellation_point();
      PlanRoot& r = w_.state.roots[i];
      const bool later = r.last_user >= static_cast<std::int32_t>(w_.state.next_node);
      if (r.source == Source::kArena && r.subplan == w_.plan->subplan && later) r.last = w_.now();
    }
    return finish_under_limit();
  }

  std::shared_ptr<Plan> finish_under_limit() {
    arenas_.assign_offsets();
    if (w_.c.arena_limit != 0) fit_under_limit(w_, w_.c.arena_limit);
    return arenas_.finish();
  }

  // Ends the plan before a node that runs on the host, with its tensors there.
  std::shared_ptr<Plan> cut_for_host(std::int32_t index) {
    const Node& node = w_.graph.nodes[index];
    for (const ValueId v : node.inputs) {
      const bool given = v != kNoValue && w_.state.descs[v].dtype != DType::kUndefined;  // not: made by a branch that was not taken
      w_.plan->host_inputs.push_back(given ? w_.state.descs[v] : TensorDesc{});
      w_.plan->host_buffers.push_back(given && !w_.state.descs[v].wraps ? roots_.add_buffer(roots_.need(v, 0)) : Plan::kNoBuffer);
    }
    w_.plan->host_node = index;
    return cut({});
  }

  // What a host node made: tensors that lie in runtime values of the run.
  void add_runtime_values(const Node& node, std::span<const TensorDesc> made) {
    w_.plan->made.assign(made.begin(), made.end());
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId v = node.outputs[k];
      if (v == kNoValue) continue;
      w_.state.descs[v] = made[k];
      if (made[k].wraps) continue;
      PlanRoot r;
      r.source = Source::kRuntimeValue;
      r.index = v;
      r.bytes = made[k].size_bytes();
      r.last_user = INT32_MAX;
      r.subplan = w_.plan->subplan;
      w_.root(v, 0) = roots_.add_root(r);
    }
    ++w_.state.next_node;
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
