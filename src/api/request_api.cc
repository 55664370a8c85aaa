// evn_session_submit*, evn_request_*, evn_queue_*, evn_session_finish.
#include "evener/request.h"

#include <optional>
#include <utility>

#include "api/barrier.h"
#include "api/objects.h"
#include "api/run_arguments.h"
#include "base/float_environment.h"
#include "base/os/os.h"
#include "runtime/dispatch/dispatcher.h"

namespace evn {

// A request as the C API knows it: with a handle, and with who is told of its end.
class ApiRequest final : public Request {
 public:
  ApiRequest(SessionPtr session, std::vector<RunValue> inputs, std::vector<RunValue> outputs, const RunOptions& options,
             const evn_submit_options& submit, QueuePtr queue)
      : Request(std::move(session), std::move(inputs), std::move(outputs), options.request, options.token),
        done_(submit.done),
        user_(submit.user),
        queue_(std::move(queue)) {}

  void* user() const { return user_; }

  // `caller_has_it`: the submission gives the handle; else it is of who is told of the end.
  void set_handle(void* handle, bool caller_has_it) {
    entry_.handle = handle;
    caller_has_handle_ = caller_has_it;
    if (!caller_has_it) entry_.abandon = &release;
  }
  // Called before the submission, after which the callback may run at any time, and with nullptr if the submission fails.
  void adopt_user(evn_user_release take_back) { user_data_->adopt(take_back, user_); }

 private:
  void tell(const RequestPtr& self) noexcept override {
    if (done_ != nullptr) {
      try {
        const HostFloatEnvironment hosts;
        done_(user_, static_cast<evn_request>(entry_.handle));
      } catch (...) {  // nobody is there to be told
      }
      user_data_.reset();
    }
    if (queue_ != nullptr) {
      const QueuePtr queue = std::move(queue_);
      queue->push(&entry_, self);
    } else if (!caller_has_handle_) {
      release(entry_.handle);
    }
  }

  bool calls_host() const noexcept override { return done_ != nullptr; }

  static void release(void* handle) { g_handles.release(handle, HandleKind::kRequest); }

  const evn_request_done done_;
  void* const user_;
  QueuePtr queue_;
  CompletionQueue::Entry entry_;
  bool caller_has_handle_ = false;
  std::optional<UserData> user_data_{std::in_place};
};

}  // namespace evn

using namespace evn;

namespace {

ApiRequest& of(const RequestPtr& request) { return static_cast<ApiRequest&>(*request); }

template <typename Kind, typename Handle>
void submit(evn_session session, const Handle* inputs, uint32_t input_count, const Handle* outputs, uint32_t output_count,
            const evn_run_options* options, const evn_submit_options* submit_options, evn_request* request,
            OutputListener listener = {}) {
  const SessionPin pin(session);
  pin->identity()->requests.require_not_forked();
  static constexpr evn_submit_options defaults = EVN_SUBMIT_OPTIONS_INIT;
  const evn_submit_options so = read_options(submit_options, defaults, sizeof(evn_submit_options));
  if ((so.flags & ~static_cast<uint32_t>(EVN_SUBMIT_FAIL_WHEN_FULL)) != 0)
    fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %u", so.flags);
  check_argument_counts(*pin, input_count, output_count);
  if (const Model& model = pin->compiled().model->model; !model.callers_operator.empty()) {
    throw make_error(EVN_ERROR_UNSUPPORTED,
                     "custom operator %.140s runs on the caller's thread only: the model cannot be run asynchronously",
                     model.callers_operator.c_str())
        .with_node(model.callers_node.c_str());
  }
  RunOptions o = read_run_options(options, pin->graph());
  o.request.listener = listener;
  require(inputs != nullptr || input_count == 0, "inputs");
  if (request == nullptr && so.queue == nullptr && so.done == nullptr) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "request, queue and done are NULL: nobody would learn of the end");
  }
  o.request.stop.join_timeout(std::exchange(o.request.timeout_ns, 0));
  QueuePtr queue = so.queue != nullptr ? *Pin<QueuePtr>(so.queue) : nullptr;
  if (queue != nullptr) queue->require_not_forked();
  const SessionPtr s = session_for(pin.shared(), inputs, input_count, &o.request);
  std::vector<RunValue> in(s->graph().inputs.size()), out(output_count);
  take_arguments<Kind>(*s, o.request, std::span(inputs, input_count), outputs, in, out);
  const auto made = std::make_shared<ApiRequest>(s, std::move(in), std::move(out), o, so, std::move(queue));
  o.request.state.reset();  // it is the request's, which lets go of it at its end
  void* const handle = make_handle<RequestPtr>(made);
  made->set_handle(handle, request != nullptr);
  made->adopt_user(so.release);
  try {
    s->runtime()->dispatcher().submit(made, (so.flags & EVN_SUBMIT_FAIL_WHEN_FULL) != 0, o.request.stop);
  } catch (const Error& e) {
    s->identity()->statistics.note_refusal(o.request.priority, e.status);
    made->adopt_user(nullptr);
    g_handles.release(handle, HandleKind::kRequest);
    throw;
  } catch (...) {
    made->adopt_user(nullptr);
    g_handles.release(handle, HandleKind::kRequest);
    throw;
  }
  if (request != nullptr) *request = static_cast<evn_request>(handle);
}

template <typename Kind, typename Handle>
void take(evn_request request, Handle* outputs, uint32_t output_count) {
  const Pin<RequestPtr> r(request);
  (*r)->take([&](std::span<const RunValue> out) {
    if (output_count != out.size())
      fail(EVN_ERROR_INVALID_ARGUMENT, "the model has %zu outputs, %u are given", out.size(), output_count);
    require(outputs != nullptr || output_count == 0, "outputs");
    if constexpr (std::is_same_v<Kind, Tensors>) {
      for (std::size_t j = 0; j < out.size(); ++j) {
        if (out[j].tensor == nullptr && out[j])
          fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu is no tensor: evn_request_take_values gives it", j);
      }
    }
    give_outputs<Kind>((*r)->runtime(), out, outputs, [&](std::size_t j) { return !(*r)->was_given(j) && out[j]; });
  });
}

}  // namespace

void evn::submit_listened(evn_session session, std::span<const evn_tensor> inputs, std::span<const evn_tensor> outputs,
                          const evn_run_options* options, const evn_submit_options* submit_options, OutputListener listener,
                          evn_request* request) {
  submit<Tensors>(session, inputs.data(), static_cast<uint32_t>(inputs.size()), outputs.data(),
                  static_cast<uint32_t>(outputs.size()), options, submit_options, request, listener);
}

extern "C" {

evn_status evn_session_submit(evn_session session, const evn_tensor* inputs, uint32_t input_count, const evn_tensor* outputs,
                              uint32_t output_count, const evn_run_options* options, const evn_submit_options* submit_options,
                              evn_request* request, evn_error* error) {
  return guarded(error,
                 [&] { submit<Tensors>(session, inputs, input_count, outputs, output_count, options, submit_options, request); });
}

evn_status evn_session_submit_values(evn_session session, const evn_value* inputs, uint32_t input_count, const evn_value* outputs,
                                     uint32_t output_count, const evn_run_options* options,
                                     const evn_submit_options* submit_options, evn_request* request, evn_error* error) {
  return guarded(error,
                 [&] { submit<Values>(session, inputs, input_count, outputs, output_count, options, submit_options, request); });
}

evn_status evn_request_wait(evn_request request, uint64_t timeout_ns, bool* done, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RequestPtr> r(request);
    require(done != nullptr, "done");
    *done = (*r)->wait(timeout_ns);
  });
}

evn_status evn_request_take(evn_request request, evn_tensor* outputs, uint32_t output_count, evn_error* error) {
  return guarded(error, [&] { take<Tensors>(request, outputs, output_count); });
}

evn_status evn_request_take_values(evn_request request, evn_value* outputs, uint32_t output_count, evn_error* error) {
  return guarded(error, [&] { take<Values>(request, outputs, output_count); });
}

evn_status evn_request_user(evn_request request, void** user, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RequestPtr> r(request);
    require(user != nullptr, "user");
    *user = of(*r).user();
  });
}

evn_status evn_request_release(evn_request request) { return release_handle(request, HandleKind::kRequest); }

evn_status evn_queue_create(evn_queue* queue, evn_error* error) {
  return guarded(error, [&] {
    require(queue != nullptr, "queue");
    *queue = static_cast<evn_queue>(make_handle(std::make_shared<CompletionQueue>()));
  });
}

evn_status evn_queue_next(evn_queue queue, uint64_t timeout_ns, evn_request* request, evn_error* error) {
  return guarded(error, [&] {
    const Pin<QueuePtr> q(queue);
    require(request != nullptr, "request");
    const std::uint64_t begin = os::now_ns();
    const QueuePtr keep = *q;
    while (true) {
      const std::uint64_t spent = timeout_ns == UINT64_MAX ? 0 : std::min(os::now_ns() - begin, timeout_ns);
      const CompletionQueue::Taken taken = keep->next(timeout_ns - spent);
      // Whose handle has been released nobody wants to know of any more.
      if (taken.handle != nullptr && g_handles.pin(taken.handle, HandleKind::kRequest) == nullptr) continue;
      if (taken.handle != nullptr) g_handles.unpin(taken.handle);
      *request = static_cast<evn_request>(taken.handle);
      return;
    }
  });
}

evn_status evn_queue_fd(evn_queue queue, int32_t* fd, evn_error* error) {
  return guarded(error, [&] {
    const Pin<QueuePtr> q(queue);
    require(fd != nullptr, "fd");
    *fd = (*q)->descriptor();
  });
}

evn_status evn_queue_release(evn_queue queue) { return release_handle(queue, HandleKind::kQueue); }

evn_status evn_session_finish(evn_session session, uint64_t timeout_ns, evn_error* error) {
  return guarded(error, [&] {
    const SessionPtr s = SessionPin(session).shared();
    if (s->identity()->requests.in_callback())
      fail(EVN_ERROR_WRONG_STATE, "a callback of a request waits for the requests of its session");
    if (!g_handles.release(session, HandleKind::kSession)) fail(EVN_ERROR_INVALID_HANDLE, "the session handle is not valid");
    if (!s->identity()->requests.wait_for_all(timeout_ns)) fail(EVN_ERROR_TIMEOUT, "requests of the session are still under way");
  });
}

}  // extern "C"
