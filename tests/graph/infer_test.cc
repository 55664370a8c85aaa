// graph/infer: shapes and dtypes over a whole graph, and what declared shapes may and may not do.
#include "graph/infer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/graph_builder.h"

namespace evn::test {
namespace {

Value& named(Graph& graph, const std::string& name) {
  for (Value& v : graph.values) {
    if (v.name == name) return v;
  }
  ADD_FAILURE() << "no value " << name;
  return graph.values.front();
}

Error error_of(Graph graph) {
  try {
    infer_graph(graph);
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(Infer, UnknownDimsStayUnknownAndKnownOnesPass) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{-1, 3});
  b.output(b.node("Add", {x, b.random("w", Shape{1, 3})}, {}, "y"));
  Graph graph = b.build();
  infer_graph(graph);
  EXPECT_EQ(named(graph, "y").shape.to_string(), "[?,3]");
  EXPECT_EQ(named(graph, "y").dtype, DType::kFloat32);
}

TEST(Infer, ConstantShapeInputGivesTheShape) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 6});
  b.output(b.node("Reshape", {x, b.ints({3, -1})}, {}, "y"));
  Graph graph = b.build();
  infer_graph(graph);
  EXPECT_EQ(named(graph, "y").shape.to_string(), "[3,4]");
}

TEST(Infer, ShapeListOfUnknownLengthGivesUnknownRank) {
  GraphBuilder b;
  const ValueId shape = b.input("shape", Shape{-1}, DType::kInt64);
  const ValueId y = b.node("Reshape", {b.input("x", Shape{2, 6}), shape}, {}, "y");
  b.output(b.node("Squeeze", {b.node("Relu", {y}, {}, "r")}, {}, "z"));
  Graph graph = b.build();
  infer_graph(graph);
  EXPECT_FALSE(named(graph, "y").has_shape);
  EXPECT_FALSE(named(graph, "z").has_shape);
  EXPECT_EQ(named(graph, "z").dtype, DType::kFloat32);
}

TEST(Infer, UnknownRankGivesUnknownRankButTheDtype) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{});
  b.graph().values[x].has_shape = false;
  b.output(b.node("Cast", {b.node("Relu", {x}, {}, "r")}, {{"to", std::int64_t{EVN_DTYPE_INT64}}}, "y"));
  Graph graph = b.build();
  infer_graph(graph);
  EXPECT_FALSE(named(graph, "r").has_shape);
  EXPECT_FALSE(named(graph, "y").has_shape);
  EXPECT_EQ(named(graph, "y").dtype, DType::kInt64);
}

TEST(Infer, ComputedShapeWinsOverAWrongDeclarationInTheMiddle) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 3});
  const ValueId r = b.node("Relu", {x}, {}, "r");
  b.graph().values[r].dtype = DType::kInt64;
  b.graph().values[r].has_shape = true;
  b.graph().values[r].shape = Shape{7};
  b.output(b.node("Relu", {r}, {}, "y"));
  Graph graph = b.build();
  infer_graph(graph);
  EXPECT_EQ(named(graph, "r").shape.to_string(), "[2,3]");
  EXPECT_EQ(named(graph, "r").dtype, DType::kFloat32);
}

TEST(Infer, OutputTakesDimsAndSymbolsFromItsDeclaration) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{-1, -1});
  const ValueId y = b.node("Relu", {x}, {}, "y");
  b.graph().values[y].has_shape = true;
  b.graph().values[y].shape = Shape{-1, 4};
  b.graph().values[y].symbols = {"batch", ""};
  b.output(y);
  Graph graph = b.build();
  infer_graph(graph);
  EXPECT_EQ(named(graph, "y").shape.to_string(), "[?,4]");
  EXPECT_EQ(named(graph, "y").symbols, (std::vector<std::string>{"batch", ""}));
}

TEST(Infer, WhereAnOutputContradictsItsDeclarationTheComputedShapeStands) {
  for (const Shape& declared : {Shape{2, 4}, Shape{6}, Shape{2, 3, 1}}) {
    GraphBuilder b;
    const ValueId y = b.node("Relu", {b.input("x", Shape{2, 3})}, {}, "y");
    b.graph().values[y].has_shape = true;
    b.graph().values[y].shape = declared;
    b.output(y);
    Graph graph = b.build();
    std::vector<WrongShape> wrong;
    infer_graph(graph, &wrong);
    EXPECT_EQ(named(graph, "y").shape, (Shape{2, 3}));
    ASSERT_EQ(wrong.size(), 1u);
    EXPECT_EQ(wrong[0].output, y);
    EXPECT_EQ(wrong[0].declared, declared);
  }
}

TEST(Infer, DeclarationWithoutDimsTellsNothing) {
  GraphBuilder b;
  const ValueId y = b.node("Relu", {b.input("x", Shape{-1, 3})}, {}, "y");
  b.graph().values[y].has_shape = true;
  b.graph().values[y].shape = Shape{};
  b.output(y);
  Graph graph = b.build();
  infer_graph(graph);
  EXPECT_EQ(named(graph, "y").shape.to_string(), "[?,3]");
}

TEST(Infer, OutputOfAnotherDtypeThanDeclaredIsInvalid) {
  GraphBuilder b;
  const ValueId y = b.node("Relu", {b.input("x", Shape{2, 3})}, {}, "y");
  b.graph().values[y].dtype = DType::kInt64;
  b.output(y);
  EXPECT_EQ(error_of(b.build()).status, EVN_ERROR_INVALID_MODEL);
}

TEST(Infer, ShapesThatDoNotFitNameTheNode) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 3});
  b.output(b.node("Add", {x, b.random("w", Shape{4})}, {}, "sum"));
  const Error e = error_of(b.build());
  EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL);
  EXPECT_STREQ(e.node, "sum");
}

TEST(Infer, DtypeThatTheOperatorLacksIsUnsupported) {
  GraphBuilder b;
  b.output(b.node("Sqrt", {b.input("x", Shape{2}, DType::kInt8)}, {}, "root"));
  const Error e = error_of(b.build());
  EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(e.node, "root");
}

TEST(Infer, InputWithoutDtypeIsInvalid) {
  GraphBuilder b;
  b.output(b.node("Relu", {b.input("x", Shape{2}, DType::kUndefined)}));
  EXPECT_EQ(error_of(b.build()).status, EVN_ERROR_INVALID_MODEL);
}

TEST(Infer, OutputThatNobodyWantsHasNoDtype) {
  GraphBuilder b;
  b.input("x", Shape{2, 4});
  b.nodes("Split", {0}, 2, {{"axis", std::int64_t{1}}});
  Node node = b.graph().nodes.front();
  node.outputs[0] = kNoValue;
  const TensorDesc input{DType::kFloat32, Shape{2, 4}};
  const ConstTensor value{input, nullptr};
  TensorDesc outputs[2];
  infer_node(node, {&input, 1}, {&value, 1}, outputs);
  EXPECT_EQ(outputs[0].dtype, DType::kUndefined);
  EXPECT_EQ(outputs[1].shape.to_string(), "[2,2]");
}

}  // namespace
}  // namespace evn::test
