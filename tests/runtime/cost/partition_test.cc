#include "runtime/cost/partition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/cancel.h"
#include "base/error.h"

namespace evn::test {
namespace {

constexpr double kInf = HUGE_VAL;

// A chain of nodes, each of which reads what the one before it makes; value 0 is the model's input.
PartitionProblem chain(const std::vector<std::vector<double>>& times, double bytes, CopyCost copy) {
  PartitionProblem p;
  const std::size_t n = times[0].size();
  for (std::size_t i = 0; i < n; ++i) p.nodes.push_back({{static_cast<int>(i)}, {static_cast<int>(i) + 1}});
  p.value_bytes.assign(n + 1, bytes);
  p.outputs = {static_cast<int>(n)};
  for (const std::vector<double>& ns : times) {
    PartitionProblem::Device& d = p.devices.emplace_back();
    d.ns = ns;
    for (std::size_t i = 0; i < n; ++i) d.first_of.push_back(static_cast<int>(i));
    if (p.devices.size() > 1) d.upload = d.download = copy;
  }
  return p;
}

// The least total of all placements.
double least(const PartitionProblem& p) {
  const std::size_t n = p.nodes.size(), devices = p.devices.size();
  Places places(n);
  double best = kInf;
  for (;;) {
    best = std::min(best, evaluate(p, places).total);
    std::size_t i = 0;
    while (i < n && ++places[i] == static_cast<int>(devices)) places[i++] = 0;
    if (i == n) return best;
  }
}

TEST(Partition, CostsAreStepsAndCopies) {
  const PartitionProblem p = chain({{10, 20, 30}, {1, 2, 3}}, 100, {5, 0.01});
  EXPECT_EQ(evaluate(p, {0, 0, 0}).total, 60);
  const PartitionCost mixed = evaluate(p, {0, 1, 0});
  EXPECT_EQ(mixed.total, 10 + 2 + 30 + 6 + 6);
  EXPECT_EQ(mixed.busy, (std::vector<double>{40, 14}));
  EXPECT_EQ(mixed.of(Objective::kThroughput, true), 40);
  EXPECT_EQ(evaluate(p, {1, 1, 1}).total, 6 + 6 + 6);
}

TEST(Partition, WhatIsReadInPlaceCostsTheLatencyAlone) {
  PartitionProblem p = chain({{10, 20, 30}, {1, 2, 3}, {1, 2, 3}}, 1000, {5, 0.01});
  p.devices[1].in_place = {true, false, false, false};
  EXPECT_EQ(evaluate(p, {1, 1, 1}).total, 5 + 6 + 15);
  EXPECT_EQ(evaluate(p, {2, 2, 2}).total, 15 + 6 + 15);
  EXPECT_EQ(best_segments(p), (Places{1, 1, 1}));
  p.devices[2].in_place.swap(p.devices[1].in_place);
  EXPECT_EQ(best_segments(p), (Places{2, 2, 2}));
}

TEST(Partition, AValueIsCopiedToADeviceOnce) {
  PartitionProblem p = chain({{10, 10, 10}, {1, 1, 1}}, 100, {5, 0});
  p.nodes[2].reads = {0, 2};  // the input again
  EXPECT_EQ(evaluate(p, {1, 1, 1}).total, 3 + 5 + 5);
}

TEST(Partition, BetweenTwoDevicesGoesByWayOfTheHost) {
  const PartitionProblem p = chain({{9, 9}, {1, 9}, {9, 1}}, 0, {2, 0});
  EXPECT_EQ(evaluate(p, {1, 2}).total, 2 + 1 + 2 + 2 + 1 + 2);
}

TEST(Partition, ANodeOfAStepThatIsTornApartTakesTheStepsTime) {
  PartitionProblem p = chain({{10, 0}, {8, 0}}, 0, {0, 0});
  for (PartitionProblem::Device& d : p.devices) d.first_of = {0, 0};
  EXPECT_EQ(evaluate(p, {1, 1}).total, 8);
  EXPECT_EQ(evaluate(p, {1, 0}).total, 8 + 10);
  EXPECT_EQ(best_segments(p), (Places{1, 1}));
}

TEST(Partition, CheapCopiesGiveEachNodeItsFastestDevice) {
  const PartitionProblem p = chain({{1, 9, 1, 9}, {9, 1, 9, 1}}, 1, {0.1, 0});
  EXPECT_EQ(best_segments(p), (Places{0, 1, 0, 1}));
  EXPECT_EQ(improve(p, {0, 0, 0, 0}, Objective::kLatency), (Places{0, 1, 0, 1}));
}

TEST(Partition, DearCopiesKeepAllOnOneDevice) {
  const PartitionProblem p = chain({{1, 9, 1, 9}, {9, 1, 9, 1}}, 1, {50, 0});
  EXPECT_EQ(best_segments(p), (Places{0, 0, 0, 0}));
}

TEST(Partition, NodesGoWhereTheyCan) {
  const PartitionProblem p = chain({{100, kInf, 100}, {1, 50, kInf}}, 1, {5, 0});
  EXPECT_EQ(best_segments(p), (Places{1, 1, 0}));
  const PartitionProblem none = chain({{1, kInf}, {1, kInf}}, 1, {5, 0});
  EXPECT_TRUE(best_segments(none).empty());
}

// Two chains that do not depend on each other, and their sum.
TEST(Partition, BranchesOnTwoDevicesEndTogether) {
  PartitionProblem p = chain({{10, 10, 10, 10, 1}, {10, 10, 10, 10, 1}}, 0, {1, 0});
  p.nodes[2].reads = {0};
  p.nodes[4].reads = {2, 4};
  const PartitionCost both = evaluate(p, {1, 1, 0, 0, 0});
  EXPECT_EQ(both.total, 41 + 2);
  EXPECT_EQ(both.end, 1 + 20 + 1 + 1);  // in, the longer branch, out, the sum
  EXPECT_EQ(both.of(Objective::kLatency, true), both.end);
  EXPECT_EQ(both.of(Objective::kLatency, false), both.total);
  EXPECT_EQ(evaluate(p, improve(p, {0, 0, 0, 0, 0}, Objective::kLatency, true)).end, 23);
  EXPECT_EQ(improve(p, {0, 0, 0, 0, 0}, Objective::kLatency, false), (Places{0, 0, 0, 0, 0}));
}

TEST(Partition, ThroughputSharesTheWork) {
  const PartitionProblem p = chain({{10, 10, 10, 10}, {10, 10, 10, 10}}, 1, {1, 0});
  EXPECT_EQ(evaluate(p, improve(p, {0, 0, 0, 0}, Objective::kLatency)).total, 40);
  EXPECT_LE(evaluate(p, improve(p, {0, 0, 0, 0}, Objective::kThroughput)).of(Objective::kThroughput, true), 22);
}

// Of chains the dynamic program is optimal; with skip connections, which cross several cuts, what improves it comes close.
TEST(Partition, FindsTheBestOfSmallRandomProblems) {
  std::mt19937 random(7);
  const auto draw = [&](int most) { return static_cast<double>(random() % static_cast<unsigned>(most) + 1); };
  int best_with_skips = 0;
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<std::vector<double>> times(trial % 2 == 0 ? 2 : 3);
    for (auto& device : times) {
      for (int i = 0; i < 7; ++i) device.push_back(draw(100));
    }
    PartitionProblem p = chain(times, draw(40), {draw(20), 0.5});
    EXPECT_NEAR(evaluate(p, best_segments(p)).total, least(p), 1e-9) << trial;
    p.nodes[4].reads.push_back(2);
    p.nodes[6].reads.push_back(1);
    const double found = evaluate(p, improve(p, best_segments(p), Objective::kLatency, false)).total;
    EXPECT_LE(found, 1.15 * least(p)) << trial;
    best_with_skips += found <= least(p) + 1e-9 ? 1 : 0;
  }
  EXPECT_GE(best_with_skips, 50);
}

template <typename F>
std::int64_t work_of(F&& search) {
  const Cancel never;
  const CancelScope scope(never);
  search();
  return scope.work();
}

TEST(Partition, EachLookAtANodeCountsAsWork) {
  const auto chain_of = [](std::size_t n) {
    const std::vector<double> times(n, 1);
    return chain({times, times}, 1, {50, 0});
  };
  const PartitionProblem small = chain_of(500), large = chain_of(1000);
  const Places here(500), there(1000);
  const std::int64_t once = work_of([&] { evaluate(small, here); }), twice = work_of([&] { evaluate(large, there); });
  EXPECT_GE(once, 500);
  EXPECT_LE(twice, 2 * once + 10);
  // Parts of each length are tried at all their places, and each trial looks at all nodes.
  EXPECT_GE(work_of([&] { improve(large, there, Objective::kLatency); }), 1000 * 1000);
}

TEST(Partition, ASearchStopsWhenItIsAsked) {
  const std::vector<double> times(4000, 1);
  const PartitionProblem p = chain({times, times}, 1, {50, 0});
  std::atomic<bool> requested{true};
  Cancel cancel;
  cancel.requested = &requested;
  const CancelScope scope(cancel);
  EXPECT_THROW(improve(p, Places(4000), Objective::kLatency), Error);
  EXPECT_LE(scope.work(), 2 * kWorkPerLook);
}

}  // namespace
}  // namespace evn::test
