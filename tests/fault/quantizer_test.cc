// The k-th allocation or file call fails, for every k, while a small model is quantized: a status each time, the file that was
// there stays, and the same bytes come once the fault is gone.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/fault.h"
#include "evener/quantize.h"
#include "tests/api/support.h"
#include "tests/support/turn.h"

namespace evn::test {
namespace {

std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Uses {
  evn_runtime runtime = nullptr;
  evn_device cpu = nullptr;
  evn_tensor input = nullptr;
  evn_quantizer quantizer = nullptr;
  evn_model model = nullptr;
  evn_session session = nullptr;
  ~Uses() {
    evn_session_release(session);
    evn_model_release(model);
    evn_quantizer_release(quantizer);
    evn_tensor_release(input);
    evn_device_release(cpu);
    evn_runtime_release(runtime);
  }
};

// `guarded`: by its error, as times would not come out the same.
evn_status quantize(const std::string& from, const std::string& to, bool guarded, evn_error* error,
                    evn_quantize_mode mode = EVN_QUANTIZE_STATIC, bool external = false) {
  Uses u;
  const int64_t dims[4] = {1, 3, 8, 8};
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.cache_dir = "";
  options.thread_count = 1;
  evn_quantizer_options how = EVN_QUANTIZER_OPTIONS_INIT;
  const bool calibrated = mode == EVN_QUANTIZE_STATIC;
  how.mode = mode;
  if (calibrated) how.calibration = EVN_CALIBRATION_MSE;
  if (mode == EVN_QUANTIZE_WEIGHTS) {
    how.weight_bits = 4;
    how.block_size = 16;
  }
  if (guarded) how.flags = EVN_QUANTIZE_QOPERATOR | EVN_QUANTIZE_EQUALIZE | EVN_QUANTIZE_SMOOTH | EVN_QUANTIZE_CORRECT_BIAS;
  if (external) how.flags |= EVN_QUANTIZE_EXTERNAL_DATA;
  evn_status s = evn_runtime_create(&options, &u.runtime, error);
  if (s == EVN_OK) s = evn_runtime_device_find(u.runtime, "cpu", &u.cpu, error);
  if (s == EVN_OK) s = evn_tensor_create(u.cpu, EVN_DTYPE_FLOAT32, dims, 4, 0, &u.input, error);
  void* data = nullptr;
  if (s == EVN_OK) s = evn_tensor_map(u.input, EVN_MAP_WRITE, &data, nullptr, error);
  if (s == EVN_OK) {
    for (int i = 0; i < 192; ++i) static_cast<float*>(data)[i] = 0.02f * static_cast<float>(i % 31) - 0.3f;
    s = evn_tensor_unmap(u.input, error);
  }
  if (s == EVN_OK) s = evn_quantizer_create(u.runtime, from.c_str(), &how, &u.quantizer, error);
  if (s == EVN_OK && calibrated) s = evn_quantizer_add_batch(u.quantizer, &u.input, 1, error);
  evn_guard_options guard = EVN_GUARD_OPTIONS_INIT;
  guard.flags = EVN_GUARD_ERROR;
  if (s == EVN_OK && guarded) s = evn_quantizer_guard(u.quantizer, &u.input, 1, &guard, error);
  if (s == EVN_OK) s = evn_quantizer_finish(u.quantizer, &u.model, error);
  if (s == EVN_OK) s = evn_quantizer_verify(u.quantizer, &u.input, 1, error);
  size_t size = 0;
  char text[4096];
  if (s == EVN_OK && guarded) s = evn_session_create(u.runtime, u.model, nullptr, &u.session, error);
  if (s == EVN_OK && guarded) {
    s = evn_session_compare(u.session, u.session, &u.input, 1, EVN_FORMAT_JSON, text, sizeof text, &size, error);
  }
  if (s == EVN_OK) s = evn_quantizer_report(u.quantizer, EVN_FORMAT_JSON, nullptr, 0, &size, error);
  if (s == EVN_OK) s = evn_quantizer_save(u.quantizer, to.c_str(), error);
  return s;
}

struct QuantizerFaultTest : testing::Test {
  std::string from, to, want;
  evn_error error = EVN_ERROR_INIT;

  void SetUp() override {
    const std::string stem = (std::filesystem::temp_directory_path() / ("evener_quantizer_" + std::to_string(getpid()))).string();
    from = stem + ".onnx";
    to = stem + ".int8.onnx";
    std::ofstream(from, std::ios::binary) << small_network().serialize();
    ASSERT_EQ(quantize(from, to, false, &error), EVN_OK) << error.message;
    want = bytes_of_file(to);
    ASSERT_GT(want.size(), 1000u);
  }
  void TearDown() override {
    for (int i = 0; i < kSeamCount; ++i) fault_arm(static_cast<Seam>(i), 0, false);
    std::filesystem::remove(from);
    std::filesystem::remove(to);
  }

  int fail_each(Seam seam, int step, evn_status allowed, bool guarded = false, evn_quantize_mode mode = EVN_QUANTIZE_STATIC) {
    const InTurn calls(seam == Seam::kAlloc ? 3 : 1);
    for (int k = calls.first; k < 1'000'000; k += step * calls.step) {
      std::ofstream(to, std::ios::binary) << "old";
      fault_arm(seam, k, false);
      error = EVN_ERROR_INIT;
      const evn_status status = quantize(from, to, guarded, &error, mode);
      const bool reached = fault_count(seam) >= k;
      fault_arm(seam, 0, false);
      if (!reached) {
        EXPECT_EQ(status, EVN_OK) << error.message;
        EXPECT_EQ(bytes_of_file(to), want);
        return k - 1;
      }
      const std::string there = bytes_of_file(to);
      if (status == EVN_OK) {
        EXPECT_EQ(there, want) << "call " << k;
      } else {
        EXPECT_EQ(status, allowed) << "call " << k << ": " << error.message;
        EXPECT_TRUE(there == "old" || there == want) << "call " << k;  // whole, whichever it is
      }
      if (HasFailure()) return k;
    }
    ADD_FAILURE() << "no end";
    return 0;
  }
};

TEST_F(QuantizerFaultTest, AllocationsThatFailAreAStatus) { EXPECT_GT(fail_each(Seam::kAlloc, 3, EVN_ERROR_OUT_OF_MEMORY), 1000); }

TEST_F(QuantizerFaultTest, AllocationsThatFailInTheGuardAreAStatus) {
  ASSERT_EQ(quantize(from, to, true, &error), EVN_OK) << error.message;
  want = bytes_of_file(to);
  EXPECT_GT(fail_each(Seam::kAlloc, 17, EVN_ERROR_OUT_OF_MEMORY, true), 3000);
}

TEST_F(QuantizerFaultTest, AllocationsThatFailInModesWithoutCalibrationAreAStatus) {
  for (const evn_quantize_mode mode : {EVN_QUANTIZE_WEIGHTS, EVN_QUANTIZE_FLOAT16, EVN_QUANTIZE_BFLOAT16}) {
    ASSERT_EQ(quantize(from, to, false, &error, mode), EVN_OK) << error.message;
    want = bytes_of_file(to);
    EXPECT_GT(fail_each(Seam::kAlloc, 5, EVN_ERROR_OUT_OF_MEMORY, false, mode), 500);
  }
}

// A product in a branch that is taken, in one that is not, and in a Loop's body.
// `wide`: and one with a large weight at the end.
std::string network_with_branches(bool wide = false) {
  std::vector<float> square(64), last(8 * 200, 0.25f);
  for (std::size_t i = 0; i < square.size(); ++i) square[i] = 0.03f * static_cast<float>(i % 11) - 0.1f;
  const auto product = [&](OnnxWriter& w, const char* from, const char* weight, const char* to) {
    w.add_initializer(weight, {8, 8}, square).add_node("MatMul", {from, weight}, {to}, {}, to);
  };
  OnnxWriter yes(13), no(13), body(13), w(13);
  product(yes, "h", "a", "ya");
  product(no, "h", "b", "yb");
  yes.add_output("ya");
  no.add_output("yb");
  body.add_input("i", kI64, {})
      .add_input("go", kBool, {})
      .add_input("state", kF32, {1, 3, 8, 8})
      .add_output("on", kBool)
      .add_output("next");
  product(body, "state", "c", "made");
  body.add_node("Add", {"made", "h"}, {"next"}).add_node("Identity", {"go"}, {"on"});
  w.add_input("x", kF32, {1, 3, 8, 8}).add_output(wide ? "all" : "out");
  if (wide) w.add_initializer("last", {8, 200}, last).add_node("MatMul", {"out", "last"}, {"all"});
  product(w, "x", "w", "h");
  w.add_initializer("zero", {}, std::vector<float>{-1e9f}).add_initializer("turns", {}, std::vector<std::int64_t>{2});
  w.add_node("ReduceSum", {"x"}, {"s"}, {{"keepdims", 0}}).add_node("Greater", {"s", "zero"}, {"c0"});
  w.add_node("If", {"c0"}, {"y"}, {Attr::graph("then_branch", yes.graph()), Attr::graph("else_branch", no.graph())}, "choice");
  w.add_node("Loop", {"turns", "", "y"}, {"out"}, {Attr::graph("body", body.graph())}, "turning");
  return w.serialize();
}

TEST_F(QuantizerFaultTest, AllocationsThatFailAmongBranchesAndBodiesAreAStatus) {
  std::ofstream(from, std::ios::binary) << network_with_branches();
  for (const auto& [mode, guarded, step] : {std::tuple{EVN_QUANTIZE_STATIC, true, 97}, std::tuple{EVN_QUANTIZE_DYNAMIC, false, 23},
                                            std::tuple{EVN_QUANTIZE_FLOAT16, false, 23}}) {
    ASSERT_EQ(quantize(from, to, guarded, &error, mode), EVN_OK) << error.message;
    want = bytes_of_file(to);
    EXPECT_GT(fail_each(Seam::kAlloc, step, EVN_ERROR_OUT_OF_MEMORY, guarded, mode), 1000);
  }
}

// Until both are on the disk, both old ones stay; then the data's comes first.
TEST_F(QuantizerFaultTest, FileCallsThatFailLeaveBothOldFilesWhole) {
  std::ofstream(from, std::ios::binary) << network_with_branches(true);
  const std::string data = to + ".data";
  ASSERT_EQ(quantize(from, to, false, &error, EVN_QUANTIZE_FLOAT16, true), EVN_OK) << error.message;
  const std::string model = bytes_of_file(to), constants = bytes_of_file(data);
  ASSERT_EQ(constants.size(), 2u * 8 * 200);
  ASSERT_NE(model.find(std::filesystem::path(data).filename().string()), std::string::npos);
  int old = 0;
  for (int k = 1;; ++k) {
    for (const std::string& file : {to, data}) std::ofstream(file, std::ios::binary) << "old";
    fault_arm(Seam::kIo, k, false);
    const evn_status status = quantize(from, to, false, &error, EVN_QUANTIZE_FLOAT16, true);
    const bool reached = fault_count(Seam::kIo) >= k;
    fault_arm(Seam::kIo, 0, false);
    if (!reached) break;
    ASSERT_TRUE(bytes_of_file(to) == "old" || bytes_of_file(to) == model) << "call " << k;
    ASSERT_TRUE(bytes_of_file(data) == "old" || bytes_of_file(data) == constants) << "call " << k;
    if (bytes_of_file(to) == model) {
      ASSERT_EQ(bytes_of_file(data), constants) << "call " << k;
    }
    if (status == EVN_OK) continue;
    ASSERT_EQ(status, EVN_ERROR_IO) << "call " << k << ": " << error.message;
    old += bytes_of_file(to) == "old" && bytes_of_file(data) == "old" ? 1 : 0;
  }
  EXPECT_GT(old, 6);  // of what is written before the first is renamed
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::temp_directory_path())) {
    EXPECT_EQ(entry.path().filename().string().find(".evn-" + std::to_string(getpid())), std::string::npos) << entry.path();
  }
  std::filesystem::remove(data);
}

TEST_F(QuantizerFaultTest, FileCallsThatFailAreAStatusAndTheOldFileStays) { EXPECT_GT(fail_each(Seam::kIo, 1, EVN_ERROR_IO), 4); }

}  // namespace
}  // namespace evn::test
