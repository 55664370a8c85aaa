// exit() while runs are under way: the process ends with the host's code, by no signal, and waits for nothing. Each case is a
// process of its own, many times over; EVN_TEST_TIMES=1 prints how long they took from exit() to the end.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "base/os/os.h"
#include "tests/api/held_runs.h"
#include "tests/api/opencl_support.h"

namespace evn::test::held {
namespace {

constexpr int kCode = 7;
constexpr int kTimes = 20;

// Starts this program again for one of the cases below; gives waitpid's status. What it writes to the descriptor is the time of
// its exit().
int start(const char* name, std::uint64_t* took_ns) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);  // kills what hangs
    dup2(ends[1], 3);
    (void)!freopen("/dev/null", "w", stdout);
    const std::string filter = std::string("--gtest_filter=ExitCase.DISABLED_") + name;
#if defined(EVN_EMULATOR)
    char self[4096] = {};
    if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0) _exit(98);
    execl(EVN_EMULATOR, "emulated", self, filter.c_str(), "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
#endif
    execl("/proc/self/exe", "test_api", filter.c_str(), "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
    _exit(99);
  }
  close(ends[1]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  const std::uint64_t end = os::now_ns();
  std::uint64_t begin = end;
  EXPECT_EQ(read(ends[0], &begin, sizeof begin), static_cast<ssize_t>(sizeof begin));
  close(ends[0]);
  *took_ns = end - begin;
  return status;
}

void expect_exit(const char* name) {
  std::uint64_t longest = 0;
  for (int i = 0; i < kTimes; ++i) {
    std::uint64_t took = 0;
    const int status = start(name, &took);
    EXPECT_TRUE(WIFEXITED(status)) << name << ", time " << i << ": signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), kCode) << name << ", time " << i;
    longest = std::max(longest, took);
  }
  const char* const times = std::getenv("EVN_TEST_TIMES");
  if (times != nullptr && times[0] == '1')
    std::printf("%s: at most %.1f ms from exit() to the end\n", name, static_cast<double>(longest) * 1e-6);
}

TEST(Exit, WithRunsOnOtherThreads) { expect_exit("Runs"); }
TEST(Exit, WithRequestsUnderWay) { expect_exit("Requests"); }
TEST(Exit, FromACallbackOfARequest) { expect_exit("Callback"); }
TEST(Exit, FromAnOperatorWithinARun) { expect_exit("Operator"); }
TEST(Exit, WithThreadsThatWait) { expect_exit("Waiters"); }
TEST(Exit, WithAnOpenClDeviceAtWork) {
  EVN_NEEDS_OPENCL();
  expect_exit("OpenCl");
}

// ------------------------------------------------------------------------------------------------- in their own process --

[[noreturn]] void leave() {
  const std::uint64_t now = os::now_ns();
  (void)!write(3, &now, sizeof now);
  std::exit(kCode);
}

// Products of large matrices, one after the other: seconds of work.
std::string long_model(int nodes) {
  OnnxWriter w(17);
  w.add_input("x", kF32, {512, 512}).add_output("y", kF32);
  std::string last = "x";
  for (int i = 0; i < nodes; ++i) {
    const std::string next = i + 1 == nodes ? "y" : "v" + std::to_string(i);
    w.add_node("MatMul", {last, "x"}, {next});
    last = next;
  }
  return w.serialize();
}

struct ExitCase : HeldRuns {
  evn_session long_session = nullptr;
  evn_tensor large = nullptr;
  std::atomic<int> begun{0};

  void load_long(const char* device = nullptr, int nodes = 400) {
    const std::string bytes = long_model(nodes);
    evn_model model = nullptr;
    ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
    evn_session_options options = EVN_SESSION_OPTIONS_INIT;
    options.device = device;
    ASSERT_OK(evn_session_create(runtime, model, &options, &long_session, &error));
    evn_device cpu = nullptr;
    ASSERT_OK(evn_runtime_device_at(runtime, 0, &cpu, &error));
    const int64_t dims[] = {512, 512};
    ASSERT_OK(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 2, 0, &large, &error));
  }
  void run_long() {
    while (true) {
      evn_error e = EVN_ERROR_INIT;
      evn_tensor y = nullptr;
      ++begun;
      evn_session_run(long_session, &large, 1, &y, 1, nullptr, &e);
      evn_tensor_release(y);
    }
  }
};

TEST_F(ExitCase, DISABLED_Runs) {
  load_long();
  for (int i = 0; i < 8; ++i) std::thread([this] { run_long(); }).detach();
  eventually([&] { return begun >= 8; });
  leave();
}

TEST_F(ExitCase, DISABLED_Requests) {
  load_long();
  static Told told;
  const evn_submit_options o = told.options();
  evn_run_options first = EVN_RUN_OPTIONS_INIT;
  first.priority = 7;
  for (int i = 0; i < 100; ++i) {
    evn_error e = EVN_ERROR_INIT;
    evn_session_submit(long_session, &large, 1, nullptr, 1, nullptr, &o, nullptr, &e);
    submit(plain, nullptr, &o, &first);
  }
  eventually([&] { return told.done > 0; });
  leave();
}

TEST_F(ExitCase, DISABLED_Callback) {
  load_long();
  static Told told;
  told.then = [](evn_request) { leave(); };
  for (int i = 0; i < 3; ++i) std::thread([this] { run_long(); }).detach();
  eventually([&] { return begun >= 3; });
  const evn_submit_options o = told.options();
  evn_run_options first = EVN_RUN_OPTIONS_INIT;
  first.priority = 7;  // the long runs make way for it
  submit(plain, nullptr, &o, &first);
  while (true) pause();
}

TEST_F(ExitCase, DISABLED_Operator) {
  load_long();
  for (int i = 0; i < 3; ++i) std::thread([this] { run_long(); }).detach();
  eventually([&] { return begun >= 3; });
  gate.then = [] { leave(); };
  evn_run_options first = EVN_RUN_OPTIONS_INIT;
  first.priority = 7;  // the long runs make way for it
  run(session, &first);
  FAIL();
}

TEST_F(ExitCase, DISABLED_Waiters) {
  gate.set(true);
  evn_request request = nullptr;
  evn_queue queue = nullptr;
  ASSERT_OK(evn_queue_create(&queue, &error));
  ASSERT_EQ(submit(session, &request), EVN_OK);
  gate.await(1);
  std::thread([&] {
    bool done = false;
    evn_error e = EVN_ERROR_INIT;
    ++begun;
    evn_request_wait(request, kForever, &done, &e);
  }).detach();
  std::thread([&] {
    evn_request r = nullptr;
    evn_error e = EVN_ERROR_INIT;
    ++begun;
    evn_queue_next(queue, kForever, &r, &e);
  }).detach();
  std::thread([&] {
    evn_error e = EVN_ERROR_INIT;
    ++begun;
    evn_session_finish(session, kForever, &e);
  }).detach();
  eventually([&] { return begun == 3; });
  leave();
}

TEST_F(ExitCase, DISABLED_OpenCl) {
  load_long("opencl:0", 20);
  evn_tensor y = nullptr;  // programs are built: drivers' compilers are not for exit() to interrupt
  ASSERT_OK(evn_session_run(long_session, &large, 1, &y, 1, nullptr, &error));
  for (int i = 0; i < 2; ++i) std::thread([this] { run_long(); }).detach();
  std::thread([this] {
    while (true) {
      evn_run_options options = EVN_RUN_OPTIONS_INIT;
      options.timeout_ns = 5'000'000;
      evn_error e = EVN_ERROR_INIT;
      evn_tensor out = nullptr;
      ++begun;
      evn_session_run(long_session, &large, 1, &out, 1, &options, &e);
      evn_tensor_release(out);
    }
  }).detach();
  eventually([&] { return begun >= 5; });
  leave();
}

}  // namespace
}  // namespace evn::test::held
