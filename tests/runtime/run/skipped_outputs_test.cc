// Runs that are asked for some of a model's outputs alone: for each subset of them, those that are given have the bits that a run
// for all gives, and what only the others need is not computed.
#include "graph/passes/passes.h"
#include "tests/runtime/run/outputs_support.h"
#include "tests/support/forced_cascades.h"

namespace evn::test::skipped_outputs_test {
namespace {

struct SkippedOutputs : RuntimeTest {
  ~SkippedOutputs() override { force_cascades(CascadeUse::kWhereItPays); }
};

// All subsets, for inputs of some shapes in turns, so that plans come back and are made over.
void expect_subsets(Session& session, const std::vector<std::vector<HostTensor>>& inputs, bool on_device = false) {
  const std::size_t count = session.graph().outputs.size();
  for (int turn = 0; turn < 2; ++turn) {
    for (std::size_t set = 0; set < std::size_t{1} << count; ++set) {
      for (const std::vector<HostTensor>& some : inputs) {
        const std::vector<TensorPtr> in = to_tensors(session.runtime(), some);
        const Given all = run_with(session, in, {});
        RunRequest request;
        request.outputs_on_device = on_device;
        for (std::size_t j = 0; j < count; ++j) request.skipped.push_back((set >> j & 1) != 0 ? 1 : 0);
        const Given given = run_with(session, in, request);
        for (std::size_t j = 0; j < count; ++j) {
          const std::string what = "output " + std::to_string(j) + " of set " + std::to_string(set);
          if (request.skipped[j] != 0) {
            EXPECT_EQ(given.tensors[j].desc.dtype, DType::kUndefined) << what;
          } else {
            expect_same_bits(given.tensors[j], all.tensors[j], what);
          }
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

void expect_subsets(const OnnxWriter& model, const std::vector<std::vector<HostTensor>>& inputs, Config config = {}) {
  try {
    TestSession session(load(make_runtime(std::move(config)), model), "");
    expect_subsets(session, inputs);
    expect_subsets(session, inputs, true);
  } catch (const Error& e) {
    FAIL() << e.message << " " << e.node;
  }
}

HostTensor truth(bool value) {
  HostTensor t({DType::kBool, {}});
  t.as<std::uint8_t>()[0] = value ? 1 : 0;
  return t;
}

Attr branch(const char* name, OnnxWriter body) { return Attr::graph(name, body.graph()); }

OnnxWriter body_of(const char* op, const char* input) {
  OnnxWriter body(13);
  return body.add_node(op, {input}, {std::string("of_") + op}, {}, op).add_output(std::string("of_") + op);
}

// The nodes that a run computes, by their names in the trace.
std::string nodes_of(Session& session, const std::vector<HostTensor>& inputs, std::vector<std::uint8_t> skipped) {
  session.tracing().start(session.shared_graph(), 1000);
  RunRequest request;
  request.skipped = std::move(skipped);
  run_with(session, to_tensors(session.runtime(), inputs), request);
  session.tracing().stop();
  const std::string trace = render_trace(session, EVN_FORMAT_JSON);
  std::string names;
  for (const Node& node : session.graph().nodes) {
    if (trace.find("\"" + node.name + "\"") != std::string::npos) names += (names.empty() ? "" : " ") + node.name;
  }
  return names;
}

TEST_F(SkippedOutputs, WhatOnlyTheyNeedHasNoStep) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"n", 8}).add_output("a").add_output("b").add_output("c").add_output("d");
  w.add_initializer("w", {8, 8}, drawn(64, 1));
  w.add_node("Exp", {"x"}, {"e"}, {}, "shared")
      .add_node("Neg", {"e"}, {"a"}, {}, "of_a")
      .add_node("Abs", {"e"}, {"p"}, {}, "of_b_1");
  w.add_node("MatMul", {"p", "w"}, {"b"}, {}, "of_b_2")
      .add_node("Sqrt", {"b"}, {"c"}, {}, "of_c")
      .add_node("Sin", {"x"}, {"d"}, {}, "of_d");
  TestSession session(load(make_runtime(), w), "");
  const std::vector<HostTensor> in = {random_tensor({3, 8}, 1)};
  EXPECT_EQ(nodes_of(session, in, {0, 0, 0, 0}), "shared of_a of_b_1 of_b_2 of_c of_d");
  EXPECT_EQ(nodes_of(session, in, {1, 0, 0, 1}), "shared of_b_1 of_b_2 of_c");
  EXPECT_EQ(nodes_of(session, in, {1, 1, 0, 1}), "shared of_b_1 of_b_2 of_c");
  EXPECT_EQ(nodes_of(session, in, {0, 1, 1, 1}), "shared of_a");
  EXPECT_EQ(nodes_of(session, in, {1, 1, 1, 0}), "of_d");
  EXPECT_EQ(nodes_of(session, in, {1, 1, 1, 1}), "");
  EXPECT_EQ(nodes_of(session, in, {}), "shared of_a of_b_1 of_b_2 of_c of_d");
  expect_subsets(session, {in, {random_tensor({5, 8}, 2)}});
}

// Many shapes that never come again: plans are made over, each for its own set.
TEST_F(SkippedOutputs, PlansAreMadeOver) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"n", 8}).add_output("a").add_output("b").add_initializer("w", {8, 8}, drawn(64, 1));
  w.add_node("MatMul", {"x", "w"}, {"a"}).add_node("Relu", {"a"}, {"r"}).add_node("MatMul", {"r", "w"}, {"b"});
  TestSession session(load(make_runtime(), w), "");
  for (std::int64_t n = 1; n < 40; ++n) expect_subsets(session, {{random_tensor({n, 8}, static_cast<std::uint64_t>(n))}});
}

TEST_F(SkippedOutputs, OfFusedSums) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"N", 8, "H", "W"}).add_output("first").add_output("second").add_output("third").add_output("fourth");
  const auto conv = [&](const char* x, const char* y, std::uint64_t seed) {
    w.add_initializer(std::string("w_") + y, {8, 8, 3, 3}, drawn(8 * 8 * 9, seed))
        .add_initializer(std::string("b_") + y, {8, 1, 1}, drawn(8, seed + 1));
    w.add_node("Conv", {x, std::string("w_") + y}, {y}, {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
  };
  conv("x", "c0", 1);
  w.add_node("Add", {"c0", "b_c0"}, {"first"});
  conv("first", "c1", 3);
  w.add_node("Add", {"c1", "b_c1"}, {"s1"}).add_node("Add", {"s1", "first"}, {"r1"}).add_node("Relu", {"r1"}, {"second"});
  conv("second", "c2", 5);
  w.add_node("Add", {"c2", "first"}, {"third"});
  conv("third", "fourth", 7);
  expect_subsets(w, {{random_tensor({1, 8, 9, 7}, 1)}, {random_tensor({2, 8, 4, 5}, 2)}, {random_tensor({1, 8, 9, 8}, 3)}});
}

TEST_F(SkippedOutputs, OfCascades) {
  force_cascades(CascadeUse::kAlways);
  OnnxWriter w(13);
  w.add_input("x", kF32, {"N", 16, "H", "W"}).add_output("a").add_output("b").add_output("c");
  const auto conv = [&](const std::string& x, const std::string& y, std::int64_t in, std::int64_t out, std::int64_t kernel,
                        std::int64_t group) {
    w.add_initializer("w_" + y, {out, in / group, kernel, kernel},
                      drawn(out * in / group * kernel * kernel, y.size() + static_cast<std::size_t>(out)));
    w.add_node("Conv", {x, "w_" + y}, {y}, {{"pads", std::vector<std::int64_t>(4, kernel / 2)}, {"group", group}});
  };
  const auto block = [&](const std::string& x, const std::string& y) {
    conv(x, y + "_up", 16, 32, 1, 1);
    w.add_node("Relu", {y + "_up"}, {y + "_r"});
    conv(y + "_r", y + "_deep", 32, 32, 3, 32);
    w.add_node("Relu", {y + "_deep"}, {y + "_q"});
    conv(y + "_q", y + "_down", 32, 16, 1, 1);
    w.add_node("Add", {y + "_down", x}, {y});
  };
  block("x", "a");
  block("a", "b");
  conv("b_r", "c", 32, 16, 1, 1);  // reads what lies within a cascade
  expect_subsets(w, {{random_tensor({1, 16, 17, 13}, 1)}, {random_tensor({2, 16, 8, 8}, 2)}});
}

TEST_F(SkippedOutputs, OfJoinedAndCutChannels) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"N", 16, "H", "W"}).add_output("inner").add_output("outer").add_output("part").add_output("pooled");
  const auto conv = [&](const std::string& x, const std::string& y, std::int64_t in) {
    w.add_initializer("w_" + y, {16, in, 3, 3}, drawn(16 * in * 9, y.size() + y[0]));
    w.add_node("Conv", {x, "w_" + y}, {y}, {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
  };
  conv("x", "p", 16);
  conv("p", "q", 16);
  w.add_node("Concat", {"p", "q"}, {"pq"}, {{"axis", 1}});
  conv("pq", "r", 32);
  w.add_node("Concat", {"pq", "r"}, {"pqr"}, {{"axis", 1}});
  w.add_node("Relu", {"pq"}, {"inner"});
  conv("pqr", "outer", 48);
  w.add_node("Split", {"pqr"}, {"s0", "s1", "s2"}, {{"axis", 1}});
  conv("s1", "part", 16);
  w.add_node("MaxPool", {"s2"}, {"pooled"}, {{"kernel_shape", std::vector<std::int64_t>{2, 2}}});
  expect_subsets(w, {{random_tensor({1, 16, 9, 7}, 1)}, {random_tensor({2, 16, 6, 6}, 2)}});
}

// Outputs that are made without a step of their own, or by one that makes several.
TEST_F(SkippedOutputs, OfViewsPartsInputsAndConstants) {
  OnnxWriter w(14);
  w.add_input("x", kF32, {6, 2, 4})
      .add_initializer("k", {2}, std::vector<float>{1, 2})
      .add_initializer("flat", {1}, std::vector<std::int64_t>{-1});
  for (const char* name : {"x", "k", "v", "s0", "s1", "y", "h", "s"}) w.add_output(name, std::string(name) == "s" ? kI64 : kF32);
  w.add_node("Exp", {"x"}, {"e"}).add_node("Reshape", {"e", "flat"}, {"v"});
  w.add_node("Split", {"e"}, {"s0", "s1"}, {{"axis", 0}}).add_node("Shape", {"e"}, {"s"});
  w.add_initializer("W", {1, 9, 4}, drawn(36, 1)).add_initializer("R", {1, 9, 3}, drawn(27, 2));
  w.add_node("GRU", {"e", "W", "R"}, {"y", "h"}, {{"hidden_size", 3}});
  expect_subsets(w, {{random_tensor({6, 2, 4}, 1)}});
}

TEST_F(SkippedOutputs, OfBranches) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {1, "n"}).add_input("given", kBool, {}).add_initializer("zero", {}, std::vector<float>{0});
  for (const char* name : {"a", "b", "z", "g"}) w.add_output(name);
  w.add_node("ReduceMax", {"x"}, {"m"}, {{"keepdims", 0}}).add_node("Greater", {"m", "zero"}, {"c"}).add_node("Abs", {"x"}, {"a"});
  w.add_node("If", {"c"}, {"b"}, {branch("then_branch", body_of("Neg", "a")), branch("else_branch", body_of("Exp", "x"))},
             "computed");
  w.add_node("Sin", {"b"}, {"z"});
  w.add_node("If", {"given"}, {"g"}, {branch("then_branch", body_of("Relu", "b")), branch("else_branch", body_of("Cos", "x"))},
             "said");
  std::vector<std::vector<HostTensor>> inputs;
  for (const float sign : {1.0f, -1.0f}) {
    for (const bool taken : {true, false}) inputs.push_back({random_tensor({1, 5}, 3, sign, 2 * sign), truth(taken)});
  }
  expect_subsets(w, inputs);
}

// A branch whose condition only a skipped output needs is not waited for.
TEST_F(SkippedOutputs, ConditionsOfDeadBranchesAreNotComputed) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {1, 4}).add_initializer("zero", {}, std::vector<float>{0}).add_output("a").add_output("b");
  w.add_node("ReduceMax", {"x"}, {"m"}, {{"keepdims", 0}}, "most").add_node("Greater", {"m", "zero"}, {"c"}, {}, "greater");
  w.add_node("If", {"c"}, {"b"}, {branch("then_branch", body_of("Neg", "x")), branch("else_branch", body_of("Exp", "x"))},
             "choice");
  w.add_node("Abs", {"x"}, {"a"}, {}, "absolute");
  TestSession session(load(make_runtime(), w), "");
  EXPECT_EQ(nodes_of(session, {random_tensor({1, 4}, 1)}, {0, 1}), "absolute");
  expect_subsets(session, {{random_tensor({1, 4}, 1)}});
}

TEST_F(SkippedOutputs, OfLoopsAndShapesThatDependOnData) {
  OnnxWriter body(13);
  body.add_input("i", kI64, {}).add_input("go_in", kBool, {}).add_input("v", kF32, {1, "n"});
  body.add_node("Add", {"v", "x"}, {"w"})
      .add_node("Identity", {"go_in"}, {"go"})
      .add_node("ReduceSum", {"w"}, {"sum"}, {{"keepdims", 0}});
  body.add_output("go", kBool).add_output("w").add_output("sum");
  OnnxWriter w(13);
  w.add_input("x", kF32, {1, "n"}).add_input("turns", kI64, {});
  for (const char* name : {"before", "last", "sums", "where", "behind"})
    w.add_output(name, std::string(name) == "where" ? kI64 : kF32);
  w.add_node("Abs", {"x"}, {"before"});
  w.add_node("Loop", {"turns", "", "before"}, {"last", "sums"}, {Attr::graph("body", body.graph())}, "turning");
  w.add_node("Relu", {"x"}, {"r"}).add_node("NonZero", {"r"}, {"where"}).add_node("Neg", {"sums"}, {"behind"});
  HostTensor turns({DType::kInt64, {}});
  turns.as<std::int64_t>()[0] = 3;
  TestSession session(load(make_runtime(), w), "");
  expect_subsets(session, {{random_tensor({1, 5}, 1), turns}, {random_tensor({1, 3}, 2), turns}});
  expect_subsets(session, {{random_tensor({1, 5}, 1), turns}}, true);
}

TEST_F(SkippedOutputs, OfSequences) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {4, 2});
  const auto sequence = Proto().message(4, Proto().message(1, Proto().message(1, Proto().varint(1, kF32))));
  w.graph().message(12, Proto().bytes(1, "parts").message(2, sequence));
  w.add_output("back");
  w.add_node("SplitToSequence", {"x"}, {"parts"}, {{"axis", 0}}).add_node("ConcatFromSequence", {"parts"}, {"back"}, {{"axis", 1}});
  TestSession session(load(make_runtime(), w), "");
  const HostTensor x = random_tensor({4, 2}, 1);
  for (const std::uint8_t parts : {0, 1}) {
    for (const std::uint8_t back : {0, 1}) {
      RunRequest request;
      request.skipped = {parts, back};
      std::vector<RunValue> in = {{to_tensor(session.runtime(), x), nullptr}}, out(2);
      session.run(in, out, request);
      EXPECT_EQ(out[0].runtime_value != nullptr, parts == 0);
      EXPECT_EQ(out[1].tensor != nullptr, back == 0);
      if (parts == 0) {
        EXPECT_EQ(out[0].runtime_value->parts.size(), 4u);
      }
      if (back == 0) {
        EXPECT_EQ(out[1].tensor->desc().shape, (Shape{1, 8}));
      }
    }
  }
}

TEST_F(SkippedOutputs, OfSeveralDevices) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"n", 6}).add_output("a").add_output("b").add_output("c").add_output("d");
  w.add_node("Relu", {"x"}, {"a"}).add_node("Neg", {"a"}, {"b"}).add_node("Abs", {"b"}, {"c"}).add_node("Exp", {"a"}, {"d"});
  Config config = two_mocks();
  config.rules = {rule({"Relu"}, {}, "m", Policy::kRequire, 1), rule({"Neg"}, {}, "n", Policy::kRequire, 2),
                  rule({"Exp"}, {}, "m", Policy::kRequire, 3)};
  expect_subsets(w, {{random_tensor({3, 6}, 1)}, {random_tensor({2, 6}, 2)}}, config);
}

TEST_F(SkippedOutputs, OfSegments) {
  mock_settings().segments = [](std::span<const OpDesc> offered) {
    std::vector<std::vector<int>> segments(1);
    for (std::size_t i = 0; i < offered.size(); ++i) {
      if (offered[i].node->name[0] == 's') segments[0].push_back(static_cast<int>(i));
    }
    if (segments[0].size() < 3) segments.clear();
    return segments;
  };
  OnnxWriter w(13);
  w.add_input("x", kF32, {"n", 3}).add_output("a").add_output("b").add_output("c").add_output("d");
  w.add_node("Relu", {"x"}, {"a"}, {}, "s0").add_node("Neg", {"a"}, {"b"}, {}, "s1").add_node("Abs", {"b"}, {"c"}, {}, "s2");
  w.add_node("Exp", {"c"}, {"d"}, {}, "e");
  Config config = two_mocks();
  config.default_devices = {"m"};
  for (const Pass& p : passes()) config.disabled_passes.push_back(p.name);
  expect_subsets(w, {{random_tensor({2, 3}, 1)}, {random_tensor({4, 3}, 2)}}, config);
}

// Random numbers are a node's own: other nodes that draw none do not change them.
TEST_F(SkippedOutputs, RandomNumbersStayTheSame) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {4}).add_output("a").add_output("b").add_output("y");
  for (const char* name : {"a", "b"}) w.add_node("RandomNormal", {}, {name}, {{"shape", std::vector<std::int64_t>{5}}});
  w.add_node("Relu", {"x"}, {"y"});
  expect_subsets(w, {{random_tensor({4}, 1)}});
}

// Memory: of an output that is not wanted there is none.
TEST_F(SkippedOutputs, TakeNoMemory) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {1 << 16}).add_output("a").add_output("b");
  w.add_node("Relu", {"x"}, {"a"}).add_node("Neg", {"x"}, {"b"});
  TestSession session(load(make_runtime(), w), "");
  const std::vector<TensorPtr> in = to_tensors(session.runtime(), {random_tensor({1 << 16}, 1)});
  const std::size_t bytes = in[0]->size_bytes();
  const auto peak_of = [&](std::vector<std::uint8_t> skipped) {
    RunRequest request;
    request.skipped = std::move(skipped);
    session.runtime()->cpu().pool().reset_peak();
    const std::uint64_t before = session.runtime()->cpu().pool().stats().current;
    std::vector<RunValue> inputs = {{in[0], nullptr}}, outputs(2);
    session.run(inputs, outputs, request);
    return session.runtime()->cpu().pool().stats().peak - before;
  };
  EXPECT_GE(peak_of({0, 0}), 2 * bytes);
  EXPECT_LT(peak_of({0, 1}), 2 * bytes);
  EXPECT_LT(peak_of({1, 1}), bytes);
}

}  // namespace
}  // namespace evn::test::skipped_outputs_test
