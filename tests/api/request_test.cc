// Asynchronous runs: their outcome, their ends, callbacks, failures, and what callers do wrong.
#include <atomic>
#include <thread>

#include "base/fault.h"
#include "tests/api/request_fixture.h"

namespace evn::test::request_test {
namespace {

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
  EXPECT_OK(evn_request_wait(request, kForever, &done, &error));
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

// Others go on, though there is one thread for requests.
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

// The session executes one request at a time, and a request whose callback has begun is no longer one of them.
TEST_F(RequestTest, ACallbackMayWaitForAnotherRequestOfItsSession) {
  for (const int32_t threads : {1, 2}) {
    for (const Submitted when : {Submitted::kByTheCallback, Submitted::kDuringTheCallback, Submitted::kBeforeTheCallback}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, order " << static_cast<int>(when));
      make(threads, false, true, "", 1);
      expect_callback_may_wait(*this, when);
    }
  }
  make(2, false, true, "session: {concurrency: 1}");
  expect_callback_may_wait(*this, Submitted::kByTheCallback);
}

// The watcher finds requests that are stopped while they wait; their callbacks may block it no more than those of others.
TEST_F(RequestTest, ABlockedCallbackOfAStoppedRequestHoldsUpNobody) {
  gate.set(true);
  evn_request held = nullptr;
  ASSERT_OK(submit(1, &held));
  gate.await(1);
  Seen blocked, seen;
  std::atomic<bool> begun{false}, end{false};
  blocked.then = [&](evn_request) {
    begun = true;
    while (!end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  evn_cancel cancels[2] = {};
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(evn_cancel_create(&cancels[i], &error));
    evn_run_options options = EVN_RUN_OPTIONS_INIT;
    options.cancel = cancels[i];
    const evn_submit_options o = (i == 0 ? blocked : seen).options();
    ASSERT_OK(submit(2, nullptr, &o, &options));
  }
  EXPECT_OK(evn_cancel_request(cancels[0]));
  EXPECT_TRUE(eventually([&] { return begun.load(); }));
  EXPECT_OK(evn_cancel_request(cancels[1]));
  EXPECT_TRUE(eventually([&] { return seen.released == 1; }));
  EXPECT_EQ(blocked.done, 0);
  end = true;
  gate.set(false);
  EXPECT_EQ(result(held), -1);
  EXPECT_TRUE(eventually([&] { return blocked.released == 1; }));
  for (const evn_cancel cancel : cancels) EXPECT_EQ(evn_cancel_release(cancel), EVN_OK);
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
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  session = nullptr;
  runtime = nullptr;
  gate.set(false);
  EXPECT_TRUE(eventually([&] { return seen.released == 1; }));
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
