// Runs whose time ends while an OpenCL device works for them. The driver holds the device until the test has seen what it wants to
// see: nothing here depends on how long anything takes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "base/fault.h"
#include "tests/api/opencl_support.h"
#include "tests/support/eventually.h"

namespace evn::test {
namespace {

constexpr std::int64_t kCount = 2 * 3 * 8 * 8;

// A step that happens behind the test's back, and will. Gives up after minutes, so that a broken build fails and does not hang.

struct OpenClDeadlines : OpenClApiTest {
  evn_model model = nullptr;
  evn_session session = nullptr;
  std::vector<float> values = ramp(kCount, -100);
  std::vector<float> expected;  // of three nodes: Neg, Neg, Relu

  void make() {
    make_runtime("limits: {overdue_time: 1h}");  // however slow the machine is, nothing is in quarantine
    load_relu(&model, &session, 3);
    for (const float v : values) expected.push_back(std::max(v, 0.0f));
    EXPECT_EQ(run(), EVN_OK);  // programs are built and plans made before anything is held
    const int kernels = driver->calls(OpenClDriver::kKernel);
    EXPECT_EQ(run(), EVN_OK);
    kernels_of_run = driver->calls(OpenClDriver::kKernel) - kernels;
    EXPECT_GT(kernels_of_run, 0);
  }
  void TearDown() override {
    if (driver != nullptr) driver->let_go();
    fault_arm(Seam::kDevice, 0, false);
    fault_arm(Seam::kThread, 0, false);
    release_all();
    OpenClApiTest::TearDown();
  }
  void release_all() {
    for (evn_tensor t : tensors) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
    tensors.clear();
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    session = nullptr;
    model = nullptr;
  }

  int kernels_of_run = 0;
  std::vector<evn_tensor> tensors;
  evn_tensor keep(evn_tensor t) { return tensors.push_back(t), t; }

  // A run with new host tensors, checked when it succeeds.
  evn_status run(std::uint64_t timeout_ns = 0) {
    const evn_tensor x = wrap(values, {2, 3, 8, 8});
    evn_tensor y = nullptr;
    const evn_status status = run_with(x, &y, timeout_ns);
    if (status == EVN_OK) {
      EXPECT_EQ(read(y), expected);
    }
    EXPECT_EQ(evn_tensor_release(x), EVN_OK);
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
    return status;
  }
  evn_status run_with(evn_tensor x, evn_tensor* y, std::uint64_t timeout_ns) {
    evn_run_options options = EVN_RUN_OPTIONS_INIT;
    options.timeout_ns = timeout_ns;
    error = EVN_ERROR_INIT;
    return evn_session_run(session, &x, 1, y, 1, &options, &error);
  }

  // Runs that time out, until one has left something in flight: one whose time is over before it begins leaves nothing.
  template <typename Run>
  void leave_in_flight(Run&& try_run) {
    const int waited = driver->waited_for_held();
    driver->hold();
    for (std::uint64_t timeout_ns = 1'000'000; !driver->holds(); timeout_ns *= 2) {
      ASSERT_EQ(try_run(timeout_ns), EVN_ERROR_TIMEOUT) << error.message;
    }
    EXPECT_TRUE(driver->holds());
    EXPECT_EQ(driver->waited_for_held(), waited) << "the caller waited for the device";
  }
  void leave_in_flight() {
    leave_in_flight([this](std::uint64_t timeout_ns) { return run(timeout_ns); });
  }
};

TEST_F(OpenClDeadlines, ARunOverItsTimeFreesItsCaller) {
  make();
  leave_in_flight();
  EXPECT_STREQ(error.message, "the run's time is over");
  driver->let_go();
  EXPECT_EQ(run(), EVN_OK);
  EXPECT_EQ(run(60'000'000'000), EVN_OK);
}

TEST_F(OpenClDeadlines, ARunThatFollowsWaitsWithinItsOwnTime) {
  make();
  leave_in_flight();
  const int kernels = driver->calls(OpenClDriver::kKernel), transfers = driver->transfers();
  EXPECT_EQ(run(1'000'000), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(driver->waited_for_held(), 0);
  EXPECT_EQ(driver->calls(OpenClDriver::kKernel), kernels) << "work was put behind what is in flight";
  EXPECT_EQ(driver->transfers(), transfers);
  std::thread letting_go([this] { driver->let_go(); });
  EXPECT_EQ(run(), EVN_OK);
  letting_go.join();
}

TEST_F(OpenClDeadlines, TensorsOfTheRunServeTheNextOne) {
  make();
  for (const uint32_t flags : {0u, uint32_t{EVN_TENSOR_PINNED}}) {
    const evn_tensor x = keep(create(gpu, {2, 3, 8, 8}, flags)), y = keep(create(gpu, {2, 3, 8, 8}, flags));
    write(x, values);
    evn_tensor out = y;
    const int kernels = driver->calls(OpenClDriver::kKernel);
    leave_in_flight([&](std::uint64_t timeout_ns) { return run_with(x, &out, timeout_ns); });
    std::thread letting_go([this] { driver->let_go(); });
    const std::vector<float> got = read(y);
    EXPECT_FALSE(driver->holds()) << "a map waits for the run behind which it comes";
    letting_go.join();
    // On a slow machine the time may be over before the run has enqueued all; then y is not written whole.
    if (driver->calls(OpenClDriver::kKernel) - kernels == kernels_of_run) {
      EXPECT_EQ(got, expected);
    }
    const std::vector<float> other = ramp(kCount, -50);
    write(x, other);
    EXPECT_EQ(run_with(x, &out, 0), EVN_OK);
    std::vector<float> want = other;
    for (float& v : want) v = std::max(v, 0.0f);
    EXPECT_EQ(read(y), want);
  }
}

// Behind the back of whoever owns the runtime: nothing waits, and it goes when the device is done.
TEST_F(OpenClDeadlines, EverythingMayBeReleasedMeanwhile) {
  make();
  leave_in_flight();
  release_all();
  OpenClApiTest::TearDown();
  runtime = nullptr;
  cpu = gpu = nullptr;
  EXPECT_TRUE(driver->holds());
  EXPECT_EQ(driver->calls(OpenClDriver::kReleaseContext), 0);
  driver->let_go();
  EXPECT_TRUE(eventually([this] { return driver->calls(OpenClDriver::kReleaseContext) == 1; }));
}

TEST_F(OpenClDeadlines, MemoryOfTheHostIsNotTouchedAfterwards) {
  make();
  auto in = std::make_unique<std::vector<float>>(values), out = std::make_unique<std::vector<float>>(kCount, 1.0f);
  const evn_tensor x = wrap(*in, {2, 3, 8, 8});
  evn_tensor y = wrap(*out, {2, 3, 8, 8});
  leave_in_flight([&](std::uint64_t timeout_ns) { return run_with(x, &y, timeout_ns); });
  EXPECT_EQ(evn_tensor_release(x), EVN_OK);
  EXPECT_EQ(evn_tensor_release(y), EVN_OK);
  in.reset();  // AddressSanitizer sees who reads it now
  const std::vector<float> before = *out;
  driver->let_go();
  EXPECT_EQ(run(), EVN_OK);  // behind it
  EXPECT_EQ(*out, before);
}

TEST_F(OpenClDeadlines, ADeleterIsCalledWhenTheDeviceIsDone) {
  make();
  std::atomic<int> deleted{0};
  evn_tensor x = nullptr, y = nullptr;
  const int64_t dims[] = {2, 3, 8, 8};
  ASSERT_OK(evn_tensor_wrap(
      runtime, values.data(), values.size() * sizeof(float), EVN_DTYPE_FLOAT32, dims, 4,
      [](void* user, void*) { ++*static_cast<std::atomic<int>*>(user); }, &deleted, &x, &error));
  leave_in_flight([&](std::uint64_t timeout_ns) { return run_with(x, &y, timeout_ns); });
  EXPECT_EQ(evn_tensor_release(x), EVN_OK);
  EXPECT_EQ(deleted, 0);
  driver->let_go();
  EXPECT_TRUE(eventually([&] { return deleted == 1; }));
}

TEST_F(OpenClDeadlines, WithoutAThreadTheCallerWaits) {
  make();
  fault_arm(Seam::kThread, 1, true);
  driver->hold();
  while (driver->waited_for_held() == 0) {
    const evn_status status = run(100'000'000);
    ASSERT_TRUE(status == EVN_OK || status == EVN_ERROR_TIMEOUT) << error.message;
  }
  EXPECT_FALSE(driver->holds());
  fault_arm(Seam::kThread, 0, false);
  leave_in_flight();
  driver->let_go();
  EXPECT_EQ(run(), EVN_OK);
}

// A call of the driver fails behind others that are held.
TEST_F(OpenClDeadlines, AnErrorDoesNotWaitEither) {
  make();
  int lost = 0;
  for (int k = 1; k < 200; ++k) {
    driver->hold();
    fault_arm(Seam::kDevice, k, false);
    const evn_status status = run(20'000'000);
    const bool reached = fault_count(Seam::kDevice) >= k;
    fault_arm(Seam::kDevice, 0, false);
    EXPECT_TRUE(status == EVN_ERROR_TIMEOUT || status == EVN_ERROR_DEVICE_LOST || status == EVN_ERROR_OUT_OF_MEMORY)
        << status << error.message;
    lost += status == EVN_ERROR_DEVICE_LOST;
    ASSERT_EQ(driver->waited_for_held(), 0) << k;
    driver->let_go();
    ASSERT_EQ(run(), EVN_OK) << k;
    if (!reached) break;
  }
  EXPECT_GT(lost, 3);
}

TEST_F(OpenClDeadlines, TracedRunsToo) {
  make();
  ASSERT_OK(evn_session_trace_start(session, 100, &error));
  EXPECT_EQ(run(), EVN_OK);
  leave_in_flight();
  ASSERT_OK(evn_session_trace_stop(session, &error));
  driver->let_go();
  EXPECT_EQ(run(), EVN_OK);
}

TEST_F(OpenClDeadlines, ARunThatIsCancelledFreesItsCallerToo) {
  make();
  evn_cancel token = nullptr;
  ASSERT_OK(evn_cancel_create(&token, &error));
  driver->hold();
  std::thread asking([&] {
    EXPECT_TRUE(eventually([this] { return driver->holds(); }));
    EXPECT_EQ(evn_cancel_request(token), EVN_OK);
  });
  const evn_tensor x = wrap(values, {2, 3, 8, 8});
  evn_tensor y = nullptr;
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.cancel = token;
  error = EVN_ERROR_INIT;
  EXPECT_EQ(evn_session_run(session, &x, 1, &y, 1, &options, &error), EVN_ERROR_CANCELLED) << error.message;
  asking.join();
  EXPECT_EQ(driver->waited_for_held(), 0) << "the caller waited for the device";
  EXPECT_EQ(evn_tensor_release(x), EVN_OK);
  EXPECT_EQ(evn_cancel_release(token), EVN_OK);
  driver->let_go();
  EXPECT_EQ(run(), EVN_OK);
}

TEST_F(OpenClDeadlines, ManyThreadsAndManyRuns) {
  make();
  leave_in_flight();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<float> mine = values;
      evn_error own = EVN_ERROR_INIT;
      for (int i = 0; i < 10; ++i) {
        const int64_t dims[] = {2, 3, 8, 8};
        evn_tensor x = nullptr, y = nullptr;
        evn_run_options options = EVN_RUN_OPTIONS_INIT;
        options.timeout_ns = t % 2 == 0 ? 0 : 200'000;
        EXPECT_EQ(evn_tensor_wrap(runtime, mine.data(), mine.size() * sizeof(float), EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr,
                                  &x, &own),
                  EVN_OK);
        const evn_status status = evn_session_run(session, &x, 1, &y, 1, &options, &own);
        EXPECT_TRUE(status == EVN_OK || (t % 2 == 1 && status == EVN_ERROR_TIMEOUT)) << own.message;
        if (status == EVN_OK) {
          void* data = nullptr;
          EXPECT_EQ(evn_tensor_map(y, EVN_MAP_READ, &data, nullptr, &own), EVN_OK);
          right += std::equal(expected.begin(), expected.end(), static_cast<const float*>(data));
        } else {
          ++right;
        }
        evn_tensor_release(x);
        evn_tensor_release(y);
      }
    });
  }
  driver->let_go();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 40);
}

}  // namespace
}  // namespace evn::test
