// Passes by name: left out by a configuration or a session's options, and named by explain for what they did.
#include "graph/passes/passes.h"
#include "runtime/lower/pass.h"
#include "runtime/lower/pass_list.h"
#include "tests/runtime/support.h"
#include "tests/support/forced_cascades.h"

namespace evn::test::passes_test {
namespace {

std::vector<float> weights(std::int64_t count, std::size_t step) {
  std::vector<float> w(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.01f * static_cast<float>(i * step % 23) - 0.1f;
  return w;
}

// Convolutions that may run as a cascade with the residual behind them, two branches that a Concat joins, and an activation.
OnnxWriter network() {
  constexpr std::int64_t kIn = 16, kWide = 48;
  OnnxWriter m(14);
  m.add_input("x", kF32, {1, kIn, 12, 10}).add_output("y").add_initializer("w_expand", {kWide, kIn, 1, 1}, weights(kWide * kIn, 1));
  m.add_initializer("w_depthwise", {kWide, 1, 3, 3}, weights(kWide * 9, 5))
      .add_initializer("w_project", {kIn, kWide, 1, 1}, weights(kIn * kWide, 3));
  m.add_initializer("w_branch", {kIn, kIn, 1, 1}, weights(kIn * kIn, 11))
      .add_initializer("w_last", {kIn, 2 * kIn, 1, 1}, weights(2 * kIn * kIn, 7));
  const std::vector<Attr> same = {
      {"kernel_shape", std::vector<std::int64_t>{3, 3}}, {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}, {"group", kWide}};
  m.add_node("Conv", {"x", "w_expand"}, {"a"}, {}, "expand").add_node("Relu", {"a"}, {"b"}, {}, "relu");
  m.add_node("Conv", {"b", "w_depthwise"}, {"c"}, same, "depthwise").add_node("Conv", {"c", "w_project"}, {"d"}, {}, "project");
  m.add_node("Add", {"d", "x"}, {"e"}, {}, "sum").add_node("Conv", {"e", "w_branch"}, {"f"}, {}, "left");
  m.add_node("Conv", {"f", "w_branch"}, {"g"}, {}, "right").add_node("Concat", {"f", "g"}, {"h"}, {{"axis", 1}}, "joint");
  m.add_initializer("first", {}, std::vector<std::int64_t>{0}).add_node("Conv", {"h", "w_last"}, {"i"}, {}, "last");
  m.add_initializer("rows", {2}, std::vector<std::int64_t>{kIn, -1}).add_node("Reshape", {"i", "rows"}, {"r"}, {}, "flat");
  m.add_node("Softmax", {"r"}, {"j"}, {{"axis", -1}}, "softmax").add_node("Gather", {"j", "first"}, {"k"}, {{"axis", 0}}, "row");
  return std::move(m.add_node("Neg", {"k"}, {"y"}, {}, "negated"));
}

class PassesTest : public RuntimeTest {
 protected:
  PassesTest() { force_cascades(CascadeUse::kAlways); }
  ~PassesTest() override { force_cascades(CascadeUse::kWhereItPays); }
};

// What explain says of a node, from its name to the end of it.
std::string part_of(const Session& session, const std::string& node) {
  const std::string json = explain(session, EVN_FORMAT_JSON);
  const std::size_t at = json.find("{\"name\":\"" + node + "\"");
  return at == std::string::npos ? "" : json.substr(at, json.find('}', at) - at);
}

bool went_through(const Session& session, const std::string& node, const std::string& pass) {
  const std::string part = part_of(session, node);
  return part.find("\"" + pass + "\"", part.find("\"passes\":[")) != std::string::npos;
}

const struct {
  const char* pass;
  const char* node;  // that it does something for
} kDone[] = {{"sum_epilogue", "sum"}, {"cascade", "depthwise"}, {"channel_views", "joint"}, {"contiguous_views", "row"}};

TEST_F(PassesTest, ExplainNamesThem) {
  TestSession session(load(make_runtime(), network()), "");
  run(session, {random_tensor({1, 16, 12, 10}, 1)});
  for (const auto& c : kDone) EXPECT_TRUE(went_through(session, c.node, c.pass)) << c.pass << ": " << part_of(session, c.node);
  EXPECT_TRUE(went_through(session, "expand", "fuse_epilogue")) << part_of(session, "expand");
  EXPECT_FALSE(went_through(session, "last", "fuse_epilogue")) << part_of(session, "last");
}

TEST_F(PassesTest, AnyMayBeLeftOutOfASession) {
  const std::vector<HostTensor> in = {random_tensor({1, 16, 12, 10}, 1)};
  const ModelPtr model = load(make_runtime(), network());
  TestSession all(model, "");
  const std::vector<HostTensor> want = run(all, in);
  for (const LoweringPassInfo* pass : lowering_passes()) {
    SessionRequest request("");
    request.disabled_passes = {pass->name};
    TestSession session(model, request);
    expect_close(run(session, in), want);
    for (const auto& c : kDone) {
      if (std::string(c.pass) != pass->name) continue;
      EXPECT_FALSE(went_through(session, c.node, c.pass)) << part_of(session, c.node);
    }
  }
}

TEST_F(PassesTest, AnyMayBeLeftOutByTheConfiguration) {
  const std::vector<HostTensor> in = {random_tensor({1, 16, 12, 10}, 1)};
  TestSession all(load(make_runtime(), network()), "");
  const std::vector<HostTensor> want = run(all, in);
  std::vector<std::string> names;
  for (const Pass& p : passes()) names.push_back(p.name);
  for (const LoweringPassInfo* p : lowering_passes()) names.push_back(p->name);
  Config none;
  none.disabled_passes = names;
  names.push_back("");
  for (const std::string& name : names) {
    Config config = none;
    if (!name.empty()) config.disabled_passes = {name};
    TestSession session(load(make_runtime(config), network()), "");
    expect_close(run(session, in), want);
    for (const char* node : {"expand", "sum", "joint"})
      EXPECT_FALSE(went_through(session, node, name)) << name << ": " << part_of(session, node);
    if (!name.empty()) continue;
    EXPECT_NE(part_of(session, "joint").find("\"passes\":[]"), std::string::npos) << part_of(session, "joint");
  }
}

TEST_F(PassesTest, NamesThatAreNoneAreErrorsThatListThem) {
  Config config;
  config.source = "test.yaml";
  config.passes_line = 7;
  config.disabled_passes = {"cascade", "cascde"};
  try {
    make_runtime(config);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_CONFIG);
    for (const char* part : {"test.yaml:7", "\"cascde\"", "there are cascade, ", "fold_constants"})
      EXPECT_NE(std::string(e.message).find(part), std::string::npos) << e.message;
  }
  const ModelPtr model = load(make_runtime(), network());
  const auto refused = [&](const char* name, const char* why) {
    SessionRequest request("");
    request.disabled_passes = {name};
    try {
      TestSession session(model, request);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_INVALID_ARGUMENT);
      EXPECT_NE(std::string(e.message).find(why), std::string::npos) << e.message;
    }
  };
  refused("", "there are sum_epilogue, cascade");
  refused("fuse_gelu", "when the model is loaded");
}

TEST_F(PassesTest, TheListHasAllOfThem) {
  const std::string text = describe_passes(EVN_FORMAT_TEXT), json = describe_passes(EVN_FORMAT_JSON);
  for (const Pass& p : passes())
    EXPECT_NE(json.find(std::string("{\"name\":\"") + p.name + "\",\"when\":\"load\""), std::string::npos) << p.name;
  for (const LoweringPassInfo* p : lowering_passes()) {
    EXPECT_NE(json.find(std::string("{\"name\":\"") + p->name + "\",\"when\":\"session\""), std::string::npos) << p->name;
    EXPECT_NE(text.find(p->summary), std::string::npos) << p->name;
  }
}

}  // namespace
}  // namespace evn::test::passes_test
