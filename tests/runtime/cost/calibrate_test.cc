#include "runtime/cost/calibrate.h"

#include "tests/runtime/support.h"

namespace evn::test {
namespace {

using CalibrateTest = RuntimeTest;

std::size_t known(Runtime& runtime, const Device& device) {
  return runtime.costs().with(device, [](const CostTable& t) { return t.size(); });
}

TEST_F(CalibrateTest, TheSuiteHasOperatorsOfAllFamilies) {
  const std::shared_ptr<Runtime> runtime = make_runtime();
  std::set<std::string> ops;
  const ModelPtr suite = calibration_suite(runtime);
  for (const Node& n : suite->graph().nodes) ops.insert(n.op_type);
  for (const char* op : {"Conv", "MatMul", "Gemm", "Softmax", "LayerNormalization", "Add", "Erf", "MaxPool", "Concat", "Transpose",
                         "ReduceMean", "Gather"})
    EXPECT_TRUE(ops.contains(op)) << op;
  const ModelPtr chain = calibration_chain(runtime);
  EXPECT_EQ(chain->graph().outputs.size(), 1u);
}

TEST_F(CalibrateTest, TheSuiteFillsTheTableOfTheCpu) {
  const std::shared_ptr<Runtime> runtime = make_runtime();
  const std::vector<DeviceCalibration> rows = calibrate(runtime, nullptr);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].refused, "");
  EXPECT_GT(rows[0].steps, 80u);
  EXPECT_GT(rows[0].run_ns, 0);
  EXPECT_GT(known(*runtime, runtime->cpu()), 80u);
}

TEST_F(CalibrateTest, AModelsStepsAndItsCopiesAreMeasuredOnEachDevice) {
  Config c;
  c.devices = {mock_device("m")};
  const std::shared_ptr<Runtime> runtime = make_runtime(c);
  OnnxWriter w;
  w.add_input("x", kF32, {1, 4, 8, 8});
  w.add_initializer("w", {4, 4, 1, 1}, std::vector<float>(16, 0.25f));
  w.add_node("Conv", {"x", "w"}, {"c"}, {}, "conv").add_node("Softmax", {"c"}, {"y"}, {}, "softmax").add_output("y");
  const std::vector<DeviceCalibration> rows = calibrate(runtime, load(runtime, w));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].upload.latency_ns, 0);
  EXPECT_EQ(rows[1].device, "m");
  EXPECT_EQ(rows[1].steps, 2u);
  EXPECT_GT(rows[1].upload.of(1 << 20), 0);
  EXPECT_EQ(known(*runtime, *runtime->device_at(1)), 2u);
  const std::string json = render_calibration(rows, EVN_FORMAT_JSON);
  EXPECT_NE(json.find(R"("device":"m","refused":"","steps":2)"), std::string::npos) << json;
  EXPECT_NE(render_calibration(rows, EVN_FORMAT_TEXT).find("m: 2 steps"), std::string::npos);
}

TEST_F(CalibrateTest, ADeviceThatFailsIsSaidSoAndTheOthersAreMeasured) {
  Config c;
  c.devices = {mock_device("m")};
  const std::shared_ptr<Runtime> runtime = make_runtime(c);
  const ModelPtr model = load(runtime, small_network());
  mock_settings().fail_call = 1;
  const std::vector<DeviceCalibration> rows = calibrate(runtime, model);
  EXPECT_EQ(rows[0].refused, "");
  EXPECT_NE(rows[1].refused.find("the mock device failed"), std::string::npos);
  EXPECT_EQ(calibrate(runtime, model)[1].refused, "");
}

TEST_F(CalibrateTest, AModelWhoseInputsAreNotKnownIsAnError) {
  const std::shared_ptr<Runtime> runtime = make_runtime();
  OnnxWriter w;
  w.graph().message(11, value_info_proto("x", kF32, {}, false));
  w.add_node("Relu", {"x"}, {"y"}, {}, "relu").add_output("y");
  try {
    calibrate(runtime, load(runtime, w));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
    EXPECT_NE(std::string(e.message).find("input \"x\""), std::string::npos) << e.message;
  }
}

}  // namespace
}  // namespace evn::test
