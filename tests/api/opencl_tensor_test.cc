// What tensors of an OpenCL device cost: how often bytes cross between it and the host.
#include <algorithm>

#include "base/fault.h"
#include "tests/api/opencl_support.h"

namespace evn::test {
namespace {

using OpenClTensors = OpenClApiTest;

TEST_F(OpenClTensors, CopyToIsOneTransfer) {
  make_runtime();
  std::vector<float> values = ramp(1000, 1);
  const evn_tensor host = wrap(values, {1000});
  evn_tensor there = nullptr, back = nullptr;
  ASSERT_OK(evn_tensor_copy_to(host, gpu, &there, &error));
  EXPECT_EQ(driver->calls(OpenClDriver::kWrite), 1);
  EXPECT_EQ(driver->transfers(), 1);
  ASSERT_OK(evn_tensor_copy_to(there, cpu, &back, &error));
  EXPECT_EQ(driver->calls(OpenClDriver::kRead), 1);
  EXPECT_EQ(driver->transfers(), 2);
  EXPECT_EQ(read(back), values);
  for (evn_tensor t : {host, there, back}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(OpenClTensors, CreateStillGivesZeros) {
  make_runtime();
  for (const uint32_t flags : {0u, uint32_t{EVN_TENSOR_PINNED}}) {
    const evn_tensor first = create(gpu, {100}, flags);
    write(first, ramp(100, 1));
    EXPECT_EQ(evn_tensor_release(first), EVN_OK);
    const evn_tensor second = create(gpu, {100}, flags);  // of the same memory
    EXPECT_EQ(read(second), std::vector<float>(100));
    EXPECT_EQ(evn_tensor_release(second), EVN_OK);
  }
}

TEST_F(OpenClTensors, PinnedOnesMapWithoutACopy) {
  make_runtime();
  const evn_tensor x = create(gpu, {2, 3, 8, 8}, EVN_TENSOR_PINNED);
  const evn_tensor y = create(gpu, {2, 3, 8, 8}, EVN_TENSOR_PINNED);
  EXPECT_EQ(driver->transfers(), 0) << "zeros were copied";
  evn_model model = nullptr;
  evn_session session = nullptr;
  load_relu(&model, &session);
  for (int round = 0; round < 3; ++round) {
    const int maps = driver->calls(OpenClDriver::kMap), kernels = driver->calls(OpenClDriver::kKernel);
    std::vector<float> values = ramp(384, -200.0f - static_cast<float>(round));
    write(x, values);
    evn_tensor out = y;
    ASSERT_OK(evn_session_run(session, &x, 1, &out, 1, nullptr, &error));
    for (float& v : values) v = std::max(v, 0.0f);
    EXPECT_EQ(read(y), values);
    EXPECT_EQ(driver->transfers(), 0);
    EXPECT_EQ(driver->calls(OpenClDriver::kMap) - maps, 2);
    EXPECT_EQ(driver->calls(OpenClDriver::kKernel) - kernels, 1);
  }
  EXPECT_EQ(driver->calls(OpenClDriver::kUnmap), driver->calls(OpenClDriver::kMap));

  // While it is mapped it cannot be used; what was written stays when the map is for reading and writing.
  void* data = nullptr;
  evn_tensor out = y;
  ASSERT_OK(evn_tensor_map(x, EVN_MAP_READ | EVN_MAP_WRITE, &data, nullptr, &error));
  EXPECT_EQ(evn_session_run(session, &x, 1, &out, 1, nullptr, &error), EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(evn_tensor_copy(x, y, &error), EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(evn_tensor_map(x, EVN_MAP_READ, &data, nullptr, &error), EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(static_cast<float*>(data)[0], -202.0f);
  static_cast<float*>(data)[0] = 5;
  ASSERT_OK(evn_tensor_unmap(x, &error));
  EXPECT_EQ(evn_tensor_unmap(x, &error), EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(read(x)[0], 5.0f);
  EXPECT_EQ(read(x)[1], -201.0f);
  for (evn_tensor t : {x, y}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

TEST_F(OpenClTensors, PinnedOnesThatAreReleasedWhileMappedLeaveTheirMemoryUsable) {
  make_runtime();
  void* data = nullptr;
  const evn_tensor first = create(gpu, {100}, EVN_TENSOR_PINNED);
  ASSERT_OK(evn_tensor_map(first, EVN_MAP_WRITE, &data, nullptr, &error));
  std::fill_n(static_cast<float*>(data), 100, 7.0f);
  EXPECT_EQ(evn_tensor_release(first), EVN_OK);
  const evn_tensor second = create(gpu, {100}, EVN_TENSOR_PINNED);
  write(second, ramp(100));
  EXPECT_EQ(read(second), ramp(100));
  EXPECT_EQ(driver->calls(OpenClDriver::kUnmap), driver->calls(OpenClDriver::kMap));
  EXPECT_EQ(evn_tensor_release(second), EVN_OK);
}

// Each call of the driver fails once: the tensor is as it was, or mapped, and works on.
TEST_F(OpenClTensors, PinnedOnesSurviveFailingMaps) {
  make_runtime();
  const evn_tensor t = create(gpu, {100}, EVN_TENSOR_PINNED);
  write(t, ramp(100, 3));
  int failures = 0;
  for (int k = 1; k <= 4; ++k) {
    void* data = nullptr;
    fault_arm(Seam::kDevice, k, false);
    evn_status status = evn_tensor_map(t, EVN_MAP_READ | EVN_MAP_WRITE, &data, nullptr, &error);
    failures += status != EVN_OK;
    if (status != EVN_OK) ASSERT_OK(evn_tensor_map(t, EVN_MAP_READ | EVN_MAP_WRITE, &data, nullptr, &error));
    status = evn_tensor_unmap(t, &error);
    failures += status != EVN_OK;
    if (status != EVN_OK) EXPECT_OK(evn_tensor_unmap(t, &error));
    fault_arm(Seam::kDevice, 0, false);
    EXPECT_EQ(read(t), ramp(100, 3));
  }
  EXPECT_EQ(failures, 4);  // map, unmap, and to submit it and wait for it
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

}  // namespace
}  // namespace evn::test
