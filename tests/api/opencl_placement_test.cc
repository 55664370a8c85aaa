// `default: auto` and `split` on OpenCL: they are right, and each OpenCL call may fail.
#include "base/fault.h"
#include "tests/api/opencl_support.h"

namespace evn::test {
namespace {

constexpr char kAuto[] = "devices: {gpu: {type: opencl}}\nplacement: {default: auto}\n";
constexpr char kSplit[] = "devices: {gpu: {type: opencl}}\nplacement: {default: cpu, split: [gpu, cpu]}\n";

struct OpenClPlacement : OpenClApiTest {
  // x [n, 4, 8, 8] -> Conv, Softmax, Conv.
  static std::string model_bytes() {
    OnnxWriter w;
    w.add_input("x", kF32, {"n", 4, 8, 8});
    std::vector<float> filters(144);
    for (std::size_t i = 0; i < filters.size(); ++i) filters[i] = 0.01f * static_cast<float>(i % 13) - 0.05f;
    w.add_initializer("w", {4, 4, 3, 3}, filters);
    const Attr pads("pads", std::vector<std::int64_t>{1, 1, 1, 1});
    w.add_node("Conv", {"x", "w"}, {"a"}, {pads}, "first").add_node("Softmax", {"a"}, {"b"}, {}, "softmax");
    w.add_node("Conv", {"b", "w"}, {"y"}, {pads}, "second").add_output("y");
    return w.serialize();
  }

  evn_model load() {
    const std::string bytes = model_bytes();
    evn_model m = nullptr;
    EXPECT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &m, &error));
    return m;
  }

  // EVN_OK with the outputs, or the status of the first call that failed.
  evn_status run(evn_model m, const char* device, std::vector<float>* y) {
    evn_session_options options = EVN_SESSION_OPTIONS_INIT;
    options.device = device;
    evn_session s = nullptr;
    error = EVN_ERROR_INIT;
    evn_status status = evn_session_create(runtime, m, &options, &s, &error);
    const int64_t dims[] = {6, 4, 8, 8};
    std::vector<float> values(6 * 256);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) - 8.0f;
    evn_tensor x = nullptr, out = nullptr;
    if (status == EVN_OK)
      status = evn_tensor_wrap(runtime, values.data(), values.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &x, &error);
    if (status == EVN_OK) status = evn_session_run(s, &x, 1, &out, 1, nullptr, &error);
    if (status == EVN_OK) {
      void* data = nullptr;
      std::size_t size = 0;
      EXPECT_OK(evn_tensor_map(out, EVN_MAP_READ, &data, &size, &error));
      y->assign(static_cast<const float*>(data), static_cast<const float*>(data) + size / 4);
      EXPECT_OK(evn_tensor_unmap(out, &error));
    }
    evn_tensor_release(out);
    evn_tensor_release(x);
    evn_session_release(s);
    return status;
  }

  void each_call_may_fail(const char* config, const char* device) {
    make_runtime(config);
    const evn_model m = load();
    std::vector<float> want, got;
    ASSERT_EQ(run(m, "cpu", &want), EVN_OK) << error.message;
    ASSERT_EQ(run(m, device, &got), EVN_OK) << error.message;
    int failed = 0;
    for (std::int64_t k = 1;; k += 1 + k / 12) {
      fault_count_reset(Seam::kDevice);
      fault_arm(Seam::kDevice, k, false);
      const evn_model fresh = load();
      const evn_status status = run(fresh, device, &got);
      const bool reached = fault_count(Seam::kDevice) >= k;
      fault_arm(Seam::kDevice, 0, false);
      EXPECT_EQ(evn_model_release(fresh), EVN_OK);
      if (status != EVN_OK) {
        ++failed;
        EXPECT_TRUE(status == EVN_ERROR_DEVICE_LOST || status == EVN_ERROR_OUT_OF_MEMORY || status == EVN_ERROR_DEVICE_UNAVAILABLE)
            << k << ": " << error.message;
      }
      ASSERT_EQ(run(m, device, &got), EVN_OK) << k << ": " << error.message;
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << k;
      if (!reached) break;
    }
    EXPECT_EQ(evn_model_release(m), EVN_OK);
    if (std::string(device).empty() && config == kSplit) {
      EXPECT_GT(failed, 5);
    }
  }
};

TEST_F(OpenClPlacement, AutoWithEachCallFailing) { each_call_may_fail(kAuto, "auto"); }

TEST_F(OpenClPlacement, SplitWithEachCallFailing) { each_call_may_fail(kSplit, ""); }

}  // namespace
}  // namespace evn::test
