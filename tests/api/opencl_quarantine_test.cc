// An OpenCL device whose kernel never ends, until the test lets it: it is in quarantine meanwhile.
#include <mutex>

#include "evener/event.h"
#include "evener/request.h"
#include "tests/api/opencl_support.h"
#include "tests/support/eventually.h"

namespace evn::test::opencl_quarantine_test {
namespace {

constexpr std::int64_t kCount = 2 * 3 * 8 * 8;

struct Events {
  std::mutex mutex;
  std::vector<std::string> seen;
  int count(const std::string& event) {
    const std::lock_guard<std::mutex> lock(mutex);
    return static_cast<int>(std::count(seen.begin(), seen.end(), event));
  }
  static void note(void* user, const evn_log_record* record) {
    auto& events = *static_cast<Events*>(user);
    const std::lock_guard<std::mutex> lock(events.mutex);
    events.seen.push_back(record->event);
  }
};

struct OpenClQuarantine : OpenClApiTest {
  evn_model model = nullptr;
  evn_session session = nullptr;
  std::vector<float> values = ramp(kCount, -100);
  std::vector<float> expected;
  Events events;

  void make(const char* placement = "") {
    const std::string config = std::string("limits: {overdue_time: 1ns}\ndevices: {g: {type: opencl}}\n") + placement;
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 2;
    options.config_text = config.c_str();
    options.config_size = config.size();
    if (options.config_size == 0) options.config_text = nullptr;
    options.log_sink = &Events::note;
    options.log_sink_user = &events;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
    ASSERT_OK(evn_runtime_device_find(runtime, "g", &gpu, &error));
    OnnxWriter w(13);
    w.add_input("x", kF32, {2, 3, 8, 8}).add_output("y", kF32);
    w.add_node("Relu", {"x"}, {"y"});
    const std::string bytes = w.serialize();
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    evn_session_options session_options = EVN_SESSION_OPTIONS_INIT;
    session_options.device = "g,cpu";
    ASSERT_OK(evn_session_create(runtime, model, &session_options, &session, &error));
    for (const float v : values) expected.push_back(std::max(v, 0.0f));
    ASSERT_EQ(run(0), EVN_OK) << error.message;
  }
  evn_status run(std::uint64_t timeout_ns) {
    const evn_tensor x = wrap(values, {2, 3, 8, 8});
    evn_tensor y = nullptr;
    evn_run_options options = EVN_RUN_OPTIONS_INIT;
    options.timeout_ns = timeout_ns;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_session_run(session, &x, 1, &y, 1, &options, &error);
    if (status == EVN_OK) {
      EXPECT_EQ(read(y), expected);
    }
    EXPECT_EQ(evn_tensor_release(x), EVN_OK);
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
    return status;
  }
  // Until a run has left a command that does not end.
  void hang() {
    driver->hold();
    for (std::uint64_t timeout_ns = 1'000'000; !driver->holds(); timeout_ns *= 2) {
      ASSERT_EQ(run(timeout_ns), EVN_ERROR_TIMEOUT) << error.message;
    }
    EXPECT_EQ(driver->waited_for_held(), 0) << "the caller waited for the device";
  }
  evn_device_info info() {
    evn_device_info i = EVN_DEVICE_INFO_INIT;
    EXPECT_OK(evn_device_get_info(gpu, &i, &error));
    return i;
  }
  std::string text(const auto& call) {
    std::size_t size = 0;
    EXPECT_OK(call(nullptr, 0, &size));
    std::string t(size, '\0');
    EXPECT_OK(call(t.data(), size, &size));
    t.resize(size - 1);
    return t;
  }
  std::string condition() {
    return text([&](char* b, std::size_t c, std::size_t* s) { return evn_device_condition(gpu, b, c, s, &error); });
  }
  std::string statistics(evn_format format) {
    return text(
        [&](char* b, std::size_t c, std::size_t* s) { return evn_runtime_get_statistics(runtime, format, b, c, s, &error); });
  }
  void release_all() {
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    session = nullptr;
    model = nullptr;
    OpenClApiTest::TearDown();
    runtime = nullptr;
    cpu = gpu = nullptr;
  }
  void TearDown() override {
    if (driver == nullptr) return;
    driver->let_go();
    release_all();
    const auto is_closed = [this] { return driver->calls(OpenClDriver::kReleaseContext) == driver->calls(OpenClDriver::kContext); };
    EXPECT_TRUE(eventually(is_closed));  // it writes to `events` until then
  }
};

TEST_F(OpenClQuarantine, RunsAndCopiesAreRefusedUntilTheKernelEnds) {
  make();
  const evn_tensor here = create(cpu, {4}), there = create(gpu, {4}), pinned = create(gpu, {4}, EVN_TENSOR_PINNED);
  EXPECT_EQ(info().state, EVN_DEVICE_READY);
  EXPECT_EQ(condition(), "");
  hang();
  EXPECT_EQ(info().state, EVN_DEVICE_QUARANTINED);
  EXPECT_EQ(info().quarantines, 1u);
  EXPECT_NE(condition().find("it is in quarantine"), std::string::npos) << condition();
  EXPECT_EQ(run(0), EVN_ERROR_DEVICE_LOST);
  EXPECT_NE(std::string(error.message).find("device g is in quarantine"), std::string::npos) << error.message;
  EXPECT_STREQ(error.device, "g");
  EXPECT_EQ(evn_tensor_copy(here, there, &error), EVN_ERROR_DEVICE_LOST);
  EXPECT_EQ(evn_tensor_copy(there, here, &error), EVN_ERROR_DEVICE_LOST);
  evn_event event = nullptr;
  EXPECT_EQ(evn_tensor_copy_async(there, here, nullptr, 0, &event, &error), EVN_ERROR_DEVICE_LOST);
  EXPECT_EQ(event, nullptr);
  void* data = nullptr;
  std::size_t size = 0;
  EXPECT_EQ(evn_tensor_map(there, EVN_MAP_READ, &data, &size, &error), EVN_ERROR_DEVICE_LOST);
  EXPECT_EQ(evn_tensor_map(pinned, EVN_MAP_WRITE, &data, &size, &error), EVN_ERROR_DEVICE_LOST);
  EXPECT_EQ(driver->waited_for_held(), 0);
  EXPECT_TRUE(driver->holds());
  EXPECT_EQ(events.count("device.quarantined"), 1);
  EXPECT_NE(statistics(EVN_FORMAT_TEXT).find("device g: it is in quarantine"), std::string::npos);
  EXPECT_NE(statistics(EVN_FORMAT_JSON).find(R"("condition":"it is in quarantine)"), std::string::npos);
  EXPECT_NE(statistics(EVN_FORMAT_PROMETHEUS).find("evener_device_usable{device=\"g\"} 0"), std::string::npos)
      << statistics(EVN_FORMAT_PROMETHEUS);

  driver->let_go();
  ASSERT_TRUE(eventually([&] { return info().state == EVN_DEVICE_READY; }));
  EXPECT_TRUE(eventually([&] { return events.count("device.returned") == 1; }));
  EXPECT_EQ(run(0), EVN_OK) << error.message;
  EXPECT_OK(evn_tensor_copy(here, there, &error));
  EXPECT_EQ(info().quarantines, 1u);
  for (const evn_tensor t : {here, there, pinned}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(OpenClQuarantine, TensorsAndSessionsMayBeReleasedMeanwhile) {
  make();
  const evn_tensor there = create(gpu, {4}), mapped = create(gpu, {4}, EVN_TENSOR_PINNED);
  void* data = nullptr;
  std::size_t size = 0;
  ASSERT_OK(evn_tensor_map(mapped, EVN_MAP_WRITE, &data, &size, &error));
  hang();
  EXPECT_EQ(info().state, EVN_DEVICE_QUARANTINED);
  EXPECT_EQ(evn_tensor_unmap(mapped, &error), EVN_ERROR_DEVICE_LOST);
  EXPECT_EQ(evn_device_trim_memory(gpu, &error), EVN_OK);
  EXPECT_EQ(evn_tensor_release(mapped), EVN_OK);
  EXPECT_EQ(evn_tensor_release(there), EVN_OK);
  EXPECT_EQ(evn_device_trim_memory(gpu, &error), EVN_OK);
  release_all();
  EXPECT_TRUE(driver->holds());
  EXPECT_EQ(driver->calls(OpenClDriver::kReleaseContext), 0);
  EXPECT_EQ(driver->waited_for_held(), 0);
  driver->let_go();
  EXPECT_TRUE(eventually([this] { return driver->calls(OpenClDriver::kReleaseContext) == driver->calls(OpenClDriver::kContext); }));
}

TEST_F(OpenClQuarantine, ASessionMovesToTheCpu) {
  make("placement: {on_device_lost: move}\n");
  hang();
  EXPECT_EQ(run(0), EVN_OK) << error.message;
  EXPECT_TRUE(driver->holds());
  EXPECT_EQ(events.count("session.replaced"), 0) << "it is no warning";
  EXPECT_EQ(events.count("device.lost"), 0);
  const std::string explained =
      text([&](char* b, std::size_t c, std::size_t* s) { return evn_session_explain(session, EVN_FORMAT_TEXT, b, c, s, &error); });
  EXPECT_NE(explained.find("it is in quarantine"), std::string::npos) << explained;
}

}  // namespace
}  // namespace evn::test::opencl_quarantine_test
