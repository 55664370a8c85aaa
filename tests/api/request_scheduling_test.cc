// The order in which requests are executed, bounded queues, completion queues, and executors of the host's.
#include <poll.h>

#include <atomic>
#include <thread>

#include "api/barrier.h"
#include "api/objects.h"
#include "base/fault.h"
#include "tests/api/request_fixture.h"

namespace evn::test::request_test {
namespace {

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

// A thread takes the waiting request without another submission.
TEST_F(RequestTest, MoreConcurrencyHasAWaitingRequestTaken) {
  make(2, false, true, "session: {concurrency: 1}");
  gate.set(true);
  evn_request a = nullptr, b = nullptr;
  ASSERT_OK(submit(1, &a));
  gate.await_waiting(1);
  ASSERT_OK(submit(2, &b));
  const auto waiting = [&] { return SessionPin(session)->identity()->requests.waiting(); };
  EXPECT_EQ(waiting(), 1u);
  set_configuration("session: {concurrency: 2}");
  EXPECT_TRUE(eventually([&] { return waiting() == 0; }));
  bool done = true;
  EXPECT_OK(evn_request_wait(a, 0, &done, &error));
  EXPECT_FALSE(done);
  gate.set(false);
  EXPECT_EQ(result(a) + result(b), -3);
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

// The session executes one request at a time, so that a thread sleeps beside the request that waits.
TEST_F(RequestTest, ATimeoutEndsARequestThatAnIdleThreadMayNotExecute) {
  make(2, false, true, "", 1);
  const evn_session other = load();
  gate.set(true);
  evn_request both[2] = {};
  for (evn_request& r : both) ASSERT_OK(submit(3, &r, nullptr, nullptr, other));
  gate.await_waiting(2);  // so that both threads have started
  gate.set(false);
  for (const evn_request r : both) EXPECT_EQ(result(r), -3);
  gate.set(true);
  evn_request held = nullptr, timed = nullptr;
  ASSERT_OK(submit(1, &held));
  gate.await_waiting(1);
  evn_run_options o = EVN_RUN_OPTIONS_INIT;
  o.timeout_ns = 5'000'000;
  ASSERT_OK(submit(2, &timed, nullptr, &o));
  EXPECT_TRUE(ends(timed));
  bool done = true;
  EXPECT_OK(evn_request_wait(held, 0, &done, &error));
  EXPECT_FALSE(done);
  gate.set(false);
  EXPECT_EQ(outcome(timed), EVN_ERROR_TIMEOUT);
  EXPECT_EQ(result(held), -1);
  evn_session_release(other);
}

// The thread is idle when both requests are submitted, and takes the urgent one. The rounds differ in when the thread wakes up.
TEST_F(RequestTest, ATimeoutEndsARequestBesideAnotherThatTheIdleThreadHasTaken) {
  evn_run_options urgent = EVN_RUN_OPTIONS_INIT, late = EVN_RUN_OPTIONS_INIT;
  urgent.priority = 1;
  late.timeout_ns = 5'000'000;
  for (int round = 0; round < 20; ++round) {
    gate.set(true);
    evn_request held = nullptr, timed = nullptr;
    ASSERT_OK(submit(1, &held, nullptr, &urgent));
    ASSERT_OK(submit(2, &timed, nullptr, &late));
    const bool has_ended = ends(timed);
    gate.set(false);
    EXPECT_EQ(outcome(timed), EVN_ERROR_TIMEOUT);
    EXPECT_EQ(result(held), -1);
    ASSERT_TRUE(has_ended) << "round " << round;
  }
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

}  // namespace
}  // namespace evn::test::request_test
