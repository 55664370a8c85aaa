#include "runtime/plan_work.h"

#include <cstring>

#include "base/checked.h"
#include "graph/infer.h"

namespace evn {

void PlanWork::set_known(ValueId v, const void* bytes, std::size_t size) {
  void* to = nullptr;
  plan_->known[v] = make_weight(s_.descs[v], nullptr, &to);
  if (size > 0) std::memcpy(to, bytes, size);
  s_.values[v] = to;
}

void PlanWork::infer(const Node& node, std::span<TensorDesc> all) {
  node_values_.clear();
  for (const ValueId v : node.inputs) node_values_.push_back(v == kNoValue ? ConstTensor{} : ConstTensor{s_.descs[v], s_.values[v]});
  const std::span<TensorDesc> outputs = all.last(node.outputs.size());
  try {
    infer_node(node, all.first(node.inputs.size()), node_values_, outputs);
  } catch (Error& e) {
    // The model was found right for the dims that it declares; what it does not fit are the run's.
    if (e.status == EVN_ERROR_INVALID_MODEL) e.status = EVN_ERROR_INVALID_ARGUMENT;
    throw;
  }
  for (std::size_t k = 0; k < node.outputs.size(); ++k) {
    if (node.outputs[k] == kNoValue) continue;
    const TensorDesc& d = outputs[k];
    if (!d.shape.is_known()) fail(EVN_ERROR_UNSUPPORTED, "the shape of output %zu of %s depends on data", k, node.op_type.c_str());
    if (const std::size_t bytes = d.size_bytes(); bytes > limits_.tensor_bytes) {
      throw make_error(EVN_ERROR_LIMIT, "output %zu of shape %s has %zu bytes, above the limit tensor_bytes", k, d.shape.to_string().c_str(),
                       bytes)
          .with_bytes(bytes, limits_.tensor_bytes);
    }
    if (node.op->custom != nullptr) check_agreement(node, k, d);
  }
}

// Kernels of other nodes were chosen by what a host's operator said while the model loaded.
void PlanWork::check_agreement(const Node& node, std::size_t k, const TensorDesc& now) const {
  const Value& then = graph_.values[node.outputs[k]];
  bool same = now.dtype == then.dtype && (!then.has_shape || then.shape.rank() == now.shape.rank());
  for (int i = 0; same && then.has_shape && i < now.shape.rank(); ++i) same = then.shape[i] < 0 || then.shape[i] == now.shape[i];
  if (same) return;
  fail(EVN_ERROR_INTERNAL, "operator %.128s says that output %zu is %s%s, and said %s%s when the model was loaded", node.op_type.c_str(), k,
       dtype_name(now.dtype), now.shape.to_string().c_str(), dtype_name(then.dtype), then.has_shape ? then.shape.to_string().c_str() : "");
}

void PlanWork::evaluate(const Node& node) {
  std::vector<MutableTensor> outputs(node.outputs.size());
  if ((node.op->flags & kOpShapeOnly) != 0) node_values_[0].data = nullptr;
  for (std::size_t k = 0; k < node.outputs.size(); ++k) {
    const ValueId v = node.outputs[k];
    if (v == kNoValue) continue;
    set_known(v, nullptr, 0);
    outputs[k] = {s_.descs[v], const_cast<void*>(s_.values[v])};
  }
  if (plan_->texts == nullptr) plan_->texts = std::make_unique<TextPool>(c_.devices[0]->ledger());
  run_reference({node, node_values_, outputs, {plan_->texts.get(), 0}});
}

std::uint32_t PlanWork::narrow_of(const PlanStep& step, const std::vector<std::int32_t>& inputs, bool placed) const {
  if (c_.narrow.empty()) return 0;
  std::uint32_t narrow = 0;
  for (std::size_t k = 0; k < inputs.size() && k < 31; ++k) {
    if (inputs[k] < 0 || !s_.roots[inputs[k]].narrow) continue;
    narrow |= 1u << k;
    const std::uint8_t needed = static_cast<int>(k) == step.desc.residual ? kNarrowResidual : k == 0 ? kNarrowInput : 0;
    if ((step.kernel->narrow & needed) == 0) {  // inputs without elements have made other kernels run than those that were chosen
      fail(EVN_ERROR_UNSUPPORTED, "a value that is kept as bfloat16 is read as float32: precision fp32 can run this");
    }
  }
  const Node& last = step.desc.tail != nullptr ? *step.desc.tail : graph_.nodes[step.node];
  const bool may = !last.outputs.empty() && last.outputs[0] != kNoValue && c_.narrow[last.outputs[0]];
  if (may && !placed && (step.kernel->narrow & kNarrowOutput) != 0) narrow |= OpDesc::kNarrowWritten;
  return narrow;
}

std::size_t PlanWork::scratch_bytes(int slot, const KernelPlan& p) const {
  return checked_add(align_up(p.scratch_bytes, 64), checked_mul<std::size_t>(threads_of(slot), align_up(p.thread_scratch_bytes, 64)));
}

void PlanWork::place_arenas() {
  plan_->arena_bytes.assign(c_.devices.size(), 0);
  std::vector<Lifetime> lifetimes;
  std::vector<std::int32_t> ids;
  for (std::size_t slot = 0; slot < c_.devices.size(); ++slot) {
    lifetimes.clear();
    ids.clear();
    for (std::size_t r = 0; r < s_.roots.size(); ++r) {
      PlanRoot& root = s_.roots[r];
      if (root.source != Source::kArena || root.part != plan_->part || root.slot != slot || root.bytes == 0 || root.whole >= 0) continue;
      root.room = checked_add(root.bytes, root.slack);
      lifetimes.push_back({root.room, root.first, root.last, 0});
      ids.push_back(static_cast<std::int32_t>(r));
    }
    plan_->arena_bytes[slot] = plan_arena(lifetimes, c_.devices[slot]->traits().alignment);
    for (std::size_t i = 0; i < ids.size(); ++i) s_.roots[ids[i]].fixed.offset = lifetimes[i].offset;
  }
  set_buffers();
}

void PlanWork::set_buffers() {
  for (std::size_t b = 0; b < plan_->buffers.size(); ++b) {
    const std::int32_t r = s_.buffer_roots[b];
    if (r < 0) continue;
    const PlanRoot& from = s_.roots[r];
    const Buffer& place = from.whole < 0 ? from.fixed : s_.roots[static_cast<std::size_t>(from.whole)].fixed;
    plan_->buffers[b] = {from.source, from.slot, from.part, from.index, {place.memory, place.offset + from.skip, from.bytes}};
  }
}

std::shared_ptr<Plan> PlanWork::finish() {
  plan_->bookkeeping_bytes = plan_->steps.size() * sizeof(PlanStep) + plan_->buffers.size() * (sizeof(BufferSource) + sizeof(std::int32_t)) +
                             plan_->descs.size() * sizeof(TensorDesc) +
                             plan_->known.size() * (sizeof(WeightPtr) + sizeof(TensorDesc) + sizeof(void*) + 2 * sizeof(std::int32_t)) +
                             s_.roots.size() * sizeof(PlanRoot) + s_.step_of.size() * sizeof(std::int32_t);
  for (const std::vector<OpDesc>& parts : plan_->parts) plan_->bookkeeping_bytes += parts.capacity() * sizeof(OpDesc);
  plan_->state = std::make_unique<PlanState>(std::move(s_));
  return std::move(plan_);
}

}  // namespace evn
