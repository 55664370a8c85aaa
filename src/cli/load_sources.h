// Where requests come from: for run_load, and its two ways to carry them out.
#pragma once

#include <csignal>
#include <cstdint>
#include <deque>
#include <vector>

#include "cli/load.h"

namespace evn::cli {

// A deterministic pseudo-random generator: SplitMix64.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  double uniform();  // in (0, 1]
  double exponential();

 private:
  std::uint64_t state_;
};

// Streams that share clients, or arrivals.
struct LoadSource {
  std::vector<std::size_t> targets;
  std::vector<double> shares;  // of each, and of those before it
  int clients = 0;
  double rate = 0;
  Dice dice{1};           // of arrivals
  Dice picks{1'000'000};  // of streams
  // While it runs:
  std::uint64_t next_ns = UINT64_MAX;  // the next arrival
  std::deque<std::uint64_t> waiting;   // arrivals for which no client is free
  int in_flight = 0;
  std::uint64_t pause_end_ns = 0;  // clients that were refused ask again then

  std::size_t pick(Dice& by) const;
  void draw_next() { next_ns += static_cast<std::uint64_t>(dice.exponential() / rate * 1e9); }
};

std::vector<LoadSource> sources_of(const LoadPlan& plan);

// While it lives, SIGINT asks for the end: the token of all runs is requested.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  evn_cancel token() const { return token_.get(); }
  bool came() const;
  void request() const;  // as if it had come

 private:
  Owner<evn_cancel, evn_cancel_release> token_;
  struct sigaction before_ {};
};

// A line on stderr each second where that is a terminal, else every 10 s.
class LoadProgress {
 public:
  explicit LoadProgress(double seconds);
  std::uint64_t next_ns() const { return next_ns_; }
  void say(std::uint64_t now_ns, std::uint64_t completed);

 private:
  const double seconds_;
  const std::uint64_t step_ns_;
  const std::uint64_t begin_ns_;
  std::uint64_t next_ns_;
  std::uint64_t last_ns_;
  std::uint64_t last_completed_ = 0;
};

evn_run_options options_of(const LoadTarget& target, std::uint64_t arrival_ns, const Interruption& interruption);

LoadOutcome run_submitted(const LoadPlan& plan, const Interruption& interruption);
LoadOutcome run_threads(const LoadPlan& plan, const Interruption& interruption);

}  // namespace evn::cli
