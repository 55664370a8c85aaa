// Element-wise operators, pools, concatenation, resizing and batch normalization of the OpenCL backend against the reference.
#include <limits>

#include "tests/backends/opencl/opencl_test.h"

namespace evn::test {
namespace {

using Ints = std::vector<std::int64_t>;

Graph unary_graph(const std::string& op, const Shape& shape, std::vector<Attribute> attributes = {}, int opset = 14) {
  GraphBuilder b(opset);
  b.output(b.node(op, {b.input("x", shape)}, std::move(attributes)));
  return b.build();
}

TEST(OpenClUnary, FunctionsAgreeWithTheReference) {
  EVN_NEEDS_OPENCL();
  for (const char* op :
       {"Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "HardSwish", "Exp", "Abs", "Neg", "Floor", "Ceil"}) {
    SCOPED_TRACE(op);
    check_node(unary_graph(op, {3, 7, 11}), nullptr, -4, 4);
  }
  for (const char* op : {"Sqrt", "Reciprocal"}) {
    SCOPED_TRACE(op);
    check_node(unary_graph(op, {3, 7, 11}), nullptr, 0.1f, 4);
  }
}

TEST(OpenClUnary, AnyElementCountIsComputed) {
  EVN_NEEDS_OPENCL();
  for (std::int64_t n : {2, 15, 16, 17, 1023, 1025, 70001}) check_node(unary_graph("Relu", {n}));
}

TEST(OpenClUnary, AttributesCount) {
  EVN_NEEDS_OPENCL();
  check_node(unary_graph("LeakyRelu", {40}, {{"alpha", 0.3f}}));
  check_node(unary_graph("HardSigmoid", {40}, {{"alpha", 0.3f}, {"beta", 0.4f}}));
}

TEST(OpenClUnary, OutputMayLieOverTheInput) {
  EVN_NEEDS_OPENCL();
  NodeRun run(unary_graph("Relu", {5000}), 4);
  const std::vector<float> expected = run.reference();
  EXPECT_EQ(run.on(shared_device(), nullptr, true), expected);
}

TEST(OpenClUnary, GeluVanishesFarBelowZero) {
  EVN_NEEDS_OPENCL();
  const auto vanishes = [](NodeRun run) {
    for (const float v : run.on(shared_device())) ASSERT_EQ(v, 0.0f);
  };
  for (const char* form : {"none", "tanh"}) {
    SCOPED_TRACE(form);
    vanishes(NodeRun(unary_graph("Gelu", {70}, {{"approximate", std::string(form)}}, 20), 9, -1e6f, -20));
  }
  for (const EpilogueOpKind kind : {EpilogueOpKind::kGelu, EpilogueOpKind::kGeluTanh}) {
    SCOPED_TRACE(static_cast<int>(kind));
    Graph g = unary_graph("Neg", {70});
    g.nodes[0].epilogue.push({kind, 0, 0});
    vanishes(NodeRun(g, 9, 20, 1e6f));
  }
}

TEST(OpenClUnary, NanStaysNan) {
  EVN_NEEDS_OPENCL();
  for (const char* op : {"Relu", "HardSigmoid", "HardSwish", "Sigmoid"}) {
    NodeRun run(unary_graph(op, {20}), 4);
    run.input(0).data[3] = run.input(0).data[18] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> y = run.on(shared_device());
    ASSERT_EQ(y.size(), 20u);
    EXPECT_TRUE(std::isnan(y[3])) << op;
    EXPECT_TRUE(std::isnan(y[18])) << op;
    EXPECT_FALSE(std::isnan(y[4])) << op;
  }
}

TEST(OpenClClip, BoundsAreConstantInputsOrAttributes) {
  EVN_NEEDS_OPENCL();
  GraphBuilder b;
  b.output(b.node("Clip", {b.input("x", {50}), b.scalar(-0.5f), b.scalar(1.25f)}));
  check_node(b.build());
  GraphBuilder upper;
  upper.output(upper.node("Clip", {upper.input("x", {50}), kNoValue, upper.scalar(0.5f)}));
  check_node(upper.build());
  check_node(unary_graph("Clip", {50}, {{"min", -1.0f}, {"max", 0.5f}}, 10));
}

TEST(OpenClEpilogue, EveryStepAgreesWithTheReference) {
  EVN_NEEDS_OPENCL();
  for (const EpilogueOp step :
       {EpilogueOp{EpilogueOpKind::kRelu, 0, 0}, EpilogueOp{EpilogueOpKind::kClip, -0.5f, 0.75f},
        EpilogueOp{EpilogueOpKind::kLeakyRelu, 0.2f, 0}, EpilogueOp{EpilogueOpKind::kHardSigmoid, 0.25f, 0.4f},
        EpilogueOp{EpilogueOpKind::kHardSwish, 0.2f, 0.4f}, EpilogueOp{EpilogueOpKind::kSigmoid, 0, 0},
        EpilogueOp{EpilogueOpKind::kTanh, 0, 0}, EpilogueOp{EpilogueOpKind::kScale, 3, 0},
        EpilogueOp{EpilogueOpKind::kOffset, -0.3f, 0}, EpilogueOp{EpilogueOpKind::kGelu, 0, 0},
        EpilogueOp{EpilogueOpKind::kGeluTanh, 0, 0}, EpilogueOp{EpilogueOpKind::kSwish, 1.3f, 0}}) {
    SCOPED_TRACE(static_cast<int>(step.kind));
    Graph g = unary_graph("Neg", {37});
    g.nodes[0].epilogue.push(step);
    NodeRun run(g, 9);
    expect_near(run.on(shared_device()), run.reference(), {1e-5, 1e-6});
  }
}

TEST(OpenClEpilogue, FullChainIsApplied) {
  EVN_NEEDS_OPENCL();
  Graph g = unary_graph("Neg", {37});
  for (int i = 0; i < kMaxEpilogueOps; ++i)
    g.nodes[0].epilogue.push({i % 2 ? EpilogueOpKind::kScale : EpilogueOpKind::kOffset, 1.0f + 0.125f * i, 0});
  NodeRun run(g, 9);
  expect_near(run.on(shared_device()), run.reference(), {1e-5, 1e-6});
}

TEST(OpenClBinary, BroadcastsLikeTheReference) {
  EVN_NEEDS_OPENCL();
  const std::vector<std::pair<Shape, Shape>> pairs = {{{2, 3, 4, 5}, {2, 3, 4, 5}},
                                                      {{1, 6, 7, 9}, {1, 6, 1, 1}},
                                                      {{1, 6, 1, 1}, {1, 6, 7, 9}},
                                                      {{7, 33}, {33}},
                                                      {{100}, Shape{}},
                                                      {Shape{}, {100}},
                                                      {{1}, {2, 3, 40}},
                                                      {{4, 1, 5}, {1, 6, 1}},
                                                      {{3, 1, 20}, {3, 5, 20}},
                                                      {{2, 1, 3, 1, 17}, {5, 1, 4, 17}},
                                                      {{300, 3}, {3}},
                                                      {{3, 70001}, {3, 1}},
                                                      {{2, 3, 1}, {3, 1}}};
  for (const char* op : {"Add", "Sub", "Mul", "Div"}) {
    for (const auto& [a, c] : pairs) {
      SCOPED_TRACE(std::string(op) + " " + a.to_string() + " " + c.to_string());
      GraphBuilder b;
      b.output(b.node(op, {b.input("a", a), b.input("b", c)}));
      check_node(b.build(), nullptr, 0.5f, 3);
    }
  }
}

TEST(OpenClBinary, OutputMayLieOverTheFirstInput) {
  EVN_NEEDS_OPENCL();
  GraphBuilder b;
  b.output(b.node("Mul", {b.input("a", {1, 9, 8, 8}), b.input("b", {1, 9, 1, 1})}));
  NodeRun run(b.build(), 8);
  const std::vector<float> expected = run.reference();
  EXPECT_EQ(run.on(shared_device(), nullptr, true), expected);
}

TEST(OpenClBinary, IntegersHaveAKernelOfTheirOwn) {
  EVN_NEEDS_OPENCL();
  GraphBuilder b;
  b.output(b.node("Add", {b.ints({1, 2}), b.ints({3, 4})}));
  const NodeRun run(b.build(), 1);
  std::string reason;
  const Kernel* kernel = shared_device().find_kernel(run.desc(), &reason);
  ASSERT_NE(kernel, nullptr) << reason;
  EXPECT_STREQ(kernel->name, "add_integer");
}

TEST(OpenClPool, GlobalAverageOfAnyPlane) {
  EVN_NEEDS_OPENCL();
  check_node(unary_graph("GlobalAveragePool", {2, 5, 7, 9}));
  check_node(unary_graph("GlobalAveragePool", {1, 3, 160, 161}));
  check_node(unary_graph("GlobalAveragePool", {1, 4, 1, 1}));
}

TEST(OpenClPool, MaximumAndMeanAgreeWithTheReference) {
  EVN_NEEDS_OPENCL();
  const std::vector<std::vector<Attribute>> cases = {
      {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}},
      {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}},
      {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{2, 1}}, {"pads", Ints{1, 0, 1, 1}}},
      {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"ceil_mode", std::int64_t{1}}}};
  for (const char* op : {"MaxPool", "AveragePool"}) {
    for (const std::vector<Attribute>& attributes : cases) {
      SCOPED_TRACE(op);
      check_node(unary_graph(op, {2, 3, 13, 44}, attributes));
    }
  }
  check_node(unary_graph("AveragePool", {1, 2, 9, 40},
                         {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}, {"count_include_pad", std::int64_t{1}}}));
  check_node(unary_graph("AveragePool", {1, 2, 10, 40},
                         {{"kernel_shape", Ints{3, 3}},
                          {"strides", Ints{2, 2}},
                          {"pads", Ints{1, 1, 0, 0}},
                          {"count_include_pad", std::int64_t{1}},
                          {"ceil_mode", std::int64_t{1}}}));
}

TEST(OpenClConcat, AnyAxisAndAnyNumberOfInputs) {
  EVN_NEEDS_OPENCL();
  for (const std::int64_t axis : {0, 1, 2, -1}) {
    GraphBuilder b;
    std::vector<ValueId> inputs;
    for (const std::int64_t n : {5, 20, 1}) {
      Shape shape = {3, 4, 18};
      shape[axis < 0 ? 2 : static_cast<int>(axis)] = n;
      inputs.push_back(b.input("x" + std::to_string(n), shape));
    }
    b.output(b.node("Concat", inputs, {{"axis", axis}}));
    check_node(b.build());
  }
}

Graph resize_graph(const Shape& x, std::vector<float> scales, const char* coordinates, const char* nearest) {
  GraphBuilder b;
  const ValueId scale = b.constant<float>("scales", {4}, scales);
  b.output(b.node("Resize", {b.input("x", x), kNoValue, scale},
                  {{"mode", std::string("nearest")},
                   {"coordinate_transformation_mode", std::string(coordinates)},
                   {"nearest_mode", std::string(nearest)}}));
  return b.build();
}

TEST(OpenClResize, WholeFactorsRepeatElements) {
  EVN_NEEDS_OPENCL();
  for (const float factor : {1.0f, 2.0f, 3.0f, 4.0f, 8.0f}) {
    check_node(resize_graph({1, 3, 5, 37}, {1, 1, factor, factor}, "asymmetric", "floor"));
    check_node(resize_graph({2, 2, 3, 16}, {1, 1, 2, factor}, "half_pixel", "round_prefer_floor"));
    check_node(resize_graph({1, 2, 3, 5}, {1, 1, factor, 1}, "half_pixel", "round_prefer_ceil"));
  }
}

TEST(OpenClResize, BrokenFactorsTakeTheGeneralKernel) {
  EVN_NEEDS_OPENCL();
  const Graph broken = resize_graph({1, 3, 6, 6}, {1, 1, 1.5f, 2}, "asymmetric", "floor");
  std::string reason;
  EXPECT_STREQ(shared_device().find_kernel(NodeRun(broken, 1).desc(), &reason)->name, "resize");
  const Graph whole = resize_graph({1, 3, 6, 6}, {1, 1, 3, 2}, "asymmetric", "floor");
  EXPECT_STREQ(shared_device().find_kernel(NodeRun(whole, 1).desc(), &reason)->name, "resize_nearest");
}

TEST(OpenClBatchNorm, ScalesEachChannel) {
  EVN_NEEDS_OPENCL();
  GraphBuilder b;
  b.output(b.node("BatchNormalization", {b.input("x", {2, 5, 7, 9}), b.random("scale", {5}), b.random("bias", {5}),
                                         b.random("mean", {5}), b.random("variance", {5}, 0.5f, 2)}));
  check_node(b.build());
}

}  // namespace
}  // namespace evn::test
