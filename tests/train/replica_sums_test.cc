// Sums of the gradients of several devices while these still compute.
#include "train/replica_sums.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/support/eventually.h"

namespace evn_train {
namespace {

struct ReplicaSumsTest : testing::Test {
  static constexpr std::size_t kReplicas = 3;
  const std::vector<std::size_t> sizes = {5, 10000, 1};
  std::vector<std::vector<std::vector<float>>> parts;
  std::vector<std::vector<float>> sums;
  std::array<std::atomic<int>, 3> summed{};
  std::optional<ReplicaSums> under_test;

  void SetUp() override {
    std::vector<std::vector<float*>> addresses(kReplicas);
    parts.resize(kReplicas);
    for (std::size_t r = 0; r < kReplicas; ++r) {
      for (const std::size_t size : sizes) {
        std::vector<float>& part = parts[r].emplace_back(size);
        for (std::size_t i = 0; i < size; ++i) part[i] = static_cast<float>((r + 1) * (i % 97)) / 7;
      }
      for (auto& part : parts[r]) addresses[r].push_back(part.data());
    }
    for (const std::size_t size : sizes) sums.emplace_back(size, -1.0f);
    under_test.emplace(addresses, sizes);
  }
  void begin(const std::vector<float>& weights) {
    for (auto& sum : sums) std::fill(sum.begin(), sum.end(), -1.0f);
    for (auto& s : summed) s = 0;
    std::vector<float*> to;
    for (auto& sum : sums) to.push_back(sum.data());
    under_test->begin(weights, to, [this](std::size_t g) { ++summed[g]; });
  }
  void expect_sum(std::size_t g, const std::vector<float>& weights) {
    EXPECT_EQ(summed[g], 1);
    for (std::size_t i = 0; i < sizes[g]; ++i) {
      float want = 0;
      for (std::size_t r = 0; r < kReplicas; ++r) {
        if (weights[r] > 0) want += weights[r] * parts[r][g][i];
      }
      ASSERT_EQ(sums[g][i], want) << g << ", " << i;
    }
  }
};

TEST_F(ReplicaSumsTest, SumsWhatIsCompleteBeforeTheEnd) {
  const std::vector<float> weights = {0.5f, 0.25f, 0.25f};
  begin(weights);
  for (std::size_t r = 0; r < kReplicas; ++r) under_test->ready(r, 1);
  under_test->ready(0, 1);  // a second time
  under_test->ready(0, 2);
  EXPECT_TRUE(evn::test::eventually([&] { return summed[1] == 1; }));
  EXPECT_EQ(summed[0] + summed[2], 0);
  for (std::size_t r = 0; r < kReplicas; ++r) under_test->all_ready(r);
  under_test->end();
  for (std::size_t g = 0; g < sizes.size(); ++g) expect_sum(g, weights);
}

TEST_F(ReplicaSumsTest, LeavesOutReplicasWithoutRows) {
  const std::vector<float> weights = {0, 1, 0};
  begin(weights);
  under_test->all_ready(1);
  under_test->end();
  for (std::size_t g = 0; g < sizes.size(); ++g) expect_sum(g, weights);
}

TEST_F(ReplicaSumsTest, BeginsAnewAfterAStepThatFailed) {
  begin({0.5f, 0.5f, 0});
  under_test->all_ready(0);
  under_test->end();
  for (const auto& s : summed) EXPECT_EQ(s, 0);
  const std::vector<float> weights = {0.25f, 0.25f, 0.5f};
  for (int step = 0; step < 50; ++step) {
    begin(weights);
    std::vector<std::thread> replicas;
    for (std::size_t r = 0; r < kReplicas; ++r) {
      replicas.emplace_back([&, r] {
        for (std::size_t g = 0; g < sizes.size(); ++g) under_test->ready(r, (g + r) % sizes.size());
      });
    }
    for (std::thread& t : replicas) t.join();
    under_test->end();
    for (std::size_t g = 0; g < sizes.size(); ++g) expect_sum(g, weights);
  }
}

}  // namespace
}  // namespace evn_train
