#include "runtime/plan.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "ops/merge.h"
#include "runtime/plan_work.h"

namespace evn {

Plan::Plan() = default;
Plan::~Plan() = default;

namespace {

class PlanBuilder : PlanWork {
 public:
  PlanBuilder(const CompiledGraph& compiled, Signature signature) : PlanWork(compiled, std::make_shared<Plan>()) {
    plan_->signature = std::move(signature);
    start();
  }

  PlanBuilder(const CompiledGraph& compiled, std::shared_ptr<const Plan> before, std::span<const void* const> fetched,
              std::span<const TensorDesc> made)
      : PlanWork(compiled, std::make_shared<Plan>()) {
    s_ = *before->state;
    plan_->signature = before->signature;
    plan_->part = static_cast<std::uint16_t>(before->part + 1);
    if (before->part == UINT16_MAX) fail(EVN_ERROR_LIMIT, "the run has too many parts whose shapes depend on data");
    plan_->outputs = before->outputs;
    plan_->known = before->known;
    for (PlanRoot& r : s_.roots) r.pending_slots = 0;
    reserve();
    for (std::size_t i = 0; i < fetched.size(); ++i) {
      const ValueId v = before->fetch[i];
      set_known(v, fetched[i], s_.descs[v].size_bytes());
    }
    if (before->host_node >= 0) add_boxes(graph_.nodes[before->host_node], made);
    plan_->before = std::move(before);
  }

  std::shared_ptr<Plan> run() {
    for (; s_.next_node < graph_.nodes.size(); ++s_.next_node) {
      const auto i = static_cast<std::int32_t>(s_.next_node);
      try {
        if (!is_ready(i)) return cut();
        if (s_.absorbed[s_.next_node] || !is_active(i)) continue;
        if (c_.nodes[i].mode == NodeMode::kHost) return cut_for_host(i);
        add_node(i);
      } catch (Error& e) {
        if (e.node[0] == '\0') e.with_node(graph_.nodes[i].name.c_str());
        throw;
      }
    }
    add_outputs();
    place_arenas();
    return finish();
  }

 private:
  std::vector<ValueId> missing_;           // what is_ready found unknown

  void reserve() {
    plan_->descs.reserve(c_.arg_count);
    plan_->steps.reserve(c_.kernel_nodes + 2 * graph_.outputs.size());
    plan_->buffers.reserve(c_.arg_count + graph_.nodes.size());
    s_.buffer_roots.clear();
    s_.buffer_roots.reserve(plan_->buffers.capacity());
    s_.step_of.assign(graph_.nodes.size(), -1);
    s_.other_steps.clear();
  }

  void start() {
    const std::size_t n = graph_.values.size();
    reserve();
    s_.descs.resize(n);
    s_.values.resize(n);
    for (std::size_t v = 0; v < n; ++v) {
      s_.descs[v] = c_.constants[v].desc;
      s_.values[v] = c_.constants[v].data;
    }
    s_.root_of.assign(checked_mul(n, roots_of_value()), -1);
    s_.whole_of.assign(n, -1);
    s_.output_of.assign(n, -1);
    for (std::size_t j = graph_.outputs.size(); j-- > 0;) s_.output_of[graph_.outputs[j]] = static_cast<std::int32_t>(j);
    plan_->known.resize(n);
    s_.absorbed.assign(graph_.nodes.size(), false);
    plan_->outputs.resize(graph_.outputs.size());
    s_.roots.reserve(n);
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const ValueId v = graph_.inputs[i];
      s_.descs[v] = plan_->signature.inputs[i];
      if (s_.descs[v].wraps) continue;
      const int slot = plan_->signature.input_slots[i];
      PlanRoot r;
      r.source = Source::kInput;
      r.slot = static_cast<std::uint8_t>(slot);
      r.index = static_cast<std::int32_t>(i);
      r.bytes = s_.descs[v].size_bytes();
      r.last_user = INT32_MAX;  // never written over
      root(v, slot) = add_root(r);
      if (const auto& bytes = plan_->signature.values[i]; is_key(c_, i, s_.descs[v])) set_known(v, bytes.data(), bytes.size());
    }
  }

  std::int32_t add_root(const PlanRoot& r) {
    s_.roots.push_back(r);
    return static_cast<std::int32_t>(s_.roots.size() - 1);
  }

  std::int32_t now() const { return static_cast<std::int32_t>(plan_->steps.size()); }

  std::int32_t add_arena_root(ValueId v, int slot, std::int32_t step) {
    PlanRoot r;
    r.source = Source::kArena;
    r.slot = static_cast<std::uint8_t>(slot);
    r.bytes = s_.descs[v].size_bytes();
    r.first = r.last = step;
    r.last_user = c_.last_user[v];
    r.part = plan_->part;
    return add_root(r);
  }

  std::uint32_t add_buffer(std::int32_t r) {
    plan_->buffers.emplace_back();
    s_.buffer_roots.push_back(r);
    if (r >= 0 && s_.roots[r].part == plan_->part) {
      PlanRoot& used = s_.roots[s_.roots[r].whole >= 0 ? s_.roots[r].whole : r];
      used.last = std::max(used.last, now());
    }
    return static_cast<std::uint32_t>(plan_->buffers.size() - 1);
  }

  void add_copy(ValueId v, std::int32_t from, std::int32_t to) {
    if (s_.roots[from].bytes == 0) return;
    PlanStep step;
    step.kind = PlanStep::Kind::kCopy;
    step.value = v;
    step.from_slot = s_.roots[from].slot;
    step.to_slot = s_.roots[to].slot;
    const bool from_host = host(step.from_slot);
    const bool to_host = host(step.to_slot);
    step.slot = from_host ? step.to_slot : step.from_slot;
    step.wait_slots = from_host ? s_.roots[from].pending_slots : 0;
    step.wait_after = from_host && !to_host && s_.roots[from].source == Source::kArena;
    if (to_host && !from_host) s_.roots[to].pending_slots |= 1u << step.from_slot;
    step.buffers = add_buffer(from);
    add_buffer(to);
    s_.other_steps.push_back(now());
    plan_->steps.push_back(step);
  }

  void add_relayout(ValueId v, std::int32_t from, std::int32_t to, Layout wanted) {
    static constexpr Layout kLayouts[] = {Layout::kPlain, Layout::kChannelsLast, Layout::kChannelsLast, Layout::kPlain};
    const bool from_last = from == root(v, 0, Layout::kChannelsLast);
    if (s_.roots[from].bytes == 0) return;
    const TensorDesc& desc = plan_->relayouts.emplace_back(s_.descs[v]);
    PlanStep step;
    step.kind = PlanStep::Kind::kRelayout;
    step.value = v;
    step.kernel = c_.devices[0]->relayout_kernel();
    step.desc = {nullptr, {&desc, 1}, {&desc, 1}, {}, kLayouts + (wanted == Layout::kPlain ? 2 : from_last ? 1 : 0)};
    step.desc.threads = threads_of(step.slot);
    if (const PlanRoot& r = s_.roots[from]; r.whole >= 0) step.desc.pitches = plan_->pitches.emplace_back(std::vector{r.pitch, std::int64_t{0}}).data();
    step.kernel->plan(step.desc, &step.plan);
    step.wait_slots = s_.roots[from].pending_slots;
    step.buffers = add_buffer(from);
    add_buffer(to);
    add_buffer(-1);
    s_.other_steps.push_back(now());
    plan_->steps.push_back(step);
  }

  // The root that holds v on slot 0 in a layout in which it is not yet there, from the other one.
  std::int32_t relayout(ValueId v, std::int32_t from, Layout wanted) {
    if (same_in_all_layouts(s_.descs[v].shape) && s_.roots[from].whole < 0) return root(v, 0, wanted) = from;
    const std::int32_t to = add_arena_root(v, 0, now());
    add_relayout(v, from, to, wanted);
    return root(v, 0, wanted) = to;
  }

  // As need(v, slot), in a layout; some channels of a wider value where the reader copes with them.
  std::int32_t need(ValueId v, int slot, Layout layout, bool pitched) {
    if (layout == Layout::kPlain) return need(v, slot);
    const std::int32_t r = root(v, slot, layout);
    if (r < 0) return relayout(v, need(v, slot), layout);
    if (pitched || s_.roots[r].whole < 0) return r;
    const int alone = static_cast<int>(c_.devices.size()) + 1;
    if (root(v, alone) < 0) {
      root(v, alone) = add_arena_root(v, 0, now());
      add_relayout(v, r, root(v, alone), layout);
    }
    return root(v, alone);
  }

  void note_given_copy(const GivenCopy& copy, std::size_t bytes) {
    const auto same = [&](const GivenCopy& c) { return c.is_output == copy.is_output && c.index == copy.index; };
    std::vector<GivenCopy>& all = plan_->given_copies;
    if (bytes > 0 && !host(copy.given_slot) && std::none_of(all.begin(), all.end(), same)) all.push_back(copy);
  }

  // A step on `slot` is going to read the root, which lies elsewhere. Between two devices `need` calls itself: the first call counts.
  void note_copy_of_input(std::int32_t from, int slot) {
    const PlanRoot& r = s_.roots[from];
    if (r.source == Source::kInput) note_given_copy({false, r.index, r.slot, static_cast<std::uint8_t>(slot)}, r.bytes);
  }

  // The root that holds v on a slot, copying it there first when it is elsewhere.
  std::int32_t need(ValueId v, int slot) {
    if (const std::int32_t r = root(v, slot); r >= 0) return r;
    if (const std::int32_t r = root(v, 0, Layout::kChannelsLast); r >= 0 && root(v, 0) < 0) {
      relayout(v, r, Layout::kPlain);
      return need(v, slot);
    }
    const WeightPtr& constant = graph_.values[v].constant;
    if (constant != nullptr || (s_.values[v] != nullptr && host(slot))) {
      if (s_.values[v] == nullptr) PlainWeights::Access(*c_.model).keep(*constant);
      PlanRoot r;
      r.source = Source::kFixed;
      r.slot = static_cast<std::uint8_t>(slot);
      r.bytes = s_.descs[v].size_bytes();
      r.last_user = INT32_MAX;
      r.fixed = constant != nullptr ? c_.model->store.plain(*c_.devices[slot], *constant)
                                    : Buffer{const_cast<void*>(s_.values[v]), 0, r.bytes};
      return root(v, slot) = add_root(r);
    }
    std::int32_t from = s_.values[v] != nullptr ? need(v, 0) : -1;
    for (std::size_t s = 0; s < c_.devices.size() && from < 0; ++s) from = root(v, static_cast<int>(s));
    EVN_CHECK(from >= 0);
    note_copy_of_input(from, slot);
    if (!host(s_.roots[from].slot) && !host(slot)) from = need(v, 0);  // between two devices by way of the host
    const std::int32_t to = add_arena_root(v, slot, now());
    add_copy(v, from, to);
    return root(v, slot) = to;
  }

  // Whether the condition, a truth value on the host, holds.
  bool is_true(ValueId condition) const {
    const std::int64_t elements = s_.descs[condition].shape.elements();
    if (elements != 1) fail(EVN_ERROR_INVALID_ARGUMENT, "the condition of an If has %lld elements", static_cast<long long>(elements));
    return *static_cast<const std::uint8_t*>(s_.values[condition]) != 0;
  }

  // Whether the branches around the node, which is ready, are taken.
  bool is_active(std::int32_t index) const {
    for (std::int32_t r = graph_.nodes[index].region; r >= 0; r = graph_.regions[r].parent) {
      // A condition that is not known now would be computed in an outer branch, which is not taken.
      if (s_.values[c_.conditions[r]] == nullptr) return false;
      if (is_true(c_.conditions[r]) != (r % 2 == 0)) return false;
    }
    return true;
  }

  void require(ValueId v) {
    if (v != kNoValue && s_.values[v] == nullptr && s_.descs[v].shape.elements() != 0) missing_.push_back(v);
  }

  // Whether all is known that the node's shapes, or whether it runs, depend on; else missing_ says what is not.
  bool is_ready(std::int32_t index) {
    const Node& node = graph_.nodes[index];
    const CompiledNode& n = c_.nodes[index];
    missing_.clear();
    conditions_around_.clear();
    for (std::int32_t r = node.region; r >= 0; r = graph_.regions[r].parent) conditions_around_.push_back(r);
    while (!conditions_around_.empty()) {  // outermost first: what is in a branch that is not taken is never known
      const std::int32_t r = conditions_around_.back();
      conditions_around_.pop_back();
      require(c_.conditions[r]);
      if (!missing_.empty()) return false;
      if (is_true(c_.conditions[r]) != (r % 2 == 0)) return true;
    }
    if (is_merge(node)) {
      require(node.inputs[0]);
      if (missing_.empty() && n.mode == NodeMode::kPlanned) require(chosen_by(node));
      return missing_.empty();
    }
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const bool by_value = k < 32 && (node.op->value_inputs >> k & 1) != 0;
      const bool evaluated = n.mode == NodeMode::kPlanned && (k != 0 || (node.op->flags & kOpShapeOnly) == 0);
      if (by_value || evaluated) require(node.inputs[k]);
    }
    return missing_.empty();
  }

  ValueId chosen_by(const Node& merge) const { return merge.inputs[is_true(merge.inputs[0]) ? 1 : 2]; }

  // Ends the plan before the next node: the missing values are brought to the host, and all that is used later stays.
  std::shared_ptr<Plan> cut() {
    for (const ValueId v : missing_) {
      if (std::find(plan_->fetch.begin(), plan_->fetch.end(), v) != plan_->fetch.end()) continue;
      plan_->fetch.push_back(v);
      plan_->fetch_buffers.push_back(add_buffer(need(v, 0)));
    }
    for (PlanRoot& r : s_.roots) {
      const bool later = r.last_user >= static_cast<std::int32_t>(s_.next_node);
      if (r.source == Source::kArena && r.part == plan_->part && later) r.last = now();
    }
    place_arenas();
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

  // What a host node made: tensors that lie in boxes of the run.
  void add_boxes(const Node& node, std::span<const TensorDesc> made) {
    plan_->made.assign(made.begin(), made.end());
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId v = node.outputs[k];
      if (v == kNoValue) continue;
      s_.descs[v] = made[k];
      if (made[k].wraps) continue;
      PlanRoot r;
      r.source = Source::kBox;
      r.index = v;
      r.bytes = made[k].size_bytes();
      r.last_user = INT32_MAX;
      r.part = plan_->part;
      root(v, 0) = add_root(r);
    }
    ++s_.next_node;
  }

  // The output is what the branch that is taken made, wherever that lies.
  void add_merge(const Node& node) {
    const ValueId from = chosen_by(node);
    const ValueId to = node.outputs[0];
    if (root(from, 0, Layout::kChannelsLast) >= 0) need(from, 0);
    if (s_.descs[from].dtype != graph_.values[to].dtype) fail(EVN_ERROR_INVALID_MODEL, "the branches of an If have unlike dtypes");
    s_.descs[to] = s_.descs[from];
    s_.values[to] = s_.values[from];
    plan_->known[to] = graph_.values[from].constant != nullptr ? graph_.values[from].constant : plan_->known[from];
    for (std::size_t slot = 0; slot < c_.devices.size(); ++slot) {
      std::int32_t r = root(from, static_cast<int>(slot));
      if (r < 0 && s_.values[from] != nullptr && slot == 0) r = need(from, 0);
      root(to, static_cast<int>(slot)) = r;
      if (r >= 0 && s_.roots[r].last_user != INT32_MAX) s_.roots[r].last_user = std::max(s_.roots[r].last_user, c_.last_user[to]);
    }
  }

  void add_node(std::int32_t index) {
    const Node& node = graph_.nodes[index];
    const CompiledNode& n = c_.nodes[index];
    if (is_merge(node)) return add_merge(node);
    const std::size_t first_desc = plan_->descs.size();
    for (const ValueId v : node.inputs) plan_->descs.push_back(v == kNoValue ? TensorDesc{} : s_.descs[v]);
    for (const FollowingSum& sum : {n.bias, n.residual}) {
      if (sum.node >= 0) plan_->descs.emplace_back();
    }
    const std::size_t inputs = plan_->descs.size() - first_desc;
    for (const ValueId v : node.outputs) {
      plan_->descs.push_back({v == kNoValue ? DType::kUndefined : graph_.values[v].dtype, {}});
    }
    infer(node, {plan_->descs.data() + first_desc, inputs + node.outputs.size()});
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] != kNoValue) s_.descs[node.outputs[k]] = plan_->descs[first_desc + inputs + k];
    }
    if (n.next >= 0 && add_bands(index, first_desc)) return;
    if (n.mode == NodeMode::kKernel) return add_kernel(index, first_desc, inputs);
    plan_->descs.resize(first_desc);
    if (n.mode == NodeMode::kPlanned) evaluate(node);
    if (n.mode == NodeMode::kView) add_view(index, n.slot);
  }

  void add_view(std::int32_t index, int slot) {
    const Node& node = graph_.nodes[index];
    const ValueId out = node.outputs[0];
    const std::int32_t r = need(node.inputs[0], slot);
    root(out, slot) = r;
    if (s_.roots[r].last_user != INT32_MAX) s_.roots[r].last_user = std::max(s_.roots[r].last_user, c_.last_user[out]);
  }

  // The buffer of input k, or -1 where the kernel does not read one.
  std::int32_t input_root(const Node& node, std::size_t k, int slot, Layout layout, std::uint8_t pitched) {
    const ValueId v = node.inputs[k];
    if (v == kNoValue || (k == 0 && (node.op->flags & kOpShapeOnly) != 0)) return -1;
    const bool by_value = k < 32 && (node.op->value_inputs >> k & 1) != 0;
    if (by_value && !host(slot)) return -1;  // kernels of other devices read it from OpDesc::constants
    const std::uint8_t wanted = k == 0 ? kPitchedInput : kPitchedInputs;
    return need(v, slot, layout, (pitched & wanted) == wanted);
  }

  std::int32_t output_root(const PlanStep& step, std::size_t k, const std::vector<std::int32_t>& inputs) {
    const ValueId v = step.desc.tail != nullptr ? step.desc.tail->outputs[0] : graph_.nodes[step.node].outputs[k];
    const int slot = step.slot;
    if (v == kNoValue) return -1;
    const Layout layout = step.desc.output_layout(static_cast<int>(k));
    const bool plain = layout == Layout::kPlain || same_in_all_layouts(s_.descs[v].shape);
    if (const std::int32_t j = s_.output_of[v]; (plain || c_.raw_outputs) && j >= 0 && plan_->signature.output_slots[j] == slot) {
      plan_->outputs[j] = s_.descs[v];
      return root(v, slot, plain ? Layout::kPlain : layout) = add_output_root(static_cast<std::size_t>(j), slot);
    }
    if (placed_[k] >= 0) return root(v, slot, layout) = placed_[k];
    for (std::size_t i = 0; k == 0 && i < inputs.size() && i < 32; ++i) {
      if ((step.plan.in_place >> i & 1) == 0 || inputs[i] < 0) continue;
      PlanRoot& r = s_.roots[inputs[i]];
      if (r.source != Source::kArena || r.whole >= 0 || r.last_user != step.node || r.bytes != s_.descs[v].size_bytes()) continue;
      r.last_user = c_.last_user[v];
      r.last = std::max(r.last, now());
      r.pending_slots = 0;
      return root(v, slot, layout) = inputs[i];
    }
    return root(v, slot, layout) = add_arena_root(v, slot, now());
  }

  // Some channels of the value of another root.
  std::int32_t add_view_root(ValueId v, std::int32_t of, const Place& place) {
    const std::int32_t whole = s_.roots[of].whole >= 0 ? s_.roots[of].whole : of;
    PlanRoot r = s_.roots[of];
    r.whole = whole;
    r.channels = place.channels;
    if (whole == of) r.pitch = place.pitch;
    r.skip += static_cast<std::size_t>(place.first) * dtype_size(s_.descs[v].dtype);
    r.bytes = s_.descs[v].size_bytes();
    r.joined = s_.roots[whole].joined = true;
    s_.roots[whole].last_user = std::max(s_.roots[whole].last_user, c_.last_user[v]);
    return add_root(r);
  }

  // The root that v, channels last, is to be written into: its place in the value that it is joined to, or where others have been
  // joined. -1: there is none. `node`: the first one of the step that writes it.
  std::int32_t place_of(ValueId v, std::int32_t node) {
    const Place& place = c_.joints.places[v];
    if (place.whole == kNoValue) {
      const std::int32_t r = s_.whole_of[v];
      return r >= 0 && s_.roots[r].bytes == s_.descs[v].size_bytes() ? r : -1;
    }
    const TensorDesc& d = s_.descs[v];
    if (d.shape.elements() == 0 || d.shape[1] != place.channels) return -1;
    const std::size_t bytes = checked_mul(d.size_bytes() / static_cast<std::size_t>(place.channels), static_cast<std::size_t>(place.pitch));
    std::int32_t whole = s_.whole_of[place.whole];
    if (whole < 0) {
      if (bytes > limits_.tensor_bytes) return -1;
      whole = root_to_write_over(c_.joints.overs[place.whole], bytes, node);
      if (whole < 0) {
        whole = add_arena_root(place.whole, 0, now());
        s_.roots[whole].bytes = bytes;
      }
      s_.whole_of[place.whole] = whole;
    }
    return s_.roots[whole].bytes == bytes ? add_view_root(v, whole, place) : -1;
  }

  // That of a value whose other channels nobody reads from the node on, or -1.
  std::int32_t root_to_write_over(const Over& over, std::size_t bytes, std::int32_t node) {
    if (over.value == kNoValue || over.last >= node || same_in_all_layouts(s_.descs[over.value].shape)) return -1;
    const std::int32_t r = root(over.value, 0, Layout::kChannelsLast);
    if (r < 0 || s_.roots[r].source != Source::kArena || s_.roots[r].whole >= 0 || s_.roots[r].bytes != bytes) return -1;
    return std::exchange(s_.roots[r].written_over, true) ? -1 : r;
  }

  // Whether all that the node, a Concat, joins is in its place already.
  bool join(const Node& node) {
    const ValueId out = node.outputs[0];
    if (node.op_type != "Concat") return false;
    const std::int32_t to = place_of(out, static_cast<std::int32_t>(&node - graph_.nodes.data()));
    if (to < 0) return false;
    const std::int32_t whole = s_.roots[to].whole >= 0 ? s_.roots[to].whole : to;
    std::size_t at = s_.roots[to].skip;
    for (const ValueId v : node.inputs) {
      const std::int32_t r = root(v, 0, Layout::kChannelsLast);
      if (r < 0 || s_.roots[r].whole != whole || s_.roots[r].skip != at) return false;
      at += static_cast<std::size_t>(s_.descs[v].shape[1]) * dtype_size(s_.descs[v].dtype);
    }
    root(out, 0, Layout::kChannelsLast) = to;
    s_.roots[whole].last_user = std::max(s_.roots[whole].last_user, c_.last_user[out]);
    return true;
  }

  // Whether what the node, a Split or Slice, cuts out stays where it lies.
  bool cut(const Node& node) {
    for (const ValueId v : node.outputs) {
      const Place& cut = v == kNoValue ? Place{} : c_.joints.cuts[v];
      if (cut.whole == kNoValue || s_.descs[v].shape.elements() == 0) return false;
      if (s_.descs[v].shape[1] != cut.channels || s_.descs[cut.whole].shape[1] != cut.pitch) return false;
    }
    const std::int32_t from = need(node.inputs[0], 0, Layout::kChannelsLast, true);
    if (s_.roots[from].source != Source::kArena) return false;
    for (const ValueId v : node.outputs) root(v, 0, Layout::kChannelsLast) = add_view_root(v, from, c_.joints.cuts[v]);
    return true;
  }

  // Where the step's outputs go, as far as they are joined, and what is some channels of a wider value.
  void set_places(PlanStep* step, std::uint8_t pitched, const std::vector<std::int32_t>& inputs) {
    const std::size_t outputs = step->desc.outputs.size();
    placed_.assign(outputs, -1);
    bool any = false;
    for (std::size_t k = 0; k < outputs && (pitched & kPitchedOutputs) != 0; ++k) {
      const ValueId v = step->desc.tail != nullptr ? step->desc.tail->outputs[0] : graph_.nodes[step->node].outputs[k];
      if (v == kNoValue || step->desc.output_layout(static_cast<int>(k)) != Layout::kChannelsLast) continue;
      const bool plain = same_in_all_layouts(s_.descs[v].shape) || c_.raw_outputs;
      if (const std::int32_t j = s_.output_of[v]; plain && j >= 0 && plan_->signature.output_slots[j] == step->slot) continue;
      placed_[k] = place_of(v, step->node);
      any |= placed_[k] >= 0 && s_.roots[placed_[k]].whole >= 0;
    }
    for (const std::int32_t r : inputs) any |= r >= 0 && s_.roots[r].whole >= 0;
    if (!any) return;
    std::vector<std::int64_t>& pitches = plan_->pitches.emplace_back();
    for (const std::int32_t r : inputs) pitches.push_back(r >= 0 ? s_.roots[r].pitch : 0);
    for (const std::int32_t r : placed_) pitches.push_back(r >= 0 ? s_.roots[r].pitch : 0);
    step->desc.pitches = pitches.data();
  }

  // Takes into the step the sums that follow the node, as far as the shapes allow it. Their inputs stand behind the node's own.
  void take_sums(const CompiledNode& n, PlanStep* step) {
    OpDesc& d = step->desc;
    int at = static_cast<int>(d.node->inputs.size());
    const auto take = [&, extra = const_cast<TensorDesc*>(d.inputs.data())](const FollowingSum& sum) {  // the plan's own
      d.tail = &graph_.nodes[sum.node];
      d.byte_sum = sum.byte_sum();
      extra[at] = s_.descs[sum.operand];
      s_.descs[d.tail->outputs[0]] = d.outputs[0];
      absorb(sum.node, step);
      return at++;
    };
    if (n.bias.node >= 0) d.bias = take(n.bias);
    if (n.residual.node >= 0 && s_.descs[n.residual.operand].shape == d.outputs[0].shape) d.residual = take(n.residual);
  }

  void absorb(std::int32_t node, PlanStep* step) {
    s_.absorbed[static_cast<std::size_t>(node)] = true;
    step->absorbed.push(node);
  }

  // A part of a step in bands: its inputs begin at `first` of the plan's descs, and its output stands behind them.
  OpDesc part_desc(std::int32_t index, std::size_t first) const {
    const CompiledNode& n = c_.nodes[index];
    const std::size_t inputs = graph_.nodes[index].inputs.size() + (n.residual.node >= 0 ? 1 : 0);
    OpDesc d{&graph_.nodes[index], {plan_->descs.data() + first, inputs}, {plan_->descs.data() + first + inputs, 1}, n.constants};
    d.layouts = n.layouts.data();
    d.threads = threads_of(0);
    d.strict = n.strict;
    return d;
  }

  // Runs the node, whose descs begin at `first`, and some that follow it, in bands. False: it should run alone.
  bool add_bands(std::int32_t index, std::size_t first) {
    const Bands& bands = *c_.devices[0]->bands();
    const OpDesc alone = part_desc(index, first);
    if (!bands.joins({&alone, 1})) return false;
    std::vector<OpDesc>& parts = plan_->parts.emplace_back();
    parts.push_back(alone);
    PlanStep step;
    step.node = index;
    step.kernel = &bands.kernel;
    std::int32_t last = index;
    do {
      last = c_.nodes[last].next;
      const Node& node = graph_.nodes[last];
      const std::size_t at = plan_->descs.size() - 1;
      for (std::size_t k = 1; k < node.inputs.size(); ++k) {
        plan_->descs.push_back(node.inputs[k] == kNoValue ? TensorDesc{} : s_.descs[node.inputs[k]]);
      }
      if (c_.nodes[last].residual.node >= 0) plan_->descs.emplace_back();
      plan_->descs.push_back({graph_.values[node.outputs[0]].dtype, {}});
      parts.push_back(part_desc(last, at));  // from the output of the one before on, which is its input 0
      try {
        infer(node, {plan_->descs.data() + at, plan_->descs.size() - at});
      } catch (Error& e) {
        if (e.node[0] == '\0') e.with_node(node.name.c_str());
        throw;
      }
      s_.descs[node.outputs[0]] = plan_->descs.back();
      absorb(last, &step);
    } while (c_.nodes[last].next >= 0 && parts.size() < kMostParts && bands.joins(parts));
    take_residual(index, last, &parts.back(), &step);
    add_band_step(&step, parts);
    return true;
  }

  // The sum that follows the last part, if what is added is there when the first one runs.
  void take_residual(std::int32_t first, std::int32_t last, OpDesc* part, PlanStep* step) {
    const FollowingSum& sum = c_.nodes[last].residual;
    if (sum.node < 0 || sum.maker >= first || s_.descs[sum.operand].shape != part->outputs[0].shape) return;
    part->residual = static_cast<int>(part->inputs.size()) - 1;
    part->tail = &graph_.nodes[sum.node];
    part->byte_sum = sum.byte_sum();
    const_cast<TensorDesc&>(part->inputs.back()) = s_.descs[sum.operand];  // the plan's own
    s_.descs[part->tail->outputs[0]] = part->outputs[0];
    absorb(sum.node, step);
  }

  void add_band_step(PlanStep* step, std::span<OpDesc> parts) {
    OpDesc& d = step->desc;
    d.node = parts.front().node;
    d.tail = parts.back().tail != nullptr ? parts.back().tail : parts.back().node;
    d.inputs = {parts.front().inputs.data(), parts.back().outputs.data()};
    d.outputs = parts.back().outputs;
    d.parts = parts;
    d.strict = parts.front().strict;  // all are, or none
    d.threads = threads_of(0);
    std::vector<Layout>& layouts = plan_->layouts.emplace_back();
    std::vector<Buffer>& packed = plan_->packed.emplace_back();
    std::vector<std::int32_t>& in = input_roots_;
    in.clear();
    for (const OpDesc& part : parts) {
      const CompiledNode& n = c_.nodes[static_cast<std::size_t>(part.node - graph_.nodes.data())];
      layouts.insert(layouts.end(), n.layouts.begin(), n.layouts.begin() + static_cast<std::ptrdiff_t>(part.inputs.size()));
      packed.insert(packed.end(), n.packed.begin(), n.packed.end());
      packed.resize(layouts.size());
      for (std::size_t k = 0; k < part.inputs.size(); ++k) {
        const bool is_between = k == 0 && &part != &parts.front();
        const bool is_sum = k >= part.node->inputs.size();
        const bool by_copy = !is_sum && n.packed[k].memory != nullptr;
        std::int32_t r = -1;
        if (is_sum && part.residual >= 0) r = need(n.residual.operand, 0, part.output_layout(), (n.pitched & kPitchedResidual) != 0);
        if (!is_sum && !is_between && !by_copy) r = input_root(*part.node, k, 0, part.input_layout(static_cast<int>(k)), n.pitched);
        in.push_back(r);
      }
    }
    layouts.push_back(parts.back().output_layout());
    d.layouts = layouts.data();
    step->packed = packed;
    set_places(step, kPitchedOutputs, in);
    for (OpDesc& part : parts) part.pitches = d.pitches == nullptr ? nullptr : d.pitches + (part.inputs.data() - d.inputs.data());
    step->kernel->plan(d, &step->plan);
    add_step(step, in);
  }

  void add_kernel(std::int32_t index, std::size_t first_desc, std::size_t inputs) {
    const Node& node = graph_.nodes[index];
    const CompiledNode& n = c_.nodes[index];
    const std::span<const TensorDesc> all(plan_->descs.data() + first_desc, inputs + node.outputs.size());
    if (n.pitched != 0 && (join(node) || cut(node))) {
      plan_->joined.push_back(index);
      return plan_->descs.resize(first_desc);
    }
    PlanStep step;
    step.node = index;
    step.slot = n.slot;
    step.kernel = n.kernel;
    step.desc = {&node, all.first(inputs), all.subspan(inputs), n.constants};
    step.desc.threads = threads_of(n.slot);
    step.desc.precision = n.precision;
    step.desc.strict = n.strict;
    if (n.has_planned_input) {
      std::vector<WeightPtr>& constants = plan_->constants.emplace_back(n.constants);
      // Only of inputs that are read by value: a kernel takes any other constant for one that it has packed.
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        const bool by_value = k < 32 && (node.op->value_inputs >> k & 1) != 0;
        if (by_value && node.inputs[k] != kNoValue && plan_->known[node.inputs[k]] != nullptr) constants[k] = plan_->known[node.inputs[k]];
      }
      step.desc.constants = constants;
    }
    if (!n.layouts.empty()) step.desc.layouts = n.layouts.data();
    step.packed = n.packed;
    if (n.choose_late) choose_late(&step);
    const bool computes = choose_for_empty(&step);
    std::vector<std::int32_t>& in = input_roots_;
    in.assign(inputs, -1);
    if (computes && step.kernel == n.kernel) take_sums(n, &step);
    const std::uint8_t pitched = step.desc.layouts == n.layouts.data() ? n.pitched : 0;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const bool by_copy = k < step.packed.size() && step.packed[k].memory != nullptr && host(step.slot);
      if (!by_copy) in[k] = input_root(node, k, step.slot, step.desc.input_layout(static_cast<int>(k)), pitched);
    }
    if (step.desc.bias >= 0) in[static_cast<std::size_t>(step.desc.bias)] = need(n.bias.operand, step.slot);
    if (step.desc.residual >= 0) {
      in[static_cast<std::size_t>(step.desc.residual)] = need(n.residual.operand, step.slot, step.desc.output_layout(), (pitched & kPitchedResidual) != 0);
    }
    set_places(&step, pitched, in);
    step.desc.narrow = narrow_of(step, in, placed_[0] >= 0);
    if (computes) step.kernel->plan(step.desc, &step.plan);
    add_step(&step, in);
  }

  // Adds a step of a kernel, with the roots of its inputs, unless there is nothing to write.
  void add_step(PlanStep* step, const std::vector<std::int32_t>& in) {
    for (const std::int32_t r : in) {
      if (r >= 0 && host(step->slot)) step->wait_slots |= s_.roots[r].pending_slots;
    }
    step->buffers = static_cast<std::uint32_t>(plan_->buffers.size());
    for (const std::int32_t r : in) add_buffer(r);
    bool any_output = false;
    for (std::size_t k = 0; k < step->desc.outputs.size(); ++k) {
      const std::int32_t r = output_root(*step, k, in);
      any_output |= r >= 0 && s_.roots[r].bytes > 0;
      if (k == 0 && r >= 0) s_.roots[r].narrow = step->desc.writes_narrow();
      add_buffer(r);
    }
    add_buffer(scratch_root(step->slot, step->plan));
    if (any_output) {
      s_.step_of[static_cast<std::size_t>(step->node)] = now();
      plan_->steps.push_back(*step);
    } else {
      plan_->buffers.resize(step->buffers);
      s_.buffer_roots.resize(step->buffers);
    }
  }

  // A kernel for a node whose ranks were not known when the session was made: of its device, or where a rule only prefers that, of
  // the CPU.
  void choose_late(PlanStep* step) {
    const NodePlacement& placed = c_.placement.nodes[step->node];
    const std::span<const OpDesc> desc(&step->desc, 1);
    Claim claim = c_.devices[step->slot]->claim(desc);
    if (claim.segments.empty() && placed.may_move) {
      step->slot = 0;
      claim = c_.devices[0]->claim(desc);
    }
    Device& device = *c_.devices[step->slot];
    if (claim.segments.empty()) {
      throw make_error(EVN_ERROR_UNSUPPORTED, "cannot run %s: %s", step->desc.node->op_type.c_str(), claim.refusals[0].c_str())
          .with_device(device.name().c_str());
    }
    step->kernel = claim.segments[0].kernel;
    if (step->kernel->layouts != nullptr) {
      const std::size_t inputs = step->desc.inputs.size();
      std::vector<Layout>& layouts = plan_->layouts.emplace_back(inputs + step->desc.outputs.size(), Layout::kPlain);
      const std::span<Layout> all(layouts);
      step->kernel->layouts(step->desc, all.first(inputs), all.subspan(inputs));
      step->desc.layouts = layouts.data();
    }
    std::vector<Buffer>& packed = plan_->packed.emplace_back(step->desc.inputs.size());
    for (std::size_t k = 0; k < packed.size(); ++k) {
      packed[k] = c_.model->store.packed(device, *step->kernel, step->desc, static_cast<int>(k), nullptr);
    }
    step->packed = packed;
  }

  // Kernels need not cope with inputs that have no elements; the reference does. Inputs that are read by value are lists, which
  // may be empty. False: there is nothing to compute.
  bool choose_for_empty(PlanStep* step) {
    const auto empty = [](const TensorDesc& d) { return d.dtype != DType::kUndefined && d.shape.elements() == 0; };
    bool some_empty = false;
    for (std::size_t k = 0; k < step->desc.inputs.size(); ++k) {
      const bool by_value = k < 32 && (step->desc.node->op->value_inputs >> k & 1) != 0;
      some_empty |= !by_value && empty(step->desc.inputs[k]);
    }
    const bool none_out = std::all_of(step->desc.outputs.begin(), step->desc.outputs.end(),
                                      [&](const TensorDesc& d) { return d.dtype == DType::kUndefined || empty(d); });
    if (none_out) return false;
    if (!some_empty || step->kernel->takes_empty) return true;
    const Device& device = *c_.devices[step->slot];
    step->kernel = device.reference_kernel(step->desc);
    step->desc.layouts = nullptr;
    step->packed = {};
    if (step->kernel == nullptr) {
      throw make_error(EVN_ERROR_UNSUPPORTED, "an input has no elements, which this device does not run").with_device(device.name().c_str());
    }
    return true;
  }

  std::int32_t scratch_root(int slot, const KernelPlan& p) {
    const std::size_t bytes = scratch_bytes(slot, p);
    if (bytes == 0) return -1;
    PlanRoot r;
    r.source = Source::kArena;
    r.slot = static_cast<std::uint8_t>(slot);
    r.part = plan_->part;
    r.bytes = bytes;
    r.first = r.last = now();
    return add_root(r);
  }

  // The host for what is known when the run is planned.
  std::uint8_t slot_that_made(ValueId v) {
    if (s_.values[v] != nullptr) return 0;
    for (std::size_t s = 0; s < c_.devices.size(); ++s) {
      if (const std::int32_t r = root(v, static_cast<int>(s)); r >= 0) return s_.roots[r].slot;
    }
    return 0;  // channels last
  }

  std::int32_t add_output_root(std::size_t j, int slot) {
    PlanRoot r;
    r.source = Source::kOutput;
    r.slot = static_cast<std::uint8_t>(slot);
    r.index = static_cast<std::int32_t>(j);
    r.bytes = s_.descs[graph_.outputs[j]].size_bytes();
    r.last_user = INT32_MAX;
    return add_root(r);
  }

  void add_outputs() {
    for (std::size_t j = 0; j < graph_.outputs.size(); ++j) {
      const ValueId v = graph_.outputs[j];
      const int slot = plan_->signature.output_slots[j];
      plan_->outputs[j] = s_.descs[v];
      if (s_.descs[v].wraps) continue;
      const std::int32_t last = slot == 0 && root(v, 0) < 0 ? root(v, 0, Layout::kChannelsLast) : -1;
      if (last >= 0 && s_.roots[last].source == Source::kOutput) continue;  // raw
      if (last >= 0 && !same_in_all_layouts(s_.descs[v].shape)) {
        add_relayout(v, last, add_output_root(j, slot), Layout::kPlain);
        continue;
      }
      const std::int32_t made = last >= 0 ? need(v, 0) : root(v, slot);
      if (made >= 0 && s_.roots[made].source == Source::kOutput && s_.roots[made].index == static_cast<std::int32_t>(j)) continue;
      std::int32_t from = made >= 0 || s_.values[v] != nullptr ? need(v, slot) : -1;
      for (std::size_t s = 0; s < c_.devices.size() && from < 0; ++s) from = root(v, static_cast<int>(s));
      EVN_CHECK(from >= 0);
      const auto index = static_cast<std::int32_t>(j);
      const auto output_slot = static_cast<std::uint8_t>(slot);
      if (made < 0 && graph_.values[v].constant == nullptr) note_given_copy({true, index, output_slot, slot_that_made(v)}, s_.roots[from].bytes);
      if (!host(s_.roots[from].slot) && !host(slot) && s_.roots[from].slot != slot) from = need(v, 0);
      add_copy(v, from, add_output_root(j, slot));
    }
  }

  std::vector<std::int32_t> input_roots_;        // work space of one node
  std::vector<std::int32_t> placed_;             // the same, per output: the root that it is written into, or -1
  std::vector<std::int32_t> conditions_around_;  // the same
};

}  // namespace

std::shared_ptr<Plan> make_plan(const CompiledGraph& graph, Signature signature) {
  return PlanBuilder(graph, std::move(signature)).run();
}

std::shared_ptr<Plan> continue_plan(const CompiledGraph& graph, std::shared_ptr<const Plan> before, std::span<const void* const> fetched,
                                    std::span<const TensorDesc> made) {
  return PlanBuilder(graph, std::move(before), fetched, made).run();
}

}  // namespace evn
