#include "runtime/placement/placement.h"

#include "tests/runtime/support.h"

namespace evn::test {
namespace {

using PlacementTest = RuntimeTest;

const NodePlacement& of(const Placement& p, const ModelPtr& m, const std::string& name) {
  for (std::size_t i = 0; i < m->graph().nodes.size(); ++i) {
    if (m->graph().nodes[i].name == name) return p.nodes[i];
  }
  throw std::runtime_error("no node " + name);
}

Placement place_with(Config config, ModelPtr* model, const std::string& default_device = "") {
  *model = load(make_runtime(std::move(config)), small_network());
  return place(**model, default_device);
}

TEST_F(PlacementTest, WithoutRulesEverythingIsOnTheCpu) {
  ModelPtr m;
  const Placement p = place_with({}, &m);
  for (const NodePlacement& n : p.nodes) EXPECT_EQ(n.device->name(), "cpu");
  EXPECT_EQ(of(p, m, "conv").reason, "no rule: the CPU");
  EXPECT_EQ(of(p, m, "conv").rule_line, 0);
}

TEST_F(PlacementTest, TheFirstMatchingRuleDecides) {
  Config c = two_mocks();
  c.rules = {rule({"Conv"}, {}, "n", Policy::kRequire, 7), rule({}, {"con*"}, "m", Policy::kRequire, 8)};
  ModelPtr m;
  const Placement p = place_with(c, &m);
  EXPECT_EQ(of(p, m, "conv").device->name(), "n");
  EXPECT_EQ(of(p, m, "conv").rule_line, 7);
  EXPECT_EQ(of(p, m, "gemm").device->name(), "cpu");
}

TEST_F(PlacementTest, RequireThatCannotBeMetIsAnErrorWithTheReason) {
  mock_settings().refused_ops = {"Conv"};
  Config c = two_mocks();
  c.rules = {rule({"Conv"}, {}, "m", Policy::kRequire, 7)};
  ModelPtr m;
  try {
    place_with(c, &m);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
    EXPECT_STREQ(e.node, "conv");
    EXPECT_NE(std::string(e.message).find("line 7"), std::string::npos) << e.message;
    EXPECT_NE(std::string(e.message).find("mock: refused by the test"), std::string::npos) << e.message;
  }
}

TEST_F(PlacementTest, PreferFallsBackAndSaysWhy) {
  mock_settings().refused_ops = {"Conv"};
  Config c = two_mocks();
  c.rules = {rule({"Conv"}, {}, "m", Policy::kPrefer, 7)};
  ModelPtr m;
  const Placement p = place_with(c, &m);
  EXPECT_EQ(of(p, m, "conv").device->name(), "cpu");
  EXPECT_NE(of(p, m, "conv").reason.find("line 7"), std::string::npos);
  EXPECT_EQ(of(p, m, "conv").refused, "m: mock: refused by the test");
}

TEST_F(PlacementTest, ForbidKeepsADeviceAway) {
  Config c = two_mocks();
  c.default_devices = {"m"};
  c.rules = {rule({"Gemm"}, {}, "m", Policy::kForbid, 3)};
  ModelPtr m;
  const Placement p = place_with(c, &m);
  EXPECT_EQ(of(p, m, "conv").device->name(), "m");
  EXPECT_EQ(of(p, m, "gemm").device->name(), "cpu");
  EXPECT_EQ(of(p, m, "gemm").rule_line, 3);
}

TEST_F(PlacementTest, ForbiddingTheCpuLeavesTheNextDevice) {
  Config c = two_mocks();
  c.rules = {rule({"Gemm"}, {}, "cpu", Policy::kForbid, 3)};
  ModelPtr m;
  EXPECT_EQ(of(place_with(c, &m), m, "gemm").device->name(), "m");
}

TEST_F(PlacementTest, ANamedDefaultIsRequired) {
  mock_settings().refused_ops = {"Softmax"};
  Config c = two_mocks();
  c.default_devices = {"m"};
  ModelPtr m;
  try {
    place_with(c, &m);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
    EXPECT_STREQ(e.node, "softmax");
  }
}

TEST_F(PlacementTest, AListOfPreferenceGoesToTheFirstThatCan) {
  mock_settings().refused_ops = {"Conv"};
  Config c = two_mocks();
  PlacementRule r = rule({}, {}, "", Policy::kRequire, 7);
  r.devices = {"m", "cpu"};
  c.rules = {r};
  ModelPtr m;
  const Placement p = place_with(c, &m);
  EXPECT_EQ(of(p, m, "conv").device->name(), "cpu");
  EXPECT_EQ(of(p, m, "conv").reason, "rule at line 7 (require m, cpu)");
  EXPECT_EQ(of(p, m, "conv").refused, "m: mock: refused by the test");
  EXPECT_EQ(of(p, m, "gemm").device->name(), "m");
}

TEST_F(PlacementTest, APreferenceThatFailsGoesOnToTheDefault) {
  mock_settings().refused_ops = {"Conv"};
  Config c = two_mocks();
  PlacementRule r = rule({"Conv"}, {}, "", Policy::kPrefer, 7);
  r.devices = {"m", "n"};
  c.rules = {r};
  ModelPtr m;
  const Placement p = place_with(c, &m);
  EXPECT_EQ(of(p, m, "conv").device->name(), "cpu");
  EXPECT_NE(of(p, m, "conv").reason.find("(prefer m, n) not possible"), std::string::npos) << of(p, m, "conv").reason;
}

TEST_F(PlacementTest, ARequiredListThatNoneCanIsAnErrorWithAllReasons) {
  mock_settings().refused_ops = {"Conv"};
  Config c = two_mocks();
  PlacementRule r = rule({"Conv"}, {}, "", Policy::kRequire, 7);
  r.devices = {"m", "n"};
  c.rules = {r};
  ModelPtr m;
  try {
    place_with(c, &m);
    FAIL();
  } catch (const Error& e) {
    const std::string message = e.message;
    EXPECT_NE(message.find("(require m, n)"), std::string::npos) << message;
    EXPECT_NE(message.find("m: mock: refused by the test; n: mock: refused by the test"), std::string::npos) << message;
  }
}

TEST_F(PlacementTest, ForbiddingAListKeepsAllOfThemAway) {
  Config c = two_mocks();
  PlacementRule r = rule({"Gemm"}, {}, "", Policy::kForbid, 3);
  r.devices = {"cpu", "m"};
  c.rules = {r};
  ModelPtr m;
  EXPECT_EQ(of(place_with(c, &m), m, "gemm").device->name(), "n");
}

TEST_F(PlacementTest, DefaultDevicesAreAskedInTheirOrder) {
  mock_settings().refused_ops = {"Softmax"};
  Config c = two_mocks();
  c.default_devices = {"m", "cpu"};
  ModelPtr m;
  const Placement p = place_with(c, &m);
  EXPECT_EQ(of(p, m, "conv").device->name(), "m");
  EXPECT_EQ(of(p, m, "softmax").device->name(), "cpu");
  EXPECT_EQ(of(p, m, "softmax").reason, "the first of the default devices that can");
  const Placement by_options = place_with(two_mocks(), &m, "n, cpu");
  EXPECT_EQ(of(by_options, m, "conv").device->name(), "n");
  EXPECT_EQ(of(by_options, m, "softmax").device->name(), "cpu");
}

TEST_F(PlacementTest, RulesOnAnAbsentOptionalDeviceAreSkippedAndSaidSo) {
  Config c = two_mocks();
  DeviceConfig absent;
  absent.name = "gpu";
  absent.type = "missing-mock";
  absent.optional = true;
  c.rules = {rule({"Conv"}, {}, "gpu", Policy::kRequire, 5)};
  static constexpr const Backend kMissing = {
      {"missing-mock"},
      [](const DeviceRequest&) -> std::shared_ptr<Device> { fail(EVN_ERROR_DEVICE_UNAVAILABLE, "nobody is at home"); },
      [](std::string* why) {
        *why = "nobody is at home";
        return std::vector<DeviceListing>();
      }};
  static constexpr const Backend* kBackends[] = {&cpu_backend, &mock_backend, &kMissing};
  c.devices.push_back(absent);
  RuntimeOptions o;
  o.config = c;
  o.backends = kBackends;
  const auto runtime = std::make_shared<Runtime>(o);
  const ModelPtr m = load(runtime, small_network());
  const Placement p = place(*m, "");
  EXPECT_EQ(of(p, m, "conv").device->name(), "cpu");
  EXPECT_NE(of(p, m, "conv").reason.find("nobody is at home"), std::string::npos) << of(p, m, "conv").reason;
  EXPECT_NE(runtime->describe_devices(EVN_FORMAT_TEXT).find("missing-mock: nobody is at home"), std::string::npos);

  o.config.devices.back().optional = false;
  EXPECT_THROW(std::make_shared<Runtime>(o), Error);
}

TEST_F(PlacementTest, AViewStaysWhereItsInputIs) {
  Config c = two_mocks();
  c.rules = {rule({"GlobalAveragePool"}, {}, "n", Policy::kRequire, 2)};
  ModelPtr m;
  const Placement p = place_with(c, &m);
  EXPECT_EQ(of(p, m, "reshape").mode, NodeMode::kView);
  EXPECT_EQ(of(p, m, "reshape").device->name(), "n");
}

TEST_F(PlacementTest, NodeOfUnknownRankRunsOnTheReference) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {2, 6}).add_input("shape", kI64, {"rank"}).add_output("y");
  w.add_node("Reshape", {"x", "shape"}, {"r"});
  w.add_node("ReduceMean", {"r"}, {"y"}, {{"axes", std::vector<std::int64_t>{-1}}}, "mean");
  const ModelPtr m = load(make_runtime(), w);
  const Placement p = place(*m, "");
  EXPECT_STREQ(of(p, m, "mean").kernel->name, "reference");
  EXPECT_EQ(of(p, m, "mean").device->name(), "cpu");
}

TEST_F(PlacementTest, RulesMatchTheModelsFileName) {
  Config c = two_mocks();
  PlacementRule r = rule({}, {}, "m", Policy::kRequire, 2);
  r.models = {"det*"};
  c.rules = {r};
  const auto runtime = make_runtime(c);
  const ModelPtr m = load(runtime, small_network());
  EXPECT_EQ(of(place(*m, ""), m, "conv").device->name(), "cpu");
  const_cast<LoadedModel&>(*m).file_name = "det_v4.onnx";
  EXPECT_EQ(of(place(*m, ""), m, "conv").device->name(), "m");
}

// A device of the tests that has products of bfloat16 for Conv.
class PrecisionTest : public RuntimeTest {
 protected:
  struct Found {
    Precision precision;
    std::string reason;
  };
  static Found of_conv(const Config& config, const SessionRequest& request = "m", const char* node = "conv") {
    const ModelPtr m = load(make_runtime(config), small_network());
    const NodePlacement p = of(place(*m, request), m, node);
    return {p.kernel != nullptr ? p.kernel->operands : Precision::kFloat32, p.precision_reason};
  }
  static SessionRequest asks(Precision precision, std::vector<std::string> keep = {}) {
    SessionRequest request("m");
    request.precision = precision;
    request.keep_fp32 = std::move(keep);
    return request;
  }
  static Config mocks(Precision of_device) {
    Config c = two_mocks();
    for (DeviceConfig& d : c.devices) d.precision = of_device;
    return c;
  }
};

TEST_F(PrecisionTest, NothingIsLoweredUnasked) {
  const Found f = of_conv(two_mocks());
  EXPECT_EQ(f.precision, Precision::kFloat32);
  EXPECT_EQ(f.reason, "the default");
}

TEST_F(PrecisionTest, KeptNodesComeBeforeRulesThenOptionsThenTheSessionThenTheDevice) {
  Config c = mocks(Precision::kBfloat16);
  EXPECT_EQ(of_conv(c).precision, Precision::kBfloat16);
  EXPECT_EQ(of_conv(c).reason, "the device's");
  c.session.precision = Precision::kFloat32;
  EXPECT_EQ(of_conv(c).precision, Precision::kFloat32);
  EXPECT_EQ(of_conv(c).reason, "the configuration's session");
  EXPECT_EQ(of_conv(c, asks(Precision::kBfloat16)).precision, Precision::kBfloat16);
  EXPECT_EQ(of_conv(c, asks(Precision::kBfloat16)).reason, "the session's options");
  PlacementRule r = rule({"Conv"}, {}, "", Policy::kRequire, 9);
  r.precision = Precision::kFloat32;
  c.rules = {r};
  EXPECT_EQ(of_conv(c, asks(Precision::kBfloat16)).precision, Precision::kFloat32);
  EXPECT_EQ(of_conv(c, asks(Precision::kBfloat16)).reason, "rule at line 9");
  c.rules[0].precision = Precision::kBfloat16;
  EXPECT_EQ(of_conv(c).precision, Precision::kBfloat16);
  EXPECT_EQ(of_conv(c, asks(Precision::kDefault, {"type:Conv"})).precision, Precision::kFloat32);
  EXPECT_EQ(of_conv(c, asks(Precision::kDefault, {"type:Conv"})).reason, "keep_fp32 \"type:Conv\"");
  c.session.keep_fp32 = {"con*"};
  EXPECT_EQ(of_conv(c, asks(Precision::kBfloat16, {"gemm"})).precision, Precision::kFloat32);
}

TEST_F(PrecisionTest, WhatADeviceLacksIsFloat32AndSaysWhy) {
  const Found f = of_conv(two_mocks(), asks(Precision::kFloat16));
  EXPECT_EQ(f.precision, Precision::kFloat32);
  EXPECT_EQ(f.reason, "the session's options; fp16: the mock has none");
  const Found gemm = of_conv(two_mocks(), asks(Precision::kBfloat16), "gemm");
  EXPECT_EQ(gemm.precision, Precision::kFloat32);
  EXPECT_EQ(gemm.reason, "the session's options; Gemm stays fp32");
}

TEST_F(PrecisionTest, ExplainSaysItOfEachNode) {
  TestSession session(load(make_runtime(two_mocks()), small_network()), asks(Precision::kAuto));
  const std::string json = session.explain(EVN_FORMAT_JSON);
  EXPECT_NE(json.find(R"("precision":"bf16","precision_reason":"the session's options")"), std::string::npos) << json;
  EXPECT_NE(session.explain(EVN_FORMAT_TEXT).find("      bf16: the session's options\n"), std::string::npos);
  EXPECT_EQ(TestSession(session.compiled().model, "m").explain(EVN_FORMAT_TEXT).find("fp32"), std::string::npos);
}

// A convolution between DequantizeLinear and QuantizeLinear, which runs as QLinearConv.
OnnxWriter quantized_convolution() {
  OnnxWriter w(13);
  w.add_input("x", kF32, {1, 2, 4, 4}).add_output("y");
  w.add_initializer("s", {}, std::vector<float>{0.5f}).add_initializer("z", {}, std::vector<std::uint8_t>{3});
  w.add_initializer("w", {2, 2, 1, 1}, std::vector<std::int8_t>{1, 2, 3, 4}).add_initializer("ws", {}, std::vector<float>{0.25f});
  w.add_node("QuantizeLinear", {"x", "s", "z"}, {"xq"}).add_node("DequantizeLinear", {"xq", "s", "z"}, {"xd"});
  w.add_node("DequantizeLinear", {"w", "ws"}, {"wd"}).add_node("Conv", {"xd", "wd"}, {"c"}, {}, "conv");
  w.add_node("QuantizeLinear", {"c", "s", "z"}, {"cq"}).add_node("DequantizeLinear", {"cq", "s", "z"}, {"y"});
  return w;
}

TEST_F(PlacementTest, ARuleForAnOperatorMatchesWhatBecameOfItOnBytes) {
  Config c = two_mocks();
  for (const char* op : {"Conv", "QLinearConv"}) {
    c.rules = {rule({op}, {}, "m", Policy::kRequire, 7)};
    const ModelPtr m = load(make_runtime(c), quantized_convolution());
    const Placement all = place(*m, "");
    const NodePlacement& placed = of(all, m, "conv");
    EXPECT_EQ(placed.device->name(), "m") << op;
    EXPECT_EQ(placed.rule_line, 7) << op;
  }
}

TEST_F(PlacementTest, AnUnknownDeviceListsWhatThereIs) {
  ModelPtr m;
  try {
    place_with(two_mocks(), &m, "npu");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_DEVICE_UNAVAILABLE);
    EXPECT_NE(std::string(e.message).find("cpu, m, n"), std::string::npos) << e.message;
  }
}

TEST_F(PlacementTest, ExplainIsJsonWithEveryNode) {
  Config c = two_mocks();
  c.rules = {rule({"Gemm"}, {}, "m", Policy::kRequire, 4)};
  const auto runtime = make_runtime(c);
  TestSession session(load(runtime, small_network()), "");
  const std::string before = session.explain(EVN_FORMAT_JSON);
  EXPECT_NE(before.find(R"("rule_line":4)"), std::string::npos) << before;
  EXPECT_NE(before.find(R"("from":"cpu","to":"m","bytes":0)"), std::string::npos) << before;
  run(session, {random_tensor({1, 3, 8, 8}, 1)});
  const std::string after = session.explain(EVN_FORMAT_JSON);
  EXPECT_NE(after.find(R"("from":"cpu","to":"m","bytes":32)"), std::string::npos) << after;
}

}  // namespace
}  // namespace evn::test
