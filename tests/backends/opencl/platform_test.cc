// Machines with other OpenCL drivers than this one: the test program runs itself again in another environment, because drivers read
// theirs once.
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/backends/opencl/opencl_test.h"

namespace evn::test::platform_test {
namespace {

// Runs one disabled test of this program with variables set; true when it passes.
bool passes_with(const std::string& variables, const std::string& test) {
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0) return false;
  const std::string command = variables + " '" + self +
                              "' --gtest_also_run_disabled_tests --gtest_brief=1 --gtest_filter='OpenClChild.DISABLED_" + test +
                              "'";
  return std::system(command.c_str()) == 0;
}

bool is_pocl() {
  std::string why;
  const std::vector<OpenClFound> found = find_opencl_devices(&why);
  return !found.empty() && found[0].platform_name == "Portable Computing Language";
}

TEST(OpenClPlatforms, TwoDevicesWorkSideBySide) {
  EVN_NEEDS_OPENCL();
  if (!is_pocl()) GTEST_SKIP() << "only PoCL makes two devices of one";
  EXPECT_TRUE(passes_with("POCL_DEVICES='pthread pthread'", "TwoDevices"));
}

TEST(OpenClPlatforms, WithoutADriverTheReasonIsTold) {
  EXPECT_TRUE(passes_with("OCL_ICD_VENDORS=/no-such-folder OPENCL_VENDOR_PATH=/no-such-folder", "NoDriver"));
}

TEST(OpenClPlatforms, PlatformWithoutDevicesIsNamed) {
  EVN_NEEDS_OPENCL();
  if (!is_pocl()) GTEST_SKIP() << "only PoCL can be told to have no device";
  EXPECT_TRUE(passes_with("POCL_DEVICES=none", "NoDevice"));
}

TEST(OpenClPlatforms, SynchronousDeviceWorks) {
  EVN_NEEDS_OPENCL();
  if (!is_pocl()) GTEST_SKIP() << "only PoCL has one";
  EXPECT_TRUE(passes_with("POCL_DEVICES=basic", "OneDevice"));
}

// Drivers make their devices when they are first asked for them.
TEST(OpenClPlatforms, ManyThreadsMayAskFirst) {
  EVN_NEEDS_OPENCL();
  // The thread that asks first gets a signal stack of LLVM's, which AddressSanitizer takes for its own when the thread ends.
  const std::string options = "ASAN_OPTIONS=\"$ASAN_OPTIONS:use_sigaltstack=0\"";
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(passes_with(options, "ManyThreads")) << i;
}

Graph conv_graph() {
  GraphBuilder b;
  b.output(b.node("Conv", {b.input("x", {1, 3, 19, 40}), b.random("w", {12, 3, 3, 3}), b.random("b", {12})}));
  return b.build();
}

TEST(OpenClChild, DISABLED_TwoDevices) {
  std::string why;
  const std::vector<DeviceListing> listed = opencl_backend.list(&why);
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_NE(listed[0].profile.identity, listed[1].profile.identity);
  DeviceRequest request;
  const std::shared_ptr<OpenClDevice> first = open_opencl(request);
  request.index = 1;
  const std::shared_ptr<OpenClDevice> second = open_opencl(request);
  NodeRun run(conv_graph(), 1);
  const std::vector<float> expected = run.reference();
  const std::vector<float> a = run.on(*first);
  expect_near(a, expected, {1e-4, 1e-5});
  EXPECT_EQ(run.on(*second), a);
  EXPECT_EQ(first->pool().stats().current, 0u);
  EXPECT_GT(second->pool().stats().peak, 0u);

  // An event of one is waited for by the other.
  std::vector<float> x = random_floats({1000}, 1).data, y(1000);
  const PooledMemory here = first->allocate(4000, MemoryClass::kTensors);
  const PooledMemory there = second->allocate(4000, MemoryClass::kTensors);
  const Event in = first->copy({nullptr, {x.data(), 0, 4000}}, {first.get(), {here.memory(), 0, 4000}}, {});
  const Event out = first->copy({first.get(), {here.memory(), 0, 4000}}, {nullptr, {y.data(), 0, 4000}}, {&in, 1});
  second->wait(second->copy({nullptr, {y.data(), 0, 4000}}, {second.get(), {there.memory(), 0, 4000}}, {&out, 1}));
  std::vector<float> z(1000);
  second->wait(second->copy({second.get(), {there.memory(), 0, 4000}}, {nullptr, {z.data(), 0, 4000}}, {}));
  EXPECT_EQ(z, x);
  request.index = 2;
  EXPECT_THROW(open_opencl(request), Error);
}

TEST(OpenClChild, DISABLED_ManyThreads) {
  constexpr int kThreads = 8;
  std::atomic<int> ready{0};
  std::array<std::size_t, kThreads> counts{};
  std::vector<std::thread> threads;
  for (std::size_t& count : counts) {
    threads.emplace_back([&ready, &count] {
      for (++ready; ready < kThreads;) std::this_thread::yield();
      std::string why;
      count = find_opencl_devices(&why).size();
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::size_t count : counts) EXPECT_GE(count, 1u);
}

TEST(OpenClChild, DISABLED_OneDevice) {
  NodeRun run(conv_graph(), 1);
  expect_near(run.on(*open_opencl()), run.reference(), {1e-4, 1e-5});
}

void expect_unavailable(const char* reason) {
  std::string why;
  EXPECT_TRUE(opencl_backend.list(&why).empty());
  EXPECT_NE(why.find(reason), std::string::npos) << why;
  try {
    open_opencl();
    ADD_FAILURE() << "a device was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.status, EVN_ERROR_DEVICE_UNAVAILABLE);
    EXPECT_NE(std::string(error.message).find(reason), std::string::npos) << error.message;
  }
}

TEST(OpenClChild, DISABLED_NoDriver) {
  OpenClApi api{};
  std::string why;
  expect_unavailable(open_opencl_library("libOpenCL.so.1", &api, &why) ? "no platform" : "cannot be opened");
}

TEST(OpenClChild, DISABLED_NoDevice) { expect_unavailable("has no device"); }

}  // namespace
}  // namespace evn::test::platform_test
