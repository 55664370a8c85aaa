// Segments of several nodes that a device claims: they run as one step, whatever the order of the nodes; claims that cannot hold
// are not used.
#include "runtime/placement/segments.h"
#include "graph/passes/passes.h"
#include "tests/runtime/support.h"

namespace evn::test::segments_test {
namespace {

using Groups = std::vector<std::vector<std::string>>;

// A device claims the nodes with these names together, as far as it is offered all of a group.
void claim_groups(Groups groups) {
  mock_settings().segments = [groups = std::move(groups)](std::span<const OpDesc> offered) {
    std::vector<std::vector<int>> segments;
    for (const auto& names : groups) {
      std::vector<int> segment;
      for (std::size_t i = 0; i < offered.size(); ++i) {
        if (std::find(names.begin(), names.end(), offered[i].node->name) != names.end()) segment.push_back(static_cast<int>(i));
      }
      if (segment.size() == names.size()) segments.push_back(segment);
    }
    return segments;
  };
}

// A configuration in which the mock "m" is the default, and nodes stay as the model has them.
Config on_mock() {
  Config c = two_mocks();
  c.default_devices = {"m"};
  for (const Pass& p : passes()) c.disabled_passes.push_back(p.name);
  return c;
}

std::vector<HostTensor> expected(const OnnxWriter& model, const std::vector<HostTensor>& in) {
  Config cpu;
  for (const Pass& p : passes()) cpu.disabled_passes.push_back(p.name);
  const ModelPtr loaded = load(make_runtime(cpu), model);
  return GraphRunner(loaded->graph()).run(in);
}

const NodePlacement& placed(const Placement& p, const ModelPtr& model, const std::string& name) {
  const std::vector<Node>& nodes = model->graph().nodes;
  const auto it = std::find_if(nodes.begin(), nodes.end(), [&](const Node& n) { return n.name == name; });
  return p.nodes.at(static_cast<std::size_t>(it - nodes.begin()));
}

OnnxWriter chain() {
  OnnxWriter m(14);
  m.add_input("x", kF32, {"n", 3}).add_output("y").add_initializer("w", {3}, std::vector<float>{1, 2, 3});
  m.add_node("Sigmoid", {"x"}, {"a"}, {}, "sigmoid").add_node("Mul", {"a", "w"}, {"b"}, {}, "mul");
  return std::move(m.add_node("Exp", {"b"}, {"c"}, {}, "exp").add_node("Add", {"c", "x"}, {"y"}, {}, "add"));
}

struct SegmentsTest : RuntimeTest {};

TEST_F(SegmentsTest, AChainOfThreeIsOneStep) {
  claim_groups({{"sigmoid", "mul", "exp"}});
  const ModelPtr model = load(make_runtime(on_mock()), chain());
  TestSession session(model, "");
  const std::vector<HostTensor> in = {random_tensor({2, 3}, 1)};
  expect_close(run(session, in), expected(chain(), in));
  EXPECT_EQ(mock_counters().kernels, 2);
  EXPECT_EQ(mock_counters().segment_nodes, 3);
  EXPECT_EQ(mock_counters().downloads, 1);
  const std::string json = session.explain(EVN_FORMAT_JSON);
  EXPECT_NE(json.find("\"name\":\"mul\",\"op\":\"Mul\",\"device\":\"m\",\"kernel\":\"mock_segment\",\"reason\":\"the default "
                      "device, in a segment of 3 nodes\""),
            std::string::npos)
      << json;
}

TEST_F(SegmentsTest, ADiamondIsOneStepWithTwoOutputs) {
  OnnxWriter m(14);
  m.add_input("x", kF32, {4, 3}).add_output("y").add_output("left");
  m.add_node("Relu", {"x"}, {"top"}, {}, "top").add_node("Neg", {"top"}, {"left"}, {}, "left");
  m.add_node("Exp", {"top"}, {"right"}, {}, "right").add_node("Add", {"left", "right"}, {"y"}, {}, "bottom");
  claim_groups({{"top", "left", "right", "bottom"}});
  TestSession session(load(make_runtime(on_mock()), m), "");
  const std::vector<HostTensor> in = {random_tensor({4, 3}, 1)};
  expect_close(run(session, in), expected(m, in));
  EXPECT_EQ(mock_counters().kernels, 1);
  EXPECT_EQ(mock_counters().segment_nodes, 4);
}

TEST_F(SegmentsTest, ItsNodesNeedNotStandTogether) {
  OnnxWriter m(14);
  m.add_input("x", kF32, {4, 3}).add_output("y");
  m.add_node("Neg", {"x"}, {"a"}, {}, "first")
      .add_node("Relu", {"a"}, {"r"}, {}, "reader")
      .add_node("Abs", {"x"}, {"b"}, {}, "before");
  m.add_node("Add", {"a", "b"}, {"c"}, {}, "second").add_node("Mul", {"c", "r"}, {"y"}, {}, "last");
  claim_groups({{"first", "second"}});
  TestSession session(load(make_runtime(on_mock()), m), "");
  const std::vector<HostTensor> in = {random_tensor({4, 3}, 1)};
  expect_close(run(session, in), expected(m, in));
  EXPECT_EQ(mock_counters().segment_nodes, 2);
  EXPECT_EQ(mock_counters().kernels, 4);
}

TEST_F(SegmentsTest, OtherDimsTakeTheSameStep) {
  claim_groups({{"sigmoid", "mul", "exp"}});
  TestSession session(load(make_runtime(on_mock()), chain()), "");
  for (const std::int64_t n : {2, 5, 0, 1, 7}) {
    const std::vector<HostTensor> in = {random_tensor({n, 3}, 1)};
    expect_close(run(session, in), expected(chain(), in));
  }
  EXPECT_EQ(mock_counters().segment_nodes, 4 * 3);
}

TEST_F(SegmentsTest, AConstantThatIsReadByValueIsKnownInIt) {
  OnnxWriter m(14);
  m.add_input("x", kF32, {"n", 6}).add_output("y").add_initializer("shape", {2}, std::vector<std::int64_t>{-1, 3});
  m.add_node("Neg", {"x"}, {"a"}, {}, "neg")
      .add_node("Reshape", {"a", "shape"}, {"b"}, {}, "reshape")
      .add_node("Exp", {"b"}, {"y"}, {}, "exp");
  claim_groups({{"neg", "reshape", "exp"}});
  TestSession session(load(make_runtime(on_mock()), m), "");
  const std::vector<HostTensor> in = {random_tensor({4, 6}, 1)};
  expect_close(run(session, in), expected(m, in));
  EXPECT_EQ(mock_counters().kernels, 1);
}

TEST_F(SegmentsTest, RulesComeFirst) {
  claim_groups({{"sigmoid", "mul"}, {"exp", "add"}});
  Config c = on_mock();
  c.rules = {rule({}, {"mul"}, "cpu", Policy::kRequire, 5)};
  const ModelPtr model = load(make_runtime(c), chain());
  const Placement p = place(*model, {""});
  EXPECT_EQ(placed(p, model, "mul").device->name(), "cpu");
  EXPECT_EQ(placed(p, model, "sigmoid").mode, NodeMode::kKernel);
  EXPECT_EQ(placed(p, model, "exp").mode, NodeMode::kSegment);
  TestSession session(model, "");
  const std::vector<HostTensor> in = {random_tensor({2, 3}, 1)};
  expect_close(run(session, in), expected(chain(), in));
  EXPECT_EQ(mock_counters().segment_nodes, 2);
}

TEST_F(SegmentsTest, WhatWouldCloseACycleIsNotUsed) {
  claim_groups({{"sigmoid", "exp"}});
  const ModelPtr model = load(make_runtime(on_mock()), chain());
  const Placement p = place(*model, {""});
  EXPECT_TRUE(p.segments.empty());
  EXPECT_EQ(placed(p, model, "exp").refused, "m: its segment would close a cycle in the graph");
  TestSession session(model, "");
  const std::vector<HostTensor> in = {random_tensor({2, 3}, 1)};
  expect_close(run(session, in), expected(chain(), in));
  EXPECT_EQ(mock_counters().segment_nodes, 0);
}

TEST_F(SegmentsTest, TwoThatAreRightAloneMayCloseACycle) {
  OnnxWriter m(14);
  m.add_input("x", kF32, {4}).add_input("z", kF32, {4}).add_output("y").add_output("v");
  m.add_node("Neg", {"x"}, {"a"}, {}, "a").add_node("Abs", {"z"}, {"b"}, {}, "b");
  m.add_node("Exp", {"b"}, {"y"}, {}, "after_b").add_node("Relu", {"a"}, {"v"}, {}, "after_a");
  claim_groups({{"a", "after_b"}, {"b", "after_a"}});  // each reads what the other makes
  const ModelPtr model = load(make_runtime(on_mock()), m);
  EXPECT_EQ(place(*model, {""}).segments.size(), 1u);
  TestSession session(model, "");
  const std::vector<HostTensor> in = {random_tensor({4}, 1), random_tensor({4}, 2)};
  expect_close(run(session, in), expected(m, in));
  EXPECT_EQ(mock_counters().segment_nodes, 2);
}

TEST_F(SegmentsTest, ClaimsOfWhatWasNotOfferedAreRefused) {
  for (const std::vector<std::vector<int>>& claim :
       {std::vector<std::vector<int>>{{0, 99}}, {{-1, 0}}, {{0, 0}}, {{0, 1}, {1, 2}}}) {
    mock_settings().segments = [&](std::span<const OpDesc>) { return claim; };
    const ModelPtr model = load(make_runtime(on_mock()), chain());
    try {
      TestSession session(model, "");
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_INTERNAL);
      EXPECT_STREQ(e.device, "m");
    }
  }
}

// What is in a segment stands before and behind an If whose branch is chosen by a part of it; the nodes of the branches are not
// offered.
TEST_F(SegmentsTest, BranchesStayOutside) {
  const auto body = [](const char* name, const char* op) {
    OnnxWriter b(14);
    b.add_node(op, {"a"}, {std::string("of_") + op}, {}, op).add_output(std::string("of_") + op);
    return Attr::graph(name, b.graph());
  };
  OnnxWriter m(14);
  m.add_input("x", kF32, {"n", 2}).add_output("y").add_output("c", kBool).add_initializer("zero", {}, std::vector<float>{0});
  m.add_node("Mul", {"x", "x"}, {"u"}, {}, "square").add_node("ReduceMax", {"x"}, {"m"}, {{"keepdims", 0}}, "max");
  m.add_node("Exp", {"u"}, {"a"}, {}, "exp").add_node("Greater", {"m", "zero"}, {"c"}, {}, "greater");
  m.add_node("If", {"c"}, {"i"}, {body("then_branch", "Neg"), body("else_branch", "Abs")}, "choice");
  m.add_node("Sigmoid", {"i"}, {"s"}, {}, "sigmoid").add_node("Add", {"s", "u"}, {"y"}, {}, "add");
  const Groups groups = {{"max", "greater"}, {"square", "exp"}, {"sigmoid", "add"}};
  claim_groups(groups);
  const auto claim = mock_settings().segments;
  mock_settings().segments = [&](std::span<const OpDesc> offered) {
    EXPECT_FALSE(offered.empty());
    for (const OpDesc& d : offered) EXPECT_LT(d.node->region, 0) << d.node->name;
    return claim(offered);
  };
  const ModelPtr model = load(make_runtime(on_mock()), m);
  const Placement p = place(*model, {""});
  EXPECT_EQ(p.segments.size(), 3u);
  TestSession session(model, "");
  for (const float sign : {1.0f, -1.0f, 1.0f}) {
    HostTensor x = random_tensor({2, 2}, 3, 0.5f, 2);
    for (float& e : x.as<float>()) e *= sign;
    const std::vector<HostTensor> got = run(session, {x});
    for (std::size_t k = 0; k < 4; ++k) {
      const double v = x.as<float>()[k], a = std::exp(v * v), i = sign > 0 ? -a : a;
      EXPECT_NEAR(got[0].as<float>()[k], 1 / (1 + std::exp(-i)) + v * v, 1e-4);
    }
  }
  EXPECT_EQ(mock_counters().segment_nodes, 3 * 6);
}

// ---------------------------------------------------------------------------------------------------- drawn graphs --

std::uint64_t below(Random* random, std::uint64_t n) { return random->next() % n; }

// Nodes of one or two inputs, each of an earlier node's output or of the input. All that nobody reads are outputs.
OnnxWriter drawn_model(Random* random, int nodes) {
  OnnxWriter m(14);
  m.add_input("x", kF32, {3, 2});
  std::vector<std::string> values = {"x"};
  std::vector<bool> read(static_cast<std::size_t>(nodes) + 1, false);
  for (int i = 0; i < nodes; ++i) {
    const auto pick = [&] {
      const std::size_t from =
          values.size() < 4 || below(random, 3) == 0 ? below(random, values.size()) : values.size() - 1 - below(random, 4);
      read[from] = true;
      return values[from];
    };
    const std::string out = "v" + std::to_string(i);
    if (below(random, 2) == 0) {
      const char* const ops[] = {"Neg", "Abs", "Sigmoid", "Relu"};
      m.add_node(ops[below(random, 4)], {pick()}, {out}, {}, "n" + std::to_string(i));
    } else {
      m.add_node(below(random, 2) == 0 ? "Add" : "Max", {pick(), pick()}, {out}, {}, "n" + std::to_string(i));
    }
    values.push_back(out);
  }
  for (std::size_t v = 1; v < values.size(); ++v) {
    if (!read[v]) m.add_output(values[v]);
  }
  return m;
}

// Whether a path from some group comes back to it: by reachability, with nothing of what is tested.
bool has_cycle(const Graph& graph, std::span<const PlacedSegment> segments) {
  const std::size_t n = graph.nodes.size();
  std::vector<std::size_t> group(n);
  for (std::size_t i = 0; i < n; ++i) group[i] = i;
  for (const PlacedSegment& s : segments) {
    for (const std::int32_t node : s.nodes) group[static_cast<std::size_t>(node)] = static_cast<std::size_t>(s.nodes[0]);
  }
  std::vector<std::vector<bool>> reaches(n, std::vector<bool>(n, false));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      for (const ValueId v : graph.nodes[j].inputs) {
        const std::vector<ValueId>& made = graph.nodes[i].outputs;
        if (group[i] != group[j] && std::find(made.begin(), made.end(), v) != made.end()) reaches[group[i]][group[j]] = true;
      }
    }
  }
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n && reaches[i][k]; ++j) {
        if (reaches[k][j]) reaches[i][j] = true;
      }
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (reaches[i][i]) return true;
  }
  return false;
}

void expect_order(const Graph& graph, std::span<const PlacedSegment> segments, const std::vector<std::int32_t>& order) {
  std::vector<std::int32_t> place(graph.nodes.size(), -1);
  for (std::size_t i = 0; i < order.size(); ++i) place[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
  std::vector<std::int32_t> maker(graph.values.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    ASSERT_GE(place[i], 0) << "node " << i << " is missing";
    for (const ValueId v : graph.nodes[i].inputs) {
      ASSERT_TRUE(maker[static_cast<std::size_t>(v)] < 0 ||
                  place[static_cast<std::size_t>(maker[static_cast<std::size_t>(v)])] < place[i]);
    }
    for (const ValueId v : graph.nodes[i].outputs) maker[static_cast<std::size_t>(v)] = static_cast<std::int32_t>(i);
  }
  for (const PlacedSegment& s : segments) {
    for (std::size_t k = 1; k < s.nodes.size(); ++k) {
      ASSERT_EQ(place[static_cast<std::size_t>(s.nodes[k])], place[static_cast<std::size_t>(s.nodes[k - 1])] + 1);
    }
  }
}

TEST_F(SegmentsTest, DrawnClaimsOfDrawnGraphsStayAcyclic) {
  int cyclic = 0, used = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const int nodes = 4 + static_cast<int>(below(&random, 18));
    const OnnxWriter model = drawn_model(&random, nodes);
    const std::uint64_t groups = 1 + below(&random, 4);
    std::vector<std::uint64_t> group_of;  // per node; the last: in none
    for (int i = 0; i < nodes; ++i)
      group_of.push_back(i > 0 && below(&random, 3) != 0 ? group_of.back() : below(&random, groups + 1));
    Groups names(groups);
    for (std::size_t i = 0; i < group_of.size(); ++i) {
      if (group_of[i] < groups) names[group_of[i]].push_back("n" + std::to_string(i));
    }
    claim_groups(names);
    Config config = on_mock();
    if (below(&random, 2) == 0)
      config.rules = {
          rule({}, {"n" + std::to_string(below(&random, static_cast<std::uint64_t>(nodes)))}, "cpu", Policy::kRequire, 3)};
    const ModelPtr loaded = load(make_runtime(config), model);
    const Graph& graph = loaded->graph();
    ASSERT_EQ(graph.nodes.size(), static_cast<std::size_t>(nodes));
    std::vector<PlacedSegment> claimed;
    for (const auto& group : names) {
      PlacedSegment s;
      for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
        if (std::find(group.begin(), group.end(), graph.nodes[i].name) != group.end())
          s.nodes.push_back(static_cast<std::int32_t>(i));
      }
      if (s.nodes.size() > 1) claimed.push_back(s);
    }
    const std::vector<std::size_t> dropped = segments_in_cycles(graph, claimed);
    EXPECT_EQ(has_cycle(graph, claimed), !dropped.empty());
    std::vector<PlacedSegment> kept;
    for (std::size_t s = 0; s < claimed.size(); ++s) {
      const bool is_dropped = std::find(dropped.begin(), dropped.end(), s) != dropped.end();
      kept.push_back(claimed[s]);
      EXPECT_EQ(has_cycle(graph, kept), is_dropped) << "segment " << s;
      if (is_dropped) kept.pop_back();
    }
    const auto order = contiguous_order(graph, kept);
    ASSERT_TRUE(order.has_value());
    expect_order(graph, kept, *order);

    const Placement p = place(*loaded, {""});
    EXPECT_FALSE(has_cycle(graph, p.segments));
    std::int64_t in_segments = 0;
    for (const PlacedSegment& s : p.segments) in_segments += static_cast<std::int64_t>(s.nodes.size());
    cyclic += !dropped.empty();
    used += !p.segments.empty();
    mock_counters() = {};
    TestSession session(loaded, "");
    const std::vector<HostTensor> in = {random_tensor({3, 2}, seed)};
    expect_close(run(session, in), expected(model, in));
    EXPECT_EQ(mock_counters().segment_nodes, in_segments);
  }
  EXPECT_GT(cyclic, 20);
  EXPECT_GT(used, 40);
}

}  // namespace
}  // namespace evn::test::segments_test
