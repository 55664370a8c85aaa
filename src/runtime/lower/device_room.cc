#include "runtime/lower/device_room.h"

#include <set>

#include "base/checked.h"
#include "base/error.h"

namespace evn {

void require_room(const CompiledGraph& c) {
  PackedStore& store = c.model->store;
  for (std::size_t slot = 1; slot < c.devices.size(); ++slot) {
    Device& device = *c.devices[slot];
    if (!device.pool().is_limited()) continue;
    const std::uint64_t left = device.pool().left();
    std::uint64_t needed = 0;
    std::set<const Weight*> plain;
    for (std::size_t i = 0; i < c.nodes.size(); ++i) {
      const CompiledNode& n = c.nodes[i];
      if (n.slot != slot || (n.mode != NodeMode::kKernel && n.mode != NodeMode::kSegment)) continue;
      const Node& node = c.graph().nodes[i];
      const std::vector<TensorDesc> descs = descs_of(c.graph(), node);
      const OpDesc desc = desc_of(node, n, descs);
      for (std::size_t k = 0; k < n.constants.size(); ++k) {
        const Weight* const w = n.constants[k].get();
        const bool by_value = node.op->reads_value(k);  // kernels of devices read it from the desc
        if (w == nullptr || by_value) continue;
        const bool is_packed = !n.choose_late && n.mode == NodeMode::kKernel && n.kernel->prepack_bytes != nullptr &&
                               n.kernel->prepack_bytes(desc, static_cast<int>(k)) != 0;
        if (is_packed) {
          needed = checked_add<std::uint64_t>(needed, store.need_of(device, *n.kernel, desc, static_cast<int>(k)).room);
        } else if (plain.insert(w).second && !store.has_plain(device, *w)) {
          needed = checked_add<std::uint64_t>(needed, w->size_bytes);
        }
        if (needed <= left) continue;
        throw make_error(EVN_ERROR_OUT_OF_MEMORY,
                         "the constants of the nodes need %llu bytes, and %llu are left of the device's %llu",
                         static_cast<unsigned long long>(needed), static_cast<unsigned long long>(left),
                         static_cast<unsigned long long>(device.pool().stats().limit))
            .with_node(node.name.c_str())
            .with_device(device.name().c_str())
            .with_bytes(needed, left);
      }
    }
  }
}

}  // namespace evn
