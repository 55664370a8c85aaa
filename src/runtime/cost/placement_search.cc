#include "runtime/cost/placement_search.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/error.h"
#include "runtime/cost/measure.h"
#include "runtime/cost/partition.h"
#include "runtime/cost/plan_cost.h"
#include "runtime/lower/plan_state.h"

namespace evn {
namespace {

constexpr std::size_t kMostDevices = 4;
constexpr double kWorthwhile = 0.97;                      // of the best device alone: what a placement on several must stay below
constexpr int kRounds = 9, kFewRounds = 3;                // of runs, when placements are compared
constexpr std::uint64_t kFewRoundsAfterNs = 500'000'000;  // after which few are enough

std::string text_of(double ns) {
  char text[32];
  std::snprintf(text, sizeof text, ns < 1e6 ? "%.1f us" : "%.2f ms", ns < 1e6 ? ns / 1e3 : ns / 1e6);
  return text;
}

// A placement, lowered for the assumed shapes.
struct Candidate {
  std::shared_ptr<Assignment> assignment;
  std::string label;  // the devices that it uses: "cpu + gpu"
  bool is_mixed = false;
  PlanCost cost;
  std::uint64_t bytes = 0;  // of arenas and packed weights
  double run_ns = 0;        // 0: not measured

  double of(Objective objective) const {
    if (objective == Objective::kMemory) return static_cast<double>(bytes);
    if (objective == Objective::kThroughput) return *std::max_element(cost.slot_ns.begin(), cost.slot_ns.end());
    return run_ns != 0 ? run_ns : cost.end_ns;
  }

  std::string figures() const {
    return text_of(cost.end_ns) + " predicted" + (run_ns != 0 ? ", " + text_of(run_ns) + " measured" : "") + ", " +
           std::to_string(bytes) + " bytes";
  }
};

class Search {
 public:
  Search(const ModelPtr& model, const SessionRequest& request, std::vector<std::shared_ptr<Session>>* keep)
      : model_(model),
        graph_(model->graph()),
        request_(with_settings(request, *model->runtime)),
        runtime_(model->runtime),
        config_(request_.settings->config),
        tables_(model->runtime->costs()),
        keep_(keep) {}

  std::shared_ptr<const Assignment> run() {
    for (Device* const device : runtime_->devices_for(*request_.settings)) {
      if (!device->is_out() && devices_.size() < kMostDevices) devices_.push_back(device);
    }
    if (devices_.size() == 1) return nothing("there is no other device");
    try {
      auto on_cpu = std::make_shared<Assignment>();
      on_cpu->devices.assign(graph_.nodes.size(), devices_[0]);
      const CompiledGraph compiled = compile_unpacked(model_, request_for(on_cpu));
      inputs_ = fitting_inputs(*runtime_, graph_, request_.assumed_inputs, [&](const std::vector<TensorDesc>& inputs) {
        make_plan(compiled, signature_of_zeros(compiled, inputs));
      });
      return search();
    } catch (const Error& e) {
      if (e.status == EVN_ERROR_CANCELLED || e.status == EVN_ERROR_TIMEOUT) throw;
      return nothing(e.message);
    }
  }

 private:
  std::shared_ptr<Assignment> nothing(const std::string& why) const {
    std::shared_ptr<Assignment> none = assign({});
    none->summary = "not searched for: " + why;
    return none;
  }

  std::shared_ptr<const Assignment> search() {
    find_values();
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      try {
        add_device(i);
      } catch (const Error& e) {
        if (i == 0 || e.status == EVN_ERROR_CANCELLED || e.status == EVN_ERROR_TIMEOUT) throw;
        summary_ += "; not " + devices_[i]->name() + ": " + e.message;
        devices_.erase(devices_.begin() + static_cast<std::ptrdiff_t>(i--));
      }
    }
    if (measured_ && alone_.size() > 1) {
      std::vector<Candidate*> all;
      for (Candidate& c : alone_) all.push_back(&c);
      race(all);
    }
    const Objective objective = config_.objective;
    const auto smaller = [objective](const Candidate& a, const Candidate& b) { return a.of(objective) < b.of(objective); };
    Candidate best = *std::min_element(alone_.begin(), alone_.end(), smaller);
    for (const Candidate& c : alone_) note(c);
    for (Candidate& mixed : mixed_candidates()) {
      if (mixed.of(objective) >= best.of(objective)) continue;
      const bool runs = objective == Objective::kLatency && config_.measure_costs;
      if (runs && (best.run_ns == 0 || mixed.run_ns == 0)) {
        Candidate* const both[] = {&best, &mixed};
        race(both);
      }
      note(mixed);
      if (mixed.of(objective) < kWorthwhile * best.of(objective)) best = std::move(mixed);
    }
    for (Device* device : devices_) tables_.save(*device);
    best.assignment->summary = best.label + summary_;
    add_reasons(best.assignment.get());
    return best.assignment;
  }

  void note(const Candidate& c) { summary_ += "; " + c.label + ": " + c.figures(); }

  std::shared_ptr<Assignment> assign(const Places& places) const {
    auto assignment = std::make_shared<Assignment>();
    assignment->devices.resize(graph_.nodes.size());
    for (std::size_t i = 0; i < places.size(); ++i) assignment->devices[i] = devices_[static_cast<std::size_t>(places[i])];
    return assignment;
  }

  SessionRequest request_for(std::shared_ptr<const Assignment> assignment) const {
    SessionRequest r = request_;
    r.role.assigned = std::move(assignment);
    r.batching = {};
    return r;
  }

  struct Lowered {
    CompiledGraph graph;
    std::shared_ptr<Plan> plan;
  };
  Lowered lower(const std::shared_ptr<Assignment>& assignment, Candidate* c) const {
    Lowered l{compile_unpacked(model_, request_for(assignment)), nullptr};
    l.plan = make_plan(l.graph, signature_of_zeros(l.graph, inputs_));
    if (l.plan->has_continuation()) fail(EVN_ERROR_UNSUPPORTED, "shapes depend on what a run computes");
    c->assignment = assignment;
    c->cost = cost_of(l.graph, *l.plan, tables_);
    for (const std::size_t bytes : l.plan->arena_bytes) c->bytes += bytes;
    std::vector<bool> used(l.graph.devices.size());
    for (const CompiledNode& n : l.graph.nodes) {
      for (const Buffer& packed : n.packed) c->bytes += packed.size;
      if (n.mode == NodeMode::kKernel || n.mode == NodeMode::kSegment) used[n.slot] = true;
    }
    c->label.clear();
    for (std::size_t slot = 0; slot < used.size(); ++slot) {
      if (used[slot]) c->label += (c->label.empty() ? "" : " + ") + l.graph.devices[slot]->name();
    }
    c->is_mixed = std::count(used.begin(), used.end(), true) > 1;
    const std::optional<double> run = tables_.with(runtime_->cpu(), [&](const CostTable& t) { return t.measured(c->cost.key); });
    c->run_ns = run.value_or(0);
    return l;
  }

  std::shared_ptr<Session> session_for(const Candidate& c) {
    for (const auto& [assignment, session] : sessions_) {
      if (assignment == c.assignment.get()) return session;
    }
    auto session = make_plain_session(model_, request_for(c.assignment));
    sessions_.emplace_back(c.assignment.get(), session);
    keep_->push_back(session);
    return session;
  }

  void set_run_time(Candidate* c, double ns) {
    c->run_ns = ns;
    tables_.with(runtime_->cpu(), [&](CostTable& t) { t.add({c->cost.key, 0, 0, 0}, ns); });
  }

  // What the device would do alone, with the CPU where it cannot: its times by node, and a candidate.
  void add_device(std::size_t index) {
    Device& device = *devices_[index];
    if (config_.measure_costs) measure_copies(device, tables_);
    Candidate c;
    auto alone = std::make_shared<Assignment>();
    alone->devices.assign(graph_.nodes.size(), &device);
    Lowered lowered = lower(alone, &c);
    if (config_.measure_costs && (c.cost.unmeasured != 0 || c.run_ns == 0)) {
      const std::vector<RunValue> zeros = zeros_of(runtime_, inputs_);
      set_run_time(&c, measure_steps(*session_for(c), zeros, tables_));
      c.cost = cost_of(lowered.graph, *lowered.plan, tables_);
      measured_ = true;
    }
    if (!c.cost.is_known) {
      fail(EVN_ERROR_UNSUPPORTED, "nothing is known of what steps take on device %s, and placement.measure is false",
           device.name().c_str());
    }
    set_times(index, lowered, c.cost);
    if (index == 0) set_sizes(lowered);
    c.label = c.label.empty() ? device.name() : c.label;
    alone_.push_back(std::move(c));
  }

  void set_times(std::size_t index, const Lowered& lowered, const PlanCost& cost) {
    const CompiledGraph& c = lowered.graph;
    PartitionProblem::Device& d = problem_.devices.emplace_back();
    d.ns.assign(graph_.nodes.size(), 0);
    d.first_of.resize(graph_.nodes.size());
    tables_.with(*devices_[index], [&](const CostTable& t) {
      d.upload = t.upload;
      d.download = t.download;
    });
    std::vector<std::int32_t> number(graph_.nodes.size());  // in the model's order
    std::map<std::string_view, std::int32_t> by_name;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) by_name[graph_.nodes[i].name] = static_cast<std::int32_t>(i);
    for (std::size_t i = 0; i < number.size(); ++i) number[i] = by_name.at(c.graph().nodes[i].name);
    for (std::size_t i = 0; i < number.size(); ++i) {
      const auto node = static_cast<std::size_t>(number[i]);
      d.first_of[node] = number[i];
      const NodeMode mode = c.nodes[i].mode;
      const bool on_device = mode == NodeMode::kKernel || mode == NodeMode::kSegment;
      const bool elsewhere = on_device && c.devices[c.nodes[i].slot] != devices_[index];
      if (elsewhere || (mode == NodeMode::kHost && index != 0)) d.ns[node] = HUGE_VAL;
    }
    d.in_place.assign(graph_.values.size(), false);
    for (std::size_t slot = 0; slot < c.devices.size(); ++slot) {
      for (std::size_t k = 0; k < graph_.inputs.size() && c.devices[slot] == devices_[index]; ++k) {
        const bool shared = shares_input(c, k, static_cast<int>(slot), lowered.plan->signature->inputs[k]);
        d.in_place[static_cast<std::size_t>(graph_.inputs[k])] = shared;
      }
    }
    double pending = 0;  // of re-layouts, which are there for the step behind them
    for (std::size_t s = 0; s < lowered.plan->steps.size(); ++s) {
      const PlanStep& step = lowered.plan->steps[s];
      if (step.kind == PlanStep::Kind::kRelayout) pending += cost.steps[s].ns;
      if (step.kind != PlanStep::Kind::kKernel) continue;
      std::vector<std::int32_t> nodes{number[static_cast<std::size_t>(step.node)]};
      for (const std::int32_t with : step.absorbed) nodes.push_back(number[static_cast<std::size_t>(with)]);
      const std::int32_t first = *std::min_element(nodes.begin(), nodes.end());
      for (const std::int32_t node : nodes) d.first_of[static_cast<std::size_t>(node)] = first;
      if (d.ns[static_cast<std::size_t>(first)] != HUGE_VAL) d.ns[static_cast<std::size_t>(first)] += cost.steps[s].ns + pending;
      pending = 0;
    }
  }

  // What nodes read and make, without constants and what is read by value.
  void find_values() {
    for (const Node& node : graph_.nodes) {
      PartitionProblem::Node& n = problem_.nodes.emplace_back();
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        const ValueId v = node.inputs[k];
        const bool by_value = node.op->reads_value(k) || (k == 0 && (node.op->flags & kOpShapeOnly) != 0);
        if (v != kNoValue && !by_value && graph_.values[static_cast<std::size_t>(v)].constant == nullptr) n.reads.push_back(v);
      }
      for (const ValueId v : node.outputs) {
        if (v != kNoValue) n.makes.push_back(v);
      }
    }
    problem_.outputs.assign(graph_.outputs.begin(), graph_.outputs.end());
    problem_.value_bytes.assign(graph_.values.size(), 0);
  }

  void set_sizes(const Lowered& lowered) {
    const SharedVector<TensorDesc>& descs = lowered.plan->state->descs;
    for (std::size_t v = 0; v < descs.size(); ++v) {
      if (descs[v].dtype != DType::kUndefined && descs[v].shape.is_known() && !descs[v].wraps)
        problem_.value_bytes[v] = static_cast<double>(descs[v].size_bytes());
    }
  }

  // Placements on several devices that promise to be better than the best device alone.
  std::vector<Candidate> mixed_candidates() {
    std::vector<Candidate> candidates;
    if (devices_.size() < 2) return candidates;
    const Places segments = best_segments(problem_);
    if (segments.empty()) return candidates;
    // Devices that share cores do not work at once as well as separate ones: which holds here is for runs to tell.
    const Places at_once = improve(problem_, segments, config_.objective, true);
    const Places in_turn = improve(problem_, segments, config_.objective, false);
    const auto is_there = [](const std::vector<Candidate>& list, const Candidate& c) {
      return std::any_of(list.begin(), list.end(), [&](const Candidate& a) { return a.cost.key == c.cost.key; });
    };
    for (const Places* places : {&at_once, &in_turn, &segments}) {
      Candidate c;
      lower(assign(*places), &c);
      if (c.is_mixed && !is_there(alone_, c) && !is_there(candidates, c)) candidates.push_back(std::move(c));
    }
    const auto is_better = [&](const Candidate& a, const Candidate& b) {
      return a.of(config_.objective) < b.of(config_.objective);
    };
    for (auto it = candidates.begin(); it != candidates.end(); ++it)  // a few; equal ones keep their order
      std::rotate(std::upper_bound(candidates.begin(), it, *it, is_better), it, it + 1);
    return candidates;
  }

  // Runs candidates in turns, so that what else the machine does meets all alike, and sets the medians of their times.
  void race(std::span<Candidate* const> candidates) {
    const std::vector<RunValue> zeros = zeros_of(runtime_, inputs_);
    std::vector<std::shared_ptr<Session>> sessions;
    for (Candidate* c : candidates) sessions.push_back(session_for(*c));
    std::vector<std::vector<double>> times(candidates.size());
    const std::uint64_t begin = os::now_ns();
    for (int round = 0; round <= kRounds; ++round) {
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        const double ns = least_run(*sessions[i], zeros, 1);
        if (round != 0) times[i].push_back(ns);
      }
      if (round >= kFewRounds && os::now_ns() - begin > kFewRoundsAfterNs) break;
    }
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      std::ranges::sort(times[i]);
      set_run_time(candidates[i], times[i][times[i].size() / 2]);
    }
  }

  void add_reasons(Assignment* assignment) const {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      std::string reason = "auto";
      for (std::size_t d = 0; d < devices_.size(); ++d) {
        const PartitionProblem::Device& device = problem_.devices[d];
        const bool fused = device.first_of[i] != static_cast<std::int32_t>(i);
        reason += (d == 0 ? ": " : ", ") + devices_[d]->name() +
                  (device.ns[i] == HUGE_VAL ? " cannot"
                   : fused                  ? " fused"
                                            : " " + text_of(device.ns[i]));
      }
      assignment->reasons.push_back(std::move(reason));
    }
  }

  const ModelPtr& model_;
  const Graph& graph_;
  const SessionRequest request_;
  const std::shared_ptr<Runtime> runtime_;
  const Config& config_;
  CostTables& tables_;
  std::vector<std::shared_ptr<Session>>* const keep_;
  std::vector<Device*> devices_;  // the CPU first
  std::vector<TensorDesc> inputs_;
  PartitionProblem problem_;
  std::vector<Candidate> alone_;
  bool measured_ = false;  // some of alone_, now
  std::vector<std::pair<const Assignment*, std::shared_ptr<Session>>> sessions_;
  std::string summary_;  // of candidates, and devices that are none
};

}  // namespace

bool is_searched(const Config& config, const SessionRequest& request) {
  if (request.role.assigned != nullptr) return false;
  if (!request.device.empty()) return request.device == kAutoDevice;
  return config.default_devices.size() == 1 && config.default_devices[0] == kAutoDevice;
}

std::shared_ptr<const Assignment> search_placement(const ModelPtr& model, const SessionRequest& request,
                                                   std::vector<std::shared_ptr<Session>>* keep) {
  return Search(model, request, keep).run();
}

}  // namespace evn
