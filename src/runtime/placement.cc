#include "runtime/placement.h"

#include <algorithm>
#include <memory>

#include "base/cancel.h"
#include "base/error.h"
#include "base/text.h"
#include "ops/merge.h"
#include "runtime/placement_rules.h"
#include "runtime/placement_settings.h"

namespace evn {
namespace {

// The descs of one node as far as they are known before a run.
struct NodeView {
  std::vector<TensorDesc> inputs, outputs;
  std::vector<WeightPtr> constants;
  bool ranks_known = true;

  // Whether the node may be in a segment: its rank and the inputs that it reads by value are known before a run.
  bool fits_segments(const Node& node) const {
    if (node.region >= 0 || !ranks_known || has_strings() || (node.op->flags & kOpShapeOnly) != 0) return false;
    for (std::size_t k = 0; k < node.inputs.size() && k < 32; ++k) {
      if ((node.op->value_inputs >> k & 1) != 0 && node.inputs[k] != kNoValue && constants[k] == nullptr) return false;
    }
    return true;
  }

  bool has_strings() const {
    const auto is_string = [](const TensorDesc& d) { return d.dtype == DType::kString; };
    return std::any_of(inputs.begin(), inputs.end(), is_string) || std::any_of(outputs.begin(), outputs.end(), is_string);
  }

  NodeView(const Graph& graph, const Node& node) {
    const auto add = [&](ValueId id, std::vector<TensorDesc>* to) {
      TensorDesc d;
      if (id != kNoValue) {
        const Value& v = graph.values[id];
        d = {v.dtype, v.shape};
        ranks_known &= v.has_shape;
      }
      to->push_back(d);
    };
    for (const ValueId id : node.inputs) {
      add(id, &inputs);
      constants.push_back(id == kNoValue ? nullptr : graph.values[id].constant);
    }
    for (const ValueId id : node.outputs) add(id, &outputs);
  }
};

// Some kernel of the device for the operator, whatever it says of types and shapes.
const Kernel* any_kernel(const Device& device, const Node& node) {
  for (const KernelFamily* family : device.kernels()) {
    for (const Kernel& kernel : family->kernels) {
      if (kernel.is_for(node)) return &kernel;
    }
  }
  return nullptr;
}

// How a node runs where that does not depend on a device: kKernel where it does.
NodeMode settled_mode(const Graph& graph, const Node& node, const std::vector<bool>& needed, const std::vector<bool>& known) {
  if (runs_on_host(graph, node)) return NodeMode::kHost;
  const auto planned = [&](ValueId v) { return v != kNoValue && needed[v] && known[v]; };
  if (std::any_of(node.outputs.begin(), node.outputs.end(), planned)) return NodeMode::kPlanned;
  return is_merge(node) ? NodeMode::kMerge : NodeMode::kKernel;
}

class Placer {
 public:
  Placer(const LoadedModel& model, const SessionRequest& request)
      : model_(model),
        graph_(model.graph()),
        runtime_(*model.runtime),
        config_(model.runtime->config()),
        request_(request),
        needed_(values_needed_for_shapes(graph_)),
        known_(values_known_before_run(graph_)) {
    const std::string& default_device = request.device;
    default_name_ = !default_device.empty() ? default_device : config_.default_device;
    if (default_name_.empty()) return;
    const DeviceConfig* configured = config_.find_device(default_name_);
    if (configured != nullptr && configured->optional && default_device.empty()) {
      default_ = runtime_.configured_device(default_name_, &default_absent_);
    } else {
      default_ = runtime_.find_device(default_name_);
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

  const LoadedModel& model_;
  const Graph& graph_;
  Runtime& runtime_;
  const Config& config_;
  const SessionRequest& request_;
  std::string default_name_;
  Device* default_ = nullptr;
  std::string default_absent_;
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
      set_precision(node, *c->device, &p);
      OpDesc& desc = descs.emplace_back(OpDesc{&node, view.inputs, view.outputs, view.constants});
      desc.precision = p.precision;
      desc.strict = p.numerics == Numerics::kStrict;
      desc.products = products_of(node, *c->device);
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
  bool take_claimed(const OpDesc& desc, Device* device, NodePlacement* p) {
    const Node& node = *desc.node;
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
    set_precision(node, *device, p);
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
    WantedSetting wanted = wanted_setting(NodeSetting::kPrecision, model_, request_, node, &device);
    const auto precision = wanted.as<Precision>();
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

  Products products_of(const Node& node, const Device& device) const {
    return wanted_setting(NodeSetting::kProducts, model_, request_, node, &device).as<Products>();
  }

  // Says why the kernel does not have the precision that it may have.
  static void explain_precision(const Node& node, NodePlacement* p) {
    const Precision lowest = p->precision;
    const bool has = p->kernel != nullptr && p->kernel->operands == lowest;
    if (lowest == Precision::kFloat32 || has) return;
    bool is_product = false;
    for (const KernelFamily* family : p->device->kernels()) {
      for (const Kernel& kernel : family->kernels) {
        is_product |= kernel.operands == lowest && kernel.is_for(node);
      }
    }
    if (p->kernel != nullptr && p->kernel->library != Products::kOwn) {
      p->precision_reason.append("; ").append(products_name(p->kernel->library)).append(" multiplies in fp32");
    } else if (is_product) {
      p->precision_reason.append("; no ").append(precision_name(lowest)).append(" kernel takes it");
    } else {
      p->precision_reason.append("; ").append(node.op_type).append(" stays fp32");
    }
  }

  // True when the device takes the node; fills mode and kernel, or appends to p->refused.
  bool try_device(const Node& node, const NodeView& view, Device* device, NodePlacement* p) {
    OpDesc desc{&node, view.inputs, view.outputs, view.constants};
    desc.products = products_of(node, *device);
    if (take_claimed(desc, device, p)) return true;
    const bool far_strings = !device->traits().host_addressable && view.has_strings();
    if ((node.op->flags & kOpView) != 0 && node.epilogue.empty() && !far_strings) {
      p->mode = NodeMode::kView;
      p->device = device;
      return true;
    }
    std::string why;
    set_precision(node, *device, p);
    desc.precision = p->precision;
    desc.strict = p->numerics == Numerics::kStrict;
    if (far_strings) {
      why = "strings stay on the host";
    } else if (!view.ranks_known) {
      // The plan of a run chooses among the kernels of the device; this one stands for them.
      p->kernel = device->traits().host_addressable ? device->reference_kernel(desc) : any_kernel(*device, node);
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
        if (desc.strict) note_strict(*device, desc, p);
        return true;
      }
      why = std::move(claim.refusals[0]);
    }
    add_refusal(device->name() + ": " + why, p);
    return false;
  }

  // Names the kernel that a strict node would have if it were not.
  static void note_strict(const Device& device, const OpDesc& desc, NodePlacement* p) {
    OpDesc fast = desc;
    fast.strict = false;
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

  // Returns true when a rule decided.
  bool apply_rules(const Node& node, const NodeView& view, NodePlacement* p, const Device** forbidden, std::string* note) {
    for (std::size_t i = 0; i < config_.rules.size(); ++i) {
      const PlacementRule& rule = config_.rules[i];
      if (rule.device.empty() || !matches(rule, node, model_.file_name)) continue;
      const std::string label =
          "rule at line " + std::to_string(rule.line) + " (" + policy_name(rule.policy) + " " + rule.device + ")";
      std::string absent;
      Device* device = runtime_.configured_device(rule.device, &absent);
      if (device == nullptr) {
        *note += label + " skipped, the device is absent: " + absent + "; ";
        continue;
      }
      p->rule_line = rule.line;
      if (rule.policy == Policy::kForbid) {
        *forbidden = device;
        *note += label + "; ";
        return false;
      }
      if (try_device(node, view, device, p)) {
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
    const Device* forbidden = nullptr;
    std::string note;
    if (apply_rules(node, view, p, &forbidden, &note)) return;
    if ((node.op->flags & kOpView) != 0 && node.epilogue.empty() && node.inputs[0] != kNoValue) {
      Device* producer = home_[node.inputs[0]];
      if (producer != nullptr && producer != forbidden) {
        try_device(node, view, producer, p);
        p->reason = note + "a view: where its input is";
        return;
      }
    }
    const bool preferred_failed = p->rule_line != 0 && forbidden == nullptr;
    if (default_ != nullptr && default_ != forbidden) {
      if (try_device(node, view, default_, p)) {
        p->reason = note + "the default device";
        return;
      }
      if (!preferred_failed) refuse(node, *p, "the default device is " + default_name_);
    }
    if (!default_absent_.empty()) note += "the default device " + default_name_ + " is absent: " + default_absent_ + "; ";
    place_automatically(node, view, p, forbidden, note);
  }

  // Without a rule: the CPU, and where that is forbidden the first other device that can.
  void place_automatically(const Node& node, const NodeView& view, NodePlacement* p, const Device* forbidden,
                           const std::string& note) {
    for (std::size_t i = 0; i < runtime_.device_count(); ++i) {
      Device* device = runtime_.device_at(i);
      if (device == forbidden || device == default_) continue;
      if (try_device(node, view, device, p)) {
        p->reason = note + (device == &runtime_.cpu() ? "auto: the CPU" : "auto: the first device that can");
        return;
      }
    }
    refuse(node, *p, note.empty() ? std::string("no device is left") : note + "no device is left");
  }
};

}  // namespace

Placement place(const LoadedModel& model, const SessionRequest& request) { return Placer(model, request).run(); }

Placement place_on(const Graph& graph, Device& device) {
  const std::vector<bool> needed = values_needed_for_shapes(graph);
  const std::vector<bool> known = values_known_before_run(graph);
  Placement result;
  result.nodes.resize(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    NodePlacement& p = result.nodes[i];
    p.device = &device;
    p.numerics = Numerics::kFast;
    p.mode = settled_mode(graph, node, needed, known);
    if (p.mode != NodeMode::kKernel) continue;
    if ((node.op->flags & kOpView) != 0 && node.epilogue.empty()) {
      p.mode = NodeMode::kView;
      continue;
    }
    const NodeView view(graph, node);
    const OpDesc desc{&node, view.inputs, view.outputs, view.constants};
    if (!view.ranks_known) {
      p.kernel = device.reference_kernel(desc);
    } else if (const Claim claim = device.claim({&desc, 1}); !claim.segments.empty()) {
      p.kernel = claim.segments[0].kernel;
    }
    if (p.kernel == nullptr) p.mode = NodeMode::kHost;
  }
  return result;
}

}  // namespace evn
