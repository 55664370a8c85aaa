// Batching of requests: which are batched, what each is given, and that a member that fails or is stopped does not affect others. A
// session with a gate in it holds the only thread that executes requests until all have been submitted, so that nothing depends on
// how long anything takes.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "api/barrier.h"
#include "api/objects.h"
#include "base/fault.h"
#include "base/os/os.h"
#include "evener/request.h"
#include "runtime/batch/batcher.h"
#include "tests/api/gate.h"

namespace evn::test::batching_test {
namespace {

// rows [N, S] of indices into a table of 8 texts, and a mask of as many; means over what counts, and the texts themselves.
OnnxWriter text_model() {
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
  void make(const char* config, int32_t threads = 1) {
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

TEST_F(BatchingTest, RequestsThatWaitAreJoined) {
  start();
  const std::vector<Sent> sent = submit_rows(11);
  gate.set(false);
  for (const Sent& s : sent) expect_right(s);
  const std::vector<uint64_t> c = counts();
  EXPECT_EQ(c[8], 1u);
  EXPECT_EQ(c[3], 1u);
  EXPECT_EQ(c[1], 0u);
}

TEST_F(BatchingTest, RequestsOfSeveralRowsAreJoinedToo) {
  start(6);
  std::vector<Sent> sent = {
      {nullptr, {1, 2, 3, 4}, 2}, {nullptr, {5, 6}, 1}, {nullptr, {7, 0, 1, 1, 2, 2}, 3}, {nullptr, {3, 3}, 1}};
  for (Sent& s : sent) ASSERT_EQ(submit(&s), EVN_OK);
  gate.set(false);
  for (const Sent& s : sent) expect_right(s);
  EXPECT_EQ(counts()[6], 1u);
  EXPECT_EQ(counts()[1], 1u);
}

TEST_F(BatchingTest, WhatDoesNotAgreeIsNotJoined) {
  start();
  evn_run_options urgent = EVN_RUN_OPTIONS_INIT, seeded = EVN_RUN_OPTIONS_INIT;
  urgent.priority = -1;
  seeded.random_seed = 7;
  std::vector<Sent> sent = {{nullptr, {1, 2, 3}, 1}, {nullptr, {1, 2}, 1}, {nullptr, {4, 2, 3}, 1}, {nullptr, {1, 2, 4}, 1}};
  ASSERT_EQ(submit(&sent[0]), EVN_OK);
  ASSERT_EQ(submit(&sent[1]), EVN_OK);
  ASSERT_EQ(submit(&sent[2], &urgent), EVN_OK);
  ASSERT_EQ(submit(&sent[3], &seeded), EVN_OK);
  gate.set(false);
  for (const Sent& s : sent) expect_right(s);
  EXPECT_EQ(counts()[1], 4u);
}

TEST_F(BatchingTest, GivenTensorsAreWritten) {
  start();
  std::vector<Sent> sent = {{nullptr, {1, 2, 3}, 1}, {nullptr, {4, 5, 6}, 1}, {nullptr, {0, 0, 7}, 1}};
  const std::vector<float> zeros(12);
  const evn_tensor given[2] = {tensor(EVN_DTYPE_FLOAT32, {1, 4}, zeros.data(), 16), nullptr};
  const evn_tensor wrong[2] = {tensor(EVN_DTYPE_FLOAT32, {1, 5}, zeros.data(), 20), nullptr};
  ASSERT_EQ(submit(&sent[0], nullptr, nullptr, given), EVN_OK);
  ASSERT_EQ(submit(&sent[1]), EVN_OK);
  ASSERT_EQ(submit(&sent[2], nullptr, nullptr, wrong), EVN_OK);
  gate.set(false);
  expect_right(sent[1]);
  EXPECT_EQ(wait(sent[2]), EVN_ERROR_INVALID_ARGUMENT);
  bool done = false;
  ASSERT_OK(evn_request_wait(sent[0].request, kForever, &done, &error));
  const std::vector<evn_tensor> in = inputs(sent[0].ids, 1);
  evn_tensor want[2] = {};
  ASSERT_OK(evn_session_run(plain, in.data(), 2, want, 2, nullptr, &error));
  EXPECT_EQ(elements(given[0]), elements(want[0]));
  for (const evn_tensor t : {given[0], wrong[0], want[0], want[1], in[0], in[1]}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(evn_request_release(sent[0].request), EVN_OK);
}

TEST_F(BatchingTest, OutputsOutliveTheirRequestsAndTheSession) {
  start();
  const std::vector<Sent> sent = submit_rows(3);
  gate.set(false);
  std::vector<evn_tensor> outputs;
  for (const Sent& s : sent) {
    bool done = false;
    ASSERT_OK(evn_request_wait(s.request, kForever, &done, &error));
    evn_tensor out[2] = {};
    ASSERT_OK(evn_request_take(s.request, out, 2, &error));
    EXPECT_EQ(evn_tensor_release(out[0]), EVN_OK);
    outputs.push_back(out[1]);
    EXPECT_EQ(evn_request_release(s.request), EVN_OK);
  }
  ASSERT_OK(evn_session_finish(session, kForever, &error));
  session = nullptr;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_EQ(elements(outputs[i])[0], 0.25f * static_cast<float>(4 * sent[i].ids[0] % 11) - 1);
    EXPECT_EQ(evn_tensor_release(outputs[i]), EVN_OK);
  }
}

TEST_F(BatchingTest, ABadIndexIsOneMembersOwn) {
  start();
  std::vector<Sent> sent = {{nullptr, {1, 2, 3}, 1}, {nullptr, {4, 99, 6}, 1}, {nullptr, {0, 0, 7}, 1}};
  for (Sent& s : sent) ASSERT_EQ(submit(&s), EVN_OK);
  gate.set(false);
  expect_right(sent[0]);
  expect_right(sent[2]);
  EXPECT_EQ(wait(sent[1]), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(error.node, "look_up");
}

TEST_F(BatchingTest, OthersGoOnWhenOneIsCancelledOrLate) {
  start();
  evn_cancel cancel = nullptr;
  ASSERT_OK(evn_cancel_create(&cancel, &error));
  evn_run_options cancelled = EVN_RUN_OPTIONS_INIT, late = EVN_RUN_OPTIONS_INIT;
  cancelled.cancel = cancel;
  late.deadline_ns = 1;
  std::vector<Sent> sent = {{nullptr, {1, 2, 3}, 1}, {nullptr, {4, 5, 6}, 1}, {nullptr, {0, 0, 7}, 1}, {nullptr, {3, 1, 7}, 1}};
  ASSERT_EQ(submit(&sent[0], &cancelled), EVN_OK);
  ASSERT_EQ(submit(&sent[1]), EVN_OK);
  ASSERT_EQ(submit(&sent[2], &late), EVN_OK);
  ASSERT_EQ(submit(&sent[3]), EVN_OK);
  evn_cancel_request(cancel);
  gate.set(false);
  expect_right(sent[1]);
  expect_right(sent[3]);
  EXPECT_EQ(wait(sent[0]), EVN_ERROR_CANCELLED);
  EXPECT_EQ(wait(sent[2]), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(evn_cancel_release(cancel), EVN_OK);
}

TEST_F(BatchingTest, LengthsAreFilledUpToBuckets) {
  start(8, "mask", {4, 6});
  std::vector<Sent> sent = {{nullptr, {1, 2, 3}, 1},          {nullptr, {4, 5, 6, 7}, 1},
                            {nullptr, {2, 2, 2, 2, 2}, 1},    {nullptr, {7, 1, 0, 1, 5, 6}, 1},
                            {nullptr, {1, 2, 3, 4, 5, 6}, 2}, {nullptr, {1, 2, 3, 4, 5, 6, 7}, 1}};
  for (Sent& s : sent) ASSERT_EQ(submit(&s), EVN_OK);
  gate.set(false);
  for (const Sent& s : sent) expect_right(s, false);
  EXPECT_EQ(counts()[4], 1u);  // of 3 and 4
  EXPECT_EQ(counts()[2], 1u);  // of 5 and 6
  EXPECT_EQ(counts()[1], 1u);  // of 7
}

TEST_F(BatchingTest, CallbacksComeOnceForEachMember) {
  start();
  struct Told {
    std::atomic<int> times{0};
    static void done(void* user, evn_request) { ++static_cast<Told*>(user)->times; }
  };
  std::vector<Told> told(20);
  std::vector<Sent> sent(20);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i].ids = {static_cast<int64_t>(i % 8), 1};
    evn_submit_options so = EVN_SUBMIT_OPTIONS_INIT;
    so.done = &Told::done;
    so.user = &told[i];
    ASSERT_EQ(submit(&sent[i], nullptr, &so), EVN_OK);
  }
  gate.set(false);
  for (const Sent& s : sent) expect_right(s);
  ASSERT_OK(evn_session_finish(session, kForever, &error));
  session = nullptr;
  for (const Told& t : told) EXPECT_EQ(t.times.load(), 1);
}

TEST_F(BatchingTest, FullQueuesRefuse) {
  make("limits: {queued_requests: 2}");
  start();
  evn_submit_options so = EVN_SUBMIT_OPTIONS_INIT;
  so.flags = EVN_SUBMIT_FAIL_WHEN_FULL;
  std::vector<Sent> sent(3, Sent{nullptr, {1, 2}, 1});
  ASSERT_EQ(submit(&sent[0], nullptr, &so), EVN_OK);
  ASSERT_EQ(submit(&sent[1], nullptr, &so), EVN_OK);
  EXPECT_EQ(submit(&sent[2], nullptr, &so), EVN_ERROR_BUSY);
  gate.set(false);
  expect_right(sent[0]);
  expect_right(sent[1]);
  ASSERT_EQ(submit(&sent[2], nullptr, &so), EVN_OK);
  expect_right(sent[2]);
}

// So many were in flight at a time lately that two are expected now, and a request alone waits for another.
struct WaitingTest : BatchingTest {
  void SetUp() override {
    BatchingTest::SetUp();
    start(8, nullptr, {}, 3'600'000'000'000);
    const std::vector<Sent> sent = submit_rows(3);
    gate.set(false);
    for (const Sent& s : sent) expect_right(s);
    EXPECT_EQ(counts()[3], 1u);
  }
};

TEST_F(WaitingTest, TheFirstWaitsForWhatIsExpected) {
  const std::vector<Sent> sent = submit_rows(2);
  for (const Sent& s : sent) expect_right(s);
  EXPECT_EQ(counts()[2], 1u);
  EXPECT_EQ(counts()[1], 0u);
}

TEST_F(WaitingTest, WhatDoesNotAgreeEndsAWait) {
  std::vector<Sent> sent = {{nullptr, {1, 2, 3}, 1}, {nullptr, {1, 2}, 1}};
  for (Sent& s : sent) ASSERT_EQ(submit(&s), EVN_OK);
  for (const Sent& s : sent) expect_right(s);
  EXPECT_EQ(counts()[1], 2u);
}

TEST_F(WaitingTest, OtherWorkEndsAWait) {
  const std::vector<Sent> sent = submit_rows(1);
  EXPECT_EQ(evn_request_release(held), EVN_OK);
  const std::vector<float> x(4);
  const evn_tensor t = tensor(EVN_DTYPE_FLOAT32, {1, 4}, x.data(), 16);
  ASSERT_OK(evn_session_submit(gated, &t, 1, nullptr, 1, nullptr, nullptr, &held, &error));
  EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  expect_right(sent[0]);
}

TEST_F(WaitingTest, TheEndOfTheSessionEndsAWait) {
  const std::vector<Sent> sent = submit_rows(1);
  ASSERT_OK(evn_session_finish(session, kForever, &error));
  session = nullptr;
  expect_right(sent[0]);
}

TEST_F(WaitingTest, ACancelledRequestWaitsNoLonger) {
  evn_cancel cancel = nullptr;
  ASSERT_OK(evn_cancel_create(&cancel, &error));
  evn_run_options o = EVN_RUN_OPTIONS_INIT;
  o.cancel = cancel;
  Sent sent{nullptr, {1, 2, 3}, 1};
  ASSERT_EQ(submit(&sent, &o), EVN_OK);
  evn_cancel_request(cancel);
  EXPECT_EQ(wait(sent), EVN_ERROR_CANCELLED);
  EXPECT_EQ(evn_cancel_release(cancel), EVN_OK);
}

TEST_F(WaitingTest, ADeadlineEndsAWait) {
  evn_run_options o = EVN_RUN_OPTIONS_INIT;
  o.deadline_ns = os::now_ns() + 200'000'000;
  Sent sent{nullptr, {1, 2, 3}, 1};
  ASSERT_EQ(submit(&sent, &o), EVN_OK);
  bool done = false;
  EXPECT_OK(evn_request_wait(sent.request, kForever, &done, &error));  // with its result or late: not after an hour
  const evn_status status = wait(sent);
  EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_TIMEOUT);
}

TEST_F(BatchingTest, EveryAllocationMayFailWhileRequestsAreJoined) {
  start(8, "mask", {4});
  // Where one allocation fails, what was joined runs again alone; where all fail from then on, requests are refused.
  for (const bool from_then_on : {false, true}) {
    int64_t passed = INT64_MAX;
    int refused = 0;
    for (int64_t k = 1; k <= passed; ++k) {
      ASSERT_LT(k, 5000);
      evn_batching_options b = EVN_BATCHING_OPTIONS_INIT;  // a session that has proven nothing yet
      const int64_t bucket = 4;
      b.mask = "mask";
      b.buckets = &bucket;
      b.bucket_count = 1;
      ASSERT_EQ(evn_session_release(session), EVN_OK);
      ASSERT_OK(load(text_model(), &b, &session));
      std::vector<Sent> sent = {{nullptr, {1, 2, 3}, 1}, {nullptr, {4, 5, 6, 7}, 1}, {nullptr, {0, 7, 2}, 1}};
      for (Sent& s : sent) ASSERT_EQ(submit(&s), EVN_OK);
      fault_count_reset(Seam::kAlloc);
      fault_arm(Seam::kAlloc, k, from_then_on);
      gate.set(false);
      bool done = false;
      evn_error e = EVN_ERROR_INIT;
      for (const Sent& s : sent) EXPECT_EQ(evn_request_wait(s.request, kForever, &done, &e), EVN_OK);
      passed = fault_count(Seam::kAlloc);
      fault_arm(Seam::kAlloc, 0, false);
      for (const Sent& s : sent) {
        const evn_status status = checked(s, false);
        EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_OUT_OF_MEMORY) << status << " " << k;
        if (status != EVN_OK) ++refused;
      }
      hold();
    }
    EXPECT_EQ(refused > 10, from_then_on) << refused;
  }
}

TEST_F(BatchingTest, ManyThreadsSubmitCancelAndRelease) {
  make("", 2);
  start();
  gate.set(false);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 64; ++t) {
    threads.emplace_back([&, t] {
      evn_error e = EVN_ERROR_INIT;
      for (int i = 0; i < 20; ++i) {
        evn_cancel cancel = nullptr;
        if (evn_cancel_create(&cancel, &e) != EVN_OK) ++wrong;
        evn_run_options o = EVN_RUN_OPTIONS_INIT;
        o.cancel = cancel;
        Sent sent{nullptr, {t % 8, i % 8, 3}, 1};
        if (submit(&sent, &o) != EVN_OK) ++wrong;
        if (i % 3 == 0) evn_cancel_request(cancel);
        if (i % 5 != 0) {
          bool done = false;
          evn_tensor out[2] = {};
          if (evn_request_wait(sent.request, kForever, &done, &e) != EVN_OK || !done) ++wrong;
          const evn_status status = evn_request_take(sent.request, out, 2, &e);
          if (status != EVN_OK && !(i % 3 == 0 && status == EVN_ERROR_CANCELLED)) ++wrong;
          if (status == EVN_OK && elements(out[1])[0] != 0.25f * static_cast<float>(4 * sent.ids[0] % 11) - 1) ++wrong;
          for (const evn_tensor x : out) evn_tensor_release(x);
        }
        evn_request_release(sent.request);
        evn_cancel_release(cancel);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST_F(BatchingTest, OptionsAreChecked) {
  evn_batching_options b = EVN_BATCHING_OPTIONS_INIT;
  const auto expect = [&](evn_status status, const char* text) {
    evn_session made = nullptr;
    EXPECT_EQ(load(text_model(), &b, &made), status) << error.message;
    EXPECT_NE(std::string(error.message).find(text), std::string::npos) << error.message;
    EXPECT_EQ(evn_session_release(made), EVN_OK);
    b = EVN_BATCHING_OPTIONS_INIT;
  };
  b.max_batch = 1;
  expect(EVN_ERROR_INVALID_ARGUMENT, "max_batch is 1");
  b.max_batch = 65537;
  expect(EVN_ERROR_INVALID_ARGUMENT, "max_batch is 65537");
  b.reserved = 1;
  expect(EVN_ERROR_INVALID_ARGUMENT, "reserved");
  b.struct_size = 3;
  expect(EVN_ERROR_INVALID_ARGUMENT, "struct_size");
  b.bucket_count = 1;
  expect(EVN_ERROR_INVALID_ARGUMENT, "buckets");
  const int64_t falling[] = {8, 8}, low[] = {0, 8};
  b.buckets = falling;
  b.bucket_count = 2;
  expect(EVN_ERROR_INVALID_ARGUMENT, "buckets need a mask");
  b.mask = "mask";
  b.buckets = falling;
  b.bucket_count = 2;
  expect(EVN_ERROR_INVALID_ARGUMENT, "rising");
  b.mask = "mask";
  b.buckets = low;
  b.bucket_count = 2;
  expect(EVN_ERROR_INVALID_ARGUMENT, "1 and more");
  b.mask = "masque";
  expect(EVN_ERROR_INVALID_ARGUMENT, "\"masque\"");
  expect(EVN_OK, "");
}

TEST_F(BatchingTest, OperatorsOfTheHostsAreRefused) {
  evn_batching_options b = EVN_BATCHING_OPTIONS_INIT;
  evn_session made = nullptr;
  EXPECT_EQ(load(gate_model(), &b, &made), EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(error.node, "gate");
  EXPECT_NE(std::string(error.message).find("of the host's"), std::string::npos) << error.message;
}

TEST_F(BatchingTest, TheConfigurationSaysItToo) {
  make("session: {batching: {max_batch: 3, mask: mask, buckets: [4]}}");
  ASSERT_OK(load(text_model(), nullptr, &session));
  ASSERT_OK(evn_session_release(session));
  evn_session made = nullptr;
  EXPECT_EQ(load(gate_model(), nullptr, &made), EVN_ERROR_INVALID_ARGUMENT);  // it has no input of that name
  EXPECT_NE(std::string(error.message).find("mask"), std::string::npos) << error.message;
  session = nullptr;
}

}  // namespace
}  // namespace evn::test::batching_test
