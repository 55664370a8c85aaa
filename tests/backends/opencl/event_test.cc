// Events of an OpenCL device: what waits for what, for how long, and what comes out when a command fails. The driver holds commands
// back until the test lets them go.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "backends/opencl/reaper.h"
#include "tests/backends/opencl/opencl_test.h"
#include "tests/support/eventually.h"

namespace evn::test {
namespace {

constexpr std::size_t kCount = 1024;
constexpr std::size_t kBytes = kCount * sizeof(float);

// Relu of kCount numbers from one place of a device to another.
class Relu {
 public:
  Relu() : run_(graph(), 1), desc_(run_.desc()) {}

  Event enqueue(OpenClDevice& device, const Buffer& from, const Buffer& to, std::span<const Event> waits = {}) {
    const Kernel* kernel = device.find_kernel(desc_, nullptr);
    EXPECT_NE(kernel, nullptr);
    kernel->plan(desc_, &plan_);
    KernelArgs args;
    args.desc = &desc_;
    args.plan = &plan_;
    args.inputs = {&from, 1};
    args.outputs = {&to, 1};
    return device.enqueue({kernel, args, nullptr}, waits);
  }

 private:
  static Graph graph() {
    GraphBuilder b;
    b.output(b.node("Relu", {b.input("x", {static_cast<std::int64_t>(kCount)})}));
    return b.build();
  }
  NodeRun run_;
  OpDesc desc_;
  KernelPlan plan_;
};

struct OpenClEvents : testing::Test {
  std::unique_ptr<OpenClDriver> driver;
  std::shared_ptr<OpenClDevice> device;
  PooledMemory memory;
  std::vector<float> x = random_floats({static_cast<std::int64_t>(kCount)}, 1, -2, 2).data, y = std::vector<float>(kCount);
  std::vector<float> expected = x;
  Relu relu;

  void SetUp() override {
    EVN_NEEDS_OPENCL();
    driver = std::make_unique<OpenClDriver>();
    device = open_opencl();
    driver->count_anew();
    memory = device->allocate(8 * kBytes, MemoryClass::kTensors);
    for (float& v : expected) v = std::max(v, 0.0f);
    device->wait(relu.enqueue(*device, at(6), at(7)));  // the program is built
  }
  void TearDown() override {
    if (driver != nullptr) driver->let_go();
    fault_arm(Seam::kDevice, 0, false);
    memory = PooledMemory();
    device.reset();
  }

  Buffer at(std::size_t place) const { return {memory.memory(), place * kBytes, kBytes}; }
  Event upload(const std::vector<float>& from, std::size_t place, std::span<const Event> waits = {}) {
    return device->copy({nullptr, {const_cast<float*>(from.data()), 0, kBytes}}, {device.get(), at(place)}, waits);
  }
  Event download(std::size_t place, std::vector<float>& to, std::span<const Event> waits = {}) {
    return device->copy({device.get(), at(place)}, {nullptr, {to.data(), 0, kBytes}}, waits);
  }
  static Cancel within(std::uint64_t ns) {
    Cancel cancel;
    cancel.deadline_ns = deadline_clock_ns() + ns;
    return cancel;
  }
  static Cancel minutes() { return within(60'000'000'000); }
};

TEST_F(OpenClEvents, ATimedWaitEndsAtItsDeadlineAndTheEventStillComes) {
  driver->hold();
  const Event done = upload(x, 0);
  ASSERT_TRUE(driver->holds());
  const std::uint64_t begin = deadline_clock_ns();
  EXPECT_FALSE(device->wait_or_stop(done, within(5'000'000)));
  EXPECT_GE(deadline_clock_ns() - begin, 5'000'000u);
  EXPECT_FALSE(device->wait_or_stop(device->all_enqueued(), within(1'000'000)));
  EXPECT_EQ(driver->waited_for_held(), 0);
  driver->let_go();
  EXPECT_TRUE(device->wait_or_stop(done, minutes()));
  device->wait(download(0, y));
  EXPECT_EQ(y, x);
  EXPECT_GT(driver->calls(OpenClDriver::kCallback), 0);
  EXPECT_EQ(driver->calls(OpenClDriver::kFinish), 0);
}

TEST_F(OpenClEvents, ATimedWaitIsWokenFromAnotherThread) {
  driver->hold();
  const Event done = upload(x, 0);
  std::thread letting_go([this] { driver->let_go(); });
  EXPECT_TRUE(device->wait_or_stop(done, minutes()));
  letting_go.join();
}

TEST_F(OpenClEvents, WithoutCallbacksAThreadWaits) {
  driver->refuse_callbacks();
  driver->hold();
  const Event done = upload(x, 0);
  EXPECT_FALSE(device->wait_or_stop(done, within(5'000'000)));
  EXPECT_EQ(driver->waited_for_held(), 0);
  driver->let_go();
  EXPECT_TRUE(device->wait_or_stop(done, minutes()));
}

// An upload that does not end holds up nothing that does not use its memory, and all that does.
TEST_F(OpenClEvents, ASlowUploadOverlapsWithKernelsOfOtherMemory) {
  device->wait(upload(x, 0));
  std::vector<float> late(kCount, -1.0f);
  driver->hold();
  const Event slow = upload(late, 2);
  ASSERT_TRUE(driver->holds());
  EXPECT_TRUE(device->wait_or_stop(relu.enqueue(*device, at(0), at(1)), minutes()));
  const Event reads = relu.enqueue(*device, at(2), at(3));
  EXPECT_FALSE(device->wait_or_stop(reads, within(5'000'000))) << "it reads what is being uploaded";
  driver->let_go();
  EXPECT_TRUE(device->wait_or_stop(reads, minutes()));
  EXPECT_TRUE(device->wait_or_stop(slow, within(1)));
  device->wait(download(3, y));
  EXPECT_EQ(y, std::vector<float>(kCount, 0.0f));
  device->wait(download(1, y));
  EXPECT_EQ(y, expected);
}

TEST_F(OpenClEvents, AKernelDoesNotWriteWhatIsBeingUploaded) {
  const std::vector<float> nine(kCount, 9.0f);
  device->wait(upload(x, 0));
  driver->hold();
  upload(nine, 1);
  const Event writes = relu.enqueue(*device, at(0), at(1));
  EXPECT_FALSE(device->wait_or_stop(writes, within(5'000'000)));
  driver->let_go();
  device->wait(writes);
}

TEST_F(OpenClEvents, AnUploadWaitsForKernelsThatReadOrWriteItsTarget) {
  const std::vector<float> other(kCount, 5.0f);
  device->wait(upload(x, 0));
  driver->hold();
  const Event kernel = relu.enqueue(*device, at(0), at(1));
  ASSERT_TRUE(driver->holds());
  EXPECT_TRUE(device->wait_or_stop(upload(other, 4), minutes())) << "of other memory";
  const Event over_read = upload(other, 0), over_written = upload(other, 1);
  EXPECT_FALSE(device->wait_or_stop(over_read, within(5'000'000)));
  EXPECT_FALSE(device->wait_or_stop(over_written, within(1'000'000)));
  driver->let_go();
  device->wait(over_written);
  device->wait(kernel);
  device->wait(download(1, y));
  EXPECT_EQ(y, other);
}

TEST_F(OpenClEvents, ADownloadWaitsForTheKernelThatWritesAndALaterOneForTheDownload) {
  device->wait(upload(x, 0));
  driver->hold();
  relu.enqueue(*device, at(0), at(1));
  std::vector<float> source(kCount);
  const Event result = download(1, y);
  EXPECT_FALSE(device->wait_or_stop(result, within(5'000'000)));
  driver->let_go();
  EXPECT_TRUE(device->wait_or_stop(result, minutes()));
  EXPECT_EQ(y, expected);

  driver->hold();
  const Event slow = download(0, source);
  EXPECT_TRUE(device->wait_or_stop(relu.enqueue(*device, at(0), at(3)), minutes())) << "both only read";
  const Event writes = relu.enqueue(*device, at(1), at(0));
  EXPECT_FALSE(device->wait_or_stop(writes, within(5'000'000)));
  driver->let_go();
  EXPECT_TRUE(device->wait_or_stop(writes, minutes()));
  EXPECT_TRUE(device->wait_or_stop(slow, minutes()));
  EXPECT_EQ(source, x);
}

// More kernels than the device remembers the memory of: what it no longer knows, a copy waits for.
TEST_F(OpenClEvents, ForgottenKernelsAreWaitedFor) {
  const std::vector<float> three(kCount, 3.0f);
  device->wait(upload(x, 0));
  driver->hold();
  relu.enqueue(*device, at(0), at(1));
  for (int i = 0; i < 200; ++i) relu.enqueue(*device, at(4), at(5));
  const Event over = upload(three, 0);
  EXPECT_FALSE(device->wait_or_stop(over, within(5'000'000)));
  driver->let_go();
  EXPECT_TRUE(device->wait_or_stop(over, minutes()));
  device->wait(download(1, y));
  EXPECT_EQ(y, expected);
}

TEST_F(OpenClEvents, CommandsAreSubmittedInWindows) {
  const int before = driver->calls(OpenClDriver::kFlush);
  Event last;
  constexpr int kKernels = 320;
  for (int i = 0; i < kKernels; ++i) last = relu.enqueue(*device, at(4), at(5));
  const int flushes = driver->calls(OpenClDriver::kFlush) - before;
  EXPECT_GE(flushes, 5);
  EXPECT_LE(flushes, kKernels / 8);
  device->wait(last);
  relu.enqueue(*device, at(4), at(5));
  const int now = driver->calls(OpenClDriver::kFlush);
  device->submit();
  EXPECT_EQ(driver->calls(OpenClDriver::kFlush), now + 1);
  device->submit();
  EXPECT_EQ(driver->calls(OpenClDriver::kFlush), now + 1) << "there is nothing to submit";
}

// A copy that has been enqueued goes on: its caller needs the event, as the memory must stay. Who waits flushes once more.
TEST_F(OpenClEvents, ACopyWhoseFlushFailsGivesItsEvent) {
  for (const bool forever : {false, true}) {
    Event done;
    bool reached = false;
    for (int i = 0; i < 64 && !reached; ++i) {
      fault_arm(Seam::kDevice, 2, forever);  // the call behind the one that enqueues
      ASSERT_NO_THROW(done = upload(x, 0)) << i;
      reached = fault_count(Seam::kDevice) >= 2;
      if (!reached || !forever) fault_arm(Seam::kDevice, 0, false);
    }
    ASSERT_TRUE(reached);
    if (forever) {
      EXPECT_THROW(device->wait(done), Error);
    } else {
      device->wait(done);
    }
    fault_arm(Seam::kDevice, 0, false);
    device->wait(download(0, y));
    EXPECT_EQ(y, x);
  }
}

TEST_F(OpenClEvents, AFailedCommandIsNamedAndTheDeviceGoesOn) {
  device->wait(upload(x, 0));
  for (const bool timed : {false, true}) {
    driver->hold();
    const Event begin = device->all_enqueued();
    const Event done = upload(x, 1);
    ASSERT_TRUE(driver->holds());
    driver->fail_held(-77);
    try {
      if (timed) device->wait_or_stop(done, minutes());
      else device->wait(done);
      ADD_FAILURE() << "the error is lost";
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_DEVICE_LOST);
      EXPECT_STREQ(e.device, "test");
      EXPECT_NE(std::string(e.message).find("clEnqueueWriteBuffer"), std::string::npos) << e.message;
    }
    EXPECT_THROW(device->check_since(begin), Error);
    device->check_since(device->all_enqueued());
    device->wait(relu.enqueue(*device, at(0), at(2)));
    device->wait(download(2, y));
    EXPECT_EQ(y, expected);
  }
}

// Who waits for a later step of the queue, or for all since a moment, learns of it.
TEST_F(OpenClEvents, AFailureIsNotLostBehindLaterSteps) {
  driver->hold();
  const Event begin = device->all_enqueued();
  upload(x, 0);
  relu.enqueue(*device, at(0), at(1));
  const Event later = upload(x, 3);
  const Event result = download(1, y);
  driver->fail_held(-77);
  EXPECT_THROW(device->wait(later), Error);  // of the queue of the one that failed
  device->wait(result);
  EXPECT_THROW(device->check_since(begin), Error);
  device->check_since(device->all_enqueued());
}

// The k-th call fails: an error comes out, or the result is right; and the next attempt is.
TEST_F(OpenClEvents, EveryCallMayFail) {
  int errors = 0;
  for (std::int64_t k = 1; k < 200; ++k) {
    std::fill(y.begin(), y.end(), 0.0f);
    fault_arm(Seam::kDevice, k, false);
    bool failed = false;
    try {
      const Cancel cancel = minutes();
      upload(x, 0);
      const Event kernel = relu.enqueue(*device, at(0), at(1));
      EXPECT_TRUE(device->wait_or_stop(download(1, y, {&kernel, 1}), cancel));
    } catch (const Error& e) {
      EXPECT_TRUE(e.status == EVN_ERROR_DEVICE_LOST || e.status == EVN_ERROR_OUT_OF_MEMORY) << e.message;
      failed = true;
    }
    const bool reached = fault_count(Seam::kDevice) >= k;
    fault_arm(Seam::kDevice, 0, false);
    try {
      device->wait(device->all_enqueued());
    } catch (const Error&) {}  // what failed at that time
    if (!failed) {
      EXPECT_EQ(y, expected) << k;
    }
    errors += failed;
    upload(x, 0);
    relu.enqueue(*device, at(0), at(1));
    device->wait(download(1, y));
    ASSERT_EQ(y, expected) << k;
    if (!reached) break;
  }
  EXPECT_GT(errors, 3);
}

TEST_F(OpenClEvents, TheDeviceMayGoWhileSomebodyHasStoppedWaiting) {
  driver->hold();
  const Event done = upload(x, 0);
  EXPECT_FALSE(device->wait_or_stop(done, within(1'000'000)));  // its callback is still to come
  driver->let_go();
  memory = PooledMemory();
  device.reset();
}

// Two devices with a context each: one waits for an event of the other, and the host for neither.
TEST_F(OpenClEvents, DevicesWaitForEachOther) {
  const std::shared_ptr<OpenClDevice> second = open_opencl();
  const PooledMemory there = second->allocate(2 * kBytes, MemoryClass::kTensors);
  const Buffer to{there.memory(), 0, kBytes}, result{there.memory(), kBytes, kBytes};
  device->wait(upload(x, 0));
  second->wait(relu.enqueue(*second, to, result));
  for (const bool refused : {false, true}) {
    std::fill(y.begin(), y.end(), -1.0f);
    std::vector<float> z(kCount);
    if (refused) driver->refuse_callbacks();
    const int waits = driver->calls(OpenClDriver::kWait);
    if (!refused) driver->hold();
    const Event down = download(0, y);
    const Event up = second->copy({nullptr, {y.data(), 0, kBytes}}, {second.get(), to}, {&down, 1});
    relu.enqueue(*second, to, result);
    const Event back = second->copy({second.get(), result}, {nullptr, {z.data(), 0, kBytes}}, {});
    if (!refused) {
      EXPECT_TRUE(driver->holds());
      EXPECT_EQ(driver->calls(OpenClDriver::kWait), waits) << "the host waited";
      EXPECT_GT(driver->calls(OpenClDriver::kUserEvent), 0);
      EXPECT_FALSE(second->wait_or_stop(up, within(5'000'000)));
      driver->let_go();
    }
    second->wait(back);
    EXPECT_EQ(z, expected);
    device->wait(down);
  }
}

// A driver may read memory of the host when a copy is enqueued, although the copy is to wait for a command that writes it.
TEST_F(OpenClEvents, UploadsToADeviceWithMemoryOfItsOwnWaitForCommandsByUserEvents) {
  driver->have_own_memory();
  const std::shared_ptr<OpenClDevice> card = open_opencl();
  const PooledMemory there = card->allocate(2 * kBytes, MemoryClass::kTensors);
  const Buffer first{there.memory(), 0, kBytes}, second{there.memory(), kBytes, kBytes};
  card->wait(card->copy({nullptr, {x.data(), 0, kBytes}}, {card.get(), first}, {}));
  const int before = driver->calls(OpenClDriver::kUserEvent);
  driver->hold();
  const Event down = card->copy({card.get(), first}, {nullptr, {y.data(), 0, kBytes}}, {});
  const Event up = card->copy({nullptr, {y.data(), 0, kBytes}}, {card.get(), second}, {&down, 1});
  EXPECT_TRUE(driver->holds());
  EXPECT_EQ(driver->calls(OpenClDriver::kUserEvent), before + 1);
  EXPECT_FALSE(card->wait_or_stop(up, within(5'000'000)));
  driver->let_go();
  card->wait(up);
  std::vector<float> z(kCount);
  card->wait(card->copy({card.get(), second}, {nullptr, {z.data(), 0, kBytes}}, {}));
  EXPECT_EQ(z, x);
}

TEST_F(OpenClEvents, AFailureOfAnotherDeviceIsPassedOn) {
  const std::shared_ptr<OpenClDevice> second = open_opencl();
  const PooledMemory there = second->allocate(kBytes, MemoryClass::kTensors);
  const Buffer to{there.memory(), 0, kBytes};
  device->wait(upload(x, 0));
  driver->hold();
  const Event down = download(0, y);
  const Event up = second->copy({nullptr, {y.data(), 0, kBytes}}, {second.get(), to}, {&down, 1});
  driver->fail_held(-77);
  second->wait(up);  // the driver under test has let it happen
  EXPECT_EQ(driver->passed_on(), -77);
  EXPECT_THROW(device->wait(down), Error);
}

// A device that never came into use goes while something is held whose owner does not keep the device.
TEST(OpenClReaperEnd, WhatIsStillHeldIsLetGoBehindTheThread) {
  std::atomic<bool> is_open = false;
  OpenClReaper reaper(
      [](void* gate, std::uint64_t) noexcept -> cl_int {
        while (!*static_cast<std::atomic<bool>*>(gate)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return CL_SUCCESS;
      },
      &is_open);
  ASSERT_TRUE(reaper.start());
  auto made = std::make_shared<int>(1);
  const std::weak_ptr<int> first = made;
  std::shared_ptr<const void> held = std::move(made);
  ASSERT_TRUE(reaper.hold(1, held));
  made = std::make_shared<int>(2);
  const std::weak_ptr<int> second = made;
  held = std::move(made);
  ASSERT_TRUE(reaper.hold(2, held));
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    is_open = true;
  });
  reaper.stop();
  reaper.let_go();
  EXPECT_TRUE(first.expired());
  EXPECT_TRUE(second.expired());
  opens.join();
}

}  // namespace
}  // namespace evn::test
