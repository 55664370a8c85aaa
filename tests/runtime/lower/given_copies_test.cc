// allow_copies = 0: a tensor that does not lie where the plan reads or makes it is an error that names both devices, and nothing is
// copied; also where the session uses both.
#include "tests/runtime/support.h"

namespace evn::test {
namespace {

struct GivenCopies : RuntimeTest {
  std::shared_ptr<Runtime> runtime;

  // a = Relu(x) on `first`, y = Neg(a) on `second`, z = Abs(x) on `third`.
  std::shared_ptr<Session> make(const char* first, const char* second, const char* third) {
    OnnxWriter w(13);
    w.add_input("x", kF32, {4, 6}).add_output("y", kF32).add_output("z", kF32);
    w.add_node("Relu", {"x"}, {"a"}).add_node("Neg", {"a"}, {"y"}).add_node("Abs", {"x"}, {"z"});
    Config config = two_mocks();
    config.rules.push_back(rule({"Relu"}, {}, first, Policy::kRequire, 1));
    config.rules.push_back(rule({"Neg"}, {}, second, Policy::kRequire, 2));
    config.rules.push_back(rule({"Abs"}, {}, third, Policy::kRequire, 3));
    runtime = make_runtime(config);
    return make_session(load(runtime, w), "");
  }

  TensorPtr on(const char* device, const HostTensor& t) {
    auto tensor = std::make_shared<Tensor>(runtime, runtime->find_device(device), t.desc, false);
    copy_tensor(*to_tensor(runtime, t), *tensor);
    return tensor;
  }
  std::vector<float> floats(const TensorPtr& t) {
    Tensor host(runtime, &runtime->cpu(), t->desc(), false);
    copy_tensor(*t, host);
    const auto* first = static_cast<const float*>(host.buffer().address());
    return {first, first + t->size_bytes() / sizeof(float)};
  }

  static std::vector<TensorPtr> run(Session& session, const std::vector<TensorPtr>& in, const std::vector<TensorPtr>& out,
                                    bool allow_copies) {
    std::vector<RunValue> inputs, outputs;
    for (const TensorPtr& t : in) inputs.push_back({t, nullptr});
    for (const TensorPtr& t : out) outputs.push_back({t, nullptr});
    session.run(inputs, outputs, {allow_copies, 0, 0});
    std::vector<TensorPtr> results;
    for (const RunValue& v : outputs) results.push_back(v.tensor);
    return results;
  }

  // Refused with both names, and without a transfer.
  static void expect_refused(Session& session, const std::vector<TensorPtr>& in, const std::vector<TensorPtr>& out,
                             const char* value, const char* given, const char* wanted) {
    const MockCounters before = mock_counters();
    try {
      run(session, in, out, false);
      ADD_FAILURE() << value << " was copied from " << given << " to " << wanted;
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_INVALID_ARGUMENT);
      const std::string message = e.message;
      EXPECT_NE(message.find("\"" + std::string(value) + "\" lies on device " + given), std::string::npos) << message;
      EXPECT_NE(message.find(" on " + std::string(wanted) + "; allow_copies is 0"), std::string::npos) << message;
      EXPECT_STREQ(e.device, given);
    }
    EXPECT_EQ(mock_counters().downloads, before.downloads);
    EXPECT_EQ(mock_counters().uploads, before.uploads);
  }

  HostTensor x = random_tensor({4, 6}, 1);
  std::vector<float> negated() const {
    std::vector<float> y;
    for (const float v : x.as<float>()) y.push_back(-std::max(v, 0.0f));
    return y;
  }
};

TEST_F(GivenCopies, AnInputThatTheCpuReads) {
  const auto session = make("cpu", "m", "m");
  expect_refused(*session, {on("m", x)}, {nullptr, nullptr}, "x", "m", "cpu");
  EXPECT_EQ(floats(run(*session, {on("m", x)}, {nullptr, nullptr}, true)[0]), negated());
  expect_refused(*session, {on("m", x)}, {nullptr, nullptr}, "x", "m", "cpu");  // with the plan of the run that was allowed
}

TEST_F(GivenCopies, AnInputThatAnotherDeviceReads) {
  const auto session = make("n", "m", "m");
  expect_refused(*session, {on("m", x)}, {nullptr, nullptr}, "x", "m", "n");
  EXPECT_EQ(floats(run(*session, {on("m", x)}, {nullptr, nullptr}, true)[0]), negated());
}

TEST_F(GivenCopies, AnInputThatItsOwnDeviceReadsToo) {
  const auto session = make("m", "m", "cpu");
  expect_refused(*session, {on("m", x)}, {nullptr, nullptr}, "x", "m", "cpu");
}

TEST_F(GivenCopies, AnOutputThatTheCpuMakes) {
  const auto session = make("m", "cpu", "m");
  const TensorPtr y = on("m", x);
  expect_refused(*session, {to_tensor(runtime, x)}, {y, nullptr}, "y", "m", "cpu");
  run(*session, {to_tensor(runtime, x)}, {y, nullptr}, true);
  EXPECT_EQ(floats(y), negated());
}

TEST_F(GivenCopies, AnOutputThatAnotherDeviceMakes) {
  const auto session = make("m", "n", "m");
  const TensorPtr y = on("m", x);
  expect_refused(*session, {to_tensor(runtime, x)}, {y, nullptr}, "y", "m", "n");
  run(*session, {to_tensor(runtime, x)}, {y, nullptr}, true);
  EXPECT_EQ(floats(y), negated());
}

TEST_F(GivenCopies, ATensorOutsideOfTheSession) {
  const auto session = make("m", "m", "m");
  try {
    run(*session, {on("n", x)}, {nullptr, nullptr}, false);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_STREQ(e.message, "input 0 \"x\" lies on device n, which the session does not use (it uses cpu, m); allow_copies is 0");
  }
}

TEST_F(GivenCopies, TensorsWhereThePlanHasThemAndHostTensorsAreNoError) {
  const auto session = make("m", "n", "m");
  const TensorPtr y = on("n", x), z = on("m", x);
  run(*session, {on("m", x)}, {y, z}, false);
  EXPECT_EQ(floats(y), negated());
  EXPECT_EQ(floats(run(*session, {to_tensor(runtime, x)}, {nullptr, nullptr}, false)[0]), negated());
}

TEST_F(GivenCopies, AnInputThatIsAnOutputGoesToTheHost) {
  OnnxWriter w(13);
  w.add_input("x", kF32, {4, 6})
      .add_input("z", kF32, {4, 6})
      .add_output("x", kF32)
      .add_output("y", kF32)
      .add_node("Relu", {"z"}, {"y"});
  runtime = make_runtime(two_mocks());
  TestSession session(load(runtime, w), "m");
  const std::span<const float> want = x.as<float>();
  EXPECT_EQ(floats(run(session, {on("m", x), on("m", x)}, {nullptr, nullptr}, false)[0]),
            std::vector<float>(want.begin(), want.end()));
  expect_refused(session, {to_tensor(runtime, x), on("m", x)}, {on("m", x), nullptr}, "x", "m", "cpu");
}

TEST_F(GivenCopies, AnInputThatShapesDependOn) {
  for (const std::int64_t count : {2, 2000}) {  // few values are looked at before the run, many in the course of it
    OnnxWriter w(13);
    w.add_input("x", kF32, {4, 6}).add_input("shape", kI64, {count}).add_output("y", kF32).add_output("n", kI64);
    w.add_node("Relu", {"x"}, {"r"})
        .add_initializer("zero", {1}, std::vector<std::int64_t>{0})
        .add_initializer("two", {1}, std::vector<std::int64_t>{2});
    w.add_node("Slice", {"shape", "zero", "two"}, {"front"})
        .add_node("Reshape", {"r", "front"}, {"y"})
        .add_node("Size", {"shape"}, {"n"});
    runtime = make_runtime(two_mocks());
    TestSession session(load(runtime, w), "m");
    std::vector<std::int64_t> shape(static_cast<std::size_t>(count), 1);
    shape[0] = 3;
    shape[1] = 8;
    const HostTensor s = int_tensor(shape);
    const std::vector<TensorPtr> in = {to_tensor(runtime, x), on("m", s)};
    expect_refused(session, in, {nullptr, nullptr}, "shape", "m", "cpu");
    EXPECT_EQ(run(session, in, {nullptr, nullptr}, true)[0]->desc().shape, (Shape{3, 8}));
  }
}

}  // namespace
}  // namespace evn::test
