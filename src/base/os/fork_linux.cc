// The handlers of pthread_atfork.
#include "base/os/fork.h"

#include <pthread.h>

#include <ctime>
#include <new>

#include "base/os/os.h"

namespace evn::os {

constinit std::atomic<std::uint32_t> g_fork_generation{0};

namespace {

constexpr std::uint64_t kMostWaitNs = 100'000'000;

[[gnu::tls_model("initial-exec")]] constinit thread_local char t_thread = 0;

constinit const void* g_forking_thread = nullptr;
constinit std::mutex g_mutex;               // guards the list
constinit HeldOverForks* g_held = nullptr;  // the oldest
constinit HeldOverForks* g_newest = nullptr;
constinit std::atomic<ForkedChild*> g_children{nullptr};

// False: somebody has it for too long.
bool lock_soon(std::mutex& mutex) noexcept {
  const std::uint64_t end = now_ns() + kMostWaitNs;
  while (!mutex.try_lock()) {
    if (now_ns() >= end) return false;
    const timespec nap{0, 50'000};
    ::nanosleep(&nap, nullptr);
  }
  return true;
}

}  // namespace

struct ForkHandlers {
  static void prepare() {
    g_mutex.lock();
    for (HeldOverForks* h = g_held; h != nullptr; h = h->after_) h->taken_ = lock_soon(h->mutex_);
  }
  static void parent() {
    for (HeldOverForks* h = g_held; h != nullptr; h = h->after_) {
      if (h->taken_) h->mutex_.unlock();
    }
    g_mutex.unlock();
  }
  static void child() {
    for (HeldOverForks* h = g_held; h != nullptr; h = h->after_) {
      if (h->taken_) {
        h->mutex_.unlock();
      } else {  // who has it is in a callback of the host's allocator: between two changes of what the mutex guards
        ::new (static_cast<void*>(&h->mutex_)) std::mutex;
      }
    }
    g_mutex.unlock();
    g_forking_thread = this_thread();
    g_fork_generation.fetch_add(1, std::memory_order_relaxed);
    for (ForkedChild* c = g_children.load(std::memory_order_acquire); c != nullptr; c = c->next) c->begin();
  }

  // Where the system refuses, a child finds things as they were: nothing tells it from its parent.
  [[gnu::constructor]] static void install() { ::pthread_atfork(&prepare, &parent, &child); }

  static void add(HeldOverForks* what) noexcept {
    const std::lock_guard<std::mutex> lock(g_mutex);
    what->before_ = g_newest;
    (g_newest != nullptr ? g_newest->after_ : g_held) = what;
    g_newest = what;
  }
  static void remove(HeldOverForks* what) noexcept {
    const std::lock_guard<std::mutex> lock(g_mutex);
    (what->before_ != nullptr ? what->before_->after_ : g_held) = what->after_;
    (what->after_ != nullptr ? what->after_->before_ : g_newest) = what->before_;
  }
  static HeldOverForks* find(const std::mutex& mutex) noexcept {
    const std::lock_guard<std::mutex> lock(g_mutex);
    HeldOverForks* h = g_held;
    while (h != nullptr && &h->mutex_ != &mutex) h = h->after_;
    return h;
  }
};

const void* this_thread() noexcept { return &t_thread; }
const void* forking_thread() noexcept { return g_forking_thread; }

HeldOverForks::HeldOverForks(std::mutex& mutex) noexcept : mutex_(mutex) { ForkHandlers::add(this); }
HeldOverForks::~HeldOverForks() { ForkHandlers::remove(this); }

void hold_over_forks(std::mutex& mutex) { new HeldOverForks(mutex); }
void let_go_over_forks(std::mutex& mutex) noexcept { delete ForkHandlers::find(mutex); }

void call_in_children(ForkedChild& what) noexcept {
  what.next = g_children.load(std::memory_order_relaxed);
  while (!g_children.compare_exchange_weak(what.next, &what, std::memory_order_release, std::memory_order_relaxed)) {}
}

}  // namespace evn::os
