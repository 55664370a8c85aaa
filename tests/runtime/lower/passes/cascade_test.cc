// Convolutions that run as a cascade give the bytes that they give one by one, whatever their sizes, epilogues and threads.

#include "tests/runtime/support.h"
#include "tests/support/forced_cascades.h"
#include "tests/support/isas.h"

namespace evn::test::cascade_test {
namespace {

constexpr Isa kIsas[] = {Isa::k_baseline, Isa::k_avx2, Isa::k_avx512};

class CascadeTest : public RuntimeTest {
 protected:
  ~CascadeTest() override { force_cascades(CascadeUse::kWhereItPays); }
};

void expect_same_bytes(const std::vector<HostTensor>& got, const std::vector<HostTensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].desc, want[k].desc) << "output " << k;
    EXPECT_EQ(std::memcmp(got[k].bytes.data(), want[k].bytes.data(), want[k].desc.size_bytes()), 0) << "output " << k;
  }
}

int count_in_cascades(const Session& session) {
  const std::string text = explain(session, EVN_FORMAT_TEXT);
  int count = 0;
  for (std::size_t at = text.find("conv_cascade"); at != std::string::npos; at = text.find("conv_cascade", at + 1)) ++count;
  return count;
}

// Runs the model node by node and in cascades, and expects the same bytes. Returns the number of nodes in cascades.
int run_in_cascades(const OnnxWriter& w, const std::vector<HostTensor>& in, int threads) {
  force_cascades(CascadeUse::kNever);
  const ModelPtr model = load(make_runtime({}, 0, 1), w);
  TestSession one_by_one(model, "");
  const std::vector<HostTensor> want = run(one_by_one, in);
  expect_close(want, GraphRunner(model->graph()).run(in));
  force_cascades(CascadeUse::kAlways);
  TestSession session(load(make_runtime({}, 0, threads), w), "");
  expect_same_bytes(run(session, in), want);
  return count_in_cascades(session);
}

// A network that is drawn layer by layer. `skips`: many strides are larger than their kernels, so that lines are skipped.
class Network {
 public:
  Network(std::uint32_t seed, bool skips) : random_(seed), skips_(skips) {}

  // What stands before and behind a depthwise layer; all of them have an epilogue, or none.
  OnnxWriter draw(bool thin, int blocks) {
    std::int64_t channels = thin ? pick({1, 3, 4}) : pick({16, 20, 35});
    input_channels_ = channels;
    w_.add_input("x", kF32, {"N", channels, "H", "W"}).add_output("y", kF32);
    std::string x = "x";
    if (thin) {
      const std::int64_t k = skips_ ? pick({1, 2}) : 3, step = pick({1, 2}), down = skips_ ? pick({2, 3, 8}) : step;
      x = conv(x, channels, pick({8, 16, 24}), k, k, {down, step}, false);
    }
    for (int i = 0; i < blocks; ++i) x = block(x);
    w_.add_node("Identity", {x}, {"y"});
    return std::move(w_);
  }

  std::int64_t input_channels() const { return input_channels_; }

  std::int64_t pick(std::initializer_list<std::int64_t> from) { return from.begin()[random_() % from.size()]; }

 private:
  std::mt19937 random_;
  const bool skips_;
  OnnxWriter w_{14};
  int values_ = 0;
  std::int64_t channels_ = 0, input_channels_ = 0;

  std::string name() { return "v" + std::to_string(values_++); }

  std::string weight(const std::vector<std::int64_t>& dims) {
    std::int64_t n = 1;
    for (const std::int64_t d : dims) n *= d;
    std::vector<float> values(static_cast<std::size_t>(n));
    std::uniform_real_distribution<float> draw(-0.3f, 0.3f);
    for (float& v : values) v = draw(random_);
    const std::string as = name();
    w_.add_initializer(as, dims, values);
    return as;
  }

  std::string activation(const std::string& x) {
    const std::string y = name();
    switch (random_() % 6) {
      case 0: return x;
      case 1: w_.add_node("Relu", {x}, {y}); break;
      case 2: w_.add_node("LeakyRelu", {x}, {y}, {{"alpha", 0.1f}}); break;
      case 3: w_.add_node("HardSwish", {x}, {y}); break;
      case 4: {
        const std::string low = name(), high = name();
        w_.add_initializer(low, {}, std::vector<float>{0.0f}).add_initializer(high, {}, std::vector<float>{6.0f});
        w_.add_node("Clip", {x, low, high}, {y});
        break;
      }
      default: {
        const std::string gate = name();
        w_.add_node("Sigmoid", {x}, {gate}).add_node("Mul", {x, gate}, {y});
      }
    }
    return y;
  }

  std::string conv(const std::string& x, std::int64_t in, std::int64_t out, std::int64_t kh, std::int64_t kw,
                   const std::vector<std::int64_t>& steps, bool depthwise) {
    std::vector<std::string> inputs = {x, weight({out, depthwise ? 1 : in, kh, kw})};
    if (random_() % 4 != 0) inputs.push_back(weight({out}));
    const std::string y = name();
    const std::int64_t top = depthwise && random_() % 4 == 0 ? 0 : kh / 2;
    w_.add_node("Conv", inputs, {y},
                {{"group", depthwise ? out : std::int64_t{1}},
                 {"strides", steps},
                 {"pads", std::vector<std::int64_t>{top, kw / 2, kh / 2, kw / 2}}});
    channels_ = out;
    return random_() % 3 != 0 ? activation(y) : y;
  }

  // Expanding, depthwise, projecting; the last of them onto what came in, where that fits.
  std::string block(const std::string& x) {
    if (channels_ == 0) channels_ = input_channels_;
    const std::int64_t in = channels_;
    const std::int64_t k = skips_ ? pick({1, 2, 3}) : pick({3, 5}), across = random_() % 4 == 0 ? 8 - k : k;
    const std::int64_t down = skips_ ? pick({1, 2, 3, 8}) : pick({1, 1, 2, 3}), right = random_() % 4 == 0 ? 1 : down;
    const bool keeps = down == 1 && right == 1 && k % 2 == 1;
    std::string y = random_() % 3 != 0 ? conv(x, in, pick({24, 40, 96}), 1, 1, {1, 1}, false) : x;
    y = conv(y, channels_, channels_, k, across, {down, right}, true);
    if (random_() % 4 == 0) return y;
    const bool sum = keeps && random_() % 2 == 0;
    y = conv(y, channels_, sum ? in : pick({16, 21, 64}), 1, 1, {1, 1}, false);
    if (!sum) return y;
    const std::string z = name();
    w_.add_node("Add", {y, x}, {z});
    return activation(z);
  }
};

struct Found {
  int in_cascades = 0, sums = 0;
};

SessionRequest asks(Precision precision) {
  SessionRequest request("");
  request.precision = precision;
  return request;
}

// The bytes of drawn networks with cascades and without.
Found compare_drawn(std::uint32_t seeds, std::span<const Isa> isas, Precision precision, bool skips = false) {
  Found found;
  for (std::uint32_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Isa isa = isas[seed % isas.size()];
    const ForcedIsa forced(isa_available(isa) ? std::optional(isa) : std::nullopt);
    Network network(seed, skips);
    const OnnxWriter w = network.draw(seed % 2 == 0, 1 + static_cast<int>(seed % 4));
    std::vector<std::vector<HostTensor>> inputs;
    for (std::uint64_t i = 0; i < 3; ++i) {
      const std::int64_t height = skips ? network.pick({33, 64, 97}) : network.pick({5, 9, 16, 23, 40}),
                         width = network.pick({5, 8, 17, 31, 50});
      inputs.push_back({random_tensor({network.pick({1, 1, 2, 3}), network.input_channels(), height, width}, seed * 10 + i)});
    }
    std::vector<std::vector<HostTensor>> want;
    force_cascades(CascadeUse::kNever);
    {
      TestSession session(load(make_runtime({}, 0, 1), w), asks(precision));
      for (const auto& in : inputs) {
        try {
          want.push_back(run(session, in));
        } catch (const Error&) {
          want.emplace_back();  // steps and kernels without pads left nothing of it
        }
      }
      EXPECT_EQ(count_in_cascades(session), 0);
    }
    force_cascades(CascadeUse::kAlways);
    for (const int threads : {1, 2, 3, 7}) {
      TestSession session(load(make_runtime({}, 0, threads), w), asks(precision));
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (want[i].empty()) {
          EXPECT_THROW(run(session, inputs[i]), Error);
        } else {
          expect_same_bytes(run(session, inputs[i]), want[i]);
        }
      }
      const std::string text = session.explain(EVN_FORMAT_TEXT);
      for (std::size_t at = text.find("  Add "); at != std::string::npos; at = text.find("  Add ", at + 1)) {
        found.sums += text.substr(at, text.find('\n', at) - at).find("conv_cascade") != std::string::npos ? 1 : 0;
      }
      found.in_cascades += count_in_cascades(session);
    }
  }
  return found;
}

TEST_F(CascadeTest, DrawnNetworksGiveTheSameBytes) {
  const Found found = compare_drawn(60, kIsas, Precision::kFloat32);
  EXPECT_GT(found.in_cascades, 400);
  EXPECT_GT(found.sums, 10);
}

TEST_F(CascadeTest, DrawnNetworksThatSkipLinesGiveTheSameBytes) {
  EXPECT_GT(compare_drawn(24, kIsas, Precision::kFloat32, true).in_cascades, 100);
}

// Between two products of a cascade values are float32, where they are stored as bfloat16 without one, and what it reads, adds and
// writes may be bfloat16.
TEST_F(CascadeTest, DrawnNetworksOfBfloat16GiveTheSameBytes) {
  if (!isa_available(Isa::k_avx512_bf16)) GTEST_SKIP() << "this machine has no avx512_bf16";
  const Isa isas[] = {Isa::k_avx512_bf16};
  const Found found = compare_drawn(60, isas, Precision::kBfloat16);
  EXPECT_GT(found.in_cascades, 400);
  EXPECT_GT(found.sums, 10);
}

TEST_F(CascadeTest, DrawnNetworksOfBfloat16ThatSkipLinesGiveTheSameBytes) {
  if (!isa_available(Isa::k_avx512_bf16)) GTEST_SKIP() << "this machine has no avx512_bf16";
  const Isa isas[] = {Isa::k_avx512_bf16};
  EXPECT_GT(compare_drawn(24, isas, Precision::kBfloat16, true).in_cascades, 100);
}

// An inverted residual as MobileNetV2 has it, large enough that the usual rule takes it.
OnnxWriter inverted_residual(std::int64_t channels, std::int64_t expanded) {
  std::mt19937 random(5);
  OnnxWriter w(14);
  const auto weight = [&](const char* name, const std::vector<std::int64_t>& dims) {
    std::int64_t n = 1;
    for (const std::int64_t d : dims) n *= d;
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& v : values) v = std::uniform_real_distribution<float>(-0.3f, 0.3f)(random);
    w.add_initializer(name, dims, values);
  };
  weight("expand", {expanded, channels, 1, 1});
  weight("depthwise", {expanded, 1, 3, 3});
  weight("project", {channels, expanded, 1, 1});
  w.add_input("x", kF32, {"N", channels, "H", "W"}).add_input("r", kF32, {"N", channels, "P", "Q"}).add_output("y", kF32);
  w.add_node("Conv", {"x", "expand"}, {"a"}).add_node("Relu", {"a"}, {"b"});
  w.add_node("Conv", {"b", "depthwise"}, {"c"}, {{"group", expanded}, {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}})
      .add_node("Relu", {"c"}, {"d"});
  w.add_node("Conv", {"d", "project"}, {"e"}).add_node("Add", {"e", "r"}, {"y"});
  return w;
}

TEST_F(CascadeTest, TheUsualRuleTakesLargeImagesOnlyAndGivesTheReference) {
  const auto runtime = make_runtime({}, 0, 2);
  const ModelPtr model = load(runtime, inverted_residual(16, 96));
  TestSession session(model, "");
  for (const std::int64_t size : {7, 56, 14, 60}) {
    const std::vector<HostTensor> in = {random_tensor({1, 16, size, size}, 1), random_tensor({1, 16, size, size}, 2)};
    expect_close(run(session, in), GraphRunner(model->graph()).run(in));
    EXPECT_EQ(count_in_cascades(session), size > 50 ? 4 : 0) << size;  // three convolutions and the sum
  }
}

TEST_F(CascadeTest, RespecializedPlansRunTheSameNodesAsOneStep) {
  const OnnxWriter w = inverted_residual(16, 96);
  std::mt19937 random(3);
  for (const CascadeUse use : {CascadeUse::kWhereItPays, CascadeUse::kAlways}) {
    force_cascades(use);
    TestSession session(load(make_runtime({}, 0, 2), w), "");
    for (int turn = 0; turn < 40; ++turn) {
      const std::int64_t height = 41 + static_cast<std::int64_t>(random() % 9),
                         width = 38 + static_cast<std::int64_t>(random() % 16);
      const bool broadcast = random() % 4 == 0;
      const std::vector<HostTensor> in = {random_tensor({1, 16, height, width}, random()),
                                          random_tensor({1, 16, broadcast ? 1 : height, broadcast ? 1 : width}, random())};
      TestSession fresh(load(make_runtime({}, 0, 2), w), "");
      expect_same_bytes(run(session, in), run(fresh, in));
      EXPECT_EQ(count_in_cascades(session), count_in_cascades(fresh)) << height << " x " << width;
    }
  }
}

TEST_F(CascadeTest, StagesAreAskedAboutAsTheirNodesAre) {
  force_cascades(CascadeUse::kAlways);
  SessionRequest request("");
  request.memory = MemoryPlan::kSmall;
  request.products = Products::kOwn;
  TestSession session(load(make_runtime({}, 0, 2), inverted_residual(16, 96)), request);
  run(session, {random_tensor({1, 16, 41, 38}, 1), random_tensor({1, 16, 41, 38}, 2)});
  int stages = 0;
  for (const auto& plan : session.latest_plans()) {
    for (const PlanStep& step : plan->steps) {
      if (step.desc.nodes.empty()) continue;
      EXPECT_TRUE(step.desc.small);
      for (const OpDesc& stage : step.desc.nodes) {
        EXPECT_TRUE(stage.small);
        EXPECT_EQ(stage.products, Products::kOwn);
        ++stages;
      }
    }
  }
  EXPECT_EQ(stages, 3);
}

std::vector<float> small_values(std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * static_cast<float>(i % 23) - 0.1f;
  return values;
}

// The lines that the last stage skips are made by neither of the two before it.
TEST_F(CascadeTest, LinesThatADepthwiseLayerSkipsTakeNoMemory) {
  struct Sizes {
    std::int64_t channels, first, second, size, stride;
  };
  for (const auto& [channels, first, second, size, stride] :
       {Sizes{48, 48, 8, 160, 8}, {16, 32, 32, 112, 2}, {16, 32, 32, 112, 3}}) {
    for (const std::int64_t kernel : {1, 2}) {
      SCOPED_TRACE(std::to_string(kernel) + " x " + std::to_string(kernel) + ", stride " + std::to_string(stride));
      OnnxWriter w(14);
      w.add_initializer("v", {first, channels, 1, 1}, small_values(first * channels));
      w.add_initializer("w", {second, first, 1, 1}, small_values(second * first));
      w.add_initializer("d", {second, 1, kernel, kernel}, small_values(second * kernel * kernel));
      w.add_input("x", kF32, {1, channels, size, size}).add_output("y", kF32);
      w.add_node("Conv", {"x", "v"}, {"a"}).add_node("Relu", {"a"}, {"b"});
      w.add_node("Conv", {"b", "w"}, {"c"}).add_node("Relu", {"c"}, {"e"});
      w.add_node("Conv", {"e", "d"}, {"y"}, {{"group", second}, {"strides", std::vector<std::int64_t>{stride, stride}}});
      const std::vector<HostTensor> in = {random_tensor({1, channels, size, size}, 1)};
      force_cascades(CascadeUse::kNever);
      TestSession one_by_one(load(make_runtime({}, 0, 1), w), "");
      const std::vector<HostTensor> want = run(one_by_one, in);
      force_cascades(CascadeUse::kAlways);
      for (const int threads : {1, 3}) {
        TestSession session(load(make_runtime({}, 0, threads), w), "");
        expect_same_bytes(run(session, in), want);
        EXPECT_EQ(count_in_cascades(session), 3) << threads << " threads";
      }
    }
  }
}

// A convolution of few channels reads pixels in plain order, in which no stage before it makes them.
TEST_F(CascadeTest, AConvolutionOfPlainPixelsIsAFirstStage) {
  OnnxWriter w(14);
  w.add_initializer("colors", {3, 3, 1, 1}, small_values(9)).add_initializer("w", {16, 3, 3, 3}, small_values(16 * 27));
  w.add_initializer("d", {16, 1, 3, 3}, small_values(16 * 9));
  w.add_input("x", kF32, {"N", 3, "H", "W"}).add_output("y", kF32);
  w.add_node("Conv", {"x", "colors"}, {"a"}).add_node("Conv", {"a", "w"}, {"b"});
  w.add_node("Conv", {"b", "d"}, {"y"}, {{"group", std::int64_t{16}}});
  for (const std::int64_t size : {9, 30}) {
    const std::vector<HostTensor> in = {random_tensor({2, 3, size, size + 5}, 1)};
    EXPECT_EQ(run_in_cascades(w, in, 2), 2);
  }
}

TEST_F(CascadeTest, WhatIsReadElsewhereIsWritten) {
  force_cascades(CascadeUse::kAlways);
  OnnxWriter w(14);
  std::vector<float> ones(24 * 24, 0.01f);
  w.add_initializer("w", {24, 24, 1, 1}, ones).add_initializer("d", {24, 1, 3, 3}, std::vector<float>(24 * 9, 0.1f));
  w.add_input("x", kF32, {"N", 24, "H", "W"}).add_output("a", kF32).add_output("c", kF32);
  w.add_node("Conv", {"x", "w"}, {"a"}).add_node("Conv", {"a", "d"}, {"b"}, {{"group", std::int64_t{24}}});
  w.add_node("Conv", {"b", "w"}, {"c"});
  const ModelPtr model = load(make_runtime(), w);
  TestSession session(model, "");
  const std::vector<HostTensor> in = {random_tensor({2, 24, 12, 9}, 1)};
  expect_close(run(session, in), GraphRunner(model->graph()).run(in));
  EXPECT_EQ(count_in_cascades(session), 2);
}

// Values that are some channels of wider ones go into cascades, come out of them, and are added to what they make.
TEST_F(CascadeTest, ChannelsOfWiderValuesAreReadAndWrittenInPlace) {
  OnnxWriter w(14);
  const std::vector<float> values = small_values(32 * 32);
  w.add_initializer("wide", {64, 32, 1, 1}, std::vector<float>(64 * 32, 0.02f)).add_initializer("w", {32, 32, 1, 1}, values);
  w.add_initializer("d", {32, 1, 3, 3}, std::vector<float>(values.begin(), values.begin() + 32 * 9));
  const std::vector<Attr> depthwise = {{"group", std::int64_t{32}}, {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}};
  w.add_input("x", kF32, {"N", 32, "H", "W"}).add_output("y", kF32);
  w.add_node("Conv", {"x", "wide"}, {"a"})
      .add_node("Relu", {"a"}, {"b"})
      .add_node("Split", {"b"}, {"left", "right"}, {{"axis", std::int64_t{1}}});
  w.add_node("Conv", {"right", "w"}, {"c"}).add_node("Conv", {"c", "d"}, {"e"}, depthwise).add_node("Conv", {"e", "w"}, {"f"});
  w.add_node("Add", {"f", "left"}, {"g"}).add_node("Concat", {"left", "g"}, {"h"}, {{"axis", std::int64_t{1}}});
  w.add_initializer("down", {32, 64, 1, 1}, std::vector<float>(64 * 32, 0.03f)).add_node("Conv", {"h", "down"}, {"i"});
  w.add_node("Conv", {"i", "d"}, {"j"}, depthwise).add_node("Relu", {"j"}, {"y"});
  for (const std::int64_t size : {5, 14, 33}) {
    const std::vector<HostTensor> in = {random_tensor({2, 32, size, size + 3}, 1)};
    EXPECT_GE(run_in_cascades(w, in, 3), 5);
  }
}

// The value is made behind the first stage and before the last, to which it is added.
TEST_F(CascadeTest, AValueThatIsMadeBetweenStagesIsAddedToTheLast) {
  OnnxWriter w(14);
  const std::vector<float> values = small_values(48 * 48);
  w.add_initializer("w", {48, 48, 1, 1}, values);
  w.add_initializer("d", {48, 1, 3, 3}, std::vector<float>(values.begin(), values.begin() + 48 * 9));
  w.add_input("x", kF32, {1, 48, 96, 96}).add_output("z", kF32);
  w.add_node("Conv", {"x", "d"}, {"a"}, {{"group", std::int64_t{48}}, {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
  w.add_node("Conv", {"x", "w"}, {"r"}).add_node("Conv", {"a", "w"}, {"p"}).add_node("Add", {"p", "r"}, {"y"});
  w.add_node("Relu", {"y"}, {"z"});
  const std::vector<HostTensor> in = {random_tensor({1, 48, 96, 96}, 1)};
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    if (precision == Precision::kBfloat16 && !isa_available(Isa::k_avx512_bf16)) continue;
    const ForcedIsa forced(precision == Precision::kBfloat16 ? std::optional(Isa::k_avx512_bf16) : std::nullopt);
    std::vector<HostTensor> want;
    for (const CascadeUse use : {CascadeUse::kNever, CascadeUse::kAlways}) {
      force_cascades(use);
      TestSession session(load(make_runtime({}, 0, 2), w), asks(precision));
      if (use == CascadeUse::kNever) want = run(session, in);
      else expect_same_bytes(run(session, in), want);
    }
  }
}

TEST_F(CascadeTest, WhatLiesBetweenTakesAFewLinesOfMemory) {
  const std::vector<HostTensor> in = {random_tensor({1, 16, 112, 112}, 1), random_tensor({1, 16, 112, 112}, 2)};
  const auto peak = [&](CascadeUse use) {
    force_cascades(use);
    const auto runtime = make_runtime({}, 0, 2);
    TestSession session(load(runtime, inverted_residual(16, 96)), "");
    run(session, in);
    return runtime->cpu().pool().stats().by_class[EVN_MEMORY_ARENAS];
  };
  const std::uint64_t whole = peak(CascadeUse::kNever), cascade = peak(CascadeUse::kAlways);
  EXPECT_GE(whole, 2u * 96 * 112 * 112 * 4);
  EXPECT_LT(cascade, whole / 2);
  // The lines count: a little less than they need is too little.
  const auto runtime = make_runtime({}, 2 << 20, 2);
  TestSession session(load(runtime, inverted_residual(16, 96)), "");
  try {
    run(session, in);
    FAIL() << "ran in 2 MiB";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY);
  }
}

TEST_F(CascadeTest, ARunWhoseTimeIsOverEnds) {
  force_cascades(CascadeUse::kAlways);
  const auto runtime = make_runtime({}, 0, 1);
  TestSession session(load(runtime, inverted_residual(16, 96)), "");
  const std::vector<TensorPtr> in = {to_tensor(runtime, random_tensor({1, 16, 80, 80}, 1)),
                                     to_tensor(runtime, random_tensor({1, 16, 80, 80}, 2))};
  std::vector<TensorPtr> out(1);
  try {
    run_tensors(session, in, out, 1);
    FAIL() << "ran in a nanosecond";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT);
  }
}

}  // namespace
}  // namespace evn::test::cascade_test
