// Scheduler of runs and pool of threads on a simulated machine (tests/simulation/machine.h): starvation, priority inversion,
// lost wake-ups, fairness, for 2 to 64 cores, closed and open loops, and runs of 50 us to 500 ms. A test prints the seed of its
// load.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/scheduling_constants.h"
#include "tests/simulation/load.h"
#include "tests/support/sanitized.h"

namespace evn::sim {
namespace {

constexpr std::uint64_t kWorks[] = {50 * kMicrosecond, 500 * kMicrosecond, 5 * kMillisecond, 50 * kMillisecond, 500 * kMillisecond};

Machine::Options machine_of(int cores, std::uint64_t seed, double jitter = 0) {
  Machine::Options options;
  options.cores = cores;
  options.seed = seed;
  options.jitter = jitter;
  if (cores >= 16) options.costs.relax = 400;  // threads that spin look less often, which makes the simulation faster
  return options;
}

std::string describe(const Load& load, const Machine::Options& options) {
  char text[128];
  std::snprintf(text, sizeof text, "seed %llu, %d cores, %zu clients, run of %.3f ms",
                static_cast<unsigned long long>(options.seed), options.cores, load.clients.size(),
                static_cast<double>(load.clients[0].shape.work_ns()) * 1e-6);
  return text;
}

// Prints the load and its result.
Result simulate(const Load& load, const Machine::Options& options) {
  const Result result = execute(load, &options);
  std::printf("[          ] %s: %s\n", describe(load, options).c_str(), result.summary().c_str());
  std::fflush(stdout);
  return result;
}

class SchedulingSimulation : public testing::TestWithParam<int> {
 protected:
  int cores() const { return GetParam(); }
};

// Twice as many clients as cores, all alike. `rounds`: runs of each client, if all of them have the same share.
Load closed_loop(int cores, std::uint64_t work, std::uint64_t rounds) {
  Load load{cores, 2 * work * rounds, {}};
  for (int i = 0; i < 2 * cores; ++i) load.clients.push_back({.shape = RunShape::of(work)});
  return load;
}

// Throughput, relative to that of cores which are never idle.
double utilization(const Load& load, const Result& result) {
  const auto work = static_cast<double>(load.clients[0].shape.work_ns());
  return static_cast<double>(result.runs()) * work / (static_cast<double>(result.time_ns) * load.cores);
}

TEST_P(SchedulingSimulation, EqualClientsGetEqualSharesAndNoCoreIsFreeWhileARunWaits) {
  for (const std::uint64_t work : kWorks) {
    if (test::kIsSanitized && cores() == 64 && work > 5 * kMillisecond) break;
    const std::uint64_t rounds = work < kMillisecond ? 15 * kMillisecond / work : cores() < 16 ? 12 : 6;
    const Load load = closed_loop(cores(), work, rounds);
    const Machine::Options options = machine_of(cores(), 1 + work);
    const Result result = simulate(load, options);
    SCOPED_TRACE(describe(load, options));
    EXPECT_GE(result.fairness(), work < kMillisecond ? 0.9 : 0.98);
    EXPECT_LE(result.most_computing, static_cast<std::uint64_t>(cores()));
    EXPECT_LE(result.longest_waste_ns, 2500 * kMicrosecond);
    EXPECT_GE(utilization(load, result), work < kMillisecond ? 0.55 : 0.85);
    EXPECT_LE(result.wasted_ns * 50, work >= 5 * kMillisecond ? result.time_ns : 50 * result.time_ns);
  }
}

// Clients that do not return for a long time after a run: only a hand-over tells those that wait. The course of a load depends on
// chance: the median of seven seeds.
TEST_P(SchedulingSimulation, ACoreThatARunHasLeftGoesToARunThatWaits) {
  for (const std::uint64_t work : {500 * kMicrosecond, 5 * kMillisecond}) {
    Load load{cores(), 60 * work, {}};
    for (int i = 0; i < 3 * cores(); ++i) {
      const std::uint64_t begin = static_cast<std::uint64_t>(i) * work / 7;
      load.clients.push_back({.shape = RunShape::of(work), .interval_ns = 4 * work, .begin_ns = begin});
    }
    std::vector<std::uint64_t> shares;  // of the time in which a core was free while a run waited, in thousandths
    for (std::uint64_t seed = 11; seed < 18; ++seed) {
      const Machine::Options options = machine_of(cores(), seed + work);
      const Result result = simulate(load, options);
      SCOPED_TRACE(describe(load, options));
      EXPECT_LE(result.longest_waste_ns, scheduling::kFirstPollNs + 500 * kMicrosecond);
      shares.push_back(1000 * result.wasted_ns / result.time_ns);
    }
    EXPECT_LE(median_of(shares), work < kMillisecond ? 90u : 20u);
  }
}

TEST_P(SchedulingSimulation, ARunThatIsAloneHasTheHelpOfAllCores) {
  for (const std::uint64_t work : {5 * kMillisecond, 50 * kMillisecond, 500 * kMillisecond}) {
    Load load{cores(), 2 * work, {{.shape = RunShape::of(work)}}};
    const Machine::Options options = machine_of(cores(), 2 + work);
    const Result result = simulate(load, options);
    SCOPED_TRACE(describe(load, options));
    const RunShape& shape = load.clients[0].shape;
    const auto turns = static_cast<std::uint64_t>((shape.ranges + cores() - 1) / cores());
    const std::uint64_t ideal = static_cast<std::uint64_t>(shape.jobs) * (shape.serial_ns + turns * shape.range_ns);
    EXPECT_LE(result.clients[0].quantile(0.5), ideal + ideal / 4 + 200 * kMicrosecond);
  }
}

// Jobs of 40 us, each too short to be worth the move of a worker by itself.
TEST(SchedulingSimulationOfOneRun, AWorkerThatTheSystemLeavesOnItsCallersCoreMoves) {
  const RunShape shape{.serial_ns = 5 * kMicrosecond, .jobs = 30, .ranges = 8, .range_ns = 10 * kMicrosecond};
  const Load load{2, 3 * kSecond, {{.shape = shape, .host_ns = 500 * kMicrosecond}}};
  Machine::Options options = machine_of(2, 12);
  options.wakes_in_place = true;
  const Result result = simulate(load, options);
  const std::uint64_t ideal = static_cast<std::uint64_t>(shape.jobs) * (shape.serial_ns + shape.ranges * shape.range_ns / 2);
  EXPECT_LE(result.clients[0].quantile(0.5), ideal + ideal / 4);
}

// Clients whose requests arrive at random times and need 60 % of the cores.
TEST_P(SchedulingSimulation, RequestsThatArriveAtRandomTimesAreServedInTime) {
  for (const std::uint64_t work : kWorks) {
    if (test::kIsSanitized && cores() == 64 && work > 5 * kMillisecond) break;
    const std::uint64_t rounds = cores() < 16 ? 40 : cores() < 64 ? 10 : 5;
    Load load{cores(), std::max(rounds * work, 20 * kMillisecond), {}};
    for (int i = 0; i < 2 * cores(); ++i) load.clients.push_back({.shape = RunShape::of(work), .interval_ns = 2 * work * 10 / 6});
    const Machine::Options options = machine_of(cores(), 3 + work);
    const Result result = simulate(load, options);
    SCOPED_TRACE(describe(load, options));
    ClientResult all;
    for (const ClientResult& c : result.clients)
      all.latency_ns.insert(all.latency_ns.end(), c.latency_ns.begin(), c.latency_ns.end());
    EXPECT_LE(all.quantile(0.5), 3 * work + 4 * kMillisecond);
  }
}

TEST_P(SchedulingSimulation, AnUrgentRunWaitsForNoLongerThanARange) {
  Load load{cores(), 900 * kMillisecond / (cores() < 16 ? 1 : 3), {}};
  for (int i = 0; i < 2 * cores(); ++i) load.clients.push_back({.shape = RunShape::of(200 * kMillisecond)});
  const Client urgent{.shape = RunShape::of(10 * kMillisecond), .priority = 3, .interval_ns = 30 * kMillisecond};
  load.clients.push_back(urgent);
  for (const std::uint64_t seed : {4, 5, 6}) {
    if (test::kIsSanitized && cores() == 64 && seed > 4) break;
    const Machine::Options options = machine_of(cores(), seed);
    const Result result = simulate(load, options);
    SCOPED_TRACE(describe(load, options));
    const ClientResult& runs = result.clients.back();
    EXPECT_GE(runs.latency_ns.size(), 3u);
    EXPECT_LE(runs.most_waited_ns, load.clients[0].shape.range_ns + kMillisecond);
    EXPECT_LE(runs.quantile(0.5), urgent.shape.work_ns() + 3 * kMillisecond);
    // A thread that had been given a core when the urgent run came does one range after it has woken up.
    const std::size_t for_each = std::max<std::size_t>(2, static_cast<std::size_t>(cores()) / 8);
    EXPECT_LE(result.inverted_ranges, for_each * runs.latency_ns.size());
  }
}

// More urgent runs ask for every core all the time: the others compute for 10 ms in each second.
TEST_P(SchedulingSimulation, NoRunStarves) {
  Load load{cores(), 5 * kSecond, {}};
  const std::uint64_t work = cores() < 16 ? 8 * kMillisecond : 100 * kMillisecond;
  for (int i = 0; i < 2 * cores(); ++i) load.clients.push_back({.shape = RunShape::of(work), .priority = 1});
  const std::size_t more_urgent = load.clients.size();
  for (int i = 0; i < 3; ++i) load.clients.push_back({.shape = RunShape::of(15 * kMillisecond)});
  const Machine::Options options = machine_of(cores(), 7);
  const Result result = simulate(load, options);
  SCOPED_TRACE(describe(load, options));
  for (std::size_t i = more_urgent; i < load.clients.size(); ++i) {
    EXPECT_GE(result.clients[i].latency_ns.size(), 2u);
    EXPECT_LE(result.clients[i].most_waited_ns, 2 * kSecond + 3 * work);
  }
}

// Nobody comes or goes while one long urgent run computes: the run that waits finds the free cores by itself.
TEST_P(SchedulingSimulation, NoRunStarvesBesideALongOne) {
  Load load{cores(), 3500 * kMillisecond, {}};
  load.clients.push_back({.shape = {.ranges = cores(), .range_ns = 4 * kSecond}, .priority = 1});
  load.clients.push_back({.shape = RunShape::of(5 * kMillisecond), .begin_ns = 10 * kMillisecond});
  const Machine::Options options = machine_of(cores(), 7);
  const Result result = simulate(load, options);
  SCOPED_TRACE(describe(load, options));
  EXPECT_GE(result.clients[1].latency_ns.size(), 1u);
  EXPECT_LE(result.clients[1].most_waited_ns, 2 * kSecond);
}

// Runs with an earlier deadline go first, and runs without a deadline go last.
TEST_P(SchedulingSimulation, DeadlinesAreMetWhereTimeSuffices) {
  Load load{cores(), 300 * kMillisecond, {}};
  for (int i = 0; i < cores(); ++i) load.clients.push_back({.shape = RunShape::of(20 * kMillisecond)});
  for (int i = 0; i < cores(); ++i)
    load.clients.push_back(
        {.shape = RunShape::of(3 * kMillisecond), .interval_ns = 8 * kMillisecond, .deadline_ns = 30 * kMillisecond});
  const Machine::Options options = machine_of(cores(), 8);
  const Result result = simulate(load, options);
  SCOPED_TRACE(describe(load, options));
  std::uint64_t late = 0, met = 0;
  for (const ClientResult& c : result.clients) {
    late += c.late;
    met += c.latency_ns.size();
  }
  EXPECT_LE(late * 50, met);
}

INSTANTIATE_TEST_SUITE_P(Cores, SchedulingSimulation, testing::Values(2, 4, 8, 16, 64), testing::PrintToStringParamName());

// Loads of random clients, with delays at random calls of the machine. A lost wake-up ends the process, if nobody looks by himself,
// or leaves a core free until somebody looks.
TEST(SchedulingSimulationOfRandomLoads, NoWakeUpIsLost) {
  for (std::uint64_t seed = 1; seed <= (test::kIsSanitized ? 30 : 60); ++seed) {
    Random random(seed);
    const int cores = 1 << (1 + random.below(3));
    const bool has_priorities = seed % 2 == 0;
    Load load{cores, 60 * kMillisecond, {}};
    const auto count = 1 + random.below(static_cast<std::uint64_t>(3 * cores));
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t work = kWorks[random.below(3)] * (1 + random.below(4));
      load.clients.push_back({.shape = RunShape::of(work),
                              .priority = has_priorities ? static_cast<std::int32_t>(random.below(3)) : 0,
                              .interval_ns = random.below(2) * work * 3,
                              .host_ns = 1 + random.below(100 * kMicrosecond),
                              .begin_ns = random.below(10 * kMillisecond),
                              .deadline_ns = random.below(4) == 0 ? 20 * kMillisecond : 0});
    }
    const Machine::Options options = machine_of(cores, seed, 0.002);
    const Result result = simulate(load, options);
    SCOPED_TRACE(describe(load, options));
    if (has_priorities) continue;  // cores are left to the helpers of a more urgent run
    EXPECT_LE(result.longest_waste_ns, 8 * kMillisecond);
    EXPECT_LE(result.wasted_ns * 2, result.time_ns);
  }
}

TEST(SchedulingSimulationOfRandomLoads, TheSameSeedGivesTheSameResult) {
  const Load load = closed_loop(4, 500 * kMicrosecond, 10);
  const Machine::Options options = machine_of(4, 7, 0.01);
  const Result a = simulate(load, options), b = simulate(load, options);
  EXPECT_EQ(a.summary(), b.summary());
  EXPECT_EQ(a.machine.sleeps, b.machine.sleeps);
}

// Prints predictions for two cores beside measurements on the first two cores of this machine, which should be idle.
// docs/notes/scheduling.md
TEST(DISABLED_SchedulingPrediction, ForTwoCores) {
  struct Row {
    const char* name;
    Load load;
  };
  const auto closed = [](int clients, std::uint64_t work, std::uint64_t length) {
    Load load{2, length, {}};
    for (int i = 0; i < clients; ++i) load.clients.push_back({.shape = RunShape::of(work)});
    return load;
  };
  std::vector<Row> rows = {{"2 callers, runs of 70 us", closed(2, 70 * kMicrosecond, kSecond)},
                           {"4 callers, runs of 70 us", closed(4, 70 * kMicrosecond, kSecond)},
                           {"16 callers, runs of 70 us", closed(16, 70 * kMicrosecond, kSecond)},
                           {"4 callers, runs of 5 ms", closed(4, 5 * kMillisecond, 2 * kSecond)},
                           {"1 run of 200 ms; urgent: 10 ms", closed(1, 200 * kMillisecond, 3 * kSecond)}};
  rows.back().load.clients.push_back({.shape = RunShape::of(10 * kMillisecond), .priority = 3, .interval_ns = 60 * kMillisecond});
  const auto print = [](const char* name, const char* kind, const Result& result) {
    std::printf("%-32s %-9s %s; last client: p50 %.1f us\n", name, kind, result.summary().c_str(),
                static_cast<double>(result.clients.back().quantile(0.5)) * 1e-3);
    std::fflush(stdout);
  };
  for (const Row& row : rows) {
    const Machine::Options options = machine_of(2, 9);
    print(row.name, "simulated", execute(row.load, &options));
    print(row.name, "measured", execute(row.load, nullptr));
  }
}

}  // namespace
}  // namespace evn::sim
