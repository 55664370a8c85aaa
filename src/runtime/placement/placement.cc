#include "runtime/placement/placement.h"

#include <algorithm>
#include <memory>

#include "base/cancel.h"
#include "base/error.h"
#include "base/text.h"
#include "ops/merge.h"
#include "runtime/placement/node_view.h"
#include "runtime/placement/placement_rules.h"
#include "runtime/placement/placement_settings.h"

namespace evn {
namespace {

class Placer {
 public:
  Placer(const LoadedModel& model, const SessionRequest& request)
      : model_(model),
        graph_(model.graph()),
        runtime_(*model.runtime),
        config_(request.settings->config),
        request_(request),
        kept_(request),
        all_(runtime_.devices_for(*request.settings)),
        assigned_(request.role.assigned.get()),
        needed_(values_needed_for_shapes(graph_)),
        known_(values_known_before_run(graph_)) {
    if (assigned_ != nullptr || request.device == kAutoDevice) return;
    if (!request.device.empty()) {
      default_names_ = request.device;
      for (const std::string& name : split_names(request.device))
        add_default(name, runtime_.find_device(name, request.settings), "");
      return;
    }
    for (const std::string& name : config_.default_devices) {
      if (name == kAutoDevice) continue;  // of a body, whose nodes are not searched for
      default_names_ += (default_names_.empty() ? "" : ", ") + name;
      const DeviceConfig* configured = config_.find_device(name);
      std::string absent;
      Device* const device = configured != nullptr && configured->optional ? runtime_.known_device(name, *request.settings, &absent)
                                                                           : runtime_.find_device(name, request.settings);
      add_default(name, device, absent);
    }
  }

  Placement run() {
    // Claims that do not hold are dropped, and the nodes are placed again. Each turn excludes a node at least, so this ends.
    for (;;) {
      Placement result = place_nodes();
      if (!drop_claims(result)) return keep_claims(std::move(result));
    }
  }

 private:
  Placement place_nodes() {
    Placement result;
    result.nodes.resize(graph_.nodes.size());
    home_.assign(graph_.values.size(), nullptr);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      const Node& node = graph_.nodes[i];
      NodePlacement& p = result.nodes[i];
      set_numerics(node, &p);
      p.mode = settled_mode(graph_, node, needed_, known_);
      if (p.mode != NodeMode::kKernel) p.device = &runtime_.cpu();
      if (p.mode == NodeMode::kHost) {
        p.reason =
            node.body != nullptr ? "runs its body, whose nodes are placed on their own" : "not about tensors alone: on the host";
      } else if (p.mode == NodeMode::kPlanned) {
        p.reason = "shape arithmetic: evaluated when a run is planned";
      } else if (p.mode == NodeMode::kMerge) {
        if (home_[node.inputs[1]] != nullptr) p.device = home_[node.inputs[1]];
        p.reason = "an If: hands on what the branch that is taken makes";
      } else {
        place_node(node, &p);
        explain_precision(node, &p);
      }
      for (const ValueId v : node.outputs) {
        if (v != kNoValue) home_[v] = p.device;
      }
    }
    return result;
  }

  void add_default(const std::string& name, Device* device, std::string absent) {
    if (is_absent(*request_.settings, device, &absent))
      default_absent_ += "the default device " + name + " is absent: " + absent + "; ";
    else defaults_.push_back(device);
  }

  const LoadedModel& model_;
  const Graph& graph_;
  Runtime& runtime_;
  const Config& config_;
  const SessionRequest& request_;
  const KeptNodes kept_;
  const std::vector<Device*> all_;    // in the order in which they are asked where nothing says another
  const Assignment* const assigned_;  // nullable
  std::string default_names_;
  std::vector<Device*> defaults_;           // in the order in which they are asked
  std::string default_absent_;              // of which of them are not there, and why
  std::vector<Device*> home_;               // per value, where it is made
  const std::vector<bool> needed_, known_;  // values_needed_for_shapes, values_known_before_run

  // Claims of a device that takes segments of several nodes.
  struct Claims {
    Device* device = nullptr;
    bool asked = false;
    std::vector<PlacedSegment> segments;
    std::vector<std::int32_t> segment_of;  // per node, or -1
    std::vector<const char*>
        excluded;  // per node: null: it is offered; else why not, or "" where a rule sends it to another device
  };
  std::vector<Claims> claims_;

  Claims* find_claims(const Device* device) {
    for (Claims& c : claims_) {
      if (c.device == device) return &c;
    }
    return nullptr;
  }

  const Claims& claims_of(Device* device) {
    Claims* c = find_claims(device);
    if (c == nullptr) {
      c = &claims_.emplace_back();
      c->device = device;
      c->excluded.resize(graph_.nodes.size());
    }
    if (!c->asked) ask(c);
    return *c;
  }

  void ask(Claims* c) {
    std::vector<std::unique_ptr<NodeView>> views;
    std::vector<OpDesc> descs;
    std::vector<std::int32_t> nodes;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (c->excluded[i] != nullptr || settled_mode(graph_, node, needed_, known_) != NodeMode::kKernel) continue;
      const NodeView& view = *views.emplace_back(std::make_unique<NodeView>(graph_, node));
      if (!view.fits_segments(node)) continue;
      NodePlacement p;
      set_numerics(node, &p);
      set_choices(node, *c->device, &p, &descs.emplace_back(view.desc(node)));
      nodes.push_back(static_cast<std::int32_t>(i));
    }
    c->segments = claim_segments(*c->device, descs, nodes);
    c->segment_of.assign(graph_.nodes.size(), -1);
    for (std::size_t s = 0; s < c->segments.size(); ++s) {
      for (const std::int32_t node : c->segments[s].nodes)
        c->segment_of[static_cast<std::size_t>(node)] = static_cast<std::int32_t>(s);
    }
    c->asked = true;
  }

  static void exclude(Claims* c, std::span<const std::int32_t> nodes, const char* why) {
    for (const std::int32_t node : nodes) c->excluded[static_cast<std::size_t>(node)] = why;
    c->asked = false;
  }

  // Excludes nodes whose segment cannot be what was claimed. False where there are none.
  bool drop_claims(const Placement& placed) {
    bool dropped = false;
    for (Claims& c : claims_) {
      for (const PlacedSegment& s : c.segments) {
        std::vector<std::int32_t> elsewhere;
        bool alike = true;
        const NodePlacement& first = placed.nodes[static_cast<std::size_t>(s.nodes[0])];
        for (const std::int32_t node : s.nodes) {
          const NodePlacement& p = placed.nodes[static_cast<std::size_t>(node)];
          if (p.mode != NodeMode::kSegment || p.device != c.device) elsewhere.push_back(node);
          alike = alike && p.precision == first.precision && p.numerics == first.numerics;
        }
        if (!elsewhere.empty()) {
          exclude(&c, elsewhere, "");
        } else if (!alike) {
          exclude(&c, s.nodes, "the nodes of its segment differ in precision or numerics");
        }
      }
      dropped |= !c.asked;
    }
    if (dropped) return true;
    std::vector<PlacedSegment> all;
    for (const Claims& c : claims_) all.insert(all.end(), c.segments.begin(), c.segments.end());
    for (const std::size_t cyclic : segments_in_cycles(graph_, all)) {
      exclude(find_claims(all[cyclic].device), all[cyclic].nodes, "its segment would close a cycle in the graph");
      dropped = true;
    }
    return dropped;
  }

  Placement keep_claims(Placement placed) const {
    for (const Claims& c : claims_) {
      for (const PlacedSegment& s : c.segments) {
        for (const std::int32_t node : s.nodes) {
          NodePlacement& p = placed.nodes[static_cast<std::size_t>(node)];
          p.segment = static_cast<std::int32_t>(placed.segments.size());
          p.reason += ", in a segment of " + std::to_string(s.nodes.size()) + " nodes";
        }
        placed.segments.push_back(s);
      }
    }
    return placed;
  }

  // True when the device has claimed the node with others.
  bool take_claimed(const Node& node, const NodeView& view, Device* device, NodePlacement* p) {
    if (!device->traits().claims_segments) return false;
    const Claims& c = claims_of(device);
    const auto index = static_cast<std::size_t>(&node - graph_.nodes.data());
    if (c.segment_of[index] < 0) {
      const char* const why = c.excluded[index];
      if (why != nullptr && *why != '\0') add_refusal(device->name() + ": " + why, p);
      return false;
    }
    p->mode = NodeMode::kSegment;
    p->device = device;
    p->kernel = c.segments[static_cast<std::size_t>(c.segment_of[index])].kernel;
    OpDesc desc = view.desc(node);
    set_choices(node, *device, p, &desc);
    settle_products(model_, request_, desc, true, p);
    return true;
  }

  void set_numerics(const Node& node, NodePlacement* p) const {
    WantedSetting wanted = wanted_setting(NodeSetting::kNumerics, model_, request_, node, nullptr);
    p->numerics = wanted.as<Numerics>();
    p->numerics_reason = std::move(wanted.reason);
  }

  // Sets the lowest precision that the node may have on the device, and why.
  void set_precision(const Node& node, const Device& device, NodePlacement* p) const {
    WantedSetting wanted = wanted_precision(kept_, model_, request_, node, &device);
    auto precision = wanted.as<Precision>();
    if (precision == Precision::kFloat16 && model_.model.has_gradients) precision = Precision::kFloat16Operands;
    p->precision = Precision::kFloat32;
    std::string why;
    if (precision != Precision::kFloat32 && p->numerics == Numerics::kStrict) {
      why = "the node's numerics are strict";
    } else if (precision != Precision::kFloat32) {
      p->precision = device.lowest_precision(precision, &why);
    }
    p->precision_reason = std::move(wanted.reason);
    if (!why.empty()) p->precision_reason.append("; ").append(precision_name(precision)).append(": ").append(why);
  }

  // Chooses how the device computes the node, whose numerics are set, and writes that into the desc.
  void set_choices(const Node& node, const Device& device, NodePlacement* p, OpDesc* desc) const {
    set_precision(node, device, p);
    desc->precision = p->precision;
    desc->strict = p->numerics == Numerics::kStrict;
    desc->small = request_.memory == MemoryPlan::kSmall;
    desc->products = wanted_setting(NodeSetting::kProducts, model_, request_, node, &device).as<Products>();
  }

  // True when the device takes the node; fills mode and kernel, or appends to p->refused.
  bool try_device(const Node& node, const NodeView& view, Device* device, NodePlacement* p) {
    if (const std::string why = device->why_out(); !why.empty()) return add_refusal(device->name() + ": " + why, p), false;
    if (is_full(request_, *device)) return add_refusal(device->name() + ": " + kNoMemoryLeft, p), false;
    if (take_claimed(node, view, device, p)) return true;
    const bool far_strings = !device->traits().host_addressable && view.has_strings();
    if ((node.op->flags & kOpView) != 0 && node.epilogue.empty() && !far_strings) {
      p->mode = NodeMode::kView;
      p->device = device;
      return true;
    }
    std::string why;
    OpDesc desc = view.desc(node);
    set_choices(node, *device, p, &desc);
    if (far_strings) {
      why = "strings stay on the host";
    } else if (!view.ranks_known) {
      // The plan of a run chooses among the kernels of the device; this one stands for them.
      p->kernel = device->traits().host_addressable ? device->reference_kernel(desc) : device->any_kernel(node);
      if (p->kernel != nullptr) {
        p->mode = NodeMode::kKernel;
        p->device = device;
        settle_products(model_, request_, desc, false, p);
        return true;
      }
      why = "no kernel for " + node.op_type;
    } else {
      Claim claim = device->claim(std::span<const OpDesc>(&desc, 1));
      if (!claim.segments.empty()) {
        p->mode = NodeMode::kKernel;
        p->device = device;
        p->kernel = claim.segments[0].kernel;
        if (!claim.refusals[0].empty()) add_refusal(device->name() + ": " + claim.refusals[0], p);
        settle_products(model_, request_, desc, true, p);
        if (desc.strict || desc.small) note_fast(*device, desc, p);
        return true;
      }
      why = std::move(claim.refusals[0]);
    }
    add_refusal(device->name() + ": " + why, p);
    return false;
  }

  // Names the kernel that a strict or small node would have if it were not.
  static void note_fast(const Device& device, const OpDesc& desc, NodePlacement* p) {
    OpDesc fast = desc;
    fast.strict = fast.small = false;
    const Kernel* const wanted = device.find_kernel(fast, nullptr);
    if (wanted == nullptr || wanted == p->kernel || p->refused.find(wanted->name) != std::string::npos) return;
    const Refusal why = wanted->supports(desc);
    add_refusal(device.name() + ": " + wanted->name + ": " + (why != nullptr ? why : "numerics: strict"), p);
  }

  static void add_refusal(const std::string& why, NodePlacement* p) {
    if (!p->refused.empty()) p->refused += "; ";
    p->refused += why;
  }

  [[noreturn]] void refuse(const Node& node, const NodePlacement& p, const std::string& asked) const {
    throw make_error(EVN_ERROR_UNSUPPORTED, "%s, but cannot run %s: %s", asked.c_str(), node.op_type.c_str(), p.refused.c_str())
        .with_node(node.name.c_str());
  }

  using Forbidden = std::vector<const Device*>;
  static bool is_among(const Device* device, const Forbidden& forbidden) {
    return std::find(forbidden.begin(), forbidden.end(), device) != forbidden.end();
  }

  // The devices of a rule that are there. Notes which are not.
  std::vector<Device*> devices_of(const PlacementRule& rule, const std::string& label, std::string* note) const {
    std::vector<Device*> devices;
    std::string absent;
    for (const std::string& name : rule.devices) {
      std::string why;
      if (Device* const device = device_for_rule(runtime_, request_, name, &why)) {
        devices.push_back(device);
      } else if (rule.devices.size() == 1) {
        absent = ": " + why;
      } else {
        *note += label + ": " + name + " is absent: " + why + "; ";
      }
    }
    if (devices.empty()) *note += label + " skipped, the device is absent" + absent + "; ";
    return devices;
  }

  // A node that a rule would have split, and that is whole. Returns true if it goes to the only device of the rule that is there
  // and is not full.
  bool place_whole(const Node& node, const NodeView& view, const PlacementRule& rule, NodePlacement* p, std::string* note) {
    if (request_.role.whole_nodes == nullptr) return false;
    const auto why = request_.role.whole_nodes->find(node.name);
    if (why == request_.role.whole_nodes->end()) return false;
    *note += why->second + "; ";
    if (rule.split[0] == kAutoDevice) return false;
    std::string ignored;
    Device* only = nullptr;
    for (const std::string& name : rule.split) {
      Device* const device = device_for_rule(runtime_, request_, name, &ignored);
      if (device == nullptr || device == only || is_full(request_, *device)) continue;
      if (only != nullptr) return false;
      only = device;
    }
    if (only == nullptr || !try_device(node, view, only, p)) return false;
    p->rule_line = rule.line;
    p->reason = *note + "the device that is there";
    return true;
  }

  // A part of a node that devices share.
  void place_part(const Node& node, const NodeView& view, NodePlacement* p) {
    const NodePart& part = model_.parts[static_cast<std::size_t>(node.part)];
    std::string why;
    Device* const device = device_for_rule(runtime_, request_, part.device, &why);
    p->rule_line = part.rule_line;
    if (device == nullptr) refuse_absent(node, part, why);
    if (!try_device(node, view, device, p)) refuse(node, *p, "the " + part.reason);
    p->reason = part.reason;
  }

  [[noreturn]] static void refuse_absent(const Node& node, const NodePart& part, const std::string& why) {
    throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "the %s, but the device is absent: %s", part.reason.c_str(), why.c_str())
        .with_node(node.name.c_str())
        .with_device(part.device.c_str());
  }

  // Returns true when a rule decided.
  bool apply_rules(const Node& node, const NodeView& view, NodePlacement* p, Forbidden* forbidden, std::string* note) {
    if (node.part >= 0) {
      place_part(node, view, p);
      return true;
    }
    if (!node.part_of.empty()) {
      *note += (node.op_type == "Split" ? "hands out the operands of " : "puts together the parts of ") + node.part_of + "; ";
      return false;
    }
    for (const PlacementRule& rule : config_.rules) {
      if ((rule.devices.empty() && rule.split.empty()) || !matches(rule, node, model_.file_name)) continue;
      if (!rule.split.empty()) return place_whole(node, view, rule, p, note);
      const std::string label = rule_label(rule);
      const std::vector<Device*> devices = devices_of(rule, label, note);
      if (devices.empty()) continue;
      p->rule_line = rule.line;
      if (rule.policy == Policy::kForbid) {
        forbidden->assign(devices.begin(), devices.end());
        *note += label + "; ";
        return false;
      }
      for (Device* const device : devices) {
        if (!try_device(node, view, device, p)) continue;
        p->reason = *note + label;
        p->may_move = rule.policy == Policy::kPrefer && !view.ranks_known;
        return true;
      }
      if (rule.policy == Policy::kRequire) refuse(node, *p, "the " + label + " decides");
      *note += label + " not possible; ";
      return false;
    }
    return false;
  }

  void place_node(const Node& node, NodePlacement* p) {
    const NodeView view(graph_, node);
    Forbidden forbidden;
    std::string note;
    if (apply_rules(node, view, p, &forbidden, &note)) return;
    if ((node.op->flags & kOpView) != 0 && node.epilogue.empty() && node.inputs[0] != kNoValue) {
      Device* producer = home_[node.inputs[0]];
      if (producer != nullptr && !is_among(producer, forbidden)) {
        if (try_device(node, view, producer, p)) {
          p->reason = note + "a view: where its input is";
          return;
        }
      }
    }
    if (assigned_ != nullptr && take_assigned(node, view, p, forbidden, note)) return;
    const bool preferred_failed = p->rule_line != 0 && forbidden.empty();
    bool tried = false;
    for (Device* const device : defaults_) {
      if (is_among(device, forbidden)) continue;
      tried = true;
      if (!try_device(node, view, device, p)) continue;
      p->reason =
          note + default_absent_ + (defaults_.size() == 1 ? "the default device" : "the first of the default devices that can");
      return;
    }
    if (tried && !preferred_failed) {
      refuse(node, *p, (defaults_.size() == 1 ? "the default device is " : "the default devices are ") + default_names_);
    }
    place_in_order(node, view, p, forbidden, note + default_absent_);
  }

  bool take_assigned(const Node& node, const NodeView& view, NodePlacement* p, const Forbidden& forbidden,
                     const std::string& note) {
    const auto index = static_cast<std::size_t>(&node - graph_.nodes.data());
    Device* const device = assigned_->devices[index];
    if (device == nullptr || is_among(device, forbidden) || !try_device(node, view, device, p)) return false;
    p->reason = note + (assigned_->reasons.empty() ? std::string("assigned") : assigned_->reasons[index]);
    p->may_move = !view.ranks_known;
    return true;
  }

  // Without a rule: the CPU, and where that is forbidden the first other device that can.
  void place_in_order(const Node& node, const NodeView& view, NodePlacement* p, const Forbidden& forbidden,
                      const std::string& note) {
    for (Device* const device : all_) {
      if (is_among(device, forbidden) || std::find(defaults_.begin(), defaults_.end(), device) != defaults_.end()) continue;
      if (try_device(node, view, device, p)) {
        p->reason = note + (device == &runtime_.cpu() ? "no rule: the CPU" : "no rule: the first device that can");
        return;
      }
    }
    refuse(node, *p, note.empty() ? std::string("no device is left") : note + "no device is left");
  }
};

}  // namespace

Placement place(const LoadedModel& model, const SessionRequest& request) {
  const SessionRequest complete = with_settings(request, *model.runtime);
  return Placer(model, complete).run();
}

}  // namespace evn
