// graph/raise_opset: nodes of one opset, in a model of another, are written as the model's opset has them.
#include "graph/raise_opset.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/graph_builder.h"

namespace evn::test {
namespace {

// A model that imports `opset`, with the nodes of a function that imports another one.
Model model_of(Graph graph, std::int64_t opset) {
  Model model;
  model.ir_version = 8;
  model.opsets = {{"", opset}};
  model.graph = std::move(graph);
  return model;
}

bool has_attribute(const Node& node, const char* name) {
  return std::any_of(node.attributes.begin(), node.attributes.end(), [&](const Attribute& a) { return a.name == name; });
}

TEST(RaiseOpset, KeepsTheRatioOfDropoutAnAttributeBelowOpset12) {
  for (const std::int64_t to : {10, 11, 12, 17}) {
    GraphBuilder b(7);
    b.output(b.node("Dropout", {b.input("x", {2})}, {{"ratio", 0.25f}}));
    Model model = model_of(b.build(), to);
    raise_opset(model, to, nullptr);
    const Node& node = model.graph.nodes.at(0);
    EXPECT_EQ(node.since_version, to);
    EXPECT_EQ(node.inputs.size(), to < 12 ? 1u : 2u) << to;
    EXPECT_EQ(has_attribute(node, "ratio"), to < 12) << to;
  }
}

TEST(RaiseOpset, WritesUpsampleAsResizeFromOpset10On) {
  for (const std::int64_t to : {9, 10, 11, 13}) {
    GraphBuilder b(7);
    b.output(b.node("Upsample", {b.input("x", {1, 1, 2, 2})}, {{"scales", std::vector<float>{1, 1, 2, 2}}}));
    Model model = model_of(b.build(), to);
    raise_opset(model, to, nullptr);
    const Node& node = model.graph.nodes.at(0);
    EXPECT_EQ(node.op_type, to < 10 ? "Upsample" : "Resize") << to;
    EXPECT_NE(find_op("", node.op_type, to), nullptr) << to;
    EXPECT_EQ(node.inputs.size(), to < 11 ? 2u : 3u) << to;
  }
}

}  // namespace
}  // namespace evn::test
