// Runs on a CPU and OpenCL devices at once: what the host waits for, and that memory which several of them use is used in order.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/fault.h"
#include "tests/api/opencl_support.h"
#include "tests/support/eventually.h"

namespace evn::test::opencl_run_test {
namespace {

// Rules by the names of nodes: g... on the OpenCL device, h... on the second one, the rest on the CPU.
constexpr char kConfig[] =
    "devices:\n  first: {type: opencl}\n"
    "placement:\n  rules:\n"
    "    - {match: {name: \"g*\"}, device: first, policy: require}\n"
    "    - {match: {name: \"c*\"}, device: cpu, policy: require}\n";
constexpr char kTwoDevices[] =
    "devices:\n  first: {type: opencl}\n  second: {type: opencl, match: {index: 1}}\n"
    "placement:\n  rules:\n"
    "    - {match: {name: \"g*\"}, device: first, policy: require}\n"
    "    - {match: {name: \"h*\"}, device: second, policy: require}\n"
    "    - {match: {name: \"c*\"}, device: cpu, policy: require}\n";
constexpr std::size_t kCount = 2 * 3 * 16 * 16;

// Values that go between devices again and again, in a diamond at each level so that memory of the host is reused while copies of
// it are under way. `devices`: prefixes of names in turn.
std::string zigzag(const std::string& devices, int levels) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"a", "b", "c", "d"}).add_output("y", kF32);
  std::string v = "x";
  for (int i = 0; i < levels; ++i) {
    const std::string n = std::to_string(i);
    const auto name = [&](int k) {
      return devices.substr(static_cast<std::size_t>(i + k) % devices.size(), 1) + n + "_" + std::to_string(k);
    };
    w.add_node("Neg", {v}, {"p" + n}, {}, name(0));
    w.add_node("Relu", {v}, {"q" + n}, {}, name(1));
    w.add_node("Relu", {"p" + n}, {"r" + n}, {}, name(2));
    w.add_node("Sub", {"q" + n, "r" + n}, {"s" + n}, {}, name(3));  // v again
    w.add_node("Add", {"s" + n, "q" + n}, {i + 1 == levels ? "y" : "v" + n}, {}, name(4));
    v = "v" + n;
  }
  return w.serialize();
}

float expected(float x, int levels) {
  for (int i = 0; i < levels; ++i) x += std::max(x, 0.0f);
  return x;
}

struct OpenClRuns : OpenClApiTest {
  evn_model model = nullptr;
  evn_session session = nullptr;

  void make(const std::string& devices, int levels, const char* config = kConfig) {
    make_runtime(config);
    const std::string bytes = zigzag(devices, levels);
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    ASSERT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
  }
  void TearDown() override {
    if (driver != nullptr) driver->let_go();
    fault_arm(Seam::kDevice, 0, false);
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    OpenClApiTest::TearDown();
  }

  evn_status run(int levels, float first, std::uint64_t timeout_ns = 0) {
    std::vector<float> values = ramp(kCount, first);
    const evn_tensor x = wrap(values, {2, 3, 16, 16});
    evn_tensor y = nullptr;
    evn_run_options options = EVN_RUN_OPTIONS_INIT;
    options.timeout_ns = timeout_ns;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_session_run(session, &x, 1, &y, 1, &options, &error);
    if (status == EVN_OK) {
      const std::vector<float> got = read(y);
      for (std::size_t i = 0; i < kCount; ++i) {
        if (got[i] == expected(values[i], levels)) continue;
        ADD_FAILURE() << i << ": " << got[i] << " for " << values[i];
        break;
      }
    }
    EXPECT_EQ(evn_tensor_release(x), EVN_OK);
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
    return status;
  }
};

TEST_F(OpenClRuns, ARunOnOneDeviceWaitsForEventsAndFinishesNoQueue) {
  make("g", 4);
  EXPECT_EQ(run(4, -100), EVN_OK);
  const int finished = driver->calls(OpenClDriver::kFinish), waits = driver->calls(OpenClDriver::kWait);
  for (int i = 0; i < 5; ++i) {
    driver->hold();  // until the host waits: the device is never done before
    EXPECT_EQ(run(4, -100.0f * static_cast<float>(i)), EVN_OK);
  }
  EXPECT_EQ(driver->calls(OpenClDriver::kFinish), finished);
  EXPECT_GT(driver->calls(OpenClDriver::kWait), waits);
  EXPECT_LE(driver->calls(OpenClDriver::kWait), waits + 15) << "the host waits at the end alone, once for each kind of work";
  const int callbacks = driver->calls(OpenClDriver::kCallback);
  driver->hold();
  std::thread release([&] {
    EXPECT_TRUE(eventually([&] { return driver->calls(OpenClDriver::kCallback) > callbacks; }));
    driver->let_go();
  });
  EXPECT_EQ(run(4, 1, 120'000'000'000), EVN_OK);
  release.join();
  EXPECT_EQ(driver->calls(OpenClDriver::kFinish), finished);
}

struct OpenClRunsBetween : OpenClRuns, testing::WithParamInterface<const char*> {
  void check(const char* config) {
    make(GetParam(), 6, config);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(run(6, -1000.0f + 97.0f * static_cast<float>(i)), EVN_OK) << error.message;
    for (int i = 0; i < 5; ++i) EXPECT_EQ(run(6, 5.0f * static_cast<float>(i), 60'000'000'000), EVN_OK) << error.message;
    EXPECT_EQ(driver->calls(OpenClDriver::kFinish), 0);
  }
};

TEST_P(OpenClRunsBetween, TheCpuAndADevice) { check(kConfig); }
INSTANTIATE_TEST_SUITE_P(One, OpenClRunsBetween, testing::Values("gc", "ggc", "gcc", "gccgg"));

// In a process of their own: a driver makes two devices of one only when it is first asked.
struct OpenClTwoDevicesChild : OpenClRunsBetween {};
TEST_P(OpenClTwoDevicesChild, DISABLED_Run) {
  check(kTwoDevices);
  EXPECT_GT(driver->calls(OpenClDriver::kUserEvent), 0) << "no device waits for another";
}
INSTANTIATE_TEST_SUITE_P(Two, OpenClTwoDevicesChild, testing::Values("gh", "ghc", "hgg", "ghhcc"));

TEST(OpenClTwoDevices, WaitForEachOther) {
  EVN_NEEDS_OPENCL();
  std::string why;
  if (find_opencl_devices(&why)[0].platform_name != "Portable Computing Language")
    GTEST_SKIP() << "only PoCL makes two devices of one";
  char self[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  const std::string command = "POCL_DEVICES='pthread pthread' '" + std::string(self) +
                              "' --gtest_also_run_disabled_tests --gtest_brief=1 --gtest_filter='*OpenClTwoDevicesChild.*'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST_F(OpenClRuns, TracedRunsGiveTheSame) {
  make("gcg", 4);
  ASSERT_OK(evn_session_trace_start(session, 1000, &error));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(4, -100), EVN_OK);
  ASSERT_OK(evn_session_trace_stop(session, &error));
  EXPECT_EQ(run(4, -100), EVN_OK);
}

// An upload from memory of the arena that later steps do not use holds up none of them.
TEST_F(OpenClRuns, StepsOfTheCpuGoOnDuringAnUpload) {
  make_runtime(kConfig);
  OnnxWriter w(13);
  w.add_input("x", kF32, {"a", "b", "c", "d"}).add_output("y", kF32).add_output("z", kF32);
  w.add_node("Neg", {"x"}, {"n"}, {}, "c0");
  w.add_node("Neg", {"n"}, {"g"}, {}, "g0");
  w.add_node("Relu", {"g"}, {"y"}, {}, "g1");
  w.add_node("Relu", {"n"}, {"z"}, {}, "c1");
  const std::string bytes = w.serialize();
  ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
  ASSERT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
  std::vector<float> values = ramp(kCount, -500), out(kCount), other(kCount, -1.0f);
  const std::vector<int64_t> dims = {2, 3, 16, 16};
  const evn_tensor x = wrap(values, dims), y = wrap(out, dims), z = wrap(other, dims);
  for (const bool held : {false, true}) {
    evn_tensor outputs[] = {y, z};
    const int waits = driver->calls(OpenClDriver::kWait);
    if (held) driver->hold();
    ASSERT_OK(evn_session_run(session, &x, 1, outputs, 2, nullptr, &error));
    EXPECT_LE(driver->calls(OpenClDriver::kWait), waits + 3) << "the host waits at the end alone, once for each kind of work";
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(out[i], std::max(values[i], 0.0f));
      ASSERT_EQ(other[i], std::max(-values[i], 0.0f));
    }
  }
  for (const evn_tensor t : {x, y, z}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(OpenClRuns, AFailedCommandEndsTheRunAndTheNextOneIsRight) {
  make("gcg", 4);
  EXPECT_EQ(run(4, -100), EVN_OK);
  for (const std::uint64_t timeout_ns : {0ull, 60'000'000'000ull}) {
    std::atomic<bool> ready{false};
    std::thread failing([&] {
      driver->hold_after(0);
      ready = true;
      if (eventually([this] { return driver->holds(); })) driver->fail_held(-77);
    });
    EXPECT_TRUE(eventually([&] { return ready.load(); }));
    EXPECT_EQ(run(4, -100, timeout_ns), EVN_ERROR_DEVICE_LOST);
    failing.join();
    EXPECT_NE(std::string(error.message).find("ended with an error"), std::string::npos) << error.message;
    EXPECT_STREQ(error.device, "first");
    EXPECT_EQ(run(4, -100, timeout_ns), EVN_OK) << error.message;
  }
}

// Every call of a run fails once; memory is as it was, and the next run is right.
TEST_F(OpenClRuns, EveryCallOfARunMayFail) {
  make("gcg", 2);
  EXPECT_EQ(run(2, -100), EVN_OK);
  evn_memory_stats before = EVN_MEMORY_STATS_INIT, after = EVN_MEMORY_STATS_INIT;
  ASSERT_OK(evn_device_get_memory_stats(gpu, &before, &error));
  int failures = 0;
  for (int k = 1; k < 1000; ++k) {
    fault_arm(Seam::kDevice, k, false);
    const evn_status status = run(2, -100, k % 2 == 0 ? 60'000'000'000 : 0);
    const bool reached = fault_count(Seam::kDevice) >= k;
    fault_arm(Seam::kDevice, 0, false);
    EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_DEVICE_LOST || status == EVN_ERROR_OUT_OF_MEMORY) << k << error.message;
    failures += status != EVN_OK;
    ASSERT_EQ(run(2, -50), EVN_OK) << k;
    if (!reached) break;
  }
  EXPECT_GT(failures, 10);
  ASSERT_OK(evn_device_get_memory_stats(gpu, &after, &error));
  EXPECT_EQ(after.current, before.current);
}

}  // namespace
}  // namespace evn::test::opencl_run_test
