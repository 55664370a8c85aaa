// MatMul and Gemm on the CPU.
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

std::vector<std::string> matmul_kernels(bool constant) {
  return constant ? std::vector<std::string>{"matmul_gemm", "matmul_packed"} : std::vector<std::string>{"matmul_gemm"};
}

std::vector<std::string> gemm_kernels(bool packed) {
  return packed ? std::vector<std::string>{"gemm_gemm", "gemm_packed"} : std::vector<std::string>{"gemm_gemm"};
}

// Rows around the height of a tile, and k in one block and more, whole fours and others.
TEST(CpuMatMul, FewColumns) {
  for (const std::int64_t n : {1, 2, 3, 4, 5}) {
    for (const std::int64_t m : {1, 15, 16, 17, 47, 300}) {
      for (const std::int64_t k : {1, 3, 4, 23, 600}) {
        KernelCheck("MatMul").input(Shape{m, k}).weight(Shape{k, n}).kernel("matmul_packed").run();
        KernelCheck("Gemm")
            .input(Shape{m, k})
            .weight(Shape{k, n})
            .input(Shape{n})
            .step(EpilogueOpKind::kClip, -0.5f, 0.5f)
            .kernel("gemm_packed")
            .run();
      }
    }
  }
}

TEST(CpuMatMul, RemaindersInEveryDirection) {
  for (std::int64_t m : {1, 2, 3, 5, 8, 9, 17, 33}) {
    for (std::int64_t n : {1, 4, 5, 15, 16, 33, 48, 50, 100}) {
      for (std::int64_t k : {1, 7, 64}) {
        for (bool constant : {false, true}) {
          KernelCheck("MatMul").input(Shape{m, k}).input(Shape{k, n}, constant).kernels(matmul_kernels(constant)).run();
        }
      }
    }
  }
}

// Terms that are alike round the same way: the error of one chain of additions would grow with k beyond the tolerance.
TEST(CpuMatMul, LongSumsOfLikeTerms) {
  const struct { std::int64_t m, k, n; } products[] = {{1, 11'008, 1}, {2, 11'008, 3}, {9, 11'008, 17}, {2, 1 << 17, 3}};
  for (const auto [m, k, n] : products) {
    KernelCheck("MatMul")
        .input(Shape{m, k}, false, 0.1f, 0.1f)
        .input(Shape{k, n}, true, 0.1f, 0.1f)
        .kernels(matmul_kernels(true))
        .run();
    KernelCheck("Gemm")
        .input(Shape{m, k}, false, 0.1f, 0.1f)
        .input(Shape{k, n}, true, 0.1f, 0.1f)
        .input(Shape{n}, false, 0.1f, 0.1f)
        .step(EpilogueOpKind::kRelu)
        .kernels(gemm_kernels(true))
        .run();
  }
}

TEST(CpuMatMul, LongInnerDimension) {
  KernelCheck("MatMul").input(Shape{13, 700}).weight(Shape{700, 60}).kernels(matmul_kernels(true)).run();
  KernelCheck("MatMul").input(Shape{1, 2100}).input(Shape{2100, 97}).kernel("matmul_gemm").run();
  KernelCheck("MatMul")
      .input(Shape{250, 300})
      .weight(Shape{300, 130})
      .step(EpilogueOpKind::kSigmoid)
      .kernels(matmul_kernels(true))
      .run();
}

// Whole panels of columns that are read side by side, and what is left of them; k in one block and in several.
TEST(CpuMatMul, OneOrTwoRowsByManyColumns) {
  for (const std::int64_t m : {1, 2}) {
    for (const std::int64_t n : {64, 256, 300, 529, 1100}) {
      for (const std::int64_t k : {65, 600, 1030}) {
        KernelCheck("MatMul").input(Shape{m, k}).weight(Shape{k, n}).kernel("matmul_packed").run();
        KernelCheck("MatMul").input(Shape{m, k}).weight(Shape{k, n}).step(EpilogueOpKind::kSigmoid).kernel("matmul_packed").run();
        KernelCheck("Gemm")
            .input(Shape{m, k})
            .weight(Shape{k, n})
            .input(Shape{n})
            .step(EpilogueOpKind::kClip, -5, 5)  // not far below the sums, to whose size their rounding errors relate
            .kernel("gemm_packed")
            .run();
      }
    }
  }
}

TEST(CpuMatMul, BatchAxesBroadcast) {
  KernelCheck("MatMul").input(Shape{2, 3, 5, 7}).input(Shape{2, 3, 7, 6}).kernel("matmul_gemm").run();
  KernelCheck("MatMul").input(Shape{2, 1, 5, 7}).input(Shape{3, 7, 6}).kernel("matmul_gemm").run();
  KernelCheck("MatMul").input(Shape{5, 7}).input(Shape{4, 7, 6}).kernel("matmul_gemm").run();
  KernelCheck("MatMul").input(Shape{4, 5, 7}).weight(Shape{7, 6}).kernels(matmul_kernels(true)).run();
  KernelCheck("MatMul").input(Shape{4, 5, 7}).weight(Shape{1, 7, 6}).kernel("matmul_gemm").run();
}

TEST(CpuMatMul, Vectors) {
  KernelCheck("MatMul").input(Shape{7}).input(Shape{7, 6}).kernel("matmul_gemm").run();
  KernelCheck("MatMul").input(Shape{7}).weight(Shape{7, 6}).kernels(matmul_kernels(true)).run();
  KernelCheck("MatMul").input(Shape{3, 4, 7}).input(Shape{7}).kernel("matmul_gemm").run();
  KernelCheck("MatMul").input(Shape{7}).input(Shape{7}).kernel("matmul_gemm").run();
  KernelCheck("MatMul").input(Shape{7}).input(Shape{3, 7, 5}).kernel("matmul_gemm").run();
}

TEST(CpuMatMul, RowsDoNotDependOnTheirNumber) {
  std::vector<float> row(200), many;
  Random random(3);
  for (float& v : row) v = random.uniform(-1, 1);
  for (int i = 0; i < 21; ++i) many.insert(many.end(), row.begin(), row.end());
  for (const std::int64_t n : {77, 600}) {
    for (bool constant : {false, true}) {
      const Bytes one = KernelCheck("MatMul")
                            .input_of<float>(Shape{1, 200}, row)
                            .input(Shape{200, n}, constant)
                            .kernels(matmul_kernels(constant))
                            .run()[0];
      const Bytes all = KernelCheck("MatMul")
                            .input_of<float>(Shape{21, 200}, many)
                            .input(Shape{200, n}, constant)
                            .kernels(matmul_kernels(constant))
                            .run()[0];
      ASSERT_EQ(all.size(), 21 * one.size());
      for (int i = 0; i < 21; ++i) EXPECT_EQ(std::memcmp(all.data() + i * one.size(), one.data(), one.size()), 0) << "row " << i;
    }
  }
}

TEST(CpuGemm, TransposesScalesAndBiases) {
  const std::int64_t m = 11, n = 21, k = 150;
  const Shape biases[] = {Shape{m, n}, Shape{n}, Shape{1, n}, Shape{m, 1}, Shape{1}, Shape{}};
  for (std::int64_t ta : {0, 1}) {
    for (std::int64_t tb : {0, 1}) {
      for (bool constant : {false, true}) {
        for (const Shape& bias : biases) {
          KernelCheck("Gemm")
              .input(ta ? Shape{k, m} : Shape{m, k})
              .input(tb ? Shape{n, k} : Shape{k, n}, constant)
              .input(bias)
              .integer("transA", ta)
              .integer("transB", tb)
              .real("beta", 0.5f)
              .real("alpha", constant ? -1.25f : 1.0f)
              .kernels(gemm_kernels(constant && ta == 0))
              .run();
        }
      }
    }
  }
  KernelCheck("Gemm").input(Shape{m, k}).weight(Shape{k, n}).step(EpilogueOpKind::kRelu).kernel("gemm_gemm").run();
}

TEST(CpuGemm, AlphaOfVariableMatricesIsLeftToTheReference) {
  KernelCheck("Gemm").input(Shape{3, 4}).input(Shape{4, 5}).real("alpha", 2.0f).kernel("reference").run();
}

}  // namespace
}  // namespace evn::test
