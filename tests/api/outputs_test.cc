// evn_run_options.flags and skipped_outputs through the C API: runs, runs of values and requests, and what callers do wrong.
#include <atomic>
#include <thread>

#include "base/fault.h"
#include "evener/request.h"
#include "tests/api/opencl_support.h"

namespace evn::test::outputs_test {
namespace {

// a = Neg(x), b = Exp(a), c = Abs(x).
OnnxWriter three_outputs() {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"n"}).add_output("a").add_output("b").add_output("c");
  return w.add_node("Neg", {"x"}, {"a"}, {}, "neg")
      .add_node("Exp", {"a"}, {"b"}, {}, "exp")
      .add_node("Abs", {"x"}, {"c"}, {}, "abs");
}

struct Outputs : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_model model = nullptr;
  evn_session session = nullptr;
  float x_values[4] = {1, -2, 3, -4};
  evn_tensor x = nullptr;
  const int64_t dims[1] = {4};

  void SetUp() override {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 2;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    load(three_outputs());
    ASSERT_OK(evn_tensor_wrap(runtime, x_values, sizeof x_values, EVN_DTYPE_FLOAT32, dims, 1, nullptr, nullptr, &x, &error));
  }
  void TearDown() override {
    release({x});
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  }
  void load(const OnnxWriter& writer) {
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    const std::string bytes = writer.serialize();
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    ASSERT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
  }
  static void release(std::initializer_list<evn_tensor> tensors) {
    for (evn_tensor t : tensors) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  }
  std::vector<float> floats(evn_tensor t) {
    void* data = nullptr;
    std::size_t size = 0;
    EXPECT_OK(evn_tensor_map(t, EVN_MAP_READ, &data, &size, &error));
    EXPECT_OK(evn_tensor_unmap(t, &error));
    const auto* first = static_cast<const float*>(data);
    return {first, first + size / sizeof(float)};
  }
  evn_status run(const evn_run_options& options, evn_tensor* outputs, uint32_t count = 3) {
    error = EVN_ERROR_INIT;
    return evn_session_run(session, &x, 1, outputs, count, &options, &error);
  }
};

const std::vector<float> kA = {-1, 2, -3, 4}, kC = {1, 2, 3, 4};

TEST_F(Outputs, ThatAreSkippedStayNull) {
  const uint8_t skipped[] = {1, 0, 1};
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.skipped_outputs = skipped;
  evn_tensor out[3] = {};
  ASSERT_OK(run(options, out));
  EXPECT_EQ(out[0], nullptr);
  EXPECT_NE(out[1], nullptr);
  EXPECT_EQ(out[2], nullptr);
  release({out[1]});
  out[1] = nullptr;
  const uint8_t none[] = {0, 0, 0}, all[] = {1, 1, 1};
  options.skipped_outputs = none;
  ASSERT_OK(run(options, out));
  EXPECT_EQ(floats(out[0]), kA);
  EXPECT_EQ(floats(out[2]), kC);
  release({out[0], out[1], out[2]});
  out[0] = out[1] = out[2] = nullptr;
  options.skipped_outputs = all;
  ASSERT_OK(run(options, out));
  EXPECT_EQ(out[0], nullptr);
  EXPECT_EQ(out[1], nullptr);
  EXPECT_EQ(out[2], nullptr);
}

TEST_F(Outputs, ThatAreSkippedAreNotComputed) {
  const uint8_t skipped[] = {1, 1, 0};
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.skipped_outputs = skipped;
  evn_tensor out[3] = {};
  ASSERT_OK(evn_session_trace_start(session, 100, &error));
  ASSERT_OK(run(options, out));
  ASSERT_OK(evn_session_trace_stop(session, &error));
  std::string text(100000, '\0');
  std::size_t size = 0;
  ASSERT_OK(evn_session_get_trace(session, EVN_FORMAT_JSON, text.data(), text.size(), &size, &error));
  EXPECT_EQ(text.find("\"neg\""), std::string::npos);
  EXPECT_EQ(text.find("\"exp\""), std::string::npos);
  EXPECT_NE(text.find("\"abs\""), std::string::npos);
  release({out[2]});
}

TEST_F(Outputs, Misuse) {
  uint8_t skipped[] = {0, 1, 2};
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.skipped_outputs = skipped;
  evn_tensor out[3] = {};
  EXPECT_EQ(run(options, out), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("skipped_outputs[2], of output \"c\", is 2"), std::string::npos) << error.message;
  skipped[2] = 0;
  ASSERT_OK(evn_tensor_wrap(runtime, x_values, sizeof x_values, EVN_DTYPE_FLOAT32, dims, 1, nullptr, nullptr, &out[1], &error));
  const evn_tensor given = out[1];
  EXPECT_EQ(run(options, out), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("output 1 \"b\" is skipped"), std::string::npos) << error.message;
  evn_request request = nullptr;
  EXPECT_EQ(evn_session_submit(session, &x, 1, out, 3, &options, nullptr, &request, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(out[0], nullptr);
  EXPECT_EQ(out[1], given);
  // The number of outputs is checked before the bytes are read.
  EXPECT_EQ(run(options, out, 2), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("3 outputs"), std::string::npos) << error.message;
  out[1] = nullptr;
  options.skipped_outputs = nullptr;
  for (const uint32_t flags : {4u, 0x80000000u, 0xffffffffu}) {
    options.flags = flags;
    EXPECT_EQ(run(options, out), EVN_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.message).find("flags is"), std::string::npos) << error.message;
    EXPECT_EQ(evn_session_submit(session, &x, 1, out, 3, &options, nullptr, &request, &error), EVN_ERROR_INVALID_ARGUMENT);
  }
  release({given});
}

TEST_F(Outputs, OfRequests) {
  uint8_t skipped[] = {1, 0, 0};
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.skipped_outputs = skipped;
  evn_tensor out[3] = {}, given = nullptr;
  float memory[4] = {};
  ASSERT_OK(evn_tensor_wrap(runtime, memory, sizeof memory, EVN_DTYPE_FLOAT32, dims, 1, nullptr, nullptr, &given, &error));
  out[2] = given;
  evn_request request = nullptr;
  ASSERT_OK(evn_session_submit(session, &x, 1, out, 3, &options, nullptr, &request, &error));
  skipped[0] = 0;  // it has been copied
  skipped[1] = 1;
  bool done = false;
  ASSERT_OK(evn_request_wait(request, UINT64_MAX, &done, &error));
  ASSERT_OK(evn_request_take(request, out, 3, &error));
  EXPECT_EQ(out[0], nullptr);
  EXPECT_NE(out[1], nullptr);
  EXPECT_EQ(out[2], given);
  EXPECT_EQ(std::vector<float>(memory, memory + 4), kC);
  EXPECT_EQ(evn_request_release(request), EVN_OK);
  release({out[1], given});
}

TEST_F(Outputs, OfRunsOfValues) {
  const uint8_t skipped[] = {0, 1, 1};
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.skipped_outputs = skipped;
  evn_value in = nullptr, out[3] = {};
  ASSERT_OK(evn_value_from_tensor(x, &in, &error));
  ASSERT_OK(evn_session_run_values(session, &in, 1, out, 3, &options, &error));
  EXPECT_EQ(out[1], nullptr);
  EXPECT_EQ(out[2], nullptr);
  evn_tensor a = nullptr;
  ASSERT_OK(evn_value_get_tensor(out[0], &a, &error));
  EXPECT_EQ(floats(a), kA);
  EXPECT_EQ(evn_value_release(out[0]), EVN_OK);
  evn_request request = nullptr;
  ASSERT_OK(evn_session_submit_values(session, &in, 1, nullptr, 3, &options, nullptr, &request, &error));
  bool done = false;
  ASSERT_OK(evn_request_wait(request, UINT64_MAX, &done, &error));
  out[0] = nullptr;
  ASSERT_OK(evn_request_take_values(request, out, 3, &error));
  EXPECT_NE(out[0], nullptr);
  EXPECT_EQ(out[1], nullptr);
  for (evn_value v : {in, out[0]}) EXPECT_EQ(evn_value_release(v), EVN_OK);
  EXPECT_EQ(evn_request_release(request), EVN_OK);
  release({a});
}

// A model that gives a sequence, too, runs with tensors when that is skipped.
TEST_F(Outputs, ThatAreNoTensorsMayBeSkipped) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"n"});
  const auto sequence = Proto().message(4, Proto().message(1, Proto().message(1, Proto().varint(1, kF32))));
  w.graph().message(12, Proto().bytes(1, "parts").message(2, sequence));
  w.add_output("y").add_node("SplitToSequence", {"x"}, {"parts"}, {{"axis", 0}}).add_node("Neg", {"x"}, {"y"});
  load(w);
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  evn_tensor out[2] = {};
  EXPECT_EQ(run(options, out, 2), EVN_ERROR_INVALID_ARGUMENT);
  const uint8_t skipped[] = {1, 0};
  options.skipped_outputs = skipped;
  ASSERT_OK(run(options, out, 2));
  EXPECT_EQ(out[0], nullptr);
  EXPECT_EQ(floats(out[1]), kA);
  release({out[1]});
}

TEST_F(Outputs, MayLieOverInputs) {
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  evn_tensor out[3] = {x, nullptr, nullptr};
  EXPECT_EQ(run(options, out), EVN_ERROR_INVALID_ARGUMENT);
  options.flags = EVN_RUN_OVERWRITE_INPUTS;
  ASSERT_OK(run(options, out));  // c reads x behind a
  EXPECT_EQ(out[0], x);
  EXPECT_EQ(std::vector<float>(x_values, x_values + 4), kA);
  EXPECT_EQ(floats(out[2]), kC);
  release({out[1], out[2]});
  out[1] = out[2] = nullptr;
  out[0] = nullptr;
  out[2] = x;
  ASSERT_OK(run(options, out));
  EXPECT_EQ(std::vector<float>(x_values, x_values + 4), kC);
  release({out[0], out[1]});
}

// Memory that is wrapped twice, not aligned, is one memory all the same.
TEST_F(Outputs, MayLieOverWrappedMemoryOfAnyAlignment) {
  char memory[4 * 4 + 3];
  std::memcpy(memory + 3, x_values, sizeof x_values);
  evn_tensor in = nullptr, over = nullptr;
  for (evn_tensor* t : {&in, &over})
    ASSERT_OK(evn_tensor_wrap(runtime, memory + 3, 16, EVN_DTYPE_FLOAT32, dims, 1, nullptr, nullptr, t, &error));
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  evn_tensor out[3] = {over, nullptr, nullptr};
  EXPECT_EQ(evn_session_run(session, &in, 1, out, 3, &options, &error), EVN_ERROR_INVALID_ARGUMENT);
  options.flags = EVN_RUN_OVERWRITE_INPUTS;
  ASSERT_OK(evn_session_run(session, &in, 1, out, 3, &options, &error));
  float got[4];
  std::memcpy(got, memory + 3, sizeof got);
  EXPECT_EQ(std::vector<float>(got, got + 4), kA);
  release({in, over, out[1], out[2]});
}

// Many threads, each with sets of its own.
TEST_F(Outputs, OfManyThreads) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 50; ++round) {
        const int set = (t + round) % 8;
        const uint8_t skipped[] = {uint8_t(set & 1), uint8_t(set >> 1 & 1), uint8_t(set >> 2)};
        evn_run_options options = EVN_RUN_OPTIONS_INIT;
        options.skipped_outputs = skipped;
        options.flags = round % 2 == 0 ? 0u : uint32_t{EVN_RUN_OUTPUTS_ON_DEVICE};
        evn_tensor out[3] = {};
        if (evn_session_run(session, &x, 1, out, 3, &options, nullptr) != EVN_OK) ++wrong;
        for (int j = 0; j < 3; ++j) {
          if ((out[j] == nullptr) != (skipped[j] != 0)) ++wrong;
          void* data = nullptr;
          if (j != 1 && out[j] != nullptr) {
            const std::vector<float>& want = j == 0 ? kA : kC;
            if (evn_tensor_map(out[j], EVN_MAP_READ, &data, nullptr, nullptr) != EVN_OK) ++wrong;
            if (data == nullptr || std::memcmp(data, want.data(), 16) != 0) ++wrong;
          }
          if (evn_tensor_release(out[j]) != EVN_OK) ++wrong;
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

// With every allocation failing in turn: a status, and slots that are as they were.
TEST_F(Outputs, WhateverAllocationFails) {
  const uint8_t skipped[] = {0, 1, 0};
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.skipped_outputs = skipped;
  options.flags = EVN_RUN_OVERWRITE_INPUTS | EVN_RUN_OUTPUTS_ON_DEVICE;
  int refused = 0;
  for (int k = 1;; ++k) {
    float memory[4] = {1, -2, 3, -4};
    evn_tensor in = nullptr;
    ASSERT_OK(evn_tensor_wrap(runtime, memory, sizeof memory, EVN_DTYPE_FLOAT32, dims, 1, nullptr, nullptr, &in, &error));
    evn_tensor out[3] = {in, nullptr, nullptr};
    fault_arm(Seam::kAlloc, k, false);
    const evn_status status = evn_session_run(session, &in, 1, out, 3, &options, &error);
    const bool reached = fault_count(Seam::kAlloc) >= k;
    fault_arm(Seam::kAlloc, 0, false);
    EXPECT_EQ(out[0], in);
    EXPECT_EQ(out[1], nullptr);
    EXPECT_EQ(out[2] != nullptr, status == EVN_OK);
    if (status == EVN_OK) {
      EXPECT_EQ(std::vector<float>(memory, memory + 4), kA);
    } else {
      EXPECT_EQ(status, EVN_ERROR_OUT_OF_MEMORY);
      ++refused;
    }
    release({in, out[2]});
    if (!reached) break;
    ASSERT_LT(k, 1000);
  }
  EXPECT_GT(refused, 3);
}

// -------------------------------------------------------------------------------------------------------------- OpenCL --

using OpenClOutputs = OpenClApiTest;

TEST_F(OpenClOutputs, StayOnTheDevice) {
  make_runtime();
  evn_model model = nullptr;
  evn_session session = nullptr;
  load_relu(&model, &session, 2);
  const evn_tensor x = create(gpu, {1, 1, 2, 3});
  write(x, {1, -2, 3, -4, 5, -6});
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.flags = EVN_RUN_OUTPUTS_ON_DEVICE;
  for (int turn = 0; turn < 2; ++turn) {
    const int transfers = driver->transfers();
    evn_tensor y = nullptr;
    ASSERT_OK(evn_session_run(session, &x, 1, &y, 1, &options, &error));
    EXPECT_EQ(driver->transfers(), transfers);
    evn_tensor_info info = EVN_TENSOR_INFO_INIT;
    ASSERT_OK(evn_tensor_get_info(y, &info, &error));
    EXPECT_STREQ(info.device, "opencl:0");
    // What one run gives the next one takes.
    evn_tensor z = nullptr;
    ASSERT_OK(evn_session_run(session, &y, 1, &z, 1, &options, &error));
    EXPECT_EQ(driver->transfers(), transfers);
    EXPECT_EQ(read(y), (std::vector<float>{0, 2, 0, 4, 0, 6}));
    EXPECT_EQ(read(z), (std::vector<float>{0, 0, 0, 0, 0, 0}));
    for (evn_tensor t : {y, z}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  }
  EXPECT_EQ(evn_tensor_release(x), EVN_OK);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

TEST_F(OpenClOutputs, LieOverInputs) {
  make_runtime();
  evn_model model = nullptr;
  evn_session session = nullptr;
  load_relu(&model, &session, 2);
  std::vector<float> host_values = {1, -2, 3, -4, 5, -6};
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  for (const bool on_host : {false, true}) {
    const evn_tensor x = on_host ? wrap(host_values, {1, 1, 2, 3}) : create(gpu, {1, 1, 2, 3});
    if (!on_host) write(x, host_values);
    evn_tensor y = x;
    options.flags = 0;
    EXPECT_EQ(evn_session_run(session, &x, 1, &y, 1, &options, &error), EVN_ERROR_INVALID_ARGUMENT);
    options.flags = EVN_RUN_OVERWRITE_INPUTS;
    const int transfers = driver->transfers();
    ASSERT_OK(evn_session_run(session, &x, 1, &y, 1, &options, &error));
    EXPECT_EQ(driver->transfers() - transfers, on_host ? 2 : 0);  // in place
    EXPECT_EQ(read(x), (std::vector<float>{0, 2, 0, 4, 0, 6}));
    EXPECT_EQ(evn_tensor_release(x), EVN_OK);
  }
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

}  // namespace
}  // namespace evn::test::outputs_test
