#include "tests/simulation/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#include "base/os/os.h"
#include "tests/simulation/fiber.h"

extern "C" int __real_pthread_mutex_unlock(pthread_mutex_t* mutex);

namespace evn::sim {
namespace {

constexpr std::uint64_t kNever = UINT64_MAX;

constinit thread_local Machine::Thread* t_self = nullptr;  // the simulated thread itself; each fiber has this variable for itself

}  // namespace

struct Machine::Thread {
  enum class State { kReady, kRunning, kBlocked, kEnded };

  Machine* machine = nullptr;
  int id = 0;
  State state = State::kReady;
  int core = 0;                  // core on which the thread executes, waits or was last
  std::uint64_t left = 0;        // CPU time that it needs before its next action
  std::uint64_t ahead = 0;       // CPU time of its calls that has not been charged to its core yet
  std::uint64_t settled = 0;     // CPU time that has
  std::int64_t cpu_time = 0;     // virtual run time; while it has no core: minus the least of the core on which it was last
  std::uint64_t begin = 0;       // time at which the thread last got its core
  bool spins = false;            // its last call was relax()
  const void* word = nullptr;    // address on which the thread sleeps
  std::uint64_t timer = kNever;  // latest end of its sleep
  bool timed_out = false;
  void* (*body)(void*) = nullptr;
  void* argument = nullptr;
  Fiber fiber;
};

struct Machine::Core {
  Thread* current = nullptr;
  const Thread* last = nullptr;  // last user of its cache
  std::uint64_t due = kNever;    // next action of the current thread
  std::uint64_t slice_end = kNever;
  std::int64_t least_cpu_time = 0;  // of its threads; only grows
  std::uint64_t idle_since = 0;
  std::uint64_t balance_at = 0;
  std::vector<Thread*> queue;
};

Machine::Machine(const Options& options)
    : options_(options), random_(options.seed), cores_(static_cast<std::size_t>(options.cores)) {}

Machine::~Machine() = default;

void Machine::run(std::function<void()> body) {
  Thread& first = add_thread(
      [](void* f) -> void* {
        (*static_cast<std::function<void()>*>(f))();
        return nullptr;
      },
      &body);
  switch_in(cores_[0], first, 0);
  std::thread([&] {  // with thread-local variables of its own
    Thread* const next = next_to_execute();
    Fiber::switch_between(&host_, &next->fiber);
  })
      .join();
}

Machine::Thread& Machine::add_thread(void* (*body)(void*), void* argument) {
  auto thread = std::make_unique<Thread>();
  thread->machine = this;
  thread->id = static_cast<int>(threads_.size());
  thread->body = body;
  thread->argument = argument;
  thread->fiber.prepare(&thread_main, thread.get());
  threads_.push_back(std::move(thread));
  ++alive_;
  return *threads_.back();
}

void Machine::thread_main(void* thread) {
  auto& self = *static_cast<Thread*>(thread);
  t_self = &self;
  self.body(self.argument);
  self.machine->end(self);
}

// ------------------------------------------------------------------------------------------------------------- time --

// Prices of short calls add up until the thread does what others may see.
void Machine::charge(Thread& self, std::uint64_t ns) {
  self.ahead += ns;
  if (options_.jitter == 0 || random_.uniform() >= options_.jitter) return;
  self.ahead += random_.below(50) == 0 ? 2'000'000 : random_.below(30'000);
}

// Lets the time pass that the thread is ahead. Other threads may execute meanwhile.
void Machine::settle(Thread& self) {
  Core& core = cores_[static_cast<std::size_t>(self.core)];
  const std::uint64_t ns = std::exchange(self.ahead, 0);
  self.settled += ns;
  if (core.current == &self) core.due = now_ + ns;
  else self.left += ns;  // preempted by a thread that it has woken
  give_way(self);
}

// Begin of an action that others may see.
void Machine::act(Thread& self, std::uint64_t price_ns) {
  self.spins = false;
  charge(self, price_ns);
  settle(self);
}

// Variant for calls whose exact time does not matter to others.
void Machine::settle_later(Thread& self) {
  if (self.ahead >= 500) settle(self);
}

void Machine::give_way(Thread& self) {
  visible_ = 0;
  Thread* const next = next_to_execute();
  if (next == &self) return;
  Fiber::switch_between(&self.fiber, &next->fiber);
}

void Machine::advance(std::uint64_t time) {
  if (time <= now_) return;
  if (on_advance) on_advance(time - now_);
  now_ = time;
}

// Lets events pass until one is the action of a thread.
Machine::Thread* Machine::next_to_execute() {
  while (true) {
    Core* at = nullptr;
    std::uint64_t time = kNever;
    enum class Event { kAction, kSlice, kBalance, kTimer } event = Event::kTimer;
    const auto consider = [&](Core& core, std::uint64_t t, Event e) {
      if (t >= time) return;
      time = t;
      at = &core;
      event = e;
    };
    for (Core& c : cores_) {
      if (c.current != nullptr) {
        consider(c, c.due, Event::kAction);
        if (!c.queue.empty()) consider(c, c.slice_end, Event::kSlice);
      } else if (queued_ > 0) {
        consider(c, c.balance_at, Event::kBalance);
      }
    }
    if (!timers_.empty() && timers_.begin()->first < time) {
      time = timers_.begin()->first;
      event = Event::kTimer;
    } else if (at == nullptr) {
      report_deadlock();
    }
    advance(time);
    if (event == Event::kAction) return at->current;
    if (event == Event::kSlice) {
      switch_out(*at);
      dispatch(*at);
    } else if (event == Event::kBalance) {
      at->balance_at = now_ + options_.costs.balance;
      pull(*at);
    } else {
      Thread& t = *threads_[static_cast<std::size_t>(timers_.begin()->second)];
      timers_.erase(timers_.begin());
      t.timer = kNever;
      t.timed_out = true;
      if (t.word != nullptr) std::erase(sleepers_, &t);
      make_ready(t, t.core);
    }
  }
}

// Next event that may change what a spinning thread looks at: any but the actions of other spinning threads.
std::uint64_t Machine::next_visible_event(const Thread& self) const {
  std::uint64_t time = timers_.empty() ? kNever : timers_.begin()->first;
  for (const Core& c : cores_) {
    if (c.current == nullptr) {
      if (queued_ > 0) time = std::min(time, c.balance_at);
      continue;
    }
    if (c.current != &self && !c.current->spins) time = std::min(time, c.due);
    if (!c.queue.empty()) time = std::min(time, c.slice_end);
  }
  return time;
}

void Machine::report_deadlock() const {
  std::fprintf(stderr, "simulation: seed %llu, %zu cores: every thread sleeps and nobody will wake one (time %.6f s)\n",
               static_cast<unsigned long long>(options_.seed), cores_.size(), static_cast<double>(now_) * 1e-9);
  for (const auto& t : threads_) {
    if (t->state == Thread::State::kBlocked) std::fprintf(stderr, "  thread %d sleeps on %p\n", t->id, t->word);
  }
  std::abort();
}

// -------------------------------------------------------------------------------- scheduler of the operating system --

void Machine::switch_in(Core& core, Thread& thread, std::uint64_t latency) {
  const Costs& costs = options_.costs;
  thread.state = Thread::State::kRunning;
  thread.core = static_cast<int>(&core - cores_.data());
  thread.begin = now_;
  if (core.last != &thread) latency += costs.switch_thread + costs.cold_cache;
  core.last = &thread;
  core.current = &thread;
  core.due = now_ + latency + std::exchange(thread.left, 0);
  core.slice_end = now_ + costs.slice;
}

// Brings the least CPU time of a core up to date. Returns the CPU time of its current thread.
std::int64_t Machine::account(Core& core) {
  std::int64_t current = INT64_MAX;
  if (core.current != nullptr) current = core.current->cpu_time + static_cast<std::int64_t>(now_ - core.current->begin);
  std::int64_t least = current;
  for (const Thread* other : core.queue) least = std::min(least, other->cpu_time);
  if (least != INT64_MAX) core.least_cpu_time = std::max(core.least_cpu_time, least);
  return current;
}

// The current thread becomes ready, or blocked if its state says so.
void Machine::switch_out(Core& core) {
  Thread& t = *core.current;
  t.cpu_time = account(core);
  core.current = nullptr;
  if (t.state != Thread::State::kRunning) {
    t.cpu_time -= core.least_cpu_time;
    return;
  }
  t.state = Thread::State::kReady;
  t.left += core.due > now_ && core.due != kNever ? core.due - now_ : 0;
  core.queue.push_back(&t);
  ++queued_;
}

// A free core takes the ready thread that has had the least CPU time.
void Machine::dispatch(Core& core) {
  if (core.queue.empty()) {
    core.idle_since = now_;
    core.balance_at = now_ + 1 + random_.below(options_.costs.balance);
    if (queued_ > 0 && random_.below(2) == 0) pull(core);
    return;
  }
  const auto best = std::min_element(core.queue.begin(), core.queue.end(),
                                     [](const Thread* a, const Thread* b) { return a->cpu_time < b->cpu_time; });
  Thread& thread = **best;
  core.queue.erase(best);
  --queued_;
  switch_in(core, thread, 0);
}

// An idle core takes a ready thread from the core that has most of them.
void Machine::pull(Core& core) {
  if (options_.wakes_in_place) return;
  Core& from =
      *std::max_element(cores_.begin(), cores_.end(), [](const Core& a, const Core& b) { return a.queue.size() < b.queue.size(); });
  if (from.queue.empty()) return;
  Thread& thread = *from.queue.back();
  account(from);
  from.queue.pop_back();
  --queued_;
  thread.cpu_time -= from.least_cpu_time;
  enqueue(core, thread);
}

int Machine::choose_core(const Thread& thread, int near) {
  if (options_.wakes_in_place) return random_.below(300) == 0 ? near : thread.core;
  const auto is_idle = [&](int i) { return cores_[static_cast<std::size_t>(i)].current == nullptr; };
  if (is_idle(thread.core)) return thread.core;
  for (int i = 0; i < options_.cores; ++i) {
    const int core = (near + i) % options_.cores;
    if (is_idle(core)) return core;
  }
  return random_.below(4) == 0 ? near : thread.core;
}

void Machine::make_ready(Thread& thread, int near) {
  thread.state = Thread::State::kReady;
  thread.word = nullptr;
  if (random_.below(2) == 0) thread.cpu_time = std::min(thread.cpu_time, -options_.costs.wake_bonus);
  if (thread.timer != kNever) timers_.erase({std::exchange(thread.timer, kNever), thread.id});
  enqueue(cores_[static_cast<std::size_t>(choose_core(thread, near))], thread);
}

// Puts a ready thread on a core, which it may take from the current thread.
void Machine::enqueue(Core& core, Thread& thread) {
  const Costs& costs = options_.costs;
  const std::int64_t had = account(core);
  thread.cpu_time = core.least_cpu_time + std::max(thread.cpu_time, -costs.wake_bonus);
  thread.core = static_cast<int>(&core - cores_.data());
  if (core.current == nullptr) {
    const bool polls = now_ - core.idle_since < costs.polls;
    switch_in(core, thread, polls ? costs.idle_shortly : costs.idle_core);
    return;
  }
  if (had > thread.cpu_time + costs.wake_preempts) {
    switch_out(core);
    switch_in(core, thread, 0);
    return;
  }
  if (core.queue.empty()) core.slice_end = std::max(core.slice_end, now_ + costs.least_slice);
  core.queue.push_back(&thread);
  ++queued_;
  for (Core& c : cores_) {
    if (c.current == nullptr) c.balance_at = std::max(c.balance_at, now_ + 1 + random_.below(costs.balance));
  }
}

void Machine::block(Thread& self, const void* word, std::uint64_t timeout_ns) {
  self.state = Thread::State::kBlocked;
  self.word = word;
  self.timed_out = false;
  if (word != nullptr) sleepers_.push_back(&self);
  if (timeout_ns != kNever) {
    self.timer = now_ + timeout_ns;
    timers_.insert({self.timer, self.id});
  }
  Core& core = cores_[static_cast<std::size_t>(self.core)];
  switch_out(core);
  dispatch(core);
  ++counters_.sleeps;
  give_way(self);
}

void Machine::end(Thread& self) {
  settle(self);
  self.state = Thread::State::kEnded;
  Core& core = cores_[static_cast<std::size_t>(self.core)];
  switch_out(core);
  dispatch(core);
  for (const auto& t : threads_) {
    if (t->state != Thread::State::kBlocked || t->word != &self) continue;
    std::erase(sleepers_, t.get());
    make_ready(*t, self.core);
  }
  if (--alive_ > 0) return give_way(self);
  Fiber::switch_between(&self.fiber, &host_);
}

// ------------------------------------------------------------------------------------------------ calls of threads --

void Machine::compute(Thread& self, std::uint64_t ns) { act(self, ns); }

void Machine::sleep_until(Thread& self, std::uint64_t time) {
  self.spins = false;
  settle(self);
  if (time > now_) block(self, nullptr, time - now_);
}

std::uint64_t Machine::look_at_clock(Thread& self) {
  charge(self, options_.costs.clock);
  settle_later(self);
  return now_ + self.ahead;
}

std::uint64_t Machine::cpu_time(Thread& self) {
  look_at_clock(self);
  return self.settled + self.ahead;
}

// A spinning thread goes on without the others until something may have changed.
void Machine::relax(Thread& self) {
  self.spins = true;
  self.ahead += options_.costs.relax;
  if (visible_ == 0) visible_ = next_visible_event(self);
  if (now_ + self.ahead >= visible_) settle(self);
}

void Machine::wait(Thread& self, const std::uint32_t* word, std::uint32_t expected, std::uint64_t timeout_ns) {
  act(self, options_.costs.sleep_call);
  if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != expected) return;
  block(self, word, timeout_ns);
  if (self.timed_out) ++counters_.timeouts;
}

void Machine::wake(Thread& self, const void* word, std::uint64_t count) {
  act(self, options_.costs.wake_call);
  const auto sleep_now = std::count_if(sleepers_.begin(), sleepers_.end(), [&](const Thread* t) { return t->word == word; });
  for (count = std::min(count, static_cast<std::uint64_t>(sleep_now)); count > 0; --count) {
    const auto found = std::find_if(sleepers_.begin(), sleepers_.end(), [&](const Thread* t) { return t->word == word; });
    if (found == sleepers_.end()) return;
    Thread& woken = **found;
    sleepers_.erase(found);
    make_ready(woken, self.core);
    charge(self, options_.costs.wake_thread);
    settle(self);
  }
}

void Machine::lock(Thread& self, pthread_mutex_t* mutex) {
  act(self, options_.costs.lock);
  while (::pthread_mutex_trylock(mutex) != 0) {
    charge(self, options_.costs.sleep_call);
    settle(self);
    if (::pthread_mutex_trylock(mutex) == 0) return;
    block(self, mutex, kNever);
  }
}

void Machine::unlock(Thread& self, pthread_mutex_t* mutex) {
  act(self, options_.costs.lock);
  __real_pthread_mutex_unlock(mutex);
  if (std::any_of(sleepers_.begin(), sleepers_.end(), [&](const Thread* t) { return t->word == mutex; })) wake(self, mutex, 1);
}

// The system puts the thread on any other core, whether that is idle or not.
void Machine::leave_core(Thread& self) {
  act(self, options_.costs.leave_core);
  if (options_.cores < 2) return;
  const auto others = static_cast<std::uint64_t>(options_.cores - 1);
  const auto to = (static_cast<std::size_t>(self.core) + 1 + random_.below(others)) % cores_.size();
  Core& from = cores_[static_cast<std::size_t>(self.core)];
  self.state = Thread::State::kReady;
  switch_out(from);
  dispatch(from);
  enqueue(cores_[to], self);
  give_way(self);
}

pthread_t Machine::start_thread(Thread& self, void* (*body)(void*), void* argument) {
  self.spins = false;
  Thread& thread = add_thread(body, argument);
  thread.core = self.core;
  make_ready(thread, self.core);
  charge(self, options_.costs.thread_start);
  settle(self);
  return static_cast<pthread_t>(thread.id);
}

void Machine::await_end(Thread& self, pthread_t handle) {
  self.spins = false;
  settle(self);
  Thread& thread = *threads_[static_cast<std::size_t>(handle)];
  if (thread.state != Thread::State::kEnded) block(self, &thread, kNever);
}

void compute(std::uint64_t ns) {
  if (t_self != nullptr) return t_self->machine->compute(*t_self, ns);
  const std::uint64_t end = os::thread_time_ns() + ns;
  while (os::thread_time_ns() < end) {}
}

std::uint64_t now_without_price() { return t_self != nullptr ? t_self->machine->now() + t_self->ahead : os::now_ns(); }

void sleep_until(std::uint64_t time_ns) {
  if (t_self != nullptr) return t_self->machine->sleep_until(*t_self, time_ns);
  const timespec time{static_cast<std::time_t>(time_ns / 1'000'000'000), static_cast<long>(time_ns % 1'000'000'000)};
  ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);
}

}  // namespace evn::sim

// ------------------------------------------------------------------------------------------------------------- seam --

// The linker redirects calls of a function to __wrap_NAME. `simulated` is what a simulated thread does instead, with machine M and
// itself.
#define EVN_SEAM(Type, name, parameters, arguments, simulated) \
  extern "C" Type __real_##name parameters;                    \
  extern "C" Type __wrap_##name parameters {                   \
    evn::sim::Machine::Thread* const self = evn::sim::t_self;  \
    if (self == nullptr) return __real_##name arguments;       \
    [[maybe_unused]] evn::sim::Machine& m = *self->machine;    \
    return simulated;                                          \
  }

using Word = const std::uint32_t*;
EVN_SEAM(std::uint64_t, _ZN3evn2os6now_nsEv, (), (), m.look_at_clock(*self))
EVN_SEAM(std::uint64_t, _ZN3evn2os14thread_time_nsEv, (), (), m.cpu_time(*self))
EVN_SEAM(int, _ZN3evn2os12usable_coresEv, (), (), m.cores())
EVN_SEAM(void, _ZN3evn2os5relaxEv, (), (), m.relax(*self))
EVN_SEAM(int, _ZN3evn2os12current_coreEv, (), (), self->core)
EVN_SEAM(void, _ZN3evn2os10leave_coreEv, (), (), m.leave_core(*self))
EVN_SEAM(void, _ZN3evn2os10futex_waitEPKjj, (Word word, std::uint32_t expected), (word, expected),
         m.wait(*self, word, expected, UINT64_MAX))
EVN_SEAM(void, _ZN3evn2os14futex_wait_forEPKjjm, (Word word, std::uint32_t expected, std::uint64_t ns), (word, expected, ns),
         m.wait(*self, word, expected, ns))
EVN_SEAM(void, _ZN3evn2os14futex_wake_oneEPKj, (Word word), (word), m.wake(*self, word, 1))
EVN_SEAM(void, _ZN3evn2os14futex_wake_allEPKj, (Word word), (word), m.wake(*self, word, UINT64_MAX))
EVN_SEAM(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex), (m.lock(*self, mutex), 0))
EVN_SEAM(int, pthread_mutex_unlock, (pthread_mutex_t * mutex), (mutex), (m.unlock(*self, mutex), 0))
EVN_SEAM(int, pthread_create, (pthread_t * handle, const pthread_attr_t* attributes, void* (*body)(void*), void* argument),
         (handle, attributes, body, argument), (*handle = m.start_thread(*self, body, argument), 0))
EVN_SEAM(int, pthread_join, (pthread_t handle, void** result), (handle, result), (m.await_end(*self, handle), 0))
EVN_SEAM(int, pthread_detach, (pthread_t handle), (handle), 0)
EVN_SEAM(pthread_t, pthread_self, (), (), static_cast<pthread_t>(self->id))
