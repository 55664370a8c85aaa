// Runs of several subplans: branches of If, and shapes that depend on what the run computes.
#include "tests/runtime/support.h"

namespace evn::test {
namespace {

using SubplansTest = RuntimeTest;

HostTensor floats_of_shape(const Shape& shape, const std::vector<float>& values) {
  HostTensor t({DType::kFloat32, shape});
  std::copy(values.begin(), values.end(), t.as<float>().begin());
  return t;
}
HostTensor list(const std::vector<float>& values) { return floats_of_shape({static_cast<std::int64_t>(values.size())}, values); }
HostTensor matrix(const std::vector<float>& values) {
  return floats_of_shape({1, static_cast<std::int64_t>(values.size())}, values);
}
HostTensor truth(bool value) {
  HostTensor t({DType::kBool, {}});
  t.as<std::uint8_t>()[0] = value ? 1 : 0;
  return t;
}
std::vector<float> floats(HostTensor t) { return {t.as<float>().begin(), t.as<float>().end()}; }

Attr branch(const char* name, OnnxWriter body) { return Attr::graph(name, body.graph()); }

OnnxWriter body_of(const char* op, const std::vector<std::string>& inputs) {
  OnnxWriter body(13);
  body.add_node(op, inputs, {std::string("of_") + op}, {}, op).add_output(std::string("of_") + op);
  return body;
}

// y = max(x) > 0 ? -x : |x|, then one more step that is there always.
OnnxWriter computed_choice() {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"rows", "columns"}).add_initializer("zero", {}, std::vector<float>{0}).add_output("z", kF32);
  w.add_node("ReduceMax", {"x"}, {"m"}, {{"keepdims", 0}}, "max").add_node("Greater", {"m", "zero"}, {"c"}, {}, "greater");
  w.add_node("If", {"c"}, {"y"}, {branch("then_branch", body_of("Neg", {"x"})), branch("else_branch", body_of("Abs", {"x"}))},
             "choice");
  w.add_node("Exp", {"y"}, {"z"}, {}, "exp");
  return w;
}

TEST_F(SubplansTest, AnIfTakesTheBranchThatItsInputSays) {
  OnnxWriter w(13);
  w.add_input("c", kBool, {}).add_input("x", kF32, {2}).add_output("y", kF32);
  w.add_node("If", {"c"}, {"y"}, {branch("then_branch", body_of("Neg", {"x"})), branch("else_branch", body_of("Abs", {"x"}))},
             "choice");
  TestSession session(load(make_runtime(), w), "");
  for (const bool taken : {true, false, true}) {
    EXPECT_EQ(floats(run(session, {truth(taken), list({-1, 2})})[0]),
              (taken ? std::vector<float>{1, -2} : std::vector<float>{1, 2}));
  }
}

TEST_F(SubplansTest, AnIfMayDependOnWhatTheRunComputes) {
  TestSession session(load(make_runtime(), computed_choice()), "");
  for (int i = 0; i < 3; ++i) {
    expect_close(run(session, {matrix({-1, 2})}), {matrix({std::exp(1.0f), std::exp(-2.0f)})});
    expect_close(run(session, {matrix({-1, -2, -3})}), {matrix({std::exp(1.0f), std::exp(2.0f), std::exp(3.0f)})});
  }
}

TEST_F(SubplansTest, ConditionsAreFetchedFromOtherDevices) {
  Config config = two_mocks();
  config.rules = {rule({"ReduceMax", "Greater"}, {}, "m", Policy::kRequire, 1), rule({"Neg"}, {}, "n", Policy::kRequire, 2)};
  TestSession session(load(make_runtime(config), computed_choice()), "");
  expect_close(run(session, {matrix({-1, 2})}), {matrix({std::exp(1.0f), std::exp(-2.0f)})});
  expect_close(run(session, {matrix({-1, -2})}), {matrix({std::exp(1.0f), std::exp(2.0f)})});
  const std::string text = session.explain(EVN_FORMAT_TEXT);
  EXPECT_NE(text.find("choice/then/Neg"), std::string::npos) << text;
}

TEST_F(SubplansTest, BranchesMayNestAndHaveRanksOfTheirOwn) {
  OnnxWriter inner(13);
  inner.add_initializer("axes", {1}, std::vector<std::int64_t>{0});
  inner.add_node("If", {"d"}, {"i"}, {branch("then_branch", body_of("Neg", {"x"})), branch("else_branch", body_of("Abs", {"x"}))},
                 "inner");
  inner.add_node("Unsqueeze", {"i", "axes"}, {"u"}, {}, "up").add_output("u");
  OnnxWriter w(13);
  w.add_input("c", kBool, {}).add_input("d", kBool, {}).add_input("x", kF32, {2}).add_output("z", kF32);
  w.add_node("If", {"c"}, {"y"}, {branch("then_branch", inner), branch("else_branch", body_of("Exp", {"x"}))}, "outer");
  w.add_node("Relu", {"y"}, {"z"}, {}, "relu");
  TestSession session(load(make_runtime(), w), "");
  HostTensor out = run(session, {truth(true), truth(true), list({-1, 2})})[0];
  EXPECT_EQ(out.desc.shape, (Shape{1, 2}));
  EXPECT_EQ(floats(out), (std::vector<float>{1, 0}));
  EXPECT_EQ(floats(run(session, {truth(true), truth(false), list({-1, 2})})[0]), (std::vector<float>{1, 2}));
  out = run(session, {truth(false), truth(false), list({-1, 2})})[0];
  EXPECT_EQ(out.desc.shape, (Shape{2}));
}

TEST_F(SubplansTest, ConditionOfANestedIfMayBeComputedInABranchThatIsNotTaken) {
  OnnxWriter inner(13);
  inner.add_initializer("zero", {}, std::vector<float>{0}).add_node("ReduceMax", {"x"}, {"m"}, {{"keepdims", 0}}, "max");
  inner.add_node("Greater", {"m", "zero"}, {"d"}, {}, "greater").add_output("i");
  inner.add_node("If", {"d"}, {"i"}, {branch("then_branch", body_of("Neg", {"x"})), branch("else_branch", body_of("Abs", {"x"}))},
                 "inner");
  OnnxWriter w(13);
  w.add_input("c", kBool, {}).add_input("x", kF32, {2}).add_output("y", kF32);
  w.add_node("If", {"c"}, {"y"}, {branch("then_branch", inner), branch("else_branch", body_of("Relu", {"x"}))}, "outer");
  TestSession session(load(make_runtime(), w), "");
  EXPECT_EQ(floats(run(session, {truth(false), list({-1, 2})})[0]), (std::vector<float>{0, 2}));
  EXPECT_EQ(floats(run(session, {truth(true), list({-1, 2})})[0]), (std::vector<float>{1, -2}));
  EXPECT_EQ(floats(run(session, {truth(true), list({-1, -2})})[0]), (std::vector<float>{1, 2}));
}

TEST_F(SubplansTest, ABranchThatIsNotTakenMayBeImpossible) {
  OnnxWriter w(13);
  w.add_input("c", kBool, {})
      .add_input("x", kF32, {2})
      .add_initializer("m", {3, 3}, std::vector<float>(9, 1.0f))
      .add_output("y", kF32);
  w.add_node("If", {"c"}, {"y"},
             {branch("then_branch", body_of("MatMul", {"x", "m"})), branch("else_branch", body_of("Abs", {"x"}))}, "choice");
  TestSession session(load(make_runtime(), w), "");
  EXPECT_EQ(floats(run(session, {truth(false), list({-1, 2})})[0]), (std::vector<float>{1, 2}));
  EXPECT_THROW(run(session, {truth(true), list({-1, 2})}), Error);
}

TEST_F(SubplansTest, ShapesMayDependOnComputedDataSeveralTimes) {
  OnnxWriter w(13);  // x is cut to its largest value's length, and that again
  w.add_input("x", kF32, {1, "n"}).add_output("a", kF32).add_output("z", kF32);
  w.add_initializer("begin", {1}, std::vector<std::int64_t>{0}).add_initializer("axis", {1}, std::vector<std::int64_t>{1});
  w.add_node("Abs", {"x"}, {"a"}, {}, "abs");
  const auto cut = [&](const std::string& from, const std::string& to) {
    w.add_node("ReduceMax", {from}, {to + "_max"}, {{"keepdims", 0}}, to + "_max");
    w.add_initializer(to + "_one", {1}, std::vector<std::int64_t>{1});
    w.add_node("Cast", {to + "_max"}, {to + "_int"}, {{"to", 7}}, to + "_cast");
    w.add_node("Reshape", {to + "_int", to + "_one"}, {to + "_end"}, {}, to + "_list");
    w.add_node("Slice", {from, "begin", to + "_end", "axis"}, {to}, {}, to + "_slice");
  };
  cut("a", "b");
  w.add_node("Sqrt", {"b"}, {"s"}, {}, "sqrt");
  cut("s", "z");
  TestSession session(load(make_runtime(), w), "");
  for (int i = 0; i < 2; ++i) {
    const std::vector<HostTensor> first = run(session, {matrix({-4, 9, 1, 16})});
    EXPECT_EQ(floats(first[0]), (std::vector<float>{4, 9, 1, 16}));
    EXPECT_EQ(floats(first[1]), (std::vector<float>{2, 3, 1, 4}));
    const std::vector<HostTensor> second = run(session, {matrix({1, -2, 1, 0})});
    EXPECT_EQ(floats(second[1]), (std::vector<float>{1}));
  }
}

TEST_F(SubplansTest, AValueThatWasFetchedIsNoWeight) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"rows", "columns"}).add_output("y", kF32).add_output("where", kI64);
  w.add_node("Abs", {"x"}, {"a"}, {}, "abs").add_node("NonZero", {"a"}, {"where"}, {}, "where");
  w.add_node("MatMul", {"x", "a"}, {"y"}, {}, "product");
  TestSession session(load(make_runtime(), w), "");
  const std::vector<HostTensor> out = run(session, {floats_of_shape({2, 2}, {1, -2, 0, 3})});
  EXPECT_EQ(floats(out[0]), (std::vector<float>{1, -4, 0, 9}));
  EXPECT_EQ(out[1].desc.shape, (Shape{2, 3}));
}

}  // namespace
}  // namespace evn::test
