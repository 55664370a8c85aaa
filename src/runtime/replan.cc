// Makes a plan over into one for other dims of the inputs: goes only over the nodes whose shapes, or known values, change. What was
// decided by more than sizes (who shares memory with whom, which sums run with their node, which copies and re-layouts there are) must
// come out as it did; else there is no plan, and make_plan makes one from the start. Kernels plan anew wherever a desc changed.
#include <algorithm>
#include <cstring>

#include "ops/merge.h"
#include "runtime/plan_work.h"

namespace evn {
namespace {

constexpr std::size_t kMostWithSlack = 64 << 10;

class Replanner : PlanWork {
 public:
  Replanner(const CompiledGraph& compiled, std::shared_ptr<Plan> old) : PlanWork(compiled, std::move(old)) {
    s_ = std::move(*plan_->state);
    changed_.assign(graph_.values.size(), false);
    dirty_.assign((graph_.nodes.size() + 63) / 64, 0);
  }

  // Null: it cannot be done.
  std::shared_ptr<Plan> run(Signature signature) {
    if (!take_inputs(signature)) return nullptr;
    for (std::size_t word = 0; word < dirty_.size(); ++word) {
      while (dirty_[word] != 0) {  // readers come after what they read
        const auto bit = static_cast<std::size_t>(__builtin_ctzll(dirty_[word]));
        dirty_[word] &= dirty_[word] - 1;
        fetch_behind(word, dirty_[word] & (dirty_[word] - 1));
        if (!update(static_cast<std::int32_t>(word * 64 + bit))) return nullptr;
      }
    }
    for (const std::int32_t i : s_.other_steps) update_other(&plan_->steps[static_cast<std::size_t>(i)]);
    for (std::size_t j = 0; j < graph_.outputs.size(); ++j) {
      if (changed_[graph_.outputs[j]]) plan_->outputs[j] = s_.descs[graph_.outputs[j]];
    }
    plan_->signature = std::move(signature);
    arenas_changed_ ? place_arenas() : set_buffers();
    return finish();
  }

 private:
  std::vector<bool> changed_;           // per value: its desc
  std::vector<std::uint64_t> dirty_;    // per node, a bit: an input changed
  std::vector<TensorDesc> descs_;       // work space of one node without a step
  std::vector<WeightPtr> old_known_;    // the same: what its outputs were
  bool arenas_changed_ = false;

  bool take_inputs(const Signature& signature) {
    const Signature& old = plan_->signature;
    if (signature.input_slots != old.input_slots || signature.output_slots != old.output_slots) return false;
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const ValueId v = graph_.inputs[i];
      const TensorDesc& now = signature.inputs[i];
      const bool key = is_key(c_, i, now);
      if (now.wraps || old.inputs[i].wraps || key != is_key(c_, i, old.inputs[i]) || !change(v, now)) return false;
      if (!key || (signature.values[i] == old.values[i] && !changed_[v])) continue;
      set_known(v, signature.values[i].data(), signature.values[i].size());
      changed_value(v);
    }
    return true;
  }

  void set_bytes(std::int32_t r, std::size_t bytes) {
    if (r < 0 || s_.roots[r].bytes == bytes) return;
    PlanRoot& root = s_.roots[r];
    root.bytes = bytes;
    if (root.whole >= 0) return set_bytes(root.whole, bytes / static_cast<std::size_t>(root.channels) * static_cast<std::size_t>(root.pitch));
    if (root.source != Source::kArena || bytes <= root.room) return;
    arenas_changed_ = true;
    if (bytes <= kMostWithSlack) root.slack = bytes / 4;  // what grows a little will do so again
  }

  // What is needed for them soon comes from memory: between two plans the weights of a whole model were read.
  void mark_readers(ValueId v) {
    for (std::uint32_t i = c_.reader_begin[v]; i < c_.reader_begin[static_cast<std::size_t>(v) + 1]; ++i) {
      const auto node = static_cast<std::size_t>(c_.readers[i]);
      const std::uint64_t bit = std::uint64_t{1} << node % 64;
      if ((dirty_[node / 64] & bit) != 0) continue;
      dirty_[node / 64] |= bit;
      fetch(&graph_.nodes[node], sizeof(Node));
      fetch(&c_.nodes[node], sizeof(CompiledNode));
      if (const std::int32_t at = s_.step_of[node]; at >= 0) fetch(&plan_->steps[static_cast<std::size_t>(at)], sizeof(PlanStep));
    }
  }

  // The same of what a node that comes soon, the first of these bits, points to.
  void fetch_behind(std::size_t word, std::uint64_t bits) const {
    if (bits == 0) return;
    const std::size_t i = word * 64 + static_cast<std::size_t>(__builtin_ctzll(bits));
    const Node& node = graph_.nodes[i];
    fetch(node.inputs.data(), node.inputs.size() * sizeof(ValueId));
    fetch(node.outputs.data(), node.outputs.size() * sizeof(ValueId));
    fetch(node.resolved.data(), node.resolved.size() * sizeof(AttributeValue));
    if (s_.step_of[i] < 0) return;
    const PlanStep& step = plan_->steps[static_cast<std::size_t>(s_.step_of[i])];
    fetch(step.desc.inputs.data(), (step.desc.inputs.size() + step.desc.outputs.size()) * sizeof(TensorDesc));
    fetch(s_.buffer_roots.data() + step.buffers, (step.desc.inputs.size() + step.desc.outputs.size() + 1) * sizeof(std::int32_t));
  }

  static void fetch(const void* from, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i);
  }

  // Gives v another desc. False where that may change more than sizes.
  bool change(ValueId v, const TensorDesc& now) {
    const TensorDesc& old = s_.descs[v];
    if (now == old) return true;
    if (now.dtype != old.dtype || now.shape.rank() != old.shape.rank()) return false;
    if ((now.shape.elements() == 0) != (old.shape.elements() == 0)) return false;
    if (same_in_all_layouts(now.shape) != same_in_all_layouts(old.shape)) return false;
    if (now.shape.rank() > 1 && now.shape[1] != old.shape[1] && is_joined(v)) return false;
    s_.descs[v] = now;
    changed_[v] = true;
    const std::size_t bytes = now.size_bytes();
    for (std::size_t slot = 0; slot < roots_of_value(); ++slot) set_bytes(root(v, static_cast<int>(slot)), bytes);
    mark_readers(v);
    return true;
  }

  // Whether channels of v are those of another value, or the other way round.
  bool is_joined(ValueId v) {
    const std::int32_t r = root(v, 0, Layout::kChannelsLast);
    return r >= 0 && s_.roots[r].joined;
  }

  // Other bytes are known of v, elsewhere.
  void changed_value(ValueId v) {
    for (std::size_t slot = 0; slot < c_.devices.size(); ++slot) {
      const std::int32_t r = root(v, static_cast<int>(slot));
      if (r >= 0 && s_.roots[r].source == Source::kFixed) s_.roots[r].fixed.memory = const_cast<void*>(s_.values[v]);
    }
    mark_readers(v);
  }

  bool update(std::int32_t index) {
    const Node& node = graph_.nodes[index];
    const CompiledNode& n = c_.nodes[index];
    if (s_.absorbed[static_cast<std::size_t>(index)]) return is_part_right(n);  // with the node before it
    if (is_merge(node) || node.region >= 0 || n.choose_late) return false;
    const std::int32_t at = s_.step_of[static_cast<std::size_t>(index)];
    if (at >= 0) return update_step(node, n, &plan_->steps[static_cast<std::size_t>(at)], at);
    descs_.clear();
    for (const ValueId v : node.inputs) descs_.push_back(v == kNoValue ? TensorDesc{} : s_.descs[v]);
    for (const ValueId v : node.outputs) descs_.push_back({v == kNoValue ? DType::kUndefined : graph_.values[v].dtype, {}});
    infer(node, descs_);
    return n.mode == NodeMode::kPlanned ? update_known(node) : change_outputs(node, std::span<const TensorDesc>(descs_).subspan(node.inputs.size()));
  }

  // A node that was computed with one before it is met when that is done, or when only the operand of its sum changed.
  bool is_part_right(const CompiledNode& n) const {
    if (n.residual.node < 0 || !s_.absorbed[static_cast<std::size_t>(n.residual.node)]) return true;
    return s_.descs[n.residual.operand] == s_.descs[graph_.nodes[n.residual.node].outputs[0]];
  }

  // A step in bands: it must have the parts that it had.
  bool update_bands(PlanStep* step, std::int32_t at) {
    const Bands& bands = *c_.devices[0]->bands();
    const std::span<const OpDesc> parts = step->desc.parts;
    std::int32_t index = step->node;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const OpDesc& part = parts[p];
      const CompiledNode& n = c_.nodes[index];
      if (p == 0) const_cast<TensorDesc&>(part.inputs[0]) = s_.descs[part.node->inputs[0]];  // the plan's own, as those below
      infer_step(*part.node, part);
      if (part.residual >= 0) {
        const_cast<TensorDesc&>(part.inputs.back()) = s_.descs[n.residual.operand];
        if (part.inputs.back() != part.outputs[0] || !change(part.tail->outputs[0], part.outputs[0])) return false;
      }
      if (!change(part.node->outputs[0], part.outputs[0])) return false;
      const bool goes_on = n.next >= 0 && p + 1 < kMostParts && bands.joins(parts.first(p + 1));
      if (goes_on != (p + 1 < parts.size())) return false;
      index = n.next;
    }
    step->plan = KernelPlan{};
    step->kernel->plan(step->desc, &step->plan);
    return update_scratch(*step, at);
  }

  bool change_outputs(const Node& node, std::span<const TensorDesc> outputs) {
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] != kNoValue && !change(node.outputs[k], outputs[k])) return false;
    }
    return true;
  }

  bool update_known(const Node& node) {
    old_known_.clear();
    for (const ValueId v : node.outputs) {
      if (v != kNoValue && graph_.values[v].dtype == DType::kString) return false;  // strings of every plan would pile up
      old_known_.push_back(v == kNoValue ? nullptr : plan_->known[v]);
    }
    if (!change_outputs(node, std::span<const TensorDesc>(descs_).subspan(node.inputs.size()))) return false;
    evaluate(node);
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId v = node.outputs[k];
      if (v == kNoValue) continue;
      const Weight& old = *old_known_[k];
      if (!changed_[v] && std::memcmp(old.data.get(), s_.values[v], s_.descs[v].size_bytes()) == 0) {
        plan_->known[v] = std::move(old_known_[k]);  // who has its address may keep it
        s_.values[v] = plan_->known[v]->data.get();
      } else {
        changed_value(v);
      }
    }
    return true;
  }

  bool update_step(const Node& node, const CompiledNode& n, PlanStep* step, std::int32_t at) {
    OpDesc& d = step->desc;
    if (!d.parts.empty()) return update_bands(step, at);
    auto* const descs = const_cast<TensorDesc*>(d.inputs.data());  // the plan's own
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      if (node.inputs[k] != kNoValue) descs[k] = s_.descs[node.inputs[k]];
    }
    infer_step(node, d);
    if (!same_sums(n, *step, descs)) return false;
    if (n.next >= 0 && c_.devices[0]->bands()->joins({&d, 1})) return false;  // it would run in bands
    if (n.has_planned_input) update_constants(node, d);
    step->plan = KernelPlan{};
    step->kernel->plan(d, &step->plan);
    const std::int32_t* const in = s_.buffer_roots.data() + step->buffers;
    const std::int32_t* const out = in + d.inputs.size();
    if (!shares_as_before(*step, in, out[0])) return false;
    if (!update_scratch(*step, at)) return false;
    for (const std::int32_t with : step->absorbed) {
      if (!change(graph_.nodes[with].outputs[0], d.outputs[0])) return false;
    }
    return change_outputs(node, d.outputs);
  }

  // Between the descs of a node's own inputs and its outputs there may be those of sums' operands.
  void infer_step(const Node& node, const OpDesc& d) {
    if (d.inputs.size() == node.inputs.size()) {
      return infer(node, {const_cast<TensorDesc*>(d.inputs.data()), d.inputs.size() + d.outputs.size()});
    }
    descs_.assign(d.inputs.begin(), d.inputs.begin() + static_cast<std::ptrdiff_t>(node.inputs.size()));
    descs_.insert(descs_.end(), d.outputs.begin(), d.outputs.end());
    infer(node, descs_);
    std::copy(descs_.end() - static_cast<std::ptrdiff_t>(d.outputs.size()), descs_.end(), const_cast<TensorDesc*>(d.outputs.data()));
  }

  // Whether the sums that the step took, and no others, still go with it.
  bool same_sums(const CompiledNode& n, const PlanStep& step, TensorDesc* descs) const {
    if (n.residual.node < 0 || step.kernel != n.kernel) return true;
    const TensorDesc& operand = s_.descs[n.residual.operand];
    const bool taken = step.desc.residual >= 0;
    if ((operand.shape == step.desc.outputs[0].shape) != taken) return false;
    if (taken) descs[step.desc.residual] = operand;
    return true;
  }

  void update_constants(const Node& node, const OpDesc& d) {
    auto* const constants = const_cast<WeightPtr*>(d.constants.data());  // the plan's own
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const bool by_value = k < 32 && (node.op->value_inputs >> k & 1) != 0;
      if (by_value && node.inputs[k] != kNoValue && plan_->known[node.inputs[k]] != nullptr) constants[k] = plan_->known[node.inputs[k]];
    }
  }

  // Where output 0 was written over an input, the kernel must still allow it, and the sizes.
  bool shares_as_before(const PlanStep& step, const std::int32_t* in, std::int32_t out) const {
    if (out < 0 || s_.roots[out].source != Source::kArena) return true;
    bool shared = false;
    for (std::size_t i = 0; i < step.desc.inputs.size(); ++i) {
      if (in[i] != out) continue;
      if (i < 32 && (step.plan.in_place >> i & 1) != 0 && s_.roots[out].bytes == step.desc.outputs[0].size_bytes()) return true;
      shared = true;
    }
    return !shared;
  }

  bool update_scratch(const PlanStep& step, std::int32_t at) {
    const std::size_t bytes = scratch_bytes(step.slot, step.plan);
    std::int32_t& r = s_.buffer_roots[step.buffers + step.desc.inputs.size() + step.desc.outputs.size()];
    if (r >= 0) return set_bytes(r, bytes), true;
    if (bytes == 0) return true;
    PlanRoot scratch;
    scratch.source = Source::kArena;
    scratch.slot = step.slot;
    scratch.part = plan_->part;
    scratch.bytes = bytes;
    scratch.first = scratch.last = at;
    r = static_cast<std::int32_t>(s_.roots.size());
    s_.roots.push_back(scratch);
    arenas_changed_ = true;
    return true;
  }

  void update_other(PlanStep* step) {
    if (!changed_[step->value]) return;
    const std::size_t bytes = s_.descs[step->value].size_bytes();
    for (std::uint32_t b = step->buffers; b < step->buffers + 2; ++b) set_bytes(s_.buffer_roots[b], bytes);
    if (step->kind != PlanStep::Kind::kRelayout) return;
    *const_cast<TensorDesc*>(step->desc.inputs.data()) = s_.descs[step->value];  // the plan's own, and the output's as well
    step->plan = KernelPlan{};
    step->kernel->plan(step->desc, &step->plan);
  }
};

}  // namespace

std::shared_ptr<Plan> replan(const CompiledGraph& graph, std::shared_ptr<Plan> old, const Signature& signature) {
  if (old->state == nullptr || old->before != nullptr || old->goes_on()) return nullptr;
  try {
    return Replanner(graph, std::move(old)).run(signature);
  } catch (const Error&) {
    return nullptr;  // make_plan says it, as it always does
  }
}

}  // namespace evn
