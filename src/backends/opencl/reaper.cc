#include "backends/opencl/reaper.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <new>

namespace evn {
namespace {

// How often who waits looks at the clock and at requests to stop.
constexpr std::chrono::milliseconds kBetweenLooks{1};

struct Waiter {
  std::uint64_t value;
  Waiter* next = nullptr;
  cl_int code = CL_SUCCESS;
  bool done = false;
};

struct Held {
  std::uint64_t value;
  std::shared_ptr<const void> what;
};

}  // namespace

// State that the thread and the device share. The thread uses nothing of the device's but while somebody waits or something is
// held.
struct OpenClReaper::State {
  Finish finish;
  void* device;
  std::mutex mutex;  // guards what follows
  std::condition_variable work;
  std::condition_variable progress;
  Waiter* waiters = nullptr;
  std::list<Held> held;
  std::size_t holding = 0;  // those that are being let go of included
  bool stop = false;

  // Whether anybody asks for an event, and for which.
  bool is_asked(std::uint64_t* value) const {
    for (const Waiter* w = waiters; w != nullptr; w = w->next) {
      if (w->done) continue;
      *value = w->value;
      return true;
    }
    if (held.empty()) return false;
    *value = held.front().value;
    return true;
  }
};

void OpenClReaper::loop(State& s) {
  std::unique_lock<std::mutex> lock(s.mutex);
  for (;;) {
    std::uint64_t value = 0;
    s.work.wait(lock, [&] { return s.stop || s.is_asked(&value); });
    if (s.stop) return;
    lock.unlock();
    const cl_int code = s.finish(s.device, value);
    lock.lock();
    for (Waiter* w = s.waiters; w != nullptr; w = w->next) {
      if (w->done || w->value != value) continue;
      w->done = true;
      w->code = code;
    }
    std::list<Held> over;
    for (auto it = s.held.begin(); it != s.held.end();) {
      const auto at = it++;
      if (at->value == value) over.splice(over.end(), s.held, at);
    }
    s.progress.notify_all();
    if (over.empty()) continue;
    const std::size_t count = over.size();
    lock.unlock();
    over.clear();  // the device may go with it
    lock.lock();
    s.holding -= count;
    s.progress.notify_all();
  }
}

void OpenClReaper::thread_main(void* argument) {
  const std::unique_ptr<std::shared_ptr<State>> state(static_cast<std::shared_ptr<State>*>(argument));
  loop(**state);
}

bool OpenClReaper::start() noexcept {
  const std::lock_guard<std::mutex> lock(starting_);
  if (thread_ != nullptr) return true;
  try {
    if (state_ == nullptr) {
      state_ = std::make_shared<State>();
      state_->finish = finish_;
      state_->device = device_;
    }
    auto argument = std::make_unique<std::shared_ptr<State>>(state_);
    thread_ = std::make_unique<os::BackgroundThread>(&thread_main, argument.get());
    argument.release();
    return true;
  } catch (const Error&) {
  } catch (const std::bad_alloc&) {}
  return false;
}

void OpenClReaper::stop() noexcept {
  if (thread_ == nullptr || made_in_ != os::fork_generation()) return;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stop = true;
    state_->work.notify_all();
  }
  thread_.reset();
}

void OpenClReaper::let_go() noexcept {
  if (state_ == nullptr) return;
  std::list<Held> over;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    over.swap(state_->held);
  }
}

bool OpenClReaper::wait(std::uint64_t value, const Cancel& cancel, cl_int* code) {
  State& s = *state_;
  std::unique_lock<std::mutex> lock(s.mutex);
  Waiter waiter{value, s.waiters};
  s.waiters = &waiter;
  s.work.notify_one();
  while (!waiter.done && !cancel.stop()) s.progress.wait_for(lock, kBetweenLooks);
  Waiter** at = &s.waiters;
  while (*at != &waiter) at = &(*at)->next;
  *at = waiter.next;
  *code = waiter.code;
  return waiter.done;
}

bool OpenClReaper::hold(std::uint64_t value, std::shared_ptr<const void>& held) noexcept {
  try {
    std::list<Held> node(1);
    State& s = *state_;
    const std::lock_guard<std::mutex> lock(s.mutex);
    node.front() = {value, std::move(held)};
    s.held.splice(s.held.end(), node);
    ++s.holding;
    s.work.notify_one();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool OpenClReaper::settle(const Cancel& cancel) {
  State* s = nullptr;
  {
    const std::lock_guard<std::mutex> lock(starting_);
    s = state_.get();
  }
  if (s == nullptr) return true;
  std::unique_lock<std::mutex> lock(s->mutex);
  while (s->holding > 0) {
    if (cancel.stop()) return false;
    s->progress.wait_for(lock, kBetweenLooks);
  }
  return true;
}

}  // namespace evn
