// What runs and requests are given and give, as handles and as what these refer to.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "api/barrier.h"
#include "api/objects.h"
#include "base/small_array.h"
#include "evener/request.h"

namespace evn {

// How functions of tensors and those of values differ: in what their handles refer to.
struct Tensors {
  using Object = TensorPtr;
  static const std::shared_ptr<Runtime>& runtime(const Object& t) { return t->runtime(); }
  static RunValue value(const Object& t) { return {t, nullptr}; }
  static Object object(const std::shared_ptr<Runtime>&, const RunValue& v) { return v.tensor; }
};

struct Values {
  using Object = ValueObject;
  static const std::shared_ptr<Runtime>& runtime(const Object& v) { return v.runtime; }
  static RunValue value(const Object& v) { return v.value; }
  static Object object(const std::shared_ptr<Runtime>& runtime, const RunValue& v) { return {runtime, v}; }
};

// Throws where an output of the graph is no tensor. `skipped`: per output, as RunRequest has it.
void refuse_other_than_tensors(const Graph& graph, std::span<const uint8_t> skipped = {});

struct RunOptions {
  RunRequest request;
  CancelPtr
      token;  // which the request's stop condition refers to: it lives as long as the run, whoever releases its handle meanwhile
};
// Reads the options of a run whose numbers of inputs and outputs have been checked.
RunOptions read_run_options(const evn_run_options* options, const Graph& graph);

// As evn_session_run, with a listener; throws.
void run_listened(evn_session session, std::span<const evn_tensor> inputs, std::span<evn_tensor> outputs,
                  const evn_run_options* options, OutputListener listener);
// As evn_session_submit, with a listener; throws.
void submit_listened(evn_session session, std::span<const evn_tensor> inputs, std::span<const evn_tensor> outputs,
                     const evn_run_options* options, const evn_submit_options* submit_options, OutputListener listener,
                     evn_request* request);

// Throws where output j, for which there is a tensor, is not wanted.
void check_not_skipped(const Graph& graph, std::span<const uint8_t> skipped, std::size_t j);

// Position of an input with a default, by its number among those, in the graph of `session`; SIZE_MAX: the input is a constant
// there.
std::size_t place_of_default(const Session& session, std::size_t number);

// The tensors or values behind handles. Throws EVN_ERROR_INVALID_ARGUMENT, EVN_ERROR_INVALID_HANDLE. `outputs` may be NULL where
// all its slots are.
// Inputs of `session` that the handles do not reach have their defaults. `out`: empty if the caller takes no outputs.
template <typename Kind, typename Handle>
void take_arguments(const Session& session, const RunRequest& request, std::span<const Handle> inputs, const Handle* outputs,
                    std::span<RunValue> in, std::span<RunValue> out) {
  const auto take = [&](Handle handle, RunValue* to) {
    const Pin<typename Kind::Object> object(handle);
    if (Kind::runtime(*object) != session.runtime()) fail(EVN_ERROR_INVALID_ARGUMENT, "a tensor belongs to another runtime");
    *to = Kind::value(*object);
  };
  if (std::is_same_v<Kind, Tensors> && !out.empty()) refuse_other_than_tensors(session.graph(), request.skipped);
  const LoadedModel& model = *session.compiled().model;
  const std::size_t required = model.required_inputs();
  const bool has_state = request.state != nullptr && request.state->session().identity() == session.identity();
  for (std::size_t i = 0; i < required; ++i) {
    if (inputs[i] != nullptr || !has_state || !request.state->has_input(i)) take(inputs[i], &in[i]);
  }
  for (std::size_t d = 0; in.size() > required && d < model.model.defaults.size(); ++d) {
    if (model.model.defaults[d].input < 0) continue;
    const auto i = static_cast<std::size_t>(model.model.defaults[d].input);
    if (required + d < inputs.size() && inputs[required + d] != nullptr) {
      take(inputs[required + d], &in[i]);
    } else if (!has_state || !request.state->has_input(place_of_default(request.state->session(), d))) {
      in[i] = {session.open_inputs().default_value(d), nullptr};
    }
  }
  for (std::size_t j = 0; j < out.size() && outputs != nullptr; ++j) {
    if (outputs[j] == nullptr) continue;
    check_not_skipped(session.graph(), request.skipped, j);
    take(outputs[j], &out[j]);
    if (out[j].tensor == nullptr) fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu: only a tensor is written in place", j);
  }
}

// Throws where the numbers are not those of the model's inputs, of which those with a default may be left out, and outputs.
void check_argument_counts(const Session& session, uint32_t input_count, uint32_t output_count);

// The session that runs with these inputs: `session`, or one in which those with a default are open that are given (a byte each).
SessionPtr session_for(const SessionPtr& session, std::span<const uint8_t> given, RunRequest* request);

template <typename Handle>
SessionPtr session_for(const SessionPtr& session, const Handle* inputs, uint32_t input_count, RunRequest* request) {
  const std::size_t required = session->compiled().model->required_inputs();
  if (input_count <= required) return session;
  SmallArray<uint8_t> given(input_count - required);
  for (std::size_t d = 0; d < given.size(); ++d) given[d] = inputs[required + d] != nullptr ? 1 : 0;
  return session_for(session, given.span(), request);
}

// Makes handles of the outputs for which is_wanted(j); all of them, or none and throws.
template <typename Kind, typename Handle, typename F>
void give_outputs(const std::shared_ptr<Runtime>& runtime, std::span<const RunValue> out, Handle* outputs, F&& is_wanted) {
  using Object = typename Kind::Object;
  bool any = false;
  for (std::size_t j = 0; j < out.size(); ++j) any |= is_wanted(j);
  if (!any) return;
  SmallArray<void*> made(out.size());
  try {
    for (std::size_t j = 0; j < out.size(); ++j) {
      if (is_wanted(j)) made[j] = make_handle<Object>(Kind::object(runtime, out[j]));
    }
  } catch (...) {
    for (std::size_t j = 0; j < out.size(); ++j) {
      if (made[j] != nullptr) g_handles.release(made[j], HandleTraits<Object>::kind);
    }
    throw;
  }
  for (std::size_t j = 0; j < out.size(); ++j) {
    if (is_wanted(j)) outputs[j] = static_cast<Handle>(made[j]);
  }
}

}  // namespace evn
