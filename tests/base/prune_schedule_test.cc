#include "base/prune_schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace evn {
namespace {

TEST(PruneSchedule, AnAdditionLooksAtFewEntriesHoweverManyAreAlive) {
  PruneSchedule schedule;
  std::vector<int> entries;
  std::size_t looked = 0;
  constexpr int kMany = 100'000;
  for (int i = 0; i < kMany; ++i) {
    schedule.prune(entries, [&](int) {
      ++looked;
      return false;
    });
    entries.push_back(i);
  }
  EXPECT_EQ(entries.size(), static_cast<std::size_t>(kMany));
  EXPECT_LE(looked, 2u * kMany);
}

TEST(PruneSchedule, EntriesThatAreGoneDoNotPileUp) {
  PruneSchedule schedule;
  std::vector<int> entries;
  for (int i = 0; i < 10'000; ++i) {
    schedule.prune(entries, [](int) { return true; });
    entries.push_back(i);
  }
  EXPECT_LE(entries.size(), 16u);
}

}  // namespace
}  // namespace evn
