#include "runtime/lower/plan_arenas.h"

#include "base/cancel.h"
#include "base/checked.h"

namespace evn {

void PlanArenas::assign_offsets() {
  w_.plan->arena_bytes.assign(w_.c.devices.size(), 0);
  std::vector<Lifetime> lifetimes;
  std::vector<std::int32_t> ids;
  for (std::size_t slot = 0; slot < w_.c.devices.size(); ++slot) {
    lifetimes.clear();
    ids.clear();
    for (std::size_t r = w_.state.first_root; r < w_.state.roots.size(); ++r) {
      cancellation_point();
      PlanRoot& root = w_.state.roots[r];
      if (root.source != Source::kArena || root.subplan != w_.plan->subplan || root.slot != slot || root.bytes == 0 ||
          root.view.exists())
        continue;
      root.room = checked_add(root.bytes, root.slack);
      lifetimes.push_back({root.room, root.first, root.last, 0});
      ids.push_back(static_cast<std::int32_t>(r));
    }
    const std::size_t alignment = w_.c.devices[slot]->traits().alignment;
    w_.plan->arena_bytes[slot] = w_.plan->is_small ? plan_small_arena(lifetimes, alignment) : plan_arena(lifetimes, alignment);
    for (std::size_t i = 0; i < ids.size(); ++i) w_.state.roots[ids[i]].fixed.offset = lifetimes[i].offset;
  }
  set_buffers();
}

void PlanArenas::set_buffers() {
  for (std::size_t b = 0; b < w_.plan->buffers.size(); ++b) {
    cancellation_point(2);
    const std::int32_t r = w_.state.buffer_roots[b];
    if (r < 0) continue;
    const PlanRoot& from = w_.state.roots[r];
    const Buffer& place = w_.owner(r).fixed;
    w_.plan->buffers[b] = {
        from.source, from.slot, from.subplan, from.index, {place.memory, place.offset + from.view.skip, from.bytes}};
  }
}

std::shared_ptr<Plan> PlanArenas::finish() {
  w_.plan->bookkeeping_bytes =
      w_.plan->steps.size() * sizeof(PlanStep) + w_.plan->buffers.size() * (sizeof(BufferSource) + sizeof(std::int32_t)) +
      w_.plan->descs.size() * sizeof(TensorDesc) +
      w_.plan->known.size() * (sizeof(WeightPtr) + sizeof(TensorDesc) + sizeof(void*) + 2 * sizeof(std::int32_t)) +
      (w_.state.roots.size() - w_.state.first_root) * sizeof(PlanRoot) + w_.state.step_of.size() * sizeof(std::int32_t);
  for (const std::vector<OpDesc>& nodes : w_.plan->step_nodes) w_.plan->bookkeeping_bytes += nodes.capacity() * sizeof(OpDesc);
  w_.plan->state = std::make_unique<PlanState>(std::move(w_.state));
  if (w_.plan->has_continuation()) {
    w_.plan->state->freeze();
    w_.plan->known.freeze();
    w_.plan->outputs.freeze();
    w_.plan->output_slots.freeze();
  }
  return std::move(w_.plan);
}

}  // namespace evn
