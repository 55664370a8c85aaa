// Normalizations and reductions on the CPU.
#include <limits>

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/reduce/rows_loops.h"
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

TEST(CpuSoftmax, EveryAxisAndLength) {
  for (std::int64_t n : {1, 2, 15, 16, 17, 63, 64, 65, 1000}) {
    KernelCheck("Softmax").input(Shape{3, n}, false, -20, 20).kernel("softmax").run();
    KernelCheck("LogSoftmax").input(Shape{3, n}, false, -20, 20).kernel("log_softmax").run();
  }
  for (std::int64_t axis : {0, 1, 2, -1}) {
    KernelCheck("Softmax")
        .input(Shape{4, 7, 300}, false, -5, 5)
        .integer("axis", axis)
        .step(EpilogueOpKind::kScale, 2)
        .kernel("softmax")
        .run();
  }
  KernelCheck("Softmax", 11).input(Shape{4, 7, 30}).integer("axis", 1).kernel("softmax").run();
  KernelCheck("LogSoftmax").input(Shape{4, 7, 30}).integer("axis", 1).kernel("reference").run();
}

TEST(CpuSoftmax, NumbersThatAreNone) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  constexpr std::int64_t kLength = 75, kRows = 6;
  std::vector<float> x(static_cast<std::size_t>(kRows * kLength));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) - 6;
  x[0] = x[kLength + 40] = x[2 * kLength + 74] = nan;
  x[3 * kLength + 8] = inf;
  x[4 * kLength + 20] = -inf;
  std::fill_n(x.begin() + 5 * kLength, kLength, -inf);
  for (const auto& [op, kernel] : {std::pair{"Softmax", "softmax"}, {"LogSoftmax", "log_softmax"}})
    KernelCheck(op).input_of<float>(Shape{kRows, kLength}, x).kernel(kernel).run();
}

TEST(CpuSoftmax, InfinityMasksAnElement) {
  const float inf = std::numeric_limits<float>::infinity();
  KernelCheck("Softmax").input_of<float>(Shape{2, 3}, {1, -inf, 2, -inf, 0, -inf}).kernel("softmax").run();
}

TEST(CpuLayerNorm, LengthsAndAxes) {
  for (std::int64_t n : {1, 5, 16, 33, 768}) {
    KernelCheck("LayerNormalization", 17).input(Shape{7, n}).weight(Shape{n}).weight(Shape{n}).kernel("layer_norm").run();
  }
  KernelCheck("LayerNormalization", 17)
      .input(Shape{4, 5, 6})
      .weight(Shape{5, 6})
      .integer("axis", 1)
      .step(EpilogueOpKind::kRelu)
      .kernel("layer_norm")
      .run();
  KernelCheck("LayerNormalization", 17).input(Shape{4, 5, 6}).weight(Shape{6}).outputs(3).kernel("reference").run();
}

TEST(CpuRmsNorm, LengthsAndAxes) {
  for (std::int64_t n : {1, 5, 16, 33, 768, 5000}) {
    KernelCheck("RMSNormalization", 23).input(Shape{7, n}).weight(Shape{n}).kernel("rms_norm").run();
  }
  KernelCheck("RMSNormalization", 23)
      .input(Shape{4, 5, 6})
      .weight(Shape{5, 6})
      .integer("axis", 1)
      .step(EpilogueOpKind::kRelu)
      .kernel("rms_norm")
      .run();
  KernelCheck("RMSNormalization", 23).input(Shape{4, 5, 6}).weight(Shape{5, 1}).integer("axis", 1).kernel("reference").run();
}

TEST(CpuSoftmax, ANaNMakesItsLineNaN) {
  std::vector<float> x(3 * 70, 0.5f);
  x[5] = std::nanf("");
  x[70 + 69] = std::nanf("");
  KernelCheck("Softmax").input_of<float>(Shape{3, 70}, x).kernel("softmax").run();
}

// What is written past the caches has the same bits, at any alignment and length, and nothing beside it is touched.
class PastCaches : public testing::TestWithParam<Isa> {
 protected:
  static constexpr std::int64_t kRows = 9;
  static constexpr std::int64_t kMost = 3000;

  // Calls write(past, n, y) both ways for several lengths and places of y.
  template <typename F>
  static void compare(F write) {
    for (const std::int64_t n : {1, 16, 37, 256, 768, 1040, 2048, 3000}) {
      for (const std::int64_t shift : {0, 3}) {
        std::vector<float> plain(kRows * kMost + 80, 7.0f), past(plain);
        write(false, n, aligned(plain) + shift);
        write(true, n, aligned(past) + shift);
        EXPECT_EQ(std::memcmp(aligned(plain), aligned(past), sizeof(float) * (kRows * kMost + 8)), 0)
            << n << " floats, shifted by " << shift;
        EXPECT_EQ(aligned(past)[shift + kRows * n], 7.0f);
      }
    }
  }

  static float* aligned(std::vector<float>& v) {
    return v.data() + (64 - reinterpret_cast<std::uintptr_t>(v.data()) % 64) / sizeof(float);
  }
  static std::vector<float> values(std::uint64_t seed) {
    Random random(seed);
    std::vector<float> v(kRows * kMost);
    for (float& x : v) x = random.uniform(-3, 3);
    return v;
  }
};

TEST_P(PastCaches, ElementwiseLoopsWriteTheSame) {
  const std::vector<float> x = values(1), z = values(2);
  const simd_elementwise::Loops& loops = simd_elementwise::loops(GetParam());
  Epilogue chain;
  chain.push({EpilogueOpKind::kClip, -0.5f, 0.5f});
  chain.push({EpilogueOpKind::kScale, 3, 0});
  for (const Epilogue* e : {static_cast<const Epilogue*>(nullptr), static_cast<const Epilogue*>(&chain)}) {
    compare([&](bool past, std::int64_t n, float* y) {
      loops.unary(simd_elementwise::Unary::kSigmoid, 0, 0, x.data(), y, kRows * n, past, e);
    });
    compare([&](bool past, std::int64_t n, float* y) {
      loops.binary(simd_elementwise::Binary::kMul, x.data(), 1, z.data(), 1, y, n, {kRows, n, 0, n}, past, e);
    });
  }
}

TEST_P(PastCaches, LinesAreWrittenTheSame) {
  const std::vector<float> x = values(3), scale = values(4);
  const simd_rows::Loops& loops = simd_rows::loops(GetParam());
  Epilogue chain;
  chain.push({EpilogueOpKind::kRelu, 0, 0});
  chain.push({EpilogueOpKind::kTanh, 0, 0});
  for (const Epilogue* e : {static_cast<const Epilogue*>(nullptr), static_cast<const Epilogue*>(&chain)}) {
    compare([&](bool past, std::int64_t n, float* y) { loops.softmax(x.data(), y, kRows, n, false, past, e); });
    for (const bool centered : {true, false}) {
      compare([&](bool past, std::int64_t n, float* y) {
        loops.layer_norm({scale.data(), nullptr, 1e-5f, centered, past, e}, x.data(), y, kRows, n);
      });
    }
  }
}

// Lines go in groups: what a line gives must not depend on those beside it.
TEST_P(PastCaches, ALineGivesTheSameAlone) {
  const std::vector<float> x = values(5), scale = values(6);
  const simd_rows::Loops& loops = simd_rows::loops(GetParam());
  for (const std::int64_t n : {1, 37, 100, 768, 3000}) {
    std::vector<float> all(kRows * kMost), one(kRows * kMost);
    loops.softmax(x.data(), all.data(), kRows, n, false, false, nullptr);
    for (std::int64_t r = 0; r < kRows; ++r) loops.softmax(x.data() + r * n, one.data() + r * n, 1, n, false, false, nullptr);
    EXPECT_EQ(all, one);
    const simd_rows::Norm norm = {scale.data(), nullptr, 1e-5f, true, false, nullptr};
    loops.layer_norm(norm, x.data(), all.data(), kRows, n);
    for (std::int64_t r = 0; r < kRows; ++r) loops.layer_norm(norm, x.data() + r * n, one.data() + r * n, 1, n);
    EXPECT_EQ(all, one);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, PastCaches, testing::ValuesIn(available_isas()), [](const auto& of) { return isa_name(of.param); });

TEST(CpuBatchNorm, EveryRank) {
  for (const Shape& x : {Shape{3, 5}, Shape{2, 5, 17}, Shape{2, 5, 9, 11}, Shape{1, 5, 2, 3, 4}}) {
    KernelCheck("BatchNormalization", 14)
        .input(x)
        .weight(Shape{5})
        .weight(Shape{5})
        .weight(Shape{5})
        .input(Shape{5}, true, 0.2f, 2)
        .step(EpilogueOpKind::kRelu)
        .kernel("batch_norm")
        .run();
  }
}

TEST(CpuReduce, NeighbouringAxes) {
  const std::pair<const char*, const char*> ops[] = {
      {"ReduceMean", "reduce_mean"}, {"ReduceMax", "reduce_max"}, {"ReduceMin", "reduce_min"}};
  for (const auto& [op, kernel] : ops) {
    for (const std::vector<std::int64_t>& axes : {std::vector<std::int64_t>{-1}, {2, 3}, {0}, {1}, {1, 2}, {0, 1, 2, 3}}) {
      for (std::int64_t keep : {0, 1}) {
        KernelCheck(op)
            .input(Shape{3, 4, 9, 37})
            .ints("axes", axes)
            .integer("keepdims", keep)
            .step(EpilogueOpKind::kOffset, 1)
            .kernel(kernel)
            .run();
      }
    }
    KernelCheck(op).input(Shape{3, 4, 5}).ints("axes", {0, 2}).kernel("reference").run();
  }
  KernelCheck("ReduceSum").input(Shape{3, 4, 50}).input_of<std::int64_t>(Shape{1}, {1}, true).kernel("reduce_sum").run();
  KernelCheck("ReduceSum").input(Shape{3, 4, 50}).kernel("reduce_sum").run();
  KernelCheck("ReduceMean", 18).input(Shape{3, 4, 50}).input_of<std::int64_t>(Shape{1}, {2}).kernel("reference").run();
}

TEST(CpuReduce, SumsOfManyRunsAndOfLongColumns) {
  constexpr std::int64_t kRuns = 16384, kRows = 1 << 20;
  KernelCheck("ReduceMean")
      .input_of<float>(Shape{kRuns, 4, 64}, std::vector<float>(kRuns * 4 * 64, 0.1f))
      .ints("axes", {0, 2})
      .kernel("reduce_mean")
      .run();
  KernelCheck("ReduceSum")
      .input_of<float>(Shape{kRows, 4}, std::vector<float>(kRows * 4, 0.1f))
      .input_of<std::int64_t>(Shape{1}, {0}, true)
      .kernel("reduce_sum")
      .run();
}

TEST(CpuReduce, NaNIsTheMaximum) {
  std::vector<float> x(100, 1.0f);
  x[55] = std::nanf("");
  KernelCheck("ReduceMax").input_of<float>(Shape{2, 50}, x).ints("axes", {1}).kernel("reduce_max").run();
  KernelCheck("ReduceMax").input_of<float>(Shape{2, 50}, x).ints("axes", {0}).kernel("reduce_max").run();
}

TEST(CpuRows, NormalizationsOfGroups) {
  for (const Shape& x : {Shape{2, 6, 5, 7}, Shape{1, 6, 1}, Shape{3, 6, 40, 40}, Shape{1, 6, 70000}, Shape{2, 6}, Shape{0, 6, 4}}) {
    KernelCheck("InstanceNormalization").input(x).input(Shape{6}).input(Shape{6}).kernel("instance_norm").run();
    KernelCheck("InstanceNormalization")
        .input(x, false, 3, 5)
        .input(Shape{6})
        .input(Shape{6})
        .real("epsilon", 0.1f)
        .step(EpilogueOpKind::kRelu)
        .step(EpilogueOpKind::kTanh)
        .kernel("instance_norm")
        .run();
    for (const std::int64_t groups : {1, 2, 3, 6}) {
      KernelCheck("GroupNormalization", 18)
          .input(x)
          .input(Shape{groups})
          .input(Shape{groups})
          .integer("num_groups", groups)
          .kernel("group_norm")
          .run();
      KernelCheck("GroupNormalization", 21)
          .input(x)
          .input(Shape{6})
          .input(Shape{6})
          .integer("num_groups", groups)
          .kernel("group_norm")
          .run();
    }
  }
}

// The variance is 0, so that the factor is large: elements are taken relative to the mean before they are multiplied. Their sums
// are exact in float32.
TEST(CpuRows, GroupsOfElementsThatAreAlike) {
  for (const std::int64_t inner : {1, 5, 64}) {
    std::vector<float> x(static_cast<std::size_t>(2 * 6 * inner));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = -1000.25f * static_cast<float>(1 + i / static_cast<std::size_t>(inner));
    const Shape shape{2, 6, inner};
    KernelCheck("InstanceNormalization").input_of<float>(shape, x).input(Shape{6}).input(Shape{6}).kernel("instance_norm").run();
    KernelCheck("GroupNormalization", 21)
        .input_of<float>(shape, x)
        .input(Shape{6})
        .input(Shape{6})
        .integer("num_groups", 6)
        .kernel("group_norm")
        .run();
  }
}

}  // namespace
}  // namespace evn::test
