// Forked children: they compute on the CPU, never wait for what a thread of their parent held, and say EVN_ERROR_FORKED where they
// cannot use something. Each child has an alarm that kills it should it hang.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "base/fault.h"
#include "tests/api/held_runs.h"
#include "tests/api/opencl_support.h"

namespace evn::test::held {
namespace {

[[noreturn]] void end_child() {
  std::fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

// Whether the child ended well.
bool ends_well(pid_t child) {
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

template <typename Body>
bool in_child(Body&& body) {
  std::fflush(nullptr);
#if defined(__SANITIZE_ADDRESS__)
  // AddressSanitizer's allocator does not know of forks: a child whose parent's other threads were just allocating waits for its
  // lock for ever. Threads that have ended a run a moment ago come to rest here.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
#endif
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);
    body();
    end_child();
  }
  return child > 0 && ends_well(child);
}

struct ForkTest : HeldRuns {
#if defined(EVN_EMULATOR)
  void SetUp() override {
    GTEST_SKIP() << "the emulator ends with an assertion where a forked child of several threads starts one";
  }
  void TearDown() override {}
#endif
  // All that a child may do with a runtime of its parent's, of which nobody else uses anything now.
  void use_all() {
    EXPECT_EQ(run(plain), EVN_OK);
    evn_request request = nullptr;
    EXPECT_EQ(submit(plain, &request), EVN_OK);
    EXPECT_EQ(outcome(request), EVN_OK);
    const evn_session made = load(false);
    EXPECT_EQ(run(made), EVN_OK);
    EXPECT_EQ(evn_session_release(made), EVN_OK);
    const evn_tensor t = tensor();
    EXPECT_EQ(first_of(t), 1);
    EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  }
};

// For tests whose child starts or ends threads: libtsan then reports a thread id that is used twice, or crashes in its own exit
// handlers.
#if defined(__SANITIZE_THREAD__)
#define EVN_SKIP_UNDER_TSAN() GTEST_SKIP() << "ThreadSanitizer's runtime does not follow threads into a forked child"
#else
#define EVN_SKIP_UNDER_TSAN() static_cast<void>(0)
#endif

TEST_F(ForkTest, AChildRunsAndSubmitsAndReleasesAll) {
  EVN_SKIP_UNDER_TSAN();
  use_all();
  EXPECT_TRUE(in_child([&] {
    use_all();
    EXPECT_EQ(run(session), EVN_OK);
    EXPECT_TRUE(in_child([&] { use_all(); }));  // and so does its own
    release_all();
    make(2);
    use_all();
    release_all();
  }));
  use_all();
}

TEST_F(ForkTest, ThePoolOfThreadsIsNotWaitedFor) {
  evn_model model = nullptr;
  evn_session network = nullptr;
  const std::string bytes = small_network().serialize();
  ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
  ASSERT_OK(evn_session_create(runtime, model, nullptr, &network, &error));
  std::vector<float> values(64 * 3 * 8 * 8, 0.25f);
  const int64_t dims[] = {64, 3, 8, 8};
  evn_tensor in = nullptr;
  ASSERT_OK(evn_tensor_wrap(runtime, values.data(), values.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &in, &error));
  const auto compute = [&] {
    evn_tensor y = nullptr;
    EXPECT_OK(evn_session_run(network, &in, 1, &y, 1, nullptr, &error));
    const float first = first_of(y);
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
    return first;
  };
  const float expected = compute();
  EXPECT_TRUE(in_child([&] {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(compute(), expected);
    evn_session_release(network);
    evn_model_release(model);
    evn_tensor_release(in);
    release_all();
  }));
  EXPECT_EQ(compute(), expected);
  evn_session_release(network);
  evn_model_release(model);
  evn_tensor_release(in);
}

TEST_F(ForkTest, WhatAnotherThreadWasUsingIsForkedAndTheRestIsNot) {
  gate.set(true);
  std::thread runner([&] { EXPECT_EQ(run(session), EVN_OK); });
  gate.await(1);
  EXPECT_TRUE(in_child([&] {
    gate.shut = false;  // should it be passed all the same
    EXPECT_EQ(run(session), EVN_ERROR_FORKED);
    evn_request request = nullptr;
    EXPECT_EQ(submit(session, &request), EVN_ERROR_FORKED);
    uint32_t count = 0;
    error = EVN_ERROR_INIT;
    EXPECT_EQ(evn_session_input_count(session, &count, &error), EVN_ERROR_FORKED);
    EXPECT_NE(std::string(error.message).find("session"), std::string::npos) << error.message;
    use_all();
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(run(session), EVN_ERROR_INVALID_HANDLE);
    EXPECT_EQ(evn_session_release(session), EVN_ERROR_INVALID_HANDLE);
    session = nullptr;
    release_all();
  }));
  gate.set(false);
  runner.join();
  EXPECT_EQ(run(session), EVN_OK);
}

TEST_F(ForkTest, RequestsUnderWayAreForkedAndNobodyWaitsForThem) {
  gate.set(true);
  evn_queue queue = nullptr;
  ASSERT_OK(evn_queue_create(&queue, &error));
  Told told;
  const evn_submit_options o = told.options(queue);
  evn_request running = nullptr, beside = nullptr, waiting = nullptr, ended = nullptr;
  ASSERT_EQ(submit(plain, &ended), EVN_OK);
  bool done = false;
  ASSERT_OK(evn_request_wait(ended, kForever, &done, &error));
  ASSERT_EQ(submit(session, &running, &o), EVN_OK);
  ASSERT_EQ(submit(session, &beside, &o), EVN_OK);
  gate.await(2);  // so that both threads are at the gate, and the next request waits for one
  ASSERT_EQ(submit(session, &waiting, &o), EVN_OK);
  // Others wait at the fork, on all that one can wait for.
  evn_tensor none = nullptr;
  std::atomic<int> begun{0};
  std::thread waiter([&] {
    evn_error e = EVN_ERROR_INIT;
    bool d = false;
    ++begun;
    EXPECT_EQ(evn_request_wait(waiting, kForever, &d, &e), EVN_OK);
  });
  std::thread taker([&] {
    evn_error e = EVN_ERROR_INIT;
    evn_request r = nullptr;
    ++begun;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(evn_queue_next(queue, kForever, &r, &e), EVN_OK);
  });
  EXPECT_TRUE(eventually([&] { return begun == 2; }));
  EXPECT_TRUE(in_child([&] {
    evn_request r = nullptr;
    EXPECT_EQ(evn_request_wait(running, kForever, &done, &error), EVN_ERROR_FORKED);
    EXPECT_EQ(evn_request_wait(running, 0, &done, &error), EVN_ERROR_FORKED);
    EXPECT_EQ(evn_request_wait(waiting, kForever, &done, &error), EVN_ERROR_FORKED);
    EXPECT_EQ(evn_request_take(running, &none, 1, &error), EVN_ERROR_FORKED);
    EXPECT_EQ(evn_queue_next(queue, kForever, &r, &error), EVN_ERROR_FORKED);
    int32_t fd = -1;
    EXPECT_EQ(evn_queue_fd(queue, &fd, &error), EVN_ERROR_FORKED);
    EXPECT_EQ(submit(plain, &r, &o), EVN_ERROR_FORKED);
    EXPECT_EQ(submit(session, &r), EVN_ERROR_FORKED);
    EXPECT_EQ(run(session), EVN_ERROR_FORKED);
    EXPECT_EQ(outcome(ended), EVN_OK);
    use_all();  // with threads of the child's own
    EXPECT_EQ(evn_session_finish(session, kForever, &error), EVN_ERROR_FORKED);
    session = nullptr;
    for (evn_request request : {running, beside, waiting}) EXPECT_EQ(evn_request_release(request), EVN_OK);
    EXPECT_EQ(evn_queue_release(queue), EVN_OK);
    release_all();
    EXPECT_EQ(told.done, 0);
  }));
  gate.set(false);
  waiter.join();
  taker.join();
  for (evn_request request : {running, beside, waiting, ended}) EXPECT_EQ(outcome(request), EVN_OK);
  EXPECT_TRUE(eventually([&] { return told.released == 3; }));
  EXPECT_EQ(evn_queue_release(queue), EVN_OK);
}

TEST_F(ForkTest, AQueueOfTheParentsStaysItsOwn) {
  evn_queue queue = nullptr;
  ASSERT_OK(evn_queue_create(&queue, &error));
  int32_t fd = -1;
  ASSERT_OK(evn_queue_fd(queue, &fd, &error));
  evn_submit_options o = EVN_SUBMIT_OPTIONS_INIT;
  o.queue = queue;
  ASSERT_EQ(submit(plain, nullptr, &o), EVN_OK);
  ASSERT_OK(evn_session_finish(plain, kForever, &error));
  plain = nullptr;
  EXPECT_TRUE(in_child([&] {
    evn_request r = nullptr;
    EXPECT_EQ(evn_queue_next(queue, 0, &r, &error), EVN_ERROR_FORKED);
    EXPECT_EQ(evn_queue_release(queue), EVN_OK);
    evn_queue own = nullptr;
    EXPECT_OK(evn_queue_create(&own, &error));
    evn_submit_options to_own = EVN_SUBMIT_OPTIONS_INIT;
    to_own.queue = own;
    EXPECT_EQ(submit(session, nullptr, &to_own), EVN_OK);
    EXPECT_OK(evn_queue_next(own, kForever, &r, &error));
    EXPECT_EQ(outcome(r), EVN_OK);
    EXPECT_EQ(evn_queue_release(own), EVN_OK);
  }));
  evn_request r = nullptr;
  ASSERT_OK(evn_queue_next(queue, 0, &r, &error));  // the child has not taken the mark off the descriptor, nor the entry
  EXPECT_EQ(outcome(r), EVN_OK);
  EXPECT_EQ(evn_queue_release(queue), EVN_OK);
}

// What a callback forks goes on in the child to the end of what had called it.
TEST_F(ForkTest, AnOperatorMayForkWithinARun) {
  pid_t child = -1;
  bool is_child = false;
  gate.then = [&] {
    if (child >= 0) return;
    child = fork();
    if (child == 0) is_child = true, alarm(120);
  };
  EXPECT_EQ(run(session), EVN_OK);
  if (is_child) {
    EXPECT_EQ(run(session), EVN_OK);  // its own pin did not make it another's
    use_all();
    release_all();
    end_child();
  }
  EXPECT_TRUE(ends_well(child));
}

TEST_F(ForkTest, ACallbackOfARequestMayFork) {
  std::atomic<pid_t> child{-1};
  Told told;
  told.then = [&](evn_request) {
    const pid_t made = fork();
    if (made == 0) {
      alarm(120);
      use_all();
      release_all();
      end_child();
    }
    child = made;
  };
  const evn_submit_options o = told.options();
  ASSERT_EQ(submit(session, nullptr, &o), EVN_OK);
  EXPECT_TRUE(eventually([&] { return told.released == 1; }));
  EXPECT_TRUE(ends_well(child));
}

// A thread of the library that a callback has forked ends in the child, with the child: nothing is left for it to do.
TEST_F(ForkTest, AChildOfACallbackThatReturnsEnds) {
  EVN_SKIP_UNDER_TSAN();
  std::atomic<pid_t> child{-1};
  Told told;
  told.then = [&](evn_request) {
    const pid_t made = fork();
    if (made != 0) child = made;
    else alarm(120);
  };
  const evn_submit_options o = told.options();
  ASSERT_EQ(submit(session, nullptr, &o), EVN_OK);
  EXPECT_TRUE(eventually([&] { return told.released == 1; }));
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
}

// The pool's mutex is held while the host's allocator works: the child's thread is the one that holds it.
TEST_F(ForkTest, AnAllocatorMayFork) {
  release_all();
  struct Host {
    bool armed = false;
    pid_t child = -1;
    static void* allocate(void* user, size_t size, size_t alignment) {
      auto& h = *static_cast<Host*>(user);
      if (h.armed) {
        h.armed = false;
        h.child = fork();
        if (h.child == 0) alarm(120);
      }
      return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    }
    static void free(void*, void* memory, size_t) { std::free(memory); }
  } host;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.cache_dir = "";
  options.thread_count = 1;
  options.allocator = {&Host::allocate, &Host::free, &host};
  make(options);
  evn_device cpu = nullptr;
  ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
  const int64_t dim = 1 << 20;
  evn_tensor t = nullptr;
  host.armed = true;
  EXPECT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, &dim, 1, 0, &t, &error));
  EXPECT_FALSE(host.armed);
  evn_tensor_release(t);
  evn_device_release(cpu);
  use_all();
  if (host.child == 0) {
    release_all();
    end_child();
  }
  EXPECT_TRUE(ends_well(host.child));
  release_all();
}

// Whatever other threads are in the midst of, a child can use what they do not.
TEST_F(ForkTest, AChildIsWholeWhateverOtherThreadsDo) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer's allocator holds a lock for ever in a child that is forked while other threads allocate";
#endif
  const evn_tensor theirs = tensor();
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      evn_request under_way = nullptr;  // one is always queued or running; none outlives the gate
      while (!stop) {
        const evn_tensor t = tensor();
        evn_tensor_release(t);
        evn_device d = nullptr;
        evn_error e = EVN_ERROR_INIT;
        EXPECT_EQ(evn_runtime_device_find(runtime, "cpu", &d, &e), EVN_OK);
        evn_device_release(d);
        evn_tensor y = nullptr;
        EXPECT_EQ(evn_session_run(session, &theirs, 1, &y, 1, nullptr, &e), EVN_OK);
        EXPECT_EQ(evn_tensor_release(y), EVN_OK);
        evn_request r = nullptr;
        EXPECT_EQ(evn_session_submit(session, &theirs, 1, nullptr, 1, nullptr, nullptr, &r, &e), EVN_OK);
        bool ended = false;
        if (under_way) {
          EXPECT_EQ(evn_request_wait(under_way, kForever, &ended, &e), EVN_OK);
        }
        EXPECT_EQ(evn_request_release(under_way), EVN_OK);
        under_way = r;
        ++rounds;
      }
      evn_error e = EVN_ERROR_INIT;
      bool ended = false;
      EXPECT_EQ(evn_request_wait(under_way, kForever, &ended, &e), EVN_OK);
      EXPECT_EQ(evn_request_release(under_way), EVN_OK);
    });
  }
  EXPECT_TRUE(eventually([&] { return rounds > 3; }));
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(in_child([&] {
      const evn_tensor t = tensor();
      EXPECT_EQ(evn_tensor_release(t), EVN_OK);
      EXPECT_EQ(run(plain), EVN_OK);
      evn_request r = nullptr;
      EXPECT_EQ(submit(plain, &r), EVN_OK);
      EXPECT_EQ(outcome(r), EVN_OK);
      release_all();
    })) << i;
  }
  stop = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(evn_tensor_release(theirs), EVN_OK);
}

TEST_F(ForkTest, EveryFailureInAChildIsAStatusAndLosesNothing) {
  EXPECT_EQ(run(plain), EVN_OK);
  EXPECT_TRUE(in_child([&] {
    for (const Seam seam : {Seam::kAlloc, Seam::kThread}) {
      for (int k = 1; k < 40; ++k) {
        EXPECT_TRUE(in_child([&] {
          Told told;
          const evn_submit_options o = told.options();
          fault_arm(seam, k, false);
          const evn_status status = submit(plain, nullptr, &o);
          if (status == EVN_OK) {
            EXPECT_TRUE(eventually([&] { return told.released == 1; }));
          }
          fault_arm(seam, 0, false);
          EXPECT_TRUE(status == EVN_OK || status == (seam == Seam::kAlloc ? EVN_ERROR_OUT_OF_MEMORY : EVN_ERROR_NO_THREADS))
              << status;
          EXPECT_EQ(told.done, status == EVN_OK ? 1 : 0);
          use_all();
          release_all();
        })) << k;
        if (seam == Seam::kThread && k == 3) break;
      }
    }
  }));
}

struct OpenClForkTest : OpenClApiTest {};

TEST_F(OpenClForkTest, DevicesAreForkedAndTheCpuIsNot) {
  make_runtime();
  evn_model model = nullptr;
  evn_session session = nullptr;
  load_relu(&model, &session, 2);
  std::vector<float> values(2 * 3 * 8 * 8, 1.5f);
  const std::vector<int64_t> dims = {2, 3, 8, 8};
  const evn_tensor x = wrap(values, dims), there = create(gpu, dims), pinned = create(gpu, dims, EVN_TENSOR_PINNED);
  evn_tensor y = nullptr;
  ASSERT_OK(evn_session_run(session, &x, 1, &y, 1, nullptr, &error));
  evn_tensor_release(y);
  y = nullptr;
  evn_session on_cpu = nullptr;
  evn_session_options cpu_only = EVN_SESSION_OPTIONS_INIT;
  cpu_only.device = "cpu";
  ASSERT_OK(evn_session_create(runtime, model, &cpu_only, &on_cpu, &error));
  EXPECT_TRUE(in_child([&] {
    error = EVN_ERROR_INIT;
    EXPECT_EQ(evn_session_run(session, &x, 1, &y, 1, nullptr, &error), EVN_ERROR_FORKED);
    EXPECT_NE(std::string(error.message).find("fork"), std::string::npos) << error.message;
    evn_device d = nullptr;
    EXPECT_EQ(evn_runtime_device_find(runtime, "opencl:0", &d, &error), EVN_ERROR_FORKED);
    EXPECT_EQ(evn_runtime_device_find(runtime, "opencl:1", &d, &error), EVN_ERROR_FORKED);
    evn_tensor t = nullptr;
    EXPECT_EQ(evn_tensor_create(gpu, EVN_DTYPE_FLOAT32, dims.data(), 4, 0, &t, &error), EVN_ERROR_FORKED);
    EXPECT_EQ(evn_tensor_create(gpu, EVN_DTYPE_FLOAT32, dims.data(), 4, EVN_TENSOR_PINNED, &t, &error), EVN_ERROR_FORKED);
    EXPECT_EQ(evn_tensor_copy(x, there, &error), EVN_ERROR_FORKED);
    EXPECT_EQ(evn_tensor_copy(there, x, &error), EVN_ERROR_FORKED);
    EXPECT_EQ(evn_tensor_copy_to(x, gpu, &t, &error), EVN_ERROR_FORKED);
    void* data = nullptr;
    for (const uint32_t flags : {EVN_MAP_READ, EVN_MAP_WRITE}) {
      EXPECT_EQ(evn_tensor_map(there, flags, &data, nullptr, &error), EVN_ERROR_FORKED);
      EXPECT_EQ(evn_tensor_map(pinned, flags, &data, nullptr, &error), EVN_ERROR_FORKED);
    }
    evn_session again = nullptr;
    evn_session_options o = EVN_SESSION_OPTIONS_INIT;
    o.device = "opencl:0";
    EXPECT_EQ(evn_session_create(runtime, model, &o, &again, &error), EVN_ERROR_FORKED);
    evn_runtime own = nullptr;
    evn_runtime_options r = EVN_RUNTIME_OPTIONS_INIT;
    r.cache_dir = "";
    EXPECT_OK(evn_runtime_create(&r, &own, &error));
    EXPECT_EQ(evn_runtime_device_find(own, "opencl:0", &d, &error), EVN_ERROR_FORKED);
    EXPECT_EQ(evn_runtime_release(own), EVN_OK);
    EXPECT_OK(evn_session_run(on_cpu, &x, 1, &y, 1, nullptr, &error));
    EXPECT_EQ(evn_device_trim_memory(gpu, &error), EVN_OK);
    for (const evn_tensor each : {x, y, there, pinned}) EXPECT_EQ(evn_tensor_release(each), EVN_OK);
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_session_release(on_cpu), EVN_OK);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    TearDown();
    EXPECT_EQ(driver->calls(OpenClDriver::kReleaseContext), 0);
  }));
  EXPECT_OK(evn_session_run(session, &x, 1, &y, 1, nullptr, &error));
  for (const evn_tensor each : {x, y, there, pinned}) EXPECT_EQ(evn_tensor_release(each), EVN_OK);
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_session_release(on_cpu), EVN_OK);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

// One thread waits for the device, and its reaper does, when another thread forks.
TEST_F(OpenClForkTest, ADeviceAtWorkIsLeftToTheParent) {
  make_runtime();
  evn_model model = nullptr;
  evn_session session = nullptr;
  load_relu(&model, &session, 3);
  std::vector<float> values(2 * 3 * 8 * 8, 1.5f);
  const evn_tensor x = wrap(values, {2, 3, 8, 8});
  evn_tensor y = nullptr;
  ASSERT_OK(evn_session_run(session, &x, 1, &y, 1, nullptr, &error));
  evn_tensor_release(y);
  driver->hold();
  std::thread runner([&] {
    evn_error e = EVN_ERROR_INIT;
    evn_run_options options = EVN_RUN_OPTIONS_INIT;
    options.timeout_ns = 3'600'000'000'000;
    evn_tensor out = nullptr;
    EXPECT_EQ(evn_session_run(session, &x, 1, &out, 1, &options, &e), EVN_OK) << e.message;
    evn_tensor_release(out);
  });
  EXPECT_TRUE(eventually([&] { return driver->holds(); }));
  EXPECT_TRUE(in_child([&] {
    evn_tensor out = nullptr;
    EXPECT_EQ(evn_session_run(session, &x, 1, &out, 1, nullptr, &error), EVN_ERROR_FORKED);
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    EXPECT_EQ(evn_tensor_release(x), EVN_OK);
    TearDown();
  }));
  driver->let_go();
  runner.join();
  EXPECT_EQ(evn_session_release(session), EVN_OK);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
  EXPECT_EQ(evn_tensor_release(x), EVN_OK);
}

}  // namespace
}  // namespace evn::test::held
