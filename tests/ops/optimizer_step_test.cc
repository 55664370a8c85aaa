// OptimizerStep against what PyTorch's torch.optim gives after three steps in float64, and GradientNorm.
#include "ops/training/optimizer_step.h"

#include <cmath>
#include <limits>

#include "tests/ops/op_runner.h"

namespace evn::test {
namespace {

const Floats kStart = {0.05f, 1.8f, -1.42f};
const Floats kGradients[] = {{1.79f, -0.75f, -0.31f}, {1.31f, -0.36f, 0.2f}, {-1.89f, 1.01f, 0.15f}};

struct Expected {
  const char* kind;
  std::vector<std::pair<const char*, float>> attributes;
  float weight_decay;
  std::vector<Floats> results;  // the parameter, then what is kept
};

const Expected kExpected[] = {
    {"sgd", {}, 0.1f, {{-0.0676129413f, 1.75468566f, -1.38224144f}}},
    {"sgd",
     {{"momentum", 0.9f}, {"dampening", 0.2f}},
     0,
     {{-0.483009981f, 1.97716996f, -1.37838996f}, {0.881099939f, -0.0587000179f, 0.012900005f}}},
    {"sgd",
     {{"momentum", 0.9f}, {"nesterov", 1}},
     0.1f,
     {{-0.542406533f, 1.8122224f, -1.28620947f}, {0.64877393f, 0.594708195f, -0.287206754f}}},
    {"adam",
     {},
     0.1f,
     {{-0.163773675f, 1.95731714f, -1.22550145f},
      {0.0723653977f, 0.0593848546f, -0.0281401619f},
      {0.00854515344f, 0.00181371128f, 0.000209068085f}}},
    {"adam",
     {{"beta1", 0.8f}, {"beta2", 0.95f}, {"epsilon", 1e-3f}},
     0,
     {{-0.154764932f, 1.97808918f, -1.33012791f},
      {0.0607199888f, 0.0483999958f, 0.0223200014f},
      {0.404704747f, 0.082543812f, 0.00736151271f}}},
    {"adamw",
     {},
     0.1f,
     {{-0.162744475f, 1.93240407f, -1.27669873f},
      {0.0738899932f, 0.00784999776f, 0.00789000067f},
      {0.00848417856f, 0.00171094595f, 0.000158367901f}}},
    {"adagrad",
     {{"lr_decay", 0.5f}, {"epsilon", 1e-10f}},
     0.1f,
     {{-0.0566954244f, 1.87424105f, -1.33177707f}, {8.53094778f, 1.79837649f, 0.209217279f}}},
    {"rmsprop", {}, 0.1f, {{-0.82382402f, 2.02336314f, -0.907351919f}, {0.0878606009f, 0.0202510172f, 0.00230555849f}}},
    {"rmsprop",
     {{"momentum", 0.9f}, {"alpha", 0.9f}},
     0,
     {{-0.958749531f, 2.67512819f, -1.02936032f},
      {0.77119107f, 0.159236499f, 0.0136341004f},
      {2.14763421f, -1.31529382f, 0.323643499f}}},
    {"rmsprop",
     {{"momentum", 0.9f}, {"centered", 1}},
     0,
     {{-3.15833599f, 4.58189426f, -0.10993365f},
      {0.0841137707f, 0.0169971024f, 0.00156287614f},
      {7.00407694f, -4.33923811f, 0.552238521f},
      {0.0116127892f, -0.000814750237f, 0.000441690066f}}},
};

Op step_of(const Expected& e) {
  Op op("evener::OptimizerStep", 1);
  op.with("kind", e.kind).outputs(static_cast<int>(e.results.size()));
  for (const auto& [name, value] : e.attributes) {
    const bool is_whole = std::string(name) == "nesterov" || std::string(name) == "centered";
    op.with(name, is_whole ? AttributeValue(std::int64_t{1}) : AttributeValue(value));
  }
  return op;
}

Tensor rates(float rate, float decay, float step, float scale = 1, float clip = 0) {
  return f32({8}, {rate, decay, scale, clip, step, 0, 0, 0});
}

TEST(OptimizerStep, ThreeStepsGiveWhatPyTorchGives) {
  for (const Expected& e : kExpected) {
    SCOPED_TRACE(e.kind);
    std::vector<Floats> state(e.results.size(), Floats(3, 0.0f));
    state[0] = kStart;
    for (int step = 1; step <= 3; ++step) {
      std::vector<Tensor> inputs = {rates(0.1f, e.weight_decay, static_cast<float>(step)), bools({}, {1}), f32({3}, state[0]),
                                    f32({3}, kGradients[step - 1])};
      for (std::size_t k = 1; k < state.size(); ++k) inputs.push_back(f32({3}, state[k]));
      const std::vector<Tensor> results = step_of(e).run(inputs);
      for (std::size_t k = 0; k < state.size(); ++k) state[k] = results[k].floats();
    }
    for (std::size_t k = 0; k < state.size(); ++k) {
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(state[k][i], e.results[k][i], 2e-6f * std::fabs(e.results[k][i]) + 1e-7f) << "result " << k << " at " << i;
      }
    }
  }
}

TEST(OptimizerStep, GradientsAreScaledAndThenClamped) {
  Op op("evener::OptimizerStep", 1);
  op.with("kind", "sgd");
  expect_near(op.run({rates(1, 0, 1, 0.5f, 1), bools({}, {1}), f32({3}, {0, 0, 0}), f32({3}, {1, 4, -4})})[0].floats(),
              {-0.5f, -1, 1});
}

TEST(OptimizerStep, SeveralTensorsAreEachTheirOwn) {
  Op op("evener::OptimizerStep", 1);
  op.with("kind", "adagrad").outputs(4);
  const auto y = op.run({rates(1, 0, 1), bools({}, {1}), f32({1}, {5}), f32({1, 2}, {6, 7}), f32({1}, {3}), f32({1, 2}, {4, -4}),
                         f32({1}, {0}), f32({1, 2}, {9, 0})});
  expect_near(y[0].floats(), {4});
  expect_near(y[1].floats(), {5.2f, 8});
  expect_near(y[2].floats(), {9});
  expect_near(y[3].floats(), {25, 16});
}

TEST(OptimizerStep, WithoutApplyNothingChanges) {
  Op op("evener::OptimizerStep", 1);
  op.with("kind", "adam").outputs(3);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto y =
      op.run({rates(1, 0, 1), bools({1}, {0}), f32({2}, {1, 2}), f32({2}, {nan, nan}), f32({2}, {3, 4}), f32({2}, {5, 6})});
  EXPECT_EQ(y[0].floats(), Floats({1, 2}));
  EXPECT_EQ(y[1].floats(), Floats({3, 4}));
  EXPECT_EQ(y[2].floats(), Floats({5, 6}));
}

TEST(OptimizerStep, WhatDoesNotFitIsRefused) {
  const auto status = [](const char* kind, int outputs, const std::vector<Tensor>& tensors, float momentum = 0, int nesterov = 0) {
    Op op("evener::OptimizerStep", 1);
    op.with("kind", kind).with("momentum", AttributeValue(momentum)).with("nesterov", nesterov).outputs(outputs);
    std::vector<Tensor> inputs = {rates(1, 0, 1), bools({}, {1})};
    inputs.insert(inputs.end(), tensors.begin(), tensors.end());
    return op.status(inputs);
  };
  const Tensor a = f32({2}, {1, 2}), b = f32({1}, {1});
  EXPECT_EQ(status("sgd", 1, {a, a}), EVN_OK);
  EXPECT_EQ(status("sgd", 1, {a, b}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("sgd", 2, {a, a}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("sgd", 1, {a, a, a}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("lion", 1, {a, a}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("adam", 3, {a, a, a}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("sgd", 1, {a, a}, 0, 1), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status("sgd", 2, {a, a, a}, 0.9f, 1), EVN_OK);
}

std::vector<Tensor> gradient_norm(float scale, std::vector<Tensor> tensors) {
  Op op("evener::GradientNorm", 1);
  op.outputs(2);
  tensors.insert(tensors.begin(), f32({}, {scale}));
  return op.run(tensors);
}

TEST(GradientNorm, IsTheScaledNormOfAllTensors) {
  const auto y = gradient_norm(0.5f, {f32({2}, {4, 5}), f32({}, {-2}), f32({0}, {}), f32({1, 1}, {6})});
  EXPECT_EQ(y[0].floats(), Floats({4.5f}));
  EXPECT_EQ(bool_values(y[1]), std::vector<std::uint8_t>({1}));
}

TEST(GradientNorm, IsFiniteWhereFloat32HasIt) {
  for (const auto& [scale, value] : {std::pair{1.0f, 3e30f}, {1e-9f, 3e38f}, {1e-30f, 2e38f}, {1e9f, 1e-30f}}) {
    const auto y = gradient_norm(scale, {f32({2}, {value, -value}), f32({2}, {value, value})});
    EXPECT_FLOAT_EQ(y[0].floats()[0], 2 * (scale * value));
    EXPECT_EQ(bool_values(y[1]), std::vector<std::uint8_t>({1}));
  }
}

TEST(GradientNorm, SaysWhereAnElementIsNotFinite) {
  for (const float odd : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(bool_values(gradient_norm(1, {f32({2}, {3, 4}), f32({2}, {0, odd})})[1]), std::vector<std::uint8_t>({0}));
  }
  const auto y = gradient_norm(1, {f32({2}, {3e38f, 3e38f})});
  EXPECT_TRUE(std::isinf(y[0].floats()[0]));
  EXPECT_EQ(bool_values(y[1]), std::vector<std::uint8_t>({1})) << "the norm is too large, but not the elements";
}

}  // namespace
}  // namespace evn::test
