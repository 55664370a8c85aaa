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
  Machine::Options options{.cores = cores, .seed = seed, .jitter = jitter};
  if (cores >= 16) options.costs.relax = 400;  // threads that spin look less often, which makes the simulation faster
  return options;
}

// Prints the load and its result: of an expectation that fails, the load is the last one printed before.
Result simulate(const Load& load, const Machine::Options& options) {
  const Result result = execute(load, &options);
  std::printf("[          ] seed %llu, %d cores, %zu clients, run of %.3f ms: %s\n", static_cast<unsigned long long>(options.seed),
              load.cores, load.clients.size(), static_cast<double>(load.clients[0].shape.work_ns()) * 1e-6,
              result.summary().c_str());
  std::fflush(stdout);
  return result;
}
Result simulate(const Load& load, std::uint64_t seed, double jitter = 0) {
  return simulate(load, machine_of(load.cores, seed, jitter));
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

TEST_P(SchedulingSimulation, EqualClientsGetEqualSharesAndNoCoreIsFreeWhileARunWaits) {
  for (const std::uint64_t work : kWorks) {
    const std::uint64_t rounds = work < kMillisecond ? 15 * kMillisecond / work : cores() < 16 ? 12 : 6;
    const Load load = closed_loop(cores(), work, rounds);
    const Result result = simulate(load, 1 + work);
    EXPECT_GE(result.fairness(), work < kMillisecond ? 0.9 : 0.98);
    EXPECT_LE(result.most_computing, static_cast<std::uint64_t>(cores()));
    EXPECT_LE(result.longest_waste_ns, 2500 * kMicrosecond);
    const double used = result.runs_per_second() * static_cast<double>(load.clients[0].shape.work_ns()) * 1e-9 / cores();
    EXPECT_GE(used, work < kMillisecond ? 0.55 : 0.85);
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
      const Result result = simulate(load, seed + work);
      EXPECT_LE(result.longest_waste_ns, scheduling::kFirstPollNs + 500 * kMicrosecond);
      shares.push_back(1000 * result.wasted_ns / result.time_ns);
    }
    EXPECT_LE(median_of(shares), work < kMillisecond ? 90u : 20u);
  }
}

TEST_P(SchedulingSimulation, ARunThatIsAloneHasTheHelpOfAllCores) {
  for (const std::uint64_t work : {5 * kMillisecond, 50 * kMillisecond, 500 * kMillisecond}) {
    Load load{cores(), 2 * work, {{.shape = RunShape::of(work)}}};
    const Result result = simulate(load, 2 + work);
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
    const std::uint64_t rounds = cores() < 16 ? 40 : cores() < 64 ? 10 : 5;
    Load load{cores(), std::max(rounds * work, 20 * kMillisecond), {}};
    for (int i = 0; i < 2 * cores(); ++i) load.clients.push_back({.shape = RunShape::of(work), .interval_ns = 2 * work * 10 / 6});
    EXPECT_LE(simulate(load, 3 + work).all().quantile(0.5), 3 * work + 4 * kMillisecond);
  }
}

TEST_P(SchedulingSimulation, AnUrgentRunWaitsForNoLongerThanARange) {
  Load load{cores(), 900 * kMillisecond / (cores() < 16 ? 1 : 3), {}};
  for (int i = 0; i < 2 * cores(); ++i) load.clients.push_back({.shape = RunShape::of(200 * kMillisecond)});
  const Client urgent{.shape = RunShape::of(10 * kMillisecond), .priority = 3, .interval_ns = 30 * kMillisecond};
  load.clients.push_back(urgent);
  for (const std::uint64_t seed : {4, 5, 6}) {
    const Result result = simulate(load, seed);
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
  const Result result = simulate(load, 7);
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
  const Result result = simulate(load, 7);
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
  const ClientResult all = simulate(load, 8).all();
  EXPECT_LE(all.late * 50, all.latency_ns.size());
}

INSTANTIATE_TEST_SUITE_P(Cores, SchedulingSimulation,
                         testing::ValuesIn(test::kIsSanitized ? std::vector<int>{2, 8} : std::vector<int>{2, 4, 8, 16, 64}),
                         testing::PrintToStringParamName());

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
    const Result result = simulate(load, seed, 0.002);
    if (has_priorities) continue;  // cores are left to the helpers of a more urgent run
    EXPECT_LE(result.longest_waste_ns, 8 * kMillisecond);
    EXPECT_LE(result.wasted_ns * 2, result.time_ns);
  }
}

TEST(SchedulingSimulationOfRandomLoads, TheSameSeedGivesTheSameResult) {
  const Load load = closed_loop(4, 500 * kMicrosecond, 10);
  const Result a = simulate(load, 7, 0.01), b = simulate(load, 7, 0.01);
  EXPECT_EQ(a.summary(), b.summary());
  EXPECT_EQ(a.machine.sleeps, b.machine.sleeps);
}

// Prints predictions for two cores beside measurements on the first two cores of this machine, which should be idle.
// docs/notes/scheduling.md
TEST(DISABLED_SchedulingPrediction, ForTwoCores) {
  const auto compare = [](const char* name, int clients, std::uint64_t work, std::uint64_t length,
                          const std::vector<Client>& urgent = {}) {
    Load load{2, length, std::vector<Client>(static_cast<std::size_t>(clients), {.shape = RunShape::of(work)})};
    load.clients.insert(load.clients.end(), urgent.begin(), urgent.end());
    const Machine::Options options = machine_of(2, 9);
    for (const Machine::Options* machine : {&options, static_cast<const Machine::Options*>(nullptr)}) {
      const Result result = execute(load, machine);
      std::printf("%-32s %-9s %s; last client: p50 %.1f us\n", name, machine != nullptr ? "simulated" : "measured",
                  result.summary().c_str(), static_cast<double>(result.clients.back().quantile(0.5)) * 1e-3);
      std::fflush(stdout);
    }
  };
  compare("2 callers, runs of 70 us", 2, 70 * kMicrosecond, kSecond);
  compare("4 callers, runs of 70 us", 4, 70 * kMicrosecond, kSecond);
  compare("16 callers, runs of 70 us", 16, 70 * kMicrosecond, kSecond);
  compare("4 callers, runs of 5 ms", 4, 5 * kMillisecond, 2 * kSecond);
  const Client urgent{.shape = RunShape::of(10 * kMillisecond), .priority = 3, .interval_ns = 60 * kMillisecond};
  compare("1 run of 200 ms; urgent: 10 ms", 1, 200 * kMillisecond, 3 * kSecond, {urgent});
}

}  // namespace
}  // namespace evn::sim
