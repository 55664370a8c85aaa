// Equalization and smoothing change a graph's constants and leave its function what it was.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quant/equalize.h"
#include "quant/layers.h"
#include "quant/smooth.h"
#include "tests/quant/plain_graph.h"

namespace evn {
namespace {

struct Net : test::PlainGraph {
  std::mt19937 random{1};

  ValueId constant(const std::string& name, const Shape& shape, std::vector<float> numbers = {}) {
    std::normal_distribution<float> normal;
    while (static_cast<std::int64_t>(numbers.size()) < shape.elements()) numbers.push_back(normal(random));
    return value(name, shape, weight_of_floats(shape, numbers, nullptr));
  }
  void node(const char* op, std::vector<ValueId> inputs, ValueId output, std::vector<Attribute> attributes = {}) {
    PlainGraph::node(op, op + std::to_string(graph.nodes.size()), std::move(inputs), output, std::move(attributes));
  }
  std::vector<float> numbers(ValueId v) const { return floats_of_weight(*graph.values[static_cast<std::size_t>(v)].constant); }
};

TEST(Equalize, BalancesChannelsOfConvolutionsAndKeepsTheProductOfTheirWeights) {
  Net net;
  const ValueId x = net.value("x", {1, 2, 4, 4}), h = net.value("h", {1, 3, 4, 4}), r = net.value("r", {1, 3, 4, 4}),
                y = net.value("y", {1, 4, 4, 4});
  const ValueId w = net.constant("w", {3, 2, 1, 1}, {100, -50, 1, 0.5f, 0.01f, 0.02f}), b = net.constant("b", {3}, {7, 8, 9});
  const ValueId v = net.constant("v", {4, 3, 1, 1});
  net.node("Conv", {x, w, b}, h);
  net.node("Relu", {h}, r);
  net.node("Conv", {r, v}, y);
  net.graph.inputs = {x};
  net.graph.outputs = {y};
  const std::vector<float> w0 = net.numbers(w), b0 = net.numbers(b), v0 = net.numbers(v);
  EXPECT_EQ(equalize_layers(net.graph, make_scheme(net.graph, {}), nullptr), 1);
  const std::vector<float> w1 = net.numbers(w), b1 = net.numbers(b), v1 = net.numbers(v);
  for (std::size_t c = 0; c < 3; ++c) {
    const float factor = w0[2 * c] / w1[2 * c];
    EXPECT_FLOAT_EQ(b0[c] / b1[c], factor);
    float read = 0;
    for (std::size_t o = 0; o < 4; ++o) {
      EXPECT_FLOAT_EQ(v1[3 * o + c], v0[3 * o + c] * factor);
      read = std::max(read, std::fabs(v1[3 * o + c]));
    }
    EXPECT_NEAR(std::max(std::fabs(w1[2 * c]), std::fabs(w1[2 * c + 1])) / read, 1, 0.01) << c;
    EXPECT_GT(std::fabs(factor - 1), 0.01f);
  }
}

TEST(Equalize, LeavesAloneWhatSomebodyElseReads) {
  for (const bool output : {false, true}) {
    Net net;
    const ValueId x = net.value("x", {1, 2, 4, 4}), h = net.value("h", {1, 3, 4, 4}), y = net.value("y", {1, 4, 4, 4}),
                  z = net.value("z", {1, 3, 4, 4});
    const ValueId w = net.constant("w", {3, 2, 1, 1}), v = net.constant("v", {4, 3, 1, 1});
    net.node("Conv", {x, w}, h);
    net.node("Conv", {h, v}, y);
    if (!output) net.node("Sigmoid", {h}, z);
    net.graph.inputs = {x};
    net.graph.outputs = {y, output ? h : z};
    EXPECT_EQ(equalize_layers(net.graph, make_scheme(net.graph, {}), nullptr), 0);
  }
}

TEST(Equalize, KnowsTheChannelsOfGroups) {
  Net net;
  const ValueId w = net.constant("w", {6, 2, 1, 1});  // three groups of two inputs and two outputs
  Node node;
  node.op_type = "Conv";
  node.attributes.push_back({"group", std::int64_t{3}});
  std::vector<std::size_t> channels;
  for_input_channels(node, {}, net.graph.values[static_cast<std::size_t>(w)].shape,
                     [&](std::size_t c, std::size_t) { channels.push_back(c); });
  EXPECT_EQ(channels, (std::vector<std::size_t>{0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5}));
}

struct Normed : Net {
  ValueId x, n, y, scale, bias, w;
  explicit Normed(bool read_by_another) {
    x = value("x", {8, 4}), n = value("n", {8, 4}), y = value("y", {8, 3});
    scale = constant("scale", {4}, {1, 1, 40, 1}), bias = constant("bias", {4}, {0, 0, 1, 0}), w = constant("w", {4, 3});
    node("LayerNormalization", {x, scale, bias}, n);
    node("MatMul", {n, w}, y);
    graph.inputs = {x};
    graph.outputs = {y};
    if (read_by_another) {
      const ValueId z = value("z", {8, 4});
      node("Softmax", {n}, z);
      graph.outputs.push_back(z);
    }
  }
  std::map<ValueId, Smoothing> smoothed(float largest) const {
    std::map<ValueId, ColumnRanges> seen;
    const std::vector<float> rows{-1, 2, largest, 0.5f, 1, -2, -largest / 2, 1};
    EXPECT_TRUE(seen[n].add(rows, 4));
    return smooth(graph, make_scheme(graph, {}), seen);
  }
};

TEST(Smooth, MovesHalfOfAnUnevenColumnIntoTheWeight) {
  const Normed net(false);
  const std::map<ValueId, Smoothing> s = net.smoothed(80);
  ASSERT_EQ(s.size(), 1u);
  const Smoothing& of = s.at(net.n);
  const std::vector<float> w = net.numbers(net.w);
  const float row = std::max({std::fabs(w[6]), std::fabs(w[7]), std::fabs(w[8])});
  EXPECT_FLOAT_EQ(of.factors[2], std::sqrt(80 / row));
  EXPECT_FLOAT_EQ(of.range.high, 80 / of.factors[2]);
  EXPECT_EQ(of.norm, 0);
  EXPECT_TRUE(net.smoothed(3).empty());  // even enough
}

TEST(Smooth, ANormalizationThatSomebodyElseReadsStaysWhatItIs) {
  const Normed net(true);
  EXPECT_EQ(net.smoothed(80).at(net.n).norm, -1);
  ;
}

}  // namespace
}  // namespace evn
