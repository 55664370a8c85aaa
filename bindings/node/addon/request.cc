// Runs: into outputs that there are, without anything that is made; and requests, whose promises end when the library says so.
#include "request.h"

#include "call.h"
#include "hand.h"

namespace evn_node {
namespace {

// Takes the outputs of a request that has ended, as numbers of slots.
template <class H>
napi_value Take(Call& c, Pending& pending) {
  auto* list = c.Keep<SlotList<H>>();
  list->api = c.api;
  list->given = pending.given;
  list->handles.resize(pending.given.size());
  evn_error error = EVN_ERROR_INIT;
  evn_status status;
  if constexpr (std::is_same_v<H, evn_value>) {
    status = c.api->request_take_values(pending.request, list->data(), list->count(), &error);
  } else {
    status = c.api->request_take(pending.request, list->data(), list->count(), &error);
  }
  if (status != EVN_OK) Throw(c.instance, error);
  return c.MadeAll(list);
}

struct RequestDone : Message {
  void Deliver(Instance& instance) override {
    instance.pending.erase(pending);
    instance.End();
    napi_env env = instance.env;
    auto call = std::make_shared<Call>(instance, false);
    napi_value result = nullptr;
    try {
      result = pending->has_values ? Take<evn_value>(*call, *pending) : Take<evn_tensor>(*call, *pending);
    } catch (const Thrown&) {}
    instance.api->request_release(pending->request);
    if (result != nullptr) {
      Check(env, napi_resolve_deferred(env, pending->deferred, result));
      return;
    }
    napi_value exception;
    Check(env, napi_get_and_clear_last_exception(env, &exception));
    Check(env, napi_reject_deferred(env, pending->deferred, exception));
  }
  std::shared_ptr<Pending> pending;
};

struct Submission {
  std::shared_ptr<Pending> pending;
  std::unique_ptr<RequestDone> message;  // made before, so that the end can be told whatever memory there is then
};

void Done(void* user, evn_request) {
  auto* submission = static_cast<Submission*>(user);
  submission->pending->instance->Post(std::move(submission->message));
}

void Released(void* user) { delete static_cast<Submission*>(user); }

// (session, inputs, outputs or nulls, options): a promise of the outputs that are made.
template <class H>
napi_value Submit(Call& c) {
  auto session = c.Handle<evn_session>(0);
  auto* inputs = c.Handles<H>(1);
  auto* outputs = c.Slots<H>(2);
  auto options = static_cast<const evn_run_options*>(c.Options(kStruct_evn_run_options, 3));
  auto submission = std::make_unique<Submission>();
  auto pending = submission->pending = std::make_shared<Pending>();
  submission->message = std::make_unique<RequestDone>();
  submission->message->pending = pending;
  pending->instance = c.instance.shared_from_this();
  pending->has_values = std::is_same_v<H, evn_value>;
  pending->given = outputs->given;
  evn_submit_options how = EVN_SUBMIT_OPTIONS_INIT;
  how.flags = EVN_SUBMIT_FAIL_WHEN_FULL;  // the event loop does not wait
  how.done = Done;
  how.user = submission.get();
  how.release = Released;
  evn_error error = EVN_ERROR_INIT;
  napi_value promise;
  Check(c.env, napi_create_promise(c.env, &pending->deferred, &promise));
  c.instance.pending.insert(pending);
  evn_status status;
  if constexpr (std::is_same_v<H, evn_value>) {
    status = c.api->session_submit_values(session, inputs->data(), inputs->count(), outputs->data(), outputs->count(), options,
                                          &how, &pending->request, &error);
  } else {
    status = c.api->session_submit(session, inputs->data(), inputs->count(), outputs->data(), outputs->count(), options, &how,
                                   &pending->request, &error);
  }
  if (status != EVN_OK) {
    c.instance.pending.erase(pending);
    Check(c.env, napi_reject_deferred(c.env, pending->deferred, MakeError(c.instance, error)));
    return promise;
  }
  submission.release();
  c.instance.Begin();
  return promise;
}

// Runs what the scratch says: {slot of the session, number of inputs, number of outputs, slots of the inputs, slots of the
// outputs}. A slot of -1 is no tensor; where it is an output's it gets the slot of the one that is made.
napi_value RunScratch(Instance& instance, const evn_run_options* options) {
  constexpr double kFew = 16;
  double* const scratch = instance.scratch;
  const double inputs = scratch[1], all = inputs + scratch[2];
  if (!(inputs >= 0 && all >= inputs && all + 3 <= static_cast<double>(instance.scratch_count)))
    Throw(instance, EVN_ERROR_INVALID_ARGUMENT, "more tensors than the scratch has room for");
  const auto session = static_cast<evn_session>(instance.Get(scratch[0], kKind_evn_session));
  if (session == nullptr) Throw(instance, EVN_ERROR_INVALID_HANDLE, "a session that is closed");
  const auto count = static_cast<uint32_t>(all), input_count = static_cast<uint32_t>(inputs);
  evn_tensor few[static_cast<size_t>(kFew)];
  std::vector<evn_tensor> many(all > kFew ? count : 0);
  evn_tensor* handles = many.empty() ? few : many.data();
  for (uint32_t i = 0; i < count; ++i) {
    const double id = scratch[3 + i];
    handles[i] = id == -1 ? nullptr : static_cast<evn_tensor>(instance.Get(id, kKind_evn_tensor));
    if (handles[i] == nullptr && id != -1) Throw(instance, EVN_ERROR_INVALID_HANDLE, "a tensor that is closed");
  }
  evn_error error;
  error.struct_size = sizeof(error);
  if (instance.api->session_run(session, handles, input_count, handles + input_count, count - input_count, options, &error) !=
      EVN_OK)
    Throw(instance, error);
  for (uint32_t i = input_count; i < count; ++i) {
    if (scratch[3 + i] == -1 && handles[i] != nullptr) scratch[3 + i] = instance.Add(kKind_evn_tensor, handles[i]);
  }
  return nullptr;
}

}  // namespace

const Entry kRequestEntries[] = {
    {"session_submit", Submit<evn_tensor>, false},
    {"session_submit_values", Submit<evn_value>, false},
    {nullptr, nullptr, false},
};

// (options or nothing). It is what programs call most: nothing is read that the scratch has.
napi_value RunWith(napi_env env, napi_callback_info info) {
  try {
    size_t count = 1;
    napi_value argument;
    void* data = nullptr;
    Check(env, napi_get_cb_info(env, info, &count, &argument, nullptr, &data));
    auto& instance = *static_cast<Instance*>(data);
    if (instance.api == nullptr) Throw(instance, EVN_ERROR_WRONG_STATE, "no library is open");
    if (count == 0) return RunScratch(instance, nullptr);
    Call call(instance, false);
    call.arguments[0] = argument;
    return RunScratch(instance, static_cast<const evn_run_options*>(call.Options(kStruct_evn_run_options, 0)));
  } catch (const Thrown&) {
  } catch (const std::bad_alloc&) {
    napi_throw_error(env, "EVN_ERROR_OUT_OF_MEMORY", "there is no memory for the call");
  }
  return nullptr;
}

}  // namespace evn_node
