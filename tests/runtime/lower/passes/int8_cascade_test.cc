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

// Drawn layer by layer, of QLinearConv and QLinearAdd.
class Network {
 public:
  Network(std::uint32_t seed, bool is_signed) : random_(seed), is_signed_(is_signed) {}

  OnnxWriter draw(bool thin, int blocks) {
    channels_ = thin ? pick({1, 3, 4}) : pick({16, 20, 35});
    input_channels_ = channels_;
    const std::int32_t type = is_signed_ ? kI8 : kU8;
    w_.import("com.microsoft", 1).add_input("x", type, {"N", channels_, "H", "W"}).add_output("y", type);
    std::string x = "x";
    scale_ = scalar(0.02f), zero_ = byte();
    if (thin) {
      const std::int64_t step = pick({1, 2});
      x = conv(x, pick({8, 16, 24}), 3, 3, {step, step}, false);
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
  const bool is_signed_;
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
    const std::int64_t k = pick({3, 5}), across = random_() % 4 == 0 ? 8 - k : k;
    const std::int64_t down = pick({1, 1, 2, 3}), right = random_() % 4 == 0 ? 1 : down;
    const bool sum = down == 1 && right == 1 && random_() % 2 == 0;
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

TEST_F(Int8CascadeTest, DrawnNetworksGiveTheReference) {
  int in_cascades = 0, sums = 0;
  for (const Isa isa : available_isas(true)) {
    SCOPED_TRACE(isa_name(isa));
    const ForcedIsa forced(isa);
    for (std::uint32_t seed = 0; seed < 24; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      const bool is_signed = seed % 3 == 0;
      Network network(seed, is_signed);
      const OnnxWriter w = network.draw(seed % 2 == 0, 1 + static_cast<int>(seed % 4));
      for (std::uint32_t i = 0; i < 2; ++i) {
        const std::int64_t height = network.pick({5, 9, 16, 23}), width = network.pick({5, 8, 17, 31});
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
          in_cascades += count_in_cascades(session);
          sums += count_in_cascades(session, "QLinearAdd");
        }
        if (want.empty()) continue;
        force_cascades(CascadeUse::kNever);
        TestSession session(load(make_runtime({}, 0, 2), w), "");
        EXPECT_EQ(bytes_of_tensor(run(session, in)[0]), want) << "one by one";
        EXPECT_EQ(count_in_cascades(session), 0);
      }
    }
  }
  EXPECT_GT(in_cascades, 300);
  EXPECT_GT(sums, 10);
}

// Channels that are no whole blocks and such that are, as quantizers write them: float operators between DequantizeLinear and
// QuantizeLinear.
OnnxWriter inverted_residual(std::int64_t channels, std::int64_t expanded, std::int64_t step) {
  std::mt19937 random(5);
  OnnxWriter w(13);
  const auto weight = [&](const std::string& name, const std::vector<std::int64_t>& dims) {
    std::int64_t n = 1;
    for (const std::int64_t d : dims) n *= d;
    std::vector<std::int8_t> values(static_cast<std::size_t>(n));
    for (std::int8_t& v : values) v = static_cast<std::int8_t>(random());
    w.add_initializer(name + "_8", dims, values).add_node("DequantizeLinear", {name + "_8", "ws", "wz"}, {name});
  };
  const auto through_bytes = [&](const std::string& name, const std::string& scale) {
    w.add_node("QuantizeLinear", {name, scale, "z"}, {name + "_q"})
        .add_node("DequantizeLinear", {name + "_q", scale, "z"}, {name + "_d"});
  };
  w.add_initializer("ws", {}, std::vector<float>{0.004f}).add_initializer("wz", {}, std::vector<std::int8_t>{0});
  w.add_initializer("s", {}, std::vector<float>{0.05f}).add_initializer("t", {}, std::vector<float>{0.02f});
  w.add_initializer("z", {}, std::vector<std::uint8_t>{7});
  w.add_input("x", kF32, {"N", channels, "H", "W"}).add_output("y", kF32);
  weight("expand", {expanded, channels, 1, 1});
  weight("depthwise", {expanded, 1, 3, 3});
  weight("project", {channels, expanded, 1, 1});
  through_bytes("x", "s");
  w.add_node("Conv", {"x_d", "expand"}, {"b"});
  through_bytes("b", "t");
  w.add_node(
      "Conv", {"b_d", "depthwise"}, {"c"},
      {{"group", expanded}, {"strides", std::vector<std::int64_t>{step, step}}, {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
  through_bytes("c", "t");
  w.add_node("Conv", {"c_d", "project"}, {"e"});
  through_bytes("e", "s");
  w.add_node("Identity", {"e_d"}, {"y"});
  return w;
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
