// Misuse of the C API: rows M01 to M05 of the list of hostile cases. A status, never a crash.
#include <random>
#include <thread>

#include "base/guarded.h"
#include "tests/api/support.h"

namespace evn::test {
namespace {

using Misuse = ApiTest;

TEST_F(Misuse, M01_EveryPointerThatMayNotBeNullIsRefused) {
  evn_tensor t = input();
  evn_tensor out = nullptr;
  uint32_t n = 77;
  void* p = nullptr;
  const evn_status bad = EVN_ERROR_INVALID_ARGUMENT;
  EXPECT_EQ(evn_runtime_create(nullptr, nullptr, &error), bad);
  EXPECT_EQ(evn_runtime_device_count(runtime, nullptr, &error), bad);
  EXPECT_EQ(evn_runtime_device_at(runtime, 0, nullptr, &error), bad);
  EXPECT_EQ(evn_runtime_device_find(runtime, nullptr, &cpu, &error), bad);
  EXPECT_EQ(evn_runtime_device_find(runtime, "cpu", nullptr, &error), bad);
  EXPECT_EQ(evn_runtime_describe_devices(runtime, EVN_FORMAT_TEXT, nullptr, 0, nullptr, &error), bad);
  EXPECT_EQ(evn_device_get_info(cpu, nullptr, &error), bad);
  EXPECT_EQ(evn_device_get_memory_stats(cpu, nullptr, &error), bad);
  EXPECT_EQ(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, nullptr, 2, 0, &out, &error), bad);
  EXPECT_EQ(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 4, 0, nullptr, &error), bad);
  EXPECT_EQ(evn_tensor_wrap(runtime, nullptr, 1536, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &out, &error), bad);
  EXPECT_EQ(evn_tensor_wrap(runtime, values.data(), 1536, EVN_DTYPE_FLOAT32, nullptr, 4, nullptr, nullptr, &out, &error), bad);
  EXPECT_EQ(evn_tensor_wrap(runtime, values.data(), 1536, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, nullptr, &error), bad);
  EXPECT_EQ(evn_tensor_get_info(t, nullptr, &error), bad);
  EXPECT_EQ(evn_tensor_copy_to(t, cpu, nullptr, &error), bad);
  EXPECT_EQ(evn_tensor_map(t, EVN_MAP_READ, nullptr, nullptr, &error), bad);
  EXPECT_EQ(evn_model_load_file(runtime, nullptr, nullptr, &model, &error), bad);
  EXPECT_EQ(evn_model_load_file(runtime, "x", nullptr, nullptr, &error), bad);
  EXPECT_EQ(evn_model_load_buffer(runtime, nullptr, 5, nullptr, &model, &error), bad);
  EXPECT_EQ(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, nullptr, &error), bad);
  EXPECT_EQ(evn_model_describe(model, EVN_FORMAT_TEXT, nullptr, 0, nullptr, &error), bad);
  EXPECT_EQ(evn_model_get_metadata(model, nullptr, nullptr, 0, nullptr, &error), bad);
  EXPECT_EQ(evn_session_create(runtime, model, nullptr, nullptr, &error), bad);
  EXPECT_EQ(evn_session_input_count(session, nullptr, &error), bad);
  EXPECT_EQ(evn_session_output_count(session, nullptr, &error), bad);
  EXPECT_EQ(evn_session_get_input_info(session, 0, nullptr, &error), bad);
  EXPECT_EQ(evn_session_get_output_info(session, 0, nullptr, &error), bad);
  EXPECT_EQ(evn_session_find_input(session, nullptr, &n, &error), bad);
  EXPECT_EQ(evn_session_find_input(session, "x", nullptr, &error), bad);
  EXPECT_EQ(evn_session_find_output(session, nullptr, &n, &error), bad);
  EXPECT_EQ(evn_session_find_output(session, "y", nullptr, &error), bad);
  EXPECT_EQ(evn_session_run(session, nullptr, 1, &out, 1, nullptr, &error), bad);
  EXPECT_EQ(evn_session_run(session, &t, 1, nullptr, 1, nullptr, &error), bad);
  EXPECT_EQ(evn_session_explain(session, EVN_FORMAT_TEXT, nullptr, 0, nullptr, &error), bad);
  EXPECT_EQ(evn_session_compare(session, session, nullptr, 0, EVN_FORMAT_TEXT, nullptr, 0, nullptr, &error), bad);
  EXPECT_EQ(evn_session_trace_start(session, 0, &error), bad);
  EXPECT_EQ(evn_session_trace_start(session, 10, &error), EVN_OK);
  EXPECT_EQ(evn_session_get_trace(session, EVN_FORMAT_TEXT, nullptr, 0, nullptr, &error), bad);
  EXPECT_EQ(evn_runtime_create(nullptr, nullptr, nullptr), bad);  // the error itself may be NULL
  EXPECT_EQ(n, 77u);
  EXPECT_EQ(out, nullptr);
  EXPECT_EQ(p, nullptr);
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(Misuse, M01_ANullHandleIsRefusedByEveryFunctionAndReleasedByNone) {
  evn_tensor out = nullptr;
  uint32_t n = 0;
  size_t size = 0;
  void* p = nullptr;
  evn_device_info device_info = EVN_DEVICE_INFO_INIT;
  evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
  evn_tensor_info tensor_info = EVN_TENSOR_INFO_INIT;
  evn_value_info value_info = EVN_VALUE_INFO_INIT;
  evn_session s = nullptr;
  const evn_status bad = EVN_ERROR_INVALID_HANDLE;
  EXPECT_EQ(evn_runtime_device_count(nullptr, &n, &error), bad);
  EXPECT_EQ(evn_runtime_device_at(nullptr, 0, &cpu, &error), bad);
  EXPECT_EQ(evn_runtime_device_find(nullptr, "cpu", &cpu, &error), bad);
  EXPECT_EQ(evn_runtime_describe_devices(nullptr, EVN_FORMAT_TEXT, nullptr, 0, &size, &error), bad);
  EXPECT_EQ(evn_device_get_info(nullptr, &device_info, &error), bad);
  EXPECT_EQ(evn_device_get_memory_stats(nullptr, &stats, &error), bad);
  EXPECT_EQ(evn_device_reset_memory_peak(nullptr, &error), bad);
  EXPECT_EQ(evn_device_trim_memory(nullptr, &error), bad);
  EXPECT_EQ(evn_tensor_create(nullptr, EVN_DTYPE_FLOAT32, dims, 4, 0, &out, &error), bad);
  EXPECT_EQ(evn_tensor_wrap(nullptr, values.data(), 1536, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &out, &error), bad);
  EXPECT_EQ(evn_tensor_get_info(nullptr, &tensor_info, &error), bad);
  EXPECT_EQ(evn_tensor_copy(nullptr, nullptr, &error), bad);
  EXPECT_EQ(evn_tensor_copy_to(nullptr, cpu, &out, &error), bad);
  EXPECT_EQ(evn_tensor_map(nullptr, EVN_MAP_READ, &p, &size, &error), bad);
  EXPECT_EQ(evn_tensor_unmap(nullptr, &error), bad);
  EXPECT_EQ(evn_model_load_file(nullptr, "x", nullptr, &model, &error), bad);
  EXPECT_EQ(evn_model_load_buffer(nullptr, bytes.data(), bytes.size(), nullptr, &model, &error), bad);
  EXPECT_EQ(evn_model_describe(nullptr, EVN_FORMAT_TEXT, nullptr, 0, &size, &error), bad);
  EXPECT_EQ(evn_model_get_metadata(nullptr, "k", nullptr, 0, &size, &error), bad);
  EXPECT_EQ(evn_session_create(nullptr, model, nullptr, &s, &error), bad);
  EXPECT_EQ(evn_session_create(runtime, nullptr, nullptr, &s, &error), bad);
  EXPECT_EQ(evn_session_input_count(nullptr, &n, &error), bad);
  EXPECT_EQ(evn_session_output_count(nullptr, &n, &error), bad);
  EXPECT_EQ(evn_session_get_input_info(nullptr, 0, &value_info, &error), bad);
  EXPECT_EQ(evn_session_get_output_info(nullptr, 0, &value_info, &error), bad);
  EXPECT_EQ(evn_session_find_input(nullptr, "x", &n, &error), bad);
  EXPECT_EQ(evn_session_find_output(nullptr, "y", &n, &error), bad);
  EXPECT_EQ(evn_session_run(nullptr, nullptr, 0, nullptr, 0, nullptr, &error), bad);
  EXPECT_EQ(evn_session_explain(nullptr, EVN_FORMAT_TEXT, nullptr, 0, &size, &error), bad);
  EXPECT_EQ(evn_session_trace_start(nullptr, 10, &error), bad);
  EXPECT_EQ(evn_session_trace_stop(nullptr, &error), bad);
  EXPECT_EQ(evn_session_get_trace(nullptr, EVN_FORMAT_TEXT, nullptr, 0, &size, &error), bad);
  evn_tensor none = nullptr;
  EXPECT_EQ(evn_session_run(session, &none, 1, &out, 1, nullptr, &error), bad);
  EXPECT_EQ(evn_runtime_release(nullptr), EVN_OK);
  EXPECT_EQ(evn_device_release(nullptr), EVN_OK);
  EXPECT_EQ(evn_tensor_release(nullptr), EVN_OK);
  EXPECT_EQ(evn_model_release(nullptr), EVN_OK);
  EXPECT_EQ(evn_session_release(nullptr), EVN_OK);
}

TEST_F(Misuse, M02_UseAfterReleaseIsAnInvalidHandle) {
  evn_tensor t = input();
  ASSERT_EQ(evn_tensor_release(t), EVN_OK);
  evn_tensor_info info = EVN_TENSOR_INFO_INIT;
  EXPECT_EQ(evn_tensor_get_info(t, &info, &error), EVN_ERROR_INVALID_HANDLE);
  evn_tensor out = nullptr;
  EXPECT_EQ(evn_session_run(session, &t, 1, &out, 1, nullptr, &error), EVN_ERROR_INVALID_HANDLE);
  evn_tensor again = input();  // takes the same slot
  EXPECT_NE(again, t);
  EXPECT_EQ(evn_tensor_get_info(t, &info, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_tensor_release(again), EVN_OK);
}

TEST_F(Misuse, M03_ASecondReleaseIsAnInvalidHandle) {
  evn_tensor t = input();
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(evn_tensor_release(t), EVN_ERROR_INVALID_HANDLE);
}

TEST_F(Misuse, M03_OfManyThreadsThatReleaseOneHandleOneSucceeds) {
  for (int round = 0; round < 200; ++round) {
    evn_tensor t = input();
    std::atomic<int> ok{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { ok += evn_tensor_release(t) == EVN_OK; });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ok, 1);
  }
}

TEST_F(Misuse, M04_RandomValuesAreInvalidHandles) {
  std::mt19937_64 random(5);
  evn_tensor_info info = EVN_TENSOR_INFO_INIT;
  for (int i = 0; i < 100000; ++i) {
    uint64_t value = random();
    if (i % 3 == 0) value &= 0xffffffff0003ffffull;
    if (i % 3 == 1) value &= 0xfffull;
    const auto t = reinterpret_cast<evn_tensor>(value);
    EXPECT_EQ(evn_tensor_get_info(t, &info, nullptr), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_tensor_release(t), value == 0 ? EVN_OK : EVN_ERROR_INVALID_HANDLE);
  }
}

TEST_F(Misuse, M04_AHandleOfAnotherKindIsInvalid) {
  evn_tensor_info info = EVN_TENSOR_INFO_INIT;
  EXPECT_EQ(evn_tensor_get_info(reinterpret_cast<evn_tensor>(session), &info, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_NE(std::string(error.message).find("tensor"), std::string::npos);
  EXPECT_EQ(evn_model_release(reinterpret_cast<evn_model>(session)), EVN_ERROR_INVALID_HANDLE);
  uint32_t count = 0;
  EXPECT_EQ(evn_session_input_count(session, &count, &error), EVN_OK);
}

TEST_F(Misuse, M05_ChildrenOutliveTheirParents) {
  evn_tensor t = input();
  ASSERT_EQ(evn_runtime_release(runtime), EVN_OK);
  ASSERT_EQ(evn_model_release(model), EVN_OK);
  runtime = nullptr;
  model = nullptr;
  evn_tensor out = nullptr;
  EXPECT_OK(evn_session_run(session, &t, 1, &out, 1, nullptr, &error));
  evn_device_info info = EVN_DEVICE_INFO_INIT;
  EXPECT_OK(evn_device_get_info(cpu, &info, &error));
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  session = nullptr;
  void* data = nullptr;
  EXPECT_OK(evn_tensor_map(out, EVN_MAP_READ, &data, nullptr, &error));
  EXPECT_NE(data, nullptr);
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(evn_tensor_release(out), EVN_OK);
}

TEST_F(Misuse, ReleasingASessionThatRunsLetsTheRunEnd) {
  for (int round = 0; round < 50; ++round) {
    evn_session s = nullptr;
    ASSERT_OK(evn_session_create(runtime, model, nullptr, &s, &error));
    evn_tensor t = input();
    std::thread runner([&] {
      for (;;) {
        evn_tensor out = nullptr;
        const evn_status status = evn_session_run(s, &t, 1, &out, 1, nullptr, nullptr);
        EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_INVALID_HANDLE);
        EXPECT_EQ(evn_tensor_release(out), EVN_OK);
        if (status != EVN_OK) return;
      }
    });
    EXPECT_EQ(evn_session_release(s), EVN_OK);
    runner.join();
    EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  }
}

TEST_F(Misuse, WrongTensorsAreRefusedAndNameTheInput) {
  evn_tensor t = nullptr;
  evn_tensor out = nullptr;
  const int64_t wrong[4] = {2, 3, 8, 9};
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, wrong, 4, 0, &t, &error));
  EXPECT_EQ(evn_session_run(session, &t, 1, &out, 1, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("\"x\""), std::string::npos) << error.message;
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_INT32, dims, 4, 0, &t, &error));
  EXPECT_EQ(evn_session_run(session, &t, 1, &out, 1, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  t = input();
  EXPECT_EQ(evn_session_run(session, &t, 2, &out, 1, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_session_run(session, &t, UINT32_MAX, &out, UINT32_MAX, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(out, nullptr);
  evn_tensor small = nullptr;
  const int64_t small_dims[2] = {2, 9};
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, small_dims, 2, 0, &small, &error));
  evn_tensor given = small;
  EXPECT_EQ(evn_session_run(session, &t, 1, &given, 1, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(given, small);
  EXPECT_EQ(evn_tensor_release(small), EVN_OK);
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(Misuse, ATensorOfAnotherRuntimeIsRefused) {
  evn_runtime other = nullptr;
  ASSERT_OK(evn_runtime_create(nullptr, &other, &error));
  evn_tensor t = nullptr;
  evn_tensor out = nullptr;
  ASSERT_OK(evn_tensor_wrap(other, values.data(), 1536, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &t, &error));
  EXPECT_EQ(evn_session_run(session, &t, 1, &out, 1, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  evn_session s = nullptr;
  EXPECT_EQ(evn_session_create(other, model, nullptr, &s, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(evn_runtime_release(other), EVN_OK);
}

TEST_F(Misuse, M22_StructSizesAreChecked) {
  evn_runtime r = nullptr;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.struct_size = 0;
  EXPECT_EQ(evn_runtime_create(&options, &r, &error), EVN_ERROR_INVALID_ARGUMENT);
  struct {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    uint64_t newer = 0;
  } larger;
  larger.options.struct_size = sizeof larger;
  EXPECT_OK(evn_runtime_create(&larger.options, &r, &error));
  EXPECT_EQ(evn_runtime_release(r), EVN_OK);
  options = EVN_RUNTIME_OPTIONS_INIT;
  const auto cut = static_cast<uint32_t>(offsetof(evn_runtime_options, cache_dir));
  for (uint32_t more = 1; more < 8; ++more) {  // a size that ends within a pointer
    r = nullptr;
    options.struct_size = cut + more;
    EXPECT_EQ(evn_runtime_create(&options, &r, &error), EVN_ERROR_INVALID_ARGUMENT) << more;
    EXPECT_EQ(r, nullptr);
  }
  options.struct_size = cut;
  EXPECT_OK(evn_runtime_create(&options, &r, &error));
  EXPECT_EQ(evn_runtime_release(r), EVN_OK);
  larger.newer = 1;
  r = nullptr;
  EXPECT_EQ(evn_runtime_create(&larger.options, &r, &error), EVN_ERROR_VERSION);
  EXPECT_EQ(r, nullptr);
  evn_device_info info = EVN_DEVICE_INFO_INIT;
  info.struct_size = 4;
  EXPECT_EQ(evn_device_get_info(cpu, &info, &error), EVN_ERROR_INVALID_ARGUMENT);
  evn_error older = EVN_ERROR_INIT;
  older.struct_size = 100;
  older.node[0] = 'k';
  EXPECT_EQ(evn_runtime_create(nullptr, nullptr, &older), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(older.node[0], 'k');  // beyond what an older client has, nothing is written
  EXPECT_LT(strlen(older.message), 100u);
}

// A client of every size gets texts that end within what it has, and no byte behind that.
TEST_F(Misuse, AnErrorOfAnySizeHasTextsThatEnd) {
  const std::string long_text(600, 'n');
  Error full = make_error(EVN_ERROR_IO, "%s", long_text.c_str());
  full.with_node(long_text.c_str()).with_device(long_text.c_str());
  for (std::size_t size = offsetof(evn_error, message) + 1; size <= sizeof(evn_error) + 8; ++size) {
    alignas(evn_error) unsigned char bytes[sizeof(evn_error) + 16];
    std::memset(bytes, 0x5a, sizeof bytes);
    auto* const out = reinterpret_cast<evn_error*>(bytes);
    out->struct_size = static_cast<std::uint32_t>(size);
    report(full, out);
    const std::size_t filled = std::min(size, sizeof(evn_error));
    EXPECT_EQ(out->struct_size, filled);
    for (std::size_t i = filled; i < sizeof bytes; ++i) ASSERT_EQ(bytes[i], 0x5a) << size;
    for (const std::size_t begin : {offsetof(evn_error, message), offsetof(evn_error, node), offsetof(evn_error, device)}) {
      if (begin >= filled) continue;
      EXPECT_NE(std::memchr(bytes + begin, 0, filled - begin), nullptr) << size;
    }
  }
}

TEST_F(Misuse, BytesOfElementsOfLessThanAByteAreCounted) {
  const int64_t three[] = {3};
  unsigned char packed[2] = {0x21, 0x03};
  evn_tensor t = nullptr;
  EXPECT_EQ(evn_tensor_wrap(runtime, packed, 1, EVN_DTYPE_INT4, three, 1, nullptr, nullptr, &t, &error),
            EVN_ERROR_INVALID_ARGUMENT);
  ASSERT_EQ(evn_tensor_wrap(runtime, packed, 2, EVN_DTYPE_INT4, three, 1, nullptr, nullptr, &t, &error), EVN_OK) << error.message;
  void* data = nullptr;
  size_t size = 0;
  EXPECT_EQ(evn_tensor_map(t, EVN_MAP_READ, &data, &size, &error), EVN_OK);
  EXPECT_EQ(size, 2u);
  EXPECT_EQ(evn_tensor_unmap(t, &error), EVN_OK);
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(Misuse, UnknownEnumsAndFlagsAreRefused) {
  evn_tensor t = nullptr;
  size_t size = 0;
  void* data = nullptr;
  for (int32_t dtype : {-1, 0, 27, 999})
    EXPECT_EQ(evn_tensor_create(cpu, dtype, dims, 4, 0, &t, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 4, 8, &t, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 9, 0, &t, &error), EVN_ERROR_LIMIT);
  EXPECT_EQ(evn_model_describe(model, 7, nullptr, 0, &size, &error), EVN_ERROR_INVALID_ARGUMENT);
  t = input();
  EXPECT_EQ(evn_tensor_map(t, 0, &data, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_map(t, 12, &data, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(Misuse, HugeTensorsAreRefusedWithoutAllocating) {
  evn_tensor t = nullptr;
  const int64_t huge[3] = {INT64_C(1) << 40, INT64_C(1) << 40, 4};
  EXPECT_EQ(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, huge, 3, 0, &t, &error), EVN_ERROR_LIMIT);
  EXPECT_EQ(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, huge, 1, 0, &t, &error), EVN_ERROR_LIMIT);
  const int64_t negative[1] = {-1};
  EXPECT_EQ(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, negative, 1, 0, &t, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(t, nullptr);
}

}  // namespace
}  // namespace evn::test
