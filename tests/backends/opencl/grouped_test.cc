// Rows on GPUs: a work group to each, which folds by sub-groups where the device has them, else as a tree. Tested on whatever
// device there is.
#include <cmath>
#include <limits>
#include <vector>

#include "tests/backends/opencl/opencl_test.h"

namespace evn::test {
namespace {

OpenClDevice& device_as_gpu() {
  static auto* device = [] {
    DeviceRequest request;
    request.settings.set_text("kernels", "gpu");
    return new std::shared_ptr<OpenClDevice>(open_opencl(request));
  }();
  return **device;
}

Graph rows_graph(const char* op, std::int64_t length) {
  GraphBuilder b(11);  // where axes are an attribute
  b.output(b.node(op, {b.input("x", {3, length})}, {{"axes", std::vector<std::int64_t>{1}}}));
  return b.build();
}

class OpenClRows : public ::testing::Test {
 protected:
  void SetUp() override { EVN_NEEDS_OPENCL(); }

  static void check(const char* op, std::int64_t length) {
    SCOPED_TRACE(std::string(op) + " of " + std::to_string(length));
    NodeRun run(rows_graph(op, length), 7);
    const auto at = [&](std::int64_t row, std::int64_t i) -> float& {
      return run.input(0).data[static_cast<std::size_t>(row * length + i)];
    };
    at(1, length - 1) = std::numeric_limits<float>::quiet_NaN();
    at(2, length / 2) = std::numeric_limits<float>::infinity();
    const std::vector<float> y = run.on(device_as_gpu()), expected = run.reference();
    ASSERT_EQ(y.size(), 3u);
    EXPECT_TRUE(std::isnan(y[1])) << y[1];
    if (std::string(op) != "ReduceProd") {  // infinity times what may be too small for a float
      EXPECT_EQ(y[2], expected[2]);
    }
    EXPECT_NEAR(y[0], expected[0], 1e-4f * (1 + std::fabs(expected[0])));
  }
};

TEST_F(OpenClRows, ReductionsKeepNanAndInfinity) {
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare"}) {
    for (const std::int64_t length : {33, 128, 1000}) check(op, length);
  }
}

// A number of items that is no multiple of a sub-group's, as is that of a short row, must not change the result.
TEST_F(OpenClRows, TheSameRowHasTheSameBitsWhereverItLies) {
  NodeRun one(rows_graph("ReduceSum", 257), 11);
  for (std::size_t i = 0; i < 257; ++i) one.input(0).data[514 + i] = one.input(0).data[257 + i] = one.input(0).data[i];
  const std::vector<float> y = one.on(device_as_gpu());
  ASSERT_EQ(y.size(), 3u);
  EXPECT_EQ(y[0], y[1]);
  EXPECT_EQ(y[0], y[2]);
}

TEST_F(OpenClRows, SubGroupsAreUsedWhereTheDeviceHasThem) {
  std::string why;
  const std::vector<OpenClFound> found = find_opencl_devices(&why);
  ASSERT_FALSE(found.empty());
  OpenClDriver driver;
  DeviceRequest request;
  request.settings.set_text("kernels", "gpu");
  const std::shared_ptr<OpenClDevice> device = open_opencl(request);
  NodeRun run(rows_graph("ReduceMax", 64), 7);
  run.on(*device);
  EXPECT_EQ(driver.build_options().find("-DEVN_SUBGROUPS") != std::string::npos, found[0].subgroup_functions)
      << driver.build_options();
  EXPECT_EQ(driver.build_options().find("-cl-std=CL3.0") != std::string::npos, found[0].subgroup_functions);
}

}  // namespace
}  // namespace evn::test
