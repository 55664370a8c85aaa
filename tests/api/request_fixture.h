// The fixture of the tests of asynchronous runs. An operator within the model says when a run begins and holds it, so that nothing
// depends on how long anything takes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/os/os.h"
#include "evener/request.h"
#include "tests/api/gate.h"
#include "tests/support/eventually.h"

namespace evn::test::request_test {

struct Host {  // an executor of the host's: tasks that a test runs when it likes
  std::mutex mutex;
  std::deque<std::pair<evn_task, void*>> tasks;
  evn_status answer = EVN_OK;
  std::function<evn_status(evn_task, void*)> takes;  // nullable: takes tasks in place of the queue

  static void parallel(void*, uint32_t count, evn_task task, void* context) {
    for (uint32_t i = 0; i < count; ++i) task(context, i);
  }
  static evn_status post(void* user, evn_task task, void* context) {
    auto& h = *static_cast<Host*>(user);
    if (h.takes) return h.takes(task, context);
    const std::lock_guard<std::mutex> lock(h.mutex);
    if (h.answer == EVN_OK) h.tasks.emplace_back(task, context);
    return h.answer;
  }
  void set_in(evn_runtime_options* options, bool can_post = true) {
    options->parallel_for = &parallel;
    if (!can_post) return;
    options->post = &post;
    options->post_user = this;
  }
  bool run_one() {
    std::pair<evn_task, void*> t;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (tasks.empty()) return false;
      t = tasks.front();
      tasks.pop_front();
    }
    t.first(t.second, 0);
    return true;
  }
};

// Returns true if the request ends within kPatienceNs.
inline bool ends(evn_request request) {
  evn_error e = EVN_ERROR_INIT;
  bool done = false;
  EXPECT_EQ(evn_request_wait(request, kPatienceNs, &done, &e), EVN_OK) << e.message;
  return done;
}

struct RequestTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_session session = nullptr;
  Gate gate;
  Host host;

  void SetUp() override { make(1); }
  void TearDown() override {
    gate.set(false);
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  }
  void make(int32_t threads, bool on_host = false, bool can_post = true, const char* config = "", int32_t concurrency = 0) {
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
    session = nullptr;
    runtime = nullptr;
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = threads;
    options.config_text = config;
    options.config_size = std::strlen(config);
    if (options.config_size == 0) options.config_text = nullptr;
    if (on_host) host.set_in(&options, can_post);
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    ASSERT_OK(gate.register_at(runtime, &error));
    session = load(concurrency);
  }
  evn_session load(int32_t concurrency = 0) {
    OnnxWriter w(17);
    w.import("mine", 1);
    w.add_input("x", kF32, {4}).add_output("y", kF32);
    w.add_node("Gate", {"x"}, {"a"}, {}, "gate", "mine").add_node("Neg", {"a"}, {"y"});
    const std::string bytes = w.serialize();
    evn_model model = nullptr;
    evn_session made = nullptr;
    EXPECT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    evn_session_options options = EVN_SESSION_OPTIONS_INIT;
    options.concurrency = concurrency;
    EXPECT_OK(evn_session_create(runtime, model, &options, &made, &error));
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    return made;
  }
  void set_configuration(const char* text) {
    evn_reconfigure_options o = EVN_RECONFIGURE_OPTIONS_INIT;
    o.config_text = text;
    o.config_size = std::strlen(text);
    EXPECT_OK(evn_runtime_reconfigure(runtime, &o, &error));
  }
  evn_tensor tensor(float first) {
    const int64_t dim = 4;
    evn_device cpu = nullptr;
    evn_tensor t = nullptr;
    EXPECT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
    EXPECT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, &dim, 1, 0, &t, &error));
    const float values[4] = {first, 1, 2, 3};
    EXPECT_OK(write(t, values));
    EXPECT_EQ(evn_device_release(cpu), EVN_OK);
    return t;
  }
  evn_status write(evn_tensor t, const float* values) {
    void* data = nullptr;
    const evn_status status = evn_tensor_map(t, EVN_MAP_WRITE, &data, nullptr, &error);
    if (status != EVN_OK) return status;
    std::memcpy(data, values, 16);
    return evn_tensor_unmap(t, &error);
  }
  float first_of(evn_tensor t) {
    void* data = nullptr;
    EXPECT_OK(evn_tensor_map(t, EVN_MAP_READ, &data, nullptr, &error));
    const float x = *static_cast<float*>(data);
    EXPECT_OK(evn_tensor_unmap(t, &error));
    return x;
  }
  evn_status submit(float first, evn_request* request, const evn_submit_options* submit_options = nullptr,
                    const evn_run_options* options = nullptr, evn_session to = nullptr) {
    const evn_tensor x = tensor(first);
    error = EVN_ERROR_INIT;
    const evn_status status =
        evn_session_submit(to != nullptr ? to : session, &x, 1, nullptr, 1, options, submit_options, request, &error);
    EXPECT_EQ(evn_tensor_release(x), EVN_OK);  // the request keeps it
    return status;
  }
  // Waits for the request, takes its output and releases both; the output's first element.
  float result(evn_request request) {
    bool done = false;
    EXPECT_OK(evn_request_wait(request, kForever, &done, &error));
    EXPECT_TRUE(done);
    evn_tensor y = nullptr;
    EXPECT_OK(evn_request_take(request, &y, 1, &error));
    const float x = y != nullptr ? first_of(y) : 0;
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
    EXPECT_EQ(evn_request_release(request), EVN_OK);
    return x;
  }
  evn_status outcome(evn_request request) {
    bool done = false;
    EXPECT_OK(evn_request_wait(request, kForever, &done, &error));
    evn_tensor y = nullptr;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_request_take(request, &y, 1, &error);
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
    EXPECT_EQ(evn_request_release(request), EVN_OK);
    return status;
  }
};

// What a callback saw, and what it gives back.
struct Seen {
  std::atomic<int> done{0}, released{0};
  std::function<void(evn_request)> then;

  static void on_done(void* user, evn_request request) {
    auto& s = *static_cast<Seen*>(user);
    if (s.then) s.then(request);
    ++s.done;
  }
  static void on_release(void* user) { ++static_cast<Seen*>(user)->released; }
  evn_submit_options options(evn_queue queue = nullptr) {
    evn_submit_options o = EVN_SUBMIT_OPTIONS_INIT;
    o.queue = queue;
    o.done = &on_done;
    o.user = this;
    o.release = &on_release;
    return o;
  }
};

// Time at which the request is submitted for which a callback waits.
enum class Submitted { kByTheCallback, kDuringTheCallback, kBeforeTheCallback };

// Expects that the callback of a request may wait for another request of the session, which executes one request at a time.
inline void expect_callback_may_wait(RequestTest& test, Submitted when) {
  std::atomic<evn_request> other{nullptr};
  std::atomic<bool> begun{false}, has_ended{false};
  const auto submit_other = [&] {
    evn_request made = nullptr;
    EXPECT_EQ(test.submit(2, &made), EVN_OK) << test.error.message;
    other = made;
  };
  Seen seen;
  seen.then = [&](evn_request) {
    begun = true;
    if (when == Submitted::kByTheCallback) submit_other();
    EXPECT_TRUE(eventually([&] { return other != nullptr; }));
    has_ended = ends(other);
  };
  const evn_submit_options o = seen.options();
  test.gate.set(true);
  EXPECT_EQ(test.submit(1, nullptr, &o), EVN_OK) << test.error.message;
  test.gate.await_waiting(1);
  if (when == Submitted::kBeforeTheCallback) submit_other();
  test.gate.set(false);
  if (when == Submitted::kDuringTheCallback) {
    EXPECT_TRUE(eventually([&] { return begun.load(); }));
    submit_other();
  }
  EXPECT_TRUE(eventually([&] { return seen.released == 1; }));
  EXPECT_TRUE(has_ended);
  EXPECT_EQ(test.result(other), -2);
}

}  // namespace evn::test::request_test
