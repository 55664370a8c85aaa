#include "memory/planner.h"

#include <gtest/gtest.h>

#include <random>

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

}  // namespace
}  // namespace evn
