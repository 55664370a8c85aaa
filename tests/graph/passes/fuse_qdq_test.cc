// The rewrite fuse_qdq: float operators between DequantizeLinear and QuantizeLinear.
#include <gtest/gtest.h>

#include "tests/graph/passes/qdq_builder.h"

namespace evn::test::fuse_qdq_test {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr DType kBytes[] = {DType::kUint8, DType::kInt8};

int middle(DType d) { return d == DType::kInt8 ? 3 : 120; }

// What is left of one operator: a QuantizeLinear in front, a DequantizeLinear behind.
void expect_one(const Graph& g, const char* op, int nodes = 3) {
  EXPECT_EQ(count_op(g, op), 1);
  EXPECT_EQ(static_cast<int>(g.nodes.size()), nodes);
  EXPECT_EQ(floats_left(g), 1);
}

TEST(FuseQdq, ConvOfEachTypeWithEachBias) {
  for (const DType x : kBytes) {
    for (const DType w : kBytes) {
      for (const int axis : {-1, 0}) {
        for (const int bias : {0, 1, 2}) {
          SCOPED_TRACE(testing::Message() << dtype_name(x) << " " << dtype_name(w) << " axis " << axis << " bias " << bias);
          QdqBuilder b(x);
          std::vector<ValueId> in = {b.source({1, 4, 6, 5}, {0.05f, middle(x)}), b.weight({8, 4, 3, 3}, axis, w)};
          if (bias == 1) in.push_back(b.bias(8, 0.05f));
          if (bias == 2) in.push_back(b.random("bias", Shape{8}));
          b.result(b.node("Conv", in, {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}}, "conv"), {0.3f, middle(x)});
          const Graph g = b.optimized();
          expect_one(g, "QLinearConv");
          EXPECT_EQ(find_node(g, "QLinearConv")->name, "conv");
          b.expect_near(g);
        }
      }
    }
  }
}

TEST(FuseQdq, MissingZeroPointsAreZero) {
  QdqBuilder b;
  const ValueId x =
      b.node("DequantizeLinear", {b.node("QuantizeLinear", {b.input("x", Shape{1, 2, 4, 4}), b.scalar(0.04f)}), b.scalar(0.04f)});
  const ValueId w = b.node("DequantizeLinear", {b.constant<std::int8_t>("w", Shape{1, 2, 1, 1}, {77, -50}), b.scalar(0.01f)});
  const ValueId y = b.node("QuantizeLinear", {b.node("Conv", {x, w}), b.scalar(0.05f)});
  b.output(b.node("DequantizeLinear", {y, b.scalar(0.05f)}));
  const Graph g = b.optimized();
  expect_one(g, "QLinearConv");
  b.expect_near(g);
}

TEST(FuseQdq, ReluAndClipAreSaturationOrATable) {
  struct Bound {
    float low, high;
    int zero, tables;
  };
  // Relu at the least step; Clip whose ends are those of the type; others.
  const Bound bounds[] = {{0, -1, 0, 0}, {0, -1, 100, 1}, {0, 6, 0, 0}, {0, 3, 0, 1}, {-100, 100, 90, 0}, {-1, 2, 90, 1}};
  for (const Bound& n : bounds) {
    QdqBuilder b;
    ValueId y = b.node("Conv", {b.source({1, 4, 6, 5}, {0.05f, 120}), b.weight({8, 4, 1, 1})});
    y = n.high < 0 ? b.node("Relu", {y}) : b.node("Clip", {y, b.scalar(n.low), b.scalar(n.high)});
    b.result(y, {6.0f / 255, n.zero});
    const Graph g = b.optimized();
    expect_one(g, "QLinearConv", 3 + n.tables);
    EXPECT_EQ(count_op(g, "ByteTable"), n.tables) << n.low << " " << n.high << " " << n.zero;
    b.expect_near(g);
  }
}

TEST(FuseQdq, SeveralBoundsInARow) {
  QdqBuilder b;
  ValueId y = b.node("Conv", {b.source({1, 4, 6, 5}, {0.05f, 120}), b.weight({8, 4, 1, 1})});
  y = b.node("Clip", {b.node("Relu", {y}), b.scalar(-1), b.scalar(2.5f)});
  b.result(y, {0.02f, 60});
  const Graph g = b.optimized();
  expect_one(g, "QLinearConv", 4);
  b.expect_near(g);
}

TEST(FuseQdq, MatMulAndGemm) {
  for (const DType x : kBytes) {
    for (const bool columns : {false, true}) {
      for (int form = 0; form < 5; ++form) {
        SCOPED_TRACE(testing::Message() << dtype_name(x) << columns << " form " << form);
        QdqBuilder b(x);
        const ValueId a = b.source({7, 12}, {0.05f, middle(x)});
        const bool transposed = form == 2;
        const Shape shape = transposed ? Shape{9, 12} : Shape{12, 9};
        const ValueId w = b.weight(shape, columns ? (transposed ? 0 : 1) : -1);
        ValueId y = kNoValue;
        if (form == 0) y = b.node("MatMul", {a, w});
        if (form == 1) y = b.node("Gemm", {a, w, b.bias(9, 0.05f)});
        if (form == 2) y = b.node("Gemm", {a, w, b.random("c", Shape{9})}, {{"transB", std::int64_t{1}}, {"beta", 0.5f}});
        if (form == 3) y = b.node("Add", {b.node("MatMul", {a, w}), b.random("c", Shape{9})});
        if (form == 4) y = b.node("Relu", {b.node("Add", {b.bias(9, 0.05f), b.node("MatMul", {a, w})})});
        b.result(y, {0.1f, form == 4 ? (x == DType::kInt8 ? -128 : 0) : middle(x)});
        const Graph g = b.optimized();
        expect_one(g, form == 0 ? "QLinearMatMul" : "QGemm");
        b.expect_near(g);
      }
    }
  }
}

TEST(FuseQdq, ProductsWithoutQuantizeLinearGiveFloats) {
  for (int form = 0; form < 4; ++form) {
    QdqBuilder b;
    const ValueId a = b.source(form == 3 ? Shape{2, 7, 12} : Shape{7, 12}, {0.05f, 120});
    const ValueId w = b.weight(form == 1 ? Shape{9, 12} : Shape{12, 9}, form == 1 ? 0 : 1);
    ValueId y = kNoValue;
    if (form == 0) y = b.node("MatMul", {a, w});
    if (form == 1) y = b.node("Gemm", {a, w, b.bias(9, 0.05f)}, {{"transB", std::int64_t{1}}});
    if (form >= 2) y = b.node("Add", {b.random("c", Shape{9}), b.node("MatMul", {a, w})});
    b.output(y);
    const Graph g = b.optimized();
    EXPECT_EQ(count_op(g, "MatMulIntegerToFloat"), 1);
    EXPECT_EQ(g.nodes.size(), 2u);
    b.expect_near(g);
  }
}

TEST(FuseQdq, SumsDifferencesAndProducts) {
  for (const DType x : kBytes) {
    for (const char* op : {"Add", "Sub", "Mul"}) {
      QdqBuilder b(x);
      const ValueId a = b.source({2, 3, 4, 5}, {0.05f, middle(x)}), c = b.source({2, 3, 1, 1}, {0.03f, middle(x) + 5});
      b.result(b.node(op, {a, c}), {0.117f, middle(x)});
      const Graph g = b.optimized();
      EXPECT_EQ(count_op(g, std::string(op) == "Mul" ? "QLinearMul" : "QLinearAdd"), 1);
      EXPECT_EQ(g.nodes.size(), 4u);
      b.expect_near(g);
    }
  }
}

TEST(FuseQdq, GlobalAveragePool) {
  for (const DType x : kBytes) {
    QdqBuilder b(x);
    b.result(b.node("GlobalAveragePool", {b.source({2, 6, 4, 5}, {0.05f, middle(x)})}), {0.0113f, middle(x)});
    const Graph g = b.optimized();
    expect_one(g, "QLinearGlobalAveragePool");
    b.expect_near(g);
  }
}

TEST(FuseQdq, AveragePool) {
  for (const DType x : kBytes) {
    for (const std::int64_t include_pad : {0, 1}) {
      QdqBuilder b(x);
      b.result(b.node("AveragePool", {b.source({2, 6, 7, 8}, {0.05f, middle(x)})},
                      {{"kernel_shape", Ints{3, 3}},
                       {"pads", Ints{1, 1, 1, 1}},
                       {"strides", Ints{2, 1}},
                       {"count_include_pad", include_pad}}),
               {0.0113f, middle(x)});
      const Graph g = b.optimized();
      expect_one(g, "QLinearAveragePool");
      b.expect_near(g);
    }
  }
}

TEST(FuseQdq, MeanOverSpatialAxesIsAPool) {
  for (const std::int64_t keep : {0, 1}) {
    for (const int opset : {13, 18}) {
      QdqBuilder b(DType::kUint8, opset);
      const ValueId x = b.source({2, 6, 4, 5}, {0.05f, 120});
      const AttributeValue keeps = keep;
      const ValueId y = opset == 13 ? b.node("ReduceMean", {x}, {{"axes", Ints{-1, 2}}, {"keepdims", keeps}})
                                    : b.node("ReduceMean", {x, b.ints({2, 3})}, {{"keepdims", keeps}});
      b.result(y, {0.0113f, 120});
      const Graph g = b.optimized();
      EXPECT_EQ(count_op(g, "QLinearGlobalAveragePool"), 1);
      EXPECT_EQ(count_op(g, "Flatten"), keep == 0 ? 1 : 0);
      EXPECT_EQ(g.nodes.size(), keep == 0 ? 4u : 3u);
      b.expect_near(g);
    }
  }
}

TEST(FuseQdq, MeanThatIsTheLastNodeIsFlattened) {
  QdqBuilder b;
  b.output(b.quantize(
      b.node("ReduceMean", {b.source({2, 6, 4, 5}, {0.05f, 120})}, {{"axes", Ints{2, 3}}, {"keepdims", std::int64_t{0}}}),
      {0.02f, 120}));
  const Graph g = b.optimized();
  EXPECT_EQ(g.nodes.size(), 3u);
  EXPECT_EQ(g.nodes.back().op_type, "Flatten");
  EXPECT_EQ(g.nodes.back().outputs, g.outputs);
}

TEST(FuseQdq, MeanOverOtherAxesStays) {
  for (const Ints& axes : {Ints{1}, Ints{1, 2, 3}, Ints{2}}) {
    QdqBuilder b;
    b.result(b.node("ReduceMean", {b.source({2, 6, 4, 5}, {0.05f, 120})}, {{"axes", axes}}), {0.0113f, 120});
    const Graph g = b.optimized();
    EXPECT_EQ(count_op(g, "ReduceMean"), 1);
    b.expect_near(g);
  }
}

TEST(FuseQdq, QLinearConcatIsAConcatBehindTables) {
  QdqBuilder b;
  const ValueId x = b.quantize(b.input("x", {1, 2, 3}), {0.05f, 120}), z = b.quantize(b.input("z", {1, 4, 3}), {0.02f, 100});
  const ValueId joined = b.node("com.microsoft::QLinearConcat",
                                {b.scalar(0.05f), b.byte(120, DType::kUint8), x, b.scalar(0.05f), b.byte(120, DType::kUint8), z,
                                 b.scalar(0.02f), b.byte(100, DType::kUint8)},
                                {{"axis", std::int64_t{1}}});
  b.output(b.dequantize(joined, {0.05f, 120}));
  const Graph g = b.optimized();
  EXPECT_EQ(count_op(g, "Concat"), 1);
  EXPECT_EQ(count_op(g, "ByteTable"), 1);
  b.expect_near(g);
}

TEST(FuseQdq, ConcatOfBytesWithATableWhereNumbersDiffer) {
  QdqBuilder b;
  const Numbers n = {0.05f, 120};
  const ValueId same = b.source({1, 2, 3}, n), other = b.source({1, 4, 3}, {0.02f, 100});
  b.result(b.node("Concat", {same, other, b.source({1, 1, 3}, n)}, {{"axis", std::int64_t{1}}}), n);
  // What stands in front of a Concat may have other readers.
  b.result(b.node("Mul", {other, other}), {0.1f, 0});
  const Graph g = b.optimized();
  EXPECT_EQ(count_op(g, "Concat"), 1);
  EXPECT_EQ(count_op(g, "ByteTable"), 2);
  EXPECT_EQ(count_op(g, "QuantizeLinear"), 3);
  EXPECT_EQ(count_op(g, "DequantizeLinear"), 2);
  b.expect_near(g);
}

TEST(FuseQdq, ProductsOfTwoActivations) {
  for (const DType x : kBytes) {
    for (const bool quantized : {false, true}) {
      QdqBuilder b(x);
      const ValueId y = b.node("MatMul", {b.source({2, 1, 5, 4}, {0.05f, middle(x)}), b.source({3, 4, 6}, {0.05f, 7})});
      if (quantized) b.result(y, {0.3f, middle(x)});
      else b.output(b.node("Relu", {y}));
      const Graph g = b.optimized();
      EXPECT_EQ(count_op(g, quantized ? "QLinearMatMul" : "MatMulIntegerToFloat"), 1);
      EXPECT_EQ(g.nodes.size(), quantized ? 4u : 3u);
      b.expect_near(g);
    }
  }
}

TEST(FuseQdq, ProductsOfSeveralConstants) {
  QdqBuilder b;
  b.result(b.node("MatMul", {b.source({2, 5, 4}, {0.05f, 120}), b.weight({2, 4, 6})}), {0.3f, 120});
  const Graph g = b.optimized();
  EXPECT_EQ(count_op(g, "QLinearMatMul"), 1);
  b.expect_near(g);
}

// ------------------------------------------------------------------------------------------------- what must not be --

void expect_float(QdqBuilder& b, const char* op) {
  const Graph g = b.optimized();
  EXPECT_EQ(count_op(g, op), 1);
  EXPECT_EQ(count_op(g, "QLinearConv") + count_op(g, "QGemm") + count_op(g, "QLinearMatMul") + count_op(g, "MatMulIntegerToFloat") +
                count_op(g, "QLinearAdd") + count_op(g, "QLinearMul"),
            0);
  b.expect_near(g);
}

ValueId plain_conv(QdqBuilder& b) { return b.node("Conv", {b.source({1, 4, 6, 5}, {0.05f, 120}), b.weight({8, 4, 1, 1})}); }

TEST(FuseQdq, ConvWhoseFloatsAreReadElsewhereStays) {
  QdqBuilder b;
  const ValueId y = plain_conv(b);
  b.result(y, {0.3f, 120});
  b.output(b.node("Neg", {y}));
  expect_float(b, "Conv");
}

TEST(FuseQdq, ConvWhoseFloatsAreAnOutputStays) {
  QdqBuilder b;
  const ValueId y = plain_conv(b);
  b.result(y, {0.3f, 120});
  b.output(y);
  expect_float(b, "Conv");
}

TEST(FuseQdq, ScalesThatAreNoPositiveNumbersStay) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  for (const float scale : {0.0f, -0.01f, tiny, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    QdqBuilder b;
    b.result(b.node("Conv", {b.source({1, 4, 6, 5}, {0.05f, 120}), b.weight({8, 4, 1, 1}, -1, DType::kInt8, scale)}), {0.3f, 120});
    const Graph g = b.optimized();
    EXPECT_EQ(count_op(g, "Conv"), 1) << scale;
    EXPECT_EQ(count_op(g, "QLinearConv"), 0) << scale;
  }
}

TEST(FuseQdq, ComputedScalesStay) {
  QdqBuilder b;
  const ValueId scale = b.node("Abs", {b.input("scale", Shape{1})});
  const ValueId x = b.node("DequantizeLinear", {b.node("QuantizeLinear", {b.input("x", Shape{1, 4, 6, 5}), scale}), scale});
  b.result(b.node("Conv", {x, b.weight({8, 4, 1, 1})}), {0.3f, 120});
  expect_float(b, "Conv");
}

TEST(FuseQdq, ScalesOfAnotherAxisStay) {
  QdqBuilder b;
  b.result(b.node("Conv", {b.source({1, 4, 6, 5}, {0.05f, 120}), b.weight({8, 4, 1, 1}, 1)}), {0.3f, 120});
  expect_float(b, "Conv");
  QdqBuilder c;
  c.result(c.node("MatMul", {c.source({5, 4}, {0.05f, 120}), c.weight({4, 4}, 0)}), {0.3f, 120});
  expect_float(c, "MatMul");
}

TEST(FuseQdq, TheOperatorsRefuseScalesAndAxesThatDoNotFit) {
  struct Wrong {
    std::int64_t scales, axis;
  };
  for (const Wrong& wrong : {Wrong{3, 0}, Wrong{8, 7}, Wrong{8, -5}, Wrong{4, 0}, Wrong{0, 0}}) {
    QdqBuilder b;
    const ValueId w = b.constant<std::int8_t>("w", Shape{8, 4, 1, 1}, std::vector<std::int8_t>(32, 1));
    const std::vector<float> scales(static_cast<std::size_t>(wrong.scales), 0.01f);
    const ValueId dequantized =
        b.node("DequantizeLinear", {w, b.constant<float>("s", Shape{wrong.scales}, scales)}, {{"axis", wrong.axis}});
    b.result(b.node("Conv", {b.source({1, 4, 6, 5}, {0.05f, 120}), dequantized}), {0.3f, 120});
    EXPECT_THROW(b.optimized(), Error) << wrong.scales << " " << wrong.axis;
  }
}

TEST(FuseQdq, SixteenBitsStay) {
  QdqBuilder b(DType::kUint8, 21);
  const ValueId zero = b.constant<std::int16_t>("zero16", Shape{}, {3});
  const ValueId s = b.scalar(0.001f);
  const ValueId x = b.node("DequantizeLinear", {b.node("QuantizeLinear", {b.input("x", Shape{1, 4, 6, 5}), s, zero}), s, zero});
  b.result(b.node("Conv", {x, b.weight({8, 4, 1, 1})}), {0.3f, 120});
  expect_float(b, "Conv");
}

TEST(FuseQdq, ABiasThatSumsOverflowWithStays) {
  QdqBuilder b;
  const ValueId huge = b.constant<float>("huge", Shape{2}, {2e6f, 1});
  b.result(b.node("Conv", {b.source({1, 4, 6, 5}, {0.05f, 120}), b.weight({2, 4, 1, 1}), huge}), {0.3f, 120});
  expect_float(b, "Conv");
}

// Of weights that are next to nothing, as folded normalizations leave them.
TEST(FuseQdq, ABiasAtTheEndOfInt32IsCut) {
  QdqBuilder b;
  const ValueId w = b.constant<std::int8_t>("w", Shape{2, 4, 1, 1}, {127, -127, 100, 127, 90, -100, 127, 5});
  const ValueId scales = b.constant<float>("scales", Shape{2}, {2e-9f, 0.01f});
  const ValueId steps = b.constant<std::int32_t>("steps", Shape{2}, {std::numeric_limits<std::int32_t>::max(), -300});
  const ValueId bias_scales = b.constant<float>("bias_scales", Shape{2}, {0.05f * 2e-9f, 0.05f * 0.01f});
  const ValueId bias = b.node("DequantizeLinear", {steps, bias_scales}, {{"axis", std::int64_t{0}}});
  const ValueId weight = b.node("DequantizeLinear", {w, scales}, {{"axis", std::int64_t{0}}});
  b.result(b.node("Conv", {b.source({1, 4, 6, 5}, {0.05f, 120}), weight, bias}), {0.01f, 120});
  const Graph g = b.optimized();
  EXPECT_EQ(count_op(g, "QLinearConv"), 1);
  b.expect_near(g);
}

TEST(FuseQdq, ABiasThatWouldLoseAStepStays) {
  QdqBuilder b;
  // Sums have steps of 0.05, the result of 0.01.
  const ValueId bias = b.constant<float>("bias", Shape{2}, {0.024f, -0.02f});
  b.result(b.node("Conv", {b.source({1, 4, 6, 5}, {0.05f, 120}), b.weight({2, 4, 1, 1}, -1, DType::kInt8, 1), bias}), {0.01f, 120});
  expect_float(b, "Conv");
}

TEST(FuseQdq, ABiasOfMoreAxesThanTheProductIsAnAddition) {
  QdqBuilder b;
  const ValueId product = b.node("MatMul", {b.source({5, 4}, {0.05f, 120}), b.weight({4, 6})});
  b.result(b.node("Add", {product, b.random("bias", Shape{1, 1, 6})}), {0.3f, 120});
  const Graph g = b.optimized();
  EXPECT_EQ(count_op(g, "QGemm"), 0);
  b.expect_near(g);
}

constexpr std::int64_t kDeep = 70'200;  // terms of a sum: kDeep * 127 * 255 is beyond int32

// A dequantized constant whose elements are `magnitude` and -magnitude in turn.
ValueId alternating_weight(QdqBuilder& b, const Shape& shape, std::int8_t magnitude) {
  std::vector<std::int8_t> v(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<std::int8_t>(i % 2 == 0 ? magnitude : -magnitude);
  return b.node("DequantizeLinear", {b.constant<std::int8_t>("w", shape, v), b.scalar(0.01f)});
}

TEST(FuseQdq, ProductsWhoseSumsCouldOverflowStay) {
  for (const bool quantized : {false, true}) {
    for (const int form : {0, 1, 2}) {
      SCOPED_TRACE(testing::Message() << quantized << " form " << form);
      QdqBuilder b;
      const ValueId x = b.source({2, kDeep}), w = alternating_weight(b, form == 2 ? Shape{2, kDeep} : Shape{kDeep, 2}, 127);
      const ValueId y = form == 0 ? b.node("MatMul", {x, w}) : b.node("Gemm", {x, w}, {{"transB", std::int64_t{form == 2}}});
      if (quantized) b.result(y, {form == 2 ? 20.0f : 2000.0f, 120});
      else b.output(y);
      expect_float(b, form == 0 ? "MatMul" : "Gemm");
    }
  }
}

TEST(FuseQdq, ConvWhoseSumsCouldOverflowStays) {
  QdqBuilder b;
  b.result(b.node("Conv", {b.source({1, kDeep / 9, 4, 5}), alternating_weight(b, {2, kDeep / 9, 3, 3}, 127)}), {20, 120});
  expect_float(b, "Conv");
}

TEST(FuseQdq, DeepSumsOfSmallWeightsCannotOverflow) {
  QdqBuilder b;
  b.output(b.node("MatMul", {b.source({2, kDeep}), alternating_weight(b, {kDeep, 2}, 1)}));
  EXPECT_EQ(count_op(b.optimized(), "MatMulIntegerToFloat"), 1);
}

TEST(FuseQdq, ProductsOfActivationsWhoseSumsCouldOverflowStay) {
  QdqBuilder deep;
  deep.output(deep.node("MatMul", {deep.source({2, 40'000}), deep.source({40'000, 3})}));
  expect_float(deep, "MatMul");
  // The number of terms is unknown; one operand with a known number suffices.
  for (const std::int64_t terms : {-1, 8}) {
    QdqBuilder b;
    b.output(b.node("MatMul", {b.source({2, terms}), b.source({-1, 3})}));
    EXPECT_EQ(count_op(b.optimized(), "MatMulIntegerToFloat"), terms < 0 ? 0 : 1);
  }
}

// Rows of a Softmax sum to 1, whatever their length; along another axis they do not.
TEST(FuseQdq, ProductsOfSoftmaxAndActivationsOfAnUnknownLengthRunOnBytes) {
  for (const std::int64_t axis : {-1, 0, 1}) {
    QdqBuilder b;
    const ValueId weights = b.node("Softmax", {b.source({2, -1})}, {{"axis", axis}});
    b.output(b.node("MatMul", {b.both(weights, {1.0f / 255, 0}), b.source({-1, 3})}));
    EXPECT_EQ(count_op(b.optimized(), "MatMulIntegerToFloat"), axis == 0 ? 0 : 1) << axis;
  }
}

TEST(FuseQdq, GemmThatScalesOrTransposesItsLeftSideStays) {
  for (const bool transposes : {false, true}) {
    QdqBuilder b;
    b.result(b.node("Gemm", {b.source({12, 12}, {0.05f, 120}), b.weight({12, 9})},
                    transposes ? std::vector<Attribute>{{"transA", std::int64_t{1}}} : std::vector<Attribute>{{"alpha", 0.5f}}),
             {0.3f, 120});
    expect_float(b, "Gemm");
  }
}

TEST(FuseQdq, ProductsByAVectorStay) {
  QdqBuilder b;
  b.result(b.node("MatMul", {b.source({5, 4}, {0.05f, 120}), b.source({4}, {0.05f, 120})}), {0.3f, 120});
  expect_float(b, "MatMul");
}

TEST(FuseQdq, SumsOfUnlikeTypesStay) {
  QdqBuilder b(DType::kInt8);
  const ValueId zero = b.byte(120, DType::kUint8), s = b.scalar(0.05f);
  const ValueId x = b.node("DequantizeLinear", {b.node("QuantizeLinear", {b.input("x", Shape{3, 4}), s, zero}), s, zero});
  b.result(b.node("Add", {x, b.source({3, 4})}), {0.1f, 0});
  expect_float(b, "Add");
}

}  // namespace
}  // namespace evn::test::fuse_qdq_test
