#include "runtime/state/state_run.h"

#include "base/error.h"
#include "base/small_array.h"
#include "runtime/session/held_values.h"
#include "runtime/state/state.h"

namespace evn {
namespace {

// One run with a state, which is leased: its inputs and outputs with those of the pairs.
class StateRun final : public HeldValues {
 public:
  // Throws EVN_ERROR_INVALID_ARGUMENT where the state is another session's, a slot of a pair is not empty, or its output is
  // skipped.
  StateRun(State& state, const Session& session, std::span<const RunValue> inputs, std::span<RunValue> outputs,
           std::span<const std::uint8_t> skipped);
  StateRun(const StateRun&) = delete;
  StateRun& operator=(const StateRun&) = delete;

  std::span<const RunValue> inputs() const { return inputs_.span(); }
  std::span<RunValue> outputs() { return outputs_.span(); }

  Pages pages_of_input(std::size_t input) const override { return pages_of(state_.pair_of_input(input)); }
  Pages pages_of_output(std::size_t output) const override { return pages_of(state_.pair_of_output(output)); }
  int tensor_slot(std::size_t output) const override;
  TensorPtr make_output(std::size_t output, const TensorDesc& desc) const override;

  // Once the run has ended well: the state has what it made, and the caller's slots theirs.
  void commit();

 private:
  static Pages pages_of(const State::Pair* p) {
    return p != nullptr && p->storage == State::Storage::kPages ? Pages{p->cache.get(), p->axis, &p->desc} : Pages();
  }

  State& state_;
  const std::span<RunValue> given_;
  SmallArray<RunValue> inputs_, outputs_;
};

StateRun::StateRun(State& state, const Session& session, std::span<const RunValue> inputs, std::span<RunValue> outputs,
                   std::span<const std::uint8_t> skipped)
    : state_(state), given_(outputs), inputs_(inputs.size()), outputs_(outputs.size()) {
  if (&state.session() != &session) fail(EVN_ERROR_INVALID_ARGUMENT, "the state is another session's");
  const Graph& graph = session.graph();
  const auto refuse = [&](const char* what, std::size_t number, ValueId v) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "%s %zu \"%s\" is the state's, and is given too", what, number, graph.values[v].name.c_str());
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs_[i] = inputs[i];
    const State::Pair* const p = state.pair_of_input(i);
    if (p == nullptr) continue;
    if (inputs[i]) refuse("input", i, graph.inputs[i]);
    inputs_[i].tensor = p->current;
  }
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    outputs_[j] = outputs[j];
    const State::Pair* const p = state.pair_of_output(j);
    if (p == nullptr) continue;
    if (outputs[j]) refuse("output", j, graph.outputs[j]);
    if (is_skipped(skipped, j))
      fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu \"%s\" is the state's, and is skipped", j,
           graph.values[graph.outputs[j]].name.c_str());
    outputs_[j].tensor = p->spare;
    if (p->cache != nullptr) p->cache->set_appended(p->positions());
  }
}

int StateRun::tensor_slot(std::size_t output) const {
  const State::Pair* const p = state_.pair_of_output(output);
  return p != nullptr && p->storage == State::Storage::kTensor ? p->slot : -1;
}

TensorPtr StateRun::make_output(std::size_t output, const TensorDesc& desc) const {
  const State::Pair& p = *state_.pair_of_output(output);
  if (desc.shape.rank() != p.first.shape.rank() || desc.shape[p.axis] > p.capacity) {
    fail(EVN_ERROR_LIMIT, "the state has room for %lld positions, the run makes %s", static_cast<long long>(p.capacity),
         desc.shape.to_string().c_str());
  }
  return state_.make_tensor(p, desc, false);
}

void StateRun::commit() {
  state_.commit([&] {
    for (State::Pair& p : state_.pairs()) {
      if (p.storage == State::Storage::kPages) p.desc.shape[p.axis] = p.cache->appended();
      if (p.storage == State::Storage::kDoubleBuffered) p.current.swap(p.spare);
      if (p.storage != State::Storage::kTensor) continue;
      p.current = std::move(outputs_[p.output].tensor);
      p.desc = p.current->desc();
    }
  });
  for (std::size_t j = 0; j < given_.size(); ++j) {
    if (!state_.has_output(j)) given_[j] = std::move(outputs_[j]);
  }
}

class StateStage final : public RunStage {
 public:
  void run(Session& session, StagedRun& run, const RunRest& rest) override {
    if (run.request.state == nullptr) return rest(run);
    check_counts(session.graph(), run.inputs.size(), run.outputs.size());
    State& state = *run.request.state;
    if (&state.session() != &session && state.session().identity() == session.identity())
      state.follow(session.shared_from_this(), true);
    StateRun values(state, session, run.inputs, run.outputs, run.request.skipped);
    StagedRun within = run;
    within.inputs = values.inputs();
    within.outputs = values.outputs();
    within.held = &values;
    rest(within);
    values.commit();
  }
};

}  // namespace

std::unique_ptr<RunStage> make_state_stage() { return std::make_unique<StateStage>(); }

}  // namespace evn
