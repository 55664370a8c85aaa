// Tokens and deadlines: runs that are asked to stop, by whom and when. What asks is a custom operator within the run, so that
// nothing depends on how long anything takes.
#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "api/handle_table.h"
#include "base/os/os.h"
#include "evener/quantize.h"
#include "tests/api/support.h"
#include "tests/support/test_clock.h"

namespace evn::test::cancel_test {
namespace {

// The operator "Ask", a copy of its input, which calls this; and how often it has run.
std::function<void()> g_ask;
std::atomic<int> g_runs{0};

evn_status infer(void*, evn_operator_node, const evn_tensor_view* in, uint32_t, evn_tensor_view* out, uint32_t, evn_error*) {
  out[0].dtype = in[0].dtype;
  out[0].rank = in[0].rank;
  std::memcpy(out[0].dims, in[0].dims, sizeof in[0].dims);
  return EVN_OK;
}

evn_status copy_and_ask(void*, evn_operator_node, const evn_tensor_view* in, uint32_t, const evn_tensor_view* out, uint32_t,
                        evn_error*) {
  std::memcpy(out[0].data, in[0].data, in[0].size_bytes);
  ++g_runs;
  if (g_ask) g_ask();
  return EVN_OK;
}

evn_cancel g_token = nullptr;
void on_signal(int) { evn_cancel_request(g_token); }

struct CancelTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_session session = nullptr;
  evn_cancel token = nullptr;
  std::vector<float> values = {1, -2, 3, -4};

  void SetUp() override {
    g_ask = nullptr;
    g_runs = 0;
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 2;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    evn_operator op = EVN_OPERATOR_INIT;
    op.domain = "mine";
    op.name = "Ask";
    op.min_inputs = op.max_inputs = 1;
    op.infer = infer;
    op.run = copy_and_ask;
    ASSERT_OK(evn_runtime_register_operator(runtime, &op, &error));
    ASSERT_OK(evn_cancel_create(&token, &error));
    OnnxWriter w(17);
    w.import("mine", 1);
    w.add_input("x", kF32, {4}).add_output("y", kF32);
    w.add_node("Ask", {"x"}, {"a"}, {}, "first", "mine").add_node("Neg", {"a"}, {"b"});
    load(w.add_node("Ask", {"b"}, {"y"}, {}, "second", "mine"));
  }
  void TearDown() override {
    g_ask = nullptr;
    EXPECT_EQ(evn_cancel_release(token), EVN_OK);
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  }
  void load(const OnnxWriter& writer) {
    const std::string bytes = writer.serialize();
    evn_model model = nullptr;
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    ASSERT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
    EXPECT_EQ(evn_model_release(model), EVN_OK);
  }
  evn_status run(evn_cancel cancel, std::uint64_t deadline_ns = 0, std::uint64_t timeout_ns = 0) {
    const int64_t dim = 4;
    evn_tensor x = nullptr, y = nullptr;
    error = EVN_ERROR_INIT;
    EXPECT_EQ(evn_tensor_wrap(runtime, values.data(), sizeof(float) * 4, EVN_DTYPE_FLOAT32, &dim, 1, nullptr, nullptr, &x, &error),
              EVN_OK);
    evn_run_options options = EVN_RUN_OPTIONS_INIT;
    options.cancel = cancel;
    options.deadline_ns = deadline_ns;
    options.timeout_ns = timeout_ns;
    const evn_status status = evn_session_run(session, &x, 1, &y, 1, &options, &error);
    EXPECT_EQ(y != nullptr, status == EVN_OK);
    EXPECT_EQ(evn_tensor_release(x), EVN_OK);
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
    return status;
  }
};

TEST_F(CancelTest, ARequestEndsARunAndAllThatFollowWithTheToken) {
  EXPECT_EQ(run(token), EVN_OK);
  EXPECT_EQ(g_runs, 2);
  g_ask = [&] { EXPECT_EQ(evn_cancel_request(token), EVN_OK); };
  EXPECT_EQ(run(token), EVN_ERROR_CANCELLED);
  EXPECT_STREQ(error.message, "the run was cancelled");
  EXPECT_EQ(g_runs, 3) << "the second node ran";
  g_ask = nullptr;
  EXPECT_EQ(run(token), EVN_ERROR_CANCELLED);
  EXPECT_EQ(g_runs, 3) << "a run began with a token that was requested before";
  EXPECT_EQ(evn_cancel_request(token), EVN_OK);  // again
  EXPECT_EQ(run(nullptr), EVN_OK);
}

TEST_F(CancelTest, AnotherThreadMayAsk) {
  g_ask = [&] { std::thread([&] { EXPECT_EQ(evn_cancel_request(token), EVN_OK); }).join(); };
  EXPECT_EQ(run(token), EVN_ERROR_CANCELLED);
  EXPECT_EQ(g_runs, 1);
}

TEST_F(CancelTest, AHandlerOfASignalMayAsk) {
  g_token = token;
  struct sigaction action = {}, before = {};
  action.sa_handler = on_signal;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  g_ask = [] { raise(SIGUSR1); };
  EXPECT_EQ(run(token), EVN_ERROR_CANCELLED);
  EXPECT_EQ(g_runs, 1);
  EXPECT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
}

TEST_F(CancelTest, ATokenThatIsReleasedDuringTheRunStillEndsIt) {
  evn_cancel own = nullptr;
  ASSERT_OK(evn_cancel_create(&own, &error));
  g_ask = [&] {
    EXPECT_EQ(evn_cancel_request(own), EVN_OK);
    EXPECT_EQ(evn_cancel_release(own), EVN_OK);
  };
  EXPECT_EQ(run(own), EVN_ERROR_CANCELLED);
  EXPECT_EQ(g_runs, 1);
  EXPECT_EQ(run(own), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_cancel_request(own), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_cancel_release(own), EVN_ERROR_INVALID_HANDLE);
}

TEST_F(CancelTest, WhatIsNoTokenIsRefused) {
  EXPECT_EQ(run(reinterpret_cast<evn_cancel>(session)), EVN_ERROR_INVALID_HANDLE);
  EXPECT_NE(std::string(error.message).find("cancel"), std::string::npos) << error.message;
  EXPECT_EQ(evn_cancel_request(nullptr), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_cancel_request(reinterpret_cast<evn_cancel>(runtime)), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_cancel_create(nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_cancel_release(nullptr), EVN_OK);
  EXPECT_EQ(g_runs, 0);
}

TEST_F(CancelTest, IterationsOfABodyAreEndedToo) {
  OnnxWriter body;
  body.add_input("i", kI64, {}).add_input("go", kBool, {}).add_input("v", kF32, {4});
  body.add_output("more", kBool).add_output("w", kF32);
  body.add_node("Ask", {"v"}, {"w"}, {}, "inside", "mine").add_node("Identity", {"go"}, {"more"});
  OnnxWriter w(17);
  w.import("mine", 1);
  w.add_input("x", kF32, {4}).add_output("y", kF32).add_initializer("n", {}, std::vector<std::int64_t>{100});
  load(w.add_node("Loop", {"n", "", "x"}, {"y"}, {Attr::graph("body", body.graph())}));
  g_ask = [&] {
    if (g_runs == 3) evn_cancel_request(token);
  };
  EXPECT_EQ(run(token), EVN_ERROR_CANCELLED);
  EXPECT_EQ(g_runs, 3);
}

TEST_F(CancelTest, TheEarlierOfDeadlineAndTimeoutHolds) {
  EXPECT_EQ(run(nullptr, 1), EVN_ERROR_TIMEOUT);  // long ago
  EXPECT_EQ(g_runs, 0);
  EXPECT_EQ(run(nullptr, os::now_ns() - 1), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(run(nullptr, UINT64_MAX), EVN_OK);
  EXPECT_EQ(run(nullptr, os::now_ns() + 600'000'000'000, UINT64_MAX), EVN_OK);
  EXPECT_EQ(run(nullptr, UINT64_MAX, 1), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(run(token, 1), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(evn_cancel_request(token), EVN_OK);
  EXPECT_EQ(run(token, 1), EVN_ERROR_CANCELLED) << "both hold";
}

TEST_F(CancelTest, ManyThreadsAskReleaseAndRun) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        evn_error own = EVN_ERROR_INIT;
        evn_cancel mine = nullptr;
        if (evn_cancel_create(&mine, &own) != EVN_OK) return ADD_FAILURE() << own.message;
        std::thread other;
        if (i % 30 == 0) other = std::thread([mine] { evn_cancel_request(mine); });  // or the handle has gone
        evn_run_options options = EVN_RUN_OPTIONS_INIT;
        options.cancel = mine;
        const int64_t dim = 4;
        float data[4] = {1, 2, 3, 4};
        evn_tensor x = nullptr, y = nullptr;
        EXPECT_EQ(evn_tensor_wrap(runtime, data, sizeof data, EVN_DTYPE_FLOAT32, &dim, 1, nullptr, nullptr, &x, &own), EVN_OK);
        const evn_status status = evn_session_run(session, &x, 1, &y, 1, &options, &own);
        EXPECT_TRUE(status == EVN_OK || (i % 30 == 0 && status == EVN_ERROR_CANCELLED)) << own.message;
        EXPECT_EQ(evn_cancel_release(mine), EVN_OK);
        if (other.joinable()) other.join();
        evn_tensor_release(x);
        evn_tensor_release(y);
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

// The last pin of a released handle, in a signal's handler: the object goes with the next handle.
TEST(HandleTableTest, AnObjectIsNotDestroyedInAHandlerOfASignal) {
  static std::atomic<int> alive{0};
  struct Counted : HandleObject {
    Counted() : HandleObject(HandleKind::kCancel) { ++alive; }
    ~Counted() override { --alive; }
  };
  HandleTable::Slot slots[3];
  HandleTable table(slots);
  void* const a = table.add(std::make_unique<Counted>());
  void* const b = table.add(std::make_unique<Counted>());
  for (void* const h : {a, b}) {
    ASSERT_NE(table.pin(h, HandleKind::kCancel), nullptr);
    EXPECT_TRUE(table.release(h, HandleKind::kCancel));
    table.unpin_in_signal(h);
  }
  EXPECT_EQ(alive, 2);
  EXPECT_EQ(table.pin(a, HandleKind::kCancel), nullptr);
  std::vector<void*> more;
  for (int i = 0; i < 3; ++i) more.push_back(table.add(std::make_unique<Counted>()));
  EXPECT_EQ(alive, 3) << "those of a and b have gone, and their slots are used again";
  for (void* const h : more) EXPECT_TRUE(table.release(h, HandleKind::kCancel));
  EXPECT_EQ(alive, 0);
}

// Loading, making a session and quantizing: asked to stop before they begin, and with the deadline over at each of their looks at
// the clock in turn.
struct WorkTest : CancelTest {
  static constexpr std::uint64_t kDeadline = TestClock::kNow + 1;

  static evn_model load_with(evn_runtime runtime, const std::string& bytes, const evn_model_options& options, evn_status* status) {
    evn_error e = EVN_ERROR_INIT;
    evn_model model = nullptr;
    *status = evn_model_load_buffer(runtime, bytes.data(), bytes.size(), &options, &model, &e);
    return model;
  }
  // Calls work(), which gives a status; how many looks it had.
  template <typename F>
  static int over_at_each_look(F&& work) {
    TestClock clock;
    for (int looks = 0; looks < 2000; ++looks) {
      clock.restart(looks);
      const evn_status status = work();
      if (status == EVN_OK) return looks;
      EXPECT_EQ(status, EVN_ERROR_TIMEOUT) << "look " << looks;
    }
    return -1;
  }
};

std::string bigger_network() {
  OnnxWriter w(17);
  w.add_input("x", kF32, {1, 64}).add_output("y", kF32);
  std::string last = "x";
  for (int i = 0; i < 40; ++i) {
    const std::string n = std::to_string(i);
    w.add_initializer("w" + n, {64, 64}, std::vector<float>(64 * 64, 0.01f * static_cast<float>(i % 5 + 1)));
    w.add_node("MatMul", {last, "w" + n}, {"m" + n}, {}, "m" + n)
        .add_node("Relu", {"m" + n}, {i == 39 ? "y" : "r" + n}, {}, "r" + n);
    last = "r" + n;
  }
  return w.serialize();
}

TEST_F(WorkTest, EndsWhereATokenIsRequested) {
  const std::string bytes = bigger_network();
  evn_status status = EVN_OK;
  evn_model_options load_options = EVN_MODEL_OPTIONS_INIT;
  const evn_model model = load_with(runtime, bytes, load_options, &status);
  ASSERT_EQ(status, EVN_OK);
  EXPECT_EQ(evn_cancel_request(token), EVN_OK);
  load_options.cancel = token;
  EXPECT_EQ(load_with(runtime, bytes, load_options, &status), nullptr);
  EXPECT_EQ(status, EVN_ERROR_CANCELLED);
  evn_session_options session_options = EVN_SESSION_OPTIONS_INIT;
  session_options.cancel = token;
  evn_session made = nullptr;
  EXPECT_EQ(evn_session_create(runtime, model, &session_options, &made, &error), EVN_ERROR_CANCELLED);
  EXPECT_STREQ(error.message, "the making of the session was cancelled");
  evn_quantizer_options quantizer_options = EVN_QUANTIZER_OPTIONS_INIT;
  quantizer_options.cancel = token;
  quantizer_options.data = bytes.data();
  quantizer_options.size = bytes.size();
  evn_quantizer quantizer = nullptr;
  EXPECT_EQ(evn_quantizer_create(runtime, nullptr, &quantizer_options, &quantizer, &error), EVN_ERROR_CANCELLED);
  EXPECT_EQ(quantizer, nullptr);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

TEST_F(WorkTest, ALoadEndsAtAnyLook) {
  const std::string bytes = bigger_network();
  evn_model_options options = EVN_MODEL_OPTIONS_INIT;
  options.deadline_ns = kDeadline;
  EXPECT_GT(over_at_each_look([&] {
              evn_status status = EVN_OK;
              evn_model_release(load_with(runtime, bytes, options, &status));
              return status;
            }),
            3);
}

TEST_F(WorkTest, MakingASessionEndsAtAnyLookAndSucceedsAfterwards) {
  const std::string bytes = bigger_network();
  evn_status status = EVN_OK;
  const evn_model model = load_with(runtime, bytes, EVN_MODEL_OPTIONS_INIT, &status);
  ASSERT_EQ(status, EVN_OK);
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  options.deadline_ns = kDeadline;
  EXPECT_GT(over_at_each_look([&] {
              evn_session made = nullptr;
              const evn_status s = evn_session_create(runtime, model, &options, &made, &error);
              evn_session_release(made);
              return s;
            }),
            3);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

TEST_F(WorkTest, AQuantizersCallsEndAtAnyLook) {
  const std::string bytes = bigger_network();
  evn_quantizer_options options = EVN_QUANTIZER_OPTIONS_INIT;
  options.data = bytes.data();
  options.size = bytes.size();
  options.deadline_ns = kDeadline;
  const std::vector<float> x(64, 0.5f);
  const int64_t dims[2] = {1, 64};
  evn_tensor in = nullptr;
  ASSERT_OK(evn_tensor_wrap(runtime, const_cast<float*>(x.data()), 256, EVN_DTYPE_FLOAT32, dims, 2, nullptr, nullptr, &in, &error));
  EXPECT_GT(over_at_each_look([&] {
              evn_quantizer q = nullptr;
              evn_model made = nullptr;
              evn_status s = evn_quantizer_create(runtime, nullptr, &options, &q, &error);
              if (s == EVN_OK) s = evn_quantizer_add_batch(q, &in, 1, &error);
              if (s == EVN_OK) s = evn_quantizer_finish(q, &made, &error);
              evn_model_release(made);
              evn_quantizer_release(q);
              return s;
            }),
            10);
  EXPECT_EQ(evn_tensor_release(in), EVN_OK);
}

}  // namespace
}  // namespace evn::test::cancel_test
