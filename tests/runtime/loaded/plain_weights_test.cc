// Constants whose plain bytes are let go for packed copies, and brought back from the model's file.
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "base/cancel.h"
#include "base/fault.h"
#include "runtime/loaded/plain_weights.h"
#include "tests/runtime/support.h"

namespace evn::test::plain_weights_test {
namespace {

constexpr std::int64_t kInner = 96, kColumns = 80;
constexpr std::size_t kWeightBytes = kInner * kColumns * 4;

// y = Relu(x W), with W in the file.
OnnxWriter product(std::int64_t inner = kInner, std::int64_t columns = kColumns) {
  std::vector<float> w(static_cast<std::size_t>(inner * columns));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 64;
  OnnxWriter m(17);
  m.add_input("x", kF32, {"n", inner}).add_output("y");
  m.add_initializer("w", {inner, columns}, w);
  m.add_node("MatMul", {"x", "w"}, {"p"}, {}, "product").add_node("Relu", {"p"}, {"y"});
  return m;
}

HostTensor rows(std::int64_t n, std::int64_t inner = kInner) {
  HostTensor x({DType::kFloat32, {n, inner}});
  for (std::size_t i = 0; i < x.as<float>().size(); ++i) x.as<float>()[i] = static_cast<float>(static_cast<int>(i % 17) - 8);
  return x;
}

struct PlainWeightsTest : RuntimeTest {
  std::string path =
      (std::filesystem::temp_directory_path() / ("evener_plain_weights_" + std::to_string(getpid()) + ".onnx")).string();

  void SetUp() override {
    RuntimeTest::SetUp();
    write(product().serialize());
  }
  void TearDown() override {
    std::filesystem::remove(path);
    RuntimeTest::TearDown();
  }
  void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
  // Changes one byte of W where it stands in the file. The time of the last change stays, as on a file system with coarse times.
  void change_a_weight(std::string bytes = product().serialize()) const {
    const auto time = std::filesystem::last_write_time(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    {
      std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
      file << bytes;
    }
    std::filesystem::last_write_time(path, time);
  }
  static const Weight& weight(const LoadedModel& model) {
    for (const Value& v : model.graph().values) {
      if (v.constant != nullptr && v.constant->size_bytes == kWeightBytes) return *v.constant;
    }
    throw std::logic_error("no weight");
  }
  static std::size_t bytes_of(const std::shared_ptr<Runtime>& runtime, MemoryClass cls) {
    return runtime->cpu().pool().stats().by_class[static_cast<int>(cls)];
  }
};

evn_status status_of(const std::function<void()>& body, std::string* message = nullptr) {
  try {
    body();
    return EVN_OK;
  } catch (const Error& e) {
    if (message != nullptr) *message = e.message;
    return e.status;
  } catch (const std::bad_alloc&) {
    return EVN_ERROR_OUT_OF_MEMORY;
  }
}

TEST_F(PlainWeightsTest, StayInTheFileWhereAllWhoReadThemHavePackedCopies) {
  const auto runtime = make_runtime();
  const ModelPtr model = load_model_file(runtime, path);
  EXPECT_EQ(weight(*model).data, nullptr);  // in the file yet
  EXPECT_LT(bytes_of(runtime, MemoryClass::kWeights), kWeightBytes / 8);
  TestSession session(model, "");
  EXPECT_EQ(weight(*model).data, nullptr);
  EXPECT_LT(bytes_of(runtime, MemoryClass::kWeights), kWeightBytes / 8);
  EXPECT_GE(bytes_of(runtime, MemoryClass::kPacked), kWeightBytes);
  TestSession of_buffer(load(runtime, product()), "");
  expect_close(run(session, {rows(3)}), run(of_buffer, {rows(3)}), 0, 0);
}

TEST_F(PlainWeightsTest, StayWithAModelThatCannotBeReadAgain) {
  const auto runtime = make_runtime();
  const ModelPtr model = load(runtime, product());
  TestSession session(model, "");
  EXPECT_NE(weight(*model).data, nullptr);
}

TEST_F(PlainWeightsTest, AnotherSessionWithTheSameKernelsReadsNothing) {
  const auto runtime = make_runtime();
  const ModelPtr model = load_model_file(runtime, path);
  TestSession first(model, "");
  fault_count_reset(Seam::kIo);
  TestSession second(model, "");
  EXPECT_EQ(fault_count(Seam::kIo), 0);
  fault_arm(Seam::kIo, 0, false);
  expect_close(run(second, {rows(2)}), run(first, {rows(2)}), 0, 0);
}

TEST_F(PlainWeightsTest, ComeBackForADeviceThatWantsThem) {
  const auto runtime = make_runtime(two_mocks());
  const ModelPtr model = load_model_file(runtime, path);
  TestSession first(model, "cpu");
  ASSERT_EQ(weight(*model).data, nullptr);
  std::filesystem::remove(path);  // the open file is enough
  TestSession other(model, "m");
  expect_close(run(other, {rows(4)}), run(first, {rows(4)}));
}

TEST_F(PlainWeightsTest, ReadingThemAgainStopsWithItsCaller) {
  for (const int threads : {1, 2}) {
    const auto runtime = make_runtime({}, 0, threads);
    const ModelPtr model = load_model_file(runtime, path);
    ASSERT_EQ(weight(*model).data, nullptr);
    PlainWeights::Access access(*model);
    const std::size_t before = bytes_of(runtime, MemoryClass::kWeights);
    {
      const std::atomic<bool> requested{true};
      Cancel cancel;
      cancel.requested = &requested;
      const CancelScope scope(cancel);
      EXPECT_EQ(status_of([&] { access.bring_back(weight(*model)); }), EVN_ERROR_CANCELLED);
    }
    EXPECT_EQ(weight(*model).data, nullptr);
    EXPECT_EQ(bytes_of(runtime, MemoryClass::kWeights), before);
    access.bring_back(weight(*model));
    EXPECT_NE(weight(*model).data, nullptr);
  }
}

TEST_F(PlainWeightsTest, AChangedFileIsAnErrorAndWhatRunsGoesOn) {
  const auto runtime = make_runtime(two_mocks());
  const ModelPtr model = load_model_file(runtime, path);
  TestSession first(model, "cpu");
  const std::vector<HostTensor> before = run(first, {rows(4)});
  change_a_weight();
  std::string message;
  EXPECT_EQ(status_of([&] { TestSession other(model, "m"); }, &message), EVN_ERROR_IO);
  EXPECT_NE(message.find("has changed since it was loaded"), std::string::npos) << message;
  write("no model any more");
  EXPECT_EQ(status_of([&] { TestSession other(model, "m"); }, &message), EVN_ERROR_IO);
  EXPECT_NE(message.find("has changed since"), std::string::npos) << message;
  expect_close(run(first, {rows(4)}), before, 0, 0);
  TestSession again(model, "cpu");
  expect_close(run(again, {rows(4)}), before, 0, 0);
}

TEST_F(PlainWeightsTest, AFileThatChangesBeforeTheFirstSessionIsAnError) {
  const auto runtime = make_runtime();
  const ModelPtr model = load_model_file(runtime, path);
  write("no model any more");
  std::string message;
  EXPECT_EQ(status_of([&] { TestSession session(model, ""); }, &message), EVN_ERROR_IO);
  EXPECT_NE(message.find("has changed since"), std::string::npos) << message;
}

// Of 2.2 MB, which are several parts: the threads read and pack them side by side, and none needs much memory of its own.
TEST_F(PlainWeightsTest, LargeOnesAreReadAndPackedInParts) {
  constexpr std::int64_t kManyRows = 701, kManyColumns = 803;
  const OnnxWriter large = product(kManyRows, kManyColumns);
  write(large.serialize());
  for (const int threads : {1, 2}) {
    const auto runtime = make_runtime(two_mocks(), 0, threads);
    const ModelPtr model = load_model_file(runtime, path);
    fault_count_reset(Seam::kIo);
    TestSession session(model, "cpu");
    EXPECT_GE(fault_count(Seam::kIo), 8);
    const PoolStats stats = runtime->cpu().pool().stats();
    EXPECT_LT(stats.peak, stats.by_class[static_cast<int>(MemoryClass::kPacked)] + static_cast<std::size_t>(threads) * (300 << 10));
    TestSession of_buffer(load(runtime, large), "cpu");
    const std::vector<HostTensor> found = run(session, {rows(3, kManyRows)});
    expect_close(found, run(of_buffer, {rows(3, kManyRows)}), 0, 0);
    TestSession other(model, "m");  // its checksum is that of the parts
    expect_close(run(other, {rows(3, kManyRows)}), found);
  }
}

TEST_F(PlainWeightsTest, AChangeOfALargeOneIsAnError) {
  const std::string bytes = product(701, 803).serialize();
  write(bytes);
  const auto runtime = make_runtime(two_mocks());
  const ModelPtr model = load_model_file(runtime, path);
  TestSession first(model, "cpu");
  change_a_weight(bytes);
  std::string message;
  EXPECT_EQ(status_of([&] { TestSession other(model, "m"); }, &message), EVN_ERROR_IO);
  EXPECT_NE(message.find("has changed since it was loaded"), std::string::npos) << message;
}

// Each allocation and each read is refused once, while a session is made.
TEST_F(PlainWeightsTest, ARefusedFirstSessionCanBeMadeAgain) {
  const OnnxWriter large = product(300, 500);
  write(large.serialize());
  for (const Seam seam : {Seam::kAlloc, Seam::kIo}) {
    const auto runtime = make_runtime();
    const ModelPtr model = load_model_file(runtime, path);
    int refused = 0;
    for (std::int64_t k = 1;; ++k) {
      fault_arm(seam, k, false);
      const evn_status status = status_of([&] { TestSession other(model, ""); });
      fault_arm(seam, 0, false);
      if (status == EVN_OK) break;
      ASSERT_EQ(status, seam == Seam::kAlloc ? EVN_ERROR_OUT_OF_MEMORY : EVN_ERROR_IO);
      ++refused;
    }
    EXPECT_GT(refused, 0);
    TestSession session(model, ""), of_buffer(load(runtime, large), "");
    expect_close(run(session, {rows(3, 300)}), run(of_buffer, {rows(3, 300)}), 0, 0);
  }
}

// Each allocation and each read is refused once, while a session brings bytes back.
TEST_F(PlainWeightsTest, ARefusalLeavesTheModelAsItWas) {
  for (const Seam seam : {Seam::kAlloc, Seam::kIo}) {
    const auto runtime = make_runtime(two_mocks());
    const ModelPtr model = load_model_file(runtime, path);
    TestSession first(model, "cpu");
    const std::vector<HostTensor> wanted = run(first, {rows(4)});
    int refused = 0;
    for (std::int64_t k = 1;; ++k) {
      fault_arm(seam, k, false);
      const evn_status status = status_of([&] { TestSession other(model, "m"); });
      fault_arm(seam, 0, false);
      if (status == EVN_OK) break;
      ASSERT_EQ(status, seam == Seam::kAlloc ? EVN_ERROR_OUT_OF_MEMORY : EVN_ERROR_IO);
      ++refused;
    }
    EXPECT_GE(refused, 3);
    TestSession other(model, "m");
    expect_close(run(other, {rows(4)}), wanted);
    expect_close(run(first, {rows(4)}), wanted, 0, 0);
  }
}

TEST_F(PlainWeightsTest, ARefusalWhileAFileIsLoadedLeavesNothingBehind) {
  const auto runtime = make_runtime();
  const std::size_t before = runtime->cpu().pool().stats().current;
  for (const Seam seam : {Seam::kAlloc, Seam::kIo}) {
    int refused = 0;
    for (std::int64_t k = 1;; ++k) {
      fault_arm(seam, k, false);
      const evn_status status = status_of([&] { TestSession session(load_model_file(runtime, path), ""); });
      fault_arm(seam, 0, false);
      EXPECT_EQ(runtime->cpu().pool().stats().current, before);
      if (status == EVN_OK) break;
      ASSERT_EQ(status, seam == Seam::kAlloc ? EVN_ERROR_OUT_OF_MEMORY : EVN_ERROR_IO);
      ++refused;
    }
    EXPECT_GE(refused, 5);
  }
}

// A file is read in pieces, a buffer is all there: they must agree on every model, wrong ones too.
TEST_F(PlainWeightsTest, AFileIsRefusedForWhatABufferIs) {
  const auto runtime = make_runtime();
  const std::string good = product().serialize();
  std::uint64_t state = 1;
  const auto draw = [&](std::size_t below) {
    return static_cast<std::size_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % below;
  };
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    const std::size_t near = draw(2) == 0 ? 200 : bytes.size();  // the structure is at the ends
    const std::size_t at = draw(2) == 0 ? draw(near) : bytes.size() - 1 - draw(near);
    if (draw(4) == 0) bytes.resize(at);
    else bytes[at] = static_cast<char>(draw(256));
    std::string of_buffer = "loads", of_file = "loads";
    const auto wanted = status_of([&] { load_model_buffer(runtime, bytes.data(), bytes.size(), ""); }, &of_buffer);
    write(bytes);
    const auto found = status_of([&] { load_model_file(runtime, path); }, &of_file);
    ASSERT_EQ(found, wanted) << i << ": " << of_buffer << " / " << of_file;
    refused += wanted != EVN_OK;
  }
  EXPECT_GT(refused, 300);
}

// With several threads constants are packed together: of a small model only as many as do not show.
TEST_F(PlainWeightsTest, ASmallModelIsLoadedInLittleMoreThanItHolds) {
  constexpr std::int64_t kSize = 512, kProducts = 24;
  std::mt19937 random(1);
  OnnxWriter m(17);
  m.add_input("x", kU8, {"n", kSize});
  for (std::int64_t i = 0; i < kProducts; ++i) {
    const std::int64_t columns = i + 1 < kProducts ? kSize : 4 * kSize;
    std::vector<std::int8_t> w(static_cast<std::size_t>(kSize * columns));
    for (std::int8_t& v : w) v = static_cast<std::int8_t>(random());
    const std::string number = std::to_string(i);
    m.add_initializer("w" + number, {kSize, columns}, w).add_output("y" + number, kI32);
    m.add_node("MatMulInteger", {"x", "w" + number}, {"y" + number});
  }
  for (const bool from_file : {false, true}) {
    const auto runtime = make_runtime({}, 0, 2);
    if (from_file) write(m.serialize());
    TestSession session(from_file ? load_model_file(runtime, path) : load(runtime, m), "");
    const PoolStats stats = runtime->cpu().pool().stats();
    EXPECT_LT(stats.peak, stats.current + stats.current / 5) << from_file;
  }
}

}  // namespace
}  // namespace evn::test::plain_weights_test
