// Names of values that a model uses again and again: each search for a free name takes one try, and stops when it must.
#include "graph/unique_names.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/cancel.h"
#include "base/guarded.h"
#include "graph/subgraphs.h"
#include "tests/model/load_helpers.h"

namespace evn::unique_names_test {
namespace {

using namespace test;

TEST(UniqueNames, TheFirstFreeNumberIsTaken) {
  UniqueNames names;
  names.take("a");
  names.take("a_2");
  EXPECT_EQ(names.make("a"), "a_1");
  EXPECT_EQ(names.make("a"), "a_3");
  EXPECT_EQ(names.make("a_2"), "a_2_1");
  EXPECT_EQ(names.make("a_4"), "a_4");
  EXPECT_EQ(names.make("a"), "a_5");
  EXPECT_EQ(names.make("b"), "b");
}

TEST(UniqueNames, EachNumberIsTriedOnce) {
  constexpr int kNames = 10'000;
  const Cancel never;
  const CancelScope scope(never);
  UniqueNames names;
  for (int i = 0; i < kNames; ++i) EXPECT_EQ(names.make("a"), i == 0 ? "a" : "a_" + std::to_string(i));
  EXPECT_GE(scope.work(), kNames * kNameWork);
  EXPECT_LE(scope.work(), 2 * kNames * kNameWork);
}

// Ifs whose branches all call what they make "a".
Model model_of_ifs(int n) {
  OnnxWriter branch, w;
  branch.add_node("Neg", {"x"}, {"a"}).add_output("a");
  w.add_input("c", kBool, {}).add_input("x", kF32, {1});
  for (int i = 0; i < n; ++i) {
    const std::string k = std::to_string(i);
    w.add_node("If", {"c"}, {"y" + k}, {Attr::graph("then_branch", branch.graph()), Attr::graph("else_branch", branch.graph())},
               "choice" + k);
    w.add_output("y" + k);
  }
  Model m = load_bytes(w.serialize());
  validate_model(m, {});
  return m;
}

std::int64_t work_of_subgraphs(int n) {
  const Model m = model_of_ifs(n);
  const Cancel never;
  const CancelScope scope(never);
  const Graph made = with_subgraphs(m.graph);
  EXPECT_LE(scope.longest(), 2 * kWorkPerLook);
  std::set<std::string> names;
  for (const Node& node : made.nodes) {
    for (const Attribute& a : node.attributes) {
      const Graph& branch = *std::get<std::shared_ptr<Graph>>(a.value);
      names.insert(branch.values[static_cast<std::size_t>(branch.outputs.at(0))].name);
    }
  }
  EXPECT_EQ(names.size(), 2u * static_cast<std::size_t>(n));
  EXPECT_TRUE(names.contains("a"));
  EXPECT_TRUE(names.contains("a_" + std::to_string(2 * n - 1)));
  return scope.work();
}

TEST(WithSubgraphs, WorkOfBranchesWithTheSameNamesGrowsWithTheirNumber) {
  constexpr int kFew = 2000;
  const std::int64_t few = work_of_subgraphs(kFew), many = work_of_subgraphs(2 * kFew);
  EXPECT_GE(few, kFew * kNodeWork);
  EXPECT_LE(many, 2 * few + 4 * kWorkPerLook);
}

TEST(WithSubgraphs, StopsWhenItIsCancelled) {
  const Model m = model_of_ifs(200);
  const std::atomic<bool> requested{true};
  Cancel cancel;
  cancel.requested = &requested;
  const CancelScope scope(cancel);
  const std::optional<Error> failure = error_of([&] { with_subgraphs(m.graph); });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->status, EVN_ERROR_CANCELLED);
}

}  // namespace
}  // namespace evn::unique_names_test
