// Asynchronous runs: their outcome, their ends, the ways in which they tell of them, the order in which they are executed, and what
// callers do wrong (rows M06 to M20 of the list of hostile cases). An operator within the model says when a run begins and holds
// it, so that nothing depends on how long anything takes.
#include "evener/request.h"

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/fault.h"
#include "base/os/os.h"
#include "tests/api/support.h"

namespace evn::test::request_test {
namespace {

// The operator "Gate", a copy of its input: notes the first element, and waits while the gate is shut.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool shut = false;
  std::vector<float> seen;

  void set(bool to) {
    const std::lock_guard<std::mutex> lock(mutex);
    shut = to;
    changed.notify_all();
  }
  void pass(float x) {
    std::unique_lock<std::mutex> lock(mutex);
    seen.push_back(x);
    changed.notify_all();
    changed.wait(lock, [this] { return !shut; });
  }
  void await(std::size_t count) {
    std::unique_lock<std::mutex> lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return seen.size() >= count; }));
  }
  std::vector<float> all() {
    const std::lock_guard<std::mutex> lock(mutex);
    return seen;
  }
};

evn_status infer(void*, evn_operator_node, const evn_tensor_view* in, uint32_t, evn_tensor_view* out, uint32_t, evn_error*) {
  out[0].dtype = in[0].dtype;
  out[0].rank = in[0].rank;
  std::memcpy(out[0].dims, in[0].dims, sizeof in[0].dims);
  return EVN_OK;
}

evn_status pass(void* user, evn_operator_node, const evn_tensor_view* in, uint32_t, const evn_tensor_view* out, uint32_t,
                evn_error*) {
  std::memcpy(out[0].data, in[0].data, in[0].size_bytes);
  static_cast<Gate*>(user)->pass(*static_cast<const float*>(in[0].data));
  return EVN_OK;
}

bool eventually(const std::function<bool()>& condition) {
  const std::uint64_t end = os::now_ns() + 60'000'000'000;
  while (!condition()) {
    if (os::now_ns() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

constexpr uint64_t kForever = UINT64_MAX;

struct Host {  // an executor of the host's: tasks that a test runs when it likes
  std::mutex mutex;
  std::deque<std::pair<evn_task, void*>> tasks;
  evn_status answer = EVN_OK;

  static void parallel(void*, uint32_t count, evn_task task, void* context) {
    for (uint32_t i = 0; i < count; ++i) task(context, i);
  }
  static evn_status post(void* user, evn_task task, void* context) {
    auto& h = *static_cast<Host*>(user);
    const std::lock_guard<std::mutex> lock(h.mutex);
    if (h.answer == EVN_OK) h.tasks.emplace_back(task, context);
    return h.answer;
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
    if (on_host) options.parallel_for = &Host::parallel;
    if (on_host && can_post) {
      options.post = &Host::post;
      options.post_user = &host;
    }
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    evn_operator op = EVN_OPERATOR_INIT;
    op.domain = "mine";
    op.name = "Gate";
    op.min_inputs = op.max_inputs = 1;
    op.infer = infer;
    op.run = pass;
    op.user = &gate;
    ASSERT_OK(evn_runtime_register_operator(runtime, &op, &error));
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

TEST_F(RequestTest, GivesWhatARunGives) {
  evn_request request = nullptr;
  ASSERT_OK(submit(5, &request));
  EXPECT_EQ(result(request), -5);
}

TEST_F(RequestTest, WritesATensorOfTheCallers) {
  const evn_tensor x = tensor(7), y = tensor(0);
  evn_request request = nullptr;
  ASSERT_OK(evn_session_submit(session, &x, 1, &y, 1, nullptr, nullptr, &request, &error));
  bool done = false;
  EXPECT_OK(evn_request_wait(request, kForever, &done, &error));
  evn_tensor untouched = nullptr;
  EXPECT_OK(evn_request_take(request, &untouched, 1, &error));
  EXPECT_EQ(untouched, nullptr);
  EXPECT_EQ(first_of(y), -7);
  evn_request_release(request);
  evn_tensor_release(x);
  evn_tensor_release(y);
}

TEST_F(RequestTest, NotYetIsNoError) {
  gate.set(true);
  evn_request request = nullptr;
  ASSERT_OK(submit(1, &request));
  gate.await(1);
  bool done = true;
  EXPECT_OK(evn_request_wait(request, 0, &done, &error));
  EXPECT_FALSE(done);
  done = true;
  EXPECT_OK(evn_request_wait(request, 1'000'000, &done, &error));
  EXPECT_FALSE(done);
  evn_tensor y = nullptr;
  EXPECT_EQ(evn_request_take(request, &y, 1, &error), EVN_ERROR_BUSY);
  gate.set(false);
  EXPECT_EQ(result(request), -1);
}

TEST_F(RequestTest, OutputsAreTakenOnceAndErrorsAgainAndAgain) {
  evn_request request = nullptr;
  ASSERT_OK(submit(1, &request));
  bool done = false;
  EXPECT_OK(evn_request_wait(request, kForever, &done, &error));
  EXPECT_OK(evn_request_wait(request, kForever, &done, &error));  // M16
  evn_tensor y = nullptr;
  EXPECT_EQ(evn_request_take(request, &y, 2, &error), EVN_ERROR_INVALID_ARGUMENT);  // and they are still there
  EXPECT_OK(evn_request_take(request, &y, 1, &error));
  evn_tensor again = nullptr;
  EXPECT_EQ(evn_request_take(request, &again, 1, &error), EVN_ERROR_WRONG_STATE);
  EXPECT_EQ(again, nullptr);
  evn_tensor_release(y);
  EXPECT_EQ(evn_request_release(request), EVN_OK);
  EXPECT_EQ(evn_request_release(request), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_request_wait(request, 0, &done, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_request_release(nullptr), EVN_OK);

  const int64_t dim = 3;
  float values[3] = {};
  evn_tensor wrong = nullptr;
  ASSERT_OK(evn_tensor_wrap(runtime, values, sizeof values, EVN_DTYPE_FLOAT32, &dim, 1, nullptr, nullptr, &wrong, &error));
  ASSERT_OK(evn_session_submit(session, &wrong, 1, nullptr, 1, nullptr, nullptr, &request, &error));
  EXPECT_OK(evn_request_wait(request, kForever, &done, &error));
  for (int i = 0; i < 2; ++i) {
    error = EVN_ERROR_INIT;
    EXPECT_EQ(evn_request_take(request, &y, 1, &error), EVN_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.message).find("input 0 \"x\""), std::string::npos) << error.message;
  }
  evn_request_release(request);
  evn_tensor_release(wrong);
}

TEST_F(RequestTest, WaitingThreadsAllLearnOfTheEnd) {
  gate.set(true);
  evn_request request = nullptr;
  ASSERT_OK(submit(1, &request));
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      bool done = false;
      evn_error e = EVN_ERROR_INIT;
      if (evn_request_wait(request, kForever, &done, &e) == EVN_OK && done) ++told;
    });
  }
  gate.set(false);
  for (auto& t : threads) t.join();
  EXPECT_EQ(told, 4);
  EXPECT_EQ(result(request), -1);
}

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

TEST_F(RequestTest, ACallbackIsCalledOnceOutsideOfSubmitAndGetsTheOutputs) {
  Seen seen;
  const auto submitter = std::this_thread::get_id();
  float got = 0;
  bool elsewhere = false;
  seen.then = [&](evn_request request) {
    elsewhere = std::this_thread::get_id() != submitter;
    void* user = nullptr;
    evn_error e = EVN_ERROR_INIT;
    EXPECT_OK(evn_request_user(request, &user, &e));
    EXPECT_EQ(user, &seen);
    evn_tensor y = nullptr;
    EXPECT_OK(evn_request_take(request, &y, 1, &e));
    got = first_of(y);
    evn_tensor_release(y);
  };
  const evn_submit_options o = seen.options();
  ASSERT_OK(submit(3, nullptr, &o));
  EXPECT_TRUE(eventually([&] { return seen.released == 1; }));
  EXPECT_EQ(seen.done, 1);
  EXPECT_EQ(got, -3);
  EXPECT_TRUE(elsewhere);
}

TEST_F(RequestTest, WhereSubmittingFailsTheUserStaysTheCallers) {
  Seen seen;
  const evn_submit_options o = seen.options();
  const evn_tensor x = tensor(1);
  EXPECT_EQ(evn_session_submit(session, &x, 1, nullptr, 2, nullptr, &o, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_session_submit(session, nullptr, 1, nullptr, 1, nullptr, &o, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_session_submit(session, &x, 1, nullptr, 1, nullptr, nullptr, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  evn_submit_options wrong = o;
  wrong.flags = 2;
  EXPECT_EQ(evn_session_submit(session, &x, 1, nullptr, 1, nullptr, &wrong, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  evn_run_options run = EVN_RUN_OPTIONS_INIT;
  run.priority = 8;
  EXPECT_EQ(evn_session_submit(session, &x, 1, nullptr, 1, &run, &o, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  fault_arm(Seam::kThread, 1, false);
  EXPECT_EQ(evn_session_submit(session, &x, 1, nullptr, 1, nullptr, &o, nullptr, &error), EVN_ERROR_NO_THREADS);
  fault_arm(Seam::kThread, 0, false);
  EXPECT_EQ(seen.done, 0);
  EXPECT_EQ(seen.released, 0);
  ASSERT_OK(evn_session_submit(session, &x, 1, nullptr, 1, nullptr, &o, nullptr, &error));
  EXPECT_TRUE(eventually([&] { return seen.released == 1; }));
  evn_tensor_release(x);
}

TEST_F(RequestTest, ACallbackMaySubmitCancelAndReleaseItsOwnSession) {
  Seen seen;
  evn_session own = load();
  std::atomic<int> left{10};
  evn_submit_options o = seen.options();
  seen.then = [&](evn_request) {
    if (--left > 0) {
      EXPECT_OK(submit(1, nullptr, &o, nullptr, own));
    } else {
      EXPECT_EQ(evn_session_finish(own, 0, &error), EVN_ERROR_WRONG_STATE);
      EXPECT_EQ(evn_session_release(own), EVN_OK);
      EXPECT_EQ(submit(1, nullptr, &o, nullptr, own), EVN_ERROR_INVALID_HANDLE);
    }
  };
  ASSERT_OK(submit(1, nullptr, &o, nullptr, own));
  EXPECT_TRUE(eventually([&] { return seen.released == 10; }));
  EXPECT_EQ(seen.done, 10);
}

TEST_F(RequestTest, ACallbackThatThrowsLosesNothing) {
  Seen seen;
  seen.then = [](evn_request) { throw std::runtime_error("of the host"); };
  const evn_submit_options o = seen.options();
  for (int i = 0; i < 3; ++i) ASSERT_OK(submit(1, nullptr, &o));
  EXPECT_TRUE(eventually([&] { return seen.released == 3; }));
}

// M15: others go on, though there is one thread for requests.
TEST_F(RequestTest, ACallbackThatBlocksHoldsUpNobody) {
  Seen blocked;
  std::atomic<bool> end{false};
  blocked.then = [&](evn_request) {
    while (!end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const evn_submit_options o = blocked.options();
  for (int i = 0; i < 3; ++i) ASSERT_OK(submit(1, nullptr, &o));
  evn_request request = nullptr;
  ASSERT_OK(submit(4, &request));
  EXPECT_EQ(result(request), -4);
  EXPECT_EQ(evn_session_finish(session, 1'000'000, &error), EVN_ERROR_TIMEOUT);
  session = nullptr;
  end = true;
  EXPECT_TRUE(eventually([&] { return blocked.released == 3; }));
}

TEST_F(RequestTest, FinishWaitsForCallbacks) {
  Seen seen;
  gate.set(true);
  const evn_submit_options o = seen.options();
  for (int i = 0; i < 5; ++i) ASSERT_OK(submit(1, nullptr, &o));
  std::thread opener([&] {
    gate.await(1);
    gate.set(false);
  });
  EXPECT_OK(evn_session_finish(session, kForever, &error));
  EXPECT_EQ(seen.released, 5);
  EXPECT_EQ(evn_session_finish(session, kForever, &error), EVN_ERROR_INVALID_HANDLE);
  session = nullptr;
  opener.join();
}

TEST_F(RequestTest, ReleasedHandlesOfRequestsInFlightLoseNothing) {
  Seen seen;
  gate.set(true);
  const evn_submit_options o = seen.options();
  evn_request request = nullptr;
  ASSERT_OK(submit(1, &request, &o));
  EXPECT_EQ(evn_request_release(request), EVN_OK);
  EXPECT_EQ(evn_session_release(session), EVN_OK);  // M06
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  session = nullptr;
  runtime = nullptr;
  gate.set(false);
  EXPECT_TRUE(eventually([&] { return seen.released == 1; }));
}

TEST_F(RequestTest, TheOrderIsPriorityThenDeadlineThenSubmission) {
  gate.set(true);
  const std::uint64_t far = os::now_ns() + 3'600'000'000'000;
  std::vector<evn_request> requests(6);
  evn_run_options o = EVN_RUN_OPTIONS_INIT;
  ASSERT_OK(submit(0, &requests[0], nullptr, &o));  // holds the only thread for requests of priority 0 and below
  gate.await(1);
  ASSERT_OK(submit(5, &requests[1], nullptr, &o));
  o.deadline_ns = far + 1'000'000'000;
  ASSERT_OK(submit(4, &requests[2], nullptr, &o));
  o.deadline_ns = far;
  ASSERT_OK(submit(3, &requests[3], nullptr, &o));
  o.deadline_ns = 0;
  o.priority = -7;
  ASSERT_OK(submit(7, &requests[4], nullptr, &o));
  o.priority = 0;
  ASSERT_OK(submit(6, &requests[5], nullptr, &o));
  gate.set(false);
  for (const evn_request r : requests) EXPECT_EQ(outcome(r), EVN_OK);
  EXPECT_EQ(gate.all(), (std::vector<float>{0, 3, 4, 5, 6, 7}));
}

TEST_F(RequestTest, AMoreUrgentRequestDoesNotWaitForTheThread) {
  gate.set(true);
  evn_request low = nullptr, high = nullptr;
  ASSERT_OK(submit(1, &low));
  gate.await(1);
  evn_run_options o = EVN_RUN_OPTIONS_INIT;
  o.priority = 3;
  ASSERT_OK(submit(2, &high, nullptr, &o));
  if (os::usable_cores() > 1) gate.await(2);  // where there is one core the run in the operator has it
  gate.set(false);
  EXPECT_EQ(result(high), -2);
  EXPECT_EQ(result(low), -1);
}

TEST_F(RequestTest, ConcurrencyBoundsASessionAndNotOthers) {
  make(3, false, true, "", 1);
  const evn_session other = load();
  gate.set(true);
  evn_request a = nullptr, b = nullptr, c = nullptr;
  ASSERT_OK(submit(1, &a));
  gate.await(1);
  ASSERT_OK(submit(2, &b));
  ASSERT_OK(submit(3, &c, nullptr, nullptr, other));
  gate.await(2);
  EXPECT_EQ(gate.all(), (std::vector<float>{1, 3}));
  gate.set(false);
  EXPECT_EQ(result(a) + result(b) + result(c), -6);
  evn_session_release(other);
}

TEST_F(RequestTest, CancelledAndLateRequestsEndWhileOthersHoldTheThread) {
  gate.set(true);
  evn_request first = nullptr, cancelled = nullptr, late = nullptr, timed = nullptr;
  ASSERT_OK(submit(1, &first));
  gate.await(1);
  evn_cancel token = nullptr;
  ASSERT_OK(evn_cancel_create(&token, &error));
  evn_run_options o = EVN_RUN_OPTIONS_INIT;
  o.cancel = token;
  ASSERT_OK(submit(2, &cancelled, nullptr, &o));
  o.cancel = nullptr;
  o.deadline_ns = 1;  // long ago
  ASSERT_OK(submit(3, &late, nullptr, &o));
  o.deadline_ns = 0;
  o.timeout_ns = 1'000'000;
  ASSERT_OK(submit(4, &timed, nullptr, &o));
  EXPECT_EQ(outcome(late), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(outcome(timed), EVN_ERROR_TIMEOUT);
  bool done = true;
  EXPECT_OK(evn_request_wait(cancelled, 0, &done, &error));
  EXPECT_FALSE(done);
  EXPECT_EQ(evn_cancel_request(token), EVN_OK);
  EXPECT_EQ(outcome(cancelled), EVN_ERROR_CANCELLED);
  gate.set(false);
  EXPECT_EQ(result(first), -1);
  EXPECT_EQ(gate.all().size(), 1u);
  EXPECT_EQ(evn_cancel_request(token), EVN_OK);  // after the end
  evn_cancel_release(token);
}

TEST_F(RequestTest, ATokenEndsARunThatComputes) {
  gate.set(true);
  evn_cancel token = nullptr;
  ASSERT_OK(evn_cancel_create(&token, &error));
  evn_run_options o = EVN_RUN_OPTIONS_INIT;
  o.cancel = token;
  o.deadline_ns = UINT64_MAX;
  evn_request request = nullptr;
  ASSERT_OK(submit(1, &request, nullptr, &o));
  gate.await(1);
  EXPECT_EQ(evn_cancel_request(token), EVN_OK);
  evn_cancel_release(token);
  gate.set(false);
  EXPECT_EQ(outcome(request), EVN_ERROR_CANCELLED);
}

TEST_F(RequestTest, AFullQueueIsBusyOrWaitedFor) {
  make(1, false, true, "limits: {queued_requests: 1}");
  gate.set(true);
  evn_request first = nullptr, second = nullptr, third = nullptr;
  ASSERT_OK(submit(1, &first));
  gate.await(1);
  ASSERT_OK(submit(2, &second));
  evn_submit_options o = EVN_SUBMIT_OPTIONS_INIT;
  o.flags = EVN_SUBMIT_FAIL_WHEN_FULL;
  EXPECT_EQ(submit(3, &third, &o), EVN_ERROR_BUSY);
  evn_run_options run = EVN_RUN_OPTIONS_INIT;
  run.timeout_ns = 2'000'000;
  EXPECT_EQ(submit(3, &third, nullptr, &run), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(third, nullptr);
  std::thread opener([&] { gate.set(false); });
  EXPECT_OK(submit(3, &third));
  opener.join();
  EXPECT_EQ(result(first) + result(second) + result(third), -6);
}

TEST_F(RequestTest, AQueueGivesRequestsAsTheyEndAndItsDescriptorTellsWhen) {
  evn_queue queue = nullptr;
  ASSERT_OK(evn_queue_create(&queue, &error));
  int32_t fd = -1;
  ASSERT_OK(evn_queue_fd(queue, &fd, &error));
  pollfd p = {fd, POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, 0), 0);
  evn_request none = reinterpret_cast<evn_request>(1);
  EXPECT_OK(evn_queue_next(queue, 0, &none, &error));
  EXPECT_EQ(none, nullptr);
  int numbers[20];
  for (int i = 0; i < 20; ++i) {
    evn_submit_options o = EVN_SUBMIT_OPTIONS_INIT;
    o.queue = queue;
    o.user = &numbers[i];
    ASSERT_OK(submit(static_cast<float>(i), nullptr, &o));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(poll(&p, 1, 60'000), 1);
    evn_request request = nullptr;
    ASSERT_OK(evn_queue_next(queue, 0, &request, &error));
    ASSERT_NE(request, nullptr);
    void* user = nullptr;
    ASSERT_OK(evn_request_user(request, &user, &error));
    EXPECT_EQ(user, &numbers[i]);  // one thread executes them in turn
    EXPECT_EQ(result(request), static_cast<float>(-i));
  }
  EXPECT_EQ(poll(&p, 1, 0), 0);
  EXPECT_EQ(evn_queue_release(queue), EVN_OK);
  EXPECT_EQ(evn_queue_next(queue, 0, &none, &error), EVN_ERROR_INVALID_HANDLE);
}

TEST_F(RequestTest, AQueueThatIsReleasedLosesNothing) {
  evn_queue queue = nullptr;
  ASSERT_OK(evn_queue_create(&queue, &error));
  gate.set(true);
  Seen seen;
  const evn_submit_options o = seen.options(queue);
  evn_request kept = nullptr, dropped = nullptr;
  ASSERT_OK(submit(1, &kept, &o));
  ASSERT_OK(submit(2, nullptr, &o));
  ASSERT_OK(submit(3, &dropped, &o));
  EXPECT_EQ(evn_request_release(dropped), EVN_OK);
  evn_request none = reinterpret_cast<evn_request>(1);
  EXPECT_OK(evn_queue_next(queue, 1'000'000, &none, &error));
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(evn_queue_release(queue), EVN_OK);
  gate.set(false);
  EXPECT_TRUE(eventually([&] { return seen.released == 3; }));
  EXPECT_EQ(result(kept), -1);
}

TEST_F(RequestTest, AReleasedRequestIsPassedOverByTheQueue) {
  evn_queue queue = nullptr;
  ASSERT_OK(evn_queue_create(&queue, &error));
  gate.set(true);
  evn_submit_options o = EVN_SUBMIT_OPTIONS_INIT;
  o.queue = queue;
  evn_request dropped = nullptr, kept = nullptr, got = nullptr;
  ASSERT_OK(submit(1, &dropped, &o));
  ASSERT_OK(submit(2, &kept, &o));
  EXPECT_EQ(evn_request_release(dropped), EVN_OK);
  gate.set(false);
  ASSERT_OK(evn_queue_next(queue, kForever, &got, &error));
  EXPECT_EQ(got, kept);
  EXPECT_EQ(result(kept), -2);
  EXPECT_EQ(evn_queue_release(queue), EVN_OK);
}

TEST_F(RequestTest, OnTheHostsThreadsRequestsAreTasksAndNoThreadStarts) {
  make(4, true);
  fault_count_reset(Seam::kThread);
  evn_request a = nullptr, b = nullptr;
  ASSERT_OK(submit(1, &a));
  ASSERT_OK(submit(2, &b));
  bool done = true;
  EXPECT_OK(evn_request_wait(a, 0, &done, &error));
  EXPECT_FALSE(done);
  EXPECT_TRUE(host.run_one());
  EXPECT_EQ(result(a), -1);
  EXPECT_TRUE(host.run_one());
  EXPECT_FALSE(host.run_one());
  EXPECT_EQ(result(b), -2);
  EXPECT_EQ(fault_count(Seam::kThread), 0);
  host.answer = EVN_ERROR_LIMIT;
  EXPECT_EQ(submit(3, &a), EVN_ERROR_LIMIT);
}

TEST_F(RequestTest, AnExecutorOfTheHostsNeedsPost) {
  make(4, true, false);
  evn_request request = nullptr;
  EXPECT_EQ(submit(1, &request), EVN_ERROR_UNSUPPORTED);
  EXPECT_NE(std::string(error.message).find("post"), std::string::npos) << error.message;
}

TEST_F(RequestTest, TasksOfTheHostThatFoundTheSessionFullAreMadeUpFor) {
  make(2, true, true, "", 1);
  gate.set(true);
  evn_request a = nullptr, b = nullptr;
  ASSERT_OK(submit(1, &a));
  ASSERT_OK(submit(2, &b));
  std::thread first([&] { host.run_one(); });
  gate.await(1);
  EXPECT_TRUE(host.run_one());  // finds nothing that may be executed
  gate.set(false);
  first.join();
  EXPECT_EQ(result(a) + result(b), -3);
}

TEST_F(RequestTest, NoSubmissionIsLostWhereThreadsCannotBeStarted) {
  make(3);
  for (int k = 1; k <= 4; ++k) {
    make(3);
    fault_arm(Seam::kThread, k, true);
    std::vector<evn_request> requests;
    for (int i = 0; i < 8; ++i) {
      evn_request r = nullptr;
      const evn_status status = submit(1, &r);
      if (k == 1) {
        EXPECT_EQ(status, EVN_ERROR_NO_THREADS);
      } else {
        EXPECT_EQ(status, EVN_OK) << error.message;
      }
      if (r != nullptr) requests.push_back(r);
    }
    for (const evn_request r : requests) EXPECT_EQ(result(r), -1);
    fault_arm(Seam::kThread, 0, false);
  }
}

TEST_F(RequestTest, EveryFailedAllocationIsAStatusAndEveryCallbackComesOnce) {
  const evn_tensor x = tensor(1);
  int refused = 0;
  for (int k = 1; k < 60; ++k) {
    Seen seen;
    std::atomic<evn_status> status{EVN_OK};
    seen.then = [&](evn_request r) {
      fault_arm(Seam::kAlloc, 0, false);
      evn_tensor y = nullptr;
      evn_error e = EVN_ERROR_INIT;
      status = evn_request_take(r, &y, 1, &e);
      evn_tensor_release(y);
    };
    const evn_submit_options o = seen.options();
    fault_arm(Seam::kAlloc, k, false);
    const evn_status submitted = evn_session_submit(session, &x, 1, nullptr, 1, nullptr, &o, nullptr, &error);
    if (submitted != EVN_OK) {
      fault_arm(Seam::kAlloc, 0, false);
      EXPECT_EQ(submitted, EVN_ERROR_OUT_OF_MEMORY) << k;
      EXPECT_EQ(seen.done, 0);
      ++refused;
      continue;
    }
    EXPECT_TRUE(eventually([&] { return seen.released == 1; }));
    fault_arm(Seam::kAlloc, 0, false);
    EXPECT_EQ(seen.done, 1);
    EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_OUT_OF_MEMORY) << status;
  }
  EXPECT_GT(refused, 3);
  evn_tensor_release(x);
}

TEST_F(RequestTest, ManyThreadsSubmitCancelAndRelease) {
  make(2);
  constexpr int kThreads = 8;
  const char* const full = std::getenv("EVN_TEST_FULL");
  const int rounds = full != nullptr && full[0] == '1' ? 10'000 : 300;
  std::atomic<int> submitted{0}, told{0}, released{0};
  struct Counts {
    std::atomic<int>* told;
    std::atomic<int>* released;
  } counts{&told, &released};
  const evn_tensor x = tensor(1);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      evn_error error = EVN_ERROR_INIT;  // which EXPECT_OK knows
      for (int i = 0; i < rounds; ++i) {
        evn_cancel token = nullptr;
        EXPECT_OK(evn_cancel_create(&token, &error));
        evn_run_options run = EVN_RUN_OPTIONS_INIT;
        run.cancel = token;
        run.priority = (t + i) % 5 - 2;
        evn_submit_options o = EVN_SUBMIT_OPTIONS_INIT;
        o.user = &counts;
        o.done = [](void* user, evn_request) { ++*static_cast<Counts*>(user)->told; };
        o.release = [](void* user) { ++*static_cast<Counts*>(user)->released; };
        evn_request r = nullptr;
        const bool keeps = i % 3 != 0;
        if (evn_session_submit(session, &x, 1, nullptr, 1, &run, &o, keeps ? &r : nullptr, &error) == EVN_OK) ++submitted;
        if (i % 4 == 0) evn_cancel_request(token);
        bool done = false;
        if (keeps && i % 5 == 0) EXPECT_OK(evn_request_wait(r, kForever, &done, &error));
        if (done) {
          evn_tensor y = nullptr;
          const evn_status status = evn_request_take(r, &y, 1, &error);
          EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_CANCELLED) << error.message;
          evn_tensor_release(y);
        }
        evn_request_release(r);
        evn_cancel_release(token);
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_OK(evn_session_finish(session, kForever, &error));
  session = nullptr;
  EXPECT_EQ(submitted, kThreads * rounds);
  EXPECT_EQ(told, kThreads * rounds);
  EXPECT_EQ(released, kThreads * rounds);
  evn_tensor_release(x);
}

}  // namespace
}  // namespace evn::test::request_test
