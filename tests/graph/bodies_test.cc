// Branches of If and bodies of Loop in hostile models: how long names become, what is captured, conditions that are no condition.
#include "graph/bodies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "graph/inline_if.h"
#include "tests/model/load_helpers.h"

namespace evn::bodies_test {
namespace {

using namespace test;

constexpr std::size_t kMostPrefix = 256;

Model validated(const OnnxWriter& w) {
  Model m = load_bytes(w.serialize());
  validate_model(m, {});
  return m;
}

// A graph of `count` nodes in a chain from the value `from` to "o". The nodes are called n0, n1, ...
OnnxWriter chain_from(const std::string& from, int count) {
  OnnxWriter g;
  for (int i = 0; i < count; ++i) {
    const std::string before = i == 0 ? from : "v" + std::to_string(i - 1);
    g.add_node("Neg", {before}, {i + 1 == count ? "o" : "v" + std::to_string(i)}, {}, "n" + std::to_string(i));
  }
  return g;
}

// A model with one If called `name`.
OnnxWriter model_of_if(const std::string& name, int nodes) {
  OnnxWriter then_body = chain_from("x", nodes), else_body = chain_from("x", 1), w;
  then_body.add_output("o");
  else_body.add_output("o");
  w.add_input("c", kBool, {}).add_input("x", kF32, {1});
  w.add_node("If", {"c"}, {"y"}, {Attr::graph("then_branch", then_body.graph()), Attr::graph("else_branch", else_body.graph())},
             name);
  return w.add_output("y");
}

// A model with one Loop called `name`.
OnnxWriter model_of_loop(const std::string& name, int nodes) {
  OnnxWriter body = chain_from("v", nodes), w;
  body.add_input("i", kI64, {}).add_input("go", kBool, {}).add_input("v", kF32, {1});
  body.add_node("Identity", {"go"}, {"more"}, {}, "go on").add_output("more", kBool).add_output("o");
  w.add_input("x", kF32, {1}).add_initializer("turns", {}, std::vector<std::int64_t>{2});
  return w.add_node("Loop", {"turns", "", "x"}, {"y"}, {Attr::graph("body", body.graph())}, name).add_output("y");
}

// Names of the nodes that come from branches.
std::vector<std::string> names_in_branches(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& n : graph.nodes) {
    if (n.region >= 0) names.push_back(n.name);
  }
  return names;
}

std::vector<std::string> names_in_body(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& n : graph.nodes) {
    for (std::size_t i = 0; n.body != nullptr && i < n.body->nodes.size(); ++i) names.push_back(n.body->nodes[i].name);
  }
  return names;
}

std::size_t longest(const std::vector<std::string>& names) {
  std::size_t most = 0;
  for (const std::string& name : names) most = std::max(most, name.size());
  return most;
}

TEST(Bodies, NamesBeginWithThatOfTheNodeAround) {
  EXPECT_EQ(names_in_branches(validated(model_of_if("choice", 2)).graph),
            (std::vector<std::string>{"choice/then/n0", "choice/then/n1", "choice/else/n0"}));
  EXPECT_EQ(names_in_body(validated(model_of_loop("loop", 2)).graph),
            (std::vector<std::string>{"loop/body/n0", "loop/body/n1", "loop/body/go on"}));
}

TEST(Bodies, APathOf256BytesIsWhole) {
  const std::string fits(kMostPrefix - std::string("/then/").size(), 'a');
  EXPECT_EQ(names_in_branches(validated(model_of_if(fits, 1)).graph)[0], fits + "/then/n0");
  EXPECT_EQ(names_in_body(validated(model_of_loop(fits, 1)).graph)[0], fits + "/body/n0");
}

TEST(Bodies, H12_LongNamesAreNotRepeatedForEachNode) {
  constexpr int kNodes = 1000;
  const std::string name(1 << 20, 'a');
  const Model choice = validated(model_of_if(name, kNodes));
  const std::vector<std::string> in_branches = names_in_branches(choice.graph);
  ASSERT_EQ(in_branches.size(), kNodes + 1u);
  EXPECT_LE(longest(in_branches), kMostPrefix + 44);
  for (const Value& v : choice.graph.values) EXPECT_LE(v.name.size(), kMostPrefix + 44);
  EXPECT_EQ(choice.graph.nodes.back().name, name) << "the If keeps its own";
  const Model loop = validated(model_of_loop(name, kNodes));
  const std::vector<std::string> in_body = names_in_body(loop.graph);
  ASSERT_EQ(in_body.size(), kNodes + 1u);
  EXPECT_LE(longest(in_body), kMostPrefix + 44);
}

// Nodes whose names would be the same get others, as all nodes do whose names are taken.
TEST(Bodies, NodesOfLongNamesStayUnique) {
  std::vector<std::string> names = names_in_branches(validated(model_of_if(std::string(1000, 'a'), 3)).graph);
  ASSERT_EQ(names.size(), 4u);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

TEST(Bodies, NoCharacterOfANameIsCutInTwo) {
  std::string name = "x", kept = "x";
  for (int i = 0; i < 1000; ++i) name += "\xc3\xa4";
  for (int i = 0; i < 127; ++i) kept += "\xc3\xa4";
  EXPECT_EQ(bounded_path(name), kept);  // 255 bytes
  EXPECT_EQ(names_in_branches(validated(model_of_if(name, 1)).graph)[0], kept + "n0");
  EXPECT_EQ(names_in_body(validated(model_of_loop(name, 1)).graph)[0], kept + "n0");
}

// A Loop whose body reads n values of the graph around it.
OnnxWriter model_of_captures(int n) {
  OnnxWriter body, w;
  w.add_input("x", kF32, {1}).add_initializer("turns", {}, std::vector<std::int64_t>{2});
  std::vector<std::string> read = {"v"};
  for (int i = 0; i < n; ++i) {
    read.push_back("a" + std::to_string(i));
    w.add_node("Neg", {"x"}, {read.back()});
  }
  body.add_input("i", kI64, {}).add_input("go", kBool, {}).add_input("v", kF32, {1});
  body.add_node("Sum", read, {"o"}).add_node("Identity", {"go"}, {"more"}).add_output("more", kBool).add_output("o");
  return w.add_node("Loop", {"turns", "", "x"}, {"y"}, {Attr::graph("body", body.graph())}, "loop").add_output("y");
}

std::int64_t work_of_bodies(int captures) {
  Model m = load_bytes(model_of_captures(captures).serialize());
  const Cancel never;
  const CancelScope scope(never);
  take_bodies(m.graph);
  EXPECT_EQ(m.graph.nodes.back().captures, captures);
  EXPECT_LE(scope.longest(), 2 * kWorkPerLook);
  return scope.work();
}

// The work is counted, so that the load's time limit holds, and each name is looked up without a walk over all.
TEST(Bodies, H54_WorkOfManyCapturesIsCountedAndGrowsWithTheirNumber) {
  constexpr int kFew = 10'000;
  const std::int64_t few = work_of_bodies(kFew), many = work_of_bodies(2 * kFew);
  // What take_bodies does beside captures: it looks at each node of the model and of the body.
  const std::int64_t others = 3 * kNodeWork * (kFew + 10);
  EXPECT_GE(few, others + kFew);
  EXPECT_GE(many - few, others + kFew);
  EXPECT_LE(many, 2 * few + 4 * kWorkPerLook);
}

// ------------------------------------------------------------------------------------------------------- inference --

std::string name_of(const char* kind, int level, int k) { return kind + std::to_string(level) + "_" + std::to_string(k); }

// The body of the Loop at `level` of a nest of `depth`. It doubles carried value 0 and hands each carried value on to the next one,
// so that inference takes a round for each. The Loop in it begins with "x", and its body reads what this body carries.
OnnxWriter nested_body(int level, int depth, int carried) {
  OnnxWriter w;
  const std::string i = name_of("i", level, 0), go = name_of("go", level, 0), more = name_of("more", level, 0);
  w.add_input(i, kI64, {}).add_input(go, kBool, {});
  std::vector<std::string> inner = {i, go}, made;
  for (int k = 0; k < carried; ++k) {
    w.add_input(name_of("c", level, k), kF32, {"n"});
    inner.push_back("x");
    made.push_back(name_of("loop", level, k));
    if (level > 0) w.add_node("Neg", {name_of("c", level - 1, k)}, {name_of("read", level, k)});
  }
  const std::string first = name_of("c", level, 0);
  w.add_node("Concat", {first, first}, {name_of("next", level, 0)}, {{"axis", 0}});
  for (int k = 1; k < carried; ++k) w.add_node("Neg", {name_of("c", level, k - 1)}, {name_of("next", level, k)});
  if (level + 1 < depth)
    w.add_node("Loop", inner, made, {Attr::graph("body", nested_body(level + 1, depth, carried).graph())}, "loop");
  w.add_node("Identity", {go}, {more}).add_output(more, kBool);
  for (int k = 0; k < carried; ++k) w.add_output(name_of("next", level, k));
  return w;
}

Model nested_loops(int depth, int carried) {
  OnnxWriter w;
  w.add_input("x", kF32, {1}).add_initializer("turns", {}, std::vector<std::int64_t>{2});
  std::vector<std::string> inputs = {"turns", ""}, outputs;
  for (int k = 0; k < carried; ++k) {
    inputs.push_back("x");
    outputs.push_back("y" + std::to_string(k));
    w.add_output(outputs.back());
  }
  w.add_node("Loop", inputs, outputs, {Attr::graph("body", nested_body(0, depth, carried).graph())}, "loop");
  return validated(w);
}

// The first three outputs of each Loop are of rank 1 with an unknown dim, and the fourth is of unknown rank.
TEST(Bodies, ShapesOfNestedLoopsAreThoseOfALoopAlone) {
  for (const auto& [depth, carried] : {std::pair{1, 4}, std::pair{2, 4}, std::pair{3, 3}}) {
    Model m = nested_loops(depth, carried);
    infer_graph(m.graph);
    const Graph* graph = &m.graph;
    for (int level = 0; level < depth; ++level) {
      const auto loop = std::find_if(graph->nodes.begin(), graph->nodes.end(), [](const Node& n) { return n.body != nullptr; });
      ASSERT_NE(loop, graph->nodes.end());
      for (std::size_t k = 0; k < loop->outputs.size(); ++k) {
        const Value& value = graph->values[static_cast<std::size_t>(loop->outputs[k])];
        EXPECT_EQ(value.has_shape, k < 3) << value.name;
        EXPECT_EQ(value.shape, k < 3 ? Shape{-1} : Shape()) << value.name;
      }
      graph = loop->body.get();
    }
  }
}

std::int64_t work_of_inference(int depth) {
  constexpr int kCarried = 6;              // 7 rounds in each Loop
  constexpr std::int64_t kMost = 1 << 23;  // less than 7 to the power of 5 rounds take
  Model m = nested_loops(depth, kCarried);
  const Cancel never;
  const CancelScope scope(never, kMost);
  infer_graph(m.graph);
  EXPECT_LE(scope.longest(), 2 * kWorkPerLook);
  EXPECT_EQ(m.graph.values[static_cast<std::size_t>(m.graph.outputs[0])].shape, Shape{-1});
  return scope.work();
}

// Each round over a body infers the bodies in it again.
TEST(Bodies, WorkOfInferenceGrowsWithTheDepthOfNestedLoops) {
  const std::int64_t few = work_of_inference(5), more = work_of_inference(10), many = work_of_inference(15);
  EXPECT_GT(more - few, kNodeWork);
  EXPECT_LE(many - more, more - few + (more - few) / 20);
}

// ------------------------------------------------------------------------------------------------------ conditions --

OnnxWriter model_with_condition(const Proto& condition) {
  OnnxWriter then_body = chain_from("x", 1), else_body = chain_from("x", 2), w;
  then_body.add_output("o");
  else_body.add_output("o");
  w.add_input("x", kF32, {1}).add_output("y");
  w.add_node("If", {"c"}, {"y"}, {Attr::graph("then_branch", then_body.graph()), Attr::graph("else_branch", else_body.graph())},
             "choice");
  w.graph().message(5, condition);
  return w;
}

// The model with its graph as the last field, of which the last one is the condition.
std::string ending_with_condition(const Proto& condition) {
  OnnxWriter w = model_with_condition(condition);
  return Proto().varint(1, 8).message(8, Proto().bytes(1, "").varint(2, 17)).message(7, w.graph()).str();
}

TEST(If, AConstantConditionOfOneElementIsTaken) {
  for (const std::vector<std::int64_t>& dims : {std::vector<std::int64_t>{}, {1}, {1, 1}}) {
    const Proto condition = tensor_proto("c", kBool, dims, "\1");
    EXPECT_EQ(load_status(model_with_condition(condition).serialize()), EVN_OK);
    EXPECT_EQ(load_status(ending_with_condition(condition)), EVN_OK);
  }
}

TEST(If, AConstantConditionOfAnotherSizeIsRefused) {
  const auto expect_refused = [](const std::string& model, const char* what) {
    const Error e = load_error(model);
    EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL) << what << ": " << e.message;
    EXPECT_STREQ(e.node, "choice") << what;
  };
  const Proto none = tensor_proto("c", kBool, {0}, ""), two = tensor_proto("c", kBool, {2}, {"\0\1", 2});
  expect_refused(model_with_condition(none).serialize(), "no element");
  expect_refused(ending_with_condition(none), "no element, and none of the file's bytes behind it");
  expect_refused(model_with_condition(two).serialize(), "two elements");
  expect_refused(ending_with_condition(two), "two elements at the end of the file");
  expect_refused(ending_with_condition(tensor_proto("c", kBool, {1, 0, 3}, "")), "no element of three dims");
}

}  // namespace
}  // namespace evn::bodies_test
