// Scopes and cancellation points.
#include "base/cancel.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/error.h"
#include "tests/support/test_clock.h"

namespace evn {
namespace {

using test::TestClock;

void work(std::int64_t units) {
  for (std::int64_t i = 0; i < units; ++i) cancellation_point();
}

// The status that `body` ends with.
template <typename F>
evn_status status_of(F&& body, Error* error = nullptr) {
  try {
    body();
  } catch (const Error& e) {
    if (error != nullptr) *error = e;
    return e.status;
  }
  return EVN_OK;
}

Cancel until(std::uint64_t deadline_ns) { return {{.deadline_ns = deadline_ns}}; }

TEST(CancellationPoints, LookOncePerPortionOfWork) {
  TestClock clock;
  const Cancel cancel = until(UINT64_MAX / 2);
  const CancelScope scope(cancel);
  work(10 * kWorkPerLook);
  EXPECT_GE(clock.looks(), 9);
  EXPECT_LE(clock.looks(), 11);
  EXPECT_EQ(scope.work(), 10 * kWorkPerLook);
  EXPECT_LE(scope.longest(), 2 * kWorkPerLook);
}

TEST(CancellationPoints, OutsideOfAScopeNothingHappens) {
  TestClock clock;
  clock.restart(0);
  work(10 * kWorkPerLook);
  EXPECT_EQ(clock.looks(), 0);
}

TEST(CancellationPoints, ThrowAfterTheDeadlineWhatTheCancelSays) {
  TestClock clock;
  clock.restart(3);
  Cancel cancel = until(UINT64_MAX / 2);
  cancel.over = "too late";
  const CancelScope scope(cancel);
  Error error;
  EXPECT_EQ(status_of([] { work(100 * kWorkPerLook); }, &error), EVN_ERROR_TIMEOUT);
  EXPECT_STREQ(error.message, "too late");
  EXPECT_LE(scope.work(), 5 * kWorkPerLook);
}

TEST(CancellationPoints, ThrowWhenThatIsRequested) {
  CancelToken token;
  Cancel cancel;
  cancel.requested = &token.requested;
  const CancelScope scope(cancel);
  EXPECT_EQ(status_of([] { work(3 * kWorkPerLook); }), EVN_OK);
  token.requested.store(true);
  EXPECT_EQ(status_of([] { work(3 * kWorkPerLook); }), EVN_ERROR_CANCELLED);
}

TEST(CancellationPoints, ManyShortScopesDoNotPutOffALook) {
  TestClock clock;
  const Cancel cancel = until(UINT64_MAX / 2);
  for (int i = 0; i < 1000; ++i) {
    const CancelScope scope(cancel);
    work(kWorkPerLook / 100);
  }
  EXPECT_GE(clock.looks(), 9);
}

TEST(CancellationPoints, ALimitOfWorkEndsAScopeAndNotTheOneAroundIt) {
  const Cancel cancel;
  const CancelScope outer(cancel);
  work(100);
  {
    const CancelScope inner(cancel, 3 * kWorkPerLook + 7);
    work(3 * kWorkPerLook + 7);
    EXPECT_FALSE(inner.is_spent());
    EXPECT_EQ(status_of([] { work(1); }), EVN_ERROR_LIMIT);
    EXPECT_TRUE(inner.is_spent());
  }
  EXPECT_FALSE(outer.is_spent());
  EXPECT_EQ(status_of([] { work(5 * kWorkPerLook); }), EVN_OK);
  EXPECT_EQ(outer.work(), 100 + 3 * kWorkPerLook + 8 + 5 * kWorkPerLook);
}

TEST(CancellationPoints, WorkInsideCountsForALimitAround) {
  const Cancel cancel;
  const CancelScope outer(cancel, 1000);
  EXPECT_EQ(status_of([&] {
              const CancelScope inner(cancel);
              work(1001);
            }),
            EVN_OK);
  EXPECT_EQ(status_of([] { work(1); }), EVN_ERROR_LIMIT);
}

TEST(CancellationPoints, MovesAndFillsOfAnySizeLookOnTheirWay) {
  TestClock clock;
  const Cancel cancel = until(UINT64_MAX / 2);
  const CancelScope scope(cancel);
  constexpr std::size_t kBytes = 4 << 20;
  std::vector<char> bytes(kBytes), expected(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(i * 7 >> 3);
  for (const std::ptrdiff_t by : {std::ptrdiff_t{1}, std::ptrdiff_t{-1}, std::ptrdiff_t{300'001}, std::ptrdiff_t{-300'001}}) {
    const std::size_t from = by < 0 ? static_cast<std::size_t>(-by) : 0, to = by > 0 ? static_cast<std::size_t>(by) : 0;
    const std::size_t size = kBytes - from - to;
    expected = bytes;
    std::memmove(expected.data() + to, expected.data() + from, size);
    clock.restart();
    move_in_pieces(bytes.data() + to, bytes.data() + from, size);
    EXPECT_EQ(bytes, expected) << by;
    EXPECT_GE(clock.looks(), 3) << by;
  }
  clock.restart();
  fill_in_pieces(bytes.data(), 5, kBytes);
  EXPECT_EQ(bytes, std::vector<char>(kBytes, 5));
  EXPECT_GE(clock.looks(), 3);
  std::vector<double> numbers(100'000);
  clock.restart();
  fill_in_pieces(numbers.data(), std::int64_t{100'000}, 2.5);
  EXPECT_EQ(numbers, std::vector<double>(100'000, 2.5));
  EXPECT_GE(clock.looks(), 3);
  EXPECT_LE(scope.longest(), 2 * kWorkPerLook);
}

}  // namespace
}  // namespace evn
