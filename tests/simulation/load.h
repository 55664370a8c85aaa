// Loads for the scheduler of runs and the pool of threads: clients that run models again and again, in a closed or an open loop.
// A load executes on a simulated machine or, for comparison, on the real one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/run_scheduler.h"
#include "tests/simulation/machine.h"

namespace evn::sim {

inline constexpr std::uint64_t kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;

// A run: `jobs` times a serial part, and then ranges that the threads of a pool share.
struct RunShape {
  std::uint64_t serial_ns = 0;
  int jobs = 1;
  int ranges = 1;
  std::uint64_t range_ns = 0;

  std::uint64_t work_ns() const {
    return static_cast<std::uint64_t>(jobs) * (serial_ns + static_cast<std::uint64_t>(ranges) * range_ns);
  }
  // A run of that much work, of which a tenth is serial.
  static RunShape of(std::uint64_t work_ns);
};

struct Client {
  RunShape shape;
  std::int32_t priority = 0;
  std::uint64_t interval_ns = 0;  // mean of the time between arrivals, which are random; 0: a closed loop
  std::uint64_t host_ns = 2'000;  // work of the host between two runs
  std::uint64_t begin_ns = 0;     // of its first run
  std::uint64_t deadline_ns = 0;  // of a run, from its arrival; 0: none
};

struct Load {
  int cores = 2;
  std::uint64_t length_ns = kSecond;
  std::vector<Client> clients;
};

struct ClientResult {
  std::vector<std::uint64_t> latency_ns;  // of each run that has ended, in order
  std::uint64_t most_waited_ns = 0;       // longest time that a run has waited for cores
  std::uint64_t late = 0;                 // runs stopped by their deadlines
  std::uint64_t most_late_ns = 0;         // longest time between a deadline and the end of its run

  std::uint64_t quantile(double q) const;
};

struct Result {
  std::vector<ClientResult> clients;
  Machine::Counters machine;
  std::uint64_t time_ns = 0;
  std::uint64_t wasted_ns = 0;         // time during which a run waited although the scheduler had a core that was free
  std::uint64_t longest_waste_ns = 0;  // longest part of that without a break
  std::uint64_t inverted_ranges = 0;   // ranges that began while a run of a higher priority had computed for longer than a range
  std::uint64_t most_computing = 0;    // runs that had a core at a time

  ClientResult all() const;  // of all clients together
  double runs_per_second() const;
  // Jain's index of the clients' numbers of runs: 1 if all are equal, 1/n if one has everything.
  double fairness() const;
  std::string summary() const;
};

template <typename T>
T median_of(std::vector<T> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

// Times at which a client asks for runs.
struct Pace {
  std::uint64_t interval_ns = 0;  // as Client's
  std::uint64_t begin_ns = 0;
};

// Calls request(i, arrival) on a thread for each of `paces`, for the first time when all threads have been started and until
// `length_ns` later. `begin` is set to the time of the start. Returns the time from then on.
std::uint64_t execute_clients(const std::vector<Pace>& paces, std::uint64_t length_ns, std::uint64_t seed, std::uint64_t* begin,
                              const std::function<void(std::size_t, std::uint64_t)>& request);

// With `machine` null the load executes on the real machine.
Result execute(const Load& load, const Machine::Options* machine);

}  // namespace evn::sim
