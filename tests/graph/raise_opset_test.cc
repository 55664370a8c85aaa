// graph/raise_opset: nodes of one opset, in a model of another, are written as the model's opset has them.
#include "graph/raise_opset.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/free_batch.h"
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

// The nodes that free_batch adds are of ai.onnx, whatever the domain and version of the node that they serve.
TEST(RaiseOpset, RaisesTheNodesThatFreeTheBatch) {
  for (const std::int64_t opset : {8, 9, 13}) {
    GraphBuilder b(static_cast<int>(opset));
    const ValueId x = b.input("x", {2, 3, 4});
    std::vector<float> same(2 * 4 * 5, 0.5f);
    b.output(b.node("com.microsoft::FusedMatMul", {x, b.constant<float>("w", {2, 4, 5}, same)}));
    Model model = model_of(b.build(), opset);
    model.opsets.push_back({"com.microsoft", 1});
    model.graph.nodes[0].since_version = 1;
    free_batch(model.graph, nullptr);
    ASSERT_GT(model.graph.nodes.size(), 1u);
    raise_opset(model, 17, nullptr);
    EXPECT_EQ(opset_of(model), 17);
    std::vector<std::string> names;
    for (const Node& node : model.graph.nodes) {
      names.push_back(node.op_type);
      EXPECT_EQ(node.since_version, node.domain.empty() ? 17 : 1) << node.op_type;
      EXPECT_NE(find_op(node.domain, node.op_type, node.since_version), nullptr) << node.op_type;
    }
    EXPECT_EQ(names, (std::vector<std::string>{"Slice", "Shape", "Gather", "Concat", "Expand", "FusedMatMul"}));
  }
}

TEST(RaiseOpset, AddsTheImportOfOnnxToAModelOfOtherDomainsAlone) {
  GraphBuilder b(13);
  const ValueId x = b.input("x", {2, 3});
  b.output(b.node("com.microsoft::FusedMatMul", {x, b.constant<float>("w", {3, 5}, std::vector<float>(15, 0.5f))}));
  Model model = model_of(b.build(), 13);
  model.opsets = {{"com.microsoft", 1}};
  model.graph.nodes[0].since_version = 1;
  raise_opset(model, 17, nullptr);
  EXPECT_EQ(opset_of(model), 17);
  EXPECT_EQ(model.graph.nodes[0].since_version, 1);
}

}  // namespace
}  // namespace evn::test
