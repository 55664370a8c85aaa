// MatMul and Gemm of the OpenCL backend: what conformance does not see.
#include "ops/infra/numeric.h"
#include "tests/backends/opencl/opencl_test.h"

namespace evn::test {
namespace {

// A row has the same bits in a product of one row, of few and of many: the tiles differ.
TEST(OpenClProduct, RowsDoNotDependOnTheirNumber) {
  EVN_NEEDS_OPENCL();
  constexpr std::int64_t kDepth = 77, kColumns = 45;
  const auto product = [](std::int64_t rows, bool constant) {
    GraphBuilder b;
    const ValueId right = constant ? b.random("w", {kDepth, kColumns}) : b.input("w", {kDepth, kColumns});
    b.output(b.node("MatMul", {b.input("x", {rows, kDepth}), right}));
    return NodeRun(b.build(), 5);
  };
  for (const bool constant : {false, true}) {
    NodeRun all = product(21, constant);
    const std::vector<float> many = all.on(shared_device());
    for (const std::int64_t rows : {1, 3, 5, 8, 9}) {
      NodeRun few = product(rows, constant);
      std::copy_n(all.input(0).data.begin(), rows * kDepth, few.input(0).data.begin());
      if (!constant) few.input(1) = all.input(1);
      const std::vector<float> y = few.on(shared_device());
      EXPECT_EQ(std::memcmp(y.data(), many.data(), y.size() * sizeof(float)), 0) << rows << " rows";
    }
  }
}

// An element has the same bits in a computed right-hand matrix and in a constant one, which are packed by unlike code.
TEST(OpenClProduct, ConstantAndComputedMatricesGiveTheSameBits) {
  EVN_NEEDS_OPENCL();
  for (const std::int64_t transposed : {0, 1}) {
    const Shape shape = transposed != 0 ? Shape{50, 33} : Shape{33, 50};
    const FloatTensor right = random_floats(shape, 8, -2, 2);
    const auto gemm = [&](bool constant) {
      GraphBuilder b;
      const ValueId w = constant ? b.constant<float>("w", shape, right.data) : b.input("w", shape);
      b.output(b.node("Gemm", {b.input("x", {9, 33}), w}, {{"transB", transposed}}));
      NodeRun run(b.build(), 3);
      if (!constant) run.input(1) = right;
      return run.on(shared_device());
    };
    EXPECT_EQ(gemm(true), gemm(false));
  }
}

TEST(OpenClProduct, LargeProductsMatch) {
  EVN_NEEDS_OPENCL();
  GraphBuilder b;
  b.output(b.node("MatMul", {b.input("x", {2, 65, 257}), b.input("w", {2, 257, 130})}));
  check_node(b.build(), "matmul");
}

// With operands that are halves already, so that nothing is rounded but sums: where the device has such products, and else it says why.
TEST(OpenClProduct, HalvesGiveWhatFloatsGive) {
  EVN_NEEDS_OPENCL();
  std::string why;
  const bool has = shared_device().lowest_precision(Precision::kFloat16, &why) == Precision::kFloat16;
  EXPECT_EQ(why, has ? "" : "this device has no cl_khr_fp16");
  EXPECT_EQ(shared_device().lowest_precision(Precision::kBfloat16, &why), Precision::kFloat32);
  const auto half = [](float x) { return static_cast<float>(Float16::from(static_cast<double>(x)).value()); };
  for (const std::string op : {"MatMul", "Gemm"}) {
    for (const std::int64_t rows : {1, 3, 21}) {
      FloatTensor right = random_floats({77, 45}, 9);
      for (float& x : right.data) x = half(x);
      GraphBuilder b;
      b.output(b.node(op, {b.input("x", {rows, 77}), b.constant<float>("w", {77, 45}, right.data)}));
      NodeRun run(b.build(), 5);
      run.precision = Precision::kFloat16;
      const Kernel* kernel = shared_device().find_kernel(run.desc(), &why);
      ASSERT_NE(kernel, nullptr);
      EXPECT_EQ(kernel->operands, Precision::kFloat16) << "the device has none: it is never asked";
      if (!has) continue;
      const std::vector<float> rounded = run.on(shared_device());
      FloatTensor& x = run.input(0);
      bool differs = false;
      for (float& v : x.data) {
        differs |= v != half(v);
        v = half(v);
      }
      EXPECT_TRUE(differs);
      EXPECT_EQ(run.on(shared_device()), rounded) << "the left-hand side is rounded too";
      expect_near(rounded, run.reference(), {2e-6, 2e-6});
    }
  }
}

}  // namespace
}  // namespace evn::test
