// Bodies in the survey of a model: how many there may be, and the paths to them.
#include "model/survey.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/model/load_helpers.h"

namespace evn {
namespace {

using namespace test;

Survey survey_of(const std::string& bytes, const LoadOptions& options = {}) {
  const auto is_operator = [](const std::string& domain, const std::string&, std::int64_t) { return domain.empty(); };
  return survey_onnx(exact_copy(bytes), bytes.size(), options, is_operator);
}

// A node with that many empty graphs, of which each takes two bytes.
Proto node_of_graphs(int count) {
  Proto attribute;
  attribute.bytes(1, "bodies");
  for (int i = 0; i < count; ++i) attribute.bytes(11, "");
  return node_proto("Switch", {}, {"y"}, {Attr(attribute)}, "switch");
}

TEST(Survey, BodiesAreLimitedAsNodesAre) {
  constexpr int kMost = 100;
  LoadOptions options;
  options.limits.nodes = kMost;
  const auto with_bodies = [](int count) { return OnnxWriter().add_node(node_of_graphs(count)).serialize(); };
  EXPECT_EQ(survey_of(with_bodies(kMost - 1), options).bodies.size(), std::size_t{kMost});  // the main graph is one
  try {
    survey_of(with_bodies(kMost), options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_LIMIT);
    EXPECT_NE(std::string(e.message).find("more than 100 graphs"), std::string::npos) << e.message;
  }
}

TEST(Survey, FunctionsAreAmongTheBodies) {
  FunctionWriter twice("Twice", {"a"}, {"b"});
  twice.import("", 17).add_node("Add", {"a", "a"}, {"b"});
  OnnxWriter w;
  w.import("local", 1).add_function(twice).add_node("Twice", {"x"}, {"y"}, {}, "call", "local");
  LoadOptions options;
  options.limits.nodes = 2;
  const Survey survey = survey_of(w.serialize(), options);
  ASSERT_EQ(survey.nodes.size(), 2u);
  EXPECT_EQ(body_path(survey, survey.nodes[0].body), "");
  EXPECT_EQ(body_path(survey, survey.nodes[1].body), "local::Twice/");
}

// A path is made when it is shown: the names in it are not kept for each body.
TEST(Survey, PathsAreNotRepeatedForEachBody) {
  constexpr int kLevels = 8, kBodies = 1000;
  const std::string name(100, 'n');
  OnnxWriter inner, w;
  inner.add_node(node_of_graphs(kBodies));
  Proto graph = inner.graph();
  std::string path;
  for (int level = 0; level < kLevels; ++level) {
    graph = Proto().message(1, node_proto("If", {}, {"y"}, {Attr::graph("then_branch", graph)}, name));
    path += name + "/then/";
  }
  w.graph() = graph;
  const Survey survey = survey_of(w.serialize());
  ASSERT_EQ(survey.bodies.size(), std::size_t{1 + kLevels + kBodies});
  std::size_t bytes = 0;
  for (const SurveyBody& body : survey.bodies) bytes += body.name.size();
  EXPECT_LE(bytes, std::size_t{8} * survey.bodies.size());
  EXPECT_EQ(body_path(survey, 0), "");
  EXPECT_EQ(body_path(survey, 2), name + "/then/" + name + "/then/");
  path += "switch/bodies/";
  EXPECT_EQ(body_path(survey, survey.bodies.size() - 1), "..." + path.substr(path.size() - 509));
}

}  // namespace
}  // namespace evn
