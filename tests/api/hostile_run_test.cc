// Damaged models through the whole C API: whatever loads is also placed and run. A status each time, never a crash, and memory
// within the cap.
#include "tests/api/support.h"

namespace evn::test {
namespace {

struct HostileRun : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_device cpu = nullptr;

  void SetUp() override {
    static const char kYaml[] =
        "limits: {run_time: 2s, load_time: 2s, tensor_bytes: 16MiB}\ndevices:\n  cpu: {type: cpu, threads: 1, memory_limit: "
        "64MiB}\n";
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.config_text = kYaml;
    options.config_size = sizeof kYaml - 1;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
  }
  void TearDown() override {
    evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
    EXPECT_OK(evn_device_get_memory_stats(cpu, &stats, &error));
    EXPECT_LE(stats.peak, 64u << 20);
    evn_device_release(cpu);
    evn_runtime_release(runtime);
  }

  // An input as the session describes it; unknown dims become 2.
  evn_status make_input(evn_session session, uint32_t index, evn_tensor* tensor) {
    evn_value_info info = EVN_VALUE_INFO_INIT;
    evn_status s = evn_session_get_input_info(session, index, &info, &error);
    if (s != EVN_OK) return s;
    const uint32_t rank = info.rank == UINT32_MAX ? 4 : info.rank;
    for (uint32_t i = 0; i < rank; ++i) {
      if (info.rank == UINT32_MAX || info.dims[i] < 0) info.dims[i] = 2;
    }
    s = evn_tensor_create(cpu, info.dtype, info.dims, rank, 0, tensor, &error);
    void* data = nullptr;
    size_t size = 0;
    if (s == EVN_OK && evn_tensor_map(*tensor, EVN_MAP_WRITE, &data, &size, &error) == EVN_OK) {
      if (size > 0) std::memset(data, 0, size);
      evn_tensor_unmap(*tensor, &error);
    }
    return s;
  }

  evn_status use(const std::string& bytes) {
    evn_model model = nullptr;
    evn_session session = nullptr;
    error = EVN_ERROR_INIT;
    evn_status s = evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error);
    if (s == EVN_OK) s = evn_session_create(runtime, model, nullptr, &session, &error);
    uint32_t in = 0, out = 0;
    if (s == EVN_OK) s = evn_session_input_count(session, &in, &error);
    if (s == EVN_OK) s = evn_session_output_count(session, &out, &error);
    std::vector<evn_tensor> inputs(in), outputs(out);
    for (uint32_t i = 0; i < in && s == EVN_OK; ++i) s = make_input(session, i, &inputs[i]);
    if (s == EVN_OK) {
      s = evn_session_run(session, inputs.data(), in, outputs.data(), out, nullptr, &error);
      ++runs;
    }
    for (evn_tensor t : inputs) evn_tensor_release(t);
    for (evn_tensor t : outputs) evn_tensor_release(t);
    evn_session_release(session);
    evn_model_release(model);
    return s;
  }

  int runs = 0;
};

TEST_F(HostileRun, H02_WhatIsCutEitherRunsOrIsRefused) {
  const std::string bytes = small_network().serialize();
  ASSERT_EQ(use(bytes), EVN_OK) << error.message;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const evn_status s = use(bytes.substr(0, size));
    EXPECT_TRUE(s == EVN_OK || error.message[0] != '\0') << size;
  }
  EXPECT_EQ(runs, 2);
}

TEST_F(HostileRun, H03_EverySingleBitFlipRunsOrIsRefused) {
  std::string bytes = small_network().serialize();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      const evn_status s = use(bytes);
      EXPECT_NE(s, EVN_ERROR_INTERNAL) << i << "." << bit << ": " << error.message;
      EXPECT_TRUE(s == EVN_OK || error.message[0] != '\0') << i << "." << bit;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
    }
  }
  EXPECT_GT(runs, 1000);
}

}  // namespace
}  // namespace evn::test
