// graph/edit: the index of producers and uses stays right through edits.
#include "graph/edit.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/graph_builder.h"

namespace evn::test {
namespace {

// x -> Relu a -> Relu b, and Add(a, a) c; outputs b and c.
struct Diamond {
  GraphBuilder b;
  ValueId x = b.input("x", Shape{2});
  ValueId a = b.node("Relu", {x}, {}, "a");
  ValueId t = b.node("Relu", {a}, {}, "t");
  ValueId c = b.node("Add", {a, a}, {}, "c");
  Diamond() {
    b.output(t);
    b.output(c);
  }
};

TEST(GraphEditor, CountsUsesAndFindsProducers) {
  Diamond d;
  GraphEditor edit(d.b.graph());
  EXPECT_EQ(edit.producer(d.x), -1);
  EXPECT_EQ(edit.producer(d.c), 2);
  EXPECT_EQ(edit.use_count(d.a), 3);
  EXPECT_EQ(edit.only_consumer(d.x), 0);
  EXPECT_EQ(edit.only_consumer(d.a), -1);
  EXPECT_EQ(edit.only_consumer(d.t), -1) << "a graph output has a reader outside";
}

TEST(GraphEditor, FindsOutputsByTheirIndex) {
  GraphBuilder b;
  const std::vector<ValueId> parts = b.nodes("Split", {b.input("x", Shape{6})}, 3);
  const ValueId y = b.node("Identity", {parts[1]}, {}, "y");
  b.output(y);
  GraphEditor edit(b.graph());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(edit.output_index(parts[static_cast<std::size_t>(i)]), i);
  edit.remove_node(1);
  edit.set_output(0, 1, y);
  EXPECT_EQ(edit.producer(y), 0);
  EXPECT_EQ(edit.output_index(y), 1);
}

TEST(GraphEditor, ReplaceUsesMovesEachUse) {
  Diamond d;
  GraphEditor edit(d.b.graph());
  edit.replace_uses(d.a, d.x);
  EXPECT_EQ(edit.use_count(d.a), 0);
  EXPECT_EQ(edit.use_count(d.x), 4);
  EXPECT_EQ(edit.node(2).inputs, (std::vector<ValueId>{d.x, d.x}));
}

TEST(GraphEditor, InputsGrowAndShrink) {
  Diamond d;
  const ValueId w = d.b.random("w", Shape{2});
  GraphEditor edit(d.b.graph());
  edit.set_input(1, 3, w);
  EXPECT_EQ(edit.node(1).inputs, (std::vector<ValueId>{d.a, kNoValue, kNoValue, w}));
  EXPECT_EQ(edit.use_count(d.a), 3);
  EXPECT_EQ(edit.only_consumer(w), 1);
  edit.shrink_inputs(1, 1);
  EXPECT_EQ(edit.use_count(w), 0);
  EXPECT_EQ(edit.value(w).constant, nullptr) << "nobody reads it any more";
}

TEST(GraphEditor, CommitDropsRemovedNodesInOrder) {
  Diamond d;
  GraphEditor edit(d.b.graph());
  edit.replace_uses(d.a, d.x);
  edit.remove_node(0);
  EXPECT_EQ(edit.use_count(d.x), 3);
  EXPECT_TRUE(edit.commit());
  ASSERT_EQ(d.b.graph().nodes.size(), 2u);
  EXPECT_EQ(d.b.graph().nodes[0].name, "t");
  EXPECT_EQ(d.b.graph().nodes[1].name, "c");
}

TEST(GraphEditor, InsertedNodesStandInFrontOfTheirReaders) {
  Diamond d;
  GraphEditor edit(d.b.graph());
  for (const char* name : {"first", "second"}) {
    Node node = edit.graph().nodes[0];
    node.name = name;
    node.outputs = {edit.add_value(name, DType::kFloat32)};
    edit.insert_node(2, node);
    edit.set_input(2, name == std::string("first") ? 0 : 1, node.outputs[0]);
  }
  edit.remove_node(1);
  EXPECT_TRUE(edit.commit());
  std::vector<std::string> names;
  for (const Node& node : d.b.graph().nodes) names.push_back(node.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "first", "second", "c"}));
}

TEST(GraphEditor, NothingChangedWithoutAnEdit) {
  Diamond d;
  GraphEditor edit(d.b.graph());
  EXPECT_FALSE(edit.commit());
}

TEST(ScalarConstant, NeedsOneFloatThatLeavesTheShapeAlone) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2});
  const ValueId plain = b.scalar(2.5f);
  const ValueId one = b.constant<float>("one", Shape{1, 1}, {3});
  const ValueId two = b.random("two", Shape{2});
  const ValueId integer = b.ints({1});
  float v = 0;
  EXPECT_TRUE(scalar_constant(b.graph(), plain, -1, &v));
  EXPECT_EQ(v, 2.5f);
  EXPECT_TRUE(scalar_constant(b.graph(), one, 2, &v));
  EXPECT_EQ(v, 3.0f);
  EXPECT_FALSE(scalar_constant(b.graph(), one, 1, &v)) << "it would raise the rank";
  EXPECT_FALSE(scalar_constant(b.graph(), one, -1, &v));
  EXPECT_FALSE(scalar_constant(b.graph(), two, 1, &v));
  EXPECT_FALSE(scalar_constant(b.graph(), integer, 1, &v));
  EXPECT_FALSE(scalar_constant(b.graph(), x, 1, &v));
  EXPECT_FALSE(scalar_constant(b.graph(), kNoValue, 1, &v));
}

TEST(CheckDeadline, ThrowsTimeoutOnceItHasPassed) {
  PassContext context;
  EXPECT_NO_THROW(check_deadline(context));
  context.deadline_ns = 1;
  try {
    check_deadline(context);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT);
  }
}

}  // namespace
}  // namespace evn::test
