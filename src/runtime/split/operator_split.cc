#include "runtime/split/operator_split.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "graph/cut_node.h"
#include "runtime/cost/measure.h"
#include "runtime/cost/plan_cost.h"
#include "runtime/lower/plan_state.h"
#include "runtime/placement/node_view.h"
#include "runtime/placement/placement_rules.h"
#include "runtime/placement/placement_settings.h"
#include "runtime/request/session_identity.h"
#include "runtime/session/session.h"

namespace evn {
namespace {

constexpr std::int64_t kTileUnits = 16;    // channels and rows that kernels take at a time
constexpr std::int64_t kMostTiles = 4096;  // of a node, among which shares are chosen
constexpr double kWorthwhile = 0.9;        // of the best device alone: what `split: auto` must be predicted to stay below

// A node that a rule has split.
struct Candidate {
  std::int32_t node = -1;
  const PlacementRule* rule = nullptr;
  CutRule cut;
  std::vector<Device*> devices;
  std::vector<std::string> names;  // of the devices, as the rule has them
  double bytes_in = 0, unit_bytes_out = 0;
};

// What a node takes on a device alone: nanoseconds, by the node's index.
using NodeTimes = std::map<std::int32_t, double>;

std::string text_of(double ns) {
  char text[32];
  std::snprintf(text, sizeof text, ns < 1e6 ? "%.1f us" : "%.2f ms", ns < 1e6 ? ns / 1e3 : ns / 1e6);
  return text;
}

class Splitter {
 public:
  Splitter(const ModelPtr& model, const SessionRequest& request)
      : model_(model), graph_(model->graph()), request_(request), config_(request.settings->config), runtime_(*model->runtime) {}

  SplitModel run() {
    find_candidates();
    if (candidates_.empty()) return {model_, notes()};
    find_sizes();
    if (needs_times()) measure();
    choose_shares();
    if (cuts_.empty()) return {model_, notes()};
    std::string key;
    for (const NodeCut& c : cuts_) {
      key += std::to_string(c.node);
      for (const std::int64_t units : c.units) key += " " + std::to_string(units);
      key += ";";
    }
    for (const NodePart& p : parts_) key += p.device + " " + std::to_string(p.rule_line) + ";";
    ModelPtr made = model_->derived.find(key);
    if (made == nullptr) made = model_->derived.add(key, make());
    return {std::move(made), notes()};
  }

 private:
  std::shared_ptr<const WholeNodes> notes() const { return whole_.empty() ? nullptr : std::make_shared<const WholeNodes>(whole_); }

  // The first rule about devices that matches a node decides.
  const PlacementRule* rule_of(const Node& node) const {
    for (const PlacementRule& rule : config_.rules) {
      if (rule.devices.empty() && rule.split.empty()) continue;
      if (!matches(rule, node, model_->file_name)) continue;
      if (!rule.split.empty()) return &rule;
      std::string why;
      const auto is_there = [&](const std::string& name) { return device_for_rule(runtime_, request_, name, &why) != nullptr; };
      if (std::any_of(rule.devices.begin(), rule.devices.end(), is_there)) return nullptr;
    }
    return nullptr;
  }

  void find_candidates() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      const Node& node = graph_.nodes[i];
      const PlacementRule* const rule = rule_of(node);
      if (rule == nullptr) continue;
      Candidate c;
      c.node = static_cast<std::int32_t>(i);
      c.rule = rule;
      std::string absent = take_devices(&c);
      drop_unable(node, &c, &absent);
      if (c.devices.size() < 2) {
        whole_[node.name] = rule_label(*rule) + " has no other device" + absent;
        continue;
      }
      const std::string why = take_cut(node, &c);
      if (why.empty()) candidates_.push_back(std::move(c));
      else leave_whole(node, *rule, why);
    }
  }

  [[noreturn]] void refuse(const Node& node, const PlacementRule& rule, const std::string& why) const {
    throw make_error(EVN_ERROR_UNSUPPORTED, "%s:%d: the %s decides, but %s", config_.source.c_str(), rule.line,
                     rule_label(rule).c_str(), why.c_str())
        .with_node(node.name.c_str());
  }

  void leave_whole(const Node& node, const PlacementRule& rule, const std::string& why) {
    if (rule.policy == Policy::kRequire && rule.split[0] != kAutoDevice) refuse(node, rule, why);
    whole_[node.name] = rule_label(rule) + " not possible: " + why;
  }

  // Returns which are absent.
  std::string take_devices(Candidate* c) const {
    std::string absent;
    if (c->rule->split[0] == kAutoDevice) {
      for (Device* const device : runtime_.devices_for(*request_.settings)) {
        if (device->is_out() || c->devices.size() >= kMostSplitDevices) continue;
        c->devices.push_back(device);
        c->names.push_back(device->name());
      }
    } else {
      for (const std::string& name : c->rule->split) {
        std::string why;
        Device* const device = device_for_rule(runtime_, request_, name, &why);
        if (device == nullptr) absent += "; " + name + " is absent" + (why.empty() ? "" : ": " + why);
        const bool is_twice = std::find(c->devices.begin(), c->devices.end(), device) != c->devices.end();
        if (device == nullptr || is_twice) continue;
        c->devices.push_back(device);
        c->names.push_back(name);
      }
    }
    return absent;
  }

  // Drops the devices that are full or cannot run the node. That is an error if the rule requires them.
  void drop_unable(const Node& node, Candidate* c, std::string* absent) const {
    const NodeView view(graph_, node);
    const OpDesc desc = view.desc(node);
    for (std::size_t d = 0; d < c->devices.size();) {
      std::string why;
      const Device& device = *c->devices[d];
      if (is_full(request_, device)) {
        why = kNoMemoryLeft;
      } else if ((view.ranks_known ? device.find_kernel(desc, &why) : device.reference_kernel(desc)) != nullptr) {
        ++d;
        continue;
      }
      why = c->names[d] + " cannot run it: " + (why.empty() ? "a rank is not known before a run" : why);
      if (c->rule->policy == Policy::kRequire && c->rule->split[0] != kAutoDevice) refuse(node, *c->rule, why);
      *absent += "; " + why;
      c->devices.erase(c->devices.begin() + static_cast<std::ptrdiff_t>(d));
      c->names.erase(c->names.begin() + static_cast<std::ptrdiff_t>(d));
    }
  }

  // Returns why it cannot be cut.
  std::string take_cut(const Node& node, Candidate* c) const {
    try {
      c->cut = cut_rule(graph_, node);
    } catch (const Error& e) {
      if (e.status != EVN_ERROR_UNSUPPORTED) throw;
      return e.message;
    }
    if (c->cut.units >= static_cast<std::int64_t>(c->devices.size())) return "";
    return node.op_type + " has " + std::to_string(c->cut.units) + " " + c->cut.what + " for " + std::to_string(c->devices.size()) +
           " devices";
  }

  std::optional<double> measured(const Candidate& c, std::size_t device) const {
    if (request_.role.identity == nullptr) return std::nullopt;
    return request_.role.identity->speeds.of(graph_.nodes[static_cast<std::size_t>(c.node)].name, c.names[device]);
  }

  bool needs_times() const {
    for (const Candidate& c : candidates_) {
      for (std::size_t d = 0; d < c.devices.size(); ++d) {
        if (!measured(c, d)) return true;
      }
    }
    return false;
  }

  SessionRequest request_for(Device& device) const {
    auto alone = std::make_shared<Assignment>();
    alone->devices.assign(graph_.nodes.size(), &device);
    SessionRequest r = request_;
    r.role.assigned = std::move(alone);
    r.batching = {};
    return r;
  }

  // What is copied to a device for its part of a node, and what comes back. Where shapes cannot be told copies are not counted.
  void find_sizes() {
    try {
      const CompiledGraph compiled = compile_unpacked(model_, request_for(runtime_.cpu()));
      inputs_ = fitting_inputs(runtime_, graph_, request_.assumed_inputs, [&](const std::vector<TensorDesc>& inputs) {
        note_sizes(*make_plan(compiled, signature_of_zeros(compiled, inputs)));
      });
    } catch (const Error& e) {
      if (e.status == EVN_ERROR_CANCELLED || e.status == EVN_ERROR_TIMEOUT) throw;
      unknown_ = e.message;
    }
  }

  // Runs, or prices, the whole model on each device that shares a node.
  void measure() {
    for (const Candidate& c : candidates_) {
      for (Device* const device : c.devices) {
        if (times_.contains(device)) continue;
        NodeTimes& times = times_[device];
        if (inputs_.empty()) continue;
        try {
          time_alone(*device, &times);
        } catch (const Error& e) {
          if (e.status == EVN_ERROR_CANCELLED || e.status == EVN_ERROR_TIMEOUT || e.status == EVN_ERROR_DEVICE_LOST) throw;
          times.clear();
          if (unknown_.empty()) unknown_ = device->name() + ": " + e.message;
        }
      }
    }
  }

  void time_alone(Device& device, NodeTimes* times) {
    CostTables& tables = model_->runtime->costs();
    const SessionRequest r = request_for(device);
    const CompiledGraph compiled = compile_unpacked(model_, r);
    if (config_.measure_costs) measure_copies(device, tables);
    const std::shared_ptr<Plan> plan = make_plan(compiled, signature_of_zeros(compiled, inputs_));
    if (plan->has_continuation()) fail(EVN_ERROR_UNSUPPORTED, "shapes depend on what a run computes");
    PlanCost cost = cost_of(compiled, *plan, tables);
    if (config_.measure_costs && cost.unmeasured != 0) {
      measure_steps(*make_plain_session(model_, r), zeros_of(model_->runtime, inputs_), tables);
      cost = cost_of(compiled, *plan, tables);
      tables.save(device);
    }
    if (!cost.is_known) fail(EVN_ERROR_UNSUPPORTED, "nothing is known of what steps take, and placement.measure is false");
    std::map<std::string_view, std::int32_t> number;  // nodes of the lowered graph stand in another order
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) number[graph_.nodes[i].name] = static_cast<std::int32_t>(i);
    for (std::size_t s = 0; s < plan->steps.size(); ++s) {
      const PlanStep& step = plan->steps[s];
      if (step.kind != PlanStep::Kind::kKernel || compiled.devices[step.slot] != &device) continue;
      const auto note = [&](std::int32_t node) {
        (*times)[number.at(compiled.graph().nodes[static_cast<std::size_t>(node)].name)] += cost.steps[s].ns;
      };
      note(step.node);
      for (const std::int32_t with : step.absorbed) note(with);
    }
  }

  void note_sizes(const Plan& plan) {
    const SharedVector<TensorDesc>& descs = plan.state->descs;
    const auto bytes = [&](ValueId v) -> double {
      const TensorDesc& d = descs[static_cast<std::size_t>(v)];
      return d.dtype == DType::kUndefined || !d.shape.is_known() || d.wraps ? 0 : static_cast<double>(d.size_bytes());
    };
    for (Candidate& c : candidates_) {
      const Node& node = graph_.nodes[static_cast<std::size_t>(c.node)];
      c.bytes_in = 0;
      for (const ValueId v : node.inputs) {
        if (v != kNoValue && graph_.values[static_cast<std::size_t>(v)].constant == nullptr) c.bytes_in += bytes(v);
      }
      c.unit_bytes_out = bytes(node.outputs[0]) / static_cast<double>(c.cut.units);
    }
  }

  void choose_shares() {
    for (const Candidate& c : candidates_) {
      const Node& node = graph_.nodes[static_cast<std::size_t>(c.node)];
      std::vector<double> unit_ns, fixed_ns, copy_ns;
      std::string figures;
      bool is_known = true;
      for (std::size_t d = 0; d < c.devices.size(); ++d) {
        double ns = 0, fixed = 0, copy = 0;
        if (const std::optional<double> now = measured(c, d)) {
          ns = *now;
        } else {
          const auto on_device = times_.find(c.devices[d]);
          const bool is_there = on_device != times_.end() && on_device->second.contains(c.node);
          is_known &= is_there;
          if (is_there) ns = on_device->second.at(c.node) / static_cast<double>(c.cut.units);
        }
        figures += (d == 0 ? "" : ", ") + c.names[d] + " " + text_of(ns * static_cast<double>(c.cut.units));
        if (!c.devices[d]->traits().host_addressable) {
          model_->runtime->costs().with(*c.devices[d], [&](const CostTable& t) {
            if (!t.has_copies) return;
            fixed = t.upload.of(c.bytes_in) + t.download.of(0);
            copy = t.download.of(c.unit_bytes_out) - t.download.of(0);
          });
        }
        unit_ns.push_back(ns + copy);
        fixed_ns.push_back(fixed);
        copy_ns.push_back(copy);
      }
      if (!is_known || std::any_of(unit_ns.begin(), unit_ns.end(), [](double ns) { return ns <= 0; })) {
        unit_ns.assign(unit_ns.size(), 1);
        fixed_ns.assign(fixed_ns.size(), 0);
        copy_ns.assign(copy_ns.size(), 0);
        figures = "alike, as their speeds are not known" + (unknown_.empty() ? "" : " (" + unknown_ + ")");
        is_known = false;
      }
      const std::vector<std::int64_t> units = share_units(c.cut.units, unit_ns, fixed_ns);
      if (c.rule->split[0] == kAutoDevice && !pays(c, units, unit_ns, fixed_ns, is_known, figures)) continue;
      add_cut(node, c, units, figures, fixed_ns, copy_ns);
    }
  }

  bool pays(const Candidate& c, std::span<const std::int64_t> units, std::span<const double> unit_ns,
            std::span<const double> fixed_ns, bool is_known, const std::string& figures) {
    double best = HUGE_VAL;
    for (std::size_t d = 0; d < unit_ns.size(); ++d)
      best = std::min(best, fixed_ns[d] + unit_ns[d] * static_cast<double>(c.cut.units));
    const double end = end_of(units, unit_ns, fixed_ns);
    if (is_known && end < kWorthwhile * best) return true;
    whole_[graph_.nodes[static_cast<std::size_t>(c.node)].name] =
        rule_label(*c.rule) + " does not pay: " + figures + (is_known ? "; with copies, shared " + text_of(end) : "");
    return false;
  }

  void add_cut(const Node& node, const Candidate& c, const std::vector<std::int64_t>& units, const std::string& figures,
               std::span<const double> fixed_ns, std::span<const double> copy_ns) {
    cuts_.push_back({c.node, c.cut, units, static_cast<std::int32_t>(parts_.size())});
    std::int64_t begin = 0;
    for (std::size_t d = 0; d < units.size(); ++d) {
      const std::int64_t end = begin + units[d];
      NodePart part{c.names[d], rule_label(*c.rule) + ": ", c.rule->line, units[d], fixed_ns[d], copy_ns[d]};
      part.reason += std::string(c.cut.what) + " " + std::to_string(begin * c.cut.per_unit) + " to " +
                     std::to_string(end * c.cut.per_unit) + " of " + std::to_string(c.cut.units * c.cut.per_unit) + " of " +
                     node.name + "; " + figures;
      parts_.push_back(std::move(part));
      begin = end;
    }
  }

  ModelPtr make() const {
    auto made = std::make_shared<LoadedModel>();
    made->runtime = model_->runtime;
    made->store.set_owner(made->runtime);
    made->file_name = model_->file_name;
    made->external = model_->external;
    made->file = model_->file;
    made->bytes_hash = model_->bytes_hash;
    made->model = model_->model;
    made->open_inputs = model_->open_inputs;
    made->bodies = model_->bodies;
    made->whole = model_;
    made->parts = parts_;
    cut_nodes(made->model.graph, cuts_);
    PlainWeights::Access plain(*made);
    for (const Value& v : made->graph().values) {
      if (v.constant != nullptr && v.constant->slice != nullptr && !plain.may_go(*v.constant)) plain.bring_back(*v.constant);
    }
    return made;
  }

  const ModelPtr model_;
  const Graph& graph_;
  const SessionRequest& request_;
  const Config& config_;
  Runtime& runtime_;
  std::vector<Candidate> candidates_;
  std::map<const Device*, NodeTimes> times_;
  std::string unknown_;  // why nothing is known of devices
  std::vector<TensorDesc> inputs_;
  std::vector<NodeCut> cuts_;
  std::vector<NodePart> parts_;
  WholeNodes whole_;
};

}  // namespace

std::int64_t units_together(std::int64_t units, std::size_t devices) {
  std::int64_t together = kTileUnits * std::max<std::int64_t>(1, units / (kTileUnits * kMostTiles));
  while (together > 1 && units < 2 * together * static_cast<std::int64_t>(devices)) together /= 2;
  return together;
}

double end_of(std::span<const std::int64_t> units, std::span<const double> unit_ns, std::span<const double> fixed_ns) {
  double end = 0;
  for (std::size_t d = 0; d < units.size(); ++d) end = std::max(end, fixed_ns[d] + static_cast<double>(units[d]) * unit_ns[d]);
  return end;
}

std::vector<std::int64_t> share_units(std::int64_t units, std::span<const double> unit_ns, std::span<const double> fixed_ns) {
  const std::int64_t together = units_together(units, unit_ns.size());
  std::vector<std::int64_t> shares(unit_ns.size(), together);
  EVN_CHECK(units >= static_cast<std::int64_t>(shares.size()) * together);
  for (std::int64_t left = units - static_cast<std::int64_t>(shares.size()) * together; left > 0;) {
    const std::int64_t more = std::min(left, together);  // the last may be fewer
    std::size_t best = 0;
    double best_end = HUGE_VAL;
    for (std::size_t d = 0; d < shares.size(); ++d) {
      const double end = fixed_ns[d] + static_cast<double>(shares[d] + more) * unit_ns[d];
      if (end >= best_end) continue;
      best = d;
      best_end = end;
    }
    shares[best] += more;
    left -= more;
  }
  return shares;
}

SplitModel split_operators(const ModelPtr& model, const SessionRequest& request) {
  const Config& config = request.settings->config;
  const bool has_rule = std::any_of(config.rules.begin(), config.rules.end(), [](const auto& rule) { return !rule.split.empty(); });
  if (request.role.assigned != nullptr) return {model, nullptr};  // a placement that is tried out is of this very model
  const ModelPtr loaded = model->whole != nullptr ? model->whole : model;
  return has_rule ? Splitter(loaded, request).run() : SplitModel{loaded, nullptr};
}

}  // namespace evn
