// What a fork leaves of a process: its memory as it was, one thread, and every lock as some thread held it.
// docs/decisions/0062-forked-children.md
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace evn::os {

// How many forks there are between the first process and this one. Changes in the child, before fork returns there.
extern constinit std::atomic<std::uint32_t> g_fork_generation;
inline std::uint32_t fork_generation() noexcept { return g_fork_generation.load(std::memory_order_relaxed); }

// Something of the calling thread that no other thread has, and that is the same in a child that it forks.
const void* this_thread() noexcept;
// What that is of the thread that made the latest fork, which is the only one that the child began with; nullptr where there was
// none.
const void* forking_thread() noexcept;

// While it lives, a fork begins with the mutex, so that what it guards is whole in the child, and the mutex free. For mutexes that
// are held for moments, and under which only mutexes that were added later are locked: a fork takes them in the order in which they
// were added. It waits no more than 100 ms for each, as it may be called in a callback of who has it.
class HeldOverForks {
 public:
  explicit HeldOverForks(std::mutex& mutex) noexcept;
  ~HeldOverForks();
  HeldOverForks(const HeldOverForks&) = delete;
  HeldOverForks& operator=(const HeldOverForks&) = delete;

 private:
  friend struct ForkHandlers;
  std::mutex& mutex_;
  bool taken_ = false;
  HeldOverForks* before_ = nullptr;
  HeldOverForks* after_ = nullptr;
};

// The same, for who has no place for one. Throws std::bad_alloc.
void hold_over_forks(std::mutex& mutex);
void let_go_over_forks(std::mutex& mutex) noexcept;

// Has a function called in every child, on its only thread, before fork returns there. Static; once.
struct ForkedChild {
  void (*begin)() noexcept;
  ForkedChild* next = nullptr;
};
void call_in_children(ForkedChild& what) noexcept;

}  // namespace evn::os
