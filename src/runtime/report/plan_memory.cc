#include "runtime/report/plan_memory.h"

#include <algorithm>

#include "runtime/lower/plan_state.h"

namespace evn {
namespace {

std::string name_of(const Graph& graph, const PlanStep& step) {
  if (step.node >= 0) return graph.nodes[static_cast<std::size_t>(step.node)].name;
  return step.value != kNoValue ? "copy of " + graph.values[step.value].name : "";
}

// Per step: what lives in the arena of the slot.
std::vector<std::uint64_t> live_in(const Plan& plan, std::size_t slot) {
  const std::size_t steps = plan.steps.size();
  std::vector<std::uint64_t> live(steps + 1);  // first: by how much it changes
  const PlanState& state = *plan.state;
  for (std::size_t r = state.first_root; r < state.roots.size(); ++r) {
    const PlanRoot& root = state.roots[r];
    if (root.source != Source::kArena || root.subplan != plan.subplan || root.slot != slot || root.view.exists()) continue;
    const auto first = std::min(static_cast<std::size_t>(std::max(root.first, 0)), steps);
    const auto last = std::min(static_cast<std::size_t>(std::max(root.last, root.first)), steps - 1);
    live[first] += root.room;
    live[last + 1] -= root.room;  // unsigned: sums are right all the same
  }
  for (std::size_t i = 1; i < steps; ++i) live[i] += live[i - 1];
  live.resize(steps);
  return live;
}

}  // namespace

RunMemory memory_of(const CompiledGraph& graph, std::span<const std::shared_ptr<const Plan>> chain) {
  RunMemory memory;
  memory.devices.resize(graph.devices.size());
  memory.live.assign(graph.nodes.size(), RunMemory::kNotKnown);
  for (const auto& plan : chain) {
    for (std::size_t slot = 0; slot < memory.devices.size(); ++slot) {
      RunMemory::Place& place = memory.devices[slot];
      const std::uint64_t before = place.arena;
      place.arena += plan->arena_bytes[slot];
      if (plan->steps.empty() || plan->state == nullptr) continue;
      const std::vector<std::uint64_t> live = live_in(*plan, slot);
      for (std::size_t i = 0; i < live.size(); ++i) {
        const PlanStep& step = plan->steps[i];
        if (step.kind == PlanStep::Kind::kKernel && step.slot == slot)
          memory.live[static_cast<std::size_t>(step.node)] = before + live[i];
        if (before + live[i] <= place.most) continue;
        place.most = before + live[i];
        place.at = name_of(graph.graph(), step);
      }
    }
  }
  return memory;
}

}  // namespace evn
