// Batching of requests: which are batched, what each is given, and that a member that fails or is stopped does not affect others.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "base/fault.h"
#include "base/os/os.h"
#include "tests/api/batching_fixture.h"

namespace evn::test::batching_test {
namespace {

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

// The batch fails, and its members run one after the other: the first of them is held while its run makes its plan.
struct LoneRunsTest : BatchingTest {
  std::atomic<bool> has_failed{false};
  Gate plans;

  void SetUp() override {
    logged = [&](const evn_log_record& record) {
      if (std::strcmp(record.event, "batching.failed") == 0) has_failed = true;
      if (std::strcmp(record.event, "plan.created") == 0 && has_failed) plans.pass();
    };
    BatchingTest::SetUp();
    start();
  }
  void TearDown() override {
    plans.set(false);
    BatchingTest::TearDown();
  }
};

TEST_F(LoneRunsTest, OthersAreStoppedWhileOneRuns) {
  plans.set(true);
  evn_cancel cancel = nullptr;
  ASSERT_OK(evn_cancel_create(&cancel, &error));
  evn_run_options first = EVN_RUN_OPTIONS_INIT, late = EVN_RUN_OPTIONS_INIT, cancelled = EVN_RUN_OPTIONS_INIT;
  first.deadline_ns = os::now_ns() + 500'000'000;  // its run is the first one
  late.deadline_ns = first.deadline_ns + 1;
  cancelled.cancel = cancel;
  std::vector<Sent> sent = {
      {nullptr, {1, 2, 3}, 1}, {nullptr, {0, 0, 7}, 1}, {nullptr, {3, 1, 7}, 1}, {nullptr, {5, 6, 7}, 1}, {nullptr, {4, 99, 6}, 1}};
  ASSERT_EQ(submit(&sent[0], &first), EVN_OK);
  ASSERT_EQ(submit(&sent[1], &late), EVN_OK);
  ASSERT_EQ(submit(&sent[2]), EVN_OK);
  ASSERT_EQ(submit(&sent[3], &cancelled), EVN_OK);
  ASSERT_EQ(submit(&sent[4]), EVN_OK);
  gate.set(false);
  plans.await_waiting(1);
  EXPECT_EQ(evn_cancel_request(cancel), EVN_OK);
  EXPECT_TRUE(request_test::ends(sent[1].request));
  EXPECT_TRUE(request_test::ends(sent[3].request));
  plans.set(false);
  const evn_status held_run = wait(sent[0]);
  EXPECT_TRUE(held_run == EVN_OK || held_run == EVN_ERROR_TIMEOUT) << error.message;
  EXPECT_EQ(wait(sent[1]), EVN_ERROR_TIMEOUT);
  expect_right(sent[2]);
  EXPECT_EQ(wait(sent[3]), EVN_ERROR_CANCELLED);
  EXPECT_EQ(wait(sent[4]), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_cancel_release(cancel), EVN_OK);
}

TEST_F(BatchingTest, OthersAreStoppedWhileTheCallbackOfOneBlocks) {
  start();
  evn_cancel cancel = nullptr;
  ASSERT_OK(evn_cancel_create(&cancel, &error));
  evn_run_options cancelled = EVN_RUN_OPTIONS_INIT;
  cancelled.cancel = cancel;
  request_test::Seen blocked;
  std::atomic<bool> begun{false}, end{false};
  blocked.then = [&](evn_request) {
    begun = true;
    while (!end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const evn_submit_options so = blocked.options();
  std::vector<Sent> sent = {{nullptr, {1, 2, 3}, 1}, {nullptr, {4, 5, 6}, 1}};
  ASSERT_EQ(submit(&sent[0], nullptr, &so), EVN_OK);
  ASSERT_EQ(submit(&sent[1], &cancelled), EVN_OK);
  gate.set(false);
  EXPECT_TRUE(eventually([&] { return begun.load(); }));
  EXPECT_EQ(evn_cancel_request(cancel), EVN_OK);
  EXPECT_TRUE(request_test::ends(sent[1].request));
  end = true;
  expect_right(sent[0]);
  EXPECT_EQ(wait(sent[1]), EVN_ERROR_CANCELLED);
  EXPECT_TRUE(eventually([&] { return blocked.released == 1; }));
  EXPECT_EQ(evn_cancel_release(cancel), EVN_OK);
}

// The test's own thread runs the task of the host. It goes on in the child to the end of the task.
TEST_F(BatchingTest, AChildOfTheCallbackOfAStoppedMemberTellsOfNoOtherMember) {
  make("", 1, true);
  evn_batching_options b = EVN_BATCHING_OPTIONS_INIT;
  ASSERT_OK(load(text_model(), &b, &session));
  evn_cancel cancel = nullptr;
  ASSERT_OK(evn_cancel_create(&cancel, &error));
  evn_run_options cancelled = EVN_RUN_OPTIONS_INIT;
  cancelled.cancel = cancel;
  pid_t child = -1;
  request_test::Seen members[4];
  members[0].then = [&](evn_request) {
    std::fflush(nullptr);
    child = fork();
    if (child == 0) alarm(120);
  };
  std::vector<Sent> sent = {{nullptr, {1, 2, 3}, 1}, {nullptr, {4, 5, 6}, 1}, {nullptr, {0, 0, 7}, 1}, {nullptr, {3, 1, 7}, 1}};
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const evn_submit_options so = members[i].options();
    ASSERT_EQ(submit(&sent[i], i % 2 == 0 ? &cancelled : nullptr, &so), EVN_OK);
  }
  EXPECT_EQ(evn_cancel_request(cancel), EVN_OK);
  EXPECT_TRUE(host.run_one());
  if (child == 0) _exit(members[1].done + members[2].done + members[3].done);
  ASSERT_GT(child, 0);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0) << "callbacks of other members in the child";
  for (const request_test::Seen& m : members) EXPECT_EQ(m.released, 1);
  for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(wait(sent[i]), i % 2 == 0 ? EVN_ERROR_CANCELLED : EVN_OK);
  while (host.run_one()) {}  // the tasks of the other members
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
