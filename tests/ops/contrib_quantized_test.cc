// com.microsoft's operators on quantized tensors: values worked out by hand, shapes, what is refused.
#include <cmath>

#include "tests/ops/op_runner.h"

namespace evn::test::contrib_quantized_test {
namespace {

using Bytes = std::vector<std::uint8_t>;

Tensor u8(const Shape& shape, const Bytes& values) { return tensor<std::uint8_t>(shape, values); }
Tensor i8(const Shape& shape, const std::vector<std::int8_t>& values) { return tensor<std::int8_t>(shape, values); }
Tensor scale(float value) { return f32({}, {value}); }
Tensor zero(std::uint8_t value) { return u8({}, {value}); }

Bytes bytes_of(const std::vector<Tensor>& outputs) { return outputs.at(0).values<std::uint8_t>(); }

TEST(QLinearAdd, SumsWhatTheNumbersStandForAndSaturates) {
  const Op add("com.microsoft::QLinearAdd", 1);
  // (10 - 2) * 0.5 + (b - 4) * 0.25 = 4 + {0, 1, 62.75}; / 0.5 + 1
  const Tensor b = u8({3}, {4, 8, 255});
  EXPECT_EQ(bytes_of(Op(add).run({u8({1}, {10}), scale(0.5f), zero(2), b, scale(0.25f), zero(4), scale(0.5f), zero(1)})),
            (Bytes{9, 11, 134}));
  const auto plain = [&](const Tensor& x, float x_scale, const Tensor& y) {
    return bytes_of(Op(add).run({x, scale(x_scale), absent(), y, scale(1), absent(), scale(1)}));
  };
  EXPECT_EQ(plain(u8({1}, {255}), 1, u8({2}, {1, 0})), (Bytes{255, 255}));
  // Half-way between two: the even one.
  EXPECT_EQ(plain(u8({2}, {1, 3}), 0.5f, u8({1}, {0})), (Bytes{0, 2}));
  // The zero point counts: 0.5 + 1 and 1.5 + 1 become 2.
  EXPECT_EQ(bytes_of(Op(add).run({u8({2}, {1, 3}), scale(0.5f), absent(), u8({1}, {0}), scale(1), absent(), scale(1), zero(1)})),
            (Bytes{2, 2}));
}

TEST(QLinearAdd, RefusesWhatDoesNotFit) {
  const Op add("com.microsoft::QLinearAdd", 1);
  const Tensor x = u8({2}, {1, 2});
  const Tensor longer = u8({3}, {1, 2, 3}), other = i8({2}, {1, 2});
  EXPECT_EQ(Op(add).status({x, scale(1), zero(0), longer, scale(1), zero(0), scale(1), zero(0)}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op(add).status({x, scale(1), zero(0), other, scale(1), i8({}, {0}), scale(1), zero(0)}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(add).status({x, f32({2}, {1, 1}), zero(0), x, scale(1), zero(0), scale(1), zero(0)}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(add).status({x, scale(1), zero(0), x, scale(1), zero(0), scale(1), i8({}, {0})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(add).status({x, scale(1), zero(0), x, scale(1), zero(0)}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(add).status({x, scale(1)}), EVN_ERROR_INVALID_MODEL);
}

TEST(QLinearMul, MultipliesWhatTheNumbersStandFor) {
  const auto y = Op("com.microsoft::QLinearMul", 1)
                     .run({u8({2, 1}, {6, 2}), scale(0.5f), zero(2), u8({2}, {3, 5}), scale(2), zero(1), scale(1), zero(100)});
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 2}));
  EXPECT_EQ(bytes_of(y), (Bytes{108, 116, 100, 100}));
}

TEST(QLinearWhere, GivesEachSideTheScaleOfTheOutput) {
  const Tensor a = u8({1}, {5}), b = u8({1}, {9});
  const auto y = Op("com.microsoft::QLinearWhere", 1)
                     .run({bools({2}, {1, 0}), a, scale(1), zero(1), b, scale(2), zero(4), scale(0.5f), zero(3)});
  EXPECT_EQ(bytes_of(y), (Bytes{11, 23}));
}

TEST(QLinearLeakyRelu, ScalesNegativeNumbers) {
  const auto y = Op("com.microsoft::QLinearLeakyRelu", 1)
                     .with("alpha", AttributeValue(0.25f))
                     .run({u8({3}, {2, 10, 14}), scale(1), zero(10), scale(1), zero(5)});
  EXPECT_EQ(bytes_of(y), (Bytes{3, 5, 9}));
}

TEST(QLinearSigmoid, TakesNoZeroPointAsZero) {
  const auto y = Op("com.microsoft::QLinearSigmoid", 1).run({i8({2}, {0, 127}), scale(1), absent(), scale(1.0f / 64), absent()});
  EXPECT_EQ(y[0].values<std::int8_t>(), (std::vector<std::int8_t>{32, 64}));
}

TEST(QLinearConcat, InputsComeInThrees) {
  const Op concat = Op("com.microsoft::QLinearConcat", 1).with("axis", 1);
  const Tensor a = u8({2, 1}, {1, 2}), b = u8({2, 2}, {5, 6, 7, 8});
  const auto y = Op(concat).run({scale(1), zero(10), a, scale(2), zero(0), b, scale(1), zero(5)});
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 3}));
  EXPECT_EQ(bytes_of(y), (Bytes{12, 10, 11, 14, 12, 13}));
  EXPECT_EQ(Op(concat).status({scale(1), zero(10), a, scale(2)}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(concat).status({scale(1), zero(10), a, scale(2), zero(0), u8({1, 1}, {5}), scale(1), zero(5)}),
            EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("com.microsoft::QLinearConcat", 1).with("axis", 2).status({scale(1), zero(10), a, scale(2), zero(0)}),
            EVN_ERROR_INVALID_MODEL);
}

TEST(QLinearGlobalAveragePool, ChannelsMayBeLast) {
  const Op pool("com.microsoft::QLinearGlobalAveragePool", 1);
  EXPECT_EQ(bytes_of(Op(pool).run({u8({1, 2, 2}, {1, 3, 10, 20}), scale(2), zero(1), scale(1), zero(100)})), (Bytes{102, 128}));
  const auto y = Op(pool).with("channels_last", 1).run({u8({1, 2, 2}, {1, 3, 11, 21}), scale(2), zero(1), scale(1), zero(100)});
  EXPECT_EQ(y[0].desc.shape, (Shape{1, 1, 2}));
  EXPECT_EQ(bytes_of(y), (Bytes{110, 122}));
  const TensorDesc byte = desc({}, DType::kUint8);
  EXPECT_EQ(Op(pool).infer({desc({-1, 3, -1, 5}, DType::kUint8), desc({}), byte, desc({}), byte})[0], (Shape{-1, 3, 1, 1}));
}

TEST(QLinearSoftmax, OpsetSaysWhatIsOneRow) {
  const std::vector<Tensor> in = {u8({1, 2, 2}, {9, 9, 9, 9}), scale(1), zero(0), scale(1.0f / 256), zero(0)};
  EXPECT_EQ(bytes_of(Op("com.microsoft::QLinearSoftmax", 1).with("opset", 13).run(in)), (Bytes{128, 128, 128, 128}));
  EXPECT_EQ(bytes_of(Op("com.microsoft::QLinearSoftmax", 1).with("opset", 11).with("axis", 1).run(in)), (Bytes{64, 64, 64, 64}));
}

TEST(QGemm, WithoutAZeroPointTheResultIsFloat) {
  const std::vector<Tensor> in = {u8({1, 2}, {3, 5}), scale(0.5f),     zero(1),           u8({2, 2}, {1, 2, 3, 4}),
                                  f32({2}, {1, 2}),   u8({2}, {0, 1}), i32({2}, {10, -4})};
  // [2 4] x [[1 1] [3 3]] + [10 -4] = [24 10], times 0.5 * {1, 2} * 2
  const Op gemm = Op("com.microsoft::QGemm", 1).with("alpha", AttributeValue(2.0f));
  EXPECT_EQ(Op(gemm).run(in)[0].floats(), (Floats{24, 20}));
  std::vector<Tensor> all = in;
  all.push_back(scale(4));
  all.push_back(zero(7));
  EXPECT_EQ(bytes_of(Op(gemm).run(all)), (Bytes{13, 12}));
  all[7] = absent();
  EXPECT_EQ(Op(gemm).status(all), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(gemm).with("transA", 1).status(in), EVN_ERROR_INVALID_MODEL);
}

TEST(MatMulIntegerToFloat, ColumnsHaveScalesAndABias) {
  const Op product("com.microsoft::MatMulIntegerToFloat", 1);
  const std::vector<Tensor> in = {u8({1, 2}, {3, 5}), i8({2, 2}, {1, -2, 3, 4}), scale(0.5f), f32({2}, {1, 2}), zero(1),
                                  absent(),           f32({2}, {100, 200})};
  EXPECT_EQ(Op(product).run(in)[0].floats(), (Floats{107, 212}));
  EXPECT_EQ(Op(product).status({in[0], in[1], f32({2}, {1, 2}), in[3]}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op(product).status({in[0], in[1], in[2], f32({3}, {1, 2, 3})}), EVN_ERROR_INVALID_MODEL);
}

TEST(DynamicQuantizeMatMul, QuantizesTheLeftSide) {
  // 0 .. 255 has a scale of 1 and a zero point of 0.
  const auto y = Op("com.microsoft::DynamicQuantizeMatMul", 1).run({f32({2, 1}, {255, 2.25f}), i8({1, 2}, {1, -2}), scale(0.5f)});
  EXPECT_EQ(y[0].floats(), (Floats{127.5f, -255, 1, -2}));
}

TEST(FusedMatMul, RowsMayStandBeforeTheBatch) {
  const Tensor a = f32({2, 2, 1}, {1, 2, 3, 4});  // rows, batch, columns
  const Tensor b = f32({2, 1, 1}, {10, 100});
  const auto y = Op("com.microsoft::FusedMatMul", 1).with("transBatchA", 1).run({a, b});
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 2, 1}));
  EXPECT_EQ(y[0].floats(), (Floats{10, 30, 200, 400}));
  EXPECT_EQ(Op("com.microsoft::FusedMatMul", 1).infer({desc({-1, 3, 5}), desc({-1, 5, 4})})[0], (Shape{-1, 3, 4}));
}

// Weights that only reach the cell's gate; the other gates are 1/2 without biases. x and h are whole multiples of their scales.
TEST(DynamicQuantizeLstm, SumsOfWholeNumbersGoThroughTheCell) {
  const Tensor x = f32({2, 1, 2}, {0, 255, 255, 0}), w = i8({1, 2, 4}, {0, 0, 0, 1, 0, 0, 0, 2}), r = i8({1, 1, 4}, {0, 0, 0, 0});
  const std::vector<Tensor> in = {
      x, w, r, absent(), absent(), absent(), absent(), absent(), f32({1}, {1.0f / 255}), i8({1}, {0}), f32({1}, {1}), i8({1}, {0})};
  const Op lstm = Op("com.microsoft::DynamicQuantizeLSTM", 1).outputs(3);
  const float first = 0.5f * std::tanh(2.0f), second = 0.5f * first + 0.5f * std::tanh(1.0f);
  const auto y = Op(lstm).run(in);
  expect_near(y[0].floats(), {0.5f * std::tanh(first), 0.5f * std::tanh(second)});
  expect_near(y[2].floats(), {second});
  std::vector<Tensor> wrong = in;
  wrong[8] = f32({2}, {1, 1});
  EXPECT_EQ(Op(lstm).status(wrong), EVN_ERROR_INVALID_MODEL);
  wrong = in;
  wrong[10] = absent();
  EXPECT_EQ(Op(lstm).status(wrong), EVN_ERROR_INVALID_MODEL);
  wrong = in;
  wrong[4] = i32({1}, {3});
  EXPECT_EQ(Op(lstm).status(wrong), EVN_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace evn::test::contrib_quantized_test
