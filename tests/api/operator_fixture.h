// A runtime with a custom operator whose callbacks each test gives.
#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/api/support.h"

namespace evn::test {

// What the callbacks of one operator do; set by each test.
struct Behaviour {
  std::function<evn_status(evn_operator_node, const evn_tensor_view*, uint32_t, evn_tensor_view*, uint32_t, evn_error*)> infer;
  std::function<evn_status(evn_operator_node, const evn_tensor_view*, uint32_t, const evn_tensor_view*, uint32_t, evn_error*)> run;
  std::atomic<int> infers{0};
  std::atomic<int> runs{0};
  std::atomic<int> released{0};
};

inline evn_status call_infer(void* user, evn_operator_node node, const evn_tensor_view* in, uint32_t in_count, evn_tensor_view* out,
                             uint32_t out_count, evn_error* error) {
  auto& b = *static_cast<Behaviour*>(user);
  ++b.infers;
  if (b.infer) return b.infer(node, in, in_count, out, out_count, error);
  for (uint32_t k = 0; k < out_count; ++k) {
    out[k].dtype = in[0].dtype;
    out[k].rank = in[0].rank;
    memcpy(out[k].dims, in[0].dims, sizeof in[0].dims);
  }
  return EVN_OK;
}

inline evn_status call_run(void* user, evn_operator_node node, const evn_tensor_view* in, uint32_t in_count,
                           const evn_tensor_view* out, uint32_t out_count, evn_error* error) {
  auto& b = *static_cast<Behaviour*>(user);
  ++b.runs;
  if (b.run) return b.run(node, in, in_count, out, out_count, error);
  for (uint64_t i = 0; i < in[0].size_bytes / 4; ++i)
    static_cast<float*>(out[0].data)[i] = 2 * static_cast<const float*>(in[0].data)[i];
  return EVN_OK;
}

inline void call_release(void* user) { ++static_cast<Behaviour*>(user)->released; }

inline evn_operator make_operator(Behaviour* b) {
  evn_operator op = EVN_OPERATOR_INIT;
  op.domain = "mine";
  op.name = "Double";
  op.min_inputs = op.max_inputs = 1;
  op.user = b;
  op.infer = call_infer;
  op.run = call_run;
  op.release = call_release;
  return op;
}

// x [n, 3] -> Double -> Relu -> y
inline std::string double_model(const std::vector<Attr>& attributes = {}, int dtype = kF32) {
  OnnxWriter w(17);
  w.import("mine", 2);
  w.add_input("x", dtype, {"n", 3}).add_output("y", dtype);
  w.add_node("Double", {"x"}, {"d"}, attributes, "double_1", "mine").add_node("Relu", {"d"}, {"y"});
  return w.serialize();
}

struct OperatorTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  Behaviour behaviour;  // outlives the runtime
  evn_runtime runtime = nullptr;
  evn_session session = nullptr;
  std::vector<float> result;

  void SetUp() override { open(); }
  void TearDown() override { close(); }
  void open() {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 2;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
  }
  void close() {
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
    session = nullptr;
    runtime = nullptr;
  }
  evn_status add(const evn_operator& op) {
    error = EVN_ERROR_INIT;
    return evn_runtime_register_operator(runtime, &op, &error);
  }
  evn_status load(const std::string& bytes) {
    evn_session_release(session);
    session = nullptr;
    evn_model model = nullptr;
    error = EVN_ERROR_INIT;
    evn_status status = evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error);
    if (status == EVN_OK) status = evn_session_create(runtime, model, nullptr, &session, &error);
    evn_model_release(model);
    return status;
  }
  evn_status run(std::vector<float> x, std::vector<int64_t> dims) {
    evn_tensor in = nullptr;
    evn_tensor out = nullptr;
    error = EVN_ERROR_INIT;
    EXPECT_EQ(evn_tensor_wrap(runtime, x.data(), x.size() * 4, EVN_DTYPE_FLOAT32, dims.data(), static_cast<uint32_t>(dims.size()),
                              nullptr, nullptr, &in, &error),
              EVN_OK);
    const evn_status status = evn_session_run(session, &in, 1, &out, 1, nullptr, &error);
    if (status == EVN_OK) {
      void* data = nullptr;
      size_t size = 0;
      EXPECT_EQ(evn_tensor_map(out, EVN_MAP_READ, &data, &size, nullptr), EVN_OK);
      result.assign(static_cast<float*>(data), static_cast<float*>(data) + size / 4);
    }
    evn_tensor_release(in);
    evn_tensor_release(out);
    return status;
  }
  bool says(const std::string& part) const { return std::string(error.message).find(part) != std::string::npos; }
};

}  // namespace evn::test
