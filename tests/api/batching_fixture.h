// The fixture of the tests of batching. A session with a gate in it holds the only thread that executes requests until all of them
// have been submitted, so that nothing depends on how long anything takes.
#pragma once

#include <cstring>
#include <functional>

#include "api/barrier.h"
#include "api/objects.h"
#include "evener/request.h"
#include "tests/api/gate.h"
#include "tests/api/request_fixture.h"

namespace evn::test::batching_test {

// rows [N, S] of indices into a table of 8 texts, and a mask of as many; means over what counts, and the texts themselves.
inline OnnxWriter text_model() {
  std::vector<float> table(8 * 4);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = 0.25f * static_cast<float>(i % 11) - 1;
  OnnxWriter w(18);
  w.add_input("ids", kI64, {"N", "S"}).add_input("mask", kF32, {"N", "S"}).add_output("mean").add_output("texts");
  w.add_initializer("table", {8, 4}, table).add_initializer("ax", {1}, std::vector<std::int64_t>{2});
  w.add_initializer("ax1", {1}, std::vector<std::int64_t>{1});
  w.add_node("Gather", {"table", "ids"}, {"texts"}, {}, "look_up").add_node("Unsqueeze", {"mask", "ax"}, {"m"});
  w.add_node("Mul", {"texts", "m"}, {"t"}).add_node("ReduceSum", {"t", "ax1"}, {"sum"}, {{"keepdims", 0}});
  w.add_node("ReduceSum", {"mask", "ax1"}, {"count"}).add_node("Div", {"sum", "count"}, {"mean"});
  return w;
}

struct Sent {
  evn_request request = nullptr;
  std::vector<int64_t> ids;
  int64_t rows = 1;
};

struct BatchingTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_session gated = nullptr;
  evn_session session = nullptr;
  evn_session plain = nullptr;
  evn_device cpu = nullptr;
  evn_request held = nullptr;
  Gate gate;
  request_test::Host host;
  std::function<void(const evn_log_record&)> logged;  // nullable: receives the records of runtimes that are made from now on

  void SetUp() override { make(""); }
  void TearDown() override {
    gate.set(false);
    for (const evn_session s : {gated, session, plain}) {
      if (s != nullptr) EXPECT_OK(evn_session_finish(s, kForever, &error));
    }
    EXPECT_EQ(evn_request_release(held), EVN_OK);
    EXPECT_EQ(evn_device_release(cpu), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  }
  void make(const char* config, int32_t threads = 1, bool on_host = false) {
    for (const evn_session s : {gated, session, plain}) EXPECT_EQ(evn_session_release(s), EVN_OK);
    EXPECT_EQ(evn_device_release(cpu), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
    gated = session = plain = nullptr;
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = threads;
    options.config_text = config;
    options.config_size = std::strlen(config);
    if (options.config_size == 0) options.config_text = nullptr;
    if (on_host) host.set_in(&options);
    if (logged) {
      options.log_level = EVN_LOG_DEBUG;
      options.log_sink = [](void* user, const evn_log_record* record) { static_cast<BatchingTest*>(user)->logged(*record); };
      options.log_sink_user = this;
    }
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
    ASSERT_OK(gate.register_at(runtime, &error));
  }
  OnnxWriter gate_model() {
    OnnxWriter w(17);
    w.import("mine", 1).add_input("x", kF32, {"N", 4}).add_output("y", kF32);
    w.add_node("Gate", {"x"}, {"y"}, {}, "gate", "mine");
    return w;
  }
  evn_status load(const OnnxWriter& w, const evn_batching_options* batching, evn_session* made) {
    const std::string bytes = w.serialize();
    evn_model model = nullptr;
    EXPECT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    evn_session_options options = EVN_SESSION_OPTIONS_INIT;
    options.batching = batching;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_session_create(runtime, model, &options, made, &error);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    return status;
  }
  // The sessions, and a request that holds the thread.
  void start(int32_t max_batch = 8, const char* mask = nullptr, std::vector<int64_t> buckets = {}, uint64_t max_delay_ns = 0) {
    evn_batching_options b = EVN_BATCHING_OPTIONS_INIT;
    b.max_delay_ns = max_delay_ns;
    b.max_batch = max_batch;
    b.mask = mask;
    b.buckets = buckets.data();
    b.bucket_count = static_cast<uint32_t>(buckets.size());
    ASSERT_OK(load(text_model(), &b, &session));
    ASSERT_OK(load(text_model(), nullptr, &plain));
    ASSERT_OK(load(gate_model(), nullptr, &gated));
    hold();
  }
  void hold() {
    EXPECT_EQ(evn_request_release(held), EVN_OK);
    held = nullptr;
    const int before = gate.begun;
    gate.set(true);
    const std::vector<float> x(4);
    const evn_tensor t = tensor(EVN_DTYPE_FLOAT32, {1, 4}, x.data(), 16);
    ASSERT_OK(evn_session_submit(gated, &t, 1, nullptr, 1, nullptr, nullptr, &held, &error));
    EXPECT_EQ(evn_tensor_release(t), EVN_OK);
    gate.await(before + 1);
  }
  evn_tensor tensor(evn_dtype dtype, const std::vector<int64_t>& dims, const void* from, std::size_t size) {
    evn_tensor t = nullptr;
    evn_error e = EVN_ERROR_INIT;
    EXPECT_EQ(evn_tensor_create(cpu, dtype, dims.data(), static_cast<uint32_t>(dims.size()), 0, &t, &e), EVN_OK) << e.message;
    void* data = nullptr;
    if (evn_tensor_map(t, EVN_MAP_WRITE, &data, nullptr, &e) == EVN_OK) {
      std::memcpy(data, from, size);
      EXPECT_EQ(evn_tensor_unmap(t, &e), EVN_OK);
    }
    return t;
  }
  std::vector<evn_tensor> inputs(const std::vector<int64_t>& ids, int64_t rows) {
    const std::vector<int64_t> dims = {rows, static_cast<int64_t>(ids.size()) / rows};
    const std::vector<float> ones(ids.size(), 1);
    return {tensor(EVN_DTYPE_INT64, dims, ids.data(), ids.size() * 8),
            tensor(EVN_DTYPE_FLOAT32, dims, ones.data(), ones.size() * 4)};
  }
  evn_status submit(Sent* sent, const evn_run_options* options = nullptr, const evn_submit_options* submit_options = nullptr,
                    const evn_tensor* outputs = nullptr) {
    const std::vector<evn_tensor> in = inputs(sent->ids, sent->rows);
    evn_error e = EVN_ERROR_INIT;
    const evn_status status = evn_session_submit(session, in.data(), 2, outputs, 2, options, submit_options, &sent->request, &e);
    for (const evn_tensor t : in) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
    return status;
  }
  static std::vector<float> elements(evn_tensor t, std::vector<int64_t>* dims = nullptr) {
    evn_error e = EVN_ERROR_INIT;
    evn_tensor_info info = EVN_TENSOR_INFO_INIT;
    EXPECT_EQ(evn_tensor_get_info(t, &info, &e), EVN_OK) << e.message;
    void* data = nullptr;
    EXPECT_EQ(evn_tensor_map(t, EVN_MAP_READ, &data, nullptr, &e), EVN_OK) << e.message;
    const auto* from = static_cast<const float*>(data);
    std::vector<float> v(from, from + info.size_bytes / 4);
    EXPECT_EQ(evn_tensor_unmap(t, &e), EVN_OK);
    if (dims != nullptr) dims->assign(info.dims, info.dims + info.rank);
    return v;
  }
  evn_status wait(const Sent& sent) {
    bool done = false;
    EXPECT_OK(evn_request_wait(sent.request, kForever, &done, &error));
    evn_tensor out[2] = {};
    error = EVN_ERROR_INIT;
    const evn_status status = evn_request_take(sent.request, out, 2, &error);
    for (const evn_tensor t : out) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
    EXPECT_EQ(evn_request_release(sent.request), EVN_OK);
    return status;
  }
  // The request's status; where it ended well its outputs are those of a run; bit by bit, or nearly.
  evn_status checked(const Sent& sent, bool exact = true) {
    bool done = false;
    EXPECT_OK(evn_request_wait(sent.request, kForever, &done, &error));
    evn_tensor got[2] = {}, want[2] = {};
    error = EVN_ERROR_INIT;
    const evn_status status = evn_request_take(sent.request, got, 2, &error);
    EXPECT_EQ(evn_request_release(sent.request), EVN_OK);
    if (status != EVN_OK) return status;
    const std::vector<evn_tensor> in = inputs(sent.ids, sent.rows);
    EXPECT_OK(evn_session_run(plain, in.data(), 2, want, 2, nullptr, &error));
    for (int j = 0; j < 2; ++j) {
      std::vector<int64_t> got_dims, want_dims;
      const std::vector<float> a = elements(got[j], &got_dims), b = elements(want[j], &want_dims);
      EXPECT_EQ(got_dims, want_dims) << "output " << j;
      EXPECT_EQ(a.size(), b.size()) << "output " << j;
      for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        if (exact) EXPECT_EQ(a[i], b[i]) << "output " << j;
        else EXPECT_NEAR(a[i], b[i], 1e-5f) << "output " << j;
      }
    }
    for (const evn_tensor t : {got[0], got[1], want[0], want[1], in[0], in[1]}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
    return status;
  }
  void expect_right(const Sent& sent, bool exact = true) { EXPECT_EQ(checked(sent, exact), EVN_OK) << error.message; }
  // How many runs had 0, 1, ... rows.
  std::vector<uint64_t> counts() {
    std::vector<uint64_t> c(32);
    for (const auto& [rows, count] : SessionPin(session)->identity()->statistics.read().batches) c.at(rows) = count;
    return c;
  }
  std::vector<Sent> submit_rows(int count) {
    std::vector<Sent> sent;
    for (int i = 0; i < count; ++i) {
      sent.push_back({nullptr, {i % 8, (i + 3) % 8, (2 * i) % 8}, 1});
      EXPECT_EQ(submit(&sent.back()), EVN_OK);
    }
    return sent;
  }
};

}  // namespace evn::test::batching_test
