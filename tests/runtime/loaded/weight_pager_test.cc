// Runs that wait until others let go of packed copies.
#include "runtime/loaded/weight_pager.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/cancel.h"
#include "base/error.h"
#include "base/run_scheduler.h"

namespace evn::test {

// Copies that another run holds.
template <>
struct Access<WeightPagers> {
  static void hold(WeightPagers& pagers) { pagers.note_held(); }
  static void release(WeightPagers& pagers) { pagers.note_released(); }
};

namespace {

using Pagers = Access<WeightPagers>;

TEST(WeightPagers, NobodyWaitsForWhatNoOtherRunHolds) {
  WeightPagers pagers;
  EXPECT_FALSE(pagers.wait_for_release(0, pagers.releases()));
  Pagers::hold(pagers);
  EXPECT_FALSE(pagers.wait_for_release(1, pagers.releases()));  // it is the caller's
}

TEST(WeightPagers, AWaitEndsWhenTheRunMustStop) {
  WeightPagers pagers;
  Pagers::hold(pagers);
  const std::atomic<bool> requested{true};
  Cancel cancel;
  cancel.requested = &requested;
  const CancelScope scope(cancel);
  try {
    pagers.wait_for_release(0, pagers.releases());
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_CANCELLED);
  }
  Pagers::hold(pagers);
  EXPECT_FALSE(pagers.wait_for_release(2, pagers.releases()));  // who gave up waits no more
}

// The run that holds the copy needs the only core to come to its end.
TEST(WeightPagers, AWaitingRunGivesUpItsCore) {
  WeightPagers pagers;
  Pagers::hold(pagers);
  RunScheduler scheduler(1);
  const Cancel never;
  ScheduledRun waiting(scheduler, {1}, nullptr, never);
  waiting.enter();
  const std::uint64_t seen = pagers.releases();
  std::thread holder([&] {
    ScheduledRun holding(scheduler, {0}, nullptr, never);
    holding.enter();
    Pagers::release(pagers);
  });
  EXPECT_TRUE(pagers.wait_for_release(0, seen));
  holder.join();
}

}  // namespace
}  // namespace evn::test
