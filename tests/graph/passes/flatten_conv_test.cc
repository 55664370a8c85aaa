// The rewrite flatten_conv: convolutions over three axes that are ones over two.
#include <gtest/gtest.h>

#include "tests/support/pass_check.h"

namespace evn::test::flatten_conv_test {
namespace {

constexpr char kPass[] = "flatten_conv";

struct Conv {
  Shape x, w;
  std::vector<std::int64_t> pads, strides, dilations;
  std::int64_t group = 1;
};

Graph graph_of(const Conv& c, bool biased, bool activated) {
  GraphBuilder b;
  std::vector<float> w(static_cast<std::size_t>(c.w.elements())), bias(static_cast<std::size_t>(c.w[0]));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(static_cast<int>(i * 37 % 41) - 20) / 32;
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i) / 4 - 1;
  std::vector<ValueId> inputs = {b.input("x", c.x), b.constant("w", c.w, w)};
  if (biased) inputs.push_back(b.constant("b", Shape{c.w[0]}, bias));
  const std::vector<Attribute> attributes = {
      {"pads", c.pads}, {"strides", c.strides}, {"dilations", c.dilations}, {"group", c.group}};
  if (activated) {
    b.output(b.node("Sigmoid", {b.node("Conv", inputs, attributes)}, {}, "y"));
  } else {
    b.output(b.node("Conv", inputs, attributes, "y"));
  }
  return b.build();
}

int conv_rank(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.op_type == "Conv") return graph.values[node.inputs[1]].constant->desc.shape.rank();
  }
  return -1;
}

TEST(FlattenConv, OneTapAlongAnAxisIsNoAxis) {
  const std::vector<Conv> cases = {
      {{2, 4, 5, 8, 9}, {6, 4, 1, 3, 3}, {0, 1, 1, 0, 1, 1}, {1, 1, 1}, {1, 1, 1}},
      {{1, 4, 5, 8, 9}, {6, 2, 1, 3, 2}, {0, 2, 0, 0, 1, 1}, {1, 2, 3}, {1, 2, 1}, 2},
      {{2, 4, 7, 5, 6}, {6, 4, 3, 1, 1}, {1, 0, 0, 2, 0, 0}, {2, 1, 1}, {1, 1, 1}},
      {{1, 4, 7, 5, 6}, {4, 1, 3, 1, 1}, {2, 0, 0, 2, 0, 0}, {1, 1, 1}, {2, 1, 1}, 4},
      {{2, 3, 2, 4, 5}, {5, 3, 1, 1, 1}, {0, 0, 0, 0, 0, 0}, {1, 1, 1}, {1, 1, 1}},
      {{1, 3, 1, 9, 9}, {5, 3, 1, 3, 3}, {0, 1, 1, 0, 1, 1}, {1, 2, 2}, {1, 1, 1}},
  };
  for (const Conv& conv : cases) {
    for (const bool biased : {false, true}) {
      for (const bool activated : {false, true}) {
        const Graph original = graph_of(conv, biased, activated);
        Graph graph = original;
        if (activated) run_pass(graph, "fuse_epilogue");
        EXPECT_TRUE(run_pass(graph, kPass)) << conv.w.to_string();
        EXPECT_EQ(conv_rank(graph), 4);
        expect_same_results(graph, original, 1e-6, 1e-6);
        EXPECT_FALSE(run_pass(graph, kPass)) << "a second time";
      }
    }
  }
}

TEST(FlattenConv, OthersStay) {
  const std::vector<Conv> cases = {
      {{2, 4, 5, 8, 9}, {6, 4, 3, 3, 3}, {1, 1, 1, 1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
      {{2, 4, 5, 8, 9}, {6, 4, 1, 1, 1}, {0, 0, 0, 0, 0, 0}, {2, 2, 2}, {1, 1, 1}},   // moves along all axes
      {{2, 4, 5, 8, 9}, {6, 4, 1, 3, 3}, {1, 1, 1, 1, 1, 1}, {1, 1, 1}, {1, 1, 1}},   // a tap that sees padding
      {{2, 4, -1, 8, 9}, {6, 4, 1, 3, 3}, {0, 1, 1, 0, 1, 1}, {1, 1, 1}, {1, 1, 1}},  // of any depth
      {{2, 4, 8, 9}, {6, 4, 1, 3}, {0, 1, 0, 1}, {1, 1}, {1, 1}},
  };
  for (const Conv& conv : cases) {
    Graph graph = graph_of(conv, true, false);
    EXPECT_FALSE(run_pass(graph, kPass)) << conv.w.to_string();
  }
}

}  // namespace
}  // namespace evn::test::flatten_conv_test
