// Sessions whose arenas are limited: what does not fit is computed again, and every byte that comes out is that of a session
// without a limit.
#include "ops/custom.h"
#include "runtime/lower/plan.h"
#include "tests/runtime/support.h"

namespace evn::test::recompute_plan_test {
namespace {

using RecomputePlanTest = RuntimeTest;

// Layers that are read on the way back too, last first, as in training.
class Network {
 public:
  explicit Network(unsigned seed) : random_(seed), writer_(15) {
    writer_.import("mine", 1).add_input("x", kF32, {"N", 8, 12, 12});
    writer_.add_initializer("half", {}, std::vector<float>{0.5f}).add_initializer("halves", {2}, std::vector<std::int64_t>{4, 4});
    writer_.add_initializer("one", {}, std::vector<std::int64_t>{1});
    writer_.add_node("Cast", {"one"}, {"yes"}, {{"to", kBool}});
    layers_ = {"x"};
  }

  // A layer of eight channels.
  void add(int kind) {
    const std::string x = layers_.back(), y = fresh();
    switch (kind) {
      case 0: conv(x, y, 8); break;
      case 1: writer_.add_node("Tanh", {x}, {y}); break;
      case 2:  // two values side by side
        conv(x, y + "a", 3);
        conv(layers_[layers_.size() / 2], y + "b", 5);
        writer_.add_node("Concat", {y + "a", y + "b"}, {y}, {{"axis", 1}});
        break;
      case 3:  // the halves of one
        writer_.add_node("Split", {x, "halves"}, {y + "a", y + "b"}, {{"axis", 1}});
        conv(y + "a", y + "c", 8, 4);
        conv(y + "b", y + "d", 8, 4);
        writer_.add_node("Mul", {y + "c", y + "d"}, {y});
        break;
      case 4: writer_.add_node("Dropout", {x, "half", "yes"}, {y}); break;
      case 5: norm(x, y); break;
      case 7: writer_.add_node("Count", {x}, {y}, {}, y + ".node", "mine"); break;
      default: writer_.add_node("Add", {x, layers_[layers_.size() / 2]}, {y}); break;
    }
    layers_.push_back(y);
  }
  void add_any() { add(static_cast<int>(random_() % 7)); }

  OnnxWriter finish() {
    std::string y = layers_.back();
    for (std::size_t i = layers_.size() - 1; i-- > 0;) {
      const std::string product = fresh(), next = fresh();
      writer_.add_node("Mul", {y, layers_[i]}, {product});
      i % 3 == 0 ? conv(product, next, 8) : void(writer_.add_node("Tanh", {product}, {next}));
      y = next;
    }
    writer_.add_node("Relu", {y}, {"y"}).add_output("y", kF32);
    return writer_;
  }

 private:
  std::mt19937 random_;
  OnnxWriter writer_;
  std::vector<std::string> layers_;
  int count_ = 0;

  std::string fresh() { return "v" + std::to_string(count_++); }

  void conv(const std::string& x, const std::string& y, std::int64_t channels, std::int64_t from = 8) {
    std::vector<float> weight(static_cast<std::size_t>(channels * from * 9));
    for (float& w : weight) w = static_cast<float>(static_cast<int>(random_() % 200) - 100) * 0.001f;
    writer_.add_initializer(y + ".w", {channels, from, 3, 3}, weight);
    writer_.add_node("Conv", {x, y + ".w"}, {y},
                     {{"kernel_shape", std::vector<std::int64_t>{3, 3}}, {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
  }

  // Its statistics are outputs of the model.
  void norm(const std::string& x, const std::string& y) {
    for (const char* what : {".scale", ".bias", ".mean", ".var"})
      writer_.add_initializer(y + what, {8}, std::vector<float>(8, what[1] == 'b' || what[1] == 'm' ? 0.1f : 1.0f));
    writer_.add_node("BatchNormalization", {x, y + ".scale", y + ".bias", y + ".mean", y + ".var"}, {y, y + ".m", y + ".v"},
                     {{"training_mode", 1}});
    writer_.add_output(y + ".m", kF32).add_output(y + ".v", kF32);
  }
};

void expect_same_bytes(const std::vector<HostTensor>& got, const std::vector<HostTensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].desc, want[k].desc) << "output " << k;
    EXPECT_EQ(std::memcmp(got[k].bytes.data(), want[k].bytes.data(), want[k].desc.size_bytes()), 0) << "output " << k;
  }
}

SessionRequest limited(std::uint64_t limit, const char* device = "cpu") {
  SessionRequest request(device);
  request.arena_limit = limit;
  return request;
}

// The fewest bytes that the session says it needs.
std::uint64_t least_bytes(const ModelPtr& model, const std::vector<HostTensor>& inputs) {
  TestSession session(model, limited(1));
  try {
    run(session, inputs);
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_LIMIT) << e.message;
    return e.bytes_requested;
  }
  ADD_FAILURE() << "one byte was enough";
  return 1;
}

// Runs with less and less memory until it is refused. Returns how many sessions have computed something again.
int compare(const ModelPtr& model, const std::vector<HostTensor>& inputs, const char* device = "cpu") {
  TestSession free(model, device);
  const std::vector<HostTensor> want = run(free, inputs);
  std::uint64_t all = 0;
  for (const std::size_t bytes : free.latest_plans().at(0)->arena_bytes) all += bytes;
  int again = 0;
  for (std::uint64_t percent = 100; percent > 0; percent -= 7) {
    const std::uint64_t limit = all * percent / 100;
    TestSession session(model, limited(limit, device));
    try {
      expect_same_bytes(run(session, inputs), want);
      expect_same_bytes(run(session, inputs), want);
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_LIMIT) << e.message;
      EXPECT_GT(e.bytes_requested, limit);
      EXPECT_EQ(e.bytes_available, limit);
      EXPECT_LT(percent, 100u);
      TestSession enough(model, limited(e.bytes_requested, device));  // what it says it needs is enough
      expect_same_bytes(run(enough, inputs), want);
      return again;
    }
    const Plan& plan = *session.latest_plans().at(0);
    EXPECT_LE(plan.arena_bytes[0], limit);
    EXPECT_EQ(plan.recomputed.unlimited_bytes, all);
    EXPECT_EQ(plan.recomputed.steps > 0, plan.recomputed.values > 0);
    again += plan.recomputed.steps > 0;
    if (testing::Test::HasFailure()) return again;
  }
  ADD_FAILURE() << "no limit is too small";
  return again;
}

TEST_F(RecomputePlanTest, EachKindOfLayerIsComputedAgainWithTheSameBits) {
  const auto runtime = make_runtime();
  for (int kind = 0; kind < 7; ++kind) {
    Network n(static_cast<unsigned>(kind));
    for (int i = 0; i < 12; ++i) n.add(i % 3 == 0 ? 0 : kind);
    EXPECT_GT(compare(load(runtime, n.finish()), {random_tensor({2, 8, 12, 12}, 1)}), 0) << "kind " << kind;
    if (HasFailure()) return;
  }
}

TEST_F(RecomputePlanTest, RandomNetworksGiveTheSameBits) {
  const auto runtime = make_runtime();
  int again = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    Network n(seed);
    for (unsigned i = 0; i < 8 + seed % 12; ++i) n.add_any();
    again += compare(load(runtime, n.finish()), {random_tensor({1 + seed % 3, 8, 12, 12}, seed)});
    if (HasFailure()) {
      ADD_FAILURE() << "seed " << seed;
      return;
    }
  }
  EXPECT_GT(again, 80);
}

TEST_F(RecomputePlanTest, EveryBatchSizeHasAPlanOfItsOwn) {
  Network n(3);
  for (int i = 0; i < 10; ++i) n.add(i % 2);
  const auto runtime = make_runtime();
  const ModelPtr model = load(runtime, n.finish());
  TestSession free(model, "cpu");
  std::uint64_t least = 0;
  for (std::int64_t batch = 1; batch <= 12; ++batch)
    least = std::max(least, least_bytes(model, {random_tensor({batch, 8, 12, 12}, 1)}));
  TestSession session(model, limited(least));
  bool again = false, at_once = false;
  for (const std::int64_t batch : {1, 12, 2, 12, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 12}) {  // more than plans are kept
    const std::vector<HostTensor> x = {random_tensor({batch, 8, 12, 12}, 7)};
    expect_same_bytes(run(session, x), run(free, x));
    (session.latest_plans().at(0)->recomputed.steps > 0 ? again : at_once) = true;
  }
  EXPECT_TRUE(again && at_once);
}

TEST_F(RecomputePlanTest, SessionsOfOtherLimitsHaveOtherPlans) {
  Network n(4);
  for (int i = 0; i < 10; ++i) n.add(i % 2);
  const auto runtime = make_runtime();
  const ModelPtr model = load(runtime, n.finish());
  const std::vector<HostTensor> x = {random_tensor({2, 8, 12, 12}, 7)};
  TestSession free(model, "cpu");
  const std::vector<HostTensor> want = run(free, x);
  const std::uint64_t all = free.latest_plans().at(0)->arena_bytes[0];
  const std::uint64_t least = least_bytes(model, x);
  TestSession small(model, limited(least)), most(model, limited(all - 1)), other(model, "cpu");
  for (TestSession* s : {&small, &most, &other}) expect_same_bytes(run(*s, x), want);
  EXPECT_LE(small.latest_plans().at(0)->arena_bytes[0], least);
  EXPECT_LT(most.latest_plans().at(0)->recomputed.steps, small.latest_plans().at(0)->recomputed.steps);
  EXPECT_EQ(other.latest_plans().at(0)->arena_bytes[0], all);
}

// Adds one, and counts how often it does.
struct CountingOp final : CustomOp {
  static inline std::atomic<int> runs{0};

  CountingOp() {
    domain = "mine";
    name = "Count";
    def.name = name.c_str();
    def.domain = domain.c_str();
    def.since = 1;
    def.dtypes = UINT32_MAX;
    def.output_dtype = [](const Node&, std::span<const DType> inputs, int) { return inputs[0]; };
    def.infer = [](InferContext& c) { c.outputs[0] = c.inputs[0]; };
    def.reference = [](const ReferenceContext& c) {
      ++runs;
      const auto* from = static_cast<const float*>(c.input(0).data);
      for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) static_cast<float*>(c.output().data)[i] = from[i] + 1;
    };
    def.custom = this;
  }
  void infer(const Node&, std::span<const TensorDesc> inputs, std::span<const ConstTensor>,
             std::span<TensorDesc> outputs) const override {
    outputs[0] = inputs[0];
  }
};

TEST_F(RecomputePlanTest, OperatorsOfTheHostRunOnceInTheirOrder) {
  const auto runtime = make_runtime();
  runtime->operators().add(std::make_unique<CountingOp>());
  for (const bool own : {false, true}) {  // whether the others may be computed again
    Network n(6);
    for (int i = 0; i < 12; ++i) n.add(own || i % 4 == 0 ? 7 : i % 2);
    const ModelPtr model = load(runtime, n.finish());
    const std::vector<HostTensor> x = {random_tensor({2, 8, 12, 12}, 7)};
    TestSession free(model, "cpu");
    CountingOp::runs = 0;
    const std::vector<HostTensor> want = run(free, x);
    const int once = CountingOp::runs.exchange(0);
    EXPECT_EQ(once, own ? 12 : 3);
    TestSession session(model, limited(least_bytes(model, x)));
    CountingOp::runs = 0;
    expect_same_bytes(run(session, x), want);
    EXPECT_EQ(CountingOp::runs, once);
    EXPECT_TRUE(own || session.latest_plans().at(0)->recomputed.steps > 0);
  }
}

TEST_F(RecomputePlanTest, OneOtherDeviceComputesAgain) {
  for (const bool has_queues : {false, true}) {
    mock_settings().has_queues = has_queues;
    Network n(5);
    for (int i = 0; i < 10; ++i) n.add(i % 2);
    const auto runtime = make_runtime(two_mocks());
    EXPECT_GT(compare(load(runtime, n.finish()), {random_tensor({2, 8, 12, 12}, 7)}, "m"), 2);
  }
}

TEST_F(RecomputePlanTest, OnSeveralDevicesNothingIsComputedAgain) {
  mock_settings().refused_ops = {"Tanh"};
  Network n(5);
  for (int i = 0; i < 10; ++i) n.add(i % 2);
  const auto runtime = make_runtime(two_mocks());
  const ModelPtr model = load(runtime, n.finish());
  SessionRequest request("m,cpu");
  request.arena_limit = 1000;
  TestSession session(model, request);
  try {
    run(session, {random_tensor({2, 8, 12, 12}, 7)});
    FAIL() << "1000 bytes were enough";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_LIMIT) << e.message;
    EXPECT_NE(std::string(e.message).find("devices"), std::string::npos) << e.message;
  }
}

}  // namespace
}  // namespace evn::test::recompute_plan_test
