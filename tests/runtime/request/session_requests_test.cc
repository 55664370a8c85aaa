// The requests of a session: threads that wait for all of them.
#include "runtime/request/session_requests.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/request/request.h"
#include "tests/support/eventually.h"

namespace evn::test {
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

}  // namespace
}  // namespace evn::test
