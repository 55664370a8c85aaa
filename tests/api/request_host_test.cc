// Requests as tasks of the host's executor: tasks that execute other requests than their own, tasks that are refused, and the time
// at which user data is taken back.
#include <atomic>
#include <thread>

#include "tests/api/request_fixture.h"

namespace evn::test::request_test {
namespace {

// Threads of the host, which run the tasks that its executor has taken.
class HostThreads {
 public:
  HostThreads(Host& host, int count) : host_(host) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        while (!stopped_) {
          if (!host_.run_one()) std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
      });
    }
  }
  // Runs the tasks that are left: each task holds memory until it has run.
  ~HostThreads() {
    stopped_ = true;
    for (std::thread& t : threads_) t.join();
    while (host_.run_one()) {}
  }
  HostThreads(const HostThreads&) = delete;
  HostThreads& operator=(const HostThreads&) = delete;

 private:
  Host& host_;
  std::atomic<bool> stopped_{false};
  std::vector<std::thread> threads_;
};

// The session executes one request at a time, and the task of the callback goes on while the other request is executed.
TEST_F(RequestTest, ACallbackInATaskMayWaitForAnotherRequestOfItsSession) {
  for (const Submitted when : {Submitted::kByTheCallback, Submitted::kDuringTheCallback, Submitted::kBeforeTheCallback}) {
    SCOPED_TRACE(testing::Message() << "order " << static_cast<int>(when));
    make(2, true, true, "", 1);
    const HostThreads threads(host, 2);
    expect_callback_may_wait(*this, when);
  }
}

// The task of the other request has ended before the callback begins: the library posts a further task.
TEST_F(RequestTest, ACallbackInATaskHasAnotherTaskPostedForARequestThatWaits) {
  make(2, true, true, "", 1);
  Seen seen;
  evn_request other = nullptr;
  std::atomic<bool> has_ended{false};
  seen.then = [&](evn_request) { has_ended = ends(other); };
  const evn_submit_options o = seen.options();
  gate.set(true);
  ASSERT_OK(submit(1, nullptr, &o));
  ASSERT_OK(submit(2, &other));
  std::thread first([&] { host.run_one(); });
  gate.await_waiting(1);
  EXPECT_TRUE(host.run_one());  // finds nothing that may be executed
  gate.set(false);
  EXPECT_TRUE(eventually([&] { return host.run_one() || seen.done == 1; }));
  first.join();
  EXPECT_TRUE(has_ended);
  EXPECT_EQ(result(other), -2);
  EXPECT_EQ(seen.released, 1);
  while (host.run_one()) {}
}

// The task of the first request executes the more urgent one, whose own task is refused afterwards.
TEST_F(RequestTest, ARefusedTaskWhoseRequestWasExecutedLeavesNoOtherRequestBehind) {
  make(2, true);
  std::pair<evn_task, void*> kept{};
  int posts = 0;
  host.takes = [&](evn_task task, void* context) -> evn_status {
    if (++posts == 1) {
      kept = {task, context};
      return EVN_OK;
    }
    if (posts == 2) std::thread(kept.first, kept.second, 0u).join();
    return EVN_ERROR_LIMIT;
  };
  evn_run_options urgent = EVN_RUN_OPTIONS_INIT;
  urgent.priority = 3;
  evn_request x = nullptr, y = nullptr;
  ASSERT_OK(submit(1, &y));
  ASSERT_OK(submit(2, &x, nullptr, &urgent));
  EXPECT_EQ(posts, 2);
  ASSERT_TRUE(ends(x));
  ASSERT_TRUE(ends(y));
  EXPECT_EQ(gate.all(), (std::vector<float>{2, 1}));
  EXPECT_EQ(result(x), -2);
  EXPECT_EQ(result(y), -1);
  EXPECT_OK(evn_session_finish(session, kPatienceNs, &error));
  session = nullptr;
}

// The executor runs each task on another thread before it returns.
TEST_F(RequestTest, UserDataIsTakenBackBeforeThePostOfItsRequestReturns) {
  make(2, true);
  Seen seen;
  int done_within = 0, released_within = 0;
  host.takes = [&](evn_task task, void* context) -> evn_status {
    std::thread(task, context, 0u).join();
    done_within = seen.done;
    released_within = seen.released;
    return EVN_OK;
  };
  evn_submit_options o = seen.options();
  ASSERT_OK(submit(1, nullptr, &o));
  EXPECT_EQ(done_within, 1);
  EXPECT_EQ(released_within, 1);
  EXPECT_EQ(seen.released, 1);
  evn_request request = nullptr;
  ASSERT_OK(submit(2, &request, &o));
  EXPECT_EQ(released_within, 2);
  EXPECT_EQ(result(request), -2);
  EXPECT_EQ(seen.released, 2);
  o.done = nullptr;  // so that the user data stays until the handle is released
  ASSERT_OK(submit(3, &request, &o));
  EXPECT_EQ(seen.released, 2);
  EXPECT_EQ(result(request), -3);
  EXPECT_EQ(seen.released, 3);
  EXPECT_EQ(seen.done, 2);
}

TEST_F(RequestTest, UserDataOfARefusedTaskStaysTheCallers) {
  make(2, true);
  Seen seen;
  evn_submit_options o = seen.options();
  host.takes = [](evn_task, void*) -> evn_status { return EVN_ERROR_LIMIT; };
  evn_request request = nullptr;
  EXPECT_EQ(submit(1, &request, &o), EVN_ERROR_LIMIT);
  EXPECT_EQ(submit(1, nullptr, &o), EVN_ERROR_LIMIT);
  o.done = nullptr;
  EXPECT_EQ(submit(1, &request, &o), EVN_ERROR_LIMIT);
  EXPECT_EQ(request, nullptr);
  EXPECT_OK(evn_session_finish(session, kPatienceNs, &error));
  session = nullptr;
  EXPECT_EQ(seen.done, 0);
  EXPECT_EQ(seen.released, 0);
}

// The task of the waiting request has ended without it: the reconfiguration has another task posted.
TEST_F(RequestTest, MoreConcurrencyHasATaskPostedForAWaitingRequest) {
  make(2, true, true, "session: {concurrency: 1}");
  gate.set(true);
  evn_request a = nullptr, b = nullptr;
  ASSERT_OK(submit(1, &a));
  ASSERT_OK(submit(2, &b));
  std::thread first([&] { host.run_one(); });
  gate.await_waiting(1);
  EXPECT_TRUE(host.run_one());  // finds nothing that may be executed
  set_configuration("session: {concurrency: 2}");
  bool has_task = false;
  std::thread second([&] { has_task = host.run_one(); });
  gate.await_waiting(2);
  gate.set(false);
  first.join();
  second.join();
  EXPECT_TRUE(has_task);
  EXPECT_EQ(result(a) + result(b), -3);
  while (host.run_one()) {}
}

}  // namespace
}  // namespace evn::test::request_test
