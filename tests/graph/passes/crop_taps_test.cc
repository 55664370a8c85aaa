// The rewrite crop_taps: convolutions lose the taps that read padding alone.
#include <gtest/gtest.h>

#include <limits>

#include "ops/conv.h"
#include "tests/support/pass_check.h"

namespace evn::test::crop_taps_test {
namespace {

constexpr char kPass[] = "crop_taps";

struct Conv {
  Shape x, w;
  std::vector<std::int64_t> pads, strides, dilations;
  std::int64_t group = 1;
};

Graph graph_of(const Conv& c, float special = 0) {
  GraphBuilder b;
  std::vector<float> w(static_cast<std::size_t>(c.w.elements()));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(static_cast<int>(i * 37 % 41) - 20) / 16;
  if (special != 0) w[0] = special;
  const ValueId conv = b.node("Conv", {b.input("x", c.x), b.constant("w", c.w, w)},
                              {{"pads", c.pads}, {"strides", c.strides}, {"dilations", c.dilations}, {"group", c.group}});
  b.output(b.node("Sigmoid", {conv}, {}, "y"));
  return b.build();
}

Shape weight_shape(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.op_type == "Conv") return graph.values[node.inputs[1]].constant->desc.shape;
  }
  return {};
}

TEST(CropTaps, TapsThatSeeNothingVanish) {
  const std::vector<std::pair<Conv, Shape>> cases = {
      {{{1, 4, 16, 16}, {6, 4, 3, 3}, {24, 24, 24, 24}, {1, 1}, {24, 24}}, {6, 4, 1, 1}},
      {{{2, 4, 16, 20}, {6, 4, 3, 3}, {18, 18, 18, 18}, {1, 1}, {18, 18}}, {6, 4, 1, 3}},  // 20 columns are wide enough
      {{{1, 4, 3, 3}, {4, 2, 7, 7}, {3, 3, 3, 3}, {1, 1}, {1, 1}, 2}, {4, 2, 5, 5}},
      {{{1, 2, 4}, {3, 2, 5}, {8, 8}, {2}, {4}}, {3, 2, 1}},
      {{{1, 1, 1, 1}, {2, 1, 3, 3}, {1, 1, 1, 1}, {1, 1}, {1, 1}}, {2, 1, 1, 1}},
      {{{1, 1, 3, 4, 5}, {2, 1, 3, 3, 3}, {6, 6, 6, 6, 6, 6}, {1, 1, 1}, {6, 6, 6}}, {2, 1, 1, 1, 1}},
  };
  for (const auto& [conv, wanted] : cases) {
    const Graph original = graph_of(conv);
    Graph graph = original;
    EXPECT_TRUE(run_pass(graph, kPass)) << conv.w.to_string();
    EXPECT_EQ(weight_shape(graph).to_string(), wanted.to_string());
    expect_same_results(graph, original, 1e-6, 1e-6);
    EXPECT_FALSE(run_pass(graph, kPass)) << "a second time";
  }
}

TEST(CropTaps, WhatSeesSomethingStays) {
  const std::vector<Conv> cases = {
      {{1, 4, 16, 16}, {6, 4, 3, 3}, {12, 12, 12, 12}, {1, 1}, {12, 12}},  // some positions see each tap
      {{1, 4, -1, -1}, {6, 4, 3, 3}, {24, 24, 24, 24}, {1, 1}, {24, 24}},  // images of any size
      {{1, 4, 16, 16},
       {6, 4, 3, 3},
       {20, 20, 28, 28},
       {1, 1},
       {24, 24}},  // the first tap sees nothing, but a pad would be negative
      {{1, 4, 16, 16}, {6, 4, 1, 1}, {3, 3, 3, 3}, {1, 1}, {1, 1}},
  };
  for (const Conv& conv : cases) {
    Graph graph = graph_of(conv);
    EXPECT_EQ(run_pass(graph, kPass), conv.pads[0] == 20);
    EXPECT_EQ(weight_shape(graph).to_string(), conv.pads[0] == 20 ? "[6,4,2,2]" : conv.w.to_string());
  }
}

// 0 times infinity is no number, and padding is 0.
TEST(CropTaps, WeightsThatAreNotFiniteStay) {
  for (const float special : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Graph graph = graph_of({{1, 4, 16, 16}, {6, 4, 3, 3}, {24, 24, 24, 24}, {1, 1}, {24, 24}}, special);
    EXPECT_FALSE(run_pass(graph, kPass));
  }
}

}  // namespace
}  // namespace evn::test::crop_taps_test
