// Every OpenCL call fails once: only an Error comes out, and the next attempt works.
#include <unistd.h>

#include <filesystem>

#include "tests/backends/opencl/opencl_test.h"

namespace evn::test {
namespace {

Graph conv_graph() {
  GraphBuilder b;
  b.output(b.node("Conv", {b.input("x", {1, 3, 9, 20}), b.random("w", {5, 3, 3, 3}), b.random("b", {5})}));
  return b.build();
}

// Lists, opens, allocates (pinned too), copies, compiles, runs and reads.
void use_everything(const std::string& cache_dir) {
  std::string why;
  const bool listed = !opencl_backend.list(&why).empty();
  EXPECT_TRUE(listed || !why.empty());
  DeviceRequest request;
  request.cache_dir = cache_dir;
  const std::shared_ptr<OpenClDevice> device = open_opencl(request);
  const PooledMemory pinned = device->allocate(4096, MemoryClass::kTensors, true);
  NodeRun run(conv_graph(), 1);
  expect_near(run.on(*device), run.reference(), {1e-4, 1e-5});
  const PooledMemory plain = device->allocate(4096, MemoryClass::kTensors);
  const Buffer all{pinned.memory(), 0, 4096};
  device->unmap(all, device->map(all, true, true));
  device->wait(device->copy({device.get(), all}, {device.get(), {plain.memory(), 0, 4096}}, {}));
  device->wait(device->copy({device.get(), {plain.memory(), 0, 1024}}, {device.get(), {plain.memory(), 1024, 1024}}, {}));
}

class OpenClFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    EVN_NEEDS_OPENCL();
    std::string name = (std::filesystem::temp_directory_path() / "evn-opencl-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    fault_arm(Seam::kDevice, 0, false);
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // Fails call number k for k = 1, 2, ... until a whole run has fewer calls. Returns how often an Error came out.
  int fail_each(bool forever) {
    int errors = 0;
    for (std::int64_t k = 1;; ++k) {
      EXPECT_LT(k, 2000);
      fault_arm(Seam::kDevice, k, forever);
      bool threw = false;
      try {
        use_everything(folder_);
      } catch (const Error& error) {
        threw = true;
        EXPECT_TRUE(error.status == EVN_ERROR_DEVICE_UNAVAILABLE || error.status == EVN_ERROR_DEVICE_LOST ||
                    error.status == EVN_ERROR_OUT_OF_MEMORY)
            << k << ": " << error.message;
        EXPECT_NE(error.message[0], '\0');
      }
      errors += threw;
      const bool reached = fault_count(Seam::kDevice) >= k;
      fault_arm(Seam::kDevice, 0, false);
      if (!reached || k >= 2000) return errors;
    }
  }

  std::string folder_;
};

TEST_F(OpenClFaults, EachCallMayFailOnce) {
  EXPECT_GT(fail_each(false), 20);
  use_everything(folder_);
}

TEST_F(OpenClFaults, AllCallsFromEachOneMayFail) {
  EXPECT_GT(fail_each(true), 20);
  use_everything(folder_);
}

TEST_F(OpenClFaults, DeviceWorksOnAfterARunThatFailed) {
  OpenClDevice& device = shared_device();
  NodeRun run(conv_graph(), 1);
  const std::vector<float> expected = run.on(device);
  for (std::int64_t k = 1; k < 60; ++k) {
    fault_arm(Seam::kDevice, k, false);
    try {
      EXPECT_EQ(run.on(device), expected) << k;
    } catch (const Error&) {}
    fault_arm(Seam::kDevice, 0, false);
    ASSERT_EQ(run.on(device), expected) << k;
  }
}

}  // namespace
}  // namespace evn::test
