// Sums over ranks within a run: all ranks must be at the same node. One rank is the test's; the numbers of the others are added by
// its all-reduce.
#include "train/rank_sums.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace evn_train {
namespace {

struct RankSumsTest : testing::Test {
  static constexpr std::size_t kElements = 3;

  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  bool records = false;          // the call is another rank's
  std::vector<float> of_others;  // sums of the calls of other ranks
  std::optional<Ranks> ranks;
  std::optional<RankSums> sums;

  static evn_status reduce(void* context, void* data, uint64_t count, evn_dtype, evn_error*) {
    auto& test = *static_cast<RankSumsTest*>(context);
    auto* const numbers = static_cast<float*>(data);
    test.of_others.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (test.records) test.of_others[i] += numbers[i];
      else numbers[i] += test.of_others[i];
    }
    return EVN_OK;
  }

  void SetUp() override {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 1;
    ASSERT_EQ(evn_runtime_create(&options, &runtime, &error), EVN_OK) << error.message;
  }
  void TearDown() override {
    sums.reset();
    evn_runtime_release(runtime);
  }

  // Calls the sum for node `own` in one rank and for the node of each of `others` in another. Returns the status.
  evn_status sum(std::int64_t own, const std::vector<std::int64_t>& others) {
    Settings settings;
    settings.given = EVN_TRAINER_OPTIONS_INIT;
    settings.given.reduce = reduce;
    settings.given.reduce_context = this;
    settings.given.rank_count = static_cast<std::uint32_t>(1 + others.size());
    sums.reset();
    ranks.emplace(settings);
    sums.emplace(runtime, *ranks, kElements);
    of_others.clear();
    const float from[kElements] = {1, 2, 3};
    float to[kElements] = {};
    records = true;
    for (const std::int64_t number : others) {
      sums->begin();
      error_of([&] { sums->sum(number, from, to, kElements); });  // its numbers are of one rank alone
    }
    records = false;
    sums->begin();
    const std::optional<evn::Error> failed = error_of([&] { sums->sum(own, from, to, kElements); });
    if (!failed) {
      for (std::size_t i = 0; i < kElements; ++i) EXPECT_EQ(to[i], from[i] * static_cast<float>(1 + others.size()));
      return EVN_OK;
    }
    const std::optional<evn::Error> next = error_of([&] { sums->sum(own, from, to, kElements); });
    EXPECT_EQ(next ? next->status : EVN_OK, EVN_ERROR_WRONG_STATE);  // a rank that has failed goes on with no other sum
    return failed->status;
  }
};

TEST_F(RankSumsTest, RanksAtOneNodeSum) {
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{1}, std::int64_t{4097}, std::int64_t{0xffffffff}}) {
    EXPECT_EQ(sum(number, {number}), EVN_OK) << number;
    EXPECT_EQ(sum(number, {number, number, number}), EVN_OK) << number;
  }
}

TEST_F(RankSumsTest, RanksAtDifferentNodesFail) {
  EXPECT_EQ(sum(0, {1}), EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(sum(7, {6}), EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(sum(0x12, {0x21}), EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(sum(5, {5, 0x10005}), EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(sum(2, {1, 3}), EVN_ERROR_WRONG_STATE);  // whose mean is the own number
}

}  // namespace
}  // namespace evn_train
