// Inputs and outputs of a run that devices use in the host's memory. Either all that may be are, or none: a plan for each set of
// tensors that happen to lie well would be one too many.
#include "runtime/session/run_tensors.h"

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

void RunTensors::share_inputs() {
  const std::size_t before = shares.size();
  bool all = true;
  for (std::size_t i = 0; all && i < inputs.size(); ++i) {
    const std::uint32_t slots = compiled.shared_inputs[i];
    if (slots == 0 || from[i] == nullptr || input_slots[i] != 0 || from[i]->size_bytes() < kLeastShared) continue;
    const bool is_staged = from[i] != inputs[i].tensor;
    all = !is_staged && add_shares(compiled, *from[i], slots, {nullptr, static_cast<std::int32_t>(i), 0, false}, &shares);
  }
  if (!all) shares.resize(before);
  shares_inputs = shares.size() > before;
  // Kernels read where the caller may take the memory back.
  for (std::size_t k = before; k < shares.size(); ++k)
    uses_callers |= !from[static_cast<std::size_t>(shares[k].index)]->keeps_memory();
}

// What a run may leave behind writes into no memory of the caller's; outputs that it makes come as they always do.
void RunTensors::share_outputs() {
  const std::size_t before = shares.size();
  bool all = !may_leave();
  for (std::size_t j = 0; all && j < outputs.size(); ++j) {
    const std::uint32_t slots = compiled.shared_outputs[j];
    if (slots == 0 || is_skipped(skipped, j) || output_slots[j] != 0) continue;
    const TensorPtr& given = outputs[j].tensor;
    all = given != nullptr && given->on_host();
    if (!all || given->size_bytes() < kLeastShared) continue;
    all = add_shares(compiled, *given, slots, {nullptr, static_cast<std::int32_t>(j), 0, true}, &shares);
  }
  if (!all) shares.resize(before);
  shares_outputs = shares.size() > before;
}

void RunTensors::share() {
  if (compiled.shared_inputs.empty()) return;
  share_inputs();
  share_outputs();
}

}  // namespace evn
