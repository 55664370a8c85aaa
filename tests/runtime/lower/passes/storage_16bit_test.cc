// Values that are kept as bfloat16 or float16 because all that read them round them: that they are found, and that no bit of a
// result changes beside a session in which they are kept as float32, as they are outputs too.
#include "backends/cpu/bfloat/bfloat_gemm_loops.h"
#include "tests/runtime/support.h"

namespace evn::test {
namespace {

class Storage16BitTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    if (simd_bfloat_gemm::loops(bfloat16_isa()).lanes == 0) GTEST_SKIP() << "no products of bfloat16 on this machine";
  }

  static std::vector<float> draw(std::int64_t count, std::uint64_t seed, float least = -1) {
    Random random(seed);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& v : values) v = random.uniform(least, 1);
    return values;
  }

  // A normalization that no convolution before it takes along, as it joins two, Relu, and a convolution.
  static OnnxWriter normalized(std::int64_t channels, bool is_output) {
    OnnxWriter w(13);
    w.add_input("x", kF32, {2, 16, 13, 11});
    for (const char* name : {"a", "b"}) {
      w.add_initializer(std::string("w") + name, {channels / 2, 16, 1, 1}, draw(channels * 8, name[0]));
      w.add_node("Conv", {"x", std::string("w") + name}, {name});
    }
    w.add_node("Concat", {"a", "b"}, {"both"}, {{"axis", std::int64_t{1}}});
    normalize(&w, "both", channels);
    w.add_initializer("w", {48, channels, 1, 1}, draw(48 * channels, 9));
    w.add_node("Conv", {"positive", "w"}, {"y"});
    w.add_output("y", kF32);
    if (is_output) w.add_output("positive", kF32);
    return w;
  }

  // The same of a matrix, before a product.
  static OnnxWriter normalized_rows(std::int64_t channels, bool is_output) {
    OnnxWriter w(13);
    w.add_input("x", kF32, {7, channels});
    normalize(&w, "x", channels);
    w.add_initializer("w", {channels, 48}, draw(48 * channels, 9));
    w.add_node("MatMul", {"positive", "w"}, {"y"});
    w.add_output("y", kF32);
    if (is_output) w.add_output("positive", kF32);
    return w;
  }

  static OnnxWriter layers(bool is_output) {
    OnnxWriter w(17);
    w.add_input("x", kF32, {3, 5, 96});
    w.add_initializer("scale", {96}, draw(96, 2));
    w.add_initializer("bias", {96}, draw(96, 3));
    w.add_node("LayerNormalization", {"x", "scale", "bias"}, {"normal"});
    for (const char* name : {"y", "z"}) {
      w.add_initializer(std::string("w") + name, {96, 48}, draw(96 * 48, name[0]));
      w.add_node("MatMul", {"normal", std::string("w") + name}, {name});
      w.add_output(name, kF32);
    }
    if (is_output) w.add_output("normal", kF32);
    return w;
  }

  static void normalize(OnnxWriter* w, const std::string& x, std::int64_t channels) {
    std::vector<std::string> inputs = {x};
    for (const char* name : {"scale", "bias", "mean", "variance"}) {
      inputs.push_back(name);
      w->add_initializer(name, {channels}, draw(channels, inputs.size(), inputs.size() == 5 ? 0.5f : -1));
    }
    w->add_node("BatchNormalization", inputs, {"normal"});
    w->add_node("Relu", {"normal"}, {"positive"});
  }

  static std::int64_t count(const Session& session) {
    const std::vector<bool>& stored_16bit = session.compiled().stored_16bit;
    return std::count(stored_16bit.begin(), stored_16bit.end(), true);
  }

  // One value of the first network is kept as bfloat16, and none of the second.
  static void check(const OnnxWriter& with, const OnnxWriter& wide, const Shape& x) {
    SessionRequest bf16("");
    bf16.precision = Precision::kBfloat16;
    for (const int threads : {1, 3}) {
      const auto runtime = make_runtime({}, 0, threads);
      TestSession one(load(runtime, with), bf16), other(load(runtime, wide), bf16);
      EXPECT_EQ(count(one), 1);
      EXPECT_EQ(count(other), 0);
      const std::vector<HostTensor> in = {random_tensor(x, 3, -1, 1)};
      const std::vector<HostTensor> got = run(one, in), want = run(other, in);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].desc, want[i].desc);
        EXPECT_EQ(std::memcmp(got[i].bytes.data(), want[i].bytes.data(), want[i].desc.size_bytes()), 0);
      }
    }
  }
};

TEST_F(Storage16BitTest, ANormalizationBeforeAProduct) { check(normalized_rows(96, false), normalized_rows(96, true), {7, 96}); }

TEST_F(Storage16BitTest, ALayerNormalizationBeforeTwoProducts) { check(layers(false), layers(true), {3, 5, 96}); }

TEST_F(Storage16BitTest, ANormalizationBeforeAConvolution) {
  for (const std::int64_t channels : {32, 48, 2080})
    check(normalized(channels, false), normalized(channels, true), {2, 16, 13, 11});
}

// Products of two precisions never hand such values to each other. Where the CPU lacks a precision, nodes stay float32, which these
// tests then are about.
class Storage16BitChainTest : public RuntimeTest, public testing::WithParamInterface<Precision> {
 protected:
  static constexpr std::int64_t kWidth = 96;

  // y = relu(x w1) w2, where the value between may be an output, and so float32, too.
  static OnnxWriter chain(bool shows_between) {
    OnnxWriter w(13);
    w.add_input("x", kF32, {"N", kWidth}).add_output("y", kF32);
    if (shows_between) w.add_output("b", kF32);
    std::mt19937 random(5);
    std::uniform_real_distribution<float> draw(-0.3f, 0.3f);
    std::vector<float> weight(static_cast<std::size_t>(kWidth * kWidth));
    for (const char* name : {"w1", "w2"}) {
      for (float& v : weight) v = draw(random);
      w.add_initializer(name, {kWidth, kWidth}, weight);
    }
    w.add_node("MatMul", {"x", "w1"}, {"a"}, {}, "first");
    w.add_node("Relu", {"a"}, {"b"});
    w.add_node("MatMul", {"b", "w2"}, {"y"}, {}, "second");
    return w;
  }

  static std::vector<float> result(const OnnxWriter& w, Precision precision, Config config = {}) {
    SessionRequest request("");
    request.precision = precision;
    TestSession session(load(make_runtime(std::move(config)), w), request);
    const HostTensor y = run(session, {random_tensor({37, kWidth}, 3)})[0];
    return {y.as<float>().begin(), y.as<float>().end()};
  }
};

TEST_P(Storage16BitChainTest, NoBitOfAnOperandIsLost) {
  EXPECT_EQ(result(chain(false), GetParam()), result(chain(true), GetParam()));
}

TEST_P(Storage16BitChainTest, AnotherPrecisionReadsFloats) {
  for (const char* node : {"first", "second"}) {
    for (const Precision other : {Precision::kFloat32, Precision::kBfloat16, Precision::kFloat16}) {
      Config config;
      PlacementRule r = rule({}, {node}, "cpu", Policy::kRequire, 1);
      r.precision = other;
      config.rules = {r};
      EXPECT_EQ(result(chain(false), GetParam(), config), result(chain(true), GetParam(), config))
          << node << " " << precision_name(other);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Storage16BitChainTest, testing::Values(Precision::kBfloat16, Precision::kFloat16),
                         [](const auto& i) { return std::string(precision_name(i.param)); });

}  // namespace
}  // namespace evn::test
