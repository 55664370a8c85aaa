#include "runtime/report/drawing.h"

#include "tests/runtime/support.h"

namespace evn::test {
namespace {

using DrawingTest = RuntimeTest;

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

Drawing drawing_of(const Session& session) {
  std::vector<const char*> kernels(session.graph().nodes.size(), "kernel");
  return make_drawing(session.compiled(), kernels);
}

TEST_F(DrawingTest, MarksCopiesBetweenDevicesOnly) {
  TestSession plain(load(make_runtime(), small_network()), "");
  for (const Drawing::Edge& edge : drawing_of(plain).edges) EXPECT_FALSE(edge.copy);
  TestSession moved(load(make_runtime(two_mocks()), small_network()), "m");
  const Drawing drawing = drawing_of(moved);
  for (const Drawing::Edge& edge : drawing.edges) {
    const bool outside = drawing.boxes[edge.from].slot < 0 || drawing.boxes[edge.to].slot < 0;
    EXPECT_EQ(edge.copy, outside && !edge.shape_only) << edge.value;
  }
  EXPECT_GT(count(moved.explain(EVN_FORMAT_DOT), "label=\"copy\""), 1u);
  EXPECT_EQ(count(plain.explain(EVN_FORMAT_SVG), ">copy<"), 0u);
}

TEST_F(DrawingTest, EdgesLeadToLaterLayers) {
  TestSession session(load(make_runtime(), small_network()), "");
  const Drawing drawing = drawing_of(session);
  ASSERT_FALSE(drawing.edges.empty());
  for (const Drawing::Edge& edge : drawing.edges) EXPECT_LT(drawing.boxes[edge.from].layer, drawing.boxes[edge.to].layer);
}

TEST_F(DrawingTest, EveryNodeInputAndOutputIsABox) {
  TestSession session(load(make_runtime(), small_network()), "");
  const Graph& graph = session.graph();
  const std::size_t boxes = graph.nodes.size() + graph.inputs.size() + graph.outputs.size();
  EXPECT_EQ(drawing_of(session).boxes.size(), boxes);
  EXPECT_EQ(count(session.explain(EVN_FORMAT_SVG), "<rect"), boxes + 1 + 1);  // the page, and one device in the legend
}

}  // namespace
}  // namespace evn::test
