#include "runtime/state/state_run.h"

#include "base/error.h"

namespace evn {

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

StateRun::~StateRun() = default;

int StateRun::tensor_slot(std::size_t j) const {
  const State::Pair* const p = state_.pair_of_output(j);
  return p != nullptr && p->storage == State::Storage::kTensor ? p->slot : -1;
}

TensorPtr StateRun::make_output(std::size_t j, const TensorDesc& desc) const {
  const State::Pair& p = *state_.pair_of_output(j);
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

}  // namespace evn
