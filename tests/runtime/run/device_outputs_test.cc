// RunRequest::outputs_on_device: outputs that are not given lie where the plan makes them, without a copy, also where no copies are
// allowed and where the run has several parts.
#include "tests/runtime/run/outputs_support.h"

namespace evn::test::device_outputs_test {
namespace {

struct DeviceOutputs : RuntimeTest {
  std::shared_ptr<Runtime> runtime;

  std::shared_ptr<Session> make(const OnnxWriter& model, std::vector<PlacementRule> rules) {
    Config config = two_mocks();
    config.rules = std::move(rules);
    runtime = make_runtime(config);
    return make_session(load(runtime, model), "");
  }
  TensorPtr on(const char* device, const HostTensor& t) {
    auto tensor = std::make_shared<Tensor>(runtime, runtime->find_device(device), t.desc, false);
    copy_tensor(*to_tensor(runtime, t), *tensor);
    return tensor;
  }
  // Where the outputs lie; their bits are those of a run that gives them on the CPU. `downloads`: how many the run may make.
  std::vector<std::string> devices_of(Session& session, const std::vector<TensorPtr>& in, std::int64_t downloads = 0) {
    RunRequest copies;
    copies.allow_copies = true;
    const Given want = run_with(session, in, copies);
    std::vector<std::string> devices;
    for (int turn = 0; turn < 2; ++turn) {
      std::vector<RunValue> inputs, outputs(session.graph().outputs.size());
      for (const TensorPtr& t : in) inputs.push_back({t, nullptr});
      RunRequest request;
      request.outputs_on_device = true;
      const std::int64_t before = mock_counters().downloads;
      session.run(inputs, outputs, request);
      EXPECT_EQ(mock_counters().downloads - before, downloads);
      devices.clear();
      for (std::size_t j = 0; j < outputs.size(); ++j) {
        devices.push_back(outputs[j].tensor->device()->name());
        expect_same_bits(to_host(runtime, outputs[j].tensor), want.tensors[j], "output " + std::to_string(j));
      }
    }
    for (const std::string& device : want.devices) EXPECT_EQ(device, "cpu");
    return devices;
  }
  using Names = std::vector<std::string>;
};

TEST_F(DeviceOutputs, LieWhereTheirNodesRun) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"n", 6}).add_output("a").add_output("b").add_output("c");
  w.add_node("Relu", {"x"}, {"a"}).add_node("Neg", {"x"}, {"b"}).add_node("Abs", {"x"}, {"c"});
  const auto session = make(w, {rule({"Relu"}, {}, "m", Policy::kRequire, 1), rule({"Neg"}, {}, "n", Policy::kRequire, 2)});
  EXPECT_EQ(devices_of(*session, {to_tensor(runtime, random_tensor({3, 6}, 1))}), (Names{"m", "n", "cpu"}));
  EXPECT_EQ(devices_of(*session, {to_tensor(runtime, random_tensor({2, 6}, 2))}), (Names{"m", "n", "cpu"}));
}

// Also where another device reads them too, which gets a copy.
TEST_F(DeviceOutputs, StayWhereOthersReadThem) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {4})
      .add_output("a")
      .add_output("b")
      .add_output("v")
      .add_initializer("flat", {2}, std::vector<std::int64_t>{2, 2});
  w.add_node("Relu", {"x"}, {"a"}).add_node("Reshape", {"a", "flat"}, {"v"}).add_node("Neg", {"v"}, {"b"});
  const auto session = make(w, {rule({"Relu"}, {}, "m", Policy::kRequire, 1)});
  EXPECT_EQ(devices_of(*session, {to_tensor(runtime, random_tensor({4}, 1))}, 1), (Names{"m", "cpu", "m"}));
}

TEST_F(DeviceOutputs, ThatAreInputsAndConstants) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {4}).add_output("x").add_output("k").add_output("y").add_initializer("k", {1}, std::vector<float>{3});
  w.add_node("Relu", {"x"}, {"y"});
  const auto session = make(w, {rule({"Relu"}, {}, "m", Policy::kRequire, 1)});
  const HostTensor x = random_tensor({4}, 1);
  EXPECT_EQ(devices_of(*session, {on("m", x)}), (Names{"m", "cpu", "m"}));
  EXPECT_EQ(devices_of(*session, {to_tensor(runtime, x)}), (Names{"cpu", "cpu", "m"}));
}

TEST_F(DeviceOutputs, ThatAreOneValue) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {4}).add_output("a").add_output("b");
  w.add_node("Relu", {"x"}, {"a"}).add_node("Identity", {"a"}, {"b"});
  const auto session = make(w, {rule({"Relu"}, {}, "m", Policy::kRequire, 1)});
  EXPECT_EQ(devices_of(*session, {to_tensor(runtime, random_tensor({4}, 1))}), (Names{"m", "m"}));
}

TEST_F(DeviceOutputs, OfRunsOfSeveralParts) {
  OnnxWriter then(13), other(13);
  then.add_node("Neg", {"x"}, {"t"}, {}, "negated").add_output("t");
  other.add_node("Exp", {"x"}, {"e"}, {}, "raised").add_output("e");
  OnnxWriter w(13);
  w.add_input("x", kF32, {1, "n"})
      .add_initializer("zero", {}, std::vector<float>{0})
      .add_output("first")
      .add_output("y")
      .add_output("last");
  w.add_node("Relu", {"x"}, {"first"})
      .add_node("ReduceMax", {"x"}, {"m"}, {{"keepdims", 0}})
      .add_node("Greater", {"m", "zero"}, {"c"});
  w.add_node("If", {"c"}, {"y"}, {Attr::graph("then_branch", then.graph()), Attr::graph("else_branch", other.graph())}, "choice");
  w.add_node("Abs", {"y"}, {"last"});
  const auto session =
      make(w, {rule({"Relu", "Neg", "Abs"}, {}, "m", Policy::kRequire, 1), rule({"Exp"}, {}, "n", Policy::kRequire, 2)});
  EXPECT_EQ(devices_of(*session, {to_tensor(runtime, random_tensor({1, 5}, 1, 1, 2))}), (Names{"m", "m", "m"}));
  // What the other branch makes goes to the device that reads it by way of the host.
  EXPECT_EQ(devices_of(*session, {to_tensor(runtime, random_tensor({1, 5}, 1, -2, -1))}, 1), (Names{"m", "n", "m"}));
}

// A tensor that is given for one output does not move the others.
TEST_F(DeviceOutputs, BesideThoseThatAreGiven) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {4}).add_output("a").add_output("b");
  w.add_node("Relu", {"x"}, {"a"}).add_node("Neg", {"x"}, {"b"});
  const auto session = make(w, {rule({"Relu", "Neg"}, {}, "m", Policy::kRequire, 1)});
  std::vector<RunValue> in = {{to_tensor(runtime, random_tensor({4}, 1)), nullptr}}, out(2);
  const auto given = std::make_shared<Tensor>(runtime, &runtime->cpu(), TensorDesc{DType::kFloat32, {4}}, false);
  out[0].tensor = given;
  RunRequest request;
  request.outputs_on_device = true;
  session->run(in, out, request);
  EXPECT_EQ(out[0].tensor, given);
  EXPECT_EQ(out[1].tensor->device()->name(), "m");
  EXPECT_EQ(static_cast<const float*>(given->buffer().address())[0],
            std::max(0.0f, static_cast<const float*>(in[0].tensor->buffer().address())[0]));
}

}  // namespace
}  // namespace evn::test::device_outputs_test
