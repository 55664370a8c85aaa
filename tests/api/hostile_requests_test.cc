// Misuse of runs and requests that request_test.cc and misuse_run_test.cc do not have: releases in callbacks, deadlines at the
// edges, tokens of others. Nothing here depends on how long anything takes.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <vector>

#include "base/os/os.h"
#include "tests/api/held_runs.h"

namespace evn::test::held {
namespace {

bool full() {
  const char* const value = std::getenv("EVN_TEST_FULL");
  return value != nullptr && value[0] == '1';
}

template <typename Body>
void on_threads(int count, Body&& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& t : threads) t.join();
}

struct HostileRequests : HeldRuns {};

TEST_F(HostileRequests, M06_ASessionIsReleasedWhileEightThreadsUseIt) {
  for (int round = 0; round < 10; ++round) {
    const evn_session own = load(round % 2 == 0);
    std::atomic<int> begun{0}, told{0}, submitted{0};
    evn_submit_options o = EVN_SUBMIT_OPTIONS_INIT;
    o.user = &told;
    o.done = [](void* user, evn_request) { ++*static_cast<std::atomic<int>*>(user); };
    std::thread releaser([&] {
      EXPECT_TRUE(eventually([&] { return begun >= 8; }));
      EXPECT_EQ(evn_session_release(own), EVN_OK);
    });
    on_threads(8, [&](int i) {
      ++begun;
      for (evn_status status = EVN_OK; status == EVN_OK;) {
        if (i % 2 == 0) {
          status = run(own);
        } else {
          evn_request r = nullptr;
          status = submit(own, &r, &o);
          if (status == EVN_OK) {
            ++submitted;
            EXPECT_EQ(outcome(r), EVN_OK);
          }
        }
        EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_INVALID_HANDLE) << status;
      }
    });
    releaser.join();
    EXPECT_TRUE(eventually([&] { return told == submitted; }));
  }
}

TEST_F(HostileRequests, M07_OfTwoThreadsThatReleaseTheSameHandlesOneSucceedsForEach) {
  const int rounds = full() ? 40'000 : 2'000;  // all handles are held at a time, of the 262,144 that there can be
  std::vector<evn_request> requests(static_cast<std::size_t>(rounds));
  std::vector<evn_queue> queues(requests.size());
  std::vector<evn_cancel> tokens(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(submit(plain, &requests[i]), EVN_OK);
    ASSERT_OK(evn_queue_create(&queues[i], &error));
    ASSERT_OK(evn_cancel_create(&tokens[i], &error));
  }
  std::atomic<int> released{0}, refused{0};
  on_threads(2, [&](int) {
    const auto count = [&](evn_status status) {
      EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_INVALID_HANDLE) << status;
      ++(status == EVN_OK ? released : refused);
    };
    for (std::size_t i = 0; i < requests.size(); ++i) {
      count(evn_request_release(requests[i]));
      count(evn_queue_release(queues[i]));
      count(evn_cancel_release(tokens[i]));
    }
  });
  EXPECT_EQ(released, 3 * rounds);
  EXPECT_EQ(refused, 3 * rounds);
}

TEST_F(HostileRequests, M13_ACallbackRunsWaitsTakesAndSubmits) {
  make(1);  // one thread executes requests
  std::atomic<int> checks{0};
  Told inner, told;
  const evn_submit_options o = told.options(), inner_options = inner.options();
  told.then = [&](evn_request request) {
    evn_error e = EVN_ERROR_INIT;
    EXPECT_EQ(run(session), EVN_OK);
    bool done = false;
    EXPECT_EQ(evn_request_wait(request, kForever, &done, &e), EVN_OK);  // its own, which has ended
    EXPECT_TRUE(done);
    evn_tensor y = nullptr;
    EXPECT_EQ(evn_request_take(request, &y, 1, &e), EVN_OK);
    EXPECT_EQ(first_of(y), -1);
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
    EXPECT_EQ(evn_request_take(request, &y, 1, &e), EVN_ERROR_WRONG_STATE);
    EXPECT_EQ(submit(session, nullptr, &inner_options), EVN_OK);
    EXPECT_EQ(evn_session_finish(session, kForever, &e), EVN_ERROR_WRONG_STATE);
    ++checks;
  };
  for (int i = 0; i < 20; ++i) ASSERT_EQ(submit(session, nullptr, &o), EVN_OK);
  EXPECT_TRUE(eventually([&] { return inner.released == 20; }));
  EXPECT_EQ(checks, 20);
}

// One request's callback waits for another request, which the same thread would execute: a further thread comes.
TEST_F(HostileRequests, M13_ACallbackWaitsForAnotherRequest) {
  make(1);
  Told told;
  std::atomic<int> ended{0};
  told.then = [&](evn_request) {
    evn_request other = nullptr;
    EXPECT_EQ(submit(plain, &other), EVN_OK);
    EXPECT_EQ(outcome(other), EVN_OK);
    ++ended;
  };
  const evn_submit_options o = told.options();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(submit(session, nullptr, &o), EVN_OK);
  EXPECT_TRUE(eventually([&] { return told.released == 3; }));
  EXPECT_EQ(ended, 3);
}

// More runs than cores, all within an operator that runs another session: none waits for a core that the others have.
TEST_F(HostileRequests, M13_AnOperatorRunsAnotherSession) {
  std::atomic<int> inner{0};
  gate.then = [&] {
    EXPECT_EQ(run(plain), EVN_OK);
    evn_request r = nullptr;
    EXPECT_EQ(submit(plain, &r), EVN_OK);
    EXPECT_EQ(outcome(r), EVN_OK);
    ++inner;
  };
  gate.set(true);
  std::thread opener([&] {
    gate.await(2);
    gate.set(false);
  });
  on_threads(8, [&](int) { EXPECT_EQ(run(session), EVN_OK); });
  opener.join();
  EXPECT_EQ(inner, 8);
}

// What threads that end or jump out of a callback would leave: nothing is locked while one is in it.
TEST_F(HostileRequests, M14_NothingIsLockedWhileACallbackIsCalled) {
  make(1);
  std::atomic<bool> inside{false}, end{false};
  evn_queue queue = nullptr;
  ASSERT_OK(evn_queue_create(&queue, &error));
  Told told;
  told.then = [&](evn_request) {
    inside = true;
    EXPECT_TRUE(eventually([&] { return end.load(); }));
  };
  const evn_submit_options o = told.options(queue);
  evn_request first = nullptr, second = nullptr;
  ASSERT_EQ(submit(session, &first, &o), EVN_OK);
  EXPECT_TRUE(eventually([&] { return inside.load(); }));
  bool done = false;
  EXPECT_OK(evn_request_wait(first, kForever, &done, &error));
  EXPECT_TRUE(done);
  evn_request none = nullptr;
  EXPECT_OK(evn_queue_next(queue, 0, &none, &error));
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(run(session), EVN_OK);
  EXPECT_EQ(submit(session, &second), EVN_OK);
  EXPECT_EQ(outcome(second), EVN_OK);
  EXPECT_EQ(outcome(first), EVN_OK);
  const evn_session other = load(true);
  EXPECT_EQ(run(other), EVN_OK);
  EXPECT_EQ(evn_session_release(other), EVN_OK);
  EXPECT_EQ(evn_session_finish(session, 0, &error), EVN_ERROR_TIMEOUT);
  session = nullptr;
  end = true;
  EXPECT_TRUE(eventually([&] { return told.released == 1; }));
  EXPECT_EQ(evn_queue_release(queue), EVN_OK);
}

TEST_F(HostileRequests, M16_TwoThreadsWaitAndTakeAndOneGetsTheOutputs) {
  const int rounds = full() ? 10'000 : 200;
  for (int i = 0; i < rounds; ++i) {
    evn_request r = nullptr;
    ASSERT_EQ(submit(plain, &r), EVN_OK);
    std::atomic<int> got{0}, late{0};
    on_threads(2, [&](int) {
      evn_error e = EVN_ERROR_INIT;
      bool done = false;
      for (int twice = 0; twice < 2; ++twice) EXPECT_EQ(evn_request_wait(r, kForever, &done, &e), EVN_OK);
      EXPECT_TRUE(done);
      evn_tensor y = nullptr;
      const evn_status status = evn_request_take(r, &y, 1, &e);
      if (status == EVN_OK) {
        EXPECT_EQ(first_of(y), -1);
      }
      ++(status == EVN_OK ? got : late);
      EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_WRONG_STATE) << status;
      EXPECT_EQ(evn_tensor_release(y), EVN_OK);
    });
    EXPECT_EQ(got, 1);
    EXPECT_EQ(late, 1);
    EXPECT_EQ(evn_request_release(r), EVN_OK);
  }
}

TEST_F(HostileRequests, M16_CancellingAfterTheEndChangesNothing) {
  evn_cancel token = nullptr;
  ASSERT_OK(evn_cancel_create(&token, &error));
  evn_run_options o = EVN_RUN_OPTIONS_INIT;
  o.cancel = token;
  EXPECT_EQ(run(plain, &o), EVN_OK);
  evn_request r = nullptr;
  ASSERT_EQ(submit(plain, &r, nullptr, &o), EVN_OK);
  bool done = false;
  EXPECT_OK(evn_request_wait(r, kForever, &done, &error));
  EXPECT_EQ(evn_cancel_request(token), EVN_OK);
  EXPECT_EQ(evn_cancel_request(token), EVN_OK);
  EXPECT_EQ(outcome(r), EVN_OK);
  EXPECT_EQ(run(plain, &o), EVN_ERROR_CANCELLED);  // what begins now does not
  ASSERT_EQ(submit(plain, &r, nullptr, &o), EVN_OK);
  EXPECT_EQ(outcome(r), EVN_ERROR_CANCELLED);
  EXPECT_EQ(evn_cancel_release(token), EVN_OK);
  EXPECT_EQ(run(plain, &o), EVN_ERROR_INVALID_HANDLE);  // and a token that is gone is none
  EXPECT_EQ(submit(plain, &r, nullptr, &o), EVN_ERROR_INVALID_HANDLE);
}

TEST_F(HostileRequests, M18_AHundredThreadsMakeAndReleaseRuntimes) {
  const int rounds = full() ? 50 : 2;
  const std::string bytes = small_network().serialize();
  std::atomic<int> made{0}, ended{0};
  on_threads(100, [&](int i) {
    for (int round = 0; round < rounds; ++round) {
      evn_error error = EVN_ERROR_INIT;
      evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
      options.cache_dir = "";
      options.thread_count = 1 + i % 2;
      options.ended = [](void* user) { ++*static_cast<std::atomic<int>*>(user); };
      options.ended_user = &ended;
      evn_runtime own = nullptr;
      EXPECT_OK(evn_runtime_create(&options, &own, &error));
      ++made;
      evn_model model = nullptr;
      evn_session s = nullptr;
      EXPECT_OK(evn_model_load_buffer(own, bytes.data(), bytes.size(), nullptr, &model, &error));
      if (i % 3 == 0) {
        EXPECT_EQ(evn_runtime_release(own), EVN_OK);
      }
      if (i % 3 != 0) {
        EXPECT_OK(evn_session_create(own, model, nullptr, &s, &error));
      }
      EXPECT_EQ(evn_model_release(model), EVN_OK);
      EXPECT_EQ(evn_session_release(s), EVN_OK);
      EXPECT_EQ(evn_runtime_release(own), i % 3 == 0 ? EVN_ERROR_INVALID_HANDLE : EVN_OK);
    }
  });
  EXPECT_EQ(made, 100 * rounds);
  EXPECT_TRUE(eventually([&] { return ended == made; }));
}

evn_cancel g_token = nullptr;
std::atomic<int> g_asked{0};

TEST_F(HostileRequests, M19_AHandlerOfASignalCancelsARequest) {
  g_asked = 0;
  gate.set(true);
  ASSERT_OK(evn_cancel_create(&g_token, &error));
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { g_asked += evn_cancel_request(g_token) == EVN_OK ? 1 : 0; };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  evn_run_options o = EVN_RUN_OPTIONS_INIT;
  o.cancel = g_token;
  evn_request running = nullptr, waiting = nullptr;
  ASSERT_EQ(submit(session, &running, nullptr, &o), EVN_OK);
  gate.await(1);
  ASSERT_EQ(submit(session, &waiting, nullptr, &o), EVN_OK);
  EXPECT_EQ(raise(SIGUSR1), 0);
  EXPECT_EQ(g_asked, 1);
  gate.set(false);
  EXPECT_EQ(outcome(running), EVN_ERROR_CANCELLED);
  EXPECT_EQ(outcome(waiting), EVN_ERROR_CANCELLED);
  EXPECT_EQ(evn_cancel_release(g_token), EVN_OK);
  EXPECT_EQ(raise(SIGUSR1), 0);  // a handle that is gone
  EXPECT_EQ(g_asked, 1);
  sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(HostileRequests, M20_DeadlinesOfNothingOfThePastAndOfNever) {
  struct Row {
    uint64_t timeout_ns, deadline_ns;
    evn_status expected;
  };
  const uint64_t now = os::now_ns();
  const Row rows[] = {
      {0, 0, EVN_OK},
      {UINT64_MAX, 0, EVN_OK},
      {0, UINT64_MAX, EVN_OK},
      {UINT64_MAX, UINT64_MAX, EVN_OK},
      {UINT64_MAX - 1, now + 3'600'000'000'000, EVN_OK},
      {INT64_MAX, 0, EVN_OK},
      {0, uint64_t{1} << 63, EVN_OK},
      {0, 1, EVN_ERROR_TIMEOUT},
      {0, now, EVN_ERROR_TIMEOUT},
      {UINT64_MAX, 1, EVN_ERROR_TIMEOUT},
      {1, 0, EVN_ERROR_TIMEOUT},
      {1, UINT64_MAX, EVN_ERROR_TIMEOUT},
  };
  for (const Row& row : rows) {
    evn_run_options o = EVN_RUN_OPTIONS_INIT;
    o.timeout_ns = row.timeout_ns;
    o.deadline_ns = row.deadline_ns;
    EXPECT_EQ(run(plain, &o), row.expected) << row.timeout_ns << " " << row.deadline_ns;
    evn_request r = nullptr;
    ASSERT_EQ(submit(plain, &r, nullptr, &o), EVN_OK);
    EXPECT_EQ(outcome(r), row.expected) << row.timeout_ns << " " << row.deadline_ns;
  }
  evn_request r = nullptr;
  ASSERT_EQ(submit(plain, &r), EVN_OK);
  bool done = false;
  for (const uint64_t timeout : {uint64_t{UINT64_MAX}, uint64_t{UINT64_MAX - 1}, uint64_t{0}, uint64_t{1}}) {
    EXPECT_OK(evn_request_wait(r, timeout, &done, &error));
    EXPECT_TRUE(done);
  }
  EXPECT_EQ(outcome(r), EVN_OK);
}

TEST_F(HostileRequests, SixtyFourThreadsCreateSubmitCancelAndRelease) {
  const int rounds = full() ? 10'000 : 50;
  std::atomic<int> submitted{0}, told{0}, released{0};
  struct Counts {
    std::atomic<int>* told;
    std::atomic<int>* released;
  } counts{&told, &released};
  on_threads(64, [&](int t) {
    evn_error error = EVN_ERROR_INIT;
    for (int i = 0; i < rounds; ++i) {
      evn_cancel token = nullptr;
      evn_queue queue = nullptr;
      EXPECT_OK(evn_cancel_create(&token, &error));
      EXPECT_OK(evn_queue_create(&queue, &error));
      evn_run_options o = EVN_RUN_OPTIONS_INIT;
      o.cancel = token;
      o.priority = (t + i) % 15 - 7;
      if (i % 7 == 0) o.deadline_ns = 1;
      evn_submit_options s = EVN_SUBMIT_OPTIONS_INIT;
      s.user = &counts;
      s.done = [](void* user, evn_request) { ++*static_cast<Counts*>(user)->told; };
      s.release = [](void* user) { ++*static_cast<Counts*>(user)->released; };
      if (i % 3 == 0) s.queue = queue;
      evn_request r = nullptr;
      const bool keeps = i % 2 == 0;
      const evn_session to = i % 5 == 0 ? session : plain;
      EXPECT_OK(evn_session_submit(to, &x, 1, nullptr, 1, &o, &s, keeps ? &r : nullptr, &error));
      ++submitted;
      if (i % 4 == 1) {
        EXPECT_EQ(evn_cancel_request(token), EVN_OK);
      }
      if (keeps && i % 3 == 0) {
        const evn_status status = outcome(r);
        EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_CANCELLED || status == EVN_ERROR_TIMEOUT) << status;
      } else {
        EXPECT_EQ(evn_request_release(r), EVN_OK);
      }
      EXPECT_EQ(evn_queue_release(queue), EVN_OK);
      EXPECT_EQ(evn_cancel_release(token), EVN_OK);
    }
  });
  EXPECT_OK(evn_session_finish(session, kForever, &error));
  EXPECT_OK(evn_session_finish(plain, kForever, &error));
  session = plain = nullptr;
  EXPECT_EQ(submitted, 64 * rounds);
  EXPECT_EQ(told, 64 * rounds);
  EXPECT_EQ(released, 64 * rounds);
}

}  // namespace
}  // namespace evn::test::held
