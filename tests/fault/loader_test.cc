// The k-th allocation of the library fails, for every k, while a loader is made and read: a status each time, and nothing is kept;
// and that batches are made of memory that there is.
#include "base/fault.h"
#include "evener/train.h"
#include "tests/api/support.h"

namespace evn::test::loader_test {
namespace {

struct LoaderFaultTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  float x[40] = {};
  const int64_t dims[1] = {4};
  evn_loader_array array = {"x", dims, x, EVN_DTYPE_FLOAT32, 1};
  evn_loader_options options = EVN_LOADER_OPTIONS_INIT;

  void SetUp() override {
    evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
    o.cache_dir = "";
    o.thread_count = 1;
    ASSERT_OK(evn_runtime_create(&o, &runtime, &error));
    for (int i = 0; i < 40; ++i) x[i] = static_cast<float>(i);
    options.arrays = &array;
    options.array_count = 1;
    options.sample_count = 10;
    options.batch = 4;
    options.flags = EVN_LOADER_SHUFFLE;
  }
  void TearDown() override {
    fault_arm(Seam::kAlloc, 0, false);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  }
  // The sum of all values of an epoch.
  evn_status read(evn_loader loader, double* sum) {
    evn_status s = evn_loader_start_epoch(loader, 0, 0, &error);
    for (*sum = 0; s == EVN_OK;) {
      evn_tensor tensor = nullptr;
      uint32_t samples = 0;
      void* data = nullptr;
      s = evn_loader_next(loader, &tensor, 1, &samples, &error);
      if (s != EVN_OK || samples == 0) break;
      s = evn_tensor_map(tensor, EVN_MAP_READ, &data, nullptr, &error);
      if (s != EVN_OK) break;
      for (uint32_t i = 0; i < samples * 4; ++i) *sum += static_cast<double>(static_cast<const float*>(data)[i]);
      s = evn_tensor_unmap(tensor, &error);
    }
    return s;
  }
};

TEST_F(LoaderFaultTest, AllocationsThatFailAreAStatus) {
  int reached = 0;
  for (const bool forever : {false, true}) {
    for (int k = 1; k < 100'000; ++k) {
      evn_loader loader = nullptr;
      double sum = 0;
      error = EVN_ERROR_INIT;
      fault_arm(Seam::kAlloc, k, forever);
      evn_status status = evn_loader_create(runtime, &options, &loader, &error);
      if (status == EVN_OK) status = read(loader, &sum);
      const bool is_reached = fault_count(Seam::kAlloc) >= k;
      fault_arm(Seam::kAlloc, 0, false);
      if (status == EVN_OK) {
        EXPECT_EQ(sum, 780) << k;
      } else {
        EXPECT_EQ(status, EVN_ERROR_OUT_OF_MEMORY) << k << ": " << error.message;
      }
      if (loader != nullptr) {
        EXPECT_OK(read(loader, &sum));  // the same loader goes on
        EXPECT_EQ(sum, 780);
      }
      EXPECT_EQ(evn_loader_release(loader), EVN_OK);
      if (!is_reached) break;
      reached = std::max(reached, k);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(reached, 10);
}

TEST_F(LoaderFaultTest, BatchesAllocateNothing) {
  evn_loader loader = nullptr;
  ASSERT_OK(evn_loader_create(runtime, &options, &loader, &error));
  double sum = 0;
  ASSERT_OK(read(loader, &sum));
  fault_count_reset(Seam::kAlloc);
  for (int i = 0; i < 10; ++i) ASSERT_OK(read(loader, &sum));
  EXPECT_EQ(fault_count(Seam::kAlloc), 0);
  EXPECT_EQ(evn_loader_release(loader), EVN_OK);
}

}  // namespace
}  // namespace evn::test::loader_test
