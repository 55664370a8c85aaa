// OpenCL devices through the C API, under a driver that the test controls.
#pragma once

#include <cstring>
#include <memory>

#include "tests/api/support.h"
#include "tests/support/opencl_driver.h"

namespace evn::test {

struct OpenClApiTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_device cpu = nullptr;
  evn_device gpu = nullptr;

  std::unique_ptr<OpenClDriver> driver;  // goes behind TearDown

  void SetUp() override {
    EVN_NEEDS_OPENCL();
    driver = std::make_unique<OpenClDriver>();
  }
  void make_runtime(const char* config = "") {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 2;
    options.config_text = config;
    options.config_size = std::strlen(config);
    if (options.config_size == 0) options.config_text = nullptr;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
    ASSERT_OK(evn_runtime_device_find(runtime, "opencl:0", &gpu, &error));
    driver->count_anew();
  }
  void TearDown() override {
    EXPECT_EQ(evn_device_release(gpu), EVN_OK);
    EXPECT_EQ(evn_device_release(cpu), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  }

  evn_tensor create(evn_device device, std::vector<int64_t> dims, uint32_t flags = 0) {
    evn_tensor t = nullptr;
    EXPECT_OK(evn_tensor_create(device, EVN_DTYPE_FLOAT32, dims.data(), static_cast<uint32_t>(dims.size()), flags, &t, &error));
    return t;
  }
  evn_tensor wrap(std::vector<float>& values, std::vector<int64_t> dims) {
    evn_tensor t = nullptr;
    EXPECT_OK(evn_tensor_wrap(runtime, values.data(), values.size() * sizeof(float), EVN_DTYPE_FLOAT32, dims.data(),
                              static_cast<uint32_t>(dims.size()), nullptr, nullptr, &t, &error));
    return t;
  }
  // One Relu over any float32 tensor of rank 4, or `nodes` of them, on the OpenCL device.
  void load_relu(evn_model* model, evn_session* session, int nodes = 1) {
    OnnxWriter w(13);
    w.add_input("x", kF32, {"a", "b", "c", "d"}).add_output("y", kF32);
    for (int i = 0; i < nodes; ++i) {
      const std::string from = i == 0 ? "x" : "v" + std::to_string(i), to = i + 1 == nodes ? "y" : "v" + std::to_string(i + 1);
      w.add_node(i + 1 == nodes ? "Relu" : "Neg", {from}, {to});
    }
    const std::string bytes = w.serialize();
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, model, &error));
    evn_session_options options = EVN_SESSION_OPTIONS_INIT;
    options.device = "opencl:0";
    ASSERT_OK(evn_session_create(runtime, *model, &options, session, &error));
  }
  std::vector<float> read(evn_tensor tensor) {
    void* data = nullptr;
    std::size_t size = 0;
    EXPECT_OK(evn_tensor_map(tensor, EVN_MAP_READ, &data, &size, &error));
    const auto* values = static_cast<const float*>(data);
    std::vector<float> copy(values, values + size / sizeof(float));
    EXPECT_OK(evn_tensor_unmap(tensor, &error));
    return copy;
  }
  void write(evn_tensor tensor, const std::vector<float>& values) {
    void* data = nullptr;
    std::size_t size = 0;
    ASSERT_OK(evn_tensor_map(tensor, EVN_MAP_WRITE, &data, &size, &error));
    ASSERT_EQ(size, values.size() * sizeof(float));
    std::memcpy(data, values.data(), size);
    ASSERT_OK(evn_tensor_unmap(tensor, &error));
  }
};

inline std::vector<float> ramp(std::size_t count, float first = 0) {
  std::vector<float> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = first + static_cast<float>(i);
  return v;
}

}  // namespace evn::test
