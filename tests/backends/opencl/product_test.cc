// MatMul and Gemm of the OpenCL backend: what conformance does not see.
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

TEST(OpenClProduct, HalvesGiveWhatFloatsGive) {
  EVN_NEEDS_OPENCL();
  std::string why;
  EXPECT_EQ(shared_device().lowest_precision(Precision::kBfloat16, &why), Precision::kFloat32);
  for (const std::string op : {"MatMul", "Gemm"}) {
    for (const std::int64_t rows : {1, 3, 21}) {
      GraphBuilder b;
      b.output(b.node(op, {b.input("x", {rows, 77}), b.constant<float>("w", {77, 45}, random_halves({77, 45}, 9))}));
      check_halves(b.build(), op == "Gemm" ? "gemm_half" : "matmul_half");
    }
  }
}

}  // namespace
}  // namespace evn::test
