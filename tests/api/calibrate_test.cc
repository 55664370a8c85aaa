// evn_runtime_calibrate, and sessions of the device "auto".
#include "base/fault.h"
#include "tests/api/support.h"

namespace evn::test {
namespace {

struct Calibrate : ApiTest {
  evn_status calibrate(evn_model of, const evn_calibrate_options* options, std::string* text = nullptr) {
    std::string room(1 << 16, '\0');
    size_t size = 0;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_runtime_calibrate(runtime, of, options, EVN_FORMAT_JSON, room.data(), room.size(), &size, &error);
    if (text != nullptr && status == EVN_OK) *text = room.substr(0, size - 1);
    return status;
  }
};

TEST_F(Calibrate, WritesWhatTheDevicesTake) {
  std::string text;
  ASSERT_EQ(calibrate(model, nullptr, &text), EVN_OK) << error.message;
  for (const char* key : {"\"device\":\"cpu\"", "\"refused\":\"\"", "\"steps\":", "\"run_ns\":", "\"upload\":{\"latency_ns\":"})
    EXPECT_NE(text.find(key), std::string::npos) << key << text;
  std::string explained(1 << 16, '\0');
  size_t size = 0;
  ASSERT_OK(evn_session_explain(session, EVN_FORMAT_JSON, explained.data(), explained.size(), &size, &error));
  EXPECT_EQ(
      explained.find(
          "\"predicted_ns\":null,\"measured_ns\":null,\"precision\":\"fp32\",\"precision_reason\":\"the default\",\"numerics\""),
      std::string::npos);
  EXPECT_NE(explained.find("\"predicted_ns\":"), std::string::npos);
}

TEST_F(Calibrate, EndsWhenItIsCancelledOrLate) {
  evn_calibrate_options o = EVN_CALIBRATE_OPTIONS_INIT;
  ASSERT_OK(evn_cancel_create(&o.cancel, &error));
  ASSERT_OK(evn_cancel_request(o.cancel));
  EXPECT_EQ(calibrate(model, &o), EVN_ERROR_CANCELLED);
  EXPECT_EQ(calibrate(nullptr, &o), EVN_ERROR_CANCELLED);
  EXPECT_EQ(evn_cancel_release(o.cancel), EVN_OK);
  o.cancel = nullptr;
  o.deadline_ns = 1;
  EXPECT_EQ(calibrate(model, &o), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(calibrate(model, nullptr), EVN_OK);
}

TEST_F(Calibrate, MisuseIsRefused) {
  evn_calibrate_options o = EVN_CALIBRATE_OPTIONS_INIT;
  o.reserved = 1;
  EXPECT_EQ(calibrate(model, &o), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(calibrate(reinterpret_cast<evn_model>(runtime), nullptr), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_runtime_calibrate(runtime, model, nullptr, EVN_FORMAT_SVG, nullptr, 0, nullptr, &error),
            EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_runtime_calibrate(runtime, model, nullptr, EVN_FORMAT_TEXT, nullptr, 0, nullptr, &error),
            EVN_ERROR_INVALID_ARGUMENT);
  evn_runtime other = nullptr;
  ASSERT_OK(evn_runtime_create(nullptr, &other, &error));
  EXPECT_EQ(evn_runtime_calibrate(other, model, nullptr, EVN_FORMAT_TEXT, values.empty() ? nullptr : bytes.data(), bytes.size(),
                                  nullptr, &error),
            EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_runtime_release(other), EVN_OK);
}

TEST_F(Calibrate, EachFailingAllocationIsAnErrorOrARefusedDevice) {
  std::string text(1 << 16, '\0');
  int failed = 0;
  for (std::int64_t k = 1;; ++k) {
    size_t size = 0;
    error = EVN_ERROR_INIT;
    fault_arm(Seam::kAlloc, k, false);
    const evn_status status =
        evn_runtime_calibrate(runtime, model, nullptr, EVN_FORMAT_JSON, text.data(), text.size(), &size, &error);
    fault_arm(Seam::kAlloc, 0, false);
    if (status == EVN_OK && text.find("\"refused\":\"\"") != std::string::npos) break;
    ++failed;
    if (status != EVN_OK) {
      ASSERT_EQ(status, EVN_ERROR_OUT_OF_MEMORY) << k << ": " << error.message;
    }
  }
  EXPECT_GT(failed, 50);
}

TEST_F(Calibrate, SessionsTakeAutoAndLists) {
  for (const char* device : {"auto", "cpu", "cpu, cpu", "opencl:9,cpu", ""}) {
    evn_session_options o = EVN_SESSION_OPTIONS_INIT;
    o.device = device;
    evn_session s = nullptr;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_session_create(runtime, model, &o, &s, &error);
    EXPECT_EQ(status, std::string(device) == "opencl:9,cpu" ? EVN_ERROR_DEVICE_UNAVAILABLE : EVN_OK) << device << error.message;
    EXPECT_EQ(evn_session_release(s), EVN_OK);
  }
}

}  // namespace
}  // namespace evn::test
