// Inputs with a default stay inputs as long as rewrites leave their constants, and the nodes that read them, as they were.
#include "graph/default_reads.h"

#include <gtest/gtest.h>

#include "tests/model/load_helpers.h"

namespace evn {
namespace {

using namespace test;

// y = (x * k) + k
Model model_with_default() {
  OnnxWriter w;
  w.add_input("x", kF32, {2}).add_input("k", kF32, {2}).add_output("y");
  w.add_node("Mul", {"x", "k"}, {"m"}, {}, "mul").add_node("Add", {"m", "k"}, {"y"}, {}, "add");
  w.add_initializer("k", {2}, std::vector<float>{1, 2});
  return load_bytes(w.serialize());
}

std::size_t value_named(const Graph& graph, const char* name) {
  std::size_t v = 0;
  while (graph.values[v].name != name) ++v;
  return v;
}

TEST(DefaultReads, AnUnchangedDefaultStays) {
  Model model = model_with_default();
  const std::vector<DefaultReads> before = reads_of_defaults(model);
  ASSERT_EQ(before.size(), 1u);
  EXPECT_EQ(before[0].reads.size(), 2u);
  drop_changed_defaults(before, &model);
  EXPECT_EQ(model.defaults.size(), 1u);
}

TEST(DefaultReads, ADefaultThatANodeReadsNoMoreIsDropped) {
  Model model = model_with_default();
  const std::vector<DefaultReads> before = reads_of_defaults(model);
  model.graph.nodes[1].inputs[1] = model.graph.nodes[1].inputs[0];
  drop_changed_defaults(before, &model);
  EXPECT_TRUE(model.defaults.empty());
}

TEST(DefaultReads, ADefaultWithAnotherConstantIsDropped) {
  Model model = model_with_default();
  const std::vector<DefaultReads> before = reads_of_defaults(model);
  const Model other = model_with_default();
  model.graph.values[value_named(model.graph, "k")].constant = other.graph.values[value_named(other.graph, "k")].constant;
  drop_changed_defaults(before, &model);
  EXPECT_TRUE(model.defaults.empty());
}

}  // namespace
}  // namespace evn
