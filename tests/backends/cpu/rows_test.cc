// Normalizations and reductions on the CPU.
#include <limits>

#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

TEST(CpuSoftmax, EveryAxisAndLength) {
  for (std::int64_t n : {1, 2, 15, 16, 17, 63, 64, 65, 1000}) {
    KernelCheck("Softmax").input(Shape{3, n}, false, -20, 20).kernel("softmax").run();
    KernelCheck("LogSoftmax").input(Shape{3, n}, false, -20, 20).kernel("log_softmax").run();
  }
  for (std::int64_t axis : {0, 1, 2, -1}) {
    KernelCheck("Softmax").input(Shape{4, 7, 300}, false, -5, 5).integer("axis", axis).step(StepKind::kScale, 2).kernel("softmax").run();
  }
  KernelCheck("Softmax", 11).input(Shape{4, 7, 30}).integer("axis", 1).kernel("softmax").run();
  KernelCheck("LogSoftmax").input(Shape{4, 7, 30}).integer("axis", 1).kernel("reference").run();
}

TEST(CpuSoftmax, InfinityMasksAnElement) {
  const float inf = std::numeric_limits<float>::infinity();
  KernelCheck("Softmax").input_of<float>(Shape{2, 3}, {1, -inf, 2, -inf, 0, -inf}).kernel("softmax").run();
}

TEST(CpuLayerNorm, LengthsAndAxes) {
  for (std::int64_t n : {1, 5, 16, 33, 768}) {
    KernelCheck("LayerNormalization", 17).input(Shape{7, n}).weight(Shape{n}).weight(Shape{n}).kernel("layer_norm").run();
  }
  KernelCheck("LayerNormalization", 17).input(Shape{4, 5, 6}).weight(Shape{5, 6}).integer("axis", 1).step(StepKind::kRelu).kernel("layer_norm").run();
  KernelCheck("LayerNormalization", 17).input(Shape{4, 5, 6}).weight(Shape{6}).outputs(3).kernel("reference").run();
}

TEST(CpuBatchNorm, EveryRank) {
  for (const Shape& x : {Shape{3, 5}, Shape{2, 5, 17}, Shape{2, 5, 9, 11}, Shape{1, 5, 2, 3, 4}}) {
    KernelCheck("BatchNormalization", 14).input(x).weight(Shape{5}).weight(Shape{5}).weight(Shape{5}).input(Shape{5}, true, 0.2f, 2)
        .step(StepKind::kRelu).kernel("batch_norm").run();
  }
}

TEST(CpuReduce, NeighbouringAxes) {
  const std::pair<const char*, const char*> ops[] = {
      {"ReduceMean", "reduce_mean"}, {"ReduceMax", "reduce_max"}, {"ReduceMin", "reduce_min"}};
  for (const auto& [op, kernel] : ops) {
    for (const std::vector<std::int64_t>& axes : {std::vector<std::int64_t>{-1}, {2, 3}, {0}, {1}, {1, 2}, {0, 1, 2, 3}}) {
      for (std::int64_t keep : {0, 1}) {
        KernelCheck(op).input(Shape{3, 4, 9, 37}).ints("axes", axes).integer("keepdims", keep).step(StepKind::kOffset, 1).kernel(kernel).run();
      }
    }
    KernelCheck(op).input(Shape{3, 4, 5}).ints("axes", {0, 2}).kernel("reference").run();
  }
  KernelCheck("ReduceSum").input(Shape{3, 4, 50}).input_of<std::int64_t>(Shape{1}, {1}, true).kernel("reduce_sum").run();
  KernelCheck("ReduceSum").input(Shape{3, 4, 50}).kernel("reduce_sum").run();
  KernelCheck("ReduceMean", 18).input(Shape{3, 4, 50}).input_of<std::int64_t>(Shape{1}, {2}).kernel("reference").run();
}

TEST(CpuReduce, NaNIsTheMaximum) {
  std::vector<float> x(100, 1.0f);
  x[55] = std::nanf("");
  KernelCheck("ReduceMax").input_of<float>(Shape{2, 50}, x).ints("axes", {1}).kernel("reduce_max").run();
  KernelCheck("ReduceMax").input_of<float>(Shape{2, 50}, x).ints("axes", {0}).kernel("reduce_max").run();
}

}  // namespace
}  // namespace evn::test
