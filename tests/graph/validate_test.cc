#include "graph/validate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/load.h"
#include "ops/op.h"
#include "tests/model/onnx_writer.h"

namespace evn::validate_test {
namespace {

using namespace test;

Model read(const OnnxWriter& w) {
  const std::string bytes = w.serialize();
  return load_onnx(exact_copy(bytes), bytes.size(), {});
}

Model validated(const OnnxWriter& w, const Limits& limits = {}) {
  Model m = read(w);
  validate_model(m, limits);
  return m;
}

Error error_of(const OnnxWriter& w, const Limits& limits = {}) {
  try {
    validated(w, limits);
  } catch (const Error& e) {
    return e;
  }
  Error none;
  none.status = EVN_OK;
  return none;
}
evn_status status_of(const OnnxWriter& w) { return error_of(w).status; }

// x -> op_type -> y, float [2,3].
OnnxWriter one_node(const char* op_type, const std::vector<std::string>& inputs, const std::vector<Attr>& attributes = {},
                    std::int64_t opset = 17) {
  OnnxWriter w(opset);
  w.add_input("x", kF32, {2, 3}).add_node(op_type, inputs, {"y"}, attributes, "node").add_output("y");
  return w;
}

std::vector<std::string> names(const Graph& g) {
  std::vector<std::string> out;
  for (const Node& n : g.nodes) out.push_back(n.name);
  return out;
}

const Value& value_of(const Graph& g, const std::string& name) {
  for (const Value& v : g.values) {
    if (v.name == name) return v;
  }
  throw std::out_of_range(name);
}

TEST(Validate, FindsOperatorsAndFillsInDefaults) {
  OnnxWriter w;
  w.add_input("x", kF32, {1, 1, 4, 4}).add_node("LeakyRelu", {"x"}, {"a"}, {}, "default");
  w.add_node("LeakyRelu", {"a"}, {"y"}, {{"alpha", 0.5f}}, "given").add_output("y");
  const Model m = validated(w);
  ASSERT_EQ(m.graph.nodes.size(), 2u);
  for (const Node& n : m.graph.nodes) {
    ASSERT_NE(n.op, nullptr);
    EXPECT_STREQ(n.op->name, "LeakyRelu");
    EXPECT_EQ(n.since_version, 17);
    ASSERT_EQ(n.resolved.size(), n.op->attributes.size());
  }
  EXPECT_EQ(attr_float(m.graph.nodes[0], 0), 0.01f);
  EXPECT_EQ(attr_float(m.graph.nodes[1], 0), 0.5f);
}

TEST(Validate, TheImportPicksTheOperatorsVersion) {
  EXPECT_EQ(status_of(one_node("Clip", {"x"}, {{"min", 0.0f}}, 6)), EVN_OK);
  const Error e = error_of(one_node("Clip", {"x"}, {{"min", 0.0f}}, 11));
  EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);  // inputs since 11
  EXPECT_STREQ(e.node, "node");
}

TEST(Validate, UnknownOperatorsDomainsAndOpsetsAreTold) {
  Error e = error_of(one_node("Foo", {"x"}));
  EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(e.message, "operator Foo (domain ai.onnx) is not supported");
  EXPECT_STREQ(e.node, "node");
  e = error_of(one_node("LayerNormalization", {"x", "x"}, {}, 1));
  EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(e.message, "operator LayerNormalization (domain ai.onnx) is not supported in opset 1");
  OnnxWriter w;
  w.add_input("x", kF32, {1}).add_node("Bar", {"x"}, {"y"}, {}, "b", "custom").add_output("y");
  e = error_of(w);
  EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);
  EXPECT_STREQ(e.node, "b");
  EXPECT_EQ(error_of(one_node("Relu", {"x"}, {}, 1000)).status, EVN_ERROR_UNSUPPORTED);
}

TEST(Validate, ADomainMayBeCalledAiOnnx) {
  OnnxWriter w;
  w.add_input("x", kF32, {1}).add_node("Relu", {"x"}, {"y"}, {}, "", "ai.onnx").add_output("y");
  EXPECT_EQ(status_of(w), EVN_OK);
}

OnnxWriter choice(const OnnxWriter& then_body, const OnnxWriter& else_body) {
  OnnxWriter w;
  w.add_input("c", kBool, {}).add_input("x", kF32, {1});
  OnnxWriter t = then_body, e = else_body;
  w.add_node("If", {"c"}, {"y"}, {Attr::graph("then_branch", t.graph()), Attr::graph("else_branch", e.graph())}, "choice");
  w.add_output("y");
  return w;
}

TEST(Validate, NodesOfBranchesStandAmongTheOthersInRegions) {
  OnnxWriter body;
  body.add_node("Relu", {"x"}, {"b"}, {}, "r").add_output("b");
  const Model m = validated(choice(body, body));
  ASSERT_EQ(m.graph.nodes.size(), 3u);
  ASSERT_EQ(m.graph.regions.size(), 2u);
  EXPECT_EQ(m.graph.nodes[0].name, "choice/then/r");
  EXPECT_EQ(m.graph.nodes[0].region, 0);
  EXPECT_EQ(m.graph.nodes[1].name, "choice/else/r");
  EXPECT_EQ(m.graph.nodes[1].region, 1);
  EXPECT_EQ(m.graph.nodes[2].op_type, "Merge");
  EXPECT_EQ(m.graph.nodes[2].name, "choice");
  EXPECT_EQ(m.graph.nodes[2].region, -1);
}

TEST(Validate, BranchesUseValuesThatAreThereOnly) {
  OnnxWriter good, bad, two;
  good.add_node("Relu", {"x"}, {"b"}).add_output("b");
  bad.add_node("Relu", {"nowhere"}, {"b"}).add_output("b");
  two.add_node("Relu", {"x"}, {"b"}).add_output("b").add_output("x");
  EXPECT_EQ(status_of(choice(good, good)), EVN_OK);
  const Error e = error_of(choice(good, bad));
  EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);
  EXPECT_STREQ(e.node, "choice");
  EXPECT_EQ(status_of(choice(good, two)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(choice(bad, good)), EVN_ERROR_INVALID_MODEL);
}

TEST(Validate, H36_ANameInABranchDoesNotHideOneThatIsSeenThere) {
  const auto status = [](const char* name) {
    const auto branch = [&](const char* inner) {
      OnnxWriter body;
      return body.add_node("Neg", {"x"}, {inner}).add_node("Abs", {inner}, {"o"}).add_output("o").graph();
    };
    OnnxWriter w;
    w.add_input("c", kBool, {}).add_input("x", kF32, {1}).add_initializer("k", {1}, std::vector<float>{1});
    w.add_node("Exp", {"x"}, {"t"})
        .add_node("If", {"c"}, {"z"}, {Attr::graph("then_branch", branch(name)), Attr::graph("else_branch", branch("q"))}, "n");
    w.add_node("Add", {"z", "t"}, {"y"}).add_output("y");
    return status_of(w);
  };
  EXPECT_EQ(status("q"), EVN_OK);  // the other branch has one too
  EXPECT_EQ(status("y"), EVN_OK);  // comes later
  EXPECT_EQ(status("z"), EVN_OK);
  for (const char* name : {"x", "t", "c", "k"}) EXPECT_EQ(status(name), EVN_ERROR_INVALID_MODEL) << name;
}

TEST(Validate, ABranchWithoutBodyIsRefused) {
  OnnxWriter body;
  body.add_node("Relu", {"x"}, {"b"}).add_output("b");
  OnnxWriter w;
  w.add_input("c", kBool, {}).add_input("x", kF32, {1});
  w.add_node("If", {"c"}, {"y"}, {Attr::graph("then_branch", body.graph())}, "choice").add_output("y");
  EXPECT_EQ(status_of(w), EVN_ERROR_INVALID_MODEL);
}

TEST(Validate, BodiesOfUnsupportedOperatorsEndWithTheirName) {
  OnnxWriter body;
  body.add_node("Relu", {"x"}, {"b"}).add_output("b");
  OnnxWriter w;
  w.add_input("x", kF32, {1});
  w.add_node("Wheel", {"x"}, {"y"}, {Attr::graph("body", body.graph())}, "turns");
  const Error e = error_of(w.add_output("y"));
  EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(e.node, "turns");
}

TEST(Validate, H37_AritiesHold) {
  EXPECT_EQ(status_of(one_node("Add", {"x", "x"})), EVN_OK);
  EXPECT_EQ(status_of(one_node("Add", {})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(one_node("Add", {"x"})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(one_node("Add", {"x", "x", "x"})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(one_node("Add", {"x", ""})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(one_node("Add", {"", "x"})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(one_node("Concat", {"x", "", "x"}, {{"axis", 0}})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(one_node("Clip", {"x", "", "x"})), EVN_OK);  // an optional one in between
}

TEST(Validate, H37_EveryOperatorRefusesTooFewAndTooManyInputs) {
  int rows = 0;
  for (const OpFamily* family : op_families()) {
    for (const OpDef& op : family->ops) {
      for (const int count : {op.min_inputs - 1, op.max_inputs + 1}) {
        if (count < 0 || count > 1000) continue;
        OnnxWriter w(std::max(op.since, 1));
        if (op.domain[0] != '\0') w.import(op.domain, op.since);
        w.add_input("x", kF32, {1})
            .add_node(op.name, std::vector<std::string>(static_cast<std::size_t>(count), "x"), {"y"}, {}, "n", op.domain);
        const Error e = error_of(w.add_output("y"));
        EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL) << op.name << " with " << count << ": " << e.message;
        ++rows;
      }
    }
  }
  EXPECT_GT(rows, 20);
}

TEST(Validate, MissingInputsAtTheEndAreNone) {
  const Model m = validated(one_node("Clip", {"x", "", ""}));
  EXPECT_EQ(m.graph.nodes[0].inputs.size(), 1u);
}

TEST(Validate, H38_OutputsMustBeThere) {
  OnnxWriter none(17);
  none.add_input("x", kF32, {1}).add_node("Relu", {"x"}, {}).add_output("x");
  EXPECT_EQ(status_of(none), EVN_ERROR_INVALID_MODEL);
  OnnxWriter nameless(17);
  nameless.add_input("x", kF32, {1}).add_node("Relu", {"x"}, {""}).add_output("x");
  EXPECT_EQ(status_of(nameless), EVN_ERROR_INVALID_MODEL);
  OnnxWriter many(17);
  many.add_input("x", kF32, {1}).add_node("Relu", {"x"}, {"a", "b"}).add_output("a");
  EXPECT_EQ(status_of(many), EVN_ERROR_INVALID_MODEL);
  OnnxWriter nobody(17);
  nobody.add_input("x", kF32, {1}).add_node("Relu", {"x"}, {"a"}).add_output("z");
  EXPECT_EQ(status_of(nobody), EVN_ERROR_INVALID_MODEL);
  OnnxWriter no_outputs(17);
  no_outputs.add_input("x", kF32, {1}).add_node("Relu", {"x"}, {"a"});
  EXPECT_EQ(status_of(no_outputs), EVN_ERROR_INVALID_MODEL);
}

TEST(Validate, AnOutputMayBeAnInputOrAConstant) {
  OnnxWriter w;
  w.add_input("x", kF32, {1}).add_initializer("c", {1}, std::vector<float>{1}).add_output("x").add_output("c");
  EXPECT_EQ(status_of(w), EVN_OK);
}

TEST(Validate, H39_AttributesAreChecked) {
  EXPECT_EQ(status_of(one_node("Concat", {"x"}, {{"axis", 0}})), EVN_OK);
  EXPECT_EQ(status_of(one_node("Concat", {"x"})), EVN_ERROR_INVALID_MODEL);                    // required
  EXPECT_EQ(status_of(one_node("Concat", {"x"}, {{"axis", 0.0f}})), EVN_ERROR_INVALID_MODEL);  // wrong type
  EXPECT_EQ(status_of(one_node("Concat", {"x"}, {{"axis", 0}, {"axis", 0}})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(one_node("Concat", {"x"}, {{"axis", 0}, {"axle", 0}})), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status_of(one_node("Relu", {"x"}, {{"consumed_inputs", std::vector<std::int64_t>{0}}}, 6)), EVN_OK);
  OnnxWriter body;
  body.add_node("Relu", {"x"}, {"b"});
  EXPECT_EQ(status_of(one_node("Add", {"x", "x"}, {Attr::graph("body", body.graph())})), EVN_ERROR_INVALID_MODEL);
}

TEST(Validate, NodesGetUniqueNames) {
  OnnxWriter w;
  w.add_input("x", kF32, {1});
  w.add_node("Relu", {"x"}, {"a"}).add_node("Relu", {"a"}, {"b"}, {}, "Relu_0").add_node("Relu", {"b"}, {"c"}, {}, "same");
  w.add_node("Relu", {"c"}, {"y"}, {}, "same").add_output("y");
  EXPECT_EQ(names(validated(w).graph), (std::vector<std::string>{"Relu_0_", "Relu_0", "same", "Relu_3"}));
}

TEST(Validate, NodesComeInTopologicalOrder) {
  OnnxWriter w;
  w.add_node("Relu", {"b"}, {"y"}, {}, "third")
      .add_node("Relu", {"x"}, {"a"}, {}, "first")
      .add_node("Relu", {"a"}, {"b"}, {}, "second");
  w.add_node("Neg", {"x"}, {"z"}, {}, "other").add_input("x", kF32, {1}).add_output("y").add_output("z");
  EXPECT_EQ(names(validated(w).graph), (std::vector<std::string>{"first", "second", "third", "other"}));
}

TEST(Validate, H34_CyclesAreRefused) {
  OnnxWriter two;
  two.add_input("x", kF32, {1}).add_node("Add", {"x", "b"}, {"a"}, {}, "A").add_node("Relu", {"a"}, {"b"}, {}, "B").add_output("b");
  EXPECT_EQ(status_of(two), EVN_ERROR_INVALID_MODEL);
  const Error e = error_of(one_node("Add", {"x", "y"}));
  EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);
  EXPECT_STREQ(e.node, "node");
}

TEST(Validate, H35_UndefinedInputsAreRefused) {
  const Error e = error_of(one_node("Add", {"x", "ghost"}));
  EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);
  EXPECT_NE(std::string(e.message).find("ghost"), std::string::npos);
}

TEST(Validate, H36_EachValueHasOneProducer) {
  OnnxWriter twice;
  twice.add_input("x", kF32, {1}).add_node("Relu", {"x"}, {"y"}).add_node("Neg", {"x"}, {"y"}).add_output("y");
  EXPECT_EQ(status_of(twice), EVN_ERROR_INVALID_MODEL);
  OnnxWriter initializer;
  initializer.add_input("x", kF32, {1})
      .add_initializer("y", {1}, std::vector<float>{1})
      .add_node("Relu", {"x"}, {"y"})
      .add_output("y");
  EXPECT_EQ(status_of(initializer), EVN_ERROR_INVALID_MODEL);
  OnnxWriter input;
  input.add_input("x", kF32, {1}).add_input("y", kF32, {1}).add_node("Relu", {"x"}, {"y"}).add_output("y");
  EXPECT_EQ(status_of(input), EVN_ERROR_INVALID_MODEL);
}

// The value of a graph that is one Constant node.
WeightPtr constant_of(const Attr& attribute) {
  OnnxWriter w;
  w.add_node("Constant", {}, {"c"}, {attribute}).add_output("c", 0);
  const Model m = validated(w);
  EXPECT_TRUE(m.graph.nodes.empty());
  const Value& c = value_of(m.graph, "c");
  EXPECT_EQ(c.dtype, c.constant->desc.dtype);
  EXPECT_EQ(c.shape, c.constant->desc.shape);
  return c.constant;
}

TEST(Validate, ConstantNodesBecomeConstants) {
  WeightPtr c = constant_of(Attr::tensor("value", tensor_proto("", kI32, {1}, bytes_of(std::vector<std::int32_t>{42}))));
  EXPECT_EQ(c->desc, (TensorDesc{DType::kInt32, {1}}));
  EXPECT_EQ(*c->as<std::int32_t>(), 42);
  c = constant_of({"value_float", 2.5f});
  EXPECT_EQ(c->desc, (TensorDesc{DType::kFloat32, {}}));
  EXPECT_EQ(*c->as<float>(), 2.5f);
  c = constant_of({"value_int", -4});
  EXPECT_EQ(c->desc, (TensorDesc{DType::kInt64, {}}));
  EXPECT_EQ(*c->as<std::int64_t>(), -4);
  c = constant_of({"value_ints", std::vector<std::int64_t>{1, 2, 3}});
  EXPECT_EQ(c->desc, (TensorDesc{DType::kInt64, {3}}));
  EXPECT_EQ(c->as<std::int64_t>()[2], 3);
  c = constant_of({"value_floats", std::vector<float>{1, 2}});
  EXPECT_EQ(c->desc, (TensorDesc{DType::kFloat32, {2}}));
  EXPECT_EQ(c->as<float>()[1], 2.0f);
}

TEST(Validate, ConstantsHaveExactlyOneValue) {
  const auto status = [](const std::vector<Attr>& attributes) {
    OnnxWriter w;
    w.add_node("Constant", {}, {"c"}, attributes).add_output("c", 0);
    return status_of(w);
  };
  EXPECT_EQ(status({}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status({{"value_int", 1}, {"value_float", 1.0f}}), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status({{"value_string", "text"}}), EVN_OK);
}

TEST(Validate, TypesThatAnOperatorDoesNotTakeAreUnsupported) {
  OnnxWriter w;
  w.add_input("x", kBool, {1}).add_node("Conv", {"x", "x"}, {"y"}, {}, "c").add_output("y");
  const Error e = error_of(w);
  EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(e.message, "Conv of bool is not supported");
  EXPECT_STREQ(e.node, "c");
}

TEST(Validate, NodesAreLimited) {
  Limits limits;
  limits.nodes = 0;
  EXPECT_EQ(error_of(one_node("Relu", {"x"}), limits).status, EVN_ERROR_LIMIT);
}

}  // namespace
}  // namespace evn::validate_test
