// Steps that are measured: the device's own times, and what happens when a call fails.
#include "tests/backends/opencl/opencl_test.h"

namespace evn::test {
namespace {

// Writes, copies within the device, and reads, all traced; the steps' traces are finished.
std::vector<float> traced_round_trip(OpenClDevice& device, const std::vector<float>& x, StepTrace (&steps)[3]) {
  const std::size_t bytes = x.size() * sizeof(float);
  const PooledMemory a = device.allocate(bytes, MemoryClass::kTensors);
  const PooledMemory b = device.allocate(bytes, MemoryClass::kTensors);
  std::vector<float> y(x.size());
  struct Finish {  // also when a call fails: no event may be kept
    OpenClDevice& device;
    StepTrace (&steps)[3];
    ~Finish() {
      fault_arm(Seam::kDevice, 0, false);
      for (StepTrace& step : steps) device.finish_trace(&step);
    }
  } finish{device, steps};
  device.copy_traced({nullptr, {const_cast<float*>(x.data()), 0, bytes}}, {&device, {a.memory(), 0, bytes}}, {}, &steps[0]);
  device.copy_traced({&device, {a.memory(), 0, bytes}}, {&device, {b.memory(), 0, bytes}}, {}, &steps[1]);
  device.wait(device.copy_traced({&device, {b.memory(), 0, bytes}}, {nullptr, {y.data(), 0, bytes}}, {}, &steps[2]));
  return y;
}

TEST(OpenClTrace, StepsHaveTheDevicesTimesInTheirOrder) {
  EVN_NEEDS_OPENCL();
  const std::shared_ptr<OpenClDevice> device = open_opencl();
  device->prepare_tracing();
  device->prepare_tracing();
  const std::vector<float> x = random_floats({100000}, 1).data;
  StepTrace steps[3];
  for (StepTrace& step : steps) step.wanted = true;
  EXPECT_EQ(traced_round_trip(*device, x, steps), x);
  std::uint64_t before = 0;
  for (const StepTrace& step : steps) {
    EXPECT_NE(step.end, 0u);
    EXPECT_LE(step.queued, step.start);
    EXPECT_LE(before, step.start);
    EXPECT_LE(step.start, step.end);
    EXPECT_EQ(step.first, nullptr);
    before = step.end;
  }
}

TEST(OpenClTrace, StepsThatAreNotWantedAreNotMeasured) {
  EVN_NEEDS_OPENCL();
  const std::shared_ptr<OpenClDevice> device = open_opencl();
  device->prepare_tracing();
  const std::vector<float> x = random_floats({1000}, 1).data;
  StepTrace steps[3];
  EXPECT_EQ(traced_round_trip(*device, x, steps), x);
  for (const StepTrace& step : steps) EXPECT_EQ(step.end, 0u);
}

TEST(OpenClTrace, EveryFailingCallIsAnErrorOrAMissingTime) {
  EVN_NEEDS_OPENCL();
  const std::shared_ptr<OpenClDevice> device = open_opencl();
  const std::vector<float> x = random_floats({1000}, 1).data;
  int failures = 0;
  for (int k = 1; k < 100; ++k) {
    StepTrace steps[3];
    for (StepTrace& step : steps) step.wanted = true;
    fault_arm(Seam::kDevice, k, false);
    device->prepare_tracing();
    try {
      EXPECT_EQ(traced_round_trip(*device, x, steps), x);
    } catch (const Error& e) {
      EXPECT_TRUE(e.status == EVN_ERROR_DEVICE_LOST || e.status == EVN_ERROR_OUT_OF_MEMORY) << e.message;
      ++failures;
    }
    fault_arm(Seam::kDevice, 0, false);
  }
  EXPECT_GT(failures, 3);
}

}  // namespace
}  // namespace evn::test
