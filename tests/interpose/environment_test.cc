// Faults of the environment: rows E04 to E10 of the list of hostile cases. Files that change while they are read, transfers of one
// byte, threads that do not start, one core, small stacks. The library gives a status or the same bits, and prints nothing.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/os/os.h"
#include "evener/train.h"
#include "tests/api/support.h"
#include "tests/interpose/interpose.h"

namespace evn::test {
namespace {

namespace fs = std::filesystem;

// A network of the same form and size as small_network() with other weights.
std::string other_network() {
  std::string bytes = small_network().serialize();
  const float bias[3] = {0.1f, -0.1f, 0.2f};
  const float other[3] = {0.3f, 0.4f, -0.2f};
  const std::size_t at = bytes.find(std::string(reinterpret_cast<const char*>(bias), sizeof bias));
  EXPECT_NE(at, std::string::npos);
  std::memcpy(bytes.data() + at, other, sizeof other);
  return bytes;
}

struct EnvironmentTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = nullptr;
  fs::path folder;
  std::string path;
  std::string old_bytes = small_network().serialize();
  std::string new_bytes = other_network();
  std::vector<float> old_result;
  std::vector<float> new_result;

  void SetUp() override {
    char pattern[] = "/tmp/evener-environment-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder = pattern;
    path = (folder / "model.onnx").string();
    runtime = make_runtime(2);
    write(path, old_bytes);
    ASSERT_EQ(load_and_run(&old_result), EVN_OK) << error.message;
    write(path, new_bytes);
    ASSERT_EQ(load_and_run(&new_result), EVN_OK) << error.message;
    ASSERT_NE(old_result, new_result);
    write(path, old_bytes);
  }
  void TearDown() override {
    interposer().short_transfers = false;
    interposer().thread_fails_at = 0;
    interposer().before_pread = nullptr;
    EXPECT_EQ(evn_runtime_release(runtime), EVN_OK);
    fs::remove_all(folder);
  }

  evn_runtime make_runtime(int threads) {
    evn_runtime r = nullptr;
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = threads;
    EXPECT_OK(evn_runtime_create(&options, &r, &error));
    return r;
  }
  static void write(const std::string& to, const std::string& bytes) {
    std::ofstream(to, std::ios::binary | std::ios::trunc) << bytes;
  }

  evn_status load_and_run(std::vector<float>* result) { return load_and_run_in(runtime, result); }
  evn_status load_and_run_in(evn_runtime r, std::vector<float>* result) {
    evn_model model = nullptr;
    error = EVN_ERROR_INIT;
    evn_status status = evn_model_load_file(r, path.c_str(), nullptr, &model, &error);
    if (status == EVN_OK) status = run(r, model, result);
    EXPECT_EQ(evn_model_release(model), EVN_OK);
    return status;
  }
  evn_status run(evn_runtime r, evn_model model, std::vector<float>* result) {
    evn_session session = nullptr;
    evn_tensor in = nullptr;
    evn_tensor out = nullptr;
    std::vector<float> x(64 * 3 * 8 * 8);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.01f * static_cast<float>(i % 31) - 0.1f;
    const int64_t dims[4] = {64, 3, 8, 8};
    result->assign(64 * 10, 0);
    const int64_t out_dims[2] = {64, 10};
    evn_status status = evn_session_create(r, model, nullptr, &session, &error);
    if (status == EVN_OK)
      status = evn_tensor_wrap(r, x.data(), x.size() * 4, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &in, &error);
    if (status == EVN_OK)
      status =
          evn_tensor_wrap(r, result->data(), result->size() * 4, EVN_DTYPE_FLOAT32, out_dims, 2, nullptr, nullptr, &out, &error);
    if (status == EVN_OK) status = evn_session_run(session, &in, 1, &out, 1, nullptr, &error);
    EXPECT_EQ(evn_tensor_release(in), EVN_OK);
    EXPECT_EQ(evn_tensor_release(out), EVN_OK);
    EXPECT_EQ(evn_session_release(session), EVN_OK);
    return status;
  }
};

TEST_F(EnvironmentTest, E04_AFullDiskLeavesTheOldFileAndNoTemporaryOne) {
  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const std::string text(10000, 'n');
  for (const rlim_t limit : {rlim_t{0}, rlim_t{1}, rlim_t{9999}}) {
    const struct rlimit now = {limit, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
    evn_status status = EVN_OK;
    try {
      os::write_file_atomically(path, text.data(), text.size());
    } catch (const Error& e) {
      status = e.status;
    }
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(status, EVN_ERROR_IO) << limit;
    std::vector<float> got;
    EXPECT_EQ(load_and_run(&got), EVN_OK) << error.message;
    EXPECT_EQ(got, old_result);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  }
  ::signal(SIGXFSZ, old_handler);
}

TEST_F(EnvironmentTest, E05_AModelCutWhileItIsReadIsAnIoError) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, old_bytes.size() - 1}) {
    write(path, old_bytes);
    interposer().before_pread = [&] { EXPECT_EQ(::truncate(path.c_str(), static_cast<off_t>(size)), 0); };
    std::vector<float> got;
    EXPECT_EQ(load_and_run(&got), EVN_ERROR_IO) << size;
    EXPECT_FALSE(interposer().before_pread);  // it did happen while reading
  }
  write(path, old_bytes);
  std::vector<float> got;
  EXPECT_EQ(load_and_run(&got), EVN_OK) << error.message;
  EXPECT_EQ(got, old_result);
}

TEST_F(EnvironmentTest, E05_AModelCutAfterLoadingRunsOn) {
  evn_model model = nullptr;
  ASSERT_OK(evn_model_load_file(runtime, path.c_str(), nullptr, &model, &error));
  ASSERT_EQ(::truncate(path.c_str(), 0), 0);
  std::vector<float> got;
  EXPECT_EQ(run(runtime, model, &got), EVN_OK) << error.message;
  EXPECT_EQ(got, old_result);
  EXPECT_EQ(evn_model_release(model), EVN_OK);
}

TEST_F(EnvironmentTest, E06_AModelReplacedByANameIsTheOldOneWhole) {
  interposer().before_pread = [&] {
    write(path + ".new", new_bytes);
    fs::rename(path + ".new", path);
  };
  std::vector<float> got;
  EXPECT_EQ(load_and_run(&got), EVN_OK) << error.message;
  EXPECT_EQ(got, old_result);
  EXPECT_EQ(load_and_run(&got), EVN_OK) << error.message;
  EXPECT_EQ(got, new_result);
}

TEST_F(EnvironmentTest, E06_AModelRewrittenInPlaceBetweenStatAndReadIsAnIoError) {
  const fs::file_time_type then = fs::last_write_time(path);
  interposer().before_pread = [&] {
    write(path, new_bytes);
    fs::last_write_time(path, then + std::chrono::milliseconds(20));  // whatever the clock's grain
  };
  std::vector<float> got;
  EXPECT_EQ(load_and_run(&got), EVN_ERROR_IO);
}

TEST_F(EnvironmentTest, E06_AModelReplacedAgainAndAgainIsAlwaysOneOfTheTwo) {
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (bool odd = false; !stop; odd = !odd) {
      write(path + ".new", odd ? new_bytes : old_bytes);
      fs::rename(path + ".new", path);
    }
  });
  for (int i = 0; i < 300; ++i) {
    std::vector<float> got;
    const evn_status status = load_and_run(&got);
    EXPECT_EQ(status, EVN_OK) << error.message;
    EXPECT_TRUE(got == old_result || got == new_result);
    if (HasFailure()) break;
  }
  stop = true;
  writer.join();
}

TEST_F(EnvironmentTest, E07_TransfersOfOneByteWithInterruptionsGiveTheSameBits) {
  interposer().transfers = 0;
  interposer().short_transfers = true;
  std::vector<float> got;
  const evn_status status = load_and_run(&got);
  interposer().short_transfers = false;
  EXPECT_EQ(status, EVN_OK) << error.message;
  EXPECT_EQ(got, old_result);
  EXPECT_GE(interposer().transfers, 2 * static_cast<std::int64_t>(old_bytes.size()));
}

TEST_F(EnvironmentTest, E07_FilesAreWrittenWholeByteByByte) {
  const std::string to = (folder / "out").string();
  interposer().short_transfers = true;
  os::write_file_atomically(to, old_bytes.data(), old_bytes.size());
  interposer().short_transfers = false;
  std::ifstream in(to, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), old_bytes);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2);
}

TEST_F(EnvironmentTest, E08_ThreadsThatDoNotStartAreAStatusAndTheNextRunIsRight) {
  for (int k = 1; k <= 3; ++k) {
    evn_runtime four = make_runtime(4);
    interposer().thread_calls = 0;
    interposer().thread_fails_at = k;
    std::vector<float> got;
    const evn_status status = load_and_run_in(four, &got);
    interposer().thread_fails_at = 0;
    EXPECT_EQ(status, EVN_ERROR_NO_THREADS) << k;
    EXPECT_EQ(interposer().thread_calls, k);
    EXPECT_EQ(load_and_run_in(four, &got), EVN_OK) << error.message;
    EXPECT_EQ(got, old_result);
    EXPECT_EQ(evn_runtime_release(four), EVN_OK);
  }
}

TEST_F(EnvironmentTest, E08_ALoaderWhoseThreadDoesNotStartIsAStatus) {
  const float x[4] = {1, 2, 3, 4};
  const evn_loader_array array = {"x", nullptr, x, EVN_DTYPE_FLOAT32, 0};
  evn_loader_options options = EVN_LOADER_OPTIONS_INIT;
  options.arrays = &array;
  options.array_count = 1;
  options.sample_count = 4;
  options.batch = 3;
  evn_loader loader = nullptr;
  ASSERT_OK(evn_loader_create(runtime, &options, &loader, &error));  // the module is there
  EXPECT_EQ(evn_loader_release(std::exchange(loader, nullptr)), EVN_OK);
  interposer().thread_calls = 0;
  interposer().thread_fails_at = 1;
  EXPECT_EQ(evn_loader_create(runtime, &options, &loader, &error), EVN_ERROR_NO_THREADS);
  interposer().thread_fails_at = 0;
  EXPECT_EQ(interposer().thread_calls, 1);
  EXPECT_EQ(loader, nullptr);
  ASSERT_OK(evn_loader_create(runtime, &options, &loader, &error));
  evn_tensor tensor = nullptr;
  uint32_t samples = 0;
  EXPECT_OK(evn_loader_next(loader, &tensor, 1, &samples, &error));
  EXPECT_EQ(samples, 3u);
  EXPECT_EQ(evn_loader_release(loader), EVN_OK);
}

TEST_F(EnvironmentTest, E09_OneCoreOfAffinityIsOneThreadAndNothingIsPrinted) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  std::vector<float> got;
  uint32_t threads = 0;
  evn_status status = EVN_ERROR_INTERNAL;
  std::thread one([&] {  // affinity is a thread's own
    cpu_set_t set;
    ::sched_getaffinity(0, sizeof set, &set);
    int core = 0;
    while (!CPU_ISSET(core, &set)) ++core;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    ::sched_setaffinity(0, sizeof set, &set);
    evn_runtime r = make_runtime(0);
    evn_device cpu = nullptr;
    evn_device_info info = EVN_DEVICE_INFO_INIT;
    if (evn_runtime_device_at(r, 0, &cpu, &error) == EVN_OK && evn_device_get_info(cpu, &info, &error) == EVN_OK)
      threads = info.compute_units;
    status = load_and_run_in(r, &got);
    evn_device_release(cpu);
    evn_runtime_release(r);
  });
  one.join();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(threads, 1u);
  EXPECT_EQ(status, EVN_OK);
  EXPECT_EQ(got, old_result);
}

struct SmallStack {
  EnvironmentTest* test;
  std::vector<float>* got;
  evn_status (EnvironmentTest::*call)(std::vector<float>*);
  evn_status status;
};

TEST_F(EnvironmentTest, E10_LoadingAndRunningFitsIntoAStackOf64KiB) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers make frames larger";
#endif
  std::vector<float> got;
  SmallStack s{this, &got, &EnvironmentTest::load_and_run, EVN_ERROR_INTERNAL};
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 64 << 10), 0);
  pthread_t thread;
  const auto body = [](void* p) -> void* {
    auto* arguments = static_cast<SmallStack*>(p);
    arguments->status = (arguments->test->*arguments->call)(arguments->got);
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, &s), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(s.status, EVN_OK) << error.message;
  EXPECT_EQ(got, old_result);
}

}  // namespace
}  // namespace evn::test
