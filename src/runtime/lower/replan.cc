// Makes a plan over into one for other dims of the inputs: goes only over the nodes whose shapes, or known values, change. What was
// decided by more than sizes (who shares memory with whom, which sums run with their node, which copies and re-layouts there are)
// must come out as it did; else there is no plan, and make_plan makes one from the start. Kernels plan anew wherever a desc
// changed.
#include <algorithm>
#include <cstring>

#include "base/cancel.h"
#include "ops/merge.h"
#include "runtime/lower/plan_arenas.h"
#include "runtime/lower/plan_roots.h"
#include "runtime/lower/shape_walk.h"
#include "runtime/lower/step_former.h"

namespace evn {
namespace {

constexpr std::size_t kMostWithSlack = 64 << 10;

class Replanner {
 public:
  Replanner(const CompiledGraph& compiled, std::shared_ptr<Plan> old) : w_(compiled, std::move(old)) {
    w_.state = std::move(*w_.plan->state);
    changed_.assign(w_.graph.values.size(), false);
    dirty_.assign(words(w_.graph.nodes.size()), 0);
    dirty_steps_.assign(words(w_.plan->steps.size()), 0);
  }

  // Null: it cannot be done.
  std::shared_ptr<Plan> run(Signature signature) {
    if (!take_inputs(signature)) return nullptr;
    const bool same = for_each_bit(dirty_, [&](std::size_t node, std::size_t next) {  // readers come after what they read
      fetch_node(next);
      return update_shapes(static_cast<std::int32_t>(node));
    });
    if (!same) return nullptr;
    const bool formed = for_each_bit(dirty_steps_, [&](std::size_t step, std::size_t next) {
      fetch_step(next);
      return update_step(static_cast<std::int32_t>(step));
    });
    if (!formed) return nullptr;
    for (const std::int32_t i : w_.state.other_steps) {
      cancellation_point(kNodeWork);
      update_other(&w_.plan->steps[static_cast<std::size_t>(i)]);
    }
    for (std::size_t j = 0; j < w_.graph.outputs.size(); ++j) {
      if (!changed_[w_.graph.outputs[j]] || w_.is_skipped(j)) continue;
      const TensorDesc& now = w_.state.descs[w_.graph.outputs[j]];
      if (!w_.c.shared_outputs.empty() && (now.size_bytes() >= kLeastShared) != (w_.plan->outputs[j].size_bytes() >= kLeastShared))
        return nullptr;
      w_.plan->outputs[j] = now;
    }
    w_.plan->signature = std::make_shared<const Signature>(std::move(signature));
    arenas_changed_ ? arenas_.assign_offsets() : arenas_.set_buffers();
    return arenas_.finish();
  }

 private:
  using Bits = std::vector<std::uint64_t>;
  static constexpr std::size_t kNone = SIZE_MAX;

  PlanWork w_;
  ShapeWalk walk_{w_};
  StepFormer former_{w_};
  PlanRoots roots_{w_};
  PlanArenas arenas_{w_};

  std::vector<bool> changed_;         // per value: its desc
  Bits dirty_;                        // per node: an input changed
  Bits dirty_steps_;                  // per step: one of its nodes is dirty
  std::vector<WeightPtr> old_known_;  // work space of one node: what its outputs were
  bool arenas_changed_ = false;

  static std::size_t words(std::size_t bits) { return (bits + 63) / 64; }
  static void set_bit(Bits* bits, std::size_t i) { (*bits)[i / 64] |= std::uint64_t{1} << i % 64; }

  // Clears the bits that are set and calls visit(bit, next) for each, in order, also for those that it sets behind that one:
  // `next`: the one that comes then as far as it is known, or kNone. False where a call gives that.
  template <typename F>
  static bool for_each_bit(Bits& bits, F&& visit) {
    for (std::size_t word = 0; word < bits.size(); ++word) {
      while (bits[word] != 0) {
        cancellation_point(kNodeWork);
        const auto bit = static_cast<std::size_t>(__builtin_ctzll(bits[word]));
        bits[word] &= bits[word] - 1;
        const std::size_t next = bits[word] == 0 ? kNone : word * 64 + static_cast<std::size_t>(__builtin_ctzll(bits[word]));
        if (!visit(word * 64 + bit, next)) return false;
      }
    }
    return true;
  }

  bool take_inputs(const Signature& signature) {
    const Signature& old = *w_.plan->signature;
    if (signature.input_slots != old.input_slots || signature.output_slots != old.output_slots || signature.skipped != old.skipped)
      return false;
    if (signature.shares_inputs != old.shares_inputs || signature.shares_outputs != old.shares_outputs) return false;
    for (std::size_t i = 0; i < w_.graph.inputs.size(); ++i) {
      const ValueId v = w_.graph.inputs[i];
      const TensorDesc& now = signature.inputs[i];
      const bool key = is_key(w_.c, i, now);
      if (now.wraps || old.inputs[i].wraps || key != is_key(w_.c, i, old.inputs[i]) || !change(v, now)) return false;
      if (!w_.c.shared_inputs.empty() && (now.size_bytes() >= kLeastShared) != (old.inputs[i].size_bytes() >= kLeastShared))
        return false;
      if (!key || (signature.values[i] == old.values[i] && !changed_[v])) continue;
      w_.set_known(v, signature.values[i].data(), signature.values[i].size());
      changed_value(v);
    }
    return true;
  }

  void set_bytes(std::int32_t r, std::size_t bytes) {
    if (r < 0 || w_.state.roots[r].bytes == bytes) return;
    PlanRoot& root = w_.state.roots[r];
    root.bytes = bytes;
    if (const RootView& view = root.view; view.exists()) {
      if (view.is_strided())
        set_bytes(view.parent, bytes / static_cast<std::size_t>(view.channels) * static_cast<std::size_t>(view.pitch));
      return;
    }
    if (root.source != Source::kArena || bytes <= root.room) return;
    arenas_changed_ = true;
    if (bytes <= kMostWithSlack) root.slack = bytes / 4;  // what grows a little will do so again
  }

  // What is needed for them soon comes from memory: between two plans the weights of a whole model were read.
  void mark_readers(ValueId v) {
    for (std::uint32_t i = w_.c.reader_begin[v]; i < w_.c.reader_begin[static_cast<std::size_t>(v) + 1]; ++i) {
      const auto node = static_cast<std::size_t>(w_.c.readers[i]);
      if ((dirty_[node / 64] >> node % 64 & 1) != 0) continue;
      set_bit(&dirty_, node);
      fetch(&w_.graph.nodes[node], sizeof(Node));
      fetch(&w_.c.nodes[node], sizeof(CompiledNode));
    }
  }

  // Prefetches what the node that comes next points to.
  void fetch_node(std::size_t i) const {
    if (i == kNone) return;
    const Node& node = w_.graph.nodes[i];
    fetch(node.inputs.data(), node.inputs.size() * sizeof(ValueId));
    fetch(node.outputs.data(), node.outputs.size() * sizeof(ValueId));
    fetch(node.resolved.data(), node.resolved.size() * sizeof(AttributeValue));
  }

  void fetch_step(std::size_t i) const {
    if (i == kNone) return;
    const PlanStep& step = w_.plan->steps[i];
    fetch(&step, sizeof(PlanStep));
    fetch(w_.plan->descs.data() + step.first_desc, (step.desc.inputs.size() + step.desc.outputs.size()) * sizeof(TensorDesc));
    fetch(w_.state.buffer_roots.data() + step.buffers,
          (step.desc.inputs.size() + step.desc.outputs.size() + 1) * sizeof(std::int32_t));
  }

  static void fetch(const void* from, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i);
  }

  // Gives v another desc. False where that may change more than sizes.
  bool change(ValueId v, const TensorDesc& now) {
    const TensorDesc& old = w_.state.descs[v];
    if (now == old) return true;
    if (now.dtype != old.dtype || now.shape.rank() != old.shape.rank()) return false;
    if ((now.shape.elements() == 0) != (old.shape.elements() == 0)) return false;
    if (PlanWork::same_in_all_layouts(now.shape) != PlanWork::same_in_all_layouts(old.shape)) return false;
    if (now.shape.rank() > 1 && now.shape[1] != old.shape[1] && is_viewed(v)) return false;
    w_.state.descs[v] = now;
    changed_[v] = true;
    const std::size_t bytes = now.size_bytes();
    for (const std::int32_t r : w_.state.storage.roots(v)) set_bytes(r, bytes);
    mark_readers(v);
    return true;
  }

  // Whether channels of v are those of another value, or the other way round.
  bool is_viewed(ValueId v) {
    const std::int32_t r = w_.root(v, 0, Layout::kChannelsLast);
    return r >= 0 && w_.state.roots[r].is_viewed;
  }

  // Other bytes are known of v, elsewhere.
  void changed_value(ValueId v) {
    for (const std::int32_t r : w_.state.storage.plain_roots(v)) {
      if (r >= 0 && w_.state.roots[r].source == Source::kFixed)
        w_.state.roots[r].fixed.memory = const_cast<void*>(w_.state.values[v]);
    }
    mark_readers(v);
  }

  // Gives the node's outputs their descs, and their bytes where these are known.
  bool update_shapes(std::int32_t index) {
    const Node& node = w_.graph.nodes[index];
    const CompiledNode& n = w_.c.nodes[index];
    if (w_.is_dead(static_cast<std::size_t>(index))) return true;
    if (is_merge(node) || node.region >= 0 || n.choose_late) return false;
    const std::int32_t at = w_.state.step_of[static_cast<std::size_t>(index)];
    if (at >= 0) {
      set_bit(&dirty_steps_, static_cast<std::size_t>(at));
      fetch(&w_.plan->steps[static_cast<std::size_t>(at)], sizeof(PlanStep));
    }
    const std::span<const TensorDesc> outputs = walk_.infer(node);
    if (n.mode == NodeMode::kPlanned) return update_known(node, outputs);
    if (!change_outputs(node, outputs)) return false;
    if (n.mode == NodeMode::kView && lies_in_another(node.outputs[0])) mark_readers(node.outputs[0]);  // which may be elided
    return at >= 0 || n.mode != NodeMode::kKernel || update_elided(index);
  }

  // Returns true if v is a part of another value's memory.
  bool lies_in_another(ValueId v) const {
    const auto roots = w_.state.storage.plain_roots(v);
    return std::any_of(roots.begin(), roots.end(), [&](std::int32_t r) { return r >= 0 && w_.state.roots[r].view.exists(); });
  }

  bool update_elided(std::int32_t index) {
    const auto by_node = [](const ElidedNode& e, std::int32_t node) { return e.node < node; };
    const auto e = std::lower_bound(w_.plan->elided.begin(), w_.plan->elided.end(), index, by_node);
    if (e == w_.plan->elided.end() || e->node != index) return true;
    const auto did = [&](const ActivePass& p) { return (e->passes >> p.number & 1) != 0; };
    if (!std::find_if(w_.c.passes.begin(), w_.c.passes.end(), did)->pass->respecialize(w_, index)) return false;
    for (const ValueId v : w_.graph.nodes[index].outputs) {
      if (v != kNoValue) mark_readers(v);  // those that are elided too
    }
    return true;
  }

  bool change_outputs(const Node& node, std::span<const TensorDesc> outputs) {
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] != kNoValue && !change(node.outputs[k], outputs[k])) return false;
    }
    return true;
  }

  bool update_known(const Node& node, std::span<const TensorDesc> outputs) {
    old_known_.clear();
    for (const ValueId v : node.outputs) {
      if (v != kNoValue && w_.graph.values[v].dtype == DType::kString) return false;  // strings of every plan would pile up
      old_known_.push_back(v == kNoValue ? nullptr : w_.plan->known[v]);
    }
    if (!change_outputs(node, outputs)) return false;
    walk_.evaluate(node);
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId v = node.outputs[k];
      if (v == kNoValue) continue;
      const Weight& old = *old_known_[k];
      if (!changed_[v] && std::memcmp(old.data.get(), w_.state.values[v], w_.state.descs[v].size_bytes()) == 0) {
        w_.plan->known[v] = std::move(old_known_[k]);  // who has its address may keep it
        w_.state.values[v] = w_.plan->known[v]->data.get();
      } else {
        changed_value(v);
      }
    }
    return true;
  }

  // Forms the step anew. It must have the nodes and the kernel that it had.
  bool update_step(std::int32_t at) {
    PlanStep& step = w_.plan->steps[static_cast<std::size_t>(at)];
    former_.form(step.node);
    StepDraft& d = former_.draft();
    if (!is_as_before(step, d)) return false;
    std::copy(d.descs.begin(), d.descs.end(), w_.plan->descs.begin() + step.first_desc);
    step.trial = d.trial;
    if (step.constants >= 0)
      std::move(d.constants.begin(), d.constants.end(), w_.plan->constants[static_cast<std::size_t>(step.constants)].begin());
    step.plan = KernelPlan{};
    step.kernel->plan(step.desc, &step.plan);
    return shares_as_before(step) && update_scratch(step, at);
  }

  static bool is_as_before(const PlanStep& step, const StepDraft& d) {
    return d.computes && d.kernel == step.kernel && d.slot == step.slot && d.desc.fusion.bias == step.desc.fusion.bias &&
           d.desc.fusion.residual == step.desc.fusion.residual && d.nodes.size() == step.desc.nodes.size() &&
           std::equal(d.absorbed.begin(), d.absorbed.end(), step.absorbed.begin(), step.absorbed.end());
  }

  // Where an output was written over an input, the kernel must still allow it, and the sizes.
  bool shares_as_before(const PlanStep& step) const {
    const std::size_t outputs = step.kernel->written_over != nullptr ? step.desc.outputs.size() : 1;
    for (std::size_t k = 0; k < outputs; ++k) {
      if (!shares_as_before(step, k)) return false;
    }
    return true;
  }

  bool shares_as_before(const PlanStep& step, std::size_t k) const {
    const std::int32_t* const in = w_.state.buffer_roots.data() + step.buffers;
    const std::int32_t out = in[step.desc.inputs.size() + k];
    if (out < 0 || w_.state.roots[out].source != Source::kArena) return true;
    const InPlace in_place = step.kernel->in_place(step.desc, step.plan, k);
    bool shared = false;
    for (std::size_t i = 0; i < step.desc.inputs.size(); ++i) {
      if (in[i] != out) continue;
      if (in_place.allows(i) && w_.state.roots[out].bytes == step.desc.outputs[k].size_bytes()) return true;
      shared = true;
    }
    return !shared;
  }

  bool update_scratch(const PlanStep& step, std::int32_t at) {
    const std::size_t bytes = w_.scratch_bytes(step.slot, step.plan);
    std::int32_t& r = w_.state.buffer_roots[step.buffers + step.desc.inputs.size() + step.desc.outputs.size()];
    if (r >= 0) return set_bytes(r, bytes), true;
    if (bytes == 0) return true;
    r = roots_.add_scratch_root(step.slot, bytes, at);
    arenas_changed_ = true;
    return true;
  }

  // Rows of an input that a state holds: as many as it has now.
  void update_paged(PlanStep* step) {
    const PlanRoot& paged = w_.state.roots[w_.state.buffer_roots[step->buffers + 1]];
    const auto rows = [&](ValueId v) { return w_.state.descs[v].shape[paged.paged_axis]; };
    const std::int64_t past = rows(w_.graph.inputs[static_cast<std::size_t>(paged.index)]);
    const DType dtype = w_.state.descs[step->value].dtype;
    if (step->kind == PlanStep::Kind::kGather) step->plan.state<PagedRows>() = {0, rows(step->value), dtype};
    if (step->kind == PlanStep::Kind::kAppend) step->plan.state<PagedRows>() = {past, rows(step->value), dtype};
    if (step->kind == PlanStep::Kind::kExtend) step->plan.state<PagedRows>() = {past, rows(step->value) - past, dtype};
  }

  void update_other(PlanStep* step) {
    if (step->kind >= PlanStep::Kind::kAppend) update_paged(step);
    if (!changed_[step->value]) return;
    const std::size_t bytes = w_.state.descs[step->value].size_bytes();
    for (std::uint32_t b = step->buffers; b < step->buffers + 2; ++b) set_bytes(w_.state.buffer_roots[b], bytes);
    if (step->kind != PlanStep::Kind::kRelayout) return;
    w_.plan->relayouts[static_cast<std::size_t>(step->first_desc)] = w_.state.descs[step->value];
    step->plan = KernelPlan{};
    step->kernel->plan(step->desc, &step->plan);
  }
};

}  // namespace

std::shared_ptr<Plan> replan(const CompiledGraph& graph, std::shared_ptr<Plan> old, const Signature& signature) {
  if (old->state == nullptr || old->before != nullptr || old->has_continuation()) return nullptr;
  if (graph.arena_limit != 0) return nullptr;  // what runs again is a matter of sizes
  const HeapReclaim allowed(true);
  try {
    return Replanner(graph, std::move(old)).run(signature);
  } catch (const Error&) {
    return nullptr;  // make_plan says it, as it always does
  }
}

}  // namespace evn
