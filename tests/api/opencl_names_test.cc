// One OpenCL device under several names: one context, one pool, one cap.
#include <thread>

#include "tests/api/opencl_support.h"

namespace evn::test {
namespace {

using OpenClNames = OpenClApiTest;

TEST_F(OpenClNames, ShareOneContextAndOneCap) {
  make_runtime("devices: {a: {type: opencl, memory_limit: 1MiB}, b: {type: opencl, match: {index: 0}, memory_limit: 1MiB}}");
  EXPECT_EQ(driver->calls(OpenClDriver::kContext), 1);
  uint32_t count = 0;
  ASSERT_OK(evn_runtime_device_count(runtime, &count, &error));
  EXPECT_EQ(count, 2u);
  const evn_tensor held = create(gpu, {175000});
  for (const char* name : {"a", "b", "opencl", "opencl:0"}) {
    evn_device device = nullptr;
    ASSERT_OK(evn_runtime_device_find(runtime, name, &device, &error));
    evn_device_info info = EVN_DEVICE_INFO_INIT;
    ASSERT_OK(evn_device_get_info(device, &info, &error));
    EXPECT_STREQ(info.name, "a");
    evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
    ASSERT_OK(evn_device_get_memory_stats(device, &stats, &error));
    EXPECT_EQ(stats.current, 700000u);
    EXPECT_EQ(stats.limit, 1u << 20);
    const int64_t dims[] = {175000};
    evn_tensor more = nullptr;
    EXPECT_EQ(evn_tensor_create(device, EVN_DTYPE_FLOAT32, dims, 1, 0, &more, &error), EVN_ERROR_OUT_OF_MEMORY) << name;
    EXPECT_EQ(evn_device_release(device), EVN_OK);
  }
  EXPECT_EQ(evn_tensor_release(held), EVN_OK);
  EXPECT_EQ(driver->calls(OpenClDriver::kContext), 1);
}

TEST_F(OpenClNames, TwoLimitsAreAnErrorThatNamesBoth) {
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.config_text = "devices:\n  a: {type: opencl, memory_limit: 1MiB}\n  b: {type: opencl}\n";
  options.config_size = std::strlen(options.config_text);
  EXPECT_EQ(evn_runtime_create(&options, &runtime, &error), EVN_ERROR_CONFIG);
  const std::string message = error.message;
  EXPECT_NE(message.find("devices a (line 2) and b are one device"), std::string::npos) << message;
  EXPECT_NE(message.find("have one memory_limit: a says 1048576, b says none"), std::string::npos) << message;
}

TEST_F(OpenClNames, ThreadsThatAskAtOnceOpenItOnce) {
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.cache_dir = "";
  ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      evn_device device = nullptr;
      EXPECT_EQ(evn_runtime_device_find(runtime, t % 2 == 0 ? "opencl" : "opencl:0", &device, nullptr), EVN_OK);
      EXPECT_EQ(evn_device_release(device), EVN_OK);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(driver->calls(OpenClDriver::kContext), 1);
}

}  // namespace
}  // namespace evn::test
