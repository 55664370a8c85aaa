// What a run of a session works with.
#pragma once

#include <algorithm>

#include "base/small_array.h"
#include "kept_features.h"
#include "runtime/run/overlap.h"
#include "runtime/session/session.h"
#include "runtime/state/state_run.h"

namespace evn {

// Of the largest list of a run that has an element for each input or output.
inline std::size_t list_bytes(const Graph& graph) {
  constexpr std::size_t kElement = std::max({sizeof(RunValue), sizeof(Tensor::Use), sizeof(Buffer), sizeof(OutputRange)});
  return std::max(graph.inputs.size(), graph.outputs.size()) * kElement;
}

// One run's tensors: the caller's, and beside them those that the plan reads and writes, which are staged copies where a tensor
// lies outside the session's devices or is not aligned.
struct Session::Call {
  std::span<const RunValue> inputs;
  std::span<RunValue> outputs;  // empty: to be created
  SpareBlocks* spare;
  bool allow_copies;
  ~Call();
  SmallArray<TensorPtr> from{inputs.size(), spare};
  SmallArray<TensorPtr> to{outputs.size(), spare};
  SmallArray<std::uint8_t> input_slots{inputs.size(), spare};
  SmallArray<std::uint8_t> output_slots{outputs.size(), spare};
  std::vector<RuntimeValuePtr> runtime_values = {};          // per value; empty where the graph has none
  SmallArray<Tensor::Use> input_uses{inputs.size(), spare};  // of the caller's tensors
  SmallArray<Tensor::Use> output_uses{outputs.size(), spare};
  // What devices use in memory of the host; and whether the plan is for that.
  std::vector<RunShare> shares = {};
  bool shares_inputs = false, shares_outputs = false;
  // RunState's.
  bool borrows_inputs = false, uses_callers = false;
  Cancel cancel = {};
  StateRun* state = nullptr;  // nullable: what gives and takes some of the inputs and outputs

  const State::Pair* paged_input(std::size_t i) const { return kHas_states && state != nullptr ? state->paged_input(i) : nullptr; }
  const State::Pair* paged_output(std::size_t j) const {
    return kHas_states && state != nullptr ? state->paged_output(j) : nullptr;
  }
  const TensorDesc& input_desc(std::size_t i) const {
    if (from[i] != nullptr) return from[i]->desc();
    const State::Pair* const paged = paged_input(i);
    return paged != nullptr ? paged->desc : inputs[i].runtime_value->desc;
  }
  std::span<const std::uint8_t> skipped = {};  // RunRequest's
  bool outputs_on_device = false;
  bool overwrite_inputs = false;
  OutputListener listener = {};
  std::shared_ptr<Trace> measured = {};  // records the run where nobody else does; nullable

  // An output's memory on the slot; null: it is not shared there.
  const HostShare* shared_output(std::size_t j, std::uint8_t slot) const {
    for (const RunShare& s : shares) {
      if (s.is_output && s.index == static_cast<std::int32_t>(j) && s.slot == slot) return s.share.get();
    }
    return nullptr;
  }

  bool is_skipped(std::size_t output) const { return evn::is_skipped(skipped, output); }
};

// A run from its first step on, with all that it works with: what devices need when the run has ended before them. Members that use
// others stand behind them.
struct Session::Flight {
  Flight() = default;
  Flight(Flight&&) = default;
  ~Flight();

  std::shared_ptr<const CompiledGraph> graph;
  std::shared_ptr<ArenaStore> arenas;
  std::vector<TensorPtr> tensors;
  std::vector<RuntimeValuePtr> runtime_values;
  std::vector<Tensor::Use> uses;
  std::vector<HostSharePtr> shares;
  // The parts of a chain; each uses the memory of those before.
  struct Part {
    PreparedPtr prepared;
    std::unique_ptr<Execution> execution;
  };
  Part first;
  std::vector<Part> others;

  Execution& latest() const { return others.empty() ? *first.execution : *others.back().execution; }
};

}  // namespace evn
