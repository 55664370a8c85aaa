// int8 convolutions that run as a cascade give the bytes of the reference, whatever their sizes, numbers, threads and instruction
// sets.
#include "tests/runtime/support.h"
#include "tests/support/forced_cascades.h"
#include "tests/support/isas.h"

namespace evn::test::int8_cascade_test {
namespace {

class Int8CascadeTest : public RuntimeTest {
 protected:
  ~Int8CascadeTest() override { force_cascades(CascadeUse::kWhereItPays); }
};

std::vector<std::uint8_t> bytes_of_tensor(const HostTensor& t) {
  const auto* const p = reinterpret_cast<const std::uint8_t*>(t.bytes.data());
  return {p, p + t.desc.size_bytes()};
}

int count_in_cascades(const Session& session, const std::string& what = "conv_cascade") {
  const std::string text = explain(session, EVN_FORMAT_TEXT);
  int count = 0;
  for (std::size_t at = text.find("conv_cascade"); at != std::string::npos; at = text.find("conv_cascade", at + 1)) {
    const std::size_t line = text.rfind('\n', at) + 1;
    count += text.substr(line, text.find('\n', at) - line).find(what) != std::string::npos ? 1 : 0;
  }
  return count;
}

HostTensor random_bytes(bool is_signed, const Shape& shape, std::uint32_t seed) {
  HostTensor t({is_signed ? DType::kInt8 : DType::kUint8, shape});
  std::mt19937 random(seed);
  for (std::uint8_t& v : t.as<std::uint8_t>()) v = static_cast<std::uint8_t>(random());
  return t;
}

// Drawn layer by layer, of QLinearConv and QLinearAdd. `skips`: many strides are larger than their kernels, so that lines are
// skipped.
class Network {
 public:
  Network(std::uint32_t seed, bool is_signed, bool skips) : random_(seed), is_signed_(is_signed), skips_(skips) {}

  OnnxWriter draw(bool thin, int blocks) {
    channels_ = thin ? pick({1, 3, 4}) : pick({16, 20, 35});
    input_channels_ = channels_;
    const std::int32_t type = is_signed_ ? kI8 : kU8;
    w_.import("com.microsoft", 1).add_input("x", type, {"N", channels_, "H", "W"}).add_output("y", type);
    std::string x = "x";
    scale_ = scalar(0.02f), zero_ = byte();
    if (thin) {
      const std::int64_t k = skips_ ? pick({1, 2}) : 3, step = pick({1, 2}), down = skips_ ? pick({2, 3, 8}) : step;
      x = conv(x, pick({8, 16, 24}), k, k, {down, step}, false);
    }
    for (int i = 0; i < blocks; ++i) x = block(x);
    w_.add_node("MaxPool", {x}, {"y"}, {{"kernel_shape", std::vector<std::int64_t>{1, 1}}});
    return std::move(w_);
  }

  std::int64_t input_channels() const { return input_channels_; }
  std::int64_t pick(std::initializer_list<std::int64_t> from) { return from.begin()[random_() % from.size()]; }

 private:
  std::mt19937 random_;
  OnnxWriter w_{13};
  const bool is_signed_, skips_;
  int values_ = 0;
  std::int64_t channels_ = 0, input_channels_ = 0;
  std::string scale_, zero_;  // of the value that came last

  std::string name() { return "v" + std::to_string(values_++); }

  template <typename T>
  std::string constant(const std::vector<std::int64_t>& dims, const std::vector<T>& values) {
    const std::string as = name();
    w_.add_initializer(as, dims, values);
    return as;
  }
  std::string scalar(float value) { return constant<float>({}, {value}); }
  std::string byte() {
    const auto value = static_cast<std::uint8_t>(random_() % 2 == 0 ? 0 : random_());
    return is_signed_ ? constant<std::int8_t>({}, {static_cast<std::int8_t>(value)}) : constant<std::uint8_t>({}, {value});
  }
  template <typename T>
  std::vector<T> drawn(std::int64_t n) {
    std::vector<T> values(static_cast<std::size_t>(n));
    for (T& v : values) v = static_cast<T>(random_());
    return values;
  }

  std::string conv(const std::string& x, std::int64_t out, std::int64_t kh, std::int64_t kw, const std::vector<std::int64_t>& steps,
                   bool depthwise) {
    const std::int64_t in = depthwise ? 1 : channels_, taps = in * kh * kw;
    const std::vector<std::int64_t> dims = {out, in, kh, kw};
    const bool plain_weight = random_() % 3 != 0, by_channel = random_() % 2 == 0;
    std::vector<float> scales(static_cast<std::size_t>(by_channel ? out : 1));
    for (float& s : scales)
      s = std::uniform_real_distribution<float>(0.5f, 2.0f)(random_) * 0.02f / std::sqrt(static_cast<float>(taps));
    const std::vector<std::int64_t> scale_dims = by_channel ? std::vector<std::int64_t>{out} : std::vector<std::int64_t>{};
    std::vector<std::string> inputs = {x, scale_, random_() % 8 == 0 ? byte() : zero_};
    if (plain_weight) {
      inputs.push_back(constant(dims, drawn<std::int8_t>(out * taps)));
      inputs.insert(inputs.end(), {constant(scale_dims, scales), constant<std::int8_t>({}, {0})});
    } else {
      inputs.push_back(constant(dims, drawn<std::uint8_t>(out * taps)));
      inputs.insert(inputs.end(),
                    {constant(scale_dims, scales), constant<std::uint8_t>({}, {static_cast<std::uint8_t>(random_())})});
    }
    scale_ = scalar(0.02f), zero_ = byte();
    inputs.insert(inputs.end(), {scale_, zero_});
    if (random_() % 4 != 0) {
      const int most = random_() % 6 == 0 ? 1 << 24 : 5000;  // sums of some have no place in a float
      std::vector<std::int32_t> bias(static_cast<std::size_t>(out));
      for (std::int32_t& b : bias) b = std::uniform_int_distribution<std::int32_t>(-most, most)(random_);
      inputs.push_back(constant({out}, bias));
    }
    const std::string y = name();
    const std::int64_t top = depthwise && random_() % 4 == 0 ? 0 : kh / 2;
    w_.add_node("QLinearConv", inputs, {y},
                {{"group", depthwise ? out : std::int64_t{1}},
                 {"strides", steps},
                 {"pads", std::vector<std::int64_t>{top, kw / 2, kh / 2, kw / 2}}});
    channels_ = out;
    return y;
  }

  // Expanding, depthwise, projecting; the last of them onto what came in, where that fits.
  std::string block(const std::string& x) {
    const std::int64_t in = channels_;
    const std::string x_scale = scale_, x_zero = zero_;
    const std::int64_t k = skips_ ? pick({1, 2, 3}) : pick({3, 5}), across = random_() % 4 == 0 ? 8 - k : k;
    const std::int64_t down = skips_ ? pick({1, 2, 3, 8}) : pick({1, 1, 2, 3}), right = random_() % 4 == 0 ? 1 : down;
    const bool sum = down == 1 && right == 1 && k % 2 == 1 && random_() % 2 == 0;
    std::string y = random_() % 3 != 0 ? conv(x, pick({24, 40, 96, 144}), 1, 1, {1, 1}, false) : x;
    if (channels_ >= 8) y = conv(y, channels_, k, across, {down, right}, true);
    if (random_() % 4 == 0) return y;
    y = conv(y, sum ? in : pick({16, 21, 64}), 1, 1, {1, 1}, false);
    if (!sum) return y;
    const std::string z = name(), to_scale = scalar(0.03f), to_zero = byte();
    w_.add_node("QLinearAdd", {y, scale_, zero_, x, x_scale, x_zero, to_scale, to_zero}, {z}, {}, "", "com.microsoft");
    scale_ = to_scale, zero_ = to_zero;
    return z;
  }
};

struct Found {
  int in_cascades = 0, sums = 0;
};

// Drawn networks with cascades and without, each with so many inputs.
Found compare_drawn(std::uint32_t seeds, std::uint32_t inputs, bool skips) {
  Found found;
  for (const Isa isa : available_isas(true)) {
    SCOPED_TRACE(isa_name(isa));
    const ForcedIsa forced(isa);
    for (std::uint32_t seed = 0; seed < seeds; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      const bool is_signed = seed % 3 == 0;
      Network network(seed, is_signed, skips);
      const OnnxWriter w = network.draw(seed % 2 == 0, 1 + static_cast<int>(seed % 4));
      for (std::uint32_t i = 0; i < inputs; ++i) {
        const std::int64_t height = skips ? network.pick({40, 97}) : network.pick({5, 9, 16, 23}),
                           width = skips ? network.pick({17, 33}) : network.pick({5, 8, 17, 31});
        const std::vector<HostTensor> in = {
            random_bytes(is_signed, {network.pick({1, 1, 2}), network.input_channels(), height, width}, seed * 10 + i)};
        std::vector<std::uint8_t> want;
        force_cascades(CascadeUse::kAlways);
        for (const int threads : {1, 3}) {
          const ModelPtr model = load(make_runtime({}, 0, threads), w);
          TestSession session(model, "");
          try {
            if (want.empty()) want = bytes_of_tensor(GraphRunner(model->graph()).run(in)[0]);
          } catch (const Error&) {  // steps and kernels without pads left nothing of it
            EXPECT_THROW(run(session, in), Error);
            break;
          }
          EXPECT_EQ(bytes_of_tensor(run(session, in)[0]), want) << threads << " threads";
          found.in_cascades += count_in_cascades(session);
          found.sums += count_in_cascades(session, "QLinearAdd");
        }
        if (want.empty()) continue;
        force_cascades(CascadeUse::kNever);
        TestSession session(load(make_runtime({}, 0, 2), w), "");
        EXPECT_EQ(bytes_of_tensor(run(session, in)[0]), want) << "one by one";
        EXPECT_EQ(count_in_cascades(session), 0);
      }
    }
  }
  return found;
}

TEST_F(Int8CascadeTest, DrawnNetworksGiveTheReference) {
  const Found found = compare_drawn(24, 2, false);
  EXPECT_GT(found.in_cascades, 300);
  EXPECT_GT(found.sums, 10);
}

TEST_F(Int8CascadeTest, DrawnNetworksThatSkipLinesGiveTheReference) { EXPECT_GT(compare_drawn(12, 1, true).in_cascades, 30); }

// A model as quantizers write it: float operators between DequantizeLinear and QuantizeLinear. `scale` is "s" or "t".
class QuantizedModel {
 public:
  explicit QuantizedModel(std::int64_t channels) {
    w_.add_initializer("ws", {}, std::vector<float>{0.004f}).add_initializer("wz", {}, std::vector<std::int8_t>{0});
    w_.add_initializer("s", {}, std::vector<float>{0.05f}).add_initializer("t", {}, std::vector<float>{0.02f});
    w_.add_initializer("z", {}, std::vector<std::uint8_t>{7});
    w_.add_input("x", kF32, {"N", channels, "H", "W"}).add_output("y", kF32);
    through_bytes("x", "s");
  }

  // A Conv of the value that came last.
  void conv(const std::string& name, const std::vector<std::int64_t>& weight, const std::vector<Attr>& attributes,
            const std::string& scale) {
    std::int64_t n = 1;
    for (const std::int64_t d : weight) n *= d;
    std::vector<std::int8_t> values(static_cast<std::size_t>(n));
    for (std::int8_t& v : values) v = static_cast<std::int8_t>(random_());
    w_.add_initializer(name + "_w8", weight, values).add_node("DequantizeLinear", {name + "_w8", "ws", "wz"}, {name + "_w"});
    w_.add_node("Conv", {last_, name + "_w"}, {name}, attributes);
    through_bytes(name, scale);
  }

  OnnxWriter finish() {
    w_.add_node("Identity", {last_}, {"y"});
    return std::move(w_);
  }

 private:
  std::mt19937 random_{5};
  OnnxWriter w_{13};
  std::string last_;

  void through_bytes(const std::string& name, const std::string& scale) {
    last_ = name + "_d";
    w_.add_node("QuantizeLinear", {name, scale, "z"}, {name + "_q"})
        .add_node("DequantizeLinear", {name + "_q", scale, "z"}, {last_});
  }
};

// Channels that are no whole blocks and such that are.
OnnxWriter inverted_residual(std::int64_t channels, std::int64_t expanded, std::int64_t step) {
  QuantizedModel model(channels);
  model.conv("expand", {expanded, channels, 1, 1}, {}, "t");
  model.conv(
      "depthwise", {expanded, 1, 3, 3},
      {{"group", expanded}, {"strides", std::vector<std::int64_t>{step, step}}, {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}},
      "t");
  model.conv("project", {channels, expanded, 1, 1}, {}, "s");
  return model.finish();
}

// The lines that the last stage skips are made by neither of the two before it.
TEST_F(Int8CascadeTest, LinesThatADepthwiseLayerSkipsTakeNoMemory) {
  struct Sizes {
    std::int64_t channels, first, second, size, stride;
  };
  for (const Isa isa : available_isas(true)) {
    SCOPED_TRACE(isa_name(isa));
    const ForcedIsa forced(isa);
    for (const auto& [channels, first, second, size, stride] : {Sizes{48, 48, 8, 160, 8}, {16, 32, 32, 112, 2}}) {
      for (const std::int64_t kernel : {1, 2}) {
        SCOPED_TRACE(std::to_string(kernel) + " x " + std::to_string(kernel) + ", stride " + std::to_string(stride));
        QuantizedModel quantized(channels);
        quantized.conv("a", {first, channels, 1, 1}, {}, "t");
        quantized.conv("b", {second, first, 1, 1}, {}, "t");
        quantized.conv("c", {second, 1, kernel, kernel},
                       {{"group", second}, {"strides", std::vector<std::int64_t>{stride, stride}}}, "s");
        const OnnxWriter w = quantized.finish();
        const std::vector<HostTensor> in = {random_tensor({1, channels, size, size}, 1)};
        force_cascades(CascadeUse::kNever);
        TestSession one_by_one(load(make_runtime({}, 0, 1), w), "");
        const std::vector<std::uint8_t> want = bytes_of_tensor(run(one_by_one, in)[0]);
        force_cascades(CascadeUse::kAlways);
        for (const int threads : {1, 3}) {
          TestSession session(load(make_runtime({}, 0, threads), w), "");
          EXPECT_EQ(bytes_of_tensor(run(session, in)[0]), want) << threads << " threads";
          EXPECT_EQ(count_in_cascades(session), 3) << threads << " threads";
        }
      }
    }
  }
}

TEST_F(Int8CascadeTest, QuantizedFloatOperatorsAreCascadesWhereImagesAreLarge) {
  for (const Isa isa : available_isas(true)) {
    SCOPED_TRACE(isa_name(isa));
    const ForcedIsa forced(isa);
    for (const std::int64_t step : {1, 2}) {
      for (const auto& [channels, expanded] : {std::pair<std::int64_t, std::int64_t>{16, 96}, {12, 90}}) {
        const ModelPtr model = load(make_runtime({}, 0, 2), inverted_residual(channels, expanded, step));
        TestSession session(model, "");
        for (const std::int64_t size : {9, 110}) {
          const std::vector<HostTensor> in = {random_tensor({1, channels, size, size}, 1)};
          EXPECT_EQ(bytes_of_tensor(run(session, in)[0]), bytes_of_tensor(GraphRunner(model->graph()).run(in)[0])) << size;
          EXPECT_EQ(count_in_cascades(session), size == 110 ? 3 : 0);
        }
      }
    }
  }
}

TEST_F(Int8CascadeTest, RespecializedPlansGiveTheSameBytes) {
  force_cascades(CascadeUse::kAlways);
  std::mt19937 random(3);
  const ModelPtr model = load(make_runtime({}, 0, 2), inverted_residual(12, 90, 1));
  TestSession session(model, "");
  for (int turn = 0; turn < 10; ++turn) {
    const std::int64_t height = 3 + static_cast<std::int64_t>(random() % 20), width = 4 + static_cast<std::int64_t>(random() % 20);
    const std::vector<HostTensor> in = {random_tensor({1, 12, height, width}, random())};
    EXPECT_EQ(bytes_of_tensor(run(session, in)[0]), bytes_of_tensor(GraphRunner(model->graph()).run(in)[0]));
    EXPECT_EQ(count_in_cascades(session), 3);
  }
}

TEST_F(Int8CascadeTest, WhatLiesBetweenTakesAFewLinesOfMemory) {
  const std::vector<HostTensor> in = {random_tensor({1, 16, 112, 112}, 1)};
  const auto peak = [&](CascadeUse use) {
    force_cascades(use);
    const auto runtime = make_runtime({}, 0, 1);
    TestSession session(load(runtime, inverted_residual(16, 96, 2)), "");
    run(session, in);
    return runtime->cpu().pool().stats().by_class[EVN_MEMORY_ARENAS];
  };
  const std::uint64_t whole = peak(CascadeUse::kNever), cascade = peak(CascadeUse::kWhereItPays);
  EXPECT_GE(whole, 96u * 112 * 112);
  EXPECT_LT(cascade, whole * 3 / 4);
}

}  // namespace
}  // namespace evn::test::int8_cascade_test
