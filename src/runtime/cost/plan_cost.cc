#include "runtime/cost/plan_cost.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "base/cancel.h"
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

// Inputs and outputs that a device uses where they lie on the host cost what a copy of nothing costs: the two wait for each other.
std::vector<double> in_place_ns(const CompiledGraph& graph, const Plan& plan, CostTables& tables) {
  std::vector<double> ns(graph.devices.size());
  if (!plan.signature->shares_inputs && !plan.signature->shares_outputs) return ns;
  std::set<std::tuple<Source, std::int32_t, std::uint8_t>> seen;
  for (const BufferSource& b : plan.buffers) {
    const bool is_input = b.source == Source::kInput;
    if ((!is_input && b.source != Source::kOutput) || graph.devices[b.slot]->traits().host_addressable) continue;
    const Signature& s = *plan.signature;
    if ((is_input ? s.input_slots : s.output_slots)[static_cast<std::size_t>(b.index)] != 0) continue;
    const Device& device = *graph.devices[b.slot];
    if (device.host_sharing().is_free || !seen.insert({b.source, b.index, b.slot}).second) continue;
    ns[b.slot] += tables.with(device, [&](const CostTable& t) { return (is_input ? t.upload : t.download).latency_ns; });
  }
  return ns;
}

// When steps begin and end, where each device works through its kernels, and through its copies, in their order, and waits for what
// they read.
class Timeline {
 public:
  Timeline(const CompiledGraph& graph, const Plan& plan) : graph_(graph), plan_(plan), lines_(2 * graph.devices.size()) {}

  void begin_later(std::size_t slot, double ns) { lines_[2 * slot] = ns; }

  // Returns when the step has ended.
  double add(const PlanStep& step, double ns) {
    const bool is_copy = step.kind == PlanStep::Kind::kCopy;
    const std::size_t reads = is_copy ? 1 : step.kernel != nullptr ? step.desc.inputs.size() : 0;
    const std::size_t writes = is_copy ? 1 : step.kernel != nullptr ? step.desc.outputs.size() : 0;
    double& line = lines_[2 * step.slot + (is_copy && !graph_.devices[step.slot]->traits().host_addressable ? 1 : 0)];
    for (std::size_t i = 0; i < reads; ++i) line = std::max(line, ready(plan_.buffers[step.buffers + i]));
    line += ns;
    for (std::size_t i = 0; i < writes; ++i) set_ready(plan_.buffers[step.buffers + reads + i], line);
    return line;
  }

 private:
  // A piece of memory; pieces of one memory are in the order of their addresses.
  using Place = std::tuple<Source, std::uint8_t, std::int32_t, std::size_t>;
  struct Written {
    std::size_t end = 0;
    double ready = 0;
  };
  using AllWritten = std::map<Place, Written>;

  // The first piece that may overlap the buffer: pieces do not overlap each other.
  AllWritten::const_iterator first_at(const BufferSource& b) const {
    const Place begin{b.source, b.slot, b.index, b.buffer.offset};
    const auto at = written_.lower_bound(begin);
    return at != written_.begin() && overlaps(*std::prev(at), b) ? std::prev(at) : at;
  }
  static bool overlaps(const AllWritten::value_type& w, const BufferSource& b) {
    const auto& [source, slot, index, begin] = w.first;
    return source == b.source && slot == b.slot && index == b.index && begin < b.buffer.offset + b.buffer.size &&
           b.buffer.offset < w.second.end;
  }
  double ready(const BufferSource& b) const {
    double at = 0;
    for (auto w = first_at(b); w != written_.end() && overlaps(*w, b); ++w) at = std::max(at, w->second.ready);
    return at;
  }
  void set_ready(const BufferSource& b, double at) {
    if (b.buffer.size == 0) return;
    for (auto w = first_at(b); w != written_.end() && overlaps(*w, b);) w = written_.erase(w);
    if (b.source == Source::kArena || b.source == Source::kOutput)
      written_[{b.source, b.slot, b.index, b.buffer.offset}] = {b.buffer.offset + b.buffer.size, at};
  }

  const CompiledGraph& graph_;
  const Plan& plan_;
  std::vector<double> lines_;  // per device: of its kernels, and of its copies
  AllWritten written_;         // contents of memory now
};

}  // namespace

PlanCost cost_of(const CompiledGraph& graph, const Plan& plan, CostTables& tables) {
  PlanCost cost;
  Hasher key;
  Timeline timeline(graph, plan);
  cost.slot_ns = in_place_ns(graph, plan, tables);
  for (std::size_t slot = 0; slot < graph.devices.size(); ++slot) {
    timeline.begin_later(slot, cost.slot_ns[slot]);
    cost.total_ns += cost.slot_ns[slot];
    cost.end_ns = std::max(cost.end_ns, cost.slot_ns[slot]);
  }
  for (const PlanStep& step : plan.steps) {
    cancellation_point(kNodeWork);
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
    cost.end_ns = std::max(cost.end_ns, timeline.add(step, s.ns));
    cost.steps.push_back(s);
  }
  for (const Device* device : graph.devices) key.add(device->name());
  cost.key = key.value();
  return cost;
}

}  // namespace evn
