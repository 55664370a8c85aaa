// The stable sort of little code, against std::stable_sort.
#include "base/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>

namespace evn {
namespace {

TEST(SortStably, GivesTheOrderOfTheStandard) {
  std::mt19937 random(1);
  for (std::size_t count = 0; count < 300; ++count) {
    std::vector<std::pair<int, std::size_t>> items;
    for (std::size_t i = 0; i < count; ++i) items.emplace_back(static_cast<int>(random() % (count / 3 + 1)), i);
    auto want = items;
    const auto less = [](const auto& a, const auto& b) { return a.first > b.first; };
    std::stable_sort(want.begin(), want.end(), less);
    sort_stably(items, less);
    ASSERT_EQ(items, want) << count;
  }
}

TEST(SortStably, MovesElements) {
  std::vector<std::string> words;
  std::vector<std::unique_ptr<int>> pointers;
  for (int i = 0; i < 100; ++i) {
    words.push_back(std::string(40, 'x') + std::to_string(i * 37 % 100 + 100));
    pointers.push_back(std::make_unique<int>(i * 37 % 100));
  }
  sort_stably(words);
  EXPECT_TRUE(std::is_sorted(words.begin(), words.end()));
  EXPECT_EQ(std::unique(words.begin(), words.end()), words.end());
  sort_stably(pointers, [](const auto& a, const auto& b) { return *a < *b; });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(*pointers[static_cast<std::size_t>(i)], i);
}

TEST(SortStably, LeavesTheElementsWhereTheComparisonThrows) {
  std::vector<int> items = {3, 1, 2};
  EXPECT_THROW(sort_stably(items, [](int, int) -> bool { throw std::runtime_error("stop"); }), std::runtime_error);
  EXPECT_EQ(items, (std::vector<int>{3, 1, 2}));
}

}  // namespace
}  // namespace evn
