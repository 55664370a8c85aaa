#include "runtime/cost/plan_cost.h"

#include "base/hash.h"
#include "runtime/cost/step_features.h"

namespace evn {
namespace {

// From the host, to it, or by way of it.
double copy_ns(const CompiledGraph& graph, const PlanStep& step, double bytes, CostTables& tables) {
  double ns = 0;
  for (const std::uint8_t slot : {step.from_slot, step.to_slot}) {
    const Device& device = *graph.devices[slot];
    if (device.traits().host_addressable) continue;
    ns += tables.with(device, [&](const CostTable& t) { return (slot == step.to_slot ? t.upload : t.download).of(bytes); });
  }
  return ns;
}

}  // namespace

PlanCost cost_of(const CompiledGraph& graph, const Plan& plan, CostTables& tables) {
  PlanCost cost;
  cost.slot_ns.resize(graph.devices.size());
  Hasher key;
  for (const PlanStep& step : plan.steps) {
    PlanCost::Step s;
    key.add(static_cast<std::uint64_t>(step.kind) << 8 | step.slot);
    if (step.kind == PlanStep::Kind::kCopy) {
      const std::size_t bytes = plan.buffers[step.buffers].buffer.size;
      key.add(bytes);
      s.ns = copy_ns(graph, step, static_cast<double>(bytes), tables);
    } else if (step.kernel != nullptr) {
      const StepFeatures features = features_of(graph, step);
      key.add(features.key);
      s = tables.with(*graph.devices[step.slot], [&](const CostTable& t) -> PlanCost::Step {
        if (const std::optional<double> ns = t.measured(features.key)) return {*ns + t.submission_ns, true};
        const std::optional<double> ns = t.estimate(features);
        cost.is_known &= ns.has_value();
        return {ns.value_or(0) + t.submission_ns, false};
      });
      if (!s.is_measured) ++cost.unmeasured;
    }
    cost.slot_ns[step.slot] += s.ns;
    cost.total_ns += s.ns;
    cost.steps.push_back(s);
  }
  for (const Device* device : graph.devices) key.add(device->name());
  cost.key = key.value();
  return cost;
}

}  // namespace evn
