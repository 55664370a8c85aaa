// How many rows batches get, for costs that are told: nothing is measured.
#include "runtime/batch/batch_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

namespace evn {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

// The size that most batches have in the end, if as many requests wait as a batch takes (batch/gathering.h). The cost is that of a
// batch. `each`: rows of a request.
std::int64_t settle(BatchSizes& sizes, const std::function<std::uint64_t(std::int64_t)>& cost, std::int64_t each = 1,
                    std::int64_t max_batch = 32) {
  std::map<std::int64_t, int> seen;
  for (int i = 0; i < 20'000; ++i) {
    const std::int64_t requests = (sizes.most_rows() + each - 1) / each, fit = max_batch / each;
    const std::int64_t rows = std::min(requests, fit) * each;
    sizes.note(rows, cost(rows));
    if (i >= 10'000) ++seen[rows];
  }
  return std::max_element(seen.begin(), seen.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
}

std::uint64_t weights_once(std::int64_t rows) { return 6 * kMs + static_cast<std::uint64_t>(rows) * kMs / 2; }
std::uint64_t by_the_row(std::int64_t rows) { return 20 * kMs * static_cast<std::uint64_t>(rows); }
// Up to four rows are cheaper together, more are not.
std::uint64_t up_to_four(std::int64_t rows) {
  const auto n = static_cast<std::uint64_t>(rows);
  return n * (n < 4 ? 4 - n / 2 : 2) * kMs;
}

TEST(BatchSizes, AsManyRowsAsThereAreWhereThatMakesARowCheaper) {
  BatchSizes sizes(16, 6 * kMs);
  EXPECT_EQ(sizes.most_rows(), 1);
  EXPECT_EQ(settle(sizes, weights_once), 16);
}

TEST(BatchSizes, OneRowWhereMoreGainNothing) {
  BatchSizes sizes(16, 20 * kMs);
  EXPECT_EQ(settle(sizes, by_the_row), 1);
}

TEST(BatchSizes, NoMoreThanGainSomething) {
  BatchSizes sizes(64, 6 * kMs);
  EXPECT_EQ(settle(sizes, up_to_four), 4);
}

TEST(BatchSizes, AnyNumberMayBeTheLargest) {
  BatchSizes sizes(12, 6 * kMs);
  EXPECT_EQ(settle(sizes, weights_once), 12);
}

// Sizes below four are never seen, and larger ones are tried all the same.
TEST(BatchSizes, RequestsOfFourRowsAreJoinedIfThatMakesARowCheaper) {
  BatchSizes sizes(32, 6 * kMs);
  EXPECT_EQ(settle(sizes, weights_once, 4), 32);
  EXPECT_GT(sizes.most_rows(), 4);
}

TEST(BatchSizes, RequestsOfAnyNumberOfRowsAreJoinedIfThatMakesARowCheaper) {
  for (const std::int64_t each : {3, 5, 6, 7, 9, 15}) {
    BatchSizes sizes(32, 6 * kMs);
    EXPECT_EQ(settle(sizes, weights_once, each), 32 / each * each) << each;
  }
}

TEST(BatchSizes, RequestsOfFourRowsThatWereJoinedFirstAreMeasuredToo) {
  BatchSizes sizes(32, 0);
  EXPECT_EQ(sizes.most_rows(), 32);
  EXPECT_EQ(settle(sizes, weights_once, 4), 32);
}

TEST(BatchSizes, RequestsOfFourRowsRunAloneIfMoreGainNothing) {
  BatchSizes sizes(32, 20 * kMs);
  EXPECT_EQ(settle(sizes, by_the_row, 4), 4);
  EXPECT_LE(sizes.most_rows(), 8);
}

TEST(BatchSizes, ShortRunsAreJoinedBeforeAnythingIsKnown) {
  BatchSizes sizes(16, scheduling::kLongRunNs - 1);
  std::uint64_t computed = 0;
  for (; computed + kMs < scheduling::kFreeNs; computed += kMs) {
    EXPECT_EQ(sizes.most_rows(), 16);
    sizes.note(16, kMs);
  }
  sizes.note(16, kMs);
  EXPECT_EQ(sizes.most_rows(), 1);
}

// From batches of eight rows on none completes.
TEST(BatchSizes, SizesWhoseBatchesAreCutOffAreNotTaken) {
  for (const std::uint64_t run_ns : {std::uint64_t{0}, 6 * kMs}) {
    BatchSizes sizes(32, run_ns);
    int large = 0;
    for (int i = 0; i < 20'000; ++i) {
      const std::int64_t rows = sizes.most_rows();
      sizes.note(rows, rows < 8 ? weights_once(rows) : 4 * kMs, rows < 8);
      large += rows >= 8 && i >= 10'000;
    }
    EXPECT_LT(large, 500);
    EXPECT_EQ(sizes.most_rows(), 4);
  }
}

TEST(BatchSizes, WhatWasHeldUpOnceChangesNothing) {
  BatchSizes sizes(16, 20 * kMs);
  int runs = 0;
  EXPECT_EQ(settle(sizes, [&](std::int64_t rows) { return by_the_row(rows) * (++runs == 100 ? 1000 : 1); }), 1);
}

TEST(BatchSizes, AnotherCostIsSeenLater) {
  BatchSizes sizes(16, 20 * kMs);
  ASSERT_EQ(settle(sizes, by_the_row), 1);
  EXPECT_EQ(settle(sizes, weights_once), 16);
  EXPECT_EQ(settle(sizes, by_the_row), 1);
}

TEST(BatchSizes, WhereNothingChangesItLooksLessAndLessOften) {
  BatchSizes sizes(16, 20 * kMs);
  int looks = 0;
  std::int64_t before = 1;
  for (std::uint64_t computed = 0; computed < 400'000 * kMs;) {
    const std::int64_t rows = sizes.most_rows();
    looks += rows != 1 && before == 1 ? 1 : 0;
    before = rows;
    const std::uint64_t cost = by_the_row(rows);
    sizes.note(rows, cost);
    computed += cost;
  }
  EXPECT_GE(looks, 8);
  EXPECT_LE(looks, 16);  // 130 at even intervals
}

TEST(BatchSizes, RowsOfAnotherSizeBeginWithWhatIsKnown) {
  BatchSizes known(16, 6 * kMs);
  ASSERT_EQ(settle(known, weights_once), 16);
  BatchSizes other(16, 6 * kMs, &known);
  EXPECT_EQ(other.most_rows(), 8);
  EXPECT_EQ(settle(other, weights_once), 16);
  BatchSizes unlike(16, 6 * kMs, &known);
  EXPECT_EQ(settle(unlike, by_the_row), 1);
}

TEST(BatchSizes, BatchesThatNeverGetLargeDoNotEndATrial) {
  BatchSizes sizes(16, 6 * kMs);
  for (int i = 0; i < 1000; ++i) sizes.note(1, weights_once(1));
  EXPECT_EQ(sizes.most_rows(), 2);
}

}  // namespace
}  // namespace evn
