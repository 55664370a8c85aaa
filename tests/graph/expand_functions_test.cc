// The functions of a model in place of their calls. That the results are right is tests/models/test_functions.py.
#include "graph/expand_functions.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/validate.h"
#include "ops/op.h"
#include "tests/model/load_helpers.h"

namespace evn {
namespace {

using namespace test;

Model expanded(const OnnxWriter& w, const Limits& limits = {}) {
  Model m = load_bytes(w.serialize());
  validate_model(m, limits);
  return m;
}
Error error_of(const OnnxWriter& w, const Limits& limits = {}) {
  LoadOptions options;
  options.limits = limits;
  return load_error(w.serialize(), options);
}
evn_status status_of(const OnnxWriter& w) { return error_of(w).status; }

// A model of float [2,3] "x" whose node "call" calls F of domain "local".
OnnxWriter caller(const std::vector<std::string>& inputs = {"x"}, const std::vector<Attr>& attributes = {},
                  const std::vector<std::string>& outputs = {"y"}) {
  OnnxWriter w;
  return w.import("local", 1)
      .add_input("x", kF32, {2, 3})
      .add_node("F", inputs, outputs, attributes, "call", "local")
      .add_output("y");
}

FunctionWriter function(const char* name, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs = {"b"}) {
  return FunctionWriter(name, inputs, outputs).import("", 17).import("local", 1);
}
FunctionWriter calling(const char* name, const char* callee) {
  return function(name, {"a"}).add_node(callee, {"a"}, {"b"}, {}, "inner", "local");
}

std::vector<std::string> names(const Graph& g) {
  std::vector<std::string> out;
  for (const Node& n : g.nodes) out.push_back(n.name);
  return out;
}
const std::string& value_name(const Graph& g, ValueId v) { return g.values[static_cast<std::size_t>(v)].name; }

TEST(ExpandFunctions, NodesGetPathNamesAndValuesOfTheirOwn) {
  OnnxWriter w = caller();
  w.add_node("F", {"x"}, {"z"}, {}, "again", "local").add_output("z");
  w.add_function(function("F", {"a"}).add_node("Exp", {"a"}, {"t"}, {}, "e").add_node("Neg", {"t"}, {"b"}));
  const Model m = expanded(w);
  EXPECT_EQ(names(m.graph), (std::vector<std::string>{"call/e", "call/Neg_1", "again/e", "again/Neg_1"}));
  EXPECT_EQ(value_name(m.graph, m.graph.nodes[0].outputs[0]), "call/t");
  EXPECT_EQ(value_name(m.graph, m.graph.nodes[2].outputs[0]), "again/t");
  EXPECT_EQ(m.graph.nodes[0].inputs, m.graph.inputs);
  EXPECT_EQ(m.graph.nodes[1].outputs[0], m.graph.outputs[0]);
  EXPECT_TRUE(m.functions.empty());
}

TEST(ExpandFunctions, ANameThatIsTakenIsAvoided) {
  OnnxWriter w = caller();
  w.add_node("Abs", {"x"}, {"call/t"}).add_output("call/t");
  w.add_function(function("F", {"a"}).add_node("Exp", {"a"}, {"t"}).add_node("Neg", {"t"}, {"b"}));
  const Model m = expanded(w);
  EXPECT_EQ(value_name(m.graph, m.graph.nodes[0].outputs[0]), "call/t~1");
}

TEST(ExpandFunctions, FunctionsCallFunctionsInAnyOrder) {
  OnnxWriter w = caller();
  w.add_function(calling("F", "G"))
      .add_function(calling("G", "H"))
      .add_function(function("H", {"a"}).add_node("Relu", {"a"}, {"b"}, {}, "r"));
  EXPECT_EQ(names(expanded(w).graph), (std::vector<std::string>{"call/inner/inner/r"}));
}

TEST(ExpandFunctions, AttributesComeFromTheCallElseTheDefaultElseNowhere) {
  const auto alpha = [](const std::vector<Attr>& given, bool has_default) {
    FunctionWriter f = function("F", {"a"});
    f.add_node("LeakyRelu", {"a"}, {"b"}, {Attr::refer("alpha", "slope", 1)});
    has_default ? f.add_default(Attr("slope", 0.5f)) : f.add_attribute("slope");
    return attr_float(expanded(caller({"x"}, given).add_function(f)).graph.nodes.at(0), 0);
  };
  EXPECT_EQ(alpha({{"slope", 0.25f}}, true), 0.25f);
  EXPECT_EQ(alpha({}, true), 0.5f);
  EXPECT_EQ(alpha({}, false), 0.01f);            // LeakyRelu's own default
  EXPECT_EQ(alpha({{"other", 1}}, true), 0.5f);  // nobody refers to it
  FunctionWriter f = function("F", {"a"}).add_node("LeakyRelu", {"a"}, {"b"}, {Attr::refer("alpha", "slope", 1)});
  const Error e = error_of(caller({"x"}, {{"slope", 1}}).add_function(f));
  EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);  // an integer
  EXPECT_STREQ(e.node, "call/LeakyRelu_0");
}

TEST(ExpandFunctions, AttributesPassThroughCalls) {
  OnnxWriter w = caller({"x"}, {{"p", 0.75f}});
  w.add_function(function("F", {"a"}).add_node("G", {"a"}, {"b"}, {Attr::refer("q", "p", 1)}, "", "local"));
  w.add_function(function("G", {"a"}).add_node("Elu", {"a"}, {"b"}, {Attr::refer("alpha", "q", 1)}));
  EXPECT_EQ(attr_float(expanded(w).graph.nodes.at(0), 0), 0.75f);
}

TEST(ExpandFunctions, InputsThatTheCallLacksAreMissingInside) {
  const FunctionWriter clip = function("F", {"a", "low", "high"}).add_node("Clip", {"a", "low", "high"}, {"b"});
  EXPECT_EQ(expanded(caller({"x"}).add_function(clip)).graph.nodes.at(0).inputs.size(), 1u);
  OnnxWriter w = caller({"x", "", "top"});
  w.add_initializer("top", {}, std::vector<float>{1}).add_function(clip);
  const Model m = expanded(w);
  EXPECT_EQ(m.graph.nodes.at(0).inputs[1], kNoValue);
  EXPECT_NE(m.graph.nodes.at(0).inputs[2], kNoValue);
  const FunctionWriter add = function("F", {"a", "c"}).add_node("Add", {"a", "c"}, {"b"});
  EXPECT_EQ(status_of(caller({"x"}).add_function(add)), EVN_ERROR_INVALID_MODEL);  // Add needs it
}

TEST(ExpandFunctions, OutputsThatNobodyWantsStayInside) {
  FunctionWriter f = function("F", {"a"}, {"b", "c"});
  f.add_node("Exp", {"a"}, {"b"}).add_node("Neg", {"b"}, {"c"});
  EXPECT_EQ(expanded(caller({"x"}, {}, {"", "y"}).add_function(f)).graph.nodes.size(), 2u);
  EXPECT_EQ(expanded(caller({"x"}, {}, {"y"}).add_function(f)).graph.nodes.size(), 2u);
}

TEST(ExpandFunctions, CallsHaveNoMoreInputsAndOutputsThanTheFunction) {
  const FunctionWriter f = function("F", {"a"}).add_node("Relu", {"a"}, {"b"});
  for (const OnnxWriter& w : {caller({"x", "x"}).add_function(f), caller({"x"}, {}, {"y", "z"}).add_function(f)}) {
    const Error e = error_of(w);
    EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);
    EXPECT_STREQ(e.node, "call");
  }
}

TEST(ExpandFunctions, AnOutputMayBeAnInput) {
  const Model m = expanded(caller().add_function(function("F", {"a"}, {"a"})));
  ASSERT_EQ(m.graph.nodes.size(), 1u);
  EXPECT_EQ(m.graph.nodes[0].op_type, "Identity");
  EXPECT_EQ(m.graph.nodes[0].inputs, m.graph.inputs);
  EXPECT_EQ(status_of(caller({""}).add_function(function("F", {"a"}, {"a"}))), EVN_ERROR_INVALID_MODEL);
}

TEST(ExpandFunctions, AnOutputThatTheFunctionDoesNotMakeIsRefused) {
  EXPECT_EQ(status_of(caller().add_function(function("F", {"a"}))), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(caller().add_function(function("F", {"a"}).add_node("Neg", {"nothing"}, {"b"}))), EVN_ERROR_INVALID_MODEL);
  // The values of the caller are not to be seen.
  EXPECT_EQ(status_of(caller().add_function(function("F", {"a"}).add_node("Neg", {"x"}, {"b"}))), EVN_ERROR_INVALID_MODEL);
}

TEST(ExpandFunctions, NodesKeepTheVersionsThatTheFunctionImports) {
  // Opset 13 moved the axes of ReduceSum to an input.
  FunctionWriter old("F", {"a"}, {"b"});
  old.import("", 11).add_node("ReduceSum", {"a"}, {"b"}, {{"axes", std::vector<std::int64_t>{1}}});
  OnnxWriter w = caller();
  w.add_node("ReduceSum", {"x"}, {"z"}).add_output("z").add_function(old);
  const Model m = expanded(w);
  EXPECT_EQ(m.graph.nodes.at(0).since_version, 11);
  EXPECT_EQ(m.graph.nodes.at(1).since_version, 17);
  EXPECT_NE(m.graph.nodes[0].op, m.graph.nodes[1].op);
}

TEST(ExpandFunctions, DomainsMustBeImportedByWhoUsesThem) {
  FunctionWriter f("F", {"a"}, {"b"});
  f.import("other", 1).add_node("Relu", {"a"}, {"b"});
  Error e = error_of(caller().add_function(f));
  EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);
  EXPECT_STREQ(e.node, "call");
  OnnxWriter w;
  w.add_input("x", kF32, {1}).add_node("F", {"x"}, {"y"}, {}, "call", "local").add_output("y").add_function(calling("F", "F"));
  EXPECT_EQ(status_of(w), EVN_ERROR_INVALID_MODEL);
  FunctionWriter late("F", {"a"}, {"b"});
  EXPECT_EQ(status_of(caller().add_function(late.import("", 1000).add_node("Relu", {"a"}, {"b"}))), EVN_ERROR_UNSUPPORTED);
}

TEST(ExpandFunctions, AnOperatorOfTheLibraryStandsAboveAFunctionOfItsName) {
  const auto ops = [](const char* op_type, const char* domain, const char* overload) {
    OnnxWriter w;
    if (*domain != '\0') w.import(domain, 1);
    w.add_input("x", kF32, {2, 3}).add_node(node_proto(op_type, {"x"}, {"y"}, {}, "n", domain).bytes(8, overload)).add_output("y");
    FunctionWriter f(op_type, {"a"}, {"b"}, domain);
    f.import("", 17).add_node("Neg", {"a"}, {"b"}).proto.bytes(13, overload);
    return expanded(w.add_function(f)).graph.nodes.at(0).op_type;
  };
  EXPECT_EQ(ops("Relu", "", ""), "Relu");
  EXPECT_EQ(ops("Gelu", "com.microsoft", ""), "Gelu");
  EXPECT_EQ(ops("NoSuchOperator", "com.microsoft", ""), "Neg");
  EXPECT_EQ(ops("Gelu", "com.microsoft", "mine"), "Neg");
  EXPECT_EQ(ops("Gelu", "", ""), "Neg");  // an operator from opset 20 on; the model imports 17
}

TEST(ExpandFunctions, OverloadsTellFunctionsApart) {
  const auto op = [](const char* overload) {
    OnnxWriter w;
    w.import("local", 1)
        .add_input("x", kF32, {1})
        .add_node(node_proto("F", {"x"}, {"y"}, {}, "n", "local").bytes(8, overload))
        .add_output("y");
    w.add_function(function("F", {"a"}).add_node("Neg", {"a"}, {"b"}));
    FunctionWriter second = function("F", {"a"}).add_node("Abs", {"a"}, {"b"});
    second.proto.bytes(13, "second");
    return expanded(w.add_function(second)).graph.nodes.at(0).op_type;
  };
  EXPECT_EQ(op(""), "Neg");
  EXPECT_EQ(op("second"), "Abs");
  try {
    op("third");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
    EXPECT_STREQ(e.node, "n");
  }
}

// ---------------------------------------------------------------------------------------------------------- bodies --

Proto branch(const std::vector<Proto>& nodes, const char* output) {
  OnnxWriter w;
  for (const Proto& n : nodes) w.add_node(n);
  w.add_output(output);
  return w.graph();
}

TEST(ExpandFunctions, CallsInBranchesAreExpanded) {
  OnnxWriter w;
  w.import("local", 1).add_input("c", kBool, {}).add_input("x", kF32, {1});
  const Proto then = branch({node_proto("F", {"x"}, {"t"}, {}, "call", "local")}, "t");
  const Proto otherwise = branch({node_proto("Abs", {"x"}, {"t"}, {}, "abs")}, "t");
  w.add_node("If", {"c"}, {"y"}, {Attr::graph("then_branch", then), Attr::graph("else_branch", otherwise)}, "if").add_output("y");
  w.add_function(function("F", {"a"}).add_node("Exp", {"a"}, {"s"}, {}, "e").add_node("Neg", {"s"}, {"b"}, {}, "n"));
  EXPECT_EQ(names(expanded(w).graph), (std::vector<std::string>{"if/then/call/e", "if/then/call/n", "if/else/abs", "if"}));
}

TEST(ExpandFunctions, BodiesInFunctionsSeeItsValuesAndAttributes) {
  // "t" is the name of the caller's value that is handed in, and of the branch's own.
  const Proto then = branch({node_proto("LeakyRelu", {"a"}, {"t"}, {Attr::refer("alpha", "p", 1)}, "leak"),
                             node_proto("Add", {"t", "s"}, {"sum"}, {}, "add")},
                            "sum");
  const Proto otherwise = branch({node_proto("Neg", {"a"}, {"u"}, {}, "neg")}, "u");
  FunctionWriter f = function("F", {"c", "a"});
  f.add_node("Exp", {"a"}, {"s"}, {}, "exp");
  f.add_node("If", {"c"}, {"b"}, {Attr::graph("then_branch", then), Attr::graph("else_branch", otherwise)}, "if");
  OnnxWriter w;
  w.import("local", 1).add_input("c", kBool, {}).add_input("x", kF32, {1}).add_node("Abs", {"x"}, {"t"}, {}, "abs");
  w.add_node("F", {"c", "t"}, {"y"}, {{"p", 0.5f}}, "call", "local").add_output("y").add_function(f);
  const Model m = expanded(w);
  ASSERT_EQ(names(m.graph),
            (std::vector<std::string>{"abs", "call/exp", "call/if/then/leak", "call/if/then/add", "call/if/else/neg", "call/if"}));
  const Node& leak = m.graph.nodes[2];
  EXPECT_EQ(leak.inputs, m.graph.nodes[0].outputs);
  EXPECT_EQ(attr_float(leak, 0), 0.5f);
  EXPECT_EQ(m.graph.nodes[3].inputs, (std::vector<ValueId>{leak.outputs[0], m.graph.nodes[1].outputs[0]}));
}

TEST(ExpandFunctions, BodiesInFunctionsMayLackWhatTheCallLacks) {
  const auto model = [](const char* output) {
    const Proto then = branch({node_proto("Clip", {"a", "low"}, {"t"})}, output);
    const Proto otherwise = branch({node_proto("Neg", {"a"}, {"u"})}, "u");
    FunctionWriter f = function("F", {"c", "a", "low"});
    f.add_node("If", {"c"}, {"b"}, {Attr::graph("then_branch", then), Attr::graph("else_branch", otherwise)}, "if");
    OnnxWriter w;
    w.import("local", 1).add_input("c", kBool, {}).add_input("x", kF32, {1});
    return w.add_node("F", {"c", "x"}, {"y"}, {}, "call", "local").add_output("y").add_function(f);
  };
  EXPECT_EQ(expanded(model("t")).graph.nodes.at(0).inputs.size(), 1u);
  EXPECT_EQ(status_of(model("low")), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(model("x")), EVN_ERROR_INVALID_MODEL);  // the caller's
}

TEST(ExpandFunctions, ABodyMayBeGivenByTheCall) {
  const Proto then = branch({node_proto("Add", {"x", "x"}, {"t"}, {}, "add")}, "t");  // the caller's x
  const Proto otherwise = branch({node_proto("Neg", {"a"}, {"u"}, {}, "neg")}, "u");  // the function's a
  FunctionWriter f = function("F", {"c", "a"});
  f.add_node("If", {"c"}, {"b"}, {Attr::refer("then_branch", "what", 5), Attr::graph("else_branch", otherwise)}, "if");
  OnnxWriter w;
  w.import("local", 1).add_input("c", kBool, {}).add_input("x", kF32, {1});
  w.add_node("F", {"c", "x"}, {"y"}, {Attr::graph("what", then)}, "call", "local").add_output("y").add_function(f);
  EXPECT_EQ(names(expanded(w).graph), (std::vector<std::string>{"call/if/then/add", "call/if/else/neg", "call/if"}));
}

// --------------------------------------------------------------------------------------------------------- hostile --

TEST(ExpandFunctions, H53_RecursionIsRefusedAndNamed) {
  Error e = error_of(caller().add_function(calling("F", "F")));
  EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);
  EXPECT_STREQ(e.message, "function F (domain local) calls itself, directly or through others");
  e = error_of(caller().add_function(calling("F", "A")).add_function(calling("A", "B")).add_function(calling("B", "A")));
  EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);
  EXPECT_TRUE(std::string(e.message).find("function A ") == 0 || std::string(e.message).find("function B ") == 0) << e.message;
  const Proto then = branch({node_proto("F", {"c"}, {"t"}, {}, "", "local")}, "t");
  FunctionWriter f = function("F", {"c"});
  f.add_node("If", {"c"}, {"b"}, {Attr::graph("then_branch", then), Attr::graph("else_branch", then)});
  e = error_of(caller().add_function(f));
  EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);
  EXPECT_NE(std::string(e.message).find("function F "), std::string::npos) << e.message;
  // And through the default of an attribute.
  FunctionWriter g = function("F", {"c"});
  g.add_node("If", {"c"}, {"b"}, {Attr::refer("then_branch", "p", 5), Attr::refer("else_branch", "p", 5)})
      .add_default(Attr::graph("p", then));
  EXPECT_EQ(status_of(caller().add_function(g)), EVN_ERROR_INVALID_MODEL);
}

TEST(ExpandFunctions, H53_FortyLevelsThatDoubleAreRefusedBeforeTheyGrow) {
  const auto level = [](int i) { return "F" + (i == 0 ? std::string() : std::to_string(i)); };
  const auto model = [&](int levels) {
    OnnxWriter w = caller();
    for (int i = 0; i < levels; ++i) {
      FunctionWriter f = function(level(i).c_str(), {"a"});
      f.add_node(level(i + 1), {"a"}, {"t"}, {}, "", "local").add_node(level(i + 1), {"t"}, {"b"}, {}, "", "local");
      w.add_function(f);
    }
    return w.add_function(function(level(levels).c_str(), {"a"}).add_node("Relu", {"a"}, {"b"}));
  };
  EXPECT_EQ(expanded(model(10)).graph.nodes.size(), 1024u);
  EXPECT_EQ(error_of(model(40)).status, EVN_ERROR_LIMIT);
  EXPECT_EQ(error_of(model(63)).status, EVN_ERROR_LIMIT);
}

TEST(ExpandFunctions, H53_BodiesThatAreHandedOnAndDoubledAreLimited) {
  // Each level puts the body that it was given into both branches of an If, in a body that it hands on.
  OnnxWriter w;
  w.import("local", 1).add_input("c", kBool, {}).add_input("x", kF32, {1});
  const Proto first = branch({node_proto("Abs", {"x"}, {"t"})}, "t");
  w.add_node("F0", {"c"}, {"y"}, {Attr::graph("p", first)}, "call", "local").add_output("y");
  for (int i = 0; i < 40; ++i) {
    const std::vector<Attr> both = {Attr::refer("then_branch", "p", 5), Attr::refer("else_branch", "p", 5)};
    const Proto twice = branch({node_proto("If", {"c"}, {"t"}, both)}, "t");
    FunctionWriter f = function(("F" + std::to_string(i)).c_str(), {"c"});
    w.add_function(f.add_node("F" + std::to_string(i + 1), {"c"}, {"b"}, {Attr::graph("p", twice)}, "", "local"));
  }
  FunctionWriter last = function("F40", {"c"});
  w.add_function(last.add_node("If", {"c"}, {"b"}, {Attr::refer("then_branch", "p", 5), Attr::refer("else_branch", "p", 5)}));
  Limits limits;
  limits.nodes = 10'000;
  EXPECT_EQ(error_of(w, limits).status, EVN_ERROR_LIMIT);
}

TEST(ExpandFunctions, H53_DepthIsLimited) {
  OnnxWriter w = caller();
  w.add_function(calling("F", "F1"));
  for (int i = 1; i < 5000; ++i) w.add_function(calling(("F" + std::to_string(i)).c_str(), ("F" + std::to_string(i + 1)).c_str()));
  w.add_function(function("F5000", {"a"}).add_node("Relu", {"a"}, {"b"}));
  const Error e = error_of(w);
  EXPECT_EQ(e.status, EVN_ERROR_LIMIT);
  EXPECT_LT(std::string(e.node).size(), 128u);
}

TEST(ExpandFunctions, LongNamesDoNotMultiply) {
  OnnxWriter w;
  const std::string name(100'000, 'n');
  w.import("local", 1).add_input("x", kF32, {1}).add_node("F", {"x"}, {"y"}, {}, name, "local").add_output("y");
  FunctionWriter f = function("F", {"a"});
  for (int i = 0; i < 1000; ++i)
    f.add_node("Relu", {i == 0 ? "a" : "t" + std::to_string(i)}, {i == 999 ? "b" : "t" + std::to_string(i + 1)});
  const Model m = expanded(w.add_function(f));
  for (const Node& n : m.graph.nodes) EXPECT_LT(n.name.size(), 300u);
  for (const Value& v : m.graph.values) EXPECT_LT(v.name.size(), 300u);
}

TEST(ExpandFunctions, AttributesThatMultiplyAreLimited) {
  OnnxWriter w;
  w.import("local", 1).add_input("x", kF32, {1});
  for (int i = 0; i < 1000; ++i) w.add_node("F", {"x"}, {"y" + std::to_string(i)}, {}, "", "local");
  FunctionWriter f = function("F", {"a"});
  f.add_node("Slice", {"a"}, {"b"}, {{"axes", std::vector<std::int64_t>(10'000, 0)}});
  Limits limits;
  limits.model_bytes = 1 << 20;
  EXPECT_EQ(error_of(w.add_output("y0").add_function(f), limits).status, EVN_ERROR_LIMIT);
}

}  // namespace
}  // namespace evn
