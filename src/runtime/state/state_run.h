// One run with a state: its inputs and outputs with those of the pairs.
#pragma once

#include "base/small_array.h"
#include "runtime/state/state.h"

namespace evn {

class StateRun {
 public:
  // The state is leased. Throws EVN_ERROR_INVALID_ARGUMENT where it is another session's, a slot of a pair is not empty, or
  // its output is skipped.
  StateRun(State& state, const Session& session, std::span<const RunValue> inputs, std::span<RunValue> outputs,
           std::span<const std::uint8_t> skipped);
  ~StateRun();
  StateRun(const StateRun&) = delete;
  StateRun& operator=(const StateRun&) = delete;

  std::span<const RunValue> inputs() const { return inputs_.span(); }
  std::span<RunValue> outputs() { return outputs_.span(); }

  // The pair that holds an input or output in pages; nullptr: none does.
  State::Pair* paged_input(std::size_t i) const { return paged(state_.pair_of_input(i)); }
  State::Pair* paged_output(std::size_t j) const { return paged(state_.pair_of_output(j)); }
  // The device slot of an output whose pair is stored as a tensor (State::Storage::kTensor); -1: it is not.
  int tensor_slot(std::size_t j) const;
  // The tensor for such an output, whose desc the plan knows. Throws EVN_ERROR_LIMIT (more than the capacity).
  TensorPtr make_output(std::size_t j, const TensorDesc& desc) const;

  // Once the run has ended well: the state has what it made, and the caller's slots theirs.
  void commit();

 private:
  static State::Pair* paged(State::Pair* p) { return p != nullptr && p->storage == State::Storage::kPages ? p : nullptr; }

  State& state_;
  const std::span<RunValue> given_;
  SmallArray<RunValue> inputs_, outputs_;
};

}  // namespace evn
