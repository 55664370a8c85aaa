// MatMul and Gemm by OpenBLAS: within the operator's tolerance of the reference for each instruction set, and with the same bits
// for any number of threads, batch neighbour and position of a row.
#include <limits>

#include "backends/cpu/gemm/blas.h"
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

class OpenBlas : public testing::Test {
 protected:
  void SetUp() override {
    if (blas_module() == nullptr) GTEST_SKIP() << "the OpenBLAS module is not built";
    if (blas_module()->row_groups[1] == 0) GTEST_SKIP() << "this machine has no kernels of OpenBLAS that keep rows apart";
  }
  static KernelCheck matmul() { return KernelCheck("MatMul").by(Products::kOpenBlas).kernel("matmul_openblas"); }
  static KernelCheck gemm() { return KernelCheck("Gemm").by(Products::kOpenBlas).kernel("gemm_openblas"); }
};

TEST_F(OpenBlas, RemaindersInEveryDirection) {
  for (const std::int64_t m : {1, 2, 7, 8, 9, 33, 129}) {
    for (const std::int64_t n : {1, 5, 16, 50, 100, 300}) {
      for (const std::int64_t k : {1, 7, 64}) {
        for (const bool constant : {false, true}) matmul().input(Shape{m, k}).input(Shape{k, n}, constant).run();
      }
    }
  }
}

TEST_F(OpenBlas, LongInnerDimensions) {
  for (const std::int64_t k : {700, 2100}) {
    for (const std::int64_t m : {1, 13, 140}) matmul().input(Shape{m, k}).input(Shape{k, 97}).run();
  }
}

TEST_F(OpenBlas, BatchesVectorsAndBroadcasts) {
  matmul().input(Shape{3, 1, 5, 9}).input(Shape{2, 9, 11}).run();
  matmul().input(Shape{2, 17, 9}).input(Shape{9, 40}, true).run();
  matmul().input(Shape{9}).input(Shape{9, 11}).run();
  matmul().input(Shape{4, 5, 9}).input(Shape{9}).run();
  matmul().input(Shape{9}).input(Shape{9}).run();
  matmul().input(Shape{2, 0, 9}).input(Shape{9, 11}).run();
  matmul().input(Shape{3, 9}).input(Shape{9, 0}).run();
}

TEST_F(OpenBlas, TranspositionsFactorsAndSums) {
  for (const std::int64_t m : {1, 21, 136}) {
    for (const int transposed : {0, 1, 2, 3}) {
      const bool a = (transposed & 1) != 0, b = (transposed & 2) != 0;
      for (const Shape& c : {Shape{}, Shape{50}, Shape{m, 1}, Shape{1, 50}, Shape{m, 50}}) {
        gemm()
            .input(a ? Shape{31, m} : Shape{m, 31})
            .input(b ? Shape{50, 31} : Shape{31, 50}, m == 21)
            .input(c)
            .integer("transA", a)
            .integer("transB", b)
            .real("alpha", 0.5f)
            .real("beta", -1.5f)
            .run();
      }
      gemm()
          .input(a ? Shape{31, m} : Shape{m, 31})
          .input(b ? Shape{50, 31} : Shape{31, 50})
          .integer("transA", a)
          .integer("transB", b)
          .run();
    }
  }
}

TEST_F(OpenBlas, StepsOfAnEpilogue) {
  for (const std::int64_t m : {3, 130}) {
    matmul().input(Shape{m, 40}).weight(Shape{40, 70}).step(EpilogueOpKind::kRelu).run();
    matmul().input(Shape{m, 40}).weight(Shape{40, 70}).step(EpilogueOpKind::kSigmoid).step(EpilogueOpKind::kScale, 2.0f).run();
    gemm().input(Shape{m, 40}).weight(Shape{40, 270}).input(Shape{270}).step(EpilogueOpKind::kClip, -0.5f, 0.5f).run();
  }
}

TEST_F(OpenBlas, DoublesAsBefore) {
  std::vector<double> a(21 * 30, 0.25), b(30 * 40, -0.5);
  KernelCheck("MatMul").input_of<double>(Shape{21, 30}, a).input_of<double>(Shape{30, 40}, b).kernel("matmul_openblas").run();
  KernelCheck("MatMul")
      .by(Products::kOwn)
      .input_of<double>(Shape{21, 30}, a)
      .input_of<double>(Shape{30, 40}, b)
      .kernel("reference")
      .run();
}

// What is no number stays none, and what is beside it does not become one.
TEST_F(OpenBlas, NotANumberAndInfinity) {
  std::vector<float> a(10 * 12, 0.5f), b(12 * 20, 0.25f);
  a[3 * 12 + 5] = std::numeric_limits<float>::quiet_NaN();
  b[7 * 20 + 2] = std::numeric_limits<float>::infinity();
  matmul().input_of<float>(Shape{10, 12}, a).input_of<float>(Shape{12, 20}, b).run();
  gemm().input_of<float>(Shape{10, 12}, a).input_of<float>(Shape{12, 20}, b).real("alpha", -2.0f).run();
}

// With a factor of 0 OpenBLAS does not look at A and B, which may have NaN in them.
TEST_F(OpenBlas, AFactorOfZeroIsRefused) {
  const std::shared_ptr<Device> cpu = cpu_device(1);
  KernelSubject s;
  s.products = Products::kOpenBlas;
  add_operand(&s, {DType::kFloat32, Shape{2, 2}}, Bytes(16), false);
  add_operand(&s, {DType::kFloat32, Shape{2, 2}}, Bytes(16), false);
  finish_subject(&s, "Gemm", 13, {{"alpha", 0.0f}}, 1, {});
  EXPECT_STREQ(cpu->why_not_by(Products::kOpenBlas, s.desc()), "alpha is 0");
  EXPECT_NE(std::string(cpu->find_kernel(s.desc(), nullptr)->name), "gemm_openblas");
}

// Rows of a larger product, and products of a larger batch, with the bits that they have alone.
TEST_F(OpenBlas, BitsDoNotDependOnNeighbours) {
  constexpr std::int64_t kRows = 300, kDepth = 400, kColumns = 330;
  for (const Isa isa : available_isas(false)) {
    const ForcedIsa forced(isa);
    const auto rows = [&](std::int64_t count, int threads) {
      std::vector<float> a(static_cast<std::size_t>(count * kDepth)), b(static_cast<std::size_t>(kDepth * kColumns));
      test::Random random(5);
      for (float& x : b) x = random.uniform(-1, 1);
      for (float& x : a) x = random.uniform(-1, 1);
      KernelSubject s;
      s.products = Products::kOpenBlas;
      for (const auto& [shape, values] : {std::pair{Shape{count, kDepth}, &a}, std::pair{Shape{kDepth, kColumns}, &b}}) {
        Bytes bytes(values->size() * sizeof(float));
        std::memcpy(bytes.data(), values->data(), bytes.size());
        add_operand(&s, {DType::kFloat32, shape}, std::move(bytes), false);
      }
      finish_subject(&s, "MatMul", 13, {}, 1, {});
      const std::shared_ptr<Device> device = cpu_device(threads);
      const Kernel* const kernel = device->find_kernel(s.desc(), nullptr);
      EXPECT_STREQ(kernel->name, "matmul_openblas");
      return floats_by(*device, *kernel, s);
    };
    const std::vector<float> all = rows(kRows, 1);
    for (const std::int64_t count : {1, 7, 8, 130, 299}) {
      for (const int threads : {1, 2, 5}) {
        const std::vector<float> some = rows(count, threads);
        ASSERT_EQ(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)), 0)
            << isa_name(isa) << ", " << count << " rows, " << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace evn::test
