// The requests of a session: threads that wait for all of them, and the order in which they are executed.
#include "runtime/request/session_requests.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/request/request.h"
#include "tests/runtime/support.h"
#include "tests/support/eventually.h"

namespace evn::test::session_requests_test {
namespace {

constexpr std::uint64_t kMoment = 1'000'000;                // ns
constexpr std::uint64_t kLongWait = 20 * 1'000'000'000ull;  // ns

TEST(SessionRequests, AreNotAwaitedAnyMoreWhenAWaitHasTimedOut) {
  SessionRequests requests(0);
  EXPECT_FALSE(requests.are_awaited());
  requests.enter();
  EXPECT_FALSE(requests.wait_for_all(kMoment));
  EXPECT_FALSE(requests.are_awaited());
  requests.note_end();
  requests.leave(os::fork_generation());
  EXPECT_TRUE(requests.wait_for_all(kMoment));
  EXPECT_FALSE(requests.are_awaited());
}

TEST(SessionRequests, AreAwaitedAsLongAsOneOfSeveralThreadsWaits) {
  SessionRequests requests(0);
  requests.enter();
  std::thread waiter([&] { EXPECT_TRUE(requests.wait_for_all(kLongWait)); });
  EXPECT_TRUE(eventually([&] { return requests.are_awaited(); }));
  EXPECT_FALSE(requests.wait_for_all(kMoment));
  EXPECT_TRUE(requests.are_awaited());
  requests.note_end();
  requests.leave(os::fork_generation());
  waiter.join();
  EXPECT_FALSE(requests.are_awaited());
}

class TestRequest final : public Request {
 public:
  using Request::Request;

 private:
  void tell(const RequestPtr&) noexcept override {}
  bool calls_host() const noexcept override { return false; }
};

// The time is 1 s; deadlines and run times are in ms.
struct OrderOfRequests : RuntimeTest {
  static constexpr std::uint64_t kMs = 1'000'000, kNow = 1'000 * kMs;

  void SetUp() override {
    RuntimeTest::SetUp();
    OnnxWriter w(17);
    w.add_input("x", kF32, {"N"}).add_output("y").add_node("Neg", {"x"}, {"y"});
    session = make_session(load(make_runtime({}, 0, 1), w), SessionRequest(""));
  }
  // 0: no deadline. `elements`: of its input.
  RequestPtr push(std::uint64_t deadline_ms, std::int64_t elements = 4) {
    RunRequest run;
    run.stop.deadline_ns = deadline_ms != 0 ? kNow + deadline_ms * kMs : 0;
    std::vector<RunValue> inputs;
    inputs.push_back({to_tensor(session->runtime(), HostTensor({DType::kFloat32, {elements}})), nullptr});
    auto made = std::make_shared<TestRequest>(session, std::move(inputs), std::vector<RunValue>(1), run, nullptr);
    made->note_submission(kNow, ++number);
    requests.push(made);
    return made;
  }
  void add_run(const RequestPtr& of, std::uint64_t ms, bool completed = true) {
    requests.add_run_time(of->size_class(), ms * kMs, completed);
  }
  RequestPtr pop(bool prefer_feasible = true) { return requests.pop(kNow, prefer_feasible); }

  std::shared_ptr<Session> session;
  SessionRequests requests{0};
  std::uint64_t number = 0;
};

TEST_F(OrderOfRequests, ARequestThatIsExpectedToMissItsDeadlineStaysBehindThoseThatAreNot) {
  const RequestPtr open = push(0), late = push(5), later = push(6), in_time = push(20);
  add_run(late, 10);
  EXPECT_EQ(pop(), in_time);
  EXPECT_EQ(pop(), late);
  EXPECT_EQ(pop(), later);
  EXPECT_EQ(pop(), open);
}

TEST_F(OrderOfRequests, TheEarliestDeadlineComesFirstIfNothingElseEndsRequests) {
  const RequestPtr in_time = push(20), late = push(5);
  add_run(late, 10);
  EXPECT_EQ(pop(false), late);
  EXPECT_EQ(pop(false), in_time);
}

TEST_F(OrderOfRequests, RunsOfLargeRequestsSayNothingOfSmallOnes) {
  const RequestPtr small = push(5), large = push(200, 1000);
  add_run(large, 100);
  EXPECT_EQ(pop(), small);
  EXPECT_EQ(pop(), large);
}

TEST_F(OrderOfRequests, OneLongRunRaisesTheExpectationByAnEighth) {
  const RequestPtr first = push(12), second = push(100);
  add_run(first, 10);
  add_run(first, 100'000);  // 11.25 ms
  EXPECT_EQ(pop(), first);
  const RequestPtr third = push(11);
  EXPECT_EQ(pop(), second);
  add_run(third, 5, false);  // cut off: it would have taken longer
  const RequestPtr fourth = push(100);
  EXPECT_EQ(pop(), fourth);
  add_run(third, 5);
  push(100);
  EXPECT_EQ(pop(), third);
}

TEST_F(OrderOfRequests, TheFirstRunMayBeCutOff) {
  const RequestPtr late = push(5), in_time = push(20);
  add_run(late, 10, false);
  EXPECT_EQ(pop(), in_time);
}

TEST_F(OrderOfRequests, RequestsThatAreExpectedToMissTheirDeadlinesAreNotJoinedWithOthers) {
  const RequestPtr late = push(5), first = push(20), second = push(30), open = push(0);
  add_run(late, 10);
  ASSERT_EQ(pop(), first);
  std::vector<RequestPtr> members = {first};
  requests.join(first, 0, &members,
                [&](const RequestPtr& r) { return r == open ? SessionRequests::Wanted::kLeave : SessionRequests::Wanted::kTake; });
  EXPECT_EQ(members, (std::vector<RequestPtr>{first, second}));
  EXPECT_EQ(requests.waiting(), 2u);
}

}  // namespace
}  // namespace evn::test::session_requests_test
