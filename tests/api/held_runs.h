// Sessions whose runs a test holds: an operator within the model says when a run has begun, and waits while its gate is shut.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "evener/request.h"
#include "tests/api/gate.h"
#include "tests/support/eventually.h"

namespace evn::test::held {

// A runtime with two models: y = -x, with the gate on its way, and y = -x without.
struct HeldRuns : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_session session = nullptr;  // with the gate
  evn_session plain = nullptr;
  evn_tensor x = nullptr;  // 1, 2, 3, 4
  Gate gate;

  void SetUp() override { make(2); }
  void TearDown() override {
    gate.set(false);
    release_all();
  }
  void make(int32_t threads) {
    release_all();
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = threads;
    make(options);
  }
  void make(const evn_runtime_options& options) {
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    ASSERT_OK(gate.register_at(runtime, &error));
    session = load(true);
    plain = load(false);
    x = tensor();
  }
  void release_all() {
    EXPECT_EQ(evn_tensor_release(x), EVN_OK);
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_session_release(plain), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
    x = nullptr;
    session = plain = nullptr;
    runtime = nullptr;
  }
  evn_session load(bool gated) {
    OnnxWriter w(17);
    w.import("mine", 1);
    w.add_input("x", kF32, {4}).add_output("y", kF32);
    if (gated) w.add_node("Gate", {"x"}, {"a"}, {}, "gate", "mine");
    w.add_node("Neg", {gated ? "a" : "x"}, {"y"});
    const std::string bytes = w.serialize();
    evn_model model = nullptr;
    evn_session made = nullptr;
    EXPECT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    EXPECT_OK(evn_session_create(runtime, model, nullptr, &made, &error));
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    return made;
  }
  evn_tensor tensor() {  // of any thread
    evn_error error = EVN_ERROR_INIT;
    const int64_t dim = 4;
    evn_device cpu = nullptr;
    evn_tensor t = nullptr;
    void* data = nullptr;
    EXPECT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
    EXPECT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, &dim, 1, 0, &t, &error));
    EXPECT_OK(evn_tensor_map(t, EVN_MAP_WRITE, &data, nullptr, &error));
    const float values[4] = {1, 2, 3, 4};
    if (data != nullptr) std::memcpy(data, values, sizeof values);
    EXPECT_OK(evn_tensor_unmap(t, &error));
    EXPECT_EQ(evn_device_release(cpu), EVN_OK);
    return t;
  }
  // May be called by any thread.
  evn_status run(evn_session s, const evn_run_options* options = nullptr) {
    evn_error e = EVN_ERROR_INIT;
    evn_tensor y = nullptr;
    const evn_status status = evn_session_run(s, &x, 1, &y, 1, options, &e);
    if (status == EVN_OK) {
      EXPECT_EQ(first_of(y), -1);
    }
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
    return status;
  }
  static float first_of(evn_tensor t) {
    evn_error error = EVN_ERROR_INIT;
    void* data = nullptr;
    EXPECT_OK(evn_tensor_map(t, EVN_MAP_READ, &data, nullptr, &error));
    const float first = data != nullptr ? *static_cast<float*>(data) : 0;
    EXPECT_OK(evn_tensor_unmap(t, &error));
    return first;
  }
  evn_status submit(evn_session s, evn_request* request, const evn_submit_options* submit_options = nullptr,
                    const evn_run_options* options = nullptr) {
    evn_error e = EVN_ERROR_INIT;
    return evn_session_submit(s, &x, 1, nullptr, 1, options, submit_options, request, &e);
  }
  // Waits, takes and releases.
  static evn_status outcome(evn_request request) {
    evn_error error = EVN_ERROR_INIT;
    bool done = false;
    EXPECT_OK(evn_request_wait(request, kForever, &done, &error));
    EXPECT_TRUE(done);
    evn_tensor y = nullptr;
    const evn_status status = evn_request_take(request, &y, 1, &error);
    if (status == EVN_OK) {
      EXPECT_EQ(first_of(y), -1);
    }
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
    EXPECT_EQ(evn_request_release(request), EVN_OK);
    return status;
  }
};

// What callbacks do, and how many there were.
struct Told {
  std::atomic<int> done{0}, released{0};
  std::function<void(evn_request)> then;

  evn_submit_options options(evn_queue queue = nullptr) {
    evn_submit_options o = EVN_SUBMIT_OPTIONS_INIT;
    o.queue = queue;
    o.user = this;
    o.done = [](void* user, evn_request request) {
      auto& t = *static_cast<Told*>(user);
      if (t.then) t.then(request);
      ++t.done;
    };
    o.release = [](void* user) { ++static_cast<Told*>(user)->released; };
    return o;
  }
};

}  // namespace evn::test::held
