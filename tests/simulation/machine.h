// Simulated machine: cores, an operating system's scheduler and a clock, all in virtual time. Production classes run on it
// unchanged.
//
// The seam is the boundary of the operating system. The linker redirects the calls of evn::os that read the clock, spin, sleep,
// wake or ask for a core, and pthread's mutexes and threads, to machine.cc (`--wrap`, cmake/tests.cmake). On a thread of the
// simulation they act in virtual time; on any other thread they call the original. The library itself is not changed.
//
// Simulated threads are fibers of one thread, with thread-local variables of their own. A thread executes in no time at all until
// it calls the machine; each call has a price in virtual time.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/simulation/fiber.h"

namespace evn::sim {

// Prices in nanoseconds of virtual time. Values of a Linux guest in a virtual machine.
struct Costs {
  std::uint64_t lock = 20;                 // mutex without contention
  std::uint64_t clock = 25;                // one look at the clock
  std::uint64_t relax = 25;                // one turn of a spinning thread
  std::uint64_t sleep_call = 1'000;        // system call that puts a thread to sleep
  std::uint64_t wake_call = 500;           // system call that wakes, without a sleeper
  std::uint64_t wake_thread = 2'500;       // addition for each thread that is woken, on the core of the waker
  std::uint64_t thread_start = 20'000;     // pthread_create
  std::uint64_t leave_core = 6'000;        // three system calls
  std::uint64_t idle_core = 40'000;        // from a wake-up to the first instruction on a core that has been idle for long
  std::uint64_t idle_shortly = 5'000;      // replaces `idle_core` on a core that has been idle for less than `polls`
  std::uint64_t polls = 50'000;            // length of time for which an idle core polls
  std::uint64_t switch_thread = 2'000;     // context switch
  std::uint64_t cold_cache = 20'000;       // extra work of a thread on a core that another thread has used
  std::uint64_t slice = 3'000'000;         // time slice, if another thread is ready on the core
  std::uint64_t least_slice = 750'000;     // time slice of a thread beside which another has just become ready
  std::int64_t wake_bonus = 1'500'000;     // head start of a thread that has slept
  std::int64_t wake_preempts = 1'000'000;  // difference of CPU time from which a woken thread preempts
  std::uint64_t balance = 4'000'000;       // interval at which an idle core takes a ready thread from another core
};

// Pseudo-random numbers (SplitMix64): the same on every system.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

class Machine {
 public:
  struct Options {
    int cores = 2;
    std::uint64_t seed = 1;
    double jitter = 0;  // probability of a delay of up to 30 us at each call of the machine; one delay in 50 takes 2 ms
    // The system wakes a thread on the core on which it slept, though another one is idle, and once in 300 times on that of the
    // thread that wakes it. Idle cores take no threads of others.
    bool wakes_in_place = false;
    Costs costs = {};
  };
  struct Counters {
    std::uint64_t sleeps = 0;
    std::uint64_t timeouts = 0;  // sleeps with a limit that nobody has ended
  };
  struct Thread;

  explicit Machine(const Options& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Executes `body` on the first simulated thread. Returns when all simulated threads have ended. Ends the process with a message
  // if all of them sleep and no time-out is pending.
  void run(std::function<void()> body);

  std::uint64_t now() const { return now_; }
  int cores() const { return options_.cores; }
  const Counters& counters() const { return counters_; }
  // Called with a length of virtual time that is about to pass, in which no thread executes.
  std::function<void(std::uint64_t)> on_advance;

  // -- Calls of the calling simulated thread ---------------------------------------------------------------------------------

  void compute(Thread& self, std::uint64_t ns);
  void sleep_until(Thread& self, std::uint64_t time);
  std::uint64_t look_at_clock(Thread& self);
  std::uint64_t cpu_time(Thread& self);
  void relax(Thread& self);
  void wait(Thread& self, const std::uint32_t* word, std::uint32_t expected, std::uint64_t timeout_ns);
  void wake(Thread& self, const void* word, std::uint64_t count);
  void lock(Thread& self, pthread_mutex_t* mutex);
  void unlock(Thread& self, pthread_mutex_t* mutex);
  void leave_core(Thread& self);
  pthread_t start_thread(Thread& self, void* (*body)(void*), void* argument);
  void await_end(Thread& self, pthread_t handle);

 private:
  struct Core;

  static void thread_main(void* thread);
  Thread& add_thread(void* (*body)(void*), void* argument);
  void charge(Thread& self, std::uint64_t ns);
  void settle(Thread& self);
  void act(Thread& self, std::uint64_t price_ns);
  void settle_later(Thread& self);
  void block(Thread& self, const void* word, std::uint64_t timeout_ns);
  void give_way(Thread& self);
  void end(Thread& self);
  Thread* next_to_execute();
  std::uint64_t next_visible_event(const Thread& self) const;
  void advance(std::uint64_t time);
  void make_ready(Thread& thread, int near);
  void enqueue(Core& core, Thread& thread);
  void switch_in(Core& core, Thread& thread, std::uint64_t latency);
  std::int64_t account(Core& core);
  void switch_out(Core& core);
  void dispatch(Core& core);
  void pull(Core& core);
  int choose_core(const Thread& thread, int near);
  [[noreturn]] void report_deadlock() const;

  const Options options_;
  Random random_;
  std::uint64_t now_ = 1'000'000'000;
  std::uint64_t visible_ = 0;  // next event that a spinning thread may see; 0: to be computed
  std::uint64_t queued_ = 0;   // ready threads without a core
  int alive_ = 0;
  std::vector<Core> cores_;
  Fiber host_;  // the thread that executes the fibers
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Thread*> sleepers_;  // on words, in order
  std::set<std::pair<std::uint64_t, int>> timers_;
  Counters counters_;
};

// For code that runs in virtual time on a simulated thread, and in real time on any other.
void compute(std::uint64_t ns);  // CPU time
void sleep_until(std::uint64_t time_ns);
std::uint64_t now_without_price();  // for measurements: a look at the clock that takes no virtual time

}  // namespace evn::sim
