// The thread that waits for a device: what is asked of it when the device has long been done.
#include "backends/opencl/reaper.h"

#include <gtest/gtest.h>

namespace evn::test {
namespace {

struct OpenClReaperTest : testing::Test {
  // A device on which all events have happened, number 13 with an error.
  OpenClReaper reaper{[](void*, std::uint64_t value) noexcept -> cl_int { return value == 13 ? CL_OUT_OF_RESOURCES : CL_SUCCESS; },
                      nullptr};
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
  EXPECT_EQ(code, CL_SUCCESS);
  EXPECT_TRUE(reaper.wait(13, cancel, &code));
  EXPECT_EQ(code, CL_OUT_OF_RESOURCES);
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
