// The thread that waits for a device: what is asked of it when the device has long been done.
#include "backends/opencl/reaper.h"

#include <gtest/gtest.h>

namespace evn::test {
namespace {

struct OpenClReaperTest : testing::Test {
  // A device on which events up to 10 were issued, and have happened.
  OpenClReaper reaper{[](void*) noexcept { return OpenClReaper::Finished{10, CL_SUCCESS}; }, nullptr};
  Cancel cancel;
  cl_int code = CL_SUCCESS;

  void SetUp() override {
    cancel.deadline_ns = deadline_clock_ns() + 60'000'000'000;  // a broken build fails and does not hang
    ASSERT_TRUE(reaper.start());
    ASSERT_TRUE(reaper.wait(10, cancel, &code));
  }
};

TEST_F(OpenClReaperTest, AnEventThatHasHappenedMayBeWaitedFor) {
  EXPECT_TRUE(reaper.wait(4, cancel, &code));
  EXPECT_TRUE(reaper.wait(10, cancel, &code));
}

TEST_F(OpenClReaperTest, WhatIsHeldForAnEventThatHasHappenedIsLetGo) {
  auto owner = std::make_shared<const int>(1);
  const std::weak_ptr<const int> what = owner;
  std::shared_ptr<const void> held = std::move(owner);
  ASSERT_TRUE(reaper.hold(7, held));
  EXPECT_TRUE(reaper.settle(cancel));
  EXPECT_TRUE(what.expired());
}

}  // namespace
}  // namespace evn::test
