#include "memory/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "base/cancel.h"
#include "base/error.h"
#include "memory/occupied.h"

namespace evn {
namespace {

void expect_disjoint(const std::vector<Lifetime>& values, std::size_t total) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].bytes == 0) continue;
    EXPECT_LE(values[i].offset + values[i].bytes, total);
    for (std::size_t k = 0; k < i; ++k) {
      const bool together = values[i].first <= values[k].last && values[k].first <= values[i].last;
      if (!together || values[k].bytes == 0) continue;
      const bool apart =
          values[i].offset + values[i].bytes <= values[k].offset || values[k].offset + values[k].bytes <= values[i].offset;
      EXPECT_TRUE(apart) << i << " and " << k << " overlap";
    }
  }
}

TEST(Planner, AChainNeedsTwoBuffers) {
  std::vector<Lifetime> v;
  for (int i = 0; i < 10; ++i) v.push_back({1024, i, i + 1});
  EXPECT_EQ(plan_arena(v, 64), 2048u);
  expect_disjoint(v, 2048);
}

TEST(Planner, ValuesThatNeverMeetShareBytes) {
  std::vector<Lifetime> v = {{100, 0, 1}, {5000, 2, 3}, {70, 4, 9}};
  EXPECT_EQ(plan_arena(v, 64), 5056u);
}

TEST(Planner, OffsetsAreAligned) {
  std::vector<Lifetime> v = {{1, 0, 5}, {3, 0, 5}, {200, 0, 5}};
  plan_arena(v, 128);
  for (const Lifetime& x : v) EXPECT_EQ(x.offset % 128, 0u);
}

TEST(Planner, EmptyValuesTakeNothing) {
  std::vector<Lifetime> v = {{0, 0, 5}, {0, 1, 2}};
  EXPECT_EQ(plan_arena(v, 64), 0u);
}

TEST(Planner, RandomLifetimesNeverOverlapAndStayNearTheLowerBound) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<Lifetime> v;
    for (int i = 0; i < 120; ++i) {
      const int first = static_cast<int>(random() % 100);
      v.push_back({random() % 10000, first, first + static_cast<int>(random() % 10)});
    }
    const std::size_t total = plan_arena(v, 64);
    expect_disjoint(v, total);
    std::size_t bound = 0;
    for (int t = 0; t < 120; ++t) {
      std::size_t live = 0;
      for (const Lifetime& x : v) live += x.first <= t && t <= x.last ? x.bytes : 0;
      bound = std::max(bound, live);
    }
    EXPECT_LE(total, bound + bound / 2);
  }
}

TEST(Planner, ASmallArenaIsNeverLargerAndOftenHasNoGap) {
  std::mt19937 random(11);
  int better = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<Lifetime> v;
    for (int i = 0; i < 40; ++i) {
      const int first = static_cast<int>(random() % 30);
      v.push_back({random() % 10000, first, first + static_cast<int>(random() % 10)});
    }
    std::vector<Lifetime> small = v;
    const std::size_t usual = plan_arena(v, 64);
    const std::size_t total = plan_small_arena(small, 64);
    expect_disjoint(small, total);
    EXPECT_LE(total, usual);
    better += total < usual;
  }
  EXPECT_GT(better, 10);
}

// The placement that OccupiedRanges must find: a scan of all values, each time.
std::size_t place_by_scan(std::vector<Lifetime>& values) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < values.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a].bytes > values[b].bytes; });
  std::vector<std::size_t> placed;
  std::size_t total = 0;
  for (const std::size_t id : order) {
    Lifetime& v = values[id];
    std::size_t top = 0, best = SIZE_MAX, gap = SIZE_MAX;
    for (const std::size_t other : placed) {
      const Lifetime& o = values[other];
      if (o.last < v.first || o.first > v.last) continue;
      if (o.offset >= top && o.offset - top >= v.bytes && o.offset - top < gap) {
        gap = o.offset - top;
        best = top;
      }
      top = std::max(top, o.offset + o.bytes);
    }
    v.offset = best != SIZE_MAX ? best : top;
    total = std::max(total, v.offset + v.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), id,
                                   [&](std::size_t a, std::size_t b) { return values[a].offset < values[b].offset; }),
                  id);
  }
  return total;
}

std::vector<Lifetime> random_lives(std::mt19937& random, int count, int longest, std::size_t most_bytes) {
  std::vector<Lifetime> values;
  for (int i = 0; i < count; ++i) {
    const int first = static_cast<int>(random() % static_cast<unsigned>(count));
    values.push_back(
        {(1 + random() % (most_bytes / 64)) * 64, first, first + static_cast<int>(random() % static_cast<unsigned>(longest))});
  }
  return values;
}

TEST(Planner, ManyValuesLieWhereAScanOfAllWouldPutThem) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    const int longest = std::array{3, 20, 200, 700}[static_cast<std::size_t>(round) % 4];
    std::vector<Lifetime> values = random_lives(random, 300 + round * 10, longest, round % 3 == 0 ? 128 : 10'000);
    std::vector<Lifetime> scanned = values;
    EXPECT_EQ(plan_arena(values, 64), place_by_scan(scanned));
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i].offset, scanned[i].offset) << round << " " << i;
  }
}

// Beyond what one list remembers, gaps are closed and searches end early; values must still be disjoint, and the arena small.
TEST(Planner, ThousandsOfLongLivesStayDisjointAndNearTheScan) {
  std::mt19937 random(3);
  std::vector<Lifetime> values = random_lives(random, 4000, 4000, 10'000);
  std::vector<Lifetime> scanned = values;
  const std::size_t total = plan_arena(values, 64), want = place_by_scan(scanned);
  expect_disjoint(values, total);
  EXPECT_LE(total, want + want / 50);
}

// The list of the period around two moments is full and closes all gaps; that of the whole plan is short and closes none.
TEST(Planner, ARangeInAGapThatAShorterPeriodClosedIsOccupiedInTheWholePlan) {
  OccupiedRanges occupied(4);
  occupied.add(2, 3, 1000, 40'000);
  for (std::size_t i = 0; i < 300; ++i) {
    occupied.add(0, 0, 100 * i, 100 * i + 40);
    occupied.add(1, 1, 100 * i + 50, 100 * i + 90);
  }
  const std::size_t placed = occupied.find_gap(0, 0, 10);
  ASSERT_EQ(placed, 40u);
  occupied.add(0, 0, placed, placed + 10);
  EXPECT_EQ(occupied.find_gap(0, 3, 10), 90u);
}

std::int64_t work_to_place(int count, bool small, int longest) {
  std::mt19937 random(9);
  std::vector<Lifetime> values = random_lives(random, count, longest, 10'000);
  const Cancel never;
  const CancelScope scope(never);
  small ? plan_small_arena(values, 64) : plan_arena(values, 64);
  return scope.work();
}

TEST(Planner, WorkGrowsWithTheNumberOfValues) {
  for (const int longest : {2, 30, 300}) {
    EXPECT_LE(work_to_place(8000, false, longest), 2.4 * static_cast<double>(work_to_place(4000, false, longest))) << longest;
  }
  std::vector<Lifetime> all_alive[2];
  std::int64_t work[2];
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 10'000 * (i + 1); ++k) all_alive[i].push_back({static_cast<std::size_t>(1 + k % 1000) * 64, k, 1 << 20});
    const Cancel never;
    const CancelScope scope(never);
    plan_arena(all_alive[i], 64);
    work[i] = scope.work();
  }
  EXPECT_LE(static_cast<double>(work[1]), 2.7 * static_cast<double>(work[0]));  // lists grow until they are full
}

TEST(Planner, StopsWhenItIsAsked) {
  std::atomic<bool> requested{true};
  Cancel cancel;
  cancel.requested = &requested;
  for (const bool small : {false, true}) {
    std::mt19937 random(9);
    std::vector<Lifetime> values = random_lives(random, 20'000, 50, 10'000);
    const CancelScope scope(cancel);
    EXPECT_THROW(small ? plan_small_arena(values, 64) : plan_arena(values, 64), Error);
    EXPECT_LE(scope.work(), 2 * kWorkPerLook);
  }
}

}  // namespace
}  // namespace evn
