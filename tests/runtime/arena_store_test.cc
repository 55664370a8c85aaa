#include "runtime/run/arena_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/runtime/support.h"

namespace evn::test {
namespace {

struct ArenaStoreTest : testing::Test {
  std::shared_ptr<Runtime> runtime = make_runtime(two_mocks());
  std::vector<Device*> devices = {&runtime->cpu(), runtime->find_device("m")};
  ArenaStore store{runtime->arenas(), 10'000};

  ArenaLease take(ArenaStore& from, std::vector<std::size_t> bytes) {
    const ArenaNeed need{devices, bytes};
    ArenaPtr freed, arena;
    {
      const std::lock_guard<std::mutex> lock(from.mutex());
      arena = from.take(need, &freed);
    }
    if (arena == nullptr) arena = from.make(need, std::move(freed));
    return {&from, std::move(arena)};
  }
  static void keep(ArenaStore& in, std::vector<ArenaLease*> leases) {
    const std::uint64_t run = in.begin_run();
    ArenaPtr dropped;
    {
      const std::lock_guard<std::mutex> lock(in.mutex());
      for (ArenaLease* lease : leases) in.keep(lease->release(), run, &dropped);
    }
    in.offer();
    ArenaStore::free_list(std::move(dropped));
  }
  // A run on the CPU.
  void run(std::size_t bytes) { run_in(store, bytes); }
  void run_in(ArenaStore& in, std::size_t bytes) {
    ArenaLease lease = take(in, {bytes, 0});
    keep(in, {&lease});
  }
};

TEST_F(ArenaStoreTest, TheSmallestThatFitsIsTaken) {
  run(1000);
  run(5000);
  run(600);
  EXPECT_EQ(store.stats().count, 2u) << "600 is within 1000";
  EXPECT_EQ(store.stats().reused, 1u);
  run(400);  // 1000 is too much
  EXPECT_EQ(store.stats().count, 3u);
  EXPECT_EQ(store.stats().idle_bytes, 6400u);
  EXPECT_EQ(store.stats().dropped, 0u);
}

TEST_F(ArenaStoreTest, ALargerOneTakesThePlaceOfOneWhoseRunsItServes) {
  run(1000);
  run(1800);
  EXPECT_EQ(store.stats().count, 1u);
  EXPECT_EQ(store.stats().dropped, 1u);
  run(2500);  // would be too much for a run of 1000
  EXPECT_EQ(store.stats().count, 2u);
  for (const std::size_t bytes : {1000, 1800, 2500}) run(bytes);
  EXPECT_EQ(store.stats().made, 3u);
}

TEST_F(ArenaStoreTest, ALeaseThatIsNotKeptIsFreed) {
  {
    const ArenaLease lease = take(store, {1000, 2000});
    EXPECT_EQ(store.stats().bytes, 3000u);
    EXPECT_EQ(store.stats().idle_bytes, 0u);
    EXPECT_NE(lease.memory_on(*devices[0]), nullptr);
    EXPECT_NE(lease.memory_on(*devices[1]), nullptr);
    EXPECT_NE(lease.memory_on(*devices[0]), lease.memory_on(*devices[1]));
  }
  EXPECT_EQ(store.stats().bytes, 0u);
  EXPECT_EQ(store.stats().count, 0u);
  EXPECT_EQ(store.stats().peak_bytes, 3000u);
  EXPECT_EQ(devices[1]->pool().stats().by_class[EVN_MEMORY_ARENAS], 0u);
}

TEST_F(ArenaStoreTest, AllDevicesMustHaveRoom) {
  ArenaLease both = take(store, {1000, 1000}), one = take(store, {2000, 0});
  keep(store, {&both});
  keep(store, {&one});
  ArenaLease lease = take(store, {600, 900});
  EXPECT_EQ(store.stats().reused, 1u);
  EXPECT_EQ(store.stats().idle_bytes, 2000u);
  const ArenaLease other = take(store, {10, 1500});  // neither
  EXPECT_EQ(store.stats().made, 3u);
  EXPECT_EQ(other.memory_on(*devices[0]) != nullptr, true);
}

TEST_F(ArenaStoreTest, OfOneRunAllAreKept) {
  run(100);
  ArenaLease a = take(store, {4000, 0}), b = take(store, {0, 5000}), c = take(store, {4000, 0});
  keep(store, {&a, &b, &c});
  EXPECT_EQ(store.stats().idle_bytes, 13000u) << "above the budget, as one run needs it";
  EXPECT_EQ(store.stats().dropped, 1u);
  run(100);
  EXPECT_EQ(store.stats().reused, 1u);
  EXPECT_LE(store.stats().idle_bytes, 10'000u);
}

TEST_F(ArenaStoreTest, DevicesGetBackWhatTheyAskForTheLeastRecentlyUsedFirst) {
  ArenaStore other{runtime->arenas(), 10'000};
  run(1000);
  run_in(other, 2000);
  run(5000);
  {
    ArenaLease on_m = take(other, {0, 3000});
    keep(other, {&on_m});
  }
  const ArenaLease live = take(store, {50, 0});
  EXPECT_TRUE(runtime->arenas()->reclaim(runtime->cpu().pool(), 1));
  EXPECT_EQ(store.stats().idle_bytes, 5000u);
  EXPECT_TRUE(runtime->arenas()->reclaim(runtime->cpu().pool(), 1));
  EXPECT_EQ(other.stats().idle_bytes, 3000u) << "what lies on the other device stays";
  EXPECT_TRUE(runtime->arenas()->reclaim(runtime->cpu().pool(), SIZE_MAX));
  EXPECT_EQ(store.stats().idle_bytes, 0u);
  EXPECT_FALSE(runtime->arenas()->reclaim(runtime->cpu().pool(), 1)) << "what is in use is not to be had";
  EXPECT_EQ(other.stats().idle_bytes, 3000u);
  EXPECT_EQ(store.stats().bytes, 50u);
}

TEST_F(ArenaStoreTest, TheLeastRecentlyUsedOnADeviceGoesFirstWhateverLiesOnOthers) {
  ArenaStore other{runtime->arenas(), 10'000};
  ArenaLease on_m = take(store, {0, 3000});
  keep(store, {&on_m});
  run_in(other, 2000);
  run(5000);
  EXPECT_TRUE(runtime->arenas()->reclaim(runtime->cpu().pool(), 1));
  EXPECT_EQ(other.stats().idle_bytes, 0u);
  EXPECT_EQ(store.stats().idle_bytes, 8000u);
}

TEST_F(ArenaStoreTest, ReclaimingLooksAtFewOfManyStores) {
  constexpr int kStores = 100;
  std::vector<std::unique_ptr<ArenaStore>> stores;
  for (int i = 0; i < kStores; ++i) stores.push_back(std::make_unique<ArenaStore>(runtime->arenas(), 10'000));
  for (const auto& s : stores) run_in(*s, 1000);
  Pool& pool = runtime->cpu().pool();
  const auto looks_of = [&](std::size_t bytes) {
    const std::uint64_t before = runtime->arenas()->looks();
    EXPECT_TRUE(runtime->arenas()->reclaim(pool, bytes));
    return runtime->arenas()->looks() - before;
  };
  EXPECT_LE(looks_of(1), 4u) << "the first store alone";
  EXPECT_EQ(stores[0]->stats().count, 0u);
  for (const int i : {1, 2, 3}) run_in(*stores[static_cast<std::size_t>(i)], 1000);
  EXPECT_LE(looks_of(1), 8u) << "those that have run since, and one";
  EXPECT_EQ(stores[4]->stats().count, 0u);
  EXPECT_LE(looks_of(SIZE_MAX), 4u * kStores);
  for (int i = 0; i < 10; ++i) {  // trim: idle
    run_in(*stores[static_cast<std::size_t>(i * 7)], 1000);
    EXPECT_LE(looks_of(SIZE_MAX), 4u);
  }
  for (auto& s : stores) s.reset();  // in the order in which they were made
  EXPECT_FALSE(runtime->arenas()->reclaim(pool, 1));
}

TEST_F(ArenaStoreTest, AStoreGivesBackItsOwnBeforeOthers) {
  ArenaStore other{runtime->arenas(), 10'000};
  run_in(other, 3000);
  run(4000);
  Pool& pool = runtime->cpu().pool();
  pool.set_limit(pool.stats().reserved + 500);
  run(7000);
  EXPECT_EQ(store.stats().idle_bytes, 7000u);
  EXPECT_EQ(other.stats().idle_bytes, 0u) << "4000 were not enough";
  run(4000);
  EXPECT_EQ(store.stats().made, 2u);
  run_in(other, 400);
  run(2000);
  EXPECT_EQ(store.stats().idle_bytes, 2000u) << "its own 7000 made room";
  EXPECT_EQ(other.stats().idle_bytes, 400u);
  pool.set_limit(UINT64_MAX);
}

// Sessions that are made alike.

OnnxWriter softmax_model() {
  OnnxWriter w;
  w.add_input("x", kF32, {"rows", 8}).add_output("y", kF32);
  return w.add_node("Softmax", {"x"}, {"v"}, {Attr("axis", 0)}).add_node("Softmax", {"v"}, {"y"}, {Attr("axis", 1)});
}

HostTensor rows_of(std::int64_t rows) {
  HostTensor t({DType::kFloat32, {rows, 8}});
  for (std::size_t i = 0; i < t.as<float>().size(); ++i) t.as<float>()[i] = static_cast<float>(i % 13);
  return t;
}

TEST(SharedSessions, ShareWhatIsCompiledWhereTheirOptionsAreEqual) {
  const auto runtime = make_runtime(two_mocks());
  const ModelPtr model = load(runtime, softmax_model());
  const TestSession a(model, "cpu");
  SessionRequest request("cpu");
  request.concurrency = 1;
  request.idle_arena_bytes = 5;
  const TestSession b(model, request);
  EXPECT_EQ(&a.compiled(), &b.compiled());
  request.disabled_passes = {"cascade"};
  EXPECT_NE(&a.compiled(), &TestSession(model, request).compiled());
  request.disabled_passes.clear();
  request.keep_fp32 = {"cascade"};
  EXPECT_NE(&a.compiled(), &TestSession(model, request).compiled());
  EXPECT_NE(&a.compiled(), &TestSession(model, "m").compiled());
  EXPECT_NE(&a.compiled(), &TestSession(load(runtime, softmax_model()), "cpu").compiled());
  CacheConfig cache;
  cache.file = testing::TempDir() + "evn_shared_sessions.evc";
  const TestSession c(model, "cpu", cache), d(model, "cpu", cache);
  EXPECT_NE(&a.compiled(), &c.compiled());
  EXPECT_EQ(&c.compiled(), &d.compiled());
  std::remove(cache.file.c_str());
}

TEST(SharedSessions, ManyShapesInSeveralSessionsComputeTheSame) {
  const auto runtime = make_runtime();
  const ModelPtr model = load(runtime, softmax_model());
  constexpr int kShapes = 20;  // more than are kept without being made over
  std::vector<HostTensor> wanted;
  for (int i = 0; i < kShapes; ++i) {
    TestSession alone(load(runtime, softmax_model()), "cpu");
    wanted.push_back(run(alone, {rows_of(i + 1)})[0]);
  }
  std::vector<std::shared_ptr<Session>> sessions;
  for (int i = 0; i < 3; ++i) sessions.push_back(make_session(model, "cpu"));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 60; ++i) {
        const int which = (i * (t + 3) + t) % kShapes;
        const HostTensor got = run(*sessions[static_cast<std::size_t>(t % 3)], {rows_of(which + 1)})[0];
        const HostTensor& w = wanted[static_cast<std::size_t>(which)];
        if (!(got.desc == w.desc) || std::memcmp(got.bytes.data(), w.bytes.data(), w.desc.size_bytes()) != 0) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace evn::test
