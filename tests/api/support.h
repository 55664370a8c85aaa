// RAII over the C API for tests, and a small model.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "evener/evener.h"
#include "tests/model/onnx_writer.h"

namespace evn::test {

// Expects OK and shows the error's text otherwise.
#define EXPECT_OK(call)                                            \
  do {                                                             \
    error = EVN_ERROR_INIT;                                        \
    EXPECT_EQ(call, EVN_OK) << error.message << " " << error.node; \
  } while (0)
#define ASSERT_OK(call)                                            \
  do {                                                             \
    error = EVN_ERROR_INIT;                                        \
    ASSERT_EQ(call, EVN_OK) << error.message << " " << error.node; \
  } while (0)

struct ApiTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_model model = nullptr;
  evn_session session = nullptr;
  evn_device cpu = nullptr;
  std::string bytes = small_network().serialize();
  std::vector<float> values = std::vector<float>(2 * 3 * 8 * 8, 0.5f);
  const int64_t dims[4] = {2, 3, 8, 8};

  void SetUp() override {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 2;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    ASSERT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
  }
  void TearDown() override {
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    EXPECT_EQ(evn_device_release(cpu), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  }
  evn_tensor input() {
    evn_tensor t = nullptr;
    EXPECT_OK(evn_tensor_wrap(runtime, values.data(), values.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &t, &error));
    return t;
  }
};

}  // namespace evn::test
