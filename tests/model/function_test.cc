// Reading functions. What becomes of them is tests/graph/expand_functions_test.cc.
#include <gtest/gtest.h>

#include "tests/model/load_helpers.h"

namespace evn {
namespace {

using namespace test;

// A model that calls `call` of domain "local" on "x".
OnnxWriter model_calling(const char* call, const std::vector<FunctionWriter>& functions) {
  OnnxWriter w;
  w.import("local", 1).add_input("x", kF32, {1}).add_node(call, {"x"}, {"y"}, {}, "caller", "local").add_output("y");
  for (const FunctionWriter& f : functions) w.add_function(f);
  return w;
}

FunctionWriter relu(const char* name) {
  return FunctionWriter(name, {"a"}, {"b"}).import("", 17).add_node("Relu", {"a"}, {"b"}, {}, "r");
}

TEST(ReadFunction, HasItsNamesImportsDefaultsAndBody) {
  FunctionWriter f("F", {"a", "b"}, {"c"});
  f.import("", 13).import("local", 2).add_attribute("plain").add_default(Attr("alpha", 0.25f));
  f.add_node("LeakyRelu", {"a"}, {"t"}, {Attr::refer("alpha", "alpha", 1)}, "leak").add_node("Add", {"t", "b"}, {"c"});
  f.proto.bytes(13, "wide").bytes(8, "what it is for").message(12, value_info_proto("t", kF32, {1}));
  OnnxWriter w = model_calling("F", {f});
  w.add_node(node_proto("F", {"x"}, {"z"}, {}, "second", "local").bytes(8, "wide"));
  const Model m = load_bytes(w.serialize());
  ASSERT_EQ(m.functions.size(), 1u);
  const Function& read = m.functions[0];
  EXPECT_EQ(read.domain, "local");
  EXPECT_EQ(read.name, "F");
  EXPECT_EQ(read.overload, "wide");
  ASSERT_EQ(read.opsets.size(), 2u);
  EXPECT_EQ(read.opsets[1].domain, "local");
  EXPECT_EQ(read.opsets[0].version, 13);
  ASSERT_EQ(read.defaults.size(), 1u);
  EXPECT_EQ(std::get<float>(read.defaults[0].value), 0.25f);
  ASSERT_EQ(read.body.nodes.size(), 2u);
  EXPECT_EQ(read.body.nodes[0].attributes[0].ref, "alpha");
  EXPECT_EQ(attribute_type(read.body.nodes[0].attributes[0].value), AttributeType::kNone);
  EXPECT_EQ(read.body.inputs, (std::vector<ValueId>{0, 1}));
  EXPECT_EQ(read.body.values[static_cast<std::size_t>(read.body.outputs[0])].name, "c");
  EXPECT_EQ(m.graph.nodes[1].overload, "wide");
}

TEST(ReadFunction, OnlyThoseThatAreCalledAreRead) {
  FunctionWriter broken("Broken", {""}, {""});
  EXPECT_EQ(load_bytes(model_calling("F", {relu("F"), relu("G"), broken}).serialize()).functions.size(), 1u);
  FunctionWriter caller("F", {"a"}, {"b"});
  caller.import("", 17).import("local", 1).add_node("G", {"a"}, {"b"}, {}, "", "local");
  EXPECT_EQ(load_bytes(model_calling("F", {caller, relu("G")}).serialize()).functions.size(), 2u);
  EXPECT_EQ(read_status(model_calling("Broken", {broken}).serialize()), EVN_ERROR_INVALID_MODEL);
}

TEST(ReadFunction, ThoseCalledInBodiesAreRead) {
  OnnxWriter body;
  body.add_node("F", {"x"}, {"b"}, {}, "", "local").add_output("b");
  OnnxWriter w;
  w.import("local", 1).add_input("c", kBool, {}).add_input("x", kF32, {1});
  w.add_node("If", {"c"}, {"y"}, {Attr::graph("then_branch", body.graph()), Attr::graph("else_branch", body.graph())})
      .add_output("y");
  w.add_function(relu("F"));
  EXPECT_EQ(load_bytes(w.serialize()).functions.size(), 1u);
}

TEST(ReadFunction, ItsNameIsThereAndUnique) {
  EXPECT_EQ(read_status(model_calling("F", {FunctionWriter("", {"a"}, {"b"})}).serialize()), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(read_status(model_calling("F", {relu("F"), relu("F")}).serialize()), EVN_ERROR_INVALID_MODEL);
  FunctionWriter other = relu("F");
  other.proto.bytes(13, "other");
  EXPECT_EQ(read_status(model_calling("F", {relu("F"), other}).serialize()), EVN_OK);
}

TEST(ReadFunction, FormalsAndAttributesAreDistinct) {
  const auto status = [](FunctionWriter f) { return read_status(model_calling("F", {std::move(f)}).serialize()); };
  EXPECT_EQ(status(FunctionWriter("F", {"a"}, {"b"}).add_attribute("p").add_attribute("q")), EVN_OK);
  EXPECT_EQ(status(FunctionWriter("F", {"a", "a"}, {"b"})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(FunctionWriter("F", {"a"}, {"b", "b"})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(FunctionWriter("F", {"a"}, {""})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(FunctionWriter("F", {"a"}, {"b"}).add_attribute("p").add_attribute("p")), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(FunctionWriter("F", {"a"}, {"b"}).add_attribute("p").add_default(Attr("p", 1))), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(FunctionWriter("F", {"a"}, {"b"}).import("", 17).import("ai.onnx", 18)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(FunctionWriter("F", {"a"}, {"b"}).import("", 0)), EVN_ERROR_INVALID_MODEL);
}

TEST(ReadFunction, AReferenceHasNoValueAndStandsInAFunction) {
  const auto status = [](const Attr& attribute) {
    return read_status(
        model_calling("F", {FunctionWriter("F", {"a"}, {"b"}).add_node("Elu", {"a"}, {"b"}, {attribute})}).serialize());
  };
  EXPECT_EQ(status(Attr::refer("alpha", "p", 1)), EVN_OK);
  EXPECT_EQ(status(Attr::refer("alpha", "p", 0)), EVN_OK);
  EXPECT_EQ(status(Attr(Proto().bytes(1, "alpha").fixed32(2, 1).varint(20, 1).bytes(21, "p"))), EVN_ERROR_INVALID_MODEL);
  OnnxWriter w;
  w.add_input("x", kF32, {1}).add_node("Elu", {"x"}, {"y"}, {Attr::refer("alpha", "p", 1)}).add_output("y");
  EXPECT_EQ(read_status(w.serialize()), EVN_ERROR_INVALID_MODEL);
  // Neither does a default refer to anything.
  EXPECT_EQ(read_status(model_calling("F", {relu("F").add_default(Attr::refer("p", "q", 1))}).serialize()),
            EVN_ERROR_INVALID_MODEL);
}

TEST(ReadFunction, ItsNodesCountAgainstTheLimit) {
  LoadOptions options;
  options.limits.nodes = 2;
  EXPECT_EQ(read_status(model_calling("F", {relu("F")}).serialize(), options), EVN_OK);
  options.limits.nodes = 1;
  EXPECT_EQ(read_status(model_calling("F", {relu("F")}).serialize(), options), EVN_ERROR_LIMIT);
}

}  // namespace
}  // namespace evn
