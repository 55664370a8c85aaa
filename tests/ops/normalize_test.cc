// BatchNormalization, LayerNormalization, Softmax and LogSoftmax.
#include <cmath>
#include <limits>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

Op without_epsilon(const char* name, int opset) {
  Op op(name, opset);
  op.with("epsilon", AttributeValue(0.0f));
  return op;
}

std::vector<Tensor> batch_norm_inputs(const Tensor& x) {
  return {x, f32({2}, {1, 2}), f32({2}, {0, 1}), f32({2}, {1, 3}), f32({2}, {1, 4})};
}

TEST(BatchNorm, ChannelsAreOnAxis1) {
  const Tensor x = f32({1, 2, 2}, {1, 2, 3, 5});
  EXPECT_EQ(without_epsilon("BatchNormalization", 9).run(batch_norm_inputs(x))[0].floats(), (Floats{0, 1, 1, 3}));
  const Tensor rows = f32({2, 2}, {1, 3, 2, 5});
  EXPECT_EQ(without_epsilon("BatchNormalization", 15).run(batch_norm_inputs(rows))[0].floats(), (Floats{0, 1, 1, 3}));
}

TEST(BatchNorm, VectorHasOneChannelFrom9On) {
  const Tensor x = f32({3}, {1, 3, 5}), scale = f32({1}, {2}), bias = f32({1}, {1}), mean = f32({1}, {3}), variance = f32({1}, {4});
  const std::vector<Tensor> inputs = {x, scale, bias, mean, variance};
  for (const int opset : {9, 14, 15}) {
    EXPECT_EQ(without_epsilon("BatchNormalization", opset).run(inputs)[0].floats(), (Floats{-1, 1, 3}));
  }
  EXPECT_EQ(without_epsilon("BatchNormalization", 7).status(inputs), EVN_ERROR_INVALID_MODEL);
  const auto trained = without_epsilon("BatchNormalization", 15)
                           .with("training_mode", 1)
                           .with("momentum", AttributeValue(0.0f))
                           .outputs(3)
                           .run({f32({2}, {1, 5}), scale, bias, mean, variance});
  EXPECT_EQ(trained[0].floats(), (Floats{-1, 3}));
  EXPECT_EQ(trained[1].floats(), (Floats{3}));
  EXPECT_EQ(trained[2].floats(), (Floats{4}));
}

TEST(BatchNorm, EpsilonIsAddedToTheVariance) {
  const Tensor one = f32({1}, {1});
  const Tensor zero = f32({1}, {0});
  const auto y = Op("BatchNormalization", 9).with("epsilon", AttributeValue(0.25f)).run({f32({1, 1}, {3}), one, zero, zero, zero});
  EXPECT_EQ(y[0].floats(), (Floats{6}));
}

TEST(BatchNorm, TrainingTakesTheMomentsOfItsInput) {
  const auto y = Op("BatchNormalization", 15)
                     .with("training_mode", 1)
                     .with("momentum", AttributeValue(0.75f))
                     .with("epsilon", AttributeValue(0.0f))
                     .outputs(3)
                     .run({f32({2, 1}, {1, 5}), f32({1}, {2}), f32({1}, {1}), f32({1}, {7}), f32({1}, {8})});
  EXPECT_EQ(y[0].floats(), (Floats{-1, 3}));
  EXPECT_EQ(y[1].floats(), (Floats{0.75f * 7 + 0.25f * 3}));
  EXPECT_EQ(y[2].floats(), (Floats{0.75f * 8 + 0.25f * 4}));
}

TEST(BatchNorm, Before14OutputsMakeItTrain) {
  for (const int opset : {7, 9}) {
    const auto y = Op("BatchNormalization", opset)
                       .with("momentum", AttributeValue(0.75f))
                       .with("epsilon", AttributeValue(0.0f))
                       .outputs(5)
                       .run({f32({2, 1}, {1, 5}), f32({1}, {2}), f32({1}, {1}), f32({1}, {7}), f32({1}, {8})});
    EXPECT_EQ(y[0].floats(), (Floats{-1, 3}));
    EXPECT_EQ(y[1].floats(), (Floats{0.75f * 7 + 0.25f * 3}));
    EXPECT_EQ(y[2].floats(), (Floats{0.75f * 8 + 0.25f * 4}));
    EXPECT_EQ(y[3].floats(), (Floats{3}));
    EXPECT_EQ(y[4].floats(), (Floats{4}));
  }
}

TEST(BatchNorm, TrainingOutputsNeedTheModeFrom14On) {
  const Tensor x = f32({2, 1}, {1, 5}), one = f32({1}, {1});
  EXPECT_EQ(Op("BatchNormalization", 15).outputs(3).status({x, one, one, one, one}), EVN_ERROR_INVALID_MODEL);
}

TEST(BatchNorm, WithoutSpatialEachElementHasItsParameters) {
  const Tensor x = f32({2, 1, 2}, {1, 2, 5, 8}), mean = f32({1, 2}, {1, 2}), variance = f32({1, 2}, {4, 9}),
               one = f32({1, 2}, {1, 1});
  const auto op = [] { return without_epsilon("BatchNormalization", 7).with("spatial", 0); };
  EXPECT_EQ(op().run({x, one, f32({1, 2}, {0, 1}), mean, variance})[0].floats(), (Floats{0, 1, 2, 3}));
  const auto trained = op().with("momentum", AttributeValue(0.0f)).outputs(3).run({x, one, one, mean, variance});
  EXPECT_EQ(trained[0].floats(), (Floats{0, 0, 2, 2}));
  EXPECT_EQ(trained[1].floats(), (Floats{3, 5}));
  EXPECT_EQ(trained[2].floats(), (Floats{4, 9}));
  EXPECT_EQ(op().status({x, f32({1}, {1}), one, mean, variance}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(op().status({x, f32({1, 3}, {1, 1, 1}), one, mean, variance}), EVN_ERROR_INVALID_MODEL);
}

TEST(BatchNorm, ParametersAreOnePerChannel) {
  EXPECT_EQ(Op("BatchNormalization", 9).status(batch_norm_inputs(f32({1, 3}, {1, 2, 3}))), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("BatchNormalization", 9).status(batch_norm_inputs(f32({2}, {1, 2}))), EVN_ERROR_INVALID_MODEL);
  const TensorDesc p = desc({3});
  EXPECT_EQ(Op("BatchNormalization", 9).infer({desc({-1, -1, 4}), p, p, p, p})[0], (Shape{-1, -1, 4}));
}

TEST(LayerNorm, NormalizesFromTheAxisOn) {
  const Tensor x = f32({2, 2}, {1, 3, -2, 2});
  const auto rows = without_epsilon("LayerNormalization", 17).outputs(3).run({x, f32({2}, {1, 10}), f32({2}, {0, 5})});
  EXPECT_EQ(rows[0].floats(), (Floats{-1, 15, -1, 15}));
  EXPECT_EQ(rows[1].desc.shape, (Shape{2, 1}));
  EXPECT_EQ(rows[1].floats(), (Floats{2, 0}));
  EXPECT_EQ(rows[2].floats(), (Floats{1, 0.5f}));
  const auto whole = Op("LayerNormalization", 17).with("axis", 0).outputs(2).run({x, f32({1}, {1})});
  EXPECT_EQ(whole[1].desc.shape, (Shape{1, 1}));
  EXPECT_EQ(whole[1].floats(), (Floats{1}));
}

TEST(LayerNorm, RowWithoutVarianceIsItsBias) {
  const Tensor x = f32({1, 3}, {1e6f, 1e6f, 1e6f});
  EXPECT_EQ(Op("LayerNormalization", 17).run({x, f32({3}, {1, 2, 3}), f32({3}, {4, 5, 6})})[0].floats(), (Floats{4, 5, 6}));
}

TEST(LayerNorm, ParametersMustBroadcastToTheInput) {
  const Tensor x = f32({1, 2}, {1, 3});
  EXPECT_EQ(Op("LayerNormalization", 17).status({x, f32({2, 2}, {1, 1, 1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("LayerNormalization", 17).status({x, f32({1, 1, 2}, {1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("LayerNormalization", 17).status({x, f32({3}, {1, 1, 1})}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(Op("LayerNormalization", 17).status({x, tensor<double>({2}, {1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("LayerNormalization", 17).with("axis", 2).status({x, f32({2}, {1, 1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("LayerNormalization", 17).with("stash_type", 10).status({x, f32({2}, {1, 1})}), EVN_ERROR_UNSUPPORTED);
}

TEST(LayerNorm, UnknownDimsStayUnknown) {
  const auto shapes = Op("LayerNormalization", 17).with("axis", 1).outputs(2).infer({desc({-1, -1, 8}), desc({8})});
  EXPECT_EQ(shapes[0], (Shape{-1, -1, 8}));
  EXPECT_EQ(shapes[1], (Shape{-1, 1, 1}));
}

TEST(Softmax, SumsToOneAlongTheAxis) {
  const float third = std::log(3.0f);
  expect_near(Op("Softmax", 13).run({f32({2}, {0, third})})[0].floats(), {0.25f, 0.75f});
  expect_near(Op("LogSoftmax", 13).run({f32({2}, {0, third})})[0].floats(), {-1.3862944f, -0.28768207f});
  expect_near(Op("Softmax", 13).with("axis", 0).run({f32({2, 2}, {0, 7, third, 7})})[0].floats(), {0.25f, 0.5f, 0.75f, 0.5f});
}

TEST(Softmax, NegativeAxisCountsFromEnd) {
  expect_near(Op("Softmax", 13).with("axis", -2).run({f32({1, 2, 1}, {3, 3})})[0].floats(), {0.5f, 0.5f});
}

TEST(Softmax, Before13AllAxesFromTheFirstOnAreOne) {
  const Tensor x = f32({1, 2, 2}, {0, 0, 0, 0});
  expect_near(Op("Softmax", 12).run({x})[0].floats(), {0.25f, 0.25f, 0.25f, 0.25f});
  expect_near(Op("Softmax", 13).run({x})[0].floats(), {0.5f, 0.5f, 0.5f, 0.5f});
}

TEST(Softmax, LargeValuesDoNotOverflowAndInfinityIsNan) {
  const float inf = std::numeric_limits<float>::infinity();
  expect_near(Op("Softmax", 13).run({f32({3}, {1000, 1000, -inf})})[0].floats(), {0.5f, 0.5f, 0});
  EXPECT_TRUE(std::isnan(Op("Softmax", 13).run({f32({2}, {-inf, -inf})})[0].floats()[0]));
  EXPECT_TRUE(std::isnan(Op("LogSoftmax", 13).run({f32({2}, {1, inf})})[0].floats()[1]));
  EXPECT_TRUE(std::isnan(Op("Softmax", 13).run({f32({2}, {NAN, 1})})[0].floats()[1]));
}

TEST(Softmax, AxisMustBeThere) {
  EXPECT_EQ(Op("Softmax", 13).with("axis", 1).status({f32({2}, {1, 2})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Softmax", 13).status({f32({}, {1})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(Op("Softmax", 13).run({f32({2, 0}, {})})[0].desc.shape, (Shape{2, 0}));
  EXPECT_EQ(Op("Softmax", 13).infer({desc({-1, 5})})[0], (Shape{-1, 5}));
}

}  // namespace
}  // namespace evn::test
