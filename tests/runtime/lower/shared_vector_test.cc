// Lists of plans, which their copies share: each shows its own changes alone, and a change of a long list copies little of it.
#include "runtime/lower/shared_vector.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/fault.h"

namespace evn {
namespace {

struct Large {
  std::int64_t value = 0;
  std::int64_t more[30] = {};
};

template <typename List>
void expect_same(const List& list, const std::vector<std::int64_t>& want) {
  ASSERT_EQ(list.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_EQ(list[i].value, want[i]) << i;
}

TEST(SharedVector, CopiesDoNotShowEachOthersChanges) {
  std::mt19937 random(1);
  struct Copy {
    SharedVector<Large> list;
    std::vector<std::int64_t> want;
  };
  std::vector<Copy> copies(1);
  for (std::int64_t i = 1; i < 40'000; ++i) {
    Copy& c = copies[random() % copies.size()];
    const unsigned what = random() % 100;
    if (what == 0 && copies.size() < 8) {
      copies.push_back(Copy(c));
    } else if (c.want.empty() || what < 50) {
      c.list.push_back({i, {}});
      c.want.push_back(i);
    } else {
      const std::size_t at = random() % c.want.size();
      c.list[at].value = c.want[at] = i;
    }
  }
  EXPECT_EQ(copies.size(), 8u);
  for (const Copy& c : copies) expect_same(c.list, c.want);
}

TEST(SharedVector, IsOfOneValueAtFirst) {
  for (const std::size_t count : {0u, 1u, 7u, 8u, 9u, 256u, 257u, 10'000u}) {
    SharedVector<Large> list;
    list.assign(count, {5, {}});
    expect_same(list, std::vector<std::int64_t>(count, 5));
    EXPECT_EQ(list.empty(), count == 0);
    list.push_back({6, {}});
    EXPECT_EQ(list[count].value, 6);
  }
}

TEST(SharedVector, AChangeCopiesOnePath) {
  SharedVector<std::int64_t> list;
  list.assign(1'000'000, 0);
  const SharedVector<std::int64_t> before = list;
  fault_count_reset(Seam::kAlloc);
  list[500'000] = 1;
  const std::int64_t first = fault_count(Seam::kAlloc);
  for (int i = 0; i < 100; ++i) list[500'000 + static_cast<std::size_t>(i) % 4] = 2;  // in the same block
  const std::int64_t all = fault_count(Seam::kAlloc);
  fault_arm(Seam::kAlloc, 0, false);
  EXPECT_GE(first, 1);
  EXPECT_LE(first, 5);
  EXPECT_EQ(all, first);
  EXPECT_EQ(before[500'000], 0);
}

}  // namespace
}  // namespace evn
