#include "ops/infra/part_list.h"

#include <gtest/gtest.h>

#include <random>

#include "base/cancel.h"
#include "ops/host.h"

namespace evn {
namespace {

RuntimeValuePtr part() { return std::make_shared<const RuntimeValue>(); }

void expect_same(const PartList& list, const std::vector<RuntimeValuePtr>& want) {
  EXPECT_EQ(list.all(), want);
  std::size_t i = 0;
  for (const RuntimeValuePtr& p : list) {
    ASSERT_LT(i, want.size());
    ASSERT_EQ(p, want[i]);
    ASSERT_EQ(p, list[i++]);
  }
  EXPECT_EQ(i, want.size());
}

TEST(PartList, ChangesAnywhereAreThoseOfAVector) {
  std::mt19937 random(1);
  std::vector<RuntimeValuePtr> want;
  PartList list;
  std::vector<std::pair<PartList, std::vector<RuntimeValuePtr>>> earlier;
  for (int i = 0; i < 16000; ++i) {
    const unsigned grown = i / 4000 % 2 == 0 ? 4 : 1;  // of five changes: the list grows and shrinks in turns
    const bool grows = want.empty() || random() % 5 < grown;
    const std::size_t at = random() % 4 == 0 ? want.size() - (grows ? 0 : 1) : random() % (want.size() + (grows ? 1 : 0));
    if (grows) {
      RuntimeValuePtr p = part();
      want.insert(want.begin() + static_cast<std::ptrdiff_t>(at), p);
      list = list.with(at, std::move(p));
    } else {
      want.erase(want.begin() + static_cast<std::ptrdiff_t>(at));
      list = list.without(at);
    }
    ASSERT_EQ(list.size(), want.size());
    if (i % 1000 == 0) earlier.push_back({list, want});
  }
  while (!want.empty()) {
    want.erase(want.begin());
    list = list.without(0);
  }
  earlier.push_back({list, want});
  for (const auto& [l, w] : earlier) expect_same(l, w);  // lists that others were made of have not changed
}

// The work is counted in copied entries of nodes.
TEST(PartList, AnInsertCopiesOnePath) {
  constexpr std::size_t kInserts = 200'000;
  constexpr std::int64_t kMostPerInsert = 5 * 32;  // nodes of a path, entries of a node
  const RuntimeValuePtr p = part();
  Cancel cancel;
  cancel.deadline_ns = UINT64_MAX / 2;
  for (const bool in_middle : {false, true}) {
    const CancelScope scope(cancel);
    PartList list;
    for (std::size_t i = 0; i < kInserts; ++i) list = list.with(in_middle ? i / 2 : 0, p);
    EXPECT_EQ(list.size(), kInserts);
    EXPECT_GT(scope.work(), static_cast<std::int64_t>(kInserts));
    EXPECT_LT(scope.work(), kMostPerInsert * static_cast<std::int64_t>(kInserts));
    const std::int64_t before = scope.work();
    for (std::size_t i = 0; i < 1000; ++i) list = list.without(in_middle ? list.size() / 2 : 0);
    EXPECT_LT(scope.work() - before, kMostPerInsert * 1000);
  }
}

TEST(PartList, IsMadeOfAVector) {
  for (const std::size_t count : {0u, 1u, 31u, 32u, 33u, 1024u, 1025u, 40'000u}) {
    std::vector<RuntimeValuePtr> parts(count);
    for (RuntimeValuePtr& p : parts) p = part();
    const PartList list = parts;
    expect_same(list, parts);
    EXPECT_EQ(list.size(), count);
    EXPECT_EQ(list.empty(), count == 0);
    EXPECT_EQ(list.begin() == list.end(), count == 0);
  }
}

}  // namespace
}  // namespace evn
