// Names in configurations and options: operators that nobody knows are refused, what matches nothing is said.
#include <algorithm>

#include "evener/quantize.h"
#include "tests/api/operator_fixture.h"

namespace evn::test {
namespace {

struct NameTest : testing::Test {
  evn_error error = EVN_ERROR_INIT;
  Behaviour behaviour;  // outlives the runtime
  evn_runtime runtime = nullptr;
  evn_model model = nullptr;
  std::vector<std::string> warnings;

  ~NameTest() override { close(); }
  void close() {
    evn_model_release(model);
    evn_runtime_release(runtime);
    model = nullptr;
    runtime = nullptr;
    warnings.clear();
  }

  static void note(void* user, const evn_log_record* record) {
    const std::string event = record->event;
    if (event == "placement.unmatched" || event == "quantizer.unmatched")
      static_cast<NameTest*>(user)->warnings.push_back(record->message);
  }

  evn_status open(const std::string& yaml) {
    close();
    evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
    o.cache_dir = "";
    o.thread_count = 1;
    if (!yaml.empty()) {
      o.config_text = yaml.data();
      o.config_size = yaml.size();
    }
    o.log_sink = note;
    o.log_sink_user = this;
    o.log_level = EVN_LOG_WARNING;
    error = EVN_ERROR_INIT;
    return evn_runtime_create(&o, &runtime, &error);
  }
  evn_status reconfigure(const std::string& yaml) {
    evn_reconfigure_options o = EVN_RECONFIGURE_OPTIONS_INIT;
    o.config_text = yaml.data();
    o.config_size = yaml.size();
    error = EVN_ERROR_INIT;
    return evn_runtime_reconfigure(runtime, &o, &error);
  }
  evn_status load(const std::string& bytes) {
    evn_model_release(model);
    model = nullptr;
    error = EVN_ERROR_INIT;
    return evn_model_load_buffer(runtime, bytes.data(), bytes.size(), nullptr, &model, &error);
  }
  evn_status session(std::vector<const char*> keep_fp32 = {}) {
    evn_session_options o = EVN_SESSION_OPTIONS_INIT;
    o.keep_fp32 = keep_fp32.data();
    o.keep_fp32_count = static_cast<uint32_t>(keep_fp32.size());
    evn_session s = nullptr;
    error = EVN_ERROR_INIT;
    const evn_status status = evn_session_create(runtime, model, &o, &s, &error);
    evn_session_release(s);
    return status;
  }
  bool says(const std::string& text) const { return std::string(error.message).find(text) != std::string::npos; }
};

std::string op_rule(const std::string& op) { return "placement:\n  rules:\n    - {match: {op: \"" + op + "\"}, device: cpu}\n"; }

TEST_F(NameTest, AMistypedOperatorIsRefusedWithTheNearestWord) {
  const struct {
    const char *name, *nearest;
  } rows[] = {{"conv2d", "Conv"},       {"Conv2D", "Conv"},
              {"softmax", "Softmax"},   {"max_pool", "MaxPool"},
              {"MaxPool2d", "MaxPool"}, {"Gem", "Gemm"},
              {"Matmul", "MatMul"},     {"BatchNorm", "BatchNormalization"},
              {"Sofmtax", "Softmax"},   {"ai.onnx::Convv", "ai.onnx::Conv"}};
  for (const auto& row : rows) {
    EXPECT_EQ(open(op_rule(row.name)), EVN_ERROR_CONFIG) << row.name;
    EXPECT_TRUE(says(std::string("<text>:3: there is no operator \"") + row.name + "\"; did you mean \"" + row.nearest + "\"?"))
        << error.message;
  }
  EXPECT_EQ(open("session:\n  keep_fp32: [\"type:Gem\", \"a*\"]\n"), EVN_ERROR_CONFIG);
  EXPECT_TRUE(says("\"Gem\"; did you mean \"Gemm\"?")) << error.message;
  EXPECT_EQ(open("models:\n  a: {path: a.onnx, keep_fp32: [\"type:Gem\"]}\n"), EVN_ERROR_CONFIG);
  EXPECT_TRUE(says("<text>:2: keep_fp32: ")) << error.message;
  ASSERT_EQ(open(""), EVN_OK);
  EXPECT_EQ(reconfigure(op_rule("conv2d")), EVN_ERROR_CONFIG);
}

TEST_F(NameTest, OperatorsOfTheLibraryAreKnownInAnyDomain) {
  for (const char* name : {"Conv", "ai.onnx::Conv", "FusedMatMul", "com.microsoft::FusedMatMul", "TreeEnsembleClassifier",
                           "ai.onnx.ml::ZipMap", "If", "Loop", "ImageDecoder"}) {
    EXPECT_EQ(open(op_rule(name)), EVN_OK) << error.message;
    ASSERT_EQ(load(small_network().serialize()), EVN_OK) << error.message;
    EXPECT_EQ(session(), EVN_OK) << error.message;
  }
}

TEST_F(NameTest, AnUnknownOperatorIsRefusedWhenASessionIsMade) {
  // Hosts have operators of such names, though others of the library begin like them.
  for (const char* name : {"Frobnicate", "my.domain::Frobnicate", "com.microsoft::Frobnicate", "Scale", "Linear", "Random"}) {
    ASSERT_EQ(open(op_rule(name)), EVN_OK) << error.message;  // the host may have it
    ASSERT_EQ(load(small_network().serialize()), EVN_OK);
    EXPECT_EQ(session(), EVN_ERROR_CONFIG);
    EXPECT_TRUE(says(std::string("there is no operator \"") + name + '"')) << error.message;
  }
  ASSERT_EQ(open("placement: {rules: [{match: {op: Frobnicate, model: other*}, device: cpu}]}\n"), EVN_OK);
  ASSERT_EQ(load(small_network().serialize()), EVN_OK);
  EXPECT_EQ(session(), EVN_OK) << error.message;  // the rule is for other models
}

TEST_F(NameTest, OperatorsOfTheHostMayBeRegisteredAfterTheConfigurationWasRead) {
  for (const char* name : {"Double", "mine::Double"}) {
    ASSERT_EQ(open(op_rule(name)), EVN_OK) << error.message;
    const evn_operator op = make_operator(&behaviour);
    ASSERT_EQ(evn_runtime_register_operator(runtime, &op, &error), EVN_OK) << error.message;
    ASSERT_EQ(load(double_model()), EVN_OK) << error.message;
    EXPECT_EQ(session(), EVN_OK) << error.message;
    EXPECT_TRUE(warnings.empty()) << warnings[0];
  }
  ASSERT_EQ(open(op_rule("other::Double")), EVN_OK);
  const evn_operator op = make_operator(&behaviour);
  ASSERT_EQ(evn_runtime_register_operator(runtime, &op, &error), EVN_OK);
  ASSERT_EQ(load(double_model()), EVN_OK);
  EXPECT_EQ(session(), EVN_ERROR_CONFIG);
  EXPECT_TRUE(says("\"other::Double\", of the library or registered by the host")) << error.message;
}

TEST_F(NameTest, ARuleWithADomainIsForOperatorsOfThatDomain) {
  ASSERT_EQ(open("placement: {rules: [{match: {op: \"mine::Double\"}, device: cpu, policy: forbid}]}\n"), EVN_OK);
  const evn_operator op = make_operator(&behaviour);
  ASSERT_EQ(evn_runtime_register_operator(runtime, &op, &error), EVN_OK);
  ASSERT_EQ(load(double_model()), EVN_OK);
  EXPECT_EQ(session(), EVN_ERROR_UNSUPPORTED);  // no device is left
  ASSERT_EQ(open("placement: {rules: [{match: {op: \"com.microsoft::Gelu\"}, device: cpu, policy: forbid}]}\n"), EVN_OK);
  OnnxWriter w(20);
  w.add_input("x", kF32, {3}).add_output("y", kF32).add_node("Gelu", {"x"}, {"y"}, {}, "gelu");
  ASSERT_EQ(load(w.serialize()), EVN_OK) << error.message;
  EXPECT_EQ(session(), EVN_OK) << error.message;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("(op com.microsoft::Gelu) matches no node"), std::string::npos) << warnings[0];
}

TEST_F(NameTest, KeptOperatorsOfOptionsAreChecked) {
  ASSERT_EQ(open(""), EVN_OK);
  ASSERT_EQ(load(small_network().serialize()), EVN_OK);
  EXPECT_EQ(session({"type:Gem"}), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(says("keep_fp32: there is no operator \"Gem\"; did you mean \"Gemm\"?")) << error.message;
  EXPECT_EQ(session({"conv", "type:Conv", "nosuch/*"}), EVN_OK) << error.message;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0], "keep_fp32 \"nosuch/*\" matches no node of a model from a buffer");

  const std::string bytes = small_network().serialize();
  evn_quantizer_options o = EVN_QUANTIZER_OPTIONS_INIT;
  o.data = bytes.data();
  o.size = bytes.size();
  o.mode = EVN_QUANTIZE_DYNAMIC;
  o.keep_count = 1;
  evn_quantizer q = nullptr;
  const char* keep[] = {"type:Gem"};
  o.keep = keep;
  EXPECT_EQ(evn_quantizer_create(runtime, nullptr, &o, &q, &error), EVN_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(says("keep: there is no operator \"Gem\"")) << error.message;
  keep[0] = "nosuch/*";
  warnings.clear();
  ASSERT_EQ(evn_quantizer_create(runtime, nullptr, &o, &q, &error), EVN_OK) << error.message;
  EXPECT_EQ(warnings, (std::vector<std::string>{"keep \"nosuch/*\" matches no node of the model to quantize"}));
  size_t size = 0;
  EXPECT_OK(evn_quantizer_report(q, EVN_FORMAT_TEXT, nullptr, 0, &size, &error));
  std::string report(size, ' ');
  EXPECT_OK(evn_quantizer_report(q, EVN_FORMAT_TEXT, report.data(), size, &size, &error));
  EXPECT_NE(report.find("keep \"nosuch/*\" matches no node"), std::string::npos) << report;
  EXPECT_OK(evn_quantizer_release(q));
}

TEST_F(NameTest, NodesThatRewritesRemoveCountAsMatched) {
  OnnxWriter w(17);  // Constant and Identity go, Relu is fused into Conv, the nodes of a body are the loop's own
  w.add_input("x", kF32, {1, 3, 8, 8}).add_output("y", kF32);
  w.add_initializer("w", {4, 3, 1, 1}, std::vector<float>(12, 1));
  w.add_node("Identity", {"x"}, {"i"}, {}, "front");
  w.add_node("Conv", {"i", "w"}, {"c"}, {}, "product").add_node("Relu", {"c"}, {"y"}, {}, "slope");
  for (const char* match :
       {"op: Identity", "name: front", "op: Relu", "name: slope", "op: Conv", "name: prod*", "op: [Sin, Relu]"}) {
    ASSERT_EQ(open(std::string("placement: {rules: [{match: {") + match + "}, device: cpu}]}\n"), EVN_OK);
    ASSERT_EQ(load(w.serialize()), EVN_OK) << error.message;
    EXPECT_EQ(session(), EVN_OK) << error.message;
    EXPECT_TRUE(warnings.empty()) << match << ": " << warnings[0];
  }
  for (const char* match : {"op: Sin", "name: 'nosuch/*'", "{op: Relu, name: front}"}) {
    const std::string text = match[0] == '{' ? match : std::string("{") + match + "}";
    ASSERT_EQ(open("placement: {rules: [{match: " + text + ", device: cpu}]}\n"), EVN_OK);
    ASSERT_EQ(load(w.serialize()), EVN_OK);
    EXPECT_EQ(session(), EVN_OK) << error.message;
    EXPECT_EQ(warnings.size(), 1u) << match;
  }
}

}  // namespace
}  // namespace evn::test
