// Inputs and outputs of a run that devices use in the host's memory. Either all that may be are, or none: a plan for each set of
// tensors that happen to lie well would be one too many.
#include "runtime/session/session_call.h"

namespace evn {
namespace {

// Adds the tensor's memory on each slot of `slots`. False: one does not share it.
bool add_shares(const CompiledGraph& graph, const Tensor& tensor, std::uint32_t slots, RunShare share,
                std::vector<RunShare>* shares) {
  for (std::size_t slot = 0; slot < graph.devices.size(); ++slot) {
    if ((slots >> slot & 1) == 0) continue;
    share.share = tensor.share_on(*graph.devices[slot]);
    if (share.share == nullptr) return false;
    share.slot = static_cast<std::uint8_t>(slot);
    shares->push_back(share);
  }
  return true;
}

}  // namespace

void Session::share_inputs(Call& call) const {
  const std::size_t before = call.shares.size();
  bool all = true;
  for (std::size_t i = 0; all && i < call.inputs.size(); ++i) {
    const std::uint32_t slots = compiled_.shared_inputs[i];
    if (slots == 0 || call.from[i] == nullptr || call.input_slots[i] != 0 || call.from[i]->size_bytes() < kLeastShared) continue;
    const bool is_staged = call.from[i] != call.inputs[i].tensor;
    all =
        !is_staged && add_shares(compiled_, *call.from[i], slots, {nullptr, static_cast<std::int32_t>(i), 0, false}, &call.shares);
  }
  if (!all) call.shares.resize(before);
  call.shares_inputs = call.shares.size() > before;
  // Kernels read where the caller may take the memory back.
  for (std::size_t k = before; k < call.shares.size(); ++k)
    call.uses_callers |= !call.from[static_cast<std::size_t>(call.shares[k].index)]->keeps_memory();
}

// What a run may leave behind writes into no memory of the caller's; outputs that it makes come as they always do.
void Session::share_outputs(Call& call) const {
  const std::size_t before = call.shares.size();
  bool all = !may_leave(call);
  for (std::size_t j = 0; all && j < call.outputs.size(); ++j) {
    const std::uint32_t slots = compiled_.shared_outputs[j];
    if (slots == 0 || call.is_skipped(j) || call.output_slots[j] != 0) continue;
    const TensorPtr& given = call.outputs[j].tensor;
    all = given != nullptr && given->on_host();
    if (!all || given->size_bytes() < kLeastShared) continue;
    all = add_shares(compiled_, *given, slots, {nullptr, static_cast<std::int32_t>(j), 0, true}, &call.shares);
  }
  if (!all) call.shares.resize(before);
  call.shares_outputs = call.shares.size() > before;
}

}  // namespace evn
