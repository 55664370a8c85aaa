// The rewrite merge_convolutions: sums of convolutions of one value.
#include <gtest/gtest.h>

#include "tests/support/pass_check.h"

namespace evn::test::merge_convolutions_test {
namespace {

constexpr char kPass[] = "merge_convolutions";
using Ints = std::vector<std::int64_t>;
using Attributes = std::vector<Attribute>;

struct Branch {
  Shape weight;
  Attributes attributes;
  bool bias = true;
};

ValueId conv(GraphBuilder& b, ValueId x, const Branch& branch, const std::string& name) {
  std::vector<ValueId> inputs = {x, b.random("w" + name, branch.weight)};
  if (branch.bias) inputs.push_back(b.random("b" + name, Shape{branch.weight[0]}));
  return b.node("Conv", inputs, branch.attributes);
}

ValueId norm(GraphBuilder& b, ValueId x, std::int64_t channels) {
  const ValueId variance = b.constant("variance", Shape{channels}, std::vector<float>(static_cast<std::size_t>(channels), 0.7f));
  const Shape s{channels};
  return b.node("BatchNormalization", {x, b.random("scale", s), b.random("shift", s), b.random("mean", s), variance});
}

Graph sum(const char* op, const Shape& x_shape, const Branch& first, const Branch& second) {
  GraphBuilder b;
  const ValueId x = b.input("x", x_shape);
  b.output(b.node(op, {conv(b, x, first, "0"), conv(b, x, second, "1")}, {}, "y"));
  return b.build();
}

void expect_merged(const Graph& original) {
  Graph graph = original;
  EXPECT_TRUE(run_pass(graph, kPass));
  EXPECT_EQ(count_op(graph, "Conv"), 1);
  EXPECT_EQ(graph.nodes.size(), 1u);
  expect_same_results(graph, original, 1e-4, 1e-4);
}

const Attributes kPad1 = {{"pads", Ints{1, 1, 1, 1}}};

TEST(MergeConvolutions, SmallerWindowsLieWithinLargerOnes) {
  const Shape x{2, 4, 9, 8};
  for (const char* op : {"Add", "Sub"}) {
    expect_merged(sum(op, x, {{6, 4, 3, 3}, kPad1}, {{6, 4, 1, 1}, {}}));
    expect_merged(sum(op, x, {{6, 4, 1, 1}, {}}, {{6, 4, 3, 3}, kPad1}));
    expect_merged(sum(op, x, {{6, 4, 3, 3}, kPad1, false}, {{6, 4, 3, 3}, kPad1}));
  }
  expect_merged(sum("Add", x, {{6, 2, 5, 3}, {{"pads", Ints{2, 1, 2, 1}}, {"group", std::int64_t{2}}}, false},
                    {{6, 2, 1, 3}, {{"pads", Ints{0, 1, 0, 1}}, {"group", std::int64_t{2}}}, false}));
  expect_merged(sum("Add", x, {{6, 4, 3, 3}, {{"pads", Ints{2, 2, 2, 2}}, {"dilations", Ints{2, 2}}, {"strides", Ints{2, 1}}}},
                    {{6, 4, 1, 1}, {{"strides", Ints{2, 1}}}}));
  expect_merged(sum("Add", x, {{6, 4, 3, 3}, {{"pads", Ints{0, 1, 2, 1}}}}, {{6, 4, 1, 1}, {}}));  // at its first line
  expect_merged(sum("Add", Shape{1, 3, 12}, {{5, 3, 7}, {{"pads", Ints{3, 3}}}}, {{5, 3, 3}, {{"pads", Ints{1, 1}}}}));
  expect_merged(sum("Add", Shape{1, 2, 4, 5, 6}, {{3, 2, 3, 1, 3}, {{"pads", Ints{1, 0, 1, 1, 0, 1}}}}, {{3, 2, 1, 1, 1}, {}}));
}

TEST(MergeConvolutions, NormalizationsAndDepthwiseInputsAreOneTap) {
  for (const std::int64_t group : {1, 2, 8}) {
    for (const int side : {0, 1}) {
      for (const char* op : {"Add", "Sub"}) {
        GraphBuilder b;
        const ValueId x = b.input("x", Shape{1, 8, 7, 6});
        const ValueId y = conv(b, x, {{8, 8 / group, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}, {"group", group}}}, "0");
        const ValueId z = norm(b, x, 8);
        b.output(side == 0 ? b.node(op, {y, z}, {}, "y") : b.node(op, {z, y}, {}, "y"));
        expect_merged(b.build());
      }
    }
  }
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{1, 8, 7, 6});
  b.output(b.node("Add", {x, conv(b, x, {{8, 1, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}, {"group", std::int64_t{8}}}}, "0")}, {}, "y"));
  expect_merged(b.build());
}

TEST(MergeConvolutions, AllBranchesOfABlock) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{1, 8, 7, 6});
  const ValueId first = b.node("Add", {conv(b, x, {{8, 8, 1, 1}, {}}, "0"), norm(b, x, 8)});
  const ValueId second = b.node("Add", {first, conv(b, x, {{8, 8, 3, 3}, kPad1}, "1")});
  b.output(b.node("Relu", {b.node("Add", {second, conv(b, x, {{8, 8, 3, 3}, kPad1}, "2")})}, {}, "y"));
  const Graph original = b.build();
  Graph graph = original;
  optimize_graph(graph, {});
  EXPECT_EQ(graph.nodes.size(), 1u);
  expect_same_results(graph, original, 1e-4, 1e-4);
}

TEST(MergeConvolutions, OthersStay) {
  const Shape x{1, 4, 9, 9};
  for (const Graph& original : {
           sum("Add", x, {{4, 4, 3, 3}, {}}, {{4, 4, 1, 1}, {}}),  // of other sizes, which do not broadcast: an error of the run
           sum("Add", x, {{4, 4, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}}}, {{4, 4, 5, 5}, {}}),
           sum("Add", x, {{4, 4, 3, 3}, {{"pads", Ints{2, 2, 2, 2}}, {"dilations", Ints{2, 2}}}}, {{4, 4, 3, 3}, kPad1}),
           sum("Add", x, {{4, 4, 3, 3}, kPad1}, {{1, 4, 3, 3}, kPad1}),
           sum("Add", x, {{4, 4, 3, 3}, kPad1}, {{4, 2, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}, {"group", std::int64_t{2}}}}),
           sum("Mul", x, {{4, 4, 3, 3}, kPad1}, {{4, 4, 1, 1}, {}}),
           sum("Add", x, {{4, 4, 3, 3}, {{"auto_pad", std::string("SAME_UPPER")}}}, {{4, 4, 1, 1}, {}}),
       }) {
    Graph graph = original;
    try {
      EXPECT_FALSE(run_pass(graph, kPass));
    } catch (const Error&) {  // inference refuses the first
    }
  }
}

TEST(MergeConvolutions, ValuesThatAreReadElsewhereAndOtherInputsStay) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{1, 4, 5, 5}), z = b.input("z", Shape{1, 4, 5, 5});
  const ValueId read = conv(b, x, {{4, 4, 3, 3}, kPad1}, "0");
  b.output(b.node("Add", {read, conv(b, x, {{4, 4, 1, 1}, {}}, "1")}));
  b.output(b.node("Neg", {read}));
  b.output(b.node("Add", {conv(b, x, {{4, 4, 3, 3}, kPad1}, "2"), conv(b, z, {{4, 4, 1, 1}, {}}, "3")}));
  b.output(b.node("Add", {x, conv(b, x, {{4, 4, 3, 3}, kPad1}, "4")}));  // a sum where it stores, not a tap
  Graph graph = b.build();
  EXPECT_FALSE(run_pass(graph, kPass));
}

// The sum or difference of two convolutions of one weight and one bias each.
Graph single(const char* op, float first, float second, float bias) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{1, 1, 2, 2}), c = b.constant<float>("c", Shape{1}, {bias});
  const ValueId y = b.node("Conv", {x, b.constant<float>("w0", Shape{1, 1, 1, 1}, {first}), c});
  b.output(b.node(op, {y, b.node("Conv", {x, b.constant<float>("w1", Shape{1, 1, 1, 1}, {second}), c})}, {}, "y"));
  return b.build();
}

TEST(MergeConvolutions, SumsThatFloat32DoesNotHaveStay) {
  for (const Graph& original : {single("Add", 3e38f, 3e38f, 0), single("Add", -3e38f, -3e38f, 0), single("Sub", 3e38f, -3e38f, 0),
                                single("Sub", 2e-38f, 1.9e-38f, 0), single("Add", 1, 1, 3e38f)}) {
    Graph graph = original;
    EXPECT_FALSE(run_pass(graph, kPass));
    EXPECT_EQ(count_op(graph, "Conv"), 2);
  }
  Graph zero = single("Sub", 0.5f, 0.5f, 1);
  EXPECT_TRUE(run_pass(zero, kPass));  // 0 is exact
  for (const float variance : {1e30f, 1e36f}) {
    GraphBuilder b;
    const auto one = [&](const char* name, float v) { return b.constant<float>(name, Shape{1}, {v}); };
    const ValueId x = b.input("x", Shape{1, 1, 2, 2});
    const ValueId y = b.node("Conv", {x, b.constant<float>("w", Shape{1, 1, 1, 1}, {0})});
    b.output(b.node("Add", {y, b.node("BatchNormalization",
                                      {x, one("scale", 1e-30f), one("shift", 0), one("mean", 0), one("variance", variance)})}));
    Graph graph = b.build();
    EXPECT_FALSE(run_pass(graph, kPass));
  }
}

}  // namespace
}  // namespace evn::test::merge_convolutions_test
