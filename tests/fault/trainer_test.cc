// The k-th allocation or file call of the library fails, for every k, while a small model is trained: a status each time,
// parameters as after the last good step, and files that are whole.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/fault.h"
#include "evener/train.h"
#include "tests/api/support.h"

namespace evn::test {
namespace {

struct Training {
  evn_runtime runtime = nullptr;
  evn_device cpu = nullptr;
  evn_tensor input = nullptr, labels = nullptr;
  evn_trainer trainer = nullptr;
  ~Training() {
    evn_trainer_release(trainer);
    for (evn_tensor t : {input, labels}) evn_tensor_release(t);
    evn_device_release(cpu);
    evn_runtime_release(runtime);
  }
};

struct TrainerFaultTest : testing::Test {
  std::string bytes = small_network().serialize(), exported;
  std::vector<std::string> want;  // after each step
  evn_error error = EVN_ERROR_INIT;
  evn_trainer_options how = EVN_TRAINER_OPTIONS_INIT;

  void SetUp() override {
    exported = (std::filesystem::temp_directory_path() / ("evener_trainer_" + std::to_string(getpid()) + ".onnx")).string();
    std::vector<std::string> seen;
    ASSERT_EQ(train(&seen), EVN_OK) << error.message;
    want = seen;
    ASSERT_EQ(want.size(), 3u);
    ASSERT_NE(want[1], want[2]);
  }
  void TearDown() override {
    for (int i = 0; i < kSeamCount; ++i) fault_arm(static_cast<Seam>(i), 0, false);
    std::filesystem::remove(exported);
  }

  // All parameters, with no call that fails.
  std::string parameters(const Training& t) {
    std::string all;
    uint32_t count = 0;
    EXPECT_EQ(evn_trainer_parameter_count(t.trainer, &count, &error), EVN_OK);
    for (uint32_t i = 0; i < count; ++i) {
      evn_tensor tensor = nullptr;
      void* data = nullptr;
      size_t size = 0;
      EXPECT_EQ(evn_trainer_get_parameter(t.trainer, i, EVN_PARAMETER_VALUE, &tensor, &error), EVN_OK) << error.message;
      EXPECT_EQ(evn_tensor_map(tensor, EVN_MAP_READ, &data, &size, &error), EVN_OK);
      all.append(static_cast<const char*>(data), size);
      evn_tensor_unmap(tensor, &error);
      evn_tensor_release(tensor);
    }
    return all;
  }

  evn_status open(Training* t) {
    const int64_t dims[4] = {2, 3, 8, 8}, classes[1] = {2};
    evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
    options.cache_dir = "";
    options.thread_count = 1;
    how.data = bytes.data();
    how.size = bytes.size();
    how.optimizer = EVN_OPTIMIZER_ADAM;
    how.prune_share = 0.5;
    evn_status s = evn_runtime_create(&options, &t->runtime, &error);
    if (s == EVN_OK) s = evn_runtime_device_find(t->runtime, "cpu", &t->cpu, &error);
    if (s == EVN_OK) s = evn_tensor_create(t->cpu, EVN_DTYPE_FLOAT32, dims, 4, 0, &t->input, &error);
    if (s == EVN_OK) s = evn_tensor_create(t->cpu, EVN_DTYPE_INT64, classes, 1, 0, &t->labels, &error);
    void* data = nullptr;
    if (s == EVN_OK) s = evn_tensor_map(t->input, EVN_MAP_WRITE, &data, nullptr, &error);
    if (s != EVN_OK) return s;
    for (int i = 0; i < 384; ++i) static_cast<float*>(data)[i] = 0.02f * static_cast<float>(i % 31) - 0.3f;
    s = evn_tensor_unmap(t->input, &error);
    if (s == EVN_OK) s = evn_trainer_create(t->runtime, nullptr, &how, &t->trainer, &error);
    return s;
  }

  // `seen` gets the parameters before and after each step; without any while a fault is armed.
  evn_status train(std::vector<std::string>* seen) {
    Training t;
    evn_status s = open(&t);
    for (int i = 0; s == EVN_OK && i < 2; ++i) {
      if (seen != nullptr) seen->push_back(parameters(t));
      s = evn_trainer_step(t.trainer, &t.input, 1, t.labels, nullptr, &error);
    }
    if (s == EVN_OK && seen != nullptr) seen->push_back(parameters(t));
    if (s == EVN_OK) s = evn_trainer_export(t.trainer, exported.c_str(), &error);
    return s;
  }
};

TEST_F(TrainerFaultTest, AllocationsThatFailWhileATrainerIsMadeAreAStatus) {
  int reached = 0;
  for (int k = 1; k < 1'000'000; k += 7) {
    fault_arm(Seam::kAlloc, k, false);
    error = EVN_ERROR_INIT;
    evn_status status = EVN_OK;
    {
      Training t;
      status = open(&t);
    }
    const bool is_reached = fault_count(Seam::kAlloc) >= k;
    fault_arm(Seam::kAlloc, 0, false);
    if (!is_reached) break;
    reached = k;
    EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_OUT_OF_MEMORY) << k << ": " << error.message;
    if (HasFailure()) return;
  }
  EXPECT_GT(reached, 1000);
}

TEST_F(TrainerFaultTest, AStepThatFailsLeavesTheParametersOfTheStepBefore) {
  int reached = 0;
  for (int k = 1; k < 1'000'000; k += 3) {
    Training t;
    ASSERT_EQ(open(&t), EVN_OK) << error.message;
    fault_arm(Seam::kAlloc, k, false);
    error = EVN_ERROR_INIT;
    const evn_status status = evn_trainer_step(t.trainer, &t.input, 1, t.labels, nullptr, &error);
    const bool is_reached = fault_count(Seam::kAlloc) >= k;
    fault_arm(Seam::kAlloc, 0, false);
    EXPECT_EQ(parameters(t), want[status == EVN_OK ? 1 : 0]) << k;
    if (!is_reached) break;
    reached = k;
    EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_OUT_OF_MEMORY) << k << ": " << error.message;
    if (status == EVN_OK) continue;
    EXPECT_EQ(evn_trainer_step(t.trainer, &t.input, 1, t.labels, nullptr, &error), EVN_OK)
        << error.message;  // the same trainer goes on
    EXPECT_EQ(parameters(t), want[1]) << k;
    if (HasFailure()) return;
  }
  EXPECT_GT(reached, 50);
}

// The learning rate is so high that results are written beside the parameters, which takes memory in each update.
TEST_F(TrainerFaultTest, AStepThatFailsKeepsTheGradientsOfTheStepsBefore) {
  how.accumulate = 2;
  how.learning_rate = 1e17;
  const auto step = [&](Training& t) { return evn_trainer_step(t.trainer, &t.input, 1, t.labels, nullptr, &error); };
  std::string before, after;
  {
    Training t;
    ASSERT_EQ(open(&t), EVN_OK) << error.message;
    before = parameters(t);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(step(t), EVN_OK) << error.message;
    after = parameters(t);
    ASSERT_NE(before, after);
  }
  int reached = 0;
  for (int k = 1; k < 1'000'000; k += 3) {
    Training t;
    ASSERT_EQ(open(&t), EVN_OK) << error.message;
    ASSERT_EQ(step(t), EVN_OK) << error.message;
    fault_arm(Seam::kAlloc, k, false);
    const evn_status status = step(t);
    const bool is_reached = fault_count(Seam::kAlloc) >= k;
    fault_arm(Seam::kAlloc, 0, false);
    if (!is_reached) break;
    reached = k;
    if (status == EVN_OK) continue;
    EXPECT_EQ(status, EVN_ERROR_OUT_OF_MEMORY) << k << ": " << error.message;
    EXPECT_EQ(parameters(t), before) << k;
    EXPECT_EQ(step(t), EVN_OK) << error.message;
    EXPECT_EQ(parameters(t), after) << k;
    if (HasFailure()) return;
  }
  EXPECT_GT(reached, 10);
}

TEST_F(TrainerFaultTest, AllocationsOfADescriptionThatFailAreAStatus) {
  Training t;
  ASSERT_EQ(open(&t), EVN_OK) << error.message;
  int failed = 0;
  for (int k = 1; k < 100'000; ++k) {
    fault_arm(Seam::kAlloc, k, false);
    size_t size = 0;
    const evn_status status = evn_trainer_describe(t.trainer, EVN_FORMAT_JSON, nullptr, 0, &size, &error);
    const bool is_reached = fault_count(Seam::kAlloc) >= k;
    fault_arm(Seam::kAlloc, 0, false);
    EXPECT_EQ(status, is_reached ? EVN_ERROR_OUT_OF_MEMORY : EVN_OK) << k;
    if (!is_reached) break;
    ++failed;
  }
  EXPECT_GT(failed, 5);
}

TEST_F(TrainerFaultTest, AStepAfterTheFirstAllocatesNothing) {
  for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{1} << 40}) {
    Training t;
    how.memory_limit = limit;
    ASSERT_EQ(open(&t), EVN_OK) << error.message;
    std::int64_t counts[4];
    for (std::int64_t& count : counts) {
      fault_count_reset(Seam::kAlloc);
      ASSERT_EQ(evn_trainer_step(t.trainer, &t.input, 1, t.labels, nullptr, &error), EVN_OK) << error.message;
      count = fault_count(Seam::kAlloc);
    }
    EXPECT_GT(counts[0], 100);
    EXPECT_EQ(counts[1], 0);
    EXPECT_EQ(counts[2], 0);
    EXPECT_EQ(counts[3], 0);
  }
}

}  // namespace
}  // namespace evn::test
