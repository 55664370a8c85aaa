// LSTM, GRU and RNN. Expected values of layers are ONNX Runtime's 1.31 for the same pattern of operands.
#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

// Values from -0.5 to 0.5 that repeat after 11 elements.
Tensor pattern(const Shape& shape, std::int64_t step) {
  Floats values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(static_cast<float>(i * step % 11 - 5) * 0.1f);
  return f32(shape, values);
}

// 3 steps of 2 sequences of 3 inputs; 2 hidden units.
std::vector<Tensor> layer(int gates, int directions, bool has_cell) {
  const std::int64_t d = directions;
  std::vector<Tensor> inputs = {
      pattern({3, 2, 3}, 7), pattern({d, gates * 2, 3}, 3), pattern({d, gates * 2, 2}, 5), pattern({d, gates * 4}, 2), absent(),
      pattern({d, 2, 2}, 4)};
  if (has_cell) inputs.push_back(pattern({d, 2, 2}, 6));
  return inputs;
}

std::vector<Tensor> with_lengths(std::vector<Tensor> inputs, const std::vector<std::int32_t>& lengths) {
  inputs[4] = i32({static_cast<std::int64_t>(lengths.size())}, lengths);
  return inputs;
}

std::vector<Tensor> with_peepholes(std::vector<Tensor> inputs, std::int64_t directions) {
  inputs.push_back(pattern({directions, 6}, 9));
  return inputs;
}

AttributeValue words(std::vector<std::string> names) { return names; }
AttributeValue reals(Floats values) { return values; }

Op lstm() { return Op("LSTM", 14).outputs(3); }
Op gru() { return Op("GRU", 14).outputs(2); }
Op rnn() { return Op("RNN", 14).outputs(2); }

TEST(Lstm, GivesTheLastStates) {
  const auto y = lstm().with("hidden_size", 2).run(layer(4, 1, true));
  EXPECT_EQ(y[0].desc.shape, (Shape{3, 1, 2, 2}));
  EXPECT_EQ(y[1].desc.shape, (Shape{1, 2, 2}));
  expect_near(y[1].floats(), {-0.0871673f, 0.0620161f, -0.0568637f, 0.0889318f}, 1e-6f);
  expect_near(y[2].floats(), {-0.17479f, 0.199527f, -0.114622f, 0.284638f}, 1e-6f);
}

TEST(Lstm, BothDirectionsWithPeepholesAndLengths) {
  const auto inputs = with_lengths(with_peepholes(layer(4, 2, true), 2), {3, 1});
  const auto y = lstm().with("direction", "bidirectional").run(inputs);
  expect_near(y[0].floats(), {-0.268492f,  0.0106874f, -0.191301f, 0.0765372f, -0.214577f, -0.0664701f, -0.169303f, 0.0233604f,
                              -0.170432f,  0.0729696f, 0,          0,          -0.219249f, -0.0677797f, 0,          0,
                              -0.0997384f, 0.0619894f, 0,          0,          -0.265068f, 0.0435782f,  0,          0},
              1e-6f);
  expect_near(y[1].floats(), {-0.0997384f, 0.0619894f, -0.191301f, 0.0765372f, -0.214577f, -0.0664701f, -0.169303f, 0.0233604f},
              1e-6f);
  expect_near(y[2].floats(), {-0.205774f, 0.200262f, -0.296548f, 0.155075f, -0.405928f, -0.0963588f, -0.361578f, 0.0399092f},
              1e-6f);
}

TEST(Lstm, InputGateMayTakeThePlaceOfTheForgetGate) {
  const auto y = lstm().with("input_forget", 1).run(with_peepholes(layer(4, 1, true), 1));
  expect_near(y[1].floats(), {-0.11663f, 0.0581474f, -0.0896281f, 0.077755f}, 1e-6f);
  expect_near(y[2].floats(), {-0.244342f, 0.188666f, -0.187446f, 0.249753f}, 1e-6f);
}

TEST(Lstm, ListsOfNumbersAreForTheActivationsThatTakeOne) {
  Op op = lstm();
  op.with("direction", "reverse").with("activations", words({"HardSigmoid", "softsign", "LeakyRelu"}));
  op.with("activation_alpha", reals({0.3f, 0.1f})).with("activation_beta", reals({0.4f}));
  const auto y = op.run(layer(4, 1, true));
  expect_near(y[1].floats(), {-0.00779875f, 0.0183882f, -0.00226834f, 0.0547645f}, 1e-6f);
  expect_near(y[2].floats(), {-0.154619f, 0.0569165f, -0.0406602f, 0.166814f}, 1e-6f);
}

TEST(Lstm, ClipBoundsWhatGatesGetButNotTheState) {
  const std::vector<Tensor> inputs = {
      f32({1, 1, 1}, {1}), f32({1, 4, 1}, {50, 50, 50, 50}), f32({1, 4, 1}, {0, 0, 0, 0}), absent(), absent(), absent(),
      f32({1, 1, 1}, {5})};
  const auto y = lstm().with("clip", AttributeValue(0.5f)).run(inputs);
  expect_near(y[2].floats(), {3.3999457f}, 1e-6f);
  expect_near(y[1].floats(), {0.62107414f}, 1e-6f);
}

TEST(Gru, ResetsBeforeOrAfterTheProduct) {
  expect_near(gru().run(layer(3, 1, false))[1].floats(), {0.62955f, -7.30306e-05f, 0.662252f, -0.00740054f}, 1e-6f);
  const auto y = gru().with("linear_before_reset", 1).run(layer(3, 1, false));
  expect_near(y[1].floats(), {0.459766f, 0.173956f, 0.500781f, 0.152958f}, 1e-6f);
}

TEST(Gru, LengthsEndSequencesInBothDirections) {
  const auto y = gru().with("direction", "bidirectional").run(with_lengths(layer(3, 2, false), {2, 3}));
  expect_near(y[0].floats(), {0.184243f, 0.0797672f, 0.505804f, -0.250931f,   0.0440618f, -0.298045f,  -0.199843f,  -0.598487f,
                              0.374432f, -0.102723f, 0.505481f, -0.172682f,   -0.111026f, -0.0942346f, -0.157714f,  -0.440931f,
                              0,         0,          0.662252f, -0.00740054f, 0,          0,           -0.0349701f, -0.197094f},
              1e-6f);
  expect_near(y[1].floats(), {0.374432f, -0.102723f, 0.662252f, -0.00740054f, 0.0440618f, -0.298045f, -0.199843f, -0.598487f},
              1e-6f);
}

TEST(Rnn, RunsInBothDirections) {
  const auto y = rnn().with("direction", "bidirectional").run(layer(1, 2, false));
  expect_near(y[0].floats(), {-0.158649f, -0.604368f,  -0.781806f, 0.178081f,  -0.128977f,  0.320547f,  0.0214058f, 0.320269f,
                              -0.641475f, -0.0188853f, -0.370581f, -0.378846f, -0.0226856f, 0.403124f,  -0.099445f, 0.394064f,
                              -0.281456f, -0.387495f,  -0.349355f, -0.223566f, -0.37136f,   -0.129273f, -0.454216f, -0.109559f},
              1e-6f);
}

TEST(Rnn, EachActivationHasItsFormula) {
  const std::pair<const char*, Floats> expected[] = {
      {"Relu", {0, 0, 0, 0}},
      {"Affine", {0.37722f, 0.592647f, 0.386513f, 0.605704f}},
      {"LeakyRelu", {-0.14628f, -0.063693f, -0.136988f, -0.050523f}},
      {"ThresholdedRelu", {0, 0, 0, 0}},
      {"ScaledTanh", {-0.0941351f, -0.028485f, -0.0858663f, -0.0247609f}},
      {"HardSigmoid", {0.37722f, 0.592647f, 0.386513f, 0.605704f}},
      {"Elu", {-0.122748f, -0.0478049f, -0.113584f, -0.0420953f}},
      {"Softsign", {-0.281775f, -0.233702f, -0.274366f, -0.187768f}},
      {"Softplus", {0.38759f, 0.675387f, 0.397812f, 0.699578f}},
  };
  for (const auto& [name, values] : expected) {
    SCOPED_TRACE(name);
    Op op = rnn();
    op.with("activations", words({name})).with("activation_alpha", reals({0.3f})).with("activation_beta", reals({0.6f}));
    expect_near(op.run(layer(1, 1, false))[1].floats(), values, 1e-6f);
  }
}

TEST(Rnn, BatchMayComeFirst) {
  const std::vector<Tensor> inputs = {f32({2, 3, 1}, {1, 2, 3, 4, 5, 6}), f32({1, 1, 1}, {1}), f32({1, 1, 1}, {10})};
  const auto y = rnn().with("layout", 1).with("activations", words({"Affine"})).run(inputs);
  EXPECT_EQ(y[0].desc.shape, (Shape{2, 3, 1, 1}));
  EXPECT_EQ(y[0].floats(), (Floats{1, 12, 123, 4, 45, 456}));
  EXPECT_EQ(y[1].desc.shape, (Shape{2, 1, 1}));
  EXPECT_EQ(y[1].floats(), (Floats{123, 456}));
}

TEST(Rnn, UnknownDimsStayUnknown) {
  const auto shapes = rnn().infer({desc({-1, -1, 3}), desc({1, 2, 3}), desc({1, 2, 2})});
  EXPECT_EQ(shapes[0], (Shape{-1, 1, -1, 2}));
  EXPECT_EQ(shapes[1], (Shape{1, -1, 2}));
}

TEST(Recurrent, OperandsMustFit) {
  const Tensor x = pattern({3, 2, 3}, 7);
  const Tensor w = pattern({1, 2, 3}, 3);
  const Tensor r = pattern({1, 2, 2}, 5);
  EXPECT_EQ(rnn().status({x, w, r}), EVN_OK);
  EXPECT_EQ(rnn().status({x, pattern({1, 2, 4}, 3), r}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(rnn().status({x, w, pattern({1, 2, 3}, 5)}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(rnn().status({x, w, r, pattern({1, 2}, 2)}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(rnn().status({x, w, r, absent(), absent(), pattern({1, 1, 2}, 2)}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(rnn().status({x, w, tensor<double>({1, 2, 2}, {1, 2, 3, 4})}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(rnn().with("direction", "bidirectional").status({x, w, r}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(rnn().with("direction", "sideways").status({x, w, r}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(rnn().with("hidden_size", 3).status({x, w, r}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(rnn().with("layout", 2).status({x, w, r}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(rnn().with("activations", words({"Sine"})).status({x, w, r}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(rnn().with("activations", words({"Tanh", "Tanh"})).status({x, w, r}), EVN_ERROR_INVALID_MODEL);
}

TEST(Recurrent, LengthBeyondTheStepsIsTheCallersError) {
  const auto status = [](const std::vector<std::int32_t>& lengths) {
    return gru().status(with_lengths(layer(3, 1, false), lengths));
  };
  EXPECT_EQ(status({3, 0}), EVN_OK);
  EXPECT_EQ(status({4, 1}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status({1, -1}), EVN_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace evn::test
