// Kernels of training steps against the references, over instruction sets and threads, at sizes that are cut into tiles and tails.
#include <functional>

#include "ops/training/optimizer_step.h"
#include "tests/backends/cpu/kernel_check.h"

namespace evn::test {
namespace {

KernelCheck optimizer(const char* kind, const std::vector<Shape>& shapes, int kept, float step = 3) {
  KernelCheck c("evener::OptimizerStep", 1);
  c.input_of<float>({8}, {0.1f, 0.01f, 0.5f, 0.4f, step, 0, 0, 0}).bools({}, {1});
  for (int kind_of = 0; kind_of < 2 + kept; ++kind_of) {
    for (const Shape& s : shapes) c.input(s, false, kind_of < 2 ? -1 : 0.1f, 1);
  }
  c.attribute("kind", std::string(kind)).outputs(static_cast<int>(shapes.size()) * (1 + kept)).kernel("optimizer_step");
  return c;
}

// Tiles that end within a tensor, tensors of less than a vector, and an empty one.
const std::vector<Shape> kShapes = {{3}, {200, 401}, {0, 5}, {1}, {37, 2, 19}};

TEST(OptimizerStepKernel, EveryKindIsLikeTheReference) {
  optimizer("sgd", kShapes, 0).run();
  optimizer("sgd", kShapes, 1).real("momentum", 0.9f).real("dampening", 0.3f).run();
  optimizer("sgd", kShapes, 1, 1).real("momentum", 0.9f).real("dampening", 0.3f).run();
  optimizer("sgd", kShapes, 1).real("momentum", 0.9f).integer("nesterov", 1).run();
  optimizer("adam", kShapes, 2).run();
  optimizer("adamw", kShapes, 2).real("beta1", 0.8f).real("beta2", 0.99f).real("epsilon", 1e-4f).run();
  optimizer("adagrad", kShapes, 1).real("lr_decay", 0.1f).run();
  optimizer("rmsprop", kShapes, 1).run();
  optimizer("rmsprop", kShapes, 2).real("momentum", 0.9f).real("alpha", 0.9f).run();
}

TEST(OptimizerStepKernel, TheAverageOfTheGradientIsTakenOff) {
  for (const float momentum : {0.0f, 0.9f}) {
    KernelCheck c("evener::OptimizerStep", 1);
    c.input_of<float>({8}, {0.1f, 0, 1, 0, 2, 0, 0, 0}).bools({}, {1}).input({77}).input({77}).input({77}, false, 1, 2);
    if (momentum != 0) c.input({77});
    c.input({77}, false, -0.5f, 0.5f).attribute("kind", std::string("rmsprop")).integer("centered", 1).real("momentum", momentum);
    c.outputs(momentum != 0 ? 4 : 3).kernel("optimizer_step").run();
  }
}

TEST(OptimizerStepKernel, WithoutApplyEverythingIsCopied) {
  KernelCheck c("evener::OptimizerStep", 1);
  c.input_of<float>({8}, {0.1f, 0, 1, 0, 2, 0, 0, 0}).bools({1}, {0}).input({70001}).input({70001}).input({70001});
  const std::vector<Bytes> y =
      c.attribute("kind", std::string("sgd")).real("momentum", 0.5f).outputs(2).kernel("optimizer_step").run();
  EXPECT_EQ(y.size(), 2u);
}

TEST(OptimizerStepKernel, EveryOutputMayLieOverItsInput) {
  const std::shared_ptr<Device> device = cpu_device(2);
  KernelSubject s;
  const auto add = [&](std::int64_t n, float value) {
    const std::vector<float> all(static_cast<std::size_t>(n), value);
    Bytes bytes(all.size() * sizeof(float));
    std::memcpy(bytes.data(), all.data(), bytes.size());
    add_operand(&s, {DType::kFloat32, {n}}, std::move(bytes), false);
  };
  add(8, 1);
  add_operand(&s, {DType::kBool, {}}, Bytes(1, 1), false);
  for (int kind = 0; kind < 3; ++kind) {
    add(5, 1);
    add(100000, 2);
  }
  finish_subject(&s, "evener::OptimizerStep", 1, {{"kind", std::string("adagrad")}}, 4, {});
  const std::vector<const Kernel*> kernels = supporting_kernels(*device, s.desc());
  ASSERT_FALSE(kernels.empty());
  const Kernel& kernel = *kernels[0];
  const std::vector<Bytes> apart = KernelRun(*device, kernel, s).run();
  const OpDesc desc = s.desc();
  KernelPlan plan;
  kernel.plan(desc, &plan);
  std::vector<Buffer> in, out;
  for (Bytes& value : s.values) in.push_back({value.data(), 0, value.size()});
  for (std::size_t k = 0; k < s.outputs.size(); ++k) {
    const InPlace in_place = kernel.in_place(desc, plan, k);
    EXPECT_EQ(in_place.input, static_cast<int>(k < 2 ? 2 + k : 4 + k));
    out.push_back(in[static_cast<std::size_t>(in_place.input)]);
  }
  KernelArgs args;
  args.desc = &desc;
  args.plan = &plan;
  args.inputs = in;
  args.outputs = out;
  const Cancel never;
  device->wait(device->enqueue({&kernel, args, &never}, {}));
  for (std::size_t k = 0; k < out.size(); ++k) {
    EXPECT_EQ(std::memcmp(out[k].address(), apart[k].data(), apart[k].size()), 0) << "output " << k;
  }
}

TEST(GradientNormKernel, IsLikeTheReference) {
  KernelCheck c("evener::GradientNorm", 1);
  c.input({});
  for (const Shape& s : kShapes) c.input(s);
  c.outputs(2).kernel("gradient_norm").run();
  KernelCheck("evener::GradientNorm", 1).input({1}).input({}).outputs(2).kernel("gradient_norm").run();
  std::vector<float> odd(40000, 1.0f);
  odd[39999] = std::numeric_limits<float>::infinity();
  const std::vector<Bytes> y = KernelCheck("evener::GradientNorm", 1)
                                   .input({})
                                   .input({3})
                                   .input_of<float>({40000}, odd)
                                   .outputs(2)
                                   .kernel("gradient_norm")
                                   .run();
  EXPECT_EQ(y[1][0], 0);
  // The sum of squares is larger than any float32, and so is the norm without its scale.
  const std::vector<float> large(40000, 3e38f);
  const std::vector<Bytes> z = KernelCheck("evener::GradientNorm", 1)
                                   .input_of<float>({}, {1e-9f})
                                   .input_of<float>({40000}, large)
                                   .outputs(2)
                                   .kernel("gradient_norm")
                                   .run();
  float norm;
  std::memcpy(&norm, z[0].data(), sizeof norm);
  EXPECT_FLOAT_EQ(norm, 200 * 3e29f);
  EXPECT_EQ(z[1][0], 1);
}

TEST(ActivationGradientKernel, IsLikeTheReference) {
  const std::pair<const char*, const char*> all[] = {
      {"ReluGradient", "relu_gradient"}, {"SigmoidGradient", "sigmoid_gradient"},
      {"TanhGradient", "tanh_gradient"}, {"HardSwishGradient", "hard_swish_gradient"},
      {"ErfGradient", "erf_gradient"},   {"GeluGradient", "gelu_gradient"}};
  for (const auto& [op, kernel] : all) {
    const std::string name = std::string("evener::") + op;
    KernelCheck(name, 1).input({2, 3, 5, 77}, false, -5, 5).input({2, 3, 5, 77}).kernel(kernel).run();
    KernelCheck(name, 1).input({40001}, false, -5, 5).input({40001}).kernel(kernel).run();
  }
  KernelCheck("evener::GeluGradient", 1)
      .input({2, 333}, false, -5, 5)
      .input({2, 333})
      .attribute("approximate", std::string("tanh"))
      .kernel("gelu_gradient")
      .run();
}

TEST(PoolGradientKernel, IsLikeTheReference) {
  struct Window {
    Shape x, y;
    std::vector<std::int64_t> kernel, strides, pads;
  };
  const Window windows[] = {{{2, 3, 28, 28}, {2, 3, 14, 14}, {2, 2}, {2, 2}, {0, 0, 0, 0}},
                            {{2, 3, 7, 67}, {2, 3, 3, 33}, {2, 2}, {2, 2}, {0, 0, 0, 0}},
                            {{1, 2, 9, 10}, {1, 2, 5, 5}, {3, 3}, {2, 2}, {1, 1, 1, 1}},
                            {{1, 2, 33}, {1, 2, 33}, {3}, {1}, {1, 1}},
                            {{1, 2, 4, 5, 6}, {1, 2, 4, 5, 6}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}}};
  for (const Window& w : windows) {
    for (const auto& [op, kernel] : {std::pair{"MaxPool", "max_pool"}, {"AveragePool", "average_pool"}}) {
      KernelCheck c(std::string("evener::") + op + "Gradient", 1);
      c.input(w.x).input(w.y).ints("kernel_shape", w.kernel).ints("strides", w.strides).ints("pads", w.pads);
      c.kernel(std::string(kernel) + "_gradient").run();
    }
  }
}

TEST(MaxPoolGradientKernel, TheFirstOfEqualOnesTakesIt) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x(4 * 40);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 7 == 0 ? nan : static_cast<float>(i / 3 % 2);
  struct Window {
    std::int64_t kernel, stride, pad, rows, columns;
  };
  for (const Window& w : {Window{2, 2, 0, 2, 20}, {3, 2, 1, 2, 20}, {3, 1, 1, 4, 40}, {3, 3, 0, 1, 13}}) {
    KernelCheck("evener::MaxPoolGradient", 1)
        .input_of<float>({1, 1, 4, 40}, x)
        .input({1, 1, w.rows, w.columns})
        .ints("kernel_shape", {w.kernel, w.kernel})
        .ints("strides", {w.stride, w.stride})
        .ints("pads", {w.pad, w.pad, w.pad, w.pad})
        .kernel("max_pool_gradient")
        .run();
  }
}

TEST(SumsAndRepetitions, AreLikeTheReference) {
  const std::pair<Shape, Shape> folds[] = {{{64}, {33, 64}},    {{3, 1, 5}, {2, 3, 7, 5}},   {{}, {3, 333}},
                                           {{2, 3}, {4, 4, 9}}, {{5, 1, 1}, {2, 5, 7, 9}},   {{33, 64}, {33, 64}},
                                           {{1}, {70000}},      {{1, 1, 1, 1}, {2, 3, 4, 5}}};
  for (const auto& [small, large] : folds) {
    KernelCheck("evener::SumTo", 1).input(small).input(large).kernel("sum_to").run();
    KernelCheck("evener::RepeatTo", 1).input(large).input(small).kernel("repeat_to").run();
  }
}

void check_losses(const Shape& x, const Shape& targets, int classes) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(targets.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i * 7 % static_cast<std::size_t>(classes));
  for (const char* reduction : {"mean", "sum", "none"}) {
    for (const bool weighted : {false, true}) {
      const Shape scalar;
      const auto check = [&](const char* op, int opset, const char* kernel, bool is_gradient, int outputs) {
        KernelCheck c(op, opset);
        c.input(x, false, -6, 6).input_of<std::int64_t>(targets, values);
        if (is_gradient) c.input(std::string(reduction) == "none" ? targets : scalar);
        if (weighted) c.input({classes}, false, 0.5f, 2);
        c.attribute("reduction", std::string(reduction)).integer("ignore_index", 1).outputs(outputs).kernel(kernel).run();
      };
      check("SoftmaxCrossEntropyLoss", 13, "cross_entropy_loss", false, 2);
      check("NegativeLogLikelihoodLoss", 13, "likelihood_loss", false, 1);
      check("evener::CrossEntropyGradient", 1, "cross_entropy_gradient", true, 1);
      check("evener::LossGradient", 1, "loss_gradient", true, 1);
    }
  }
}

TEST(LossKernels, OfLinesAreLikeTheReference) {
  check_losses({131, 10}, {131}, 10);
  check_losses({70, 1003}, {70}, 1003);
}
TEST(LossKernels, OfColumnsAreLikeTheReference) { check_losses({3, 21, 5, 27}, {3, 5, 27}, 21); }
TEST(LossKernels, OfManyClassesAreCutAndJoined) {
  check_losses({2, 70000}, {2}, 70000);
  check_losses({1, 3000, 3}, {1, 3}, 3000);
}

TEST(LossKernels, ATargetThatIsNoClassIsRefused) {
  const std::shared_ptr<Device> device = cpu_device(1);
  KernelSubject s;
  add_operand(&s, {DType::kFloat32, {1, 3}}, Bytes(12), false);
  const std::int64_t target = 3;
  Bytes bytes(sizeof target);
  std::memcpy(bytes.data(), &target, sizeof target);
  add_operand(&s, {DType::kInt64, {1}}, std::move(bytes), false);
  finish_subject(&s, "SoftmaxCrossEntropyLoss", 13, {}, 1, {});
  EXPECT_THROW(KernelRun(*device, *supporting_kernels(*device, s.desc())[0], s).run(), Error);
}

TEST(BatchNormTrainingKernel, IsLikeTheReference) {
  for (const Shape& x : {Shape{3, 5, 4, 7}, Shape{33, 40}, Shape{2, 3, 70001}, Shape{1500, 19, 1}, Shape{7, 70, 3, 3}}) {
    const Shape c = {x[1]};
    const auto check = [&](int outputs) {
      KernelCheck("BatchNormalization", 15)
          .input(x, false, 0.5f, 3)
          .input(c)
          .input(c)
          .input(c)
          .input(c, false, 0.5f, 2)
          .integer("training_mode", 1)
          .outputs(outputs)
          .kernel("batch_norm_training")
          .run();
    };
    check(1);
    check(3);
    check(5);
    KernelCheck("evener::BatchNormalizationGradient", 1)
        .input(x, false, 0.5f, 3)
        .input(c)
        .input(x)
        .integer("training_mode", 1)
        .outputs(3)
        .kernel("batch_norm_gradient")
        .run();
    KernelCheck("evener::BatchNormalizationGradient", 1)
        .input(x)
        .input(c)
        .input(x)
        .input(c)
        .input(c, false, 0.5f, 2)
        .outputs(3)
        .kernel("batch_norm_gradient")
        .run();
  }
}

TEST(LayerNormGradientKernel, IsLikeTheReference) {
  for (const auto& [lines, line] : {std::pair{1, 5}, {77, 333}, {1000, 64}, {3, 70001}}) {
    KernelCheck("evener::LayerNormalizationGradient", 1)
        .input({lines, line}, false, 0.5f, 3)
        .input({line})
        .input({lines, line})
        .outputs(3)
        .kernel("layer_norm_gradient")
        .run();
  }
}

TEST(GatherGradientKernel, IsLikeTheReference) {
  KernelCheck("evener::GatherGradient", 1)
      .input({300, 333})
      .input_of<std::int64_t>({2, 3}, {5, -1, 299, 5, 0, 5})
      .input({2, 3, 333})
      .kernel("gather_gradient")
      .run();
  KernelCheck("evener::GatherGradient", 1)
      .input({3, 9, 4})
      .input_of<std::int32_t>({5}, {8, 8, -9, 1, 2})
      .input({3, 5, 4})
      .integer("axis", 1)
      .kernel("gather_gradient")
      .run();
}

}  // namespace
}  // namespace evn::test
