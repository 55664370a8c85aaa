// The k-th call of each seam fails, for every k, over load, session and run of a small model: a status each time, nothing lost, and
// the same bits once the fault is gone.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/fault.h"
#include "tests/api/support.h"
#include "tests/support/turn.h"

namespace evn::test {
namespace {

const int64_t kDims[4] = {1, 3, 8, 8};

struct Handles {
  evn_runtime runtime = nullptr;
  evn_device cpu = nullptr;
  evn_model model = nullptr;
  evn_session session = nullptr;
  evn_tensor input = nullptr;
  evn_tensor output = nullptr;
  ~Handles() {
    evn_tensor_release(output);
    evn_tensor_release(input);
    evn_session_release(session);
    evn_model_release(model);
    evn_device_release(cpu);
    evn_runtime_release(runtime);
  }
};

// Everything that a host does with a small model; allocates nothing itself. Fills `result` on success.
evn_status whole_use(const char* path, int threads, std::vector<float>* result, evn_error* error) {
  Handles h;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.cache_dir = "";
  options.thread_count = threads;
  static const char kYaml[] =
      "limits: {nodes: 1000}\ndevices:\n  cpu: {type: cpu}\nplacement:\n  rules:\n    - {match: {op: Conv}, device: cpu, policy: "
      "prefer}\n";
  options.config_text = kYaml;
  options.config_size = sizeof kYaml - 1;
  evn_status s = evn_runtime_create(&options, &h.runtime, error);
  if (s == EVN_OK) s = evn_runtime_device_find(h.runtime, "cpu", &h.cpu, error);
  if (s == EVN_OK) s = evn_model_load_file(h.runtime, path, nullptr, &h.model, error);
  if (s == EVN_OK) s = evn_session_create(h.runtime, h.model, nullptr, &h.session, error);
  if (s == EVN_OK) s = evn_tensor_create(h.cpu, EVN_DTYPE_FLOAT32, kDims, 4, 0, &h.input, error);
  void* data = nullptr;
  if (s == EVN_OK) s = evn_tensor_map(h.input, EVN_MAP_WRITE, &data, nullptr, error);
  if (s == EVN_OK) {
    for (int i = 0; i < 192; ++i) static_cast<float*>(data)[i] = 0.01f * static_cast<float>(i % 31) - 0.1f;
    s = evn_tensor_unmap(h.input, error);
  }
  if (s == EVN_OK) s = evn_session_run(h.session, &h.input, 1, &h.output, 1, nullptr, error);
  size_t size = 0;
  if (s == EVN_OK) s = evn_session_explain(h.session, EVN_FORMAT_JSON, nullptr, 0, &size, error);
  if (s == EVN_OK) s = evn_tensor_map(h.output, EVN_MAP_READ, &data, &size, error);
  if (s == EVN_OK) std::memcpy(result->data(), data, size);
  return s;
}

struct FaultTest : testing::Test {
  std::string path;
  std::vector<float> want = std::vector<float>(10);
  evn_error error = EVN_ERROR_INIT;

  void SetUp() override {
    path = (std::filesystem::temp_directory_path() / ("evener_fault_" + std::to_string(getpid()) + ".onnx")).string();
    std::ofstream(path, std::ios::binary) << small_network().serialize();
    ASSERT_EQ(whole_use(path.c_str(), 2, &want, &error), EVN_OK) << error.message;
  }
  void TearDown() override {
    for (int i = 0; i < kSeamCount; ++i) fault_arm(static_cast<Seam>(i), 0, false);
    std::filesystem::remove(path);
  }

  // Fails call k for k = 1, 2, ... until the use succeeds untouched; returns how many calls it has.
  int fail_each(Seam seam, bool forever, const std::vector<evn_status>& allowed, int threads) {
    std::vector<float> got(10);
    const InTurn calls(seam == Seam::kAlloc ? 3 : 1);
    for (int k = calls.first; k < 100000; k += calls.step) {
      fault_arm(seam, k, forever);
      error = EVN_ERROR_INIT;
      const evn_status status = whole_use(path.c_str(), threads, &got, &error);
      const bool reached = fault_count(seam) >= k;
      fault_arm(seam, 0, false);
      if (!reached) {
        EXPECT_EQ(status, EVN_OK);
        EXPECT_EQ(got, want);
        return k - 1;
      }
      if (status == EVN_OK) {
        EXPECT_EQ(got, want) << "call " << k;  // the fault was survived
      } else {
        EXPECT_NE(std::find(allowed.begin(), allowed.end(), status), allowed.end())
            << "call " << k << ": " << evn_status_name(status) << ": " << error.message;
      }
      if (HasFailure()) return k;
    }
    ADD_FAILURE() << "no end";
    return 0;
  }
};

TEST_F(FaultTest, EveryAllocationThatFailsOnceIsAStatus) {
  const int calls = fail_each(Seam::kAlloc, false, {EVN_ERROR_OUT_OF_MEMORY}, 2);
  std::printf("%d allocations failed one by one\n", calls);
  EXPECT_GT(calls, 200);
}

TEST_F(FaultTest, AllAllocationsFromTheKthOnFailing) {
  const int calls = fail_each(Seam::kAlloc, true, {EVN_ERROR_OUT_OF_MEMORY}, 2);
  EXPECT_GT(calls, 200);
}

TEST_F(FaultTest, EveryFileCallThatFailsIsAStatus) {
  EXPECT_GT(fail_each(Seam::kIo, false, {EVN_ERROR_IO}, 1), 2);
  EXPECT_GT(fail_each(Seam::kIo, true, {EVN_ERROR_IO}, 1), 2);
}

TEST_F(FaultTest, EveryThreadThatCannotStartIsAStatus) {
  // The small model has one tile a node at most times: with 4 threads some node starts them.
  std::vector<float> got(10);
  fault_arm(Seam::kThread, 1, true);
  const evn_status status = whole_use(path.c_str(), 4, &got, &error);
  EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_NO_THREADS) << error.message;
  fault_arm(Seam::kThread, 0, false);
  EXPECT_EQ(whole_use(path.c_str(), 4, &got, &error), EVN_OK);
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace evn::test
