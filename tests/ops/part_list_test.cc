#include "ops/infra/part_list.h"

#include <gtest/gtest.h>

#include <random>

#include "ops/host.h"

namespace evn {
namespace {

RuntimeValuePtr part() { return std::make_shared<const RuntimeValue>(); }

TEST(PartList, ChangesAnywhereAreThoseOfAVector) {
  std::mt19937 random(1);
  std::vector<RuntimeValuePtr> want;
  PartList list;
  std::vector<std::pair<PartList, std::vector<RuntimeValuePtr>>> earlier;
  for (int i = 0; i < 6000; ++i) {
    const bool grows = want.empty() || random() % 3 != 0;
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
  earlier.push_back({list, want});
  for (const auto& [l, w] : earlier) {  // lists that others were made of have not changed
    EXPECT_EQ(l.all(), w);
    std::size_t i = 0;
    for (const RuntimeValuePtr& p : l) {
      ASSERT_EQ(p, w[i]);
      ASSERT_EQ(p, l[i++]);
    }
    EXPECT_EQ(i, w.size());
  }
}

TEST(PartList, IsMadeOfAVector) {
  for (const std::size_t count : {0u, 1u, 255u, 256u, 257u, 1000u}) {
    std::vector<RuntimeValuePtr> parts(count);
    for (RuntimeValuePtr& p : parts) p = part();
    const PartList list = parts;
    EXPECT_EQ(list.all(), parts);
    EXPECT_EQ(list.empty(), count == 0);
    EXPECT_EQ(list.begin() == list.end(), count == 0);
  }
}

}  // namespace
}  // namespace evn
