// The rewrites around fuse_qdq: fuse_byte_tables, move_bytes, fuse_dynamic_quantize, fold_dequantize.
#include <gtest/gtest.h>

#include "tests/graph/passes/qdq_builder.h"

namespace evn::test::quantized_passes_test {
namespace {

using Ints = std::vector<std::int64_t>;
constexpr Numbers kX = {0.05f, 120};

TEST(FuseByteTables, FunctionsOfOneElement) {
  for (const char* op : {"Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Elu", "Relu", "Abs", "Softplus"}) {
    QdqBuilder b;
    b.result(b.node(op, {b.source({3, 4, 5}, kX)}), {0.02f, 60});
    const Graph g = b.optimized();
    EXPECT_EQ(count_op(g, "ByteTable"), 1) << op;
    EXPECT_EQ(g.nodes.size(), 3u) << op;
    b.expect_near(g);
  }
}

TEST(FuseByteTables, ChainsAndNumbersAreOneTable) {
  QdqBuilder b;
  const ValueId x = b.source({3, 4, 5}, kX);
  const ValueId gate = b.node("Clip", {b.node("Add", {x, b.scalar(3)}), b.scalar(0), b.scalar(6)});
  b.result(b.node("Div", {b.node("Mul", {gate, x}), b.scalar(6)}), {0.02f, 60});
  const Graph g = b.optimized();
  EXPECT_EQ(count_op(g, "ByteTable"), 1);
  EXPECT_EQ(g.nodes.size(), 3u);
  b.expect_near(g);
}

TEST(FuseByteTables, WhatComesOfOneTensorOnTwoWaysIsOneTable) {
  QdqBuilder b;
  const ValueId x = b.source({3, 4, 5}, kX);
  b.result(b.node("Mul", {x, b.both(b.node("Sigmoid", {x}), {1.0f / 256, 0})}), {0.03f, 10});
  const Graph g = b.optimized();
  EXPECT_EQ(count_op(g, "ByteTable"), 1);
  EXPECT_EQ(g.nodes.size(), 3u);
  b.expect_near(g);
}

TEST(FuseByteTables, AQuantizedNumberIsANumber) {
  QdqBuilder b;
  const ValueId two = b.dequantize(b.constant<std::uint8_t>("two", Shape{}, {200}), {0.01f, 0});
  b.result(b.node("Mul", {b.source({3, 4, 5}, kX), two}), {0.13f, 120});
  const Graph g = b.optimized();
  EXPECT_EQ(count_op(g, "ByteTable"), 1);
  b.expect_near(g);
}

TEST(FuseByteTables, EqualNumbersCancelAndOthersAreATable) {
  QdqBuilder b;
  const ValueId x = b.source({3, 4, 5}, kX);
  b.result(b.both(x, kX), kX);
  const Graph g = b.optimized();
  EXPECT_EQ(g.nodes.size(), 2u);
  b.expect_near(g);
  QdqBuilder c;
  c.result(c.source({3, 4, 5}, kX), {0.1f, 60});
  const Graph h = c.optimized();
  EXPECT_EQ(count_op(h, "ByteTable"), 1);
  EXPECT_EQ(h.nodes.size(), 3u);
  c.expect_near(h);
}

TEST(FuseByteTables, QuantizedSigmoidAndLeakyRelu) {
  for (const char* op : {"com.microsoft::QLinearSigmoid", "com.microsoft::QLinearLeakyRelu"}) {
    QdqBuilder b(DType::kUint8, 1);
    const ValueId x = b.input("x", Shape{3, 100}, DType::kUint8);
    b.output(b.node(op, {x, b.scalar(0.05f), b.byte(120, DType::kUint8), b.scalar(0.01f), b.byte(3, DType::kUint8)}));
    Graph g = b.build();
    EXPECT_TRUE(run_pass(g, "fuse_byte_tables"));
    ASSERT_EQ(g.nodes.size(), 1u);
    EXPECT_EQ(g.nodes[0].op_type, "ByteTable");
    HostTensor all({DType::kUint8, Shape{3, 100}});
    for (std::size_t i = 0; i < 300; ++i) all.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i);
    EXPECT_EQ(run_graph(g, {all})[0].bytes, run_graph(b.build(), {all})[0].bytes);
  }
}

TEST(FuseByteTables, AScaleOfZeroGivesWhatTheOperatorsGive) {
  QdqBuilder b;
  b.output(b.both(b.node("Abs", {b.both(b.input("x", Shape{3, 4}), {0.0f, 7})}), {0.5f, 3}));
  const Graph g = b.optimized(), original = b.build();
  const HostTensor x = random_tensor(Shape{3, 4}, 5);
  EXPECT_EQ(count_op(g, "ByteTable"), 1);
  EXPECT_EQ(run_graph(g, {x})[0].bytes, run_graph(original, {x})[0].bytes);
}

TEST(FuseByteTables, TwoTensorsOrSeveralNumbersAreNoFunction) {
  QdqBuilder b;
  const ValueId x = b.source({3, 4, 5}, kX), z = b.source({3, 4, 5}, kX);
  b.result(b.node("Div", {x, z}), {0.02f, 60});
  b.result(b.node("PRelu", {x, b.random("slope", Shape{4, 1})}), {0.02f, 60});
  b.result(b.node("Mul", {x, b.random("wide", Shape{1, 1, 1, 1})}), {0.02f, 60});
  const Graph g = b.optimized();
  EXPECT_EQ(count_op(g, "ByteTable"), 0);
  b.expect_near(g);
}

// ------------------------------------------------------------------------------------------------------------- moves --

TEST(MoveBytes, EachMoverIsLeftAlone) {
  struct Mover {
    const char* op;
    std::vector<Attribute> attributes;
    std::vector<Ints> lists;
  };
  const Mover movers[] = {
      {"MaxPool", {{"kernel_shape", Ints{2, 3}}, {"pads", Ints{1, 1, 0, 1}}}, {}},
      {"Reshape", {}, {{2, -1}}},
      {"Flatten", {}, {}},
      {"Transpose", {{"perm", Ints{0, 2, 3, 1}}}, {}},
      {"Unsqueeze", {}, {{0}}},
      {"Slice", {}, {{1}, {3}, {1}}},
      {"DepthToSpace", {{"blocksize", std::int64_t{2}}}, {}},
      {"Expand", {}, {{3, 2, 4, 4, 6}}},
      {"Pad", {}, {{0, 0, 1, 1, 0, 0, 0, 2}}},
      {"Pad", {{"mode", std::string("reflect")}}, {{0, 0, 1, 1, 0, 0, 0, 2}}},
  };
  for (const DType d : {DType::kUint8, DType::kInt8}) {
    for (const Mover& m : movers) {
      SCOPED_TRACE(m.op);
      for (const bool same : {true, false}) {
        QdqBuilder b(d);
        const Numbers n = {0.05f, d == DType::kInt8 ? -7 : 120};
        std::vector<ValueId> in = {b.source({2, 4, 4, 6}, n)};
        for (const Ints& list : m.lists) in.push_back(b.ints(list));
        b.result(b.node(m.op, in, m.attributes), same ? n : Numbers{0.04f, 10});
        const Graph g = b.optimized();
        EXPECT_EQ(count_op(g, m.op), 1);
        EXPECT_EQ(count_op(g, "ByteTable"), same ? 0 : 1);
        EXPECT_EQ(g.nodes.size(), same ? 3u : 4u);
        EXPECT_EQ(floats_left(g), 1);
        b.expect_near(g);
      }
    }
  }
}

TEST(MoveBytes, SplitGivesEachOutputItsNumbers) {
  QdqBuilder b;
  const std::vector<ValueId> y = b.nodes("Split", {b.source({2, 4, 3}, kX)}, 2, {{"axis", std::int64_t{1}}});
  b.result(y[0], kX);
  b.result(y[1], {0.1f, 60});
  const Graph g = b.optimized();
  EXPECT_EQ(count_op(g, "Split"), 1);
  EXPECT_EQ(count_op(g, "ByteTable"), 1);
  EXPECT_EQ(floats_left(g), 2);
  b.expect_near(g);
}

TEST(MoveBytes, NearestResizeAndChains) {
  QdqBuilder b;
  const ValueId x = b.node("Relu", {b.source({1, 2, 3, 4}, kX)});  // no mover: only what is behind it moves bytes
  const ValueId bytes = b.both(x, kX);
  const ValueId scales = b.constant<float>("scales", Shape{4}, {1, 1, 2, 2});
  const ValueId y = b.node("Resize", {bytes, kNoValue, scales}, {{"mode", std::string("nearest")}});
  b.result(b.node("Reshape", {b.node("Transpose", {y}), b.ints({-1})}), kX);
  const Graph g = b.optimized();
  EXPECT_EQ(floats_left(g), 1);
  EXPECT_EQ(g.nodes.size(), 6u);
  b.expect_near(g);
}

TEST(MoveBytes, WhatIsNoMoveStays) {
  const auto check = [](QdqBuilder& b, const char* op) {
    const Graph g = b.optimized();
    EXPECT_EQ(count_op(g, op), 1);
    EXPECT_GT(floats_left(g), 1) << op;
    b.expect_near(g);
  };
  {
    QdqBuilder b;
    const ValueId scales = b.constant<float>("scales", Shape{4}, {1, 1, 2, 2});
    b.result(b.node("Resize", {b.source({1, 2, 3, 4}, kX), kNoValue, scales}, {{"mode", std::string("linear")}}), kX);
    check(b, "Resize");
  }
  {
    QdqBuilder b;  // no step of the scale
    b.result(b.node("Pad", {b.source({2, 3}, kX), b.ints({0, 1, 0, 0}), b.scalar(0.031f)}), kX);
    check(b, "Pad");
  }
  {
    QdqBuilder b;
    const ValueId y = b.node("Transpose", {b.source({2, 3}, kX)});
    b.result(y, kX);
    b.output(b.node("Neg", {y}));
    check(b, "Transpose");
  }
  {
    QdqBuilder b(DType::kUint8, 11);  // 8 bits came with version 12
    b.result(b.node("MaxPool", {b.source({1, 2, 3, 4}, kX)}, {{"kernel_shape", Ints{2, 2}}}), kX);
    check(b, "MaxPool");
  }
}

// ----------------------------------------------------------------------------------------------------------- dynamic --

ValueId dynamic_product(QdqBuilder& b, const std::vector<ValueId>& q, bool bias, int salt) {
  std::vector<std::int8_t> w(12 * 9);
  for (std::size_t i = 0; i < w.size(); ++i)
    w[i] = static_cast<std::int8_t>(static_cast<int>(i * 37 + static_cast<std::size_t>(salt)) % 200 - 100);
  const std::string name = std::to_string(salt);
  const ValueId weight = b.constant<std::int8_t>("w" + name, Shape{12, 9}, w);
  const ValueId zero = b.constant<std::int8_t>("z" + name, Shape{}, {3});
  const ValueId sum = b.node("Cast", {b.node("MatMulInteger", {q[0], weight, q[2], zero})}, {{"to", std::int64_t{1}}});
  const ValueId y = b.node("Mul", {sum, b.node("Mul", {q[1], b.constant<float>("s" + name, Shape{1}, {0.01f})})});
  return bias ? b.node("Add", {y, b.random("bias" + name, Shape{9})}) : y;
}

// Scales and bias in the shapes that they may have, or one in which they are not for the channels.
ValueId dynamic_convolution(QdqBuilder& b, Shape scale, const Shape& bias, std::int64_t group) {
  std::vector<std::int8_t> w(static_cast<std::size_t>(6 * (4 / group) * 9));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<std::int8_t>(static_cast<int>(i * 37) % 200 - 100);
  const std::vector<ValueId> q = b.nodes("DynamicQuantizeLinear", {b.input("x", Shape{2, 4, 7, 6})}, 3);
  const ValueId weight = b.constant<std::int8_t>("w", Shape{6, 4 / group, 3, 3}, w),
                zero = b.constant<std::int8_t>("z", Shape{}, {3});
  const ValueId sum =
      b.node("ConvInteger", {q[0], weight, q[2], zero}, {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 1}}, {"group", group}});
  std::vector<float> scales(static_cast<std::size_t>(scale.elements()));
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f + 0.001f * static_cast<float>(i);
  const ValueId factor = b.node("Mul", {b.constant<float>("s", scale, scales), q[1]});
  const ValueId y = b.node("Mul", {factor, b.node("Cast", {sum}, {{"to", std::int64_t{1}}})});
  return bias.rank() == 0 ? y : b.node("Add", {y, b.random("bias", bias)});
}

TEST(FuseDynamicQuantize, Convolutions) {
  struct Form {
    Shape scale, bias;
    int nodes;  // that are left; 2: all is one step
  };
  const Form forms[] = {{{}, {}, 2},  {{1}, {1, 6, 1, 1}, 2}, {{6, 1, 1}, {6, 1, 1}, 2}, {{1, 6, 1, 1}, {}, 2},
                        {{}, {6}, 3}, {{6}, {}, 5},           {{}, {1, 6, 1, 6}, 3}};
  for (const Form& form : forms) {
    for (const std::int64_t group : {1, 2}) {
      SCOPED_TRACE(form.scale.to_string() + " " + form.bias.to_string());
      QdqBuilder b;
      b.output(dynamic_convolution(b, form.scale, form.bias, group));
      const Graph g = b.optimized();
      EXPECT_EQ(count_op(g, "ConvIntegerToFloat"), form.nodes == 5 ? 0 : 1);
      EXPECT_EQ(g.nodes.size(), static_cast<std::size_t>(form.nodes));
      b.expect_near(g);
    }
  }
}

TEST(FuseDynamicQuantize, AnActivationBehindIsAStepOfIt) {
  QdqBuilder b;
  b.output(b.node("LeakyRelu", {dynamic_convolution(b, {}, {1, 6, 1, 1}, 1)}));
  const std::vector<ValueId> q = b.nodes("DynamicQuantizeLinear", {b.input("y", Shape{2, 5, 12})}, 3);
  b.output(b.node("Relu", {dynamic_product(b, q, true, 0)}));
  const Graph g = b.optimized();
  EXPECT_EQ(g.nodes.size(), 4u);
  for (const Node& node : g.nodes) EXPECT_EQ(node.epilogue.count, node.op_type == "DynamicQuantizeLinear" ? 0 : 1) << node.op_type;
  b.expect_near(g);
}

TEST(FuseDynamicQuantize, OneProductOrSeveral) {
  for (const int products : {1, 2}) {
    for (const bool bias : {false, true}) {
      QdqBuilder b;
      const std::vector<ValueId> q = b.nodes("DynamicQuantizeLinear", {b.input("x", Shape{2, 5, 12})}, 3);
      for (int i = 0; i < products; ++i) b.output(dynamic_product(b, q, bias, i));
      const Graph g = b.optimized();
      EXPECT_EQ(count_op(g, "MatMulIntegerToFloat"), products);
      EXPECT_EQ(g.nodes.size(), static_cast<std::size_t>(products + 1));
      b.expect_near(g);
    }
  }
}

TEST(FuseDynamicQuantize, SumsThatAreReadElsewhereStay) {
  QdqBuilder b;
  const std::vector<ValueId> q = b.nodes("DynamicQuantizeLinear", {b.input("x", Shape{2, 5, 12})}, 3);
  b.output(dynamic_product(b, q, false, 1));
  b.output(b.node("Cast", {b.node("Abs", {b.graph().nodes[1].outputs[0]})}, {{"to", std::int64_t{1}}}));
  const Graph g = b.optimized();
  EXPECT_EQ(count_op(g, "MatMulInteger"), 1);
  b.expect_near(g);
}

// ----------------------------------------------------------------------------------------------------------- weights --

TEST(FoldDequantize, WeightsOfFloatOperatorsBecomeFloats) {
  for (const int axis : {-1, 0}) {
    QdqBuilder b;
    b.output(b.node("Conv", {b.input("x", Shape{1, 4, 5, 5}), b.weight({8, 4, 3, 3}, axis)}));
    const Graph g = b.optimized();
    EXPECT_EQ(g.nodes.size(), 1u);
    b.expect_near(g);
  }
}

// Counts what constants are made.
struct CountingLedger : Ledger {
  std::size_t bytes = 0;
  void charge(std::size_t n, MemoryClass) override { bytes += n; }
  void discharge(std::size_t, MemoryClass) noexcept override {}
};

TEST(FoldDequantize, WeightsThatRewritesHaveTakenDoNot) {
  QdqBuilder b;
  b.result(b.node("Conv", {b.source({1, 16, 5, 5}, {0.05f, 120}), b.weight({32, 16, 3, 3})}), {0.3f, 120});
  Graph g = b.build();
  const auto ledger = std::make_shared<CountingLedger>();
  PassContext context;
  context.ledger = ledger;
  optimize_graph(g, context);
  EXPECT_EQ(count_op(g, "QLinearConv"), 1);
  EXPECT_LT(ledger->bytes, 32u * 16 * 9 * sizeof(float));
}

}  // namespace
}  // namespace evn::test::quantized_passes_test
