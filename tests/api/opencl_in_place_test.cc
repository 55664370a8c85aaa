// Inputs and outputs in memory of the host that an OpenCL device uses where it lies: no bytes are copied, and nothing else is
// different.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <thread>

#include "base/fault.h"
#include "tests/api/opencl_support.h"
#include "tests/support/eventually.h"

namespace evn::test::opencl_in_place_test {
namespace {

constexpr std::int64_t kCount = 192 << 10;  // elements, which are more bytes than a copy is worth
constexpr std::size_t kBytes = kCount * sizeof(float);
constexpr std::size_t kPage = 4096;

// Memory at so many bytes from the begin of a page.
class Block {
 public:
  explicit Block(std::size_t skip = 0) : skip_(skip), memory_(static_cast<char*>(std::aligned_alloc(kPage, kBytes + 2 * kPage))) {}
  ~Block() { std::free(memory_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  float* data() const { return reinterpret_cast<float*>(memory_ + skip_); }
  void fill(const std::vector<float>& values) { std::memcpy(data(), values.data(), values.size() * sizeof(float)); }
  std::vector<float> values() const { return {data(), data() + kCount}; }

 private:
  const std::size_t skip_;
  char* const memory_;
};

std::vector<float> relu_of(std::vector<float> v, bool negated = false) {
  for (float& x : v) x = std::max(negated ? -x : x, 0.0f);
  return v;
}

struct OpenClInPlace : OpenClApiTest {
  evn_model model = nullptr;
  evn_session session = nullptr;

  void make(int nodes = 1) {
    make_runtime();
    load_relu(&model, &session, nodes);
  }
  void TearDown() override {
    fault_arm(Seam::kDevice, 0, false);
    if (driver == nullptr) return;
    evn_session_release(session);
    evn_model_release(model);
    if (gpu != nullptr) {
      evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
      EXPECT_TRUE(eventually([&] { return evn_device_get_memory_stats(gpu, &stats, nullptr) == EVN_OK && stats.current == 0; }))
          << stats.current << " bytes are in use";
    }
    if (runtime != nullptr) OpenClApiTest::TearDown();
  }

  evn_tensor wrap_at(float* data, evn_deleter deleter = nullptr, void* user = nullptr, std::int64_t count = kCount) {
    const int64_t dims[] = {1, 1, 1, count};
    evn_tensor t = nullptr;
    EXPECT_OK(evn_tensor_wrap(runtime, data, static_cast<std::size_t>(count) * sizeof(float), EVN_DTYPE_FLOAT32, dims, 4, deleter,
                              user, &t, &error));
    return t;
  }
  evn_status run(evn_session s, evn_tensor x, evn_tensor y, std::uint64_t timeout_ns = 0) {
    evn_run_options options = EVN_RUN_OPTIONS_INIT;
    options.timeout_ns = timeout_ns;
    error = EVN_ERROR_INIT;
    return evn_session_run(s, &x, 1, &y, 1, &options, &error);
  }
  // A run between two blocks; the bytes that are copied for it.
  int transfers_of(const Block& in, const Block& out, std::uint64_t timeout_ns = 0) {
    const evn_tensor x = wrap_at(in.data()), y = wrap_at(out.data());
    const int before = driver->transfers();
    EXPECT_EQ(run(session, x, y, timeout_ns), EVN_OK) << error.message;
    const int transfers = driver->transfers() - before;
    EXPECT_EQ(evn_tensor_release(x), EVN_OK);
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
    return transfers;
  }
};

TEST_F(OpenClInPlace, BitsAreEqualWhereverTheMemoryLies) {
  make();
  const std::vector<float> values = ramp(kCount, -1000.25f), want = relu_of(values);
  for (const std::size_t in_skip : {0, 128, 64, 4}) {
    for (const std::size_t out_skip : {0, 256, 192, 20}) {
      Block in(in_skip), out(out_skip);
      in.fill(values);
      const int copied = (in_skip % 128 != 0) + (out_skip % 128 != 0);
      EXPECT_EQ(transfers_of(in, out), copied) << in_skip << " and " << out_skip;
      EXPECT_EQ(out.values(), want) << in_skip << " and " << out_skip;
      EXPECT_EQ(in.values(), values);
    }
  }
}

TEST_F(OpenClInPlace, SmallTensorsAreCopied) {
  make();
  Block in, out;
  in.fill(ramp(kCount, -5));
  const evn_tensor x = wrap_at(in.data(), nullptr, nullptr, 64), y = wrap_at(out.data(), nullptr, nullptr, 64);
  const int before = driver->transfers();
  ASSERT_EQ(run(session, x, y), EVN_OK) << error.message;
  EXPECT_EQ(driver->transfers() - before, 2);
  EXPECT_EQ(driver->calls(OpenClDriver::kMap), 0);
  for (evn_tensor t : {x, y}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(OpenClInPlace, TheHostChangesInputsBetweenRuns) {
  make();
  Block in, out;
  const evn_tensor x = wrap_at(in.data()), y = wrap_at(out.data());
  for (int round = 0; round < 20; ++round) {
    const std::vector<float> values = ramp(kCount, -100.5f * static_cast<float>(round));
    in.fill(values);
    ASSERT_EQ(run(session, x, y), EVN_OK) << error.message;
    ASSERT_EQ(out.values(), relu_of(values)) << round;
    out.fill(values);  // the next run writes over it
  }
  EXPECT_EQ(driver->transfers(), 0);
  EXPECT_EQ(driver->calls(OpenClDriver::kMap), 40) << "each run gives both back to the host";
  EXPECT_EQ(driver->calls(OpenClDriver::kUnmap), 38);
  for (evn_tensor t : {x, y}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  EXPECT_EQ(driver->calls(OpenClDriver::kUnmap), 40) << "nothing is mapped when the memory may go";
}

TEST_F(OpenClInPlace, AnOutputIsTheNextRunsInput) {
  make(2);
  Block blocks[2];
  std::vector<float> want = ramp(kCount, -7);
  blocks[0].fill(want);
  const evn_tensor tensors[] = {wrap_at(blocks[0].data()), wrap_at(blocks[1].data())};
  for (int round = 0; round < 6; ++round) {
    ASSERT_EQ(run(session, tensors[round % 2], tensors[(round + 1) % 2]), EVN_OK) << error.message;
    want = relu_of(want, true);
    ASSERT_EQ(blocks[(round + 1) % 2].values(), want) << round;
    for (std::size_t i = 0; i < want.size(); ++i) want[i] -= static_cast<float>(i % 13) - 6;
    blocks[(round + 1) % 2].fill(want);
  }
  EXPECT_EQ(driver->transfers(), 0);
  for (evn_tensor t : tensors) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(OpenClInPlace, SessionsAndThreadsShareAnInput) {
  make();
  evn_model other_model = nullptr;
  evn_session other = nullptr;
  load_relu(&other_model, &other, 2);
  Block in;
  const std::vector<float> values = ramp(kCount, -20000);
  in.fill(values);
  const evn_tensor x = wrap_at(in.data());
  const std::vector<float> wants[] = {relu_of(values), relu_of(values, true)};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Block out;
      evn_error e = EVN_ERROR_INIT;
      const int64_t dims[] = {1, 1, 1, kCount};
      for (int round = 0; round < 15; ++round) {
        evn_tensor y = nullptr;
        wrong += evn_tensor_wrap(runtime, out.data(), kBytes, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &y, &e) != EVN_OK;
        wrong += evn_session_run(t % 2 == 0 ? session : other, &x, 1, &y, 1, nullptr, &e) != EVN_OK;
        wrong += out.values() != wants[t % 2];
        wrong += evn_tensor_release(y) != EVN_OK;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(in.values(), values);
  EXPECT_EQ(driver->transfers(), 0);
  EXPECT_EQ(evn_tensor_release(x), EVN_OK);
  EXPECT_EQ(evn_session_release(other), EVN_OK);
  EXPECT_EQ(evn_model_release(other_model), EVN_OK);
}

TEST_F(OpenClInPlace, TwoHandlesOfTheSameMemory) {
  make();
  Block block;
  const std::vector<float> values = ramp(kCount, -9);
  block.fill(values);
  const evn_tensor whole = wrap_at(block.data()), again = wrap_at(block.data());
  const evn_tensor part = wrap_at(block.data() + 1024, nullptr, nullptr, kCount - 1024);
  Block out;
  const evn_tensor y = wrap_at(out.data()), shorter = wrap_at(out.data(), nullptr, nullptr, kCount - 1024);
  ASSERT_EQ(run(session, whole, y), EVN_OK) << error.message;
  ASSERT_EQ(run(session, again, y), EVN_OK) << error.message;
  EXPECT_EQ(out.values(), relu_of(values));
  EXPECT_EQ(driver->transfers(), 0);
  // Other bytes of memory that is shared already are no second buffer.
  ASSERT_EQ(run(session, part, shorter), EVN_OK) << error.message;
  EXPECT_EQ(driver->transfers(), 2);
  EXPECT_EQ(out.values()[0], relu_of(values)[1024]);
  for (evn_tensor t : {whole, again, y}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
  ASSERT_EQ(run(session, part, shorter), EVN_OK) << error.message;
  EXPECT_EQ(driver->transfers(), 2);
  for (evn_tensor t : {part, shorter}) EXPECT_EQ(evn_tensor_release(t), EVN_OK);
}

TEST_F(OpenClInPlace, AnInputThatIsTheOutputToo) {
  make(2);
  Block block;
  const std::vector<float> values = ramp(kCount, -77);
  block.fill(values);
  const evn_tensor t = wrap_at(block.data()), same = wrap_at(block.data());
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.flags = EVN_RUN_OVERWRITE_INPUTS;
  evn_tensor out = same;
  ASSERT_OK(evn_session_run(session, &t, 1, &out, 1, &options, &error));
  EXPECT_EQ(block.values(), relu_of(values, true));
  for (evn_tensor each : {t, same}) EXPECT_EQ(evn_tensor_release(each), EVN_OK);
}

TEST_F(OpenClInPlace, MemoryStaysUntilARunInFlightHasEnded) {
  make();
  Block in;
  const std::vector<float> values = ramp(kCount, -3);
  in.fill(values);
  std::atomic<int> gone{0};
  const evn_deleter deleter = [](void* user, void*) { ++*static_cast<std::atomic<int>*>(user); };
  const evn_tensor x = wrap_at(in.data(), deleter, &gone);
  evn_tensor warm = nullptr;
  ASSERT_OK(evn_session_run(session, &x, 1, &warm, 1, nullptr, &error));
  EXPECT_EQ(evn_tensor_release(warm), EVN_OK);
  driver->hold();
  std::vector<float> got;
  std::thread running([&] {
    evn_tensor y = nullptr;
    evn_error e = EVN_ERROR_INIT;
    EXPECT_EQ(evn_session_run(session, &x, 1, &y, 1, nullptr, &e), EVN_OK) << e.message;
    got = read(y);
    EXPECT_EQ(evn_tensor_release(y), EVN_OK);
  });
  EXPECT_TRUE(eventually([&] { return driver->holds(); }));
  EXPECT_EQ(evn_tensor_release(x), EVN_OK);
  EXPECT_EQ(gone, 0);
  driver->let_go();
  running.join();
  EXPECT_EQ(got, relu_of(values));
  EXPECT_TRUE(eventually([&] { return gone == 1; }));
}

TEST_F(OpenClInPlace, ARunWhoseTimeIsOverLeavesMemoryThatIsKept) {
  make();
  Block in;
  const std::vector<float> values = ramp(kCount, -3);
  in.fill(values);
  std::atomic<int> gone{0};
  const evn_deleter deleter = [](void* user, void*) { ++*static_cast<std::atomic<int>*>(user); };
  const evn_tensor x = wrap_at(in.data(), deleter, &gone);
  evn_tensor y = nullptr;
  ASSERT_OK(evn_session_run(session, &x, 1, &y, 1, nullptr, &error));
  EXPECT_EQ(evn_tensor_release(y), EVN_OK);
  driver->hold();
  for (std::uint64_t timeout_ns = 1'000'000; !driver->holds(); timeout_ns *= 2) {
    y = nullptr;
    ASSERT_EQ(run(session, x, y, timeout_ns), EVN_ERROR_TIMEOUT) << error.message;
  }
  EXPECT_EQ(driver->waited_for_held(), 0);
  EXPECT_EQ(evn_tensor_release(x), EVN_OK);
  EXPECT_EQ(gone, 0) << "the kernel reads it";
  driver->let_go();
  EXPECT_TRUE(eventually([&] { return gone == 1; }));
}

TEST_F(OpenClInPlace, MemoryThatMayGoIsCopiedWhereARunMayEndEarly) {
  make();
  Block in, out;
  const std::vector<float> values = ramp(kCount, -3);
  in.fill(values);
  EXPECT_EQ(transfers_of(in, out, std::uint64_t{3600} * 1'000'000'000), 2);
  EXPECT_EQ(out.values(), relu_of(values));
}

TEST_F(OpenClInPlace, ADeviceThatSeesAllMemoryIsNotAskedToMap) {
  driver->share_all_memory();
  make();
  Block in(128), out(128);
  for (int round = 0; round < 3; ++round) {
    const std::vector<float> values = ramp(kCount, -100.0f - static_cast<float>(round));
    in.fill(values);
    EXPECT_EQ(transfers_of(in, out), 0);
    EXPECT_EQ(out.values(), relu_of(values));
  }
  EXPECT_EQ(driver->calls(OpenClDriver::kMap) + driver->calls(OpenClDriver::kUnmap), 0);
}

TEST_F(OpenClInPlace, ADriverThatWorksInACopyIsFoundOut) {
  driver->use_host_memory_at(SIZE_MAX, 1);
  make();
  Block in, out;
  const std::vector<float> values = ramp(kCount, -1);
  in.fill(values);
  EXPECT_EQ(transfers_of(in, out), 2);
  EXPECT_EQ(out.values(), relu_of(values));
}

TEST_F(OpenClInPlace, ADriverMayWantWholePages) {
  driver->use_host_memory_at(kPage, 64);
  make();
  const std::vector<float> values = ramp(kCount, -1);
  for (const std::size_t skip : {std::size_t{0}, std::size_t{128}}) {
    Block in(skip), out(skip);
    in.fill(values);
    EXPECT_EQ(transfers_of(in, out), skip == 0 ? 0 : 2);
    EXPECT_EQ(out.values(), relu_of(values));
  }
}

TEST_F(OpenClInPlace, ADeviceWithMemoryOfItsOwnCopies) {
  driver->have_own_memory();
  make();
  Block in, out;
  in.fill(ramp(kCount, -1));
  EXPECT_EQ(transfers_of(in, out), 2);
}

TEST_F(OpenClInPlace, ExplainAndTracesShowNoCopiesThatAreNotMade) {
  make();
  const auto text = [&](const auto& call) {
    std::size_t size = 0;
    EXPECT_OK(call(nullptr, 0, &size));
    std::string t(size, '\0');
    EXPECT_OK(call(t.data(), size, &size));
    return t;
  };
  Block in, out, elsewhere(4);
  in.fill(ramp(kCount, -1));
  elsewhere.fill(ramp(kCount, -1));
  for (const bool in_place : {true, false}) {
    ASSERT_OK(evn_session_trace_start(session, 1000, &error));
    EXPECT_EQ(transfers_of(in_place ? in : elsewhere, out), in_place ? 0 : 1);
    ASSERT_OK(evn_session_trace_stop(session, &error));
    const std::string trace = text(
        [&](char* b, std::size_t c, std::size_t* s) { return evn_session_get_trace(session, EVN_FORMAT_JSON, b, c, s, &error); });
    EXPECT_EQ(trace.find("copy x") != std::string::npos, !in_place) << trace;
    EXPECT_EQ(trace.find("copy y"), std::string::npos);
    const std::string explained = text(
        [&](char* b, std::size_t c, std::size_t* s) { return evn_session_explain(session, EVN_FORMAT_TEXT, b, c, s, &error); });
    EXPECT_EQ(explained.find("cpu -> opencl:0") != std::string::npos, !in_place) << explained;
    EXPECT_EQ(explained.find("opencl:0 -> cpu"), std::string::npos) << explained;
  }
}

TEST_F(OpenClInPlace, EachCallMayFail) {
  make();
  Block in, out;
  const std::vector<float> values = ramp(kCount, -500), want = relu_of(values);
  in.fill(values);
  ASSERT_EQ(transfers_of(in, out), 0);
  for (const bool forever : {false, true}) {
    int errors = 0;
    for (std::int64_t k = 1;; ++k) {
      ASSERT_LT(k, 200);
      const evn_tensor x = wrap_at(in.data()), y = wrap_at(out.data());
      std::memset(out.data(), 0, kBytes);
      fault_arm(Seam::kDevice, k, forever);
      const evn_status first = run(session, x, y);
      if (first == EVN_OK) {
        EXPECT_EQ(out.values(), want) << k;
      }
      const evn_status second = run(session, x, y);
      const bool reached = fault_count(Seam::kDevice) >= k;
      if (second == EVN_OK) {
        EXPECT_EQ(out.values(), want) << k;
      }
      EXPECT_EQ(evn_tensor_release(x), EVN_OK);  // a call may fail here too
      fault_arm(Seam::kDevice, 0, false);
      errors += first != EVN_OK || second != EVN_OK;
      EXPECT_EQ(evn_tensor_release(y), EVN_OK);
      ASSERT_EQ(transfers_of(in, out), 0);
      ASSERT_EQ(out.values(), want) << k;
      if (!reached) break;
    }
    EXPECT_GT(errors, 3);
  }
}

// In a process of their own: a driver makes two devices of one only when it is first asked.
struct OpenClInPlaceChild : OpenClInPlace {};
TEST_F(OpenClInPlaceChild, DISABLED_TwoDevicesAndTheCpuUseTheSameMemory) {
  make_runtime(
      "devices:\n  first: {type: opencl}\n  second: {type: opencl, match: {index: 1}}\n"
      "placement:\n  rules:\n"
      "    - {match: {name: g}, device: first, policy: require}\n"
      "    - {match: {name: h}, device: second, policy: require}\n"
      "    - {match: {name: c}, device: cpu, policy: require}\n");
  OnnxWriter w(13);
  w.add_input("x", kF32, {1, 1, 1, kCount}).add_output("a", kF32).add_output("b", kF32).add_output("d", kF32);
  w.add_node("Neg", {"x"}, {"a"}, {}, "g").add_node("Relu", {"x"}, {"b"}, {}, "h").add_node("Abs", {"x"}, {"d"}, {}, "c");
  const std::string bytes = w.serialize();
  ASSERT_OK(evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error));
  ASSERT_OK(evn_session_create(runtime, model, nullptr, &session, &error));
  driver->count_anew();
  Block in;
  std::vector<float> values = ramp(kCount, -90000);
  in.fill(values);
  const evn_tensor x = wrap_at(in.data());
  std::atomic<int> wrong{0};
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        Block out[3];
        evn_tensor y[3] = {};
        evn_error e = EVN_ERROR_INIT;
        const int64_t dims[] = {1, 1, 1, kCount};
        for (int k = 0; k < 3; ++k)
          wrong +=
              evn_tensor_wrap(runtime, out[k].data(), kBytes, EVN_DTYPE_FLOAT32, dims, 4, nullptr, nullptr, &y[k], &e) != EVN_OK;
        for (int i = 0; i < 5; ++i) {
          wrong += evn_session_run(session, &x, 1, y, 3, nullptr, &e) != EVN_OK;
          for (std::size_t n = 0; n < values.size(); ++n) {
            wrong += out[0].data()[n] != -values[n];
            wrong += out[1].data()[n] != std::max(values[n], 0.0f);
            wrong += out[2].data()[n] != std::abs(values[n]);
          }
        }
        for (evn_tensor each : y) wrong += evn_tensor_release(each) != EVN_OK;
      });
    }
    for (std::thread& t : threads) t.join();
    for (float& v : values) v += 1000;
    in.fill(values);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(driver->transfers(), 0);
  EXPECT_EQ(evn_tensor_release(x), EVN_OK);
}

TEST(OpenClInPlaceOnTwoDevices, UseTheSameMemory) {
  EVN_NEEDS_OPENCL();
  std::string why;
  if (find_opencl_devices(&why)[0].platform_name != "Portable Computing Language")
    GTEST_SKIP() << "only PoCL makes two devices of one";
  char self[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  const std::string command = "POCL_DEVICES='pthread pthread' '" + std::string(self) +
                              "' --gtest_also_run_disabled_tests --gtest_brief=1 --gtest_filter='*OpenClInPlaceChild.*'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace evn::test::opencl_in_place_test
