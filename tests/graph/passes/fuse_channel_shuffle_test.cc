// The rewrite fuse_channel_shuffle.
#include <gtest/gtest.h>

#include "tests/support/pass_check.h"

namespace evn::test::fuse_channel_shuffle_test {
namespace {

constexpr char kPass[] = "fuse_channel_shuffle";

struct Form {
  std::vector<std::int64_t> split = {2, 3, 4, 5, 6};
  std::vector<std::int64_t> perm = {0, 2, 1, 3, 4};
  std::vector<std::int64_t> joined = {2, 12, 5, 6};
};

Graph shuffle(const Form& form, bool keep = false) {
  GraphBuilder b;
  const ValueId x = b.input("x", Shape{2, 12, 5, 6});
  const ValueId split = b.node("Reshape", {x, b.ints(form.split)});
  const ValueId swapped = b.node("Transpose", {split}, {{"perm", form.perm}});
  b.output(b.node("Reshape", {swapped, b.ints(form.joined)}));
  if (keep) b.output(b.node("Neg", {swapped}));
  return b.build();
}

TEST(FuseChannelShuffle, BecomesOneGather) {
  for (const Form& form : {Form{}, Form{{2, 4, 3, 5, 6}}, Form{{-1, 2, 6, 5, 6}, {0, 2, 1, 3, 4}, {2, -1, 5, 6}}}) {
    const Graph original = shuffle(form);
    Graph graph = original;
    EXPECT_TRUE(run_pass(graph, kPass));
    ASSERT_EQ(graph.nodes.size(), 1u);
    EXPECT_EQ(graph.nodes[0].op_type, "Gather");
    expect_same_results(graph, original, 0, 0);
  }
}

TEST(FuseChannelShuffle, OtherPermutationsAndShapesStay) {
  for (const Form& form : {Form{{2, 3, 4, 5, 6}, {0, 1, 2, 4, 3}}, Form{{2, 3, 4, 6, 5}}, Form{{4, 3, 2, 5, 6}},
                           Form{{2, 3, 4, 5, 6}, {0, 2, 1, 3, 4}, {2, 12, 30}}}) {
    Graph graph = shuffle(form);
    EXPECT_FALSE(run_pass(graph, kPass));
  }
}

TEST(FuseChannelShuffle, IntermediateThatIsReadElsewhereStays) {
  Graph graph = shuffle({}, true);
  EXPECT_FALSE(run_pass(graph, kPass));
}

}  // namespace
}  // namespace evn::test::fuse_channel_shuffle_test
