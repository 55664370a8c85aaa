// What a session keeps for runs to come: how much, for which shapes, and when it gives it back.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/fault.h"
#include "tests/api/opencl_support.h"

namespace evn::test::session_memory_test {
namespace {

// Softmax over and over: rows of eight, of which the intermediate values lie in an arena.
std::string rows_model(int nodes = 3) {
  OnnxWriter w(17);
  w.add_input("x", kF32, {"rows", 8}).add_output("y", kF32);
  for (int i = 0; i < nodes; ++i) {
    w.add_node("Softmax", {i == 0 ? "x" : "v" + std::to_string(i)}, {i + 1 == nodes ? "y" : "v" + std::to_string(i + 1)},
               {Attr("axis", i % 2)});
  }
  return w.serialize();
}

// A Loop of three turns, whose body has an intermediate value of its own.
std::string loop_model() {
  OnnxWriter body;
  body.add_input("i", kI64, {}).add_input("go", kBool, {}).add_input("v", kF32, {"rows", 8});
  body.add_output("more", kBool).add_output("w", kF32);
  body.add_node("Softmax", {"v"}, {"s"}, {Attr("axis", 0)}).add_node("Softmax", {"s"}, {"w"}, {Attr("axis", 1)});
  body.add_node("Identity", {"go"}, {"more"});
  OnnxWriter w(17);
  w.add_input("x", kF32, {"rows", 8}).add_output("y", kF32).add_initializer("n", {}, std::vector<std::int64_t>{3});
  w.add_node("Softmax", {"x"}, {"a"}, {Attr("axis", 0)}).add_node("Softmax", {"a"}, {"b"}, {Attr("axis", 1)});
  return w.add_node("Loop", {"n", "", "b"}, {"y"}, {Attr::graph("body", body.graph())}).serialize();
}

struct SessionMemory : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  evn_device cpu = nullptr;

  void SetUp() override {
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 2;
    ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
    ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
  }
  void TearDown() override {
    EXPECT_EQ(evn_device_release(cpu), EVN_OK);
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  }
  evn_model load(const std::string& bytes) {
    evn_model model = nullptr;
    EXPECT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    return model;
  }
  evn_session make(evn_model model, std::uint64_t budget = 0) {
    evn_session session = nullptr;
    evn_session_options options = EVN_SESSION_OPTIONS_INIT;
    options.idle_arena_bytes = budget;
    EXPECT_OK(evn_session_create(runtime, model, &options, &session, &error));
    return session;
  }
  evn_session make_of(const std::string& bytes, std::uint64_t budget = 0) {
    const evn_model model = load(bytes);
    const evn_session session = make(model, budget);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    return session;
  }
  // Tensors of the caller's for a run. May be used from any thread.
  struct Tensors {
    std::vector<float> x, y;
    evn_tensor in = nullptr, out = nullptr;

    Tensors(evn_runtime of, std::int64_t rows) : x(ramp(static_cast<std::size_t>(rows) * 8)), y(x.size()) {
      for (float& v : x) v /= static_cast<float>(x.size());
      const std::int64_t dims[] = {rows, 8};
      evn_error e = EVN_ERROR_INIT;
      EXPECT_EQ(evn_tensor_wrap(of, x.data(), x.size() * 4, EVN_DTYPE_FLOAT32, dims, 2, nullptr, nullptr, &in, &e), EVN_OK);
      EXPECT_EQ(evn_tensor_wrap(of, y.data(), y.size() * 4, EVN_DTYPE_FLOAT32, dims, 2, nullptr, nullptr, &out, &e), EVN_OK);
    }
    Tensors(const Tensors&) = delete;
    Tensors& operator=(const Tensors&) = delete;
    ~Tensors() {
      EXPECT_EQ(evn_tensor_release(in), EVN_OK);
      EXPECT_EQ(evn_tensor_release(out), EVN_OK);
    }
    evn_status run(evn_session session) {
      evn_error e = EVN_ERROR_INIT;
      return evn_session_run(session, &in, 1, &out, 1, nullptr, &e);
    }
  };
  evn_status run(evn_session session, std::int64_t rows, std::vector<float>* result = nullptr) const {
    Tensors t(runtime, rows);
    const evn_status status = t.run(session);
    if (result != nullptr) *result = t.y;
    return status;
  }
  evn_session_memory_stats stats(evn_session session) {
    evn_session_memory_stats s = EVN_SESSION_MEMORY_STATS_INIT;
    EXPECT_OK(evn_session_get_memory_stats(session, &s, &error));
    EXPECT_LE(s.idle_arena_bytes, s.arena_bytes);
    EXPECT_LE(s.arena_bytes, s.peak_arena_bytes);
    return s;
  }
  evn_memory_stats device_stats() {
    evn_memory_stats s = EVN_MEMORY_STATS_INIT;
    EXPECT_OK(evn_device_get_memory_stats(cpu, &s, &error));
    return s;
  }
  // What a run with so many rows takes.
  std::uint64_t need(std::int64_t rows) {
    const evn_session session = make_of(rows_model());
    EXPECT_EQ(run(session, rows), EVN_OK);
    const std::uint64_t bytes = stats(session).idle_arena_bytes;
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    return bytes;
  }
};

// Two values of the beginning are read again at the end.
std::string held_model(int nodes) {
  OnnxWriter w(17);
  w.add_input("x", kF32, {"rows", 8}).add_output("y", kF32);
  w.add_node("Softmax", {"x"}, {"other"}, {Attr("axis", 1)});
  for (int i = 0; i <= nodes; ++i)
    w.add_node("Softmax", {i == 0 ? "x" : "v" + std::to_string(i - 1)}, {"v" + std::to_string(i)}, {Attr("axis", i % 2)});
  w.add_node("Mul", {"v" + std::to_string(nodes), "v0"}, {"product"});
  return w.add_node("Mul", {"product", "other"}, {"y"}).serialize();
}

TEST_F(SessionMemory, ValuesAboveALimitAreComputedAgain) {
  constexpr std::int64_t kRows = 1000;
  const auto make_limited = [&](std::uint64_t limit) {
    const evn_model model = load(held_model(8));
    evn_session_options options = EVN_SESSION_OPTIONS_INIT;
    options.arena_limit = limit;
    evn_session session = nullptr;
    EXPECT_OK(evn_session_create(runtime, model, &options, &session, &error));
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    return session;
  };
  std::vector<float> expected, y;
  const evn_session free = make_limited(0);
  ASSERT_EQ(run(free, kRows, &expected), EVN_OK);
  const std::uint64_t unlimited = stats(free).peak_arena_bytes, limit = unlimited - kRows * 8 * 4;
  const evn_session limited = make_limited(limit);
  ASSERT_EQ(run(limited, kRows, &y), EVN_OK);
  EXPECT_EQ(y, expected);
  EXPECT_GT(unlimited, limit);
  EXPECT_LE(stats(limited).peak_arena_bytes, limit);
  const evn_session too_little = make_limited(1000);
  EXPECT_EQ(run(too_little, kRows), EVN_ERROR_LIMIT);
  EXPECT_EQ(run(too_little, 1), EVN_OK) << "a smaller run fits";
  for (const evn_session session : {free, limited, too_little}) EXPECT_EQ(evn_session_release(session), EVN_OK);
}

TEST_F(SessionMemory, ASecondRunFindsWhatTheFirstOneLeft) {
  const evn_session session = make_of(rows_model());
  evn_session_memory_stats s = stats(session);
  EXPECT_EQ(s.arena_bytes + s.arena_count + s.arenas_made + s.plan_count + s.plan_bytes + s.state_bytes, 0u);
  ASSERT_EQ(run(session, 100), EVN_OK);
  s = stats(session);
  EXPECT_GE(s.arena_bytes, 100u * 8 * 4);
  EXPECT_EQ(s.arena_bytes, s.idle_arena_bytes);
  EXPECT_EQ(s.arena_bytes, s.peak_arena_bytes);
  EXPECT_EQ(s.arena_bytes, device_stats().by_class[EVN_MEMORY_ARENAS]);
  EXPECT_EQ(s.arena_count, 1u);
  EXPECT_EQ(s.arenas_made, 1u);
  EXPECT_EQ(s.arenas_reused, 0u);
  EXPECT_EQ(s.plan_count, 1u);
  EXPECT_GT(s.plan_bytes, 0u);
  ASSERT_EQ(run(session, 100), EVN_OK);
  s = stats(session);
  EXPECT_EQ(s.arena_count, 1u);
  EXPECT_EQ(s.arenas_made, 1u);
  EXPECT_EQ(s.arenas_reused, 1u);
  EXPECT_EQ(s.arenas_dropped, 0u);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(device_stats().by_class[EVN_MEMORY_ARENAS], 0u);
}

TEST_F(SessionMemory, ShapesOfLikeSizesShareAnArenaAndComputeWhatTheyDoAlone) {
  const evn_session session = make_of(rows_model());
  const std::int64_t all[] = {100, 130, 190, 110};
  std::vector<std::vector<float>> wanted;
  for (const std::int64_t rows : all) {
    const evn_session alone = make_of(rows_model());
    ASSERT_EQ(run(alone, rows, &wanted.emplace_back()), EVN_OK);
    EXPECT_EQ(evn_session_release(alone), EVN_OK);
  }
  for (const std::int64_t rows : all) ASSERT_EQ(run(session, rows), EVN_OK);
  const evn_session_memory_stats before = stats(session);
  EXPECT_EQ(before.arena_count, 1u) << "larger ones take the place of smaller ones";
  EXPECT_EQ(before.arenas_made, 3u);
  EXPECT_EQ(before.arenas_dropped, 2u);
  EXPECT_EQ(before.idle_arena_bytes, need(190));
  const std::uint64_t allocations = device_stats().allocations;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < std::size(all); ++i) {
      std::vector<float> got;
      ASSERT_EQ(run(session, all[i], &got), EVN_OK);
      EXPECT_EQ(got, wanted[i]);
    }
  }
  const evn_session_memory_stats after = stats(session);
  EXPECT_EQ(after.arenas_made, before.arenas_made);
  EXPECT_EQ(after.arenas_reused, before.arenas_reused + 12);
  EXPECT_EQ(device_stats().allocations, allocations) << "runs of known shapes took memory of the pool";
  EXPECT_EQ(evn_session_release(session), EVN_OK);
}

TEST_F(SessionMemory, ASmallRunLeavesALargeArenaToOthers) {
  const evn_session session = make_of(rows_model());
  ASSERT_EQ(run(session, 1000), EVN_OK);
  ASSERT_EQ(run(session, 10), EVN_OK);
  EXPECT_EQ(stats(session).arena_count, 2u);
  EXPECT_EQ(stats(session).idle_arena_bytes, need(1000) + need(10));
  EXPECT_EQ(evn_session_release(session), EVN_OK);
}

// Sizes that share nothing, of which two fit the budget.
TEST_F(SessionMemory, TheLeastRecentlyUsedIsDroppedFirst) {
  const std::uint64_t small = need(10), middle = need(100), large = need(1000);
  const std::uint64_t budget = large + middle + small / 2;
  for (const bool again : {false, true}) {
    const evn_session session = make_of(rows_model(), budget);
    ASSERT_EQ(run(session, 10), EVN_OK);
    ASSERT_EQ(run(session, 100), EVN_OK);
    ASSERT_EQ(run(session, again ? 10 : 100), EVN_OK);
    ASSERT_EQ(run(session, 1000), EVN_OK);
    const evn_session_memory_stats s = stats(session);
    EXPECT_EQ(s.arenas_dropped, 1u);
    EXPECT_EQ(s.arena_count, 2u);
    EXPECT_EQ(s.idle_arena_bytes, large + (again ? small : middle));
    EXPECT_EQ(evn_session_release(session), EVN_OK);
  }
}

TEST_F(SessionMemory, WhatOneRunNeedsIsKeptWhateverTheBudget) {
  const evn_session session = make_of(rows_model(), 1);
  for (const std::int64_t rows : {10, 1000, 1000}) {
    ASSERT_EQ(run(session, rows), EVN_OK);
    EXPECT_EQ(stats(session).arena_count, 1u);
    EXPECT_EQ(stats(session).idle_arena_bytes, need(rows));
  }
  EXPECT_EQ(stats(session).arenas_reused, 1u);
  ASSERT_EQ(run(session, 10), EVN_OK);
  EXPECT_EQ(stats(session).arenas_reused, 2u) << "where the budget has no room for another, a large one does";
  EXPECT_EQ(evn_session_release(session), EVN_OK);
}

TEST_F(SessionMemory, BodiesHaveTheirSessionsBudget) {
  const evn_session session = make_of(loop_model(), 1);
  ASSERT_EQ(run(session, 100), EVN_OK);
  const evn_session_memory_stats first = stats(session);
  EXPECT_GE(first.arena_count, 2u) << "of the model and of the body, which one run needs";
  EXPECT_GE(first.plan_count, 3u);
  EXPECT_EQ(first.arenas_dropped, 0u);
  const std::uint64_t allocations = device_stats().allocations;
  ASSERT_EQ(run(session, 100), EVN_OK);
  const evn_session_memory_stats second = stats(session);
  EXPECT_EQ(second.arenas_made, first.arenas_made);
  EXPECT_EQ(second.plan_count, first.plan_count);
  EXPECT_GT(device_stats().allocations, allocations) << "a Loop makes values";
  ASSERT_EQ(run(session, 1000), EVN_OK);
  EXPECT_EQ(stats(session).arena_count, first.arena_count) << "the smaller ones are gone";
  EXPECT_EQ(evn_session_release(session), EVN_OK);
}

TEST_F(SessionMemory, ThreadsWithMixedShapesStayWithinTheBudget) {
  const std::int64_t shapes[] = {8, 40, 200, 1000, 3000};
  std::vector<std::vector<float>> wanted(std::size(shapes));
  const evn_session alone = make_of(rows_model());
  for (std::size_t i = 0; i < std::size(shapes); ++i) ASSERT_EQ(run(alone, shapes[i], &wanted[i]), EVN_OK);
  EXPECT_EQ(evn_session_release(alone), EVN_OK);
  const std::uint64_t budget = need(3000) + need(200);
  const evn_session session = make_of(rows_model(), budget);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 40; ++i) {
        const std::size_t which = (i * (t + 1) + t) % std::size(shapes);
        std::vector<float> got;
        if (run(session, shapes[which], &got) != EVN_OK || got != wanted[which]) ++wrong;
        evn_session_memory_stats s = EVN_SESSION_MEMORY_STATS_INIT;
        evn_error e = EVN_ERROR_INIT;
        if (evn_session_get_memory_stats(session, &s, &e) != EVN_OK || s.idle_arena_bytes > budget) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  const evn_session_memory_stats s = stats(session);
  EXPECT_EQ(s.arena_bytes, s.idle_arena_bytes);
  EXPECT_EQ(s.arenas_made + s.arenas_reused, 320u);
  EXPECT_EQ(s.arena_count, s.arenas_made - s.arenas_dropped);
  EXPECT_EQ(s.arena_bytes, device_stats().by_class[EVN_MEMORY_ARENAS]);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
}

TEST_F(SessionMemory, ACapHasRoomForAnyShapeThatFitsAlone) {
  const evn_session first = make_of(rows_model()), second = make_of(rows_model());
  const std::int64_t shapes[] = {20000, 500, 9000, 2500, 20000};
  const std::uint64_t most = need(20000);
  EXPECT_OK(evn_device_trim_memory(cpu, &error));
  constexpr std::uint64_t kPlans = 256 << 10;  // of the shapes to come
  const std::uint64_t limit = device_stats().reserved + kPlans + most * 5 / 4;
  ASSERT_OK(evn_device_set_memory_limit(cpu, limit, &error));
  EXPECT_EQ(device_stats().limit, limit);
  for (int round = 0; round < 2; ++round) {
    for (const std::int64_t rows : shapes) {
      EXPECT_EQ(run(first, rows), EVN_OK) << rows;
      EXPECT_EQ(run(second, rows), EVN_OK) << rows << ": the other session has memory that it does not use";
      EXPECT_LE(device_stats().reserved, limit);
    }
  }
  EXPECT_GT(stats(first).arenas_dropped, 0u);
  EXPECT_EQ(run(first, 60000), EVN_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(stats(first).arena_bytes + stats(second).arena_bytes, 0u) << "all was given back before a run was refused";
  EXPECT_EQ(run(first, 20000), EVN_OK);
  // Tensors of the caller's have what runs do not need.
  const std::int64_t dims[] = {20000, 8};
  evn_tensor tensor = nullptr;
  EXPECT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 2, 0, &tensor, &error));
  EXPECT_EQ(run(first, 20000), EVN_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(evn_tensor_release(tensor), EVN_OK);
  EXPECT_EQ(run(first, 20000), EVN_OK);
  for (const evn_session s : {first, second}) EXPECT_EQ(evn_session_release(s), EVN_OK);
}

TEST_F(SessionMemory, ALimitMayBeLoweredBelowWhatIsInUseAndRaisedAgain) {
  const evn_session session = make_of(rows_model());
  ASSERT_EQ(run(session, 1000), EVN_OK);
  const std::int64_t dims[] = {1000, 8};
  evn_tensor held = nullptr, more = nullptr;
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 2, 0, &held, &error));
  EXPECT_EQ(evn_device_set_memory_limit(cpu, 4095, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "limit_bytes is 4095, the least is 4096");
  EXPECT_EQ(evn_device_set_memory_limit(nullptr, 4096, &error), EVN_ERROR_INVALID_HANDLE);
  ASSERT_OK(evn_device_set_memory_limit(cpu, 4096, &error));
  evn_memory_stats s = device_stats();
  EXPECT_EQ(s.limit, 4096u);
  EXPECT_EQ(s.by_class[EVN_MEMORY_ARENAS], 0u) << "idle arenas were not given back";
  EXPECT_EQ(s.by_class[EVN_MEMORY_TENSORS], 32000u);
  EXPECT_EQ(s.largest_free_block, 0u);
  EXPECT_EQ(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 2, 0, &more, &error), EVN_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(error.bytes_requested, 32000u);
  EXPECT_EQ(error.bytes_available, 0u);
  EXPECT_EQ(run(session, 1000), EVN_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(evn_tensor_release(held), EVN_OK);
  EXPECT_EQ(device_stats().largest_free_block, 0u) << "above its limit a pool keeps nothing";
  ASSERT_OK(evn_device_set_memory_limit(cpu, UINT64_MAX, &error));
  EXPECT_EQ(device_stats().limit, UINT64_MAX);
  EXPECT_EQ(run(session, 1000), EVN_OK);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
}

TEST_F(SessionMemory, LimitsMayChangeWhileThreadsRun) {
  const evn_session session = make_of(rows_model());
  const std::uint64_t held = device_stats().reserved;
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const evn_status status = run(session, 10 << ((i + t) % 8));
        if (status != EVN_OK && status != EVN_ERROR_OUT_OF_MEMORY) ++wrong;
      }
      ++done;
    });
  }
  for (int i = 0; done < 3; ++i) {
    ASSERT_OK(evn_device_set_memory_limit(cpu, i % 2 == 0 ? held + 4096 : held + (1 << 20), &error));
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  ASSERT_OK(evn_device_set_memory_limit(cpu, UINT64_MAX, &error));
  EXPECT_EQ(run(session, 1280), EVN_OK);
  const evn_session_memory_stats s = stats(session);
  EXPECT_EQ(s.arena_bytes, s.idle_arena_bytes);
  EXPECT_EQ(s.arena_bytes, device_stats().by_class[EVN_MEMORY_ARENAS]);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
}

TEST_F(SessionMemory, TrimmingADeviceTakesIdleArenasToo) {
  const evn_session session = make_of(rows_model());
  ASSERT_EQ(run(session, 1000), EVN_OK);
  ASSERT_OK(evn_device_trim_memory(cpu, &error));
  EXPECT_EQ(stats(session).arena_count, 0u);
  EXPECT_EQ(device_stats().by_class[EVN_MEMORY_ARENAS], 0u);
  EXPECT_EQ(device_stats().largest_free_block, 0u);
  ASSERT_EQ(run(session, 1000), EVN_OK);
  EXPECT_EQ(stats(session).arenas_made, 2u);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
}

TEST_F(SessionMemory, NothingIsLostWhereTheSystemRefusesMemory) {
  const std::string bytes = rows_model();
  const std::uint64_t budget = need(1000) / 2;
  int failures = 0;
  for (std::int64_t k = 1;; ++k) {
    const evn_session session = make_of(bytes, budget);
    Tensors small(runtime, 100), large(runtime, 1000);
    fault_count_reset(Seam::kAlloc);
    fault_arm(Seam::kAlloc, k, false);
    evn_status status = EVN_OK;
    for (Tensors* t : {&small, &large, &small}) {
      if (const evn_status s = t->run(session); s != EVN_OK) status = s;
    }
    const bool hit = fault_count(Seam::kAlloc) >= k;
    fault_arm(Seam::kAlloc, 0, false);
    const evn_session_memory_stats s = stats(session);
    EXPECT_EQ(s.arena_bytes, s.idle_arena_bytes);
    EXPECT_EQ(s.arena_bytes, device_stats().by_class[EVN_MEMORY_ARENAS]);
    EXPECT_LE(s.arena_count, s.arenas_made - s.arenas_dropped) << "runs that fail leave nothing";
    EXPECT_EQ(run(session, 100), EVN_OK);
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    if (status == EVN_OK && !hit) break;
    if (status == EVN_OK) continue;  // something did without
    EXPECT_EQ(status, EVN_ERROR_OUT_OF_MEMORY);
    ++failures;
  }
  EXPECT_GT(failures, 10);
}

// Bytes that the process has of the C library.
std::size_t allocated() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST_F(SessionMemory, FurtherSessionsOfAModelCostLittle) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "only what is shipped is measured: a sanitizer has an allocator of its own";
#endif
  OnnxWriter w(17);
  const std::vector<float> weights(64 * 64, 0.01f), bias(64, 0.5f);
  w.add_input("x", kF32, {"rows", 64}).add_output("y", kF32);
  constexpr int kLayers = 60;
  for (int i = 0; i < kLayers; ++i) {
    const std::string n = std::to_string(i);
    w.add_initializer("w" + n, {64, 64}, weights).add_initializer("b" + n, {64}, bias);
    w.add_node("MatMul", {i == 0 ? "x" : "d" + std::to_string(i - 1), "w" + n}, {"a" + n});
    w.add_node("Add", {"a" + n, "b" + n}, {"s" + n}).add_node("Softmax", {"s" + n}, {"c" + n});
    w.add_node("Mul", {"c" + n, "b" + n}, {i + 1 == kLayers ? "y" : "d" + n});
  }
  const evn_model model = load(w.serialize());
  const std::int64_t dims[] = {4, 64};
  evn_tensor x = nullptr, y = nullptr;
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 2, 0, &x, &error));
  ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 2, 0, &y, &error));
  std::vector<evn_session> sessions;
  const auto add = [&] {
    sessions.push_back(make(model));
    evn_tensor out = y;
    ASSERT_OK(evn_session_run(sessions.back(), &x, 1, &out, 1, nullptr, &error));
  };
  add();
  sessions.reserve(64);
  const std::size_t before = allocated();
  const evn_memory_stats one = device_stats();
  while (sessions.size() < 64) add();
  const std::size_t arenas = stats(sessions[0]).arena_bytes;
  const std::size_t each = (allocated() - before) / 63;
  RecordProperty("bytes_of_a_session", static_cast<int>(each));
  EXPECT_LE(each, 40'000 + arenas);
  const evn_memory_stats all = device_stats();
  EXPECT_EQ(all.by_class[EVN_MEMORY_WEIGHTS], one.by_class[EVN_MEMORY_WEIGHTS]);
  EXPECT_EQ(all.by_class[EVN_MEMORY_PACKED], one.by_class[EVN_MEMORY_PACKED]);
  const auto without_heap = [](const evn_memory_stats& s) { return s.current - s.by_class[EVN_MEMORY_HEAP]; };
  EXPECT_EQ(without_heap(all), without_heap(one) + 63 * arenas) << "beyond arenas nothing of a session is on the ledger";
  EXPECT_LE(all.by_class[EVN_MEMORY_HEAP] - one.by_class[EVN_MEMORY_HEAP], 63u * 60'000);
  for (const evn_session s : sessions) EXPECT_EQ(evn_session_release(s), EVN_OK);
  for (const evn_tensor t : {x, y}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

TEST_F(SessionMemory, StatisticsRefuseWhatIsWrong) {
  const evn_session session = make_of(rows_model());
  evn_session_memory_stats s = EVN_SESSION_MEMORY_STATS_INIT;
  EXPECT_EQ(evn_session_get_memory_stats(session, nullptr, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(evn_session_get_memory_stats(nullptr, &s, &error), EVN_ERROR_INVALID_HANDLE);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_session_get_memory_stats(session, &s, &error), EVN_ERROR_INVALID_HANDLE);
}

TEST_F(SessionMemory, TheConfigurationHasABudgetToo) {
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.cache_dir = "";
  options.config_text = "session: {idle_arena_bytes: 4KiB}";
  options.config_size = std::strlen(options.config_text);
  EXPECT_EQ(evn_device_release(cpu), EVN_OK);
  EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
  ASSERT_OK(evn_runtime_create(&options, &runtime, &error));
  ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
  const evn_session by_file = make_of(rows_model()), by_options = make_of(rows_model(), 1 << 20);
  for (const evn_session s : {by_file, by_options}) {
    ASSERT_EQ(run(s, 10), EVN_OK);
    ASSERT_EQ(run(s, 1000), EVN_OK);
  }
  EXPECT_EQ(stats(by_file).arena_count, 1u);
  EXPECT_EQ(stats(by_options).arena_count, 2u);
  for (const evn_session s : {by_file, by_options}) EXPECT_EQ(evn_session_release(s), EVN_OK);
}

// ------------------------------------------------------------------------------------------------------------- OpenCL --

using OpenClSessionMemory = OpenClApiTest;

TEST_F(OpenClSessionMemory, ArenasOfADeviceAreCountedReusedAndGivenBack) {
  make_runtime();
  evn_model model = nullptr;
  evn_session session = nullptr;
  load_relu(&model, &session, 4);
  const auto stats = [&] {
    evn_session_memory_stats s = EVN_SESSION_MEMORY_STATS_INIT;
    EXPECT_OK(evn_session_get_memory_stats(session, &s, &error));
    return s;
  };
  const auto device_stats = [&] {
    evn_memory_stats s = EVN_MEMORY_STATS_INIT;
    EXPECT_OK(evn_device_get_memory_stats(gpu, &s, &error));
    return s;
  };
  const auto run = [&](std::int64_t rows) {
    const evn_tensor x = create(gpu, {rows, 4, 8, 8}), y = create(gpu, {rows, 4, 8, 8});
    write(x, ramp(static_cast<std::size_t>(rows) * 256, -100));
    evn_tensor out = y;
    const evn_status status = evn_session_run(session, &x, 1, &out, 1, nullptr, &error);
    if (status == EVN_OK) {
      std::vector<float> wanted = ramp(static_cast<std::size_t>(rows) * 256, -100);
      for (float& v : wanted) v = std::max(-v, 0.0f);  // Neg three times, then Relu
      EXPECT_EQ(read(y), wanted);
    }
    for (const evn_tensor t : {x, y}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
    return status;
  };
  for (const std::int64_t rows : {16, 24, 16, 24}) EXPECT_EQ(run(rows), EVN_OK);
  EXPECT_EQ(stats().arena_count, 1u);
  EXPECT_EQ(stats().arenas_made, 2u);
  EXPECT_EQ(stats().arenas_reused, 2u);
  EXPECT_GE(stats().arena_bytes, 24u * 256 * 4);
  EXPECT_EQ(stats().arena_bytes, device_stats().by_class[EVN_MEMORY_ARENAS]);
  // A limit below what idle runs hold takes it, and refuses what needs it.
  ASSERT_OK(evn_device_set_memory_limit(gpu, 4096, &error));
  EXPECT_EQ(device_stats().limit, 4096u);
  EXPECT_EQ(stats().arena_bytes, 0u);
  evn_tensor tensor = nullptr;
  const std::int64_t dims[] = {16, 4, 8, 8};
  EXPECT_EQ(evn_tensor_create(gpu, EVN_DTYPE_FLOAT32, dims, 4, 0, &tensor, &error), EVN_ERROR_OUT_OF_MEMORY);
  EXPECT_STREQ(error.device, "opencl:0");
  ASSERT_OK(evn_device_set_memory_limit(gpu, UINT64_MAX, &error));
  evn_device_info info = EVN_DEVICE_INFO_INIT;
  ASSERT_OK(evn_device_get_info(gpu, &info, &error));
  EXPECT_EQ(device_stats().limit, info.memory_bytes) << "no more than the device has";
  EXPECT_EQ(run(16), EVN_OK);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

}  // namespace
}  // namespace evn::test::session_memory_test
