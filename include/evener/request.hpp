// Asynchronous runs in C++: futures, completion queues. Included by evener.hpp; see request.h for the rules.
#ifndef EVENER_REQUEST_HPP
#define EVENER_REQUEST_HPP

#include <future>

#include "request.h"
#include "tensor.hpp"

namespace evener {
inline namespace EVENER_SPANS {

// One asynchronous run. Destroying it does not end the run.
class Request : public detail::Object<evn_request, evn_request_release> {
 public:
  Request() noexcept = default;

  // Whether the run has ended; waits so long for it.
  bool wait_for(std::uint64_t timeout_ns) const {
    bool done = false;
    detail::check([&](evn_error* e) { return evn_request_wait(get(), timeout_ns, &done, e); });
    return done;
  }
  void wait() const { wait_for(UINT64_MAX); }
  // The outputs of a run that has ended, once. Throws what the run threw; EVN_ERROR_BUSY, EVN_ERROR_WRONG_STATE.
  std::vector<Tensor> take(std::size_t output_count) const { return take_from(get(), output_count); }
  // As take, where outputs may be more than tensors.
  std::vector<Value> take_values(std::size_t output_count) const {
    std::vector<evn_value> out(output_count);
    std::vector<Value> outputs(output_count);
    detail::check(
        [&](evn_error* e) { return evn_request_take_values(get(), out.data(), static_cast<std::uint32_t>(out.size()), e); });
    for (std::size_t i = 0; i < out.size(); ++i) *outputs[i].handle_.out() = out[i];
    return outputs;
  }
  // What the submission was given to know it by.
  void* user() const {
    void* user = nullptr;
    detail::check([&](evn_error* e) { return evn_request_user(get(), &user, e); });
    return user;
  }

 private:
  friend class Session;
  friend class Queue;

  static std::vector<Tensor> take_from(evn_request request, std::size_t output_count) {
    std::vector<evn_tensor> out(output_count);
    std::vector<Tensor> outputs(output_count);
    detail::check([&](evn_error* e) { return evn_request_take(request, out.data(), static_cast<std::uint32_t>(out.size()), e); });
    for (std::size_t i = 0; i < out.size(); ++i) *outputs[i].handle_.out() = out[i];
    return outputs;
  }
};

// Requests that have ended, for threads and event loops to take.
class Queue : public detail::Object<evn_queue, evn_queue_release> {
 public:
  Queue() {
    detail::check([&](evn_error* e) { return evn_queue_create(handle_.out(), e); });
  }
  // An empty Request where none came in time.
  Request next(std::uint64_t timeout_ns = UINT64_MAX) const {
    Request request;
    detail::check([&](evn_error* e) { return evn_queue_next(get(), timeout_ns, request.handle_.out(), e); });
    return request;
  }
  // For poll and epoll: can be read from while there are requests. It is the queue's.
  int fd() const {
    std::int32_t fd = -1;
    detail::check([&](evn_error* e) { return evn_queue_fd(get(), &fd, e); });
    return fd;
  }
};

namespace detail {

// The promise of a run in flight; the library's until it has ended.
struct Promise {
  std::promise<std::vector<Tensor>> outputs;
  std::size_t output_count = 0;
  std::vector<Tensor> (*take)(evn_request, std::size_t) = nullptr;

  static void on_done(void* user, evn_request request) noexcept {
    auto& p = *static_cast<Promise*>(user);
    try {
      p.outputs.set_value(p.take(request, p.output_count));
    } catch (...) {
      p.outputs.set_exception(std::current_exception());
    }
  }
  static void on_release(void* user) noexcept { delete static_cast<Promise*>(user); }
};

}  // namespace detail
}  // inline namespace
}  // namespace evener
#endif
