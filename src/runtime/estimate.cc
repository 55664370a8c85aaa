// What a run of a graph would take: walks the nodes as the planner does, with the kernels that the CPU device would choose, but packs
// and runs nothing.
#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/checked.h"
#include "memory/planner.h"
#include "ops/host.h"
#include "ops/merge.h"
#include "ops/multiply_adds.h"
#include "ops/op.h"
#include "runtime/following.h"
#include "runtime/inspect.h"
#include "runtime/joints.h"
#include "runtime/plain_weights.h"
#include "runtime/placement.h"

namespace evn {
namespace {

constexpr std::int32_t kEnd = INT32_MAX;

class Estimator {
 public:
  // `weights`: those that have been counted.
  Estimator(const Graph& graph, Device& cpu, std::set<std::uint64_t>& weights) : graph_(graph), cpu_(cpu), weights_(weights) {}

  Estimate run(const ModelBytes& bytes) {
    bytes_ = bytes;
    find_sums();
    find_bands();
    find_uses();
    const std::vector<bool> needed = values_needed_for_shapes(graph_);
    const std::vector<bool> known = values_known_before_run(graph_);
    root_of_.assign(graph_.values.size(), -1);
    layout_of_.assign(graph_.values.size(), Layout::kPlain);
    has_both_.assign(graph_.values.size(), false);
    whole_of_.assign(graph_.values.size(), -1);
    find_joints_of_kernels();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      const auto planned = [&](ValueId v) { return v != kNoValue && needed[v] && known[v]; };
      if (std::any_of(node.outputs.begin(), node.outputs.end(), planned)) continue;  // shape arithmetic: no step of a run
      if (runs_at_[i] != static_cast<std::int32_t>(i)) continue;
      add_node(node, static_cast<std::int32_t>(i));
    }
    for (const ValueId v : graph_.outputs) need_plain(v, static_cast<std::int32_t>(graph_.nodes.size()));
    count_weights(needed);
    if (in_file_) e_.weights_bytes += bytes.held;
    for (const ValueId v : graph_.inputs) e_.input_bytes += bytes_of(v);
    for (const ValueId v : graph_.outputs) e_.output_bytes += bytes_of(v);
    e_.arena_bytes = plan_arena(roots_, cpu_.traits().alignment);
    return std::move(e_);
  }

 private:
  struct NodeDescs;

  const Graph& graph_;
  Device& cpu_;
  std::set<std::uint64_t>& weights_;
  ModelBytes bytes_;
  bool in_file_ = false;  // some weight of this graph or its bodies lies in the file's bytes, and keeps all of them
  Estimate e_;
  std::map<const Weight*, int> unpacked_uses_;
  std::vector<std::int32_t> last_user_;  // per value; kEnd for graph outputs
  std::vector<std::int32_t> runs_at_;    // per node
  std::vector<std::int32_t> tail_;       // per node, or -1
  std::vector<bool> has_bias_;           // per node: a sum of its own kind is computed with it
  std::vector<std::vector<std::int32_t>> parts_;  // per node: itself and those that run with it in bands, or none
  std::vector<std::int32_t> root_of_;    // per value, or -1: not in the arena
  std::vector<Layout> layout_of_;        // per value: as its node makes it
  std::vector<bool> has_both_;           // per value: it has been written in the other layout, too
  std::vector<ValueId> residual_;        // per node: the operand of a sum that is computed with it
  Joints joints_;
  std::vector<std::int32_t> whole_of_;   // per value: where others are joined to it, or -1
  std::set<std::int32_t> written_over_;  // roots in which dead channels have made room for others
  std::vector<Lifetime> roots_;

  // Sums that are computed with the node before them: a node runs at runs_at_, and the last of its sums is tail_.
  void find_sums() {
    const FollowingSumFinder finder(graph_);
    tail_.assign(graph_.nodes.size(), -1);
    has_bias_.assign(graph_.nodes.size(), false);
    residual_.assign(graph_.nodes.size(), kNoValue);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) runs_at_.push_back(static_cast<std::int32_t>(i));
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.body != nullptr || node.op == nullptr || node.outputs.size() != 1 || node.inputs.empty()) continue;
      if (!std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return is_known(v); }) || !is_known(node.outputs[0])) continue;
      const NodeDescs d(*this, node);
      const Kernel* const kernel = find_kernel(d.desc);
      if (kernel == nullptr || kernel->takes == 0) continue;
      const auto index = static_cast<std::int32_t>(i);
      const FollowingSums sums = finder.find(index, kernel->takes, [](std::int32_t) { return true; });
      if (sums.bias.node >= 0) absorb(index, sums.bias.node);
      has_bias_[i] = sums.bias.node >= 0;
      if (sums.residual.node < 0 || graph_.values[sums.residual.operand].shape != graph_.values[node.outputs[0]].shape) continue;
      absorb(index, sums.residual.node);
      residual_[i] = sums.residual.operand;
    }
  }

  void absorb(std::int32_t index, std::int32_t sum) {
    runs_at_[sum] = index;
    tail_[index] = sum;
  }

  // A node that may run in bands, with its kernel; else null.
  const Kernel* kernel_in_bands(std::int32_t index, const NodeDescs& d) const {
    if (runs_at_[index] != index || has_bias_[index]) return nullptr;
    const Kernel* const kernel = find_kernel(d.desc);
    return kernel != nullptr && cpu_.bands()->takes(*kernel, d.desc) ? kernel : nullptr;
  }

  // Nodes that run in bands, as the planner finds them.
  void find_bands() {
    parts_.resize(graph_.nodes.size());
    if (cpu_.bands() == nullptr) return;
    const FollowingSumFinder finder(graph_);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const auto first = static_cast<std::int32_t>(i);
      std::deque<NodeDescs> nodes;
      std::vector<OpDesc> descs;
      std::vector<std::int32_t> parts;
      std::int32_t at = first;
      while (at >= 0) {
        const Node& node = graph_.nodes[at];
        const bool known = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return is_known(v); });
        if (node.body != nullptr || node.op == nullptr || node.outputs.size() != 1 || !known || !is_known(node.outputs[0])) break;
        NodeDescs& d = nodes.emplace_back(*this, node);
        const Kernel* const kernel = kernel_in_bands(at, d);
        if (kernel == nullptr) break;
        d.set_layouts(*kernel);
        d.desc.threads = cpu_.traits().compute_units;
        descs.push_back(d.desc);
        parts.push_back(at);
        at = parts.size() < kMostParts && cpu_.bands()->joins(descs) ? finder.only_reader(at) : -1;
      }
      if (parts.size() > 1) join(finder, std::move(parts));
    }
  }

  void join(const FollowingSumFinder& finder, std::vector<std::int32_t> parts) {
    const std::int32_t first = parts.front(), last = parts.back();
    for (const std::int32_t p : parts) runs_at_[p] = first;
    const std::int32_t sum = tail_[last];
    const auto any = [](std::int32_t) { return true; };
    const bool is_there = sum >= 0 && finder.find(last, kTakesResidual | kTakesByteResidual, any).residual.maker < first;
    if (sum >= 0) runs_at_[sum] = is_there ? first : sum;
    tail_[first] = is_there ? sum : last;
    parts_[first] = std::move(parts);
  }

  // Which channels are joined and cut without a copy, by the layouts that the nodes will have.
  void find_joints_of_kernels() {
    std::vector<std::vector<Layout>> layouts(graph_.nodes.size());
    std::vector<JointNode> joints(graph_.nodes.size());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (runs_at_[i] != static_cast<std::int32_t>(i)) {
        joints[i].computed_by = runs_at_[i];
        continue;
      }
      const auto known = [&](ValueId v) { return is_known(v); };
      const bool all_known = std::all_of(node.inputs.begin(), node.inputs.end(), known) && std::all_of(node.outputs.begin(), node.outputs.end(), known);
      if (!all_known || node.body != nullptr || is_merge(node) || (node.op->flags & kOpView) != 0) continue;
      const NodeDescs d(*this, node);
      const Kernel* const kernel = find_kernel(d.desc);
      if (kernel == nullptr || kernel->layouts == nullptr) continue;
      joints[i] = {wish_layouts(*kernel, d.desc, &layouts[i]), kernel->pitched == nullptr ? std::uint8_t{0} : kernel->pitched(d.desc), residual_[i], -1};
      if (tail_[i] >= 0) layout_of_[graph_.nodes[tail_[i]].outputs[0]] = layout_of_[node.outputs[0]];
    }
    joints_ = find_joints(graph_, joints);
    layout_of_.assign(graph_.values.size(), Layout::kPlain);
  }

  // Whether the node, a joint, copies nothing; then its outputs lie where they lie.
  bool add_joint(const Node& node) {
    if (std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return v != kNoValue && joints_.cuts[v].whole != kNoValue; })) {
      for (const ValueId v : node.outputs) share(node.inputs[0], v);
    } else {
      if (node.op_type != "Concat" || !node.domain.empty()) return false;
      Place at = range_of(node.outputs[0]);
      if (whole_of_[at.whole] < 0) return false;
      for (const ValueId v : node.inputs) {
        const Place r = v == kNoValue ? Place{} : range_of(v);
        if (r.whole != at.whole || r.first != at.first) return false;
        at.first += graph_.values[v].shape[1];
      }
      share(node.inputs[0], node.outputs[0]);
    }
    for (const ValueId v : node.outputs) layout_of_[v] = Layout::kChannelsLast;
    return true;
  }

  // The channels of which value these are, in the end.
  Place range_of(ValueId v) const {
    Place r = {v, 0, 0, 0};
    for (const Place* p = &joints_.cuts[v]; p->whole != kNoValue; p = &joints_.cuts[r.whole]) r = {p->whole, r.first + p->first, 0, 0};
    const Place& p = joints_.places[r.whole];
    return p.whole == kNoValue ? r : Place{p.whole, r.first + p.first, 0, 0};
  }

  void find_uses() {
    last_user_.assign(graph_.values.size(), -1);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId v : graph_.nodes[i].inputs) {
        if (v == kNoValue) continue;
        last_user_[v] = std::max(last_user_[v], runs_at_[i]);
        if (graph_.values[v].constant != nullptr) ++unpacked_uses_[graph_.values[v].constant.get()];
      }
    }
    for (const ValueId v : graph_.outputs) last_user_[v] = kEnd;
  }

  void count_weights(const std::vector<bool>& needed) {
    for (std::size_t i = 0; i < graph_.values.size(); ++i) {
      const Weight* w = graph_.values[i].constant.get();
      if (w == nullptr || !weights_.insert(w->id).second) continue;
      const auto* at = static_cast<const unsigned char*>(w->data.get());
      const bool inside = at >= bytes_.all.data() && at < bytes_.all.data() + bytes_.all.size();
      const auto uses = unpacked_uses_.find(w);
      const bool all_packed = uses != unpacked_uses_.end() && uses->second == 0 && !needed[i] && last_user_[i] != kEnd;
      const bool let_go = bytes_.may_let_go && all_packed && w->size_bytes >= PlainWeights::kLeastBytes;
      in_file_ |= inside;
      if (!inside && !let_go) e_.weights_bytes += w->size_bytes;
    }
  }

  // What a kernel is asked about.
  struct NodeDescs {
    std::vector<TensorDesc> inputs, outputs;
    std::vector<WeightPtr> constants;
    std::vector<Layout> layouts;
    OpDesc desc;

    NodeDescs(const Estimator& e, const Node& node) {
      for (const ValueId v : node.inputs) {
        inputs.push_back(e.desc_of(v));
        constants.push_back(v == kNoValue ? nullptr : e.graph_.values[v].constant);
      }
      for (const ValueId v : node.outputs) outputs.push_back(e.desc_of(v));
      desc = {&node, inputs, outputs, constants};
    }
    // What the kernel wants of values that come plain.
    void set_layouts(const Kernel& kernel) {
      layouts.assign(inputs.size() + outputs.size(), Layout::kPlain);
      const std::span<Layout> all(layouts);
      kernel.layouts(desc, all.first(inputs.size()), all.subspan(inputs.size()));
      desc.layouts = layouts.data();
    }
    NodeDescs(const NodeDescs&) = delete;
    NodeDescs& operator=(const NodeDescs&) = delete;
  };

  TensorDesc desc_of(ValueId v) const {
    return v == kNoValue ? TensorDesc{} : TensorDesc{graph_.values[v].dtype, graph_.values[v].shape};
  }
  bool is_known(ValueId v) const {
    if (v == kNoValue) return true;
    const Value& value = graph_.values[v];
    return value.has_shape && value.shape.is_known() && is_stored(value.dtype);
  }
  std::uint64_t bytes_of(ValueId v) const { return is_known(v) ? desc_of(v).size_bytes() : 0; }

  void add_work(const std::string& op, double work) {
    if (work <= 0) return;
    e_.multiply_adds += work;
    e_.by_operator[op] += work;
  }

  // The turns of a node's body follow each other: they take the work of all and the memory of one, with what goes in and comes out.
  void add_body(const Node& node, std::int32_t index) {
    Estimator body(*node.body, cpu_, weights_);
    const Estimate one = body.run({bytes_.all, bytes_.held, false});
    in_file_ |= body.in_file_;
    std::vector<ConstTensor> inputs;
    for (const ValueId v : node.inputs) {
      const WeightPtr constant = v == kNoValue ? nullptr : graph_.values[v].constant;
      inputs.push_back({desc_of(v), constant == nullptr ? nullptr : constant->bytes()});
    }
    const std::int64_t turns = node.op->body->turns(node, inputs);
    for (const auto& [op, work] : one.by_operator) add_work(op, work * static_cast<double>(turns < 0 ? 1 : turns));
    e_.bodies_of_unknown_turns += one.bodies_of_unknown_turns + (turns < 0 ? 1 : 0);
    if (e_.nodes_of_unknown_shape == 0) e_.first_unknown = one.first_unknown;
    e_.nodes_of_unknown_shape += one.nodes_of_unknown_shape;
    e_.complete &= one.complete && turns >= 0;
    e_.weights_bytes += one.weights_bytes - (body.in_file_ ? bytes_.held : 0);
    e_.packed_bytes += one.packed_bytes;
    add_root(one.arena_bytes + one.input_bytes + one.output_bytes, index, index);
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      if (is_known(node.outputs[k])) place(node, k, index, 0);
    }
  }

  void add_node(const Node& node, std::int32_t index) {
    if (node.body != nullptr && node.op->body != nullptr) return add_body(node, index);
    const auto known = [&](ValueId v) { return is_known(v); };
    if (!std::all_of(node.inputs.begin(), node.inputs.end(), known) || !std::all_of(node.outputs.begin(), node.outputs.end(), known)) {
      if (e_.nodes_of_unknown_shape++ == 0) e_.first_unknown = node.name;
      e_.complete = false;
    } else if (is_merge(node)) {
      share(node.inputs[1], node.outputs[0]);
      keep(node.inputs[2], last_user_[node.outputs[0]]);
    } else if ((node.op->flags & kOpView) != 0 && node.epilogue.empty()) {
      need_plain(node.inputs[0], index);
      share(node.inputs[0], node.outputs[0]);
    } else {
      add_kernel(node, index);
    }
  }

  void keep(ValueId v, std::int32_t until) {
    const std::int32_t r = root_of_[v];
    if (r >= 0) roots_[r].last = std::max(roots_[r].last, std::min(until, static_cast<std::int32_t>(graph_.nodes.size())));
  }

  void share(ValueId from, ValueId to) {
    root_of_[to] = root_of_[from];
    keep(from, last_user_[to]);
  }

  void add_root(std::size_t bytes, std::int32_t first, std::int32_t last) {
    if (bytes != 0) roots_.push_back({bytes, first, std::max(first, std::min(last, static_cast<std::int32_t>(graph_.nodes.size()))), 0});
  }

  void add_node_work(const Node& node, const NodeDescs& d) {
    add_work(node.domain.empty() ? node.op_type : node.domain + "::" + node.op_type, multiply_adds(node, d.inputs, d.outputs));
  }

  void add_scratch(const KernelPlan& plan, std::int32_t index) {
    const std::size_t for_threads = checked_mul<std::size_t>(cpu_.traits().compute_units, align_up(plan.thread_scratch_bytes, 64));
    add_root(checked_add(align_up(plan.scratch_bytes, 64), for_threads), index, index);
  }

  void place_tail(const Node& node, std::int32_t index) {
    const Node& tail = graph_.nodes[tail_[index]];
    layout_of_[tail.outputs[0]] = layout_of_[node.outputs[0]];
    place(tail, 0, index, 0);
  }

  void add_bands(const std::vector<std::int32_t>& parts) {
    const std::int32_t index = parts.front();
    std::deque<NodeDescs> nodes;
    std::vector<OpDesc> descs;
    for (const std::int32_t at : parts) {
      NodeDescs& d = nodes.emplace_back(*this, graph_.nodes[at]);
      const Kernel& kernel = *find_kernel(d.desc);
      if (at == index) {
        choose_layouts(kernel, index, &d.desc, &d.layouts);
      } else {
        d.set_layouts(kernel);
      }
      d.desc.threads = cpu_.traits().compute_units;
      add_node_work(graph_.nodes[at], d);
      count_packed(kernel, d.desc);
      descs.push_back(d.desc);
    }
    OpDesc all;
    all.parts = descs;
    all.threads = cpu_.traits().compute_units;
    KernelPlan plan;
    cpu_.bands()->kernel.plan(all, &plan);
    add_scratch(plan, index);
    place_tail(graph_.nodes[index], index);
  }

  void add_kernel(const Node& node, std::int32_t index) {
    if (!parts_[index].empty()) return add_bands(parts_[index]);
    if (add_joint(node)) return;
    NodeDescs d(*this, node);
    OpDesc& desc = d.desc;
    desc.threads = cpu_.traits().compute_units;
    add_node_work(node, d);
    const Kernel* const kernel = find_kernel(desc);
    if (kernel != nullptr && kernel->layouts != nullptr) choose_layouts(*kernel, index, &desc, &d.layouts);
    const KernelPlan plan = kernel == nullptr ? KernelPlan{} : plan_kernel(*kernel, desc);
    if (desc.layouts == nullptr) {
      for (const ValueId v : node.inputs) need_plain(v, index);
    }
    add_scratch(plan, index);
    if (tail_[index] >= 0) return place_tail(node, index);
    for (std::size_t k = 0; k < d.outputs.size(); ++k) place(node, k, index, k == 0 ? plan.in_place : 0);
  }

  // The kernel that the device would choose, or null.
  const Kernel* find_kernel(const OpDesc& desc) const {
    const auto empty = [](const TensorDesc& d) { return d.dtype != DType::kUndefined && d.shape.elements() == 0; };
    const bool is_empty = std::any_of(desc.inputs.begin(), desc.inputs.end(), empty) || std::any_of(desc.outputs.begin(), desc.outputs.end(), empty);
    const Claim claim = is_empty ? Claim{} : cpu_.claim(std::span<const OpDesc>(&desc, 1));
    return claim.segments.empty() ? nullptr : claim.segments[0].kernel;
  }

  // A value in the layout in which it is not made needs memory of its own.
  void need(ValueId v, Layout layout, std::int32_t index) {
    if (v == kNoValue || layout_of_[v] == layout || has_both_[v] || !is_known(v)) return;
    const Shape& shape = graph_.values[v].shape;
    has_both_[v] = true;
    if (shape.rank() < 3 || shape[1] == 1 || shape.elements(2, shape.rank()) == 1) return;
    if (last_user_[v] != kEnd || layout == Layout::kChannelsLast) add_root(bytes_of(v), index, last_user_[v]);
  }
  void need_plain(ValueId v, std::int32_t index) { need(v, Layout::kPlain, index); }

  void choose_layouts(const Kernel& kernel, std::int32_t index, OpDesc* desc, std::vector<Layout>* layouts) {
    const std::span<const Layout> all = wish_layouts(kernel, *desc, layouts);
    for (std::size_t k = 0; k < desc->node->inputs.size(); ++k) need(desc->node->inputs[k], all[k], index);
    desc->layouts = layouts->data();
  }

  std::span<const Layout> wish_layouts(const Kernel& kernel, const OpDesc& desc, std::vector<Layout>* layouts) {
    const Node& node = *desc.node;
    layouts->assign(node.inputs.size() + node.outputs.size(), Layout::kPlain);
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      if (node.inputs[k] != kNoValue) (*layouts)[k] = layout_of_[node.inputs[k]];
    }
    const std::span<Layout> all(*layouts);
    kernel.layouts(desc, all.first(node.inputs.size()), all.subspan(node.inputs.size()));
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] != kNoValue) layout_of_[node.outputs[k]] = all[node.inputs.size() + k];
    }
    return all;
  }

  KernelPlan plan_kernel(const Kernel& kernel, const OpDesc& desc) {
    KernelPlan plan;
    count_packed(kernel, desc);
    kernel.plan(desc, &plan);
    return plan;
  }

  void count_packed(const Kernel& kernel, const OpDesc& desc) {
    for (std::size_t i = 0; i < desc.constants.size(); ++i) {
      if (desc.constants[i] == nullptr || kernel.prepack_bytes == nullptr) continue;
      const std::size_t bytes = kernel.prepack_bytes(desc, static_cast<int>(i));
      e_.packed_bytes = checked_add<std::uint64_t>(e_.packed_bytes, bytes);
      if (bytes != 0) --unpacked_uses_[desc.constants[i].get()];
    }
  }

  // A place for output k: the caller's, an input's that ends here, or one of its own.
  void place(const Node& node, std::size_t k, std::int32_t index, std::uint32_t in_place) {
    const ValueId v = node.outputs[k];
    if (v == kNoValue || (last_user_[v] == kEnd && layout_of_[v] == Layout::kPlain)) return;
    if (const ValueId whole = joints_.places[v].whole; whole != kNoValue || whole_of_[v] >= 0) {
      std::int32_t& to = whole_of_[whole == kNoValue ? v : whole];
      const Over& over = joints_.overs[whole == kNoValue ? v : whole];
      const std::int32_t below = over.value == kNoValue || over.last >= index ? -1 : root_of_[over.value];
      if (to < 0 && below >= 0 && roots_[below].bytes == bytes_of(whole) && written_over_.insert(below).second) {
        to = below;
        keep(over.value, last_user_[whole]);
      }
      if (to < 0 && bytes_of(whole) != 0) {
        add_root(bytes_of(whole), index, last_user_[whole]);
        to = static_cast<std::int32_t>(roots_.size() - 1);
      }
      root_of_[v] = to;
      return keep(v, last_user_[v]);
    }
    for (std::size_t i = 0; i < node.inputs.size() && i < 32; ++i) {
      const ValueId from = node.inputs[i];
      if ((in_place >> i & 1) == 0 || from == kNoValue || root_of_[from] < 0) continue;
      const Lifetime& r = roots_[root_of_[from]];
      if (r.last == index && r.bytes == bytes_of(v)) return share(from, v);
    }
    const std::uint64_t bytes = bytes_of(v);
    if (bytes == 0) return;
    add_root(bytes, index, last_user_[v]);
    root_of_[v] = static_cast<std::int32_t>(roots_.size() - 1);
  }
};

}  // namespace

Estimate estimate_run(const Graph& graph, Device& cpu, const ModelBytes& bytes) {
  std::set<std::uint64_t> weights;
  return Estimator(graph, cpu, weights).run(bytes);
}

}  // namespace evn
