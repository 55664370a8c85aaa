#include "runtime/lower/plan_arenas.h"

#include "base/cancel.h"
#include "base/checked.h"

namespace evn {

std::size_t PlanArenas::scratch_bytes(int slot, const KernelPlan& p) const {
  return checked_add(align_up(p.scratch_bytes, 64),
                     checked_mul<std::size_t>(threads_of(slot), align_up(p.thread_scratch_bytes, 64)));
}

void PlanArenas::assign_offsets() {
  plan_->arena_bytes.assign(c_.devices.size(), 0);
  std::vector<Lifetime> lifetimes;
  std::vector<std::int32_t> ids;
  for (std::size_t slot = 0; slot < c_.devices.size(); ++slot) {
    lifetimes.clear();
    ids.clear();
    for (std::size_t r = s_.first_root; r < s_.roots.size(); ++r) {
      cancellation_point();
      PlanRoot& root = s_.roots[r];
      if (root.source != Source::kArena || root.subplan != plan_->subplan || root.slot != slot || root.bytes == 0 ||
          root.view.exists())
        continue;
      root.room = checked_add(root.bytes, root.slack);
      lifetimes.push_back({root.room, root.first, root.last, 0});
      ids.push_back(static_cast<std::int32_t>(r));
    }
    const std::size_t alignment = c_.devices[slot]->traits().alignment;
    plan_->arena_bytes[slot] = plan_->is_small ? plan_small_arena(lifetimes, alignment) : plan_arena(lifetimes, alignment);
    for (std::size_t i = 0; i < ids.size(); ++i) s_.roots[ids[i]].fixed.offset = lifetimes[i].offset;
  }
  set_buffers();
}

void PlanArenas::set_buffers() {
  for (std::size_t b = 0; b < plan_->buffers.size(); ++b) {
    cancellation_point(2);
    const std::int32_t r = s_.buffer_roots[b];
    if (r < 0) continue;
    const PlanRoot& from = s_.roots[r];
    const Buffer& place = owner(r).fixed;
    plan_->buffers[b] = {
        from.source, from.slot, from.subplan, from.index, {place.memory, place.offset + from.view.skip, from.bytes}};
  }
}

std::shared_ptr<Plan> PlanArenas::finish() {
  plan_->bookkeeping_bytes =
      plan_->steps.size() * sizeof(PlanStep) + plan_->buffers.size() * (sizeof(BufferSource) + sizeof(std::int32_t)) +
      plan_->descs.size() * sizeof(TensorDesc) +
      plan_->known.size() * (sizeof(WeightPtr) + sizeof(TensorDesc) + sizeof(void*) + 2 * sizeof(std::int32_t)) +
      (s_.roots.size() - s_.first_root) * sizeof(PlanRoot) + s_.step_of.size() * sizeof(std::int32_t);
  for (const std::vector<OpDesc>& nodes : plan_->step_nodes) plan_->bookkeeping_bytes += nodes.capacity() * sizeof(OpDesc);
  plan_->state = std::make_unique<PlanState>(std::move(s_));
  if (plan_->has_continuation()) {
    plan_->state->freeze();
    plan_->known.freeze();
    plan_->outputs.freeze();
    plan_->output_slots.freeze();
  }
  return std::move(plan_);
}

}  // namespace evn
