// Load on sessions: clients that ask again when they have been answered, and arrivals at a rate, over one model or several.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/latency.h"
#include "cli/library.h"
#include "cli/load_mix.h"
#include "cli/outputs.h"

namespace evn::cli {

// A stream, ready to run.
struct LoadTarget {
  LoadStream stream;
  std::string name;  // of the model's file
  std::shared_ptr<const RunArguments> arguments;
};

struct LoadPlan {
  std::vector<LoadTarget> targets;
  int clients =
      0;  // of the streams that have no load of their own; with a rate: the most of their requests at a time, 0: any number
  double rate = 0;  // of these, requests per second; 0: each client asks again at once
  double seconds = 10;
  bool sync = false;  // by evn_session_run on a thread for each client, not by evn_session_submit
};

struct LoadResult {
  Latencies latencies;  // of those that completed, from their arrival on
  std::uint64_t completed = 0;
  std::uint64_t busy = 0;
  std::uint64_t late = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t failed = 0;
  std::uint64_t unfinished = 0;  // had not ended long after the last arrival
  std::string first_error;       // of those that failed

  // Counts a request that has ended with this status.
  void add(evn_status status, const evn_error& error, std::uint64_t latency_ns);
  void add(const LoadResult& other);
};

struct LoadOutcome {
  std::vector<LoadResult> results;  // per target
  double seconds = 0;               // from the first arrival to the last end
  bool interrupted = false;
};

// Runs until the time is over, or until SIGINT. Says on stderr how it goes on.
LoadOutcome run_load(const LoadPlan& plan);

std::uint64_t monotonic_ns();

}  // namespace evn::cli
