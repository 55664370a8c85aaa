// What the pool of a device keeps, changed while it is in use, and arenas that sessions share.
#include "tests/api/support.h"

namespace evn::test::cache_policy_test {
namespace {

class CachePolicies : public ApiTest {
 protected:
  evn_memory_stats stats() {
    evn_memory_stats s = EVN_MEMORY_STATS_INIT;
    EXPECT_OK(evn_device_get_memory_stats(cpu, &s, &error));
    return s;
  }
  void run(evn_session with) {
    const evn_tensor x = input();
    evn_tensor y = nullptr;
    EXPECT_OK(evn_session_run(with, &x, 1, &y, 1, nullptr, &error));
    EXPECT_EQ(evn_tensor_release(x), EVN_OK);
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
  }
  // A block of the pool's that is free then.
  void use_and_free(int64_t floats) {
    evn_tensor t = nullptr;
    EXPECT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, &floats, 1, 0, &t, &error));
    EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  }
  evn_session with_arenas(evn_arenas arenas) {
    evn_session_options options = EVN_SESSION_OPTIONS_INIT;
    options.arenas = arenas;
    evn_session s = nullptr;
    EXPECT_OK(evn_session_create(runtime, model, &options, &s, &error));
    return s;
  }
};

TEST_F(CachePolicies, TheLimitHoldsFromNowOn) {
  EXPECT_EQ(stats().cache_limit, UINT64_MAX);
  EXPECT_EQ(stats().trim, EVN_TRIM_NEVER);
  use_and_free(100'000);
  const std::uint64_t kept = stats().cached;
  EXPECT_GE(kept, 400'000u);
  ASSERT_OK(evn_device_set_cache_policy(cpu, 100'000, EVN_TRIM_NEVER, &error));
  EXPECT_LE(stats().cached, 100'000u);  // at once
  EXPECT_EQ(stats().cache_limit, 100'000u);
  use_and_free(100'000);
  EXPECT_LE(stats().cached, 100'000u);
  ASSERT_OK(evn_device_set_cache_policy(cpu, 0, EVN_TRIM_NEVER, &error));
  use_and_free(1000);
  EXPECT_EQ(stats().cached, 0u);
  ASSERT_OK(evn_device_set_cache_policy(cpu, UINT64_MAX, EVN_TRIM_NEVER, &error));
  use_and_free(100'000);
  EXPECT_GE(stats().cached, 400'000u);
}

TEST_F(CachePolicies, TrimSaysWhenBlocksGoBack) {
  use_and_free(100'000);
  ASSERT_OK(evn_device_set_cache_policy(cpu, UINT64_MAX, EVN_TRIM_ALWAYS, &error));
  EXPECT_EQ(stats().trim, EVN_TRIM_ALWAYS);
  EXPECT_EQ(stats().cached, 0u);
  use_and_free(100'000);
  EXPECT_EQ(stats().cached, 0u);
  // The device was opened with another: what a run leaves goes when it is over, arenas included.
  ASSERT_OK(evn_device_set_cache_policy(cpu, UINT64_MAX, EVN_TRIM_NEVER, &error));
  run(session);
  EXPECT_GT(stats().by_class[EVN_MEMORY_ARENAS], 0u);
  ASSERT_OK(evn_device_set_cache_policy(cpu, UINT64_MAX, EVN_TRIM_IDLE, &error));
  run(session);
  EXPECT_EQ(stats().by_class[EVN_MEMORY_ARENAS], 0u);
}

TEST_F(CachePolicies, WhatIsNoPolicyIsRefused) {
  for (const evn_trim wrong : {-1, 3}) {
    EXPECT_EQ(evn_device_set_cache_policy(cpu, 0, wrong, &error), EVN_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(stats().cache_limit, UINT64_MAX);
  }
  EXPECT_EQ(evn_device_set_cache_policy(nullptr, 0, EVN_TRIM_NEVER, &error), EVN_ERROR_INVALID_HANDLE);
  size_t size = 0;
  EXPECT_EQ(evn_device_condition(nullptr, nullptr, 0, &size, &error), EVN_ERROR_INVALID_HANDLE);
  evn_session_options options = EVN_SESSION_OPTIONS_INIT;
  evn_session s = nullptr;
  for (const evn_arenas wrong : {-1, 3}) {
    options.arenas = wrong;
    EXPECT_EQ(evn_session_create(runtime, model, &options, &s, &error), EVN_ERROR_INVALID_ARGUMENT);
  }
  EXPECT_EQ(s, nullptr);
}

TEST_F(CachePolicies, SessionsThatShareArenasNeedThoseOfOne) {
  ASSERT_OK(evn_device_trim_memory(cpu, &error));
  const auto arenas_of_two = [&](evn_arenas arenas) {
    const evn_session first = with_arenas(arenas), second = with_arenas(arenas);
    run(first);
    const std::uint64_t one = stats().by_class[EVN_MEMORY_ARENAS];
    run(second);
    const std::uint64_t two = stats().by_class[EVN_MEMORY_ARENAS];
    EXPECT_EQ(evn_session_release(first), EVN_OK);
    EXPECT_EQ(evn_session_release(second), EVN_OK);
    EXPECT_OK(evn_device_trim_memory(cpu, &error));
    return std::pair(one, two);
  };
  const auto [own_one, own_two] = arenas_of_two(EVN_ARENAS_OWN);
  EXPECT_GT(own_one, 0u);
  EXPECT_EQ(own_two, 2 * own_one);
  const auto [default_one, default_two] = arenas_of_two(EVN_ARENAS_DEFAULT);
  EXPECT_EQ(default_two, 2 * default_one);
  const auto [shared_one, shared_two] = arenas_of_two(EVN_ARENAS_SHARED);
  EXPECT_GT(shared_one, 0u);
  EXPECT_EQ(shared_two, shared_one);
}

}  // namespace
}  // namespace evn::test::cache_policy_test
