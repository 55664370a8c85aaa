// What tensors of an OpenCL device cost: how often bytes cross between it and the host.
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

}  // namespace
}  // namespace evn::test
