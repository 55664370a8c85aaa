// The host's executor: results, threads, and executors that do not keep to the contract.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/api/support.h"

namespace evn::test {
namespace {

constexpr int64_t kBatch = 64;

struct Executor {
  std::atomic<int> jobs{0};
  std::atomic<uint32_t> largest{0};
  std::function<void(uint32_t, evn_task, void*)> body;

  static void run(void* user, uint32_t count, evn_task task, void* context) {
    auto& e = *static_cast<Executor*>(user);
    ++e.jobs;
    if (count > e.largest) e.largest = count;
    e.body(count, task, context);
  }
};

void serial(uint32_t count, evn_task task, void* context) {
  for (uint32_t i = 0; i < count; ++i) task(context, i);
}

void reversed(uint32_t count, evn_task task, void* context) {
  for (uint32_t i = count; i-- > 0;) task(context, i);
}

void threaded(uint32_t count, evn_task task, void* context) {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < count; ++i) threads.emplace_back(task, context, i);
  for (std::thread& t : threads) t.join();
}

// The outputs of the small network, with a runtime of its own.
std::vector<float> run_with(Executor* executor, int32_t thread_count, int runs = 1, int64_t batch = kBatch) {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.cache_dir = "";
  options.thread_count = thread_count;
  if (executor != nullptr) {
    options.parallel_for = &Executor::run;
    options.parallel_user = executor;
  }
  evn_runtime runtime = nullptr;
  evn_model model = nullptr;
  evn_session session = nullptr;
  const std::string bytes = small_network().serialize();
  EXPECT_OK(evn_runtime_create(&options, &runtime, &error));
  EXPECT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
  EXPECT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
  std::vector<float> in(static_cast<size_t>(batch) * 3 * 8 * 8);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 37) * 0.03f - 0.5f;
  std::vector<float> out(static_cast<size_t>(batch) * 10);
  const int64_t in_dims[] = {batch, 3, 8, 8};
  const int64_t out_dims[] = {batch, 10};
  evn_tensor x = nullptr;
  evn_tensor y = nullptr;
  EXPECT_OK(evn_tensor_wrap(runtime, in.data(), in.size() * 4, EVN_DTYPE_FLOAT32, in_dims, 4, nullptr, nullptr, &x, &error));
  EXPECT_OK(evn_tensor_wrap(runtime, out.data(), out.size() * 4, EVN_DTYPE_FLOAT32, out_dims, 2, nullptr, nullptr, &y, &error));
  for (int i = 0; i < runs; ++i) EXPECT_OK(evn_session_run(session, &x, 1, &y, 1, nullptr, &error));
  evn_tensor_release(x);
  evn_tensor_release(y);
  evn_session_release(session);
  evn_model_release(model);
  evn_runtime_release(runtime);
  return out;
}

TEST(Executor, GivesTheBitsOfOurOwnThreadsWhateverItsOrder) {
  const std::vector<float> want = run_with(nullptr, 4);
  EXPECT_NE(want[0], want[1]);
  for (const auto& body : {serial, reversed, threaded}) {
    Executor e;
    e.body = body;
    EXPECT_EQ(run_with(&e, 4), want);
    EXPECT_GT(e.jobs, 0);
    EXPECT_LE(e.largest, 4u);
    EXPECT_GT(e.largest, 1u);
  }
}

TEST(Executor, IsNotAskedForOneThread) {
  Executor e;
  e.body = serial;
  EXPECT_EQ(run_with(&e, 1), run_with(nullptr, 1));
  EXPECT_EQ(e.jobs, 0);
}

TEST(Executor, IsNotAskedForCallsThatAreShorterThanToWakeAThread) {
  Executor e;
  e.body = serial;
  EXPECT_EQ(run_with(&e, 4, 1, 1), run_with(nullptr, 1, 1, 1));
  EXPECT_EQ(e.jobs, 0);
}

TEST(Executor, NoThreadOfTheLibraryStarts) {
  std::atomic<bool> elsewhere{false};
  const auto caller = std::this_thread::get_id();
  // Were there threads of the library, a part of some job would run outside of the executor, which is serial here.
  Executor e;
  std::atomic<int> tasks{0};
  e.body = [&](uint32_t count, evn_task task, void* context) {
    if (std::this_thread::get_id() != caller) elsewhere = true;
    tasks += static_cast<int>(count);
    serial(count, task, context);
  };
  run_with(&e, 8, 3);
  EXPECT_FALSE(elsewhere);
  EXPECT_GT(tasks, 3);
}

TEST(Executor, MayRunASessionInsideOfATask) {
  const std::vector<float> want = run_with(nullptr, 2);
  Executor inner;
  inner.body = threaded;
  Executor outer;
  std::atomic<int> nested{0};
  outer.body = [&](uint32_t count, evn_task task, void* context) {
    if (nested++ < 2) {
      EXPECT_EQ(run_with(&inner, 2), want);
    }
    threaded(count, task, context);
  };
  EXPECT_EQ(run_with(&outer, 2), want);
  EXPECT_GT(nested, 0);
}

TEST(Executor, SeveralRunsAtATimeShareNothing) {
  const std::vector<float> want = run_with(nullptr, 3);
  Executor e;
  e.body = threaded;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { wrong += run_with(&e, 3, 5) != want; });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Executor, IndicesLeftOutRepeatedOrTooLargeDoNotChangeTheResult) {
  const std::vector<float> want = run_with(nullptr, 4);
  Executor e;
  e.body = [](uint32_t, evn_task, void*) {};
  EXPECT_EQ(run_with(&e, 4), want);
  e.body = [](uint32_t, evn_task task, void* context) { task(context, 1); };
  EXPECT_EQ(run_with(&e, 4), want);
  e.body = [](uint32_t count, evn_task task, void* context) {
    for (uint32_t i = count + 3; i-- > 0;) task(context, i);
    task(context, UINT32_MAX);
  };
  EXPECT_EQ(run_with(&e, 4), want);
  e.body = [](uint32_t count, evn_task task, void* context) {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 2 * count; ++i) threads.emplace_back(task, context, i / 2);
    for (std::thread& t : threads) t.join();
  };
  EXPECT_EQ(run_with(&e, 4), want);
}

}  // namespace
}  // namespace evn::test
