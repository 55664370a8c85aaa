// MatMul and Gemm.
#include <limits>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

const Tensor kA = f32({1, 2}, {1, 2});
const Tensor kB = f32({2, 2}, {1, 2, 3, 4});

TEST(MatMul, MultipliesMatricesAndVectors) {
  const auto y = Op("MatMul", 13).run({f32({2, 3}, {1, 2, 3, 4, 5, 6}), f32({3, 1}, {1, 0, 2})});
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 1}));
  EXPECT_EQ(y[0].floats(), (Floats{7, 16}));
  const Tensor v = f32({2}, {5, 6});
  EXPECT_EQ(Op("MatMul", 13).run({kB, v})[0].desc.shape, (Shape{2}));
  EXPECT_EQ(Op("MatMul", 13).run({kB, v})[0].floats(), (Floats{17, 39}));
  EXPECT_EQ(Op("MatMul", 13).run({v, kB})[0].floats(), (Floats{23, 34}));
  EXPECT_EQ(Op("MatMul", 13).run({v, v})[0].desc.shape, (Shape{}));
  EXPECT_EQ(Op("MatMul", 13).run({v, v})[0].floats(), (Floats{61}));
}

TEST(MatMul, AxesBeforeTheMatricesBroadcast) {
  const auto y = Op("MatMul", 13).run({f32({2, 1, 1, 1}, {1, 10}), f32({3, 1, 1}, {1, 2, 3})});
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 3, 1, 1}));
  EXPECT_EQ(y[0].floats(), (Floats{1, 2, 3, 10, 20, 30}));
}

TEST(MatMul, IntegerSumsWrap) {
  const std::uint32_t top = std::numeric_limits<std::uint32_t>::max();
  const auto y = Op("MatMul", 13).run({tensor<std::uint32_t>({2}, {top, 1}), tensor<std::uint32_t>({2}, {2, 5})});
  EXPECT_EQ(y[0].values<std::uint32_t>()[0], 3u);
}

TEST(MatMul, OverNoElementsIsZero) {
  EXPECT_EQ(Op("MatMul", 13).run({f32({2, 0}, {}), f32({0, 1}, {})})[0].floats(), (Floats{0, 0}));
  EXPECT_EQ(Op("MatMul", 13).run({f32({0, 2}, {}), kB})[0].desc.shape, (Shape{0, 2}));
}

TEST(MatMul, OperandsMustFit) {
  EXPECT_EQ(Op("MatMul", 13).status({kA, f32({3, 1}, {1, 1, 1})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("MatMul", 13).status({f32({2, 1, 1}, {1, 1}), f32({3, 1, 1}, {1, 1, 1})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("MatMul", 13).status({kA, f32({}, {1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("MatMul", 13).status({kA, tensor<double>({2, 1}, {1, 1})}), EVN_ERROR_INVALID_MODEL);
}

TEST(MatMul, UnknownDimsStayUnknown) {
  EXPECT_EQ(Op("MatMul", 13).infer({desc({-1, 2, 4}), desc({4, -1})})[0], (Shape{-1, 2, -1}));
  EXPECT_EQ(Op("MatMul", 13).infer({desc({-1}), desc({3})})[0], (Shape{}));
}

TEST(Gemm, ScalesTheProductAndTheBias) {
  EXPECT_EQ(Op("Gemm", 13).run({kA, kB})[0].floats(), (Floats{7, 10}));
  Op op("Gemm", 13);
  op.with("alpha", AttributeValue(2.0f)).with("beta", AttributeValue(0.5f));
  EXPECT_EQ(op.run({kA, kB, f32({}, {4})})[0].floats(), (Floats{16, 22}));
}

TEST(Gemm, TransposesEitherOperand) {
  EXPECT_EQ(Op("Gemm", 13).with("transB", 1).run({kA, kB})[0].floats(), (Floats{5, 11}));
  EXPECT_EQ(Op("Gemm", 13).with("transA", 1).run({f32({2, 1}, {1, 2}), kB})[0].floats(), (Floats{7, 10}));
}

TEST(Gemm, BiasBroadcastsFromRowsAndColumns) {
  EXPECT_EQ(Op("Gemm", 13).run({kB, kB, f32({2, 1}, {100, 200})})[0].floats(), (Floats{107, 110, 215, 222}));
  EXPECT_EQ(Op("Gemm", 13).run({kB, kB, f32({2}, {100, 200})})[0].floats(), (Floats{107, 210, 115, 222}));
}

TEST(Gemm, OperandsMustFit) {
  EXPECT_EQ(Op("Gemm", 13).status({kA, f32({1, 2}, {1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Gemm", 13).status({f32({2}, {1, 2}), kB}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Gemm", 13).status({kA, kB, f32({2, 2}, {1, 1, 1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Gemm", 13).status({kA, kB, f32({1, 1, 2}, {1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Gemm", 13).status({kA, kB, f32({3}, {1, 1, 1})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("Gemm", 13).infer({desc({-1, 4}), desc({4, -1}), desc({1})})[0], (Shape{-1, -1}));
}

}  // namespace
}  // namespace evn::test
