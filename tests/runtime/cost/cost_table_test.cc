#include "runtime/objects/cost_table.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "tests/runtime/support.h"

namespace evn::test {
namespace {

TEST(CostTable, KeepsWhatWasMeasured) {
  CostTable t;
  EXPECT_FALSE(t.measured(1).has_value());
  EXPECT_FALSE(t.estimate({1, 2, 3, 4}).has_value());
  t.add({1, 7, 1000, 10}, 50);
  t.add({1, 7, 1000, 10}, 60);
  EXPECT_EQ(t.measured(1), 60);
  t.add({2, 7, 1000, 10}, HUGE_VAL);
  t.add({3, 7, 1000, 10}, -1);
  EXPECT_EQ(t.size(), 1u);
}

TEST(CostTable, BytesWithTimesThatNobodyMeasuresAreRefused) {
  for (const double latency : {1e300, 1e13, -1.0}) {
    CostTable t, u;
    t.upload = {latency, 0.5};
    t.has_copies = true;
    u.from_bytes(t.to_bytes());
    EXPECT_FALSE(u.has_copies) << latency;
  }
}

TEST(CostTable, EstimatesByTheNearestOfTheFamily) {
  CostTable t;
  t.add({1, 7, 1e6, 1e3}, 1000);
  t.add({2, 7, 1e9, 1e6}, 500'000);
  t.add({3, 8, 2e6, 2e3}, 9);
  EXPECT_NEAR(*t.estimate({9, 7, 2e6, 2e3}), 2000, 100);
  EXPECT_NEAR(*t.estimate({9, 7, 5e8, 5e5}), 250'000, 5000);
  // Of another family: what the best rates give, 2e6 operations and 2e3 bytes in 9 ns.
  EXPECT_NEAR(*t.estimate({9, 99, 4e6, 0}), 18, 0.01);
}

TEST(CostTable, BytesGiveItBack) {
  CostTable t;
  t.add({1, 7, 1e6, 1e3}, 1000);
  t.upload = {3, 0.5};
  t.download = {4, 0.25};
  t.submission_ns = 12;
  t.has_copies = true;
  CostTable u;
  const std::string bytes = t.to_bytes();
  u.from_bytes(bytes);
  EXPECT_EQ(u.measured(1), 1000);
  EXPECT_EQ(u.upload.of(10), 8);
  EXPECT_EQ(u.download.of(8), 6);
  EXPECT_EQ(u.submission_ns, 12);
  EXPECT_TRUE(u.has_copies);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    CostTable w;
    w.from_bytes(std::string_view(bytes).substr(0, cut));
    EXPECT_EQ(w.size(), 0u) << cut;
  }
}

TEST(CostTable, HostileBytesGiveNoTimesThatAreNone) {
  CostTable t;
  t.add({1, 7, 1e6, 1e3}, 1000);
  const std::string bytes = t.to_bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const char c : {'\xff', '\x00', '\x7f'}) {
      std::string changed = bytes;
      changed[i] = c;
      CostTable u;
      u.from_bytes(changed);
      EXPECT_LE(u.size(), 1u);
      const std::optional<double> ns = u.estimate({9, 7, 2e6, 2e3});
      if (ns) {
        EXPECT_GE(*ns, 0) << i;
      }
      EXPECT_GE(u.upload.of(1), 0);
      EXPECT_GE(u.submission_ns, 0);
    }
  }
}

TEST(CostTable, ProcessesShareAFolder) {
  std::string folder = (std::filesystem::temp_directory_path() / "evn-costs-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::shared_ptr<Runtime> runtime = make_runtime();
  CostTables first(folder);
  first.with(runtime->cpu(), [](CostTable& t) { t.add({1, 7, 1e6, 1e3}, 1000); });
  first.save(runtime->cpu());
  CostTables second(folder);
  EXPECT_EQ(second.with(runtime->cpu(), [](const CostTable& t) { return t.measured(1); }), 1000);
  second.forget(runtime->cpu());
  CostTables third(folder);
  EXPECT_EQ(third.with(runtime->cpu(), [](const CostTable& t) { return t.size(); }), 0u);
  std::filesystem::remove_all(folder);
  CostTables nowhere("");
  nowhere.save(runtime->cpu());
  EXPECT_EQ(nowhere.with(runtime->cpu(), [](const CostTable& t) { return t.size(); }), 0u);
}

}  // namespace
}  // namespace evn::test
