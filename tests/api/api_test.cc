// What the C API does when it is used as it is meant.
#include <atomic>
#include <cmath>
#include <thread>

#include "tests/api/support.h"

namespace evn::test {
namespace {

using Api = ApiTest;

TEST_F(Api, RunsIntoNewAndGivenTensorsWithEqualResults) {
  evn_tensor t = input();
  evn_tensor fresh = nullptr;
  ASSERT_OK(evn_session_run(session, &t, 1, &fresh, 1, nullptr, &error));
  std::vector<float> result(20);
  const int64_t out_dims[2] = {2, 10};
  evn_tensor given = nullptr;
  ASSERT_OK(evn_tensor_wrap(runtime, result.data(), 80, EVN_DTYPE_FLOAT32, out_dims, 2, nullptr, nullptr, &given, &error));
  ASSERT_OK(evn_session_run(session, &t, 1, &given, 1, nullptr, &error));
  void* data = nullptr;
  size_t size = 0;
  ASSERT_OK(evn_tensor_map(fresh, EVN_MAP_READ, &data, &size, &error));
  ASSERT_EQ(size, 80u);
  EXPECT_EQ(memcmp(data, result.data(), 80), 0);
  float sum = 0;
  for (float v : result) sum += v;
  EXPECT_NEAR(sum, 2, 1e-5);
  evn_tensor_release(t);
  evn_tensor_release(fresh);
  evn_tensor_release(given);
}

TEST_F(Api, MisalignedWrappedMemoryIsRightByACopy) {
  std::vector<char> block(values.size() * 4 + 81 + 8);
  memcpy(block.data() + 1, values.data(), values.size() * 4);
  evn_tensor t = nullptr;
  evn_tensor out = nullptr;
  evn_tensor plain = input();
  evn_tensor want = nullptr;
  ASSERT_OK(
      evn_tensor_wrap(runtime, block.data() + 1, values.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &t, &error));
  std::vector<char> result(81);
  const int64_t out_dims[2] = {2, 10};
  ASSERT_OK(evn_tensor_wrap(runtime, result.data() + 1, 80, EVN_DTYPE_FLOAT32, out_dims, 2, nullptr, nullptr, &out, &error));
  ASSERT_OK(evn_session_run(session, &t, 1, &out, 1, nullptr, &error));
  ASSERT_OK(evn_session_run(session, &plain, 1, &want, 1, nullptr, &error));
  void* data = nullptr;
  ASSERT_OK(evn_tensor_map(want, EVN_MAP_READ, &data, nullptr, &error));
  EXPECT_EQ(memcmp(data, result.data() + 1, 80), 0);
  for (evn_tensor x : {t, out, plain, want}) evn_tensor_release(x);
}

TEST_F(Api, OverlappingInputAndOutputAreRefused) {
  std::vector<float> block(2 * 3 * 8 * 8);
  evn_tensor t = nullptr;
  evn_tensor out = nullptr;
  const int64_t out_dims[2] = {2, 10};
  ASSERT_OK(evn_tensor_wrap(runtime, block.data(), block.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &t, &error));
  ASSERT_OK(evn_tensor_wrap(runtime, block.data() + 4, 80, EVN_DTYPE_FLOAT32, out_dims, 2, nullptr, nullptr, &out, &error));
  EXPECT_EQ(evn_session_run(session, &t, 1, &out, 1, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  evn_tensor_release(t);
  evn_tensor_release(out);
}

TEST_F(Api, InputsAndOutputsAreDescribedByPositionAndName) {
  uint32_t count = 0;
  ASSERT_OK(evn_session_input_count(session, &count, &error));
  EXPECT_EQ(count, 1u);
  ASSERT_OK(evn_session_output_count(session, &count, &error));
  EXPECT_EQ(count, 1u);
  evn_value_info info = EVN_VALUE_INFO_INIT;
  ASSERT_OK(evn_session_get_input_info(session, 0, &info, &error));
  EXPECT_STREQ(info.name, "x");
  EXPECT_EQ(info.dtype, EVN_DTYPE_FLOAT32);
  EXPECT_EQ(info.rank, 4u);
  EXPECT_EQ(info.dims[0], -1);
  EXPECT_STREQ(info.symbols[0], "N");
  EXPECT_EQ(info.dims[3], 8);
  uint32_t index = 9;
  ASSERT_OK(evn_session_find_output(session, "y", &index, &error));
  EXPECT_EQ(index, 0u);
  EXPECT_EQ(evn_session_find_input(session, "nope", &index, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("x"), std::string::npos);
  EXPECT_EQ(evn_session_get_input_info(session, 1, &info, &error), EVN_ERROR_INVALID_ARGUMENT);
}

TEST_F(Api, TextIsGivenInTwoCalls) {
  size_t size = 0;
  ASSERT_OK(evn_model_describe(model, EVN_FORMAT_JSON, nullptr, 0, &size, &error));
  ASSERT_GT(size, 10u);
  std::string text(size, '\0');
  ASSERT_OK(evn_model_describe(model, EVN_FORMAT_JSON, text.data(), text.size(), &size, &error));
  EXPECT_EQ(text[size - 1], '\0');
  EXPECT_NE(text.find("\"Conv\":1"), std::string::npos) << text;
  char small[4] = "abc";
  EXPECT_EQ(evn_model_describe(model, EVN_FORMAT_JSON, small, sizeof small, nullptr, &error), EVN_ERROR_BUFFER_TOO_SMALL);
  EXPECT_STREQ(small, "abc");
  EXPECT_EQ(error.bytes_requested, size);
  ASSERT_OK(evn_model_get_metadata(model, "author", nullptr, 0, &size, &error));
  EXPECT_EQ(size, 5u);
  EXPECT_EQ(evn_model_get_metadata(model, "nobody", nullptr, 0, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
}

TEST_F(Api, TheDeleterIsCalledOnceAndNotOnFailure) {
  std::atomic<int> calls{0};
  const auto deleter = [](void* user, void*) { ++*static_cast<std::atomic<int>*>(user); };
  evn_tensor t = nullptr;
  EXPECT_NE(evn_tensor_wrap(runtime, values.data(), 3, EVN_DTYPE_FLOAT32, dims, 4, deleter, &calls, &t, &error), EVN_OK);
  EXPECT_EQ(calls, 0);
  ASSERT_OK(evn_tensor_wrap(runtime, values.data(), values.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, deleter, &calls, &t, &error));
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(calls, 1);
}

TEST_F(Api, TensorsAreZeroedCopiedAndMapped) {
  evn_tensor a = nullptr;
  evn_tensor b = nullptr;
  const int64_t three[1] = {3};
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_INT32, three, 1, EVN_TENSOR_PINNED, &a, &error));
  void* data = nullptr;
  ASSERT_OK(evn_tensor_map(a, EVN_MAP_READ | EVN_MAP_WRITE, &data, nullptr, &error));
  auto* v = static_cast<int32_t*>(data);
  EXPECT_EQ(v[0] | v[1] | v[2], 0);
  EXPECT_EQ(evn_tensor_map(a, EVN_MAP_READ, &data, nullptr, &error), EVN_ERROR_WRONG_STATE);
  v[1] = 42;
  ASSERT_OK(evn_tensor_unmap(a, &error));
  EXPECT_EQ(evn_tensor_unmap(a, &error), EVN_ERROR_WRONG_STATE);
  ASSERT_OK(evn_tensor_copy_to(a, cpu, &b, &error));
  ASSERT_OK(evn_tensor_map(b, EVN_MAP_READ, &data, nullptr, &error));
  EXPECT_EQ(static_cast<int32_t*>(data)[1], 42);
  evn_tensor_info info = EVN_TENSOR_INFO_INIT;
  ASSERT_OK(evn_tensor_get_info(a, &info, &error));
  EXPECT_EQ(info.flags, static_cast<uint32_t>(EVN_TENSOR_PINNED));
  EXPECT_EQ(info.size_bytes, 12u);
  EXPECT_STREQ(info.device, "cpu");
  const int64_t four[1] = {4};
  evn_tensor c = nullptr;
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_INT32, four, 1, 0, &c, &error));
  EXPECT_EQ(evn_tensor_copy(a, c, &error), EVN_ERROR_INVALID_ARGUMENT);
  for (evn_tensor x : {a, b, c}) evn_tensor_release(x);
}

TEST_F(Api, ScalarsAndEmptyTensorsExist) {
  evn_tensor scalar = nullptr;
  evn_tensor empty = nullptr;
  const int64_t zero[2] = {0, INT64_MAX};
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, nullptr, 0, 0, &scalar, &error));
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, zero, 2, 0, &empty, &error));
  void* data = &data;
  size_t size = 1;
  ASSERT_OK(evn_tensor_map(empty, EVN_MAP_READ, &data, &size, &error));
  EXPECT_EQ(data, nullptr);
  EXPECT_EQ(size, 0u);
  evn_tensor_release(scalar);
  evn_tensor_release(empty);
}

TEST_F(Api, MemoryIsCountedByClassAndGivenBack) {
  evn_memory_stats before = EVN_MEMORY_STATS_INIT;
  evn_memory_stats during = EVN_MEMORY_STATS_INIT;
  evn_memory_stats after = EVN_MEMORY_STATS_INIT;
  ASSERT_OK(evn_device_get_memory_stats(cpu, &before, &error));
  EXPECT_GT(before.by_class[EVN_MEMORY_WEIGHTS], 1000u);
  const int64_t big[1] = {1 << 20};
  evn_tensor t = nullptr;
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, big, 1, 0, &t, &error));
  ASSERT_OK(evn_device_get_memory_stats(cpu, &during, &error));
  EXPECT_EQ(during.by_class[EVN_MEMORY_TENSORS] - before.by_class[EVN_MEMORY_TENSORS], 4u << 20);
  evn_tensor_release(t);
  ASSERT_OK(evn_device_get_memory_stats(cpu, &after, &error));
  EXPECT_EQ(after.current, before.current);
  EXPECT_GE(after.peak, before.current + (4u << 20));
  ASSERT_OK(evn_device_reset_memory_peak(cpu, &error));
  ASSERT_OK(evn_device_trim_memory(cpu, &error));
  ASSERT_OK(evn_device_get_memory_stats(cpu, &after, &error));
  EXPECT_EQ(after.peak, after.current);
  EXPECT_EQ(after.largest_free_block, 0u);
}

TEST_F(Api, SessionsOfOneModelShareItsWeights) {
  evn_memory_stats before = EVN_MEMORY_STATS_INIT;
  evn_memory_stats after = EVN_MEMORY_STATS_INIT;
  ASSERT_OK(evn_device_get_memory_stats(cpu, &before, &error));
  evn_session more[4] = {};
  for (evn_session& s : more) ASSERT_OK(evn_session_create(runtime, model, nullptr, &s, &error));
  ASSERT_OK(evn_device_get_memory_stats(cpu, &after, &error));
  EXPECT_EQ(after.by_class[EVN_MEMORY_WEIGHTS], before.by_class[EVN_MEMORY_WEIGHTS]);
  EXPECT_EQ(after.by_class[EVN_MEMORY_PACKED], before.by_class[EVN_MEMORY_PACKED]);
  for (evn_session s : more) evn_session_release(s);
}

TEST_F(Api, ManyThreadsRunOneSession) {
  evn_tensor t = input();
  evn_tensor want = nullptr;
  ASSERT_OK(evn_session_run(session, &t, 1, &want, 1, nullptr, &error));
  void* data = nullptr;
  ASSERT_OK(evn_tensor_map(want, EVN_MAP_READ, &data, nullptr, &error));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        evn_tensor out = nullptr;
        void* got = nullptr;
        if (evn_session_run(session, &t, 1, &out, 1, nullptr, nullptr) != EVN_OK) ++wrong;
        if (evn_tensor_map(out, EVN_MAP_READ, &got, nullptr, nullptr) != EVN_OK || memcmp(got, data, 80) != 0) ++wrong;
        evn_tensor_release(out);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  evn_tensor_release(want);
  evn_tensor_release(t);
}

TEST_F(Api, ErrorsOfAModelNameTheNode) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {1}).add_output("y", kF32).add_node("NoSuchOperator", {"x"}, {"y"}, {}, "the\x1bnode");
  const std::string bad = w.serialize();
  evn_model m = nullptr;
  EXPECT_EQ(evn_model_load_buffer(runtime, bad.data(), bad.size(), nullptr, &m, &error), EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(error.node, "the\\x1bnode");
  EXPECT_EQ(m, nullptr);
  EXPECT_EQ(evn_model_load_file(runtime, "/nonexistent/model.onnx", nullptr, &m, &error), EVN_ERROR_IO);
  EXPECT_NE(std::string(error.message).find("/nonexistent/model.onnx"), std::string::npos) << error.message;
}

TEST_F(Api, TheConfigurationMayComeAsText) {
  const std::string yaml = "devices:\n  host: {type: cpu, threads: 1, memory_limit: 64KiB}\n";
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.config_text = yaml.data();
  options.config_size = yaml.size();
  evn_runtime r = nullptr;
  ASSERT_OK(evn_runtime_create(&options, &r, &error));
  evn_device d = nullptr;
  ASSERT_OK(evn_runtime_device_find(r, "host", &d, &error));
  evn_tensor t = nullptr;
  const int64_t big[1] = {1 << 20};
  EXPECT_EQ(evn_tensor_create(d, EVN_DTYPE_FLOAT32, big, 1, 0, &t, &error), EVN_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(error.bytes_requested, 4u << 20);
  EXPECT_LE(error.bytes_available, 64u << 10);
  EXPECT_STREQ(error.device, "host");
  const std::string wrong = "devices:\n  host: {type: cpu, thread: 1}\n";
  options.config_text = wrong.data();
  options.config_size = wrong.size();
  evn_runtime none = nullptr;
  EXPECT_EQ(evn_runtime_create(&options, &none, &error), EVN_ERROR_CONFIG);
  EXPECT_NE(std::string(error.message).find("2:21"), std::string::npos) << error.message;
  EXPECT_NE(std::string(error.message).find("threads"), std::string::npos) << error.message;
  evn_device_release(d);
  evn_runtime_release(r);
}

TEST_F(Api, TheLogGetsWhatTheLevelAllows) {
  std::vector<std::string> lines;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.log_callback = [](void* user, evn_log_level, const char* message) {
    static_cast<std::vector<std::string>*>(user)->emplace_back(message);
  };
  options.log_user = &lines;
  evn_runtime r = nullptr;
  ASSERT_OK(evn_runtime_create(&options, &r, &error));
  EXPECT_TRUE(lines.empty());
  evn_runtime_release(r);
  options.log_level = EVN_LOG_INFO;
  ASSERT_OK(evn_runtime_create(&options, &r, &error));
  ASSERT_FALSE(lines.empty());
  EXPECT_NE(lines[0].find("cpu"), std::string::npos);
  evn_runtime_release(r);
}

TEST(ApiVersion, IsOneNumber) {
  EXPECT_EQ(std::string(evn_version()), "0.3.0");
  EXPECT_EQ(evn_version_number(), 0x000300u);
  EXPECT_STREQ(evn_status_name(EVN_ERROR_INTERNAL), "EVN_ERROR_INTERNAL");
  EXPECT_STREQ(evn_status_name(999), "EVN_ERROR_UNKNOWN");
  EXPECT_STREQ(evn_status_name(-1), "EVN_ERROR_UNKNOWN");
}

}  // namespace
}  // namespace evn::test
