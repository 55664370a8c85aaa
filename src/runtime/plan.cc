#include "runtime/plan.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "graph/infer.h"

namespace evn {
namespace {

// A piece of memory that one or several values share.
struct Root {
  Source source = Source::kNone;
  std::uint8_t slot = 0;
  std::int32_t index = -1;
  Buffer fixed;
  std::size_t bytes = 0;
  std::int32_t first = 0;              // steps
  std::int32_t last = 0;
  std::int32_t last_user = -1;         // last node that reads any of its values
  std::uint32_t pending_slots = 0;     // a download from these devices writes it
};

class PlanBuilder {
 public:
  PlanBuilder(const CompiledGraph& compiled, Signature signature)
      : c_(compiled), graph_(compiled.graph()), limits_(compiled.model->runtime->config().limits), plan_(std::make_unique<Plan>()) {
    plan_->signature = std::move(signature);
  }

  std::unique_ptr<Plan> run() {
    start();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      try {
        add_node(static_cast<std::int32_t>(i));
      } catch (Error& e) {
        if (e.node[0] == '\0') e.with_node(graph_.nodes[i].name.c_str());
        throw;
      }
    }
    add_outputs();
    place_arenas();
    return std::move(plan_);
  }

 private:
  const CompiledGraph& c_;
  const Graph& graph_;
  const Limits& limits_;
  std::unique_ptr<Plan> plan_;
  std::vector<TensorDesc> descs_;          // per value
  std::vector<ConstTensor> values_;        // per value: known bytes
  std::vector<std::int32_t> root_of_;      // per value and slot
  std::vector<std::int32_t> output_of_;    // per value: first output position that it is, or -1
  std::vector<Root> roots_;
  std::vector<std::int32_t> buffer_roots_; // per plan buffer: its root, or -1
  std::vector<ConstTensor> node_values_;   // work space of one node

  std::int32_t& root(ValueId v, int slot) { return root_of_[static_cast<std::size_t>(v) * c_.devices.size() + slot]; }

  void start() {
    const std::size_t n = graph_.values.size();
    descs_.resize(n);
    values_ = c_.constants;
    for (std::size_t v = 0; v < n; ++v) descs_[v] = values_[v].desc;
    root_of_.assign(checked_mul(n, c_.devices.size()), -1);
    output_of_.assign(n, -1);
    for (std::size_t j = graph_.outputs.size(); j-- > 0;) output_of_[graph_.outputs[j]] = static_cast<std::int32_t>(j);
    plan_->known.resize(n);
    plan_->descs.reserve(c_.arg_count);
    plan_->steps.reserve(graph_.nodes.size() + 2 * graph_.outputs.size());
    plan_->buffers.reserve(c_.arg_count + graph_.nodes.size());
    buffer_roots_.reserve(plan_->buffers.capacity());
    roots_.reserve(n);
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const ValueId v = graph_.inputs[i];
      descs_[v] = plan_->signature.inputs[i];
      const int slot = plan_->signature.input_slots[i];
      Root r;
      r.source = Source::kInput;
      r.slot = static_cast<std::uint8_t>(slot);
      r.index = static_cast<std::int32_t>(i);
      r.bytes = descs_[v].size_bytes();
      r.last_user = INT32_MAX;  // never written over
      root(v, slot) = add_root(r);
      if (const auto& bytes = plan_->signature.values[i]; c_.needed[v]) set_known(v, bytes.data(), bytes.size());
    }
  }

  std::int32_t add_root(const Root& r) {
    roots_.push_back(r);
    return static_cast<std::int32_t>(roots_.size() - 1);
  }

  void set_known(ValueId v, const void* bytes, std::size_t size) {
    void* to = nullptr;
    plan_->known[v] = make_weight(descs_[v], nullptr, &to);
    if (size > 0) std::memcpy(to, bytes, size);
    values_[v] = {descs_[v], to};
  }

  std::int32_t now() const { return static_cast<std::int32_t>(plan_->steps.size()); }

  std::int32_t add_arena_root(ValueId v, int slot, std::int32_t step) {
    Root r;
    r.source = Source::kArena;
    r.slot = static_cast<std::uint8_t>(slot);
    r.bytes = descs_[v].size_bytes();
    r.first = r.last = step;
    r.last_user = c_.last_user[v];
    return add_root(r);
  }

  std::uint32_t add_buffer(std::int32_t r) {
    plan_->buffers.emplace_back();
    buffer_roots_.push_back(r);
    if (r >= 0) roots_[r].last = std::max(roots_[r].last, now());
    return static_cast<std::uint32_t>(plan_->buffers.size() - 1);
  }

  void add_copy(ValueId v, std::int32_t from, std::int32_t to) {
    if (roots_[from].bytes == 0) return;
    PlanStep step;
    step.kind = PlanStep::Kind::kCopy;
    step.value = v;
    step.from_slot = roots_[from].slot;
    step.to_slot = roots_[to].slot;
    const bool from_host = host(step.from_slot);
    const bool to_host = host(step.to_slot);
    step.slot = from_host ? step.to_slot : step.from_slot;
    step.wait_slots = from_host ? roots_[from].pending_slots : 0;
    step.wait_after = from_host && !to_host && roots_[from].source == Source::kArena;
    if (to_host && !from_host) roots_[to].pending_slots |= 1u << step.from_slot;
    step.buffers = add_buffer(from);
    add_buffer(to);
    plan_->steps.push_back(step);
  }

  bool host(int slot) const { return c_.devices[slot]->traits().host_addressable; }

  // The root that holds v on a slot, copying it there first when it is elsewhere.
  std::int32_t need(ValueId v, int slot) {
    if (const std::int32_t r = root(v, slot); r >= 0) return r;
    if (values_[v].data != nullptr && (host(slot) || graph_.values[v].constant != nullptr)) {
      Root r;
      r.source = Source::kFixed;
      r.slot = static_cast<std::uint8_t>(slot);
      r.bytes = descs_[v].size_bytes();
      r.last_user = INT32_MAX;
      r.fixed = graph_.values[v].constant != nullptr
                    ? c_.model->store.plain(*c_.devices[slot], *graph_.values[v].constant)
                    : Buffer{const_cast<void*>(values_[v].data), 0, r.bytes};
      return root(v, slot) = add_root(r);
    }
    std::int32_t from = values_[v].data != nullptr ? need(v, 0) : -1;
    for (std::size_t s = 0; s < c_.devices.size() && from < 0; ++s) from = root(v, static_cast<int>(s));
    EVN_CHECK(from >= 0);
    if (!host(roots_[from].slot) && !host(slot)) from = need(v, 0);  // between two devices by way of the host
    const std::int32_t to = add_arena_root(v, slot, now());
    add_copy(v, from, to);
    return root(v, slot) = to;
  }

  // Infers the outputs' descs of a node.
  void infer(const Node& node, std::size_t first_desc) {
    const std::size_t inputs = node.inputs.size();
    node_values_.clear();
    for (const ValueId v : node.inputs) node_values_.push_back(v == kNoValue ? ConstTensor{} : values_[v]);
    const std::span<TensorDesc> all(plan_->descs.data() + first_desc, inputs + node.outputs.size());
    infer_node(node, all.first(inputs), node_values_, all.subspan(inputs));
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] == kNoValue) continue;
      const TensorDesc& d = all[inputs + k];
      if (!d.shape.is_known()) fail(EVN_ERROR_UNSUPPORTED, "the shape of output %zu of %s depends on data", k, node.op_type.c_str());
      if (const std::size_t bytes = d.size_bytes(); bytes > limits_.tensor_bytes) {
        throw make_error(EVN_ERROR_LIMIT, "output %zu of shape %s has %zu bytes, above the limit tensor_bytes", k,
                         d.shape.to_string().c_str(), bytes)
            .with_bytes(bytes, limits_.tensor_bytes);
      }
      descs_[node.outputs[k]] = d;
    }
  }

  void add_node(std::int32_t index) {
    const Node& node = graph_.nodes[index];
    const CompiledNode& n = c_.nodes[index];
    const std::size_t first_desc = plan_->descs.size();
    for (const ValueId v : node.inputs) plan_->descs.push_back(v == kNoValue ? TensorDesc{} : descs_[v]);
    for (const ValueId v : node.outputs) {
      plan_->descs.push_back({v == kNoValue ? DType::kUndefined : graph_.values[v].dtype, {}});
    }
    infer(node, first_desc);
    switch (n.mode) {
      case NodeMode::kPlanned: return evaluate(node);
      case NodeMode::kView: return add_view(index, n.slot);
      case NodeMode::kKernel: return add_kernel(index, first_desc);
    }
  }

  // Runs shape arithmetic now, with the reference kernel.
  void evaluate(const Node& node) {
    std::vector<MutableTensor> outputs(node.outputs.size());
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const bool by_shape = k == 0 && (node.op->flags & kOpShapeOnly) != 0;
      const ValueId v = node.inputs[k];
      if (v == kNoValue || values_[v].data != nullptr) continue;
      if (!by_shape) {
        fail(EVN_ERROR_UNSUPPORTED, "a shape depends on value \"%s\", which is known only while the model runs",
             graph_.values[v].name.c_str());
      }
      node_values_[k] = {descs_[v], nullptr};
    }
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId v = node.outputs[k];
      if (v == kNoValue) continue;
      set_known(v, nullptr, 0);
      outputs[k] = {descs_[v], const_cast<void*>(values_[v].data)};
    }
    run_reference({node, node_values_, outputs});
  }

  void add_view(std::int32_t index, int slot) {
    const Node& node = graph_.nodes[index];
    const ValueId out = node.outputs[0];
    const std::int32_t r = need(node.inputs[0], slot);
    root(out, slot) = r;
    if (roots_[r].last_user != INT32_MAX) roots_[r].last_user = std::max(roots_[r].last_user, c_.last_user[out]);
  }

  // The buffer of input k, or -1 where the kernel does not read one.
  std::int32_t input_root(const Node& node, std::size_t k, int slot) {
    const ValueId v = node.inputs[k];
    if (v == kNoValue || (k == 0 && (node.op->flags & kOpShapeOnly) != 0)) return -1;
    const bool by_value = k < 32 && (node.op->value_inputs >> k & 1) != 0;
    if (by_value && !host(slot)) return -1;  // kernels of other devices read it from OpDesc::constants
    return need(v, slot);
  }

  std::int32_t output_root(const Node& node, std::size_t k, int slot, std::int32_t index, const KernelPlan& kernel_plan,
                           const std::vector<std::int32_t>& inputs) {
    const ValueId v = node.outputs[k];
    if (v == kNoValue) return -1;
    if (const std::int32_t j = output_of_[v]; j >= 0 && plan_->signature.output_slots[j] == slot) {
      Root r;
      r.source = Source::kOutput;
      r.slot = static_cast<std::uint8_t>(slot);
      r.index = j;
      r.bytes = descs_[v].size_bytes();
      r.last_user = INT32_MAX;
      return root(v, slot) = add_root(r);
    }
    for (std::size_t i = 0; k == 0 && i < inputs.size() && i < 32; ++i) {
      if ((kernel_plan.in_place >> i & 1) == 0 || inputs[i] < 0) continue;
      Root& r = roots_[inputs[i]];
      if (r.source != Source::kArena || r.last_user != index || r.bytes != descs_[v].size_bytes()) continue;
      r.last_user = c_.last_user[v];
      r.last = std::max(r.last, now());
      r.pending_slots = 0;
      return root(v, slot) = inputs[i];
    }
    return root(v, slot) = add_arena_root(v, slot, now());
  }

  void add_kernel(std::int32_t index, std::size_t first_desc) {
    const Node& node = graph_.nodes[index];
    const CompiledNode& n = c_.nodes[index];
    const std::size_t inputs = node.inputs.size();
    const std::span<const TensorDesc> all(plan_->descs.data() + first_desc, inputs + node.outputs.size());

    std::vector<std::int32_t>& in = input_roots_;
    in.assign(inputs, -1);
    for (std::size_t k = 0; k < inputs; ++k) in[k] = input_root(node, k, n.slot);

    PlanStep step;
    step.node = index;
    step.slot = n.slot;
    step.kernel = n.kernel;
    step.desc = {&node, all.first(inputs), all.subspan(inputs), n.constants};
    if (n.has_planned_input) {
      std::vector<WeightPtr>& constants = plan_->constants.emplace_back(n.constants);
      for (std::size_t k = 0; k < inputs; ++k) {
        if (node.inputs[k] != kNoValue && plan_->known[node.inputs[k]] != nullptr) constants[k] = plan_->known[node.inputs[k]];
      }
      step.desc.constants = constants;
    }
    choose_for_empty(&step);
    step.kernel->plan(step.desc, &step.plan);
    for (const std::int32_t r : in) {
      if (r >= 0 && host(n.slot)) step.wait_slots |= roots_[r].pending_slots;
    }
    step.buffers = static_cast<std::uint32_t>(plan_->buffers.size());
    for (const std::int32_t r : in) add_buffer(r);
    bool any_output = false;
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      const std::int32_t r = output_root(node, k, n.slot, index, step.plan, in);
      any_output |= r >= 0 && roots_[r].bytes > 0;
      add_buffer(r);
    }
    add_buffer(scratch_root(n.slot, step.plan));
    if (any_output) {
      plan_->steps.push_back(step);
    } else {
      plan_->buffers.resize(step.buffers);  // nothing to write
      buffer_roots_.resize(step.buffers);
    }
  }

  // Kernels need not cope with inputs that have no elements; the reference does. Inputs that are read by value are lists, which
  // may be empty.
  void choose_for_empty(PlanStep* step) {
    const auto empty = [](const TensorDesc& d) { return d.dtype != DType::kUndefined && d.shape.elements() == 0; };
    bool some_empty = false;
    for (std::size_t k = 0; k < step->desc.inputs.size(); ++k) {
      const bool by_value = k < 32 && (step->desc.node->op->value_inputs >> k & 1) != 0;
      some_empty |= !by_value && empty(step->desc.inputs[k]);
    }
    const bool none_out = std::all_of(step->desc.outputs.begin(), step->desc.outputs.end(),
                                      [&](const TensorDesc& d) { return d.dtype == DType::kUndefined || empty(d); });
    if (!some_empty && !none_out) return;
    const Device& device = *c_.devices[step->slot];
    step->kernel = device.reference_kernel(step->desc);
    if (step->kernel == nullptr) {
      throw make_error(EVN_ERROR_UNSUPPORTED, "an input or output has no elements, which this device does not run")
          .with_device(device.name().c_str());
    }
  }

  std::int32_t scratch_root(int slot, const KernelPlan& p) {
    const std::size_t threads = host(slot) ? c_.devices[slot]->traits().compute_units : 0;
    const std::size_t bytes = checked_add(align_up(p.scratch_bytes, 64), checked_mul(threads, align_up(p.thread_scratch_bytes, 64)));
    if (bytes == 0) return -1;
    Root r;
    r.source = Source::kArena;
    r.slot = static_cast<std::uint8_t>(slot);
    r.bytes = bytes;
    r.first = r.last = now();
    return add_root(r);
  }

  void add_outputs() {
    for (std::size_t j = 0; j < graph_.outputs.size(); ++j) {
      const ValueId v = graph_.outputs[j];
      const int slot = plan_->signature.output_slots[j];
      plan_->outputs.push_back(descs_[v]);
      const std::int32_t made = root(v, slot);
      if (made >= 0 && roots_[made].source == Source::kOutput && roots_[made].index == static_cast<std::int32_t>(j)) continue;
      std::int32_t from = made >= 0 || values_[v].data != nullptr ? need(v, slot) : -1;
      for (std::size_t s = 0; s < c_.devices.size() && from < 0; ++s) from = root(v, static_cast<int>(s));
      EVN_CHECK(from >= 0);
      if (!host(roots_[from].slot) && !host(slot) && roots_[from].slot != slot) from = need(v, 0);
      Root r;
      r.source = Source::kOutput;
      r.slot = static_cast<std::uint8_t>(slot);
      r.index = static_cast<std::int32_t>(j);
      r.bytes = descs_[v].size_bytes();
      add_copy(v, from, add_root(r));
    }
  }

  void place_arenas() {
    plan_->arena_bytes.assign(c_.devices.size(), 0);
    std::vector<Lifetime> lifetimes;
    std::vector<std::int32_t> ids;
    for (std::size_t slot = 0; slot < c_.devices.size(); ++slot) {
      lifetimes.clear();
      ids.clear();
      for (std::size_t r = 0; r < roots_.size(); ++r) {
        if (roots_[r].source != Source::kArena || roots_[r].slot != slot || roots_[r].bytes == 0) continue;
        lifetimes.push_back({roots_[r].bytes, roots_[r].first, roots_[r].last, 0});
        ids.push_back(static_cast<std::int32_t>(r));
      }
      plan_->arena_bytes[slot] = plan_arena(lifetimes, c_.devices[slot]->traits().alignment);
      for (std::size_t i = 0; i < ids.size(); ++i) roots_[ids[i]].fixed.offset = lifetimes[i].offset;
    }
    for (std::size_t b = 0; b < plan_->buffers.size(); ++b) {
      const std::int32_t r = buffer_roots_[b];
      if (r < 0) continue;
      const Root& from = roots_[r];
      plan_->buffers[b] = {from.source, from.slot, from.index, {from.fixed.memory, from.fixed.offset, from.bytes}};
    }
    plan_->bookkeeping_bytes = plan_->steps.size() * sizeof(PlanStep) + plan_->buffers.size() * sizeof(BufferSource) +
                               plan_->descs.size() * sizeof(TensorDesc) + plan_->known.size() * sizeof(WeightPtr);
  }

  std::vector<std::int32_t> input_roots_;  // work space of one node
};

}  // namespace

std::unique_ptr<Plan> make_plan(const CompiledGraph& graph, Signature signature) {
  return PlanBuilder(graph, std::move(signature)).run();
}

}  // namespace evn
