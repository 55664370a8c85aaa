// The tensors of one run: those of its caller, and those that the plan reads and writes, which are staged copies where a tensor
// lies outside the session's devices or is not aligned.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "base/small_array.h"
#include "runtime/run/execute.h"
#include "runtime/run/host_run.h"
#include "runtime/run/overlap.h"
#include "runtime/session/held_values.h"
#include "runtime/session/run_stage.h"

namespace evn {

// Returns the bytes of a run's largest list with an element for each input or output.
inline std::size_t list_bytes(const Graph& graph) {
  constexpr std::size_t kElement = std::max({sizeof(RunValue), sizeof(Tensor::Use), sizeof(Buffer), sizeof(OutputRange)});
  return std::max(graph.inputs.size(), graph.outputs.size()) * kElement;
}

// Throws EVN_ERROR_INVALID_ARGUMENT where the numbers are not those of the graph.
void check_counts(const Graph& graph, std::size_t inputs, std::size_t outputs);

struct RunTensors {
  const CompiledGraph& compiled;
  std::span<const RunValue> inputs;
  std::span<RunValue> outputs;  // empty slots: to be created
  SpareBlocks* spare;
  bool allow_copies;

  ~RunTensors();

  SmallArray<TensorPtr> from{inputs.size(), spare};
  SmallArray<TensorPtr> to{outputs.size(), spare};
  SmallArray<std::uint8_t> input_slots{inputs.size(), spare};
  SmallArray<std::uint8_t> output_slots{outputs.size(), spare};
  std::vector<RuntimeValuePtr> runtime_values = {};          // per value; empty where the graph has none
  SmallArray<Tensor::Use> input_uses{inputs.size(), spare};  // of the caller's tensors
  SmallArray<Tensor::Use> output_uses{outputs.size(), spare};
  // Host memory that devices use in place, and whether the plan is made for that.
  std::vector<RunShare> shares = {};
  bool shares_inputs = false, shares_outputs = false;
  // RunState's.
  bool borrows_inputs = false, uses_callers = false;
  Cancel cancel = {};
  const HeldValues* held = nullptr;            // nullable
  std::span<const std::uint8_t> skipped = {};  // RunRequest's
  bool outputs_on_device = false;
  bool overwrite_inputs = false;
  OutputListener listener = {};

  const Graph& graph() const { return compiled.graph(); }
  HeldValues::Pages input_pages(std::size_t i) const { return held != nullptr ? held->pages_of_input(i) : HeldValues::Pages(); }
  HeldValues::Pages output_pages(std::size_t j) const { return held != nullptr ? held->pages_of_output(j) : HeldValues::Pages(); }
  const TensorDesc& input_desc(std::size_t i) const {
    if (from[i] != nullptr) return from[i]->desc();
    const HeldValues::Pages pages = input_pages(i);
    return pages ? *pages.desc : inputs[i].runtime_value->desc;
  }
  // An output's memory on the slot; null: it is not shared there.
  const HostShare* shared_output(std::size_t j, std::uint8_t slot) const {
    for (const RunShare& s : shares) {
      if (s.is_output && s.index == static_cast<std::int32_t>(j) && s.slot == slot) return s.share.get();
    }
    return nullptr;
  }

  // In this order, before the plan is known; these throw what is wrong with a tensor, and where it may not be copied.
  void take_inputs();
  void choose_output_slots();
  void share();  // what devices use in the host's memory
  // For each part of the plan, before it runs: its copies are allowed, and those outputs are there whose descs it knows.
  void check_copies(const Plan& plan) const;
  void take_outputs(const Plan& plan);
  // When all parts have run: outputs keep what the steps' and inputs' memory has kept for their strings.
  void own_strings();

 private:
  bool fits_declared_shape(std::size_t index) const;
  void check_input(std::size_t index) const;
  [[noreturn]] void refuse_output(std::size_t index, const TensorDesc& want, const Tensor& have) const;
  [[noreturn]] void refuse_copy(bool output, std::size_t index, const Device& given, const char* why, const char* what) const;
  [[noreturn]] void refuse_foreign(bool output, std::size_t index, const Device& given) const;
  std::uint8_t slot_for(const Tensor& tensor, bool output, std::size_t index) const;
  TensorPtr stage(const TensorDesc& desc, std::uint8_t slot) const;
  bool may_leave() const;
  void share_inputs();
  void share_outputs();
};

}  // namespace evn
