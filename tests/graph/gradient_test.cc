// What takes a Gradient's place. That the derivatives are right is tests/models/test_gradient.py.
#include "graph/gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "graph/gradient/rules.h"
#include "graph/passes/passes.h"
#include "graph/validate.h"
#include "ops/merge.h"
#include "tests/model/load_helpers.h"

namespace evn {
namespace {

using namespace test;

constexpr const char* kTraining = "ai.onnx.preview.training";

Attr names_attribute(std::string_view name, const std::vector<std::string>& values) {
  Proto p;
  p.bytes(1, name);
  for (const std::string& v : values) p.bytes(9, v);
  return Attr(p.varint(20, 8));
}

std::vector<Attr> by(const std::vector<std::string>& xs, const char* y) { return {names_attribute("xs", xs), Attr("y", y)}; }

OnnxWriter base() {
  OnnxWriter w;
  return w.import(kTraining, 1).add_input("x", kF32, {2, 3}).add_input("z", kF32, {2, 3});
}

// y = tanh(x) * z.
OnnxWriter product() { return base().add_node("Tanh", {"x"}, {"t"}, {}, "tanh").add_node("Mul", {"t", "z"}, {"y"}, {}, "mul"); }

Model loaded(const OnnxWriter& w) {
  Model m = load_bytes(w.serialize());
  validate_model(m, {});
  return m;
}

int count(const Graph& g, const char* op) {
  return static_cast<int>(std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op_type == op; }));
}

const Value& named(const Graph& g, const std::string& name) {
  return *std::find_if(g.values.begin(), g.values.end(), [&](const Value& v) { return v.name == name; });
}

TEST(Gradient, ValuesOfTheGraphAreSharedWhereTheyAreGivenAsTheyAre) {
  OnnxWriter w = product();
  w.add_node("Gradient", {"x", "z"}, {"dx", "dz"}, by({"x", "z"}, "y"), "g", kTraining).add_output("dx").add_output("dz");
  const Model m = loaded(w);
  EXPECT_EQ(count(m.graph, "Tanh"), 1);
  EXPECT_EQ(count(m.graph, "Gradient"), 0);
}

TEST(Gradient, OnlyNodesThatOtherValuesChangeAreCopied) {
  OnnxWriter w = base()
                     .add_input("z1", kF32, {2, 3})
                     .add_node("Tanh", {"x"}, {"t"})
                     .add_node("Exp", {"z"}, {"e"})
                     .add_node("Mul", {"t", "e"}, {"y"});
  w.add_node("Gradient", {"x", "z1"}, {"dx", "dz"}, by({"x", "z"}, "y"), "g", kTraining).add_output("dx").add_output("dz");
  const Model m = loaded(w);
  EXPECT_EQ(count(m.graph, "Tanh"), 1);
  EXPECT_EQ(count(m.graph, "Exp"), 2);
}

TEST(Gradient, OutputsKeepTheirNamesAndHaveTheShapesOfXs) {
  OnnxWriter w = product();
  w.add_node("Gradient", {"x", "z"}, {"", "dz"}, by({"x", "z"}, "y"), "g", kTraining).add_output("dz");
  Model m = loaded(w);
  infer_graph(m.graph);
  EXPECT_EQ(named(m.graph, "dz").shape.to_string(), "[2,3]");
  EXPECT_EQ(named(m.graph, "dz").dtype, DType::kFloat32);
}

TEST(Gradient, NodesHaveNamesOfTheirOwnBelowTheGradient) {
  OnnxWriter w = product();
  w.add_node("Gradient", {"x", "z"}, {"dx", "dz"}, by({"x", "z"}, "y"), "g", kTraining).add_output("dx").add_output("dz");
  const Model m = loaded(w);
  std::set<std::string> names;
  int below = 0;
  for (const Node& n : m.graph.nodes) {
    EXPECT_TRUE(names.insert(n.name).second) << n.name;
    below += n.name.rfind("g/", 0) == 0;
  }
  EXPECT_EQ(below + 2, static_cast<int>(m.graph.nodes.size()));
}

TEST(Gradient, SumsOverDimsThatWereNotBroadcastGoAway) {
  OnnxWriter w = base();
  w.add_node("Exp", {"x"}, {"e"}).add_node("Mul", {"e", "z"}, {"y"});
  w.add_node("Gradient", {"x", "z"}, {"dx", "dz"}, by({"x", "z"}, "y"), "g", kTraining).add_output("dx").add_output("dz");
  Model m = loaded(w);
  infer_graph(m.graph);
  optimize_graph(m.graph, {nullptr, {}, UINT64_MAX});
  EXPECT_EQ(count(m.graph, "SumTo"), 0);
  EXPECT_EQ(count(m.graph, "Identity"), 0);
}

// With another reader of its input, a Clip would not be fused into the node before.
TEST(Gradient, ClipIsAloneInReadingItsInput) {
  OnnxWriter w;
  w.import(kTraining, 1).add_input("x", kF32, {-1, 3}).add_input("z", kF32, {-1, 3});
  w.add_initializer("low", {}, std::vector<float>{0}).add_initializer("high", {}, std::vector<float>{6});
  w.add_node("Mul", {"x", "z"}, {"p"}).add_node("Clip", {"p", "low", "high"}, {"y"});
  w.add_node("Gradient", {"x"}, {"dx"}, by({"x"}, "y"), "g", kTraining).add_output("y").add_output("dx");
  const Model m = loaded(w);
  const ValueId p = static_cast<ValueId>(&named(m.graph, "p") - m.graph.values.data());
  int readers = 0;
  for (const Node& n : m.graph.nodes) readers += static_cast<int>(std::count(n.inputs.begin(), n.inputs.end(), p));
  EXPECT_EQ(readers, 1);
}

TEST(Gradient, NothingIsMadeForWhatIsNotDifferentiatedBy) {
  OnnxWriter w = product();
  w.add_node("Gradient", {"z"}, {"dz"}, by({"z"}, "y"), "g", kTraining).add_output("dz");
  const Model m = loaded(w);
  for (const Node& n : m.graph.nodes) EXPECT_EQ(n.name.find("tanh"), n.name == "tanh" ? 0 : std::string::npos) << n.name;
}

TEST(Gradient, WhatIsBoundIsNotBoundAgain) {
  OnnxWriter w = product();
  w.add_node("Gradient", {"x"}, {"dx"}, by({"x"}, "y"), "g", kTraining).add_output("dx");
  Model m = load_bytes(w.serialize());
  bind_gradients(m);
  const std::size_t inputs = m.graph.nodes.back().inputs.size();
  bind_gradients(m);
  EXPECT_EQ(inputs, 3u);
  EXPECT_EQ(m.graph.nodes.back().inputs.size(), inputs);
  EXPECT_TRUE(is_bound_gradient(m.graph.nodes.back()));
}

TEST(Gradient, ANodeOfTheLibrarysDomainInAModelIsNone) {
  OnnxWriter w = product();
  w.add_node("Gradient", {"x", "x", "y"}, {"dx"}, {Attr("xs", 1)}, "g", "evener").add_output("dx");
  EXPECT_EQ(load_error(w.serialize()).status, EVN_ERROR_INVALID_MODEL);
}

TEST(Gradient, EveryRuleIsOfAnOperatorThatThereIs) {
  const GradientRuleIndex index;
  for (const GradientRules* rules : {&kElementwiseGradients, &kShapeGradients, &kReduceGradients, &kProductGradients,
                                     &kWindowGradients, &kNormGradients, &kIndifferent}) {
    for (const GradientRule& rule : *rules) EXPECT_TRUE(op_known(rule.domain, rule.op)) << rule.op;
  }
}

}  // namespace
}  // namespace evn
