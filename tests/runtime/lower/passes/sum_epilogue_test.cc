// Sums that a kernel computes together with the node before them, and values in the layout that kernels ask for: the results are
// those of nodes that run one by one on plain values.
#include "tests/runtime/support.h"
#include "tests/support/isas.h"

namespace evn::test {
namespace {

constexpr std::int64_t kChannels = 20;

class SumEpilogueTest : public RuntimeTest {
 protected:
  OnnxWriter w_{13};
  std::mt19937 random_{11};

  void weight(const char* name, const std::vector<std::int64_t>& dims) {
    std::int64_t n = 1;
    for (const std::int64_t d : dims) n *= d;
    std::vector<float> values(static_cast<std::size_t>(n));
    std::uniform_real_distribution<float> draw(-0.5f, 0.5f);
    for (float& v : values) v = draw(random_);
    w_.add_initializer(name, dims, values);
  }

  void conv(const char* x, const char* w, const char* y) {
    w_.add_node("Conv", {x, w}, {y}, {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
  }

  // Runs on several shapes against the reference. Says how many Adds ran with the node before them.
  int check(const std::vector<std::vector<HostTensor>>& inputs) {
    const auto runtime = make_runtime();
    const ModelPtr model = load(runtime, w_);
    TestSession session(model, "");
    for (const std::vector<HostTensor>& in : inputs) expect_close(run(session, in), GraphRunner(model->graph()).run(in));
    const std::string text = session.explain(EVN_FORMAT_TEXT);
    int absorbed = 0;
    for (std::size_t at = 0; (at = text.find("  Add ", at)) != std::string::npos; ++at) {
      const std::string line = text.substr(at, text.find('\n', at) - at);
      absorbed += line.find("conv_") != std::string::npos || line.find("_packed") != std::string::npos ||
                  line.find("matmul_nbits") != std::string::npos;
    }
    return absorbed;
  }

  static std::vector<HostTensor> image(std::int64_t batch, std::int64_t height, std::int64_t width) {
    return {random_tensor({batch, kChannels, height, width}, static_cast<std::uint64_t>(batch * 100 + height))};
  }
};

TEST_F(SumEpilogueTest, ResidualOfConv) {
  w_.add_input("x", kF32, {"N", kChannels, "H", "W"}).add_output("y", kF32);
  weight("w1", {kChannels, kChannels, 3, 3});
  weight("w2", {kChannels, kChannels, 3, 3});
  conv("x", "w1", "a");
  w_.add_node("Relu", {"a"}, {"b"});
  conv("b", "w2", "c");
  w_.add_node("Add", {"c", "x"}, {"d"});
  w_.add_node("Relu", {"d"}, {"y"});
  EXPECT_EQ(check({image(1, 5, 7), image(2, 14, 14), image(1, 1, 1), image(1, 33, 20)}), 1);
}

TEST_F(SumEpilogueTest, TheLaterOfTwoConvsTakesTheSum) {
  w_.add_input("x", kF32, {"N", kChannels, "H", "W"}).add_output("y", kF32);
  weight("w1", {kChannels, kChannels, 3, 3});
  weight("w2", {kChannels, kChannels, 3, 3});
  conv("x", "w1", "a");
  w_.add_node("Neg", {"x"}, {"n"});  // of one value merge_convolutions would make one convolution
  conv("n", "w2", "b");
  w_.add_node("Add", {"a", "b"}, {"y"});
  EXPECT_EQ(check({image(1, 9, 9), image(3, 4, 6)}), 1);
}

TEST_F(SumEpilogueTest, BiasAndResidualOfConv) {
  w_.add_input("x", kF32, {"N", kChannels, "H", "W"}).add_output("y", kF32);
  weight("w", {kChannels, kChannels, 3, 3});
  weight("k", {kChannels, 1, 1});
  conv("x", "w", "a");
  w_.add_node("Add", {"k", "a"}, {"b"});
  w_.add_node("Add", {"b", "x"}, {"y"});
  EXPECT_GE(check({image(1, 9, 9), image(2, 20, 17)}), 1);
}

TEST_F(SumEpilogueTest, ASumOfAnotherShapeRunsAlone) {
  w_.add_input("x", kF32, {"N", kChannels, "H", "W"}).add_input("r", kF32, {"N", kChannels, "P", "Q"}).add_output("y", kF32);
  weight("w", {kChannels, kChannels, 3, 3});
  conv("x", "w", "a");
  w_.add_node("Add", {"a", "r"}, {"y"});
  EXPECT_EQ(check({{image(1, 9, 9)[0], random_tensor({1, kChannels, 1, 1}, 3)},
                   {image(1, 9, 9)[0], random_tensor({1, kChannels, 1, 9}, 3)}}),
            0);
  EXPECT_EQ(check({{image(1, 9, 9)[0], random_tensor({1, kChannels, 1, 1}, 3)},
                   {image(1, 9, 9)[0], random_tensor({1, kChannels, 9, 9}, 3)}}),
            1);
}

TEST_F(SumEpilogueTest, WhatIsReadElsewhereOrAddedToItselfStays) {
  w_.add_input("x", kF32, {"N", kChannels, "H", "W"}).add_output("y", kF32).add_output("a", kF32).add_output("z", kF32);
  weight("w", {kChannels, kChannels, 3, 3});
  conv("x", "w", "a");
  w_.add_node("Add", {"a", "x"}, {"y"});
  conv("y", "w", "b");
  w_.add_node("Add", {"b", "b"}, {"z"});
  EXPECT_EQ(check({image(1, 9, 9), image(2, 3, 4)}), 0);
}

TEST_F(SumEpilogueTest, BiasAndResidualOfMatMul) {
  w_.add_input("x", kF32, {"N", "S", 24}).add_output("y", kF32);
  weight("w1", {24, 40});
  weight("b1", {40});
  weight("w2", {40, 24});
  weight("b2", {1, 24});
  w_.add_node("MatMul", {"x", "w1"}, {"a"});
  w_.add_node("Add", {"a", "b1"}, {"b"});
  w_.add_node("Relu", {"b"}, {"c"});
  w_.add_node("MatMul", {"c", "w2"}, {"d"});
  w_.add_node("Add", {"b2", "d"}, {"e"});
  w_.add_node("Add", {"x", "e"}, {"y"});
  EXPECT_EQ(check({{random_tensor({1, 5, 24}, 1)}, {random_tensor({3, 70, 24}, 2)}, {random_tensor({1, 1, 24}, 3)}}), 3);
}

// What is added stands where a node without zero points or bias has none.
TEST_F(SumEpilogueTest, ResidualOfMatMulNBits) {
  w_.import("com.microsoft", 1).add_input("x", kF32, {"N", "S", 32}).add_output("y", kF32);
  std::vector<std::uint8_t> elements(32 * 16);
  for (std::uint8_t& e : elements) e = static_cast<std::uint8_t>(random_());
  w_.add_initializer("w", {32, 1, 16}, elements);
  weight("s", {32, 1});
  const std::vector<Attr> dims{{"K", 32}, {"N", 32}, {"block_size", 32}};
  w_.add_node("MatMulNBits", {"x", "w", "s"}, {"a"}, dims, "first", "com.microsoft");
  w_.add_node("Add", {"a", "x"}, {"b"});
  weight("bias", {32});
  w_.add_node("MatMulNBits", {"b", "w", "s", "", "", "bias"}, {"c"}, dims, "second", "com.microsoft");
  w_.add_node("Add", {"c", "b"}, {"y"});
  EXPECT_EQ(check({{random_tensor({1, 1, 32}, 1)}, {random_tensor({3, 20, 32}, 2)}, {random_tensor({1, 3, 32}, 3)}}), 2);
}

// The weight's columns are its first axis here: a sum that widens the product is no bias of it. The other one is folded before.
TEST_F(SumEpilogueTest, SumsOfGemmByATransposedWeight) {
  w_.add_input("x", kF32, {"N", 5}).add_output("wide", kF32).add_output("y", kF32);
  weight("column", {1, 5});
  weight("five", {5});
  weight("w", {7, 5});
  weight("seven", {7});
  w_.add_node("Gemm", {"x", "column"}, {"a"}, {{"transB", 1}});
  w_.add_node("Add", {"a", "five"}, {"wide"});
  w_.add_node("Gemm", {"x", "w"}, {"b"}, {{"transB", 1}});
  w_.add_node("Add", {"b", "seven"}, {"y"});
  EXPECT_EQ(check({{random_tensor({3, 5}, 1)}, {random_tensor({1, 5}, 2)}}), 0);
}

// What reads channels-last values: a graph output, views, kernels of plain values, a body's worth of users of both layouts.
TEST_F(SumEpilogueTest, ValuesAreReadInBothLayouts) {
  w_.add_input("x", kF32, {"N", kChannels, "H", "W"})
      .add_output("a", kF32)
      .add_output("t", kF32)
      .add_output("f", kF32)
      .add_output("g", kF32);
  weight("w", {kChannels, kChannels, 3, 3});
  conv("x", "w", "a");
  w_.add_node("Transpose", {"a"}, {"t"}, {{"perm", std::vector<std::int64_t>{3, 1, 0, 2}}});
  w_.add_node("Flatten", {"a"}, {"f"}, {{"axis", 2}});
  conv("a", "w", "b");
  w_.add_node("GlobalAveragePool", {"b"}, {"p"});
  w_.add_node("Flatten", {"p"}, {"g"});
  check({image(1, 9, 9), image(2, 3, 4), image(1, 1, 1)});
}

// ------------------------------------------------------------------------------------------------------------ bytes --

// y = QLinearAdd(QLinearConv(x), r), of the type of x; numbers are scalars' names.
class Int8SumEpilogueTest : public RuntimeTest {
 protected:
  struct Form {
    bool is_signed = false, conv_is_second = false, has_bias = true, has_zeros = true, other_zero = false;
    float sum_scale = 0.05f;
    const char* between = nullptr;  // an operator on bytes
    bool adds_its_input = false;    // in place of r
  };

  OnnxWriter w_{13};

  template <typename T>
  void scalar(const char* name, T value) {
    w_.add_initializer(name, {}, std::vector<T>{value});
  }

  template <typename T>
  void make(const Form& f, const std::vector<Dim>& r_dims) {
    const std::int32_t type = f.is_signed ? kI8 : kU8;
    w_.import("com.microsoft", 1)
        .add_input("x", type, {"N", kChannels, "H", "W"})
        .add_input("r", type, r_dims)
        .add_output("y", type);
    std::mt19937 random(7);
    std::vector<std::int8_t> weight(static_cast<std::size_t>(kChannels * kChannels * 9));
    for (std::int8_t& v : weight) v = static_cast<std::int8_t>(random());
    w_.add_initializer("w", {kChannels, kChannels, 3, 3}, weight);
    scalar("xs", 0.02f), scalar("ws", 0.01f), scalar("cs", 0.03f), scalar("rs", 0.04f), scalar("ys", f.sum_scale);
    scalar("xz", static_cast<T>(3)), scalar("wz", std::int8_t{0}), scalar("cz", static_cast<T>(60)),
        scalar("rz", static_cast<T>(9));
    scalar("az", static_cast<T>(f.other_zero ? 55 : 60)), scalar("yz", static_cast<T>(20));
    const std::string x = f.adds_its_input ? "first" : "x", r = f.adds_its_input ? "first" : "r";
    const std::vector<Attr> pads = {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}};
    if (f.adds_its_input) w_.add_node("QLinearConv", {"x", "xs", "xz", "w", "ws", "wz", "rs", "rz"}, {"first"}, pads);
    std::vector<std::string> in = {x, "xs", "xz", "w", "ws", "wz", "cs", "cz"};
    if (f.has_bias) {
      w_.add_initializer("b", {kChannels}, std::vector<std::int32_t>(kChannels, 900));
      in.push_back("b");
    }
    w_.add_node("QLinearConv", in, {"c"}, pads);
    if (f.between != nullptr) w_.add_node(f.between, {"c"}, {"m"});
    const std::string c = f.between != nullptr ? "m" : "c", az = f.has_zeros ? "az" : "", rz = f.has_zeros ? "rz" : "";
    const std::vector<std::string> sum = f.conv_is_second ? std::vector<std::string>{r, "rs", rz, c, "cs", az, "ys"}
                                                          : std::vector<std::string>{c, "cs", az, r, "rs", rz, "ys"};
    w_.add_node("QLinearAdd", sum, {"y"}, {}, "sum", "com.microsoft");
  }

  static HostTensor bytes(const Form& f, const Shape& shape, std::uint32_t seed) {
    HostTensor t({f.is_signed ? DType::kInt8 : DType::kUint8, shape});
    std::mt19937 random(seed);
    for (std::uint8_t& v : t.as<std::uint8_t>()) v = static_cast<std::uint8_t>(random());
    return t;
  }

  // Runs on several shapes against the reference, byte by byte. Whether the sum ran with the convolution in the last one.
  bool check(const Form& f, const std::vector<std::pair<Shape, Shape>>& shapes) {
    const auto runtime = make_runtime();
    const ModelPtr model = load(runtime, w_);
    TestSession session(model, "");
    for (const auto& [x, r] : shapes) {
      const std::vector<HostTensor> in = {bytes(f, x, 1), bytes(f, r, 2)};
      const std::vector<HostTensor> got = run(session, in), want = GraphRunner(model->graph()).run(in);
      EXPECT_EQ(std::vector<std::uint8_t>(got[0].as<std::uint8_t>().begin(), got[0].as<std::uint8_t>().end()),
                std::vector<std::uint8_t>(want[0].as<std::uint8_t>().begin(), want[0].as<std::uint8_t>().end()))
          << x.to_string();
    }
    const std::string text = session.explain(EVN_FORMAT_TEXT);
    const std::size_t at = text.find("QLinearAdd");
    EXPECT_NE(at, std::string::npos) << text;
    return text.substr(at, text.find('\n', at) - at).find("qlinear_conv_") != std::string::npos;
  }

  bool check(const Form& f) {
    f.is_signed ? make<std::int8_t>(f, {"N", kChannels, "H", "W"}) : make<std::uint8_t>(f, {"N", kChannels, "H", "W"});
    const Shape a = {1, kChannels, 5, 7}, b = {2, kChannels, 14, 14}, c = {1, kChannels, 1, 1};
    return check(f, {{a, a}, {b, b}, {c, c}});
  }
};

TEST_F(Int8SumEpilogueTest, ResidualOfUint8) { EXPECT_TRUE(check({})); }
TEST_F(Int8SumEpilogueTest, ResidualOfInt8) { EXPECT_TRUE(check({.is_signed = true, .conv_is_second = true})); }
// By direct products and by transforms.
TEST_F(Int8SumEpilogueTest, ResidualOnEveryInstructionSet) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(isa_name(isa));
    const ForcedIsa forced(isa);
    w_ = OnnxWriter(13);
    EXPECT_TRUE(check({.is_signed = true}));
  }
}
TEST_F(Int8SumEpilogueTest, TheResidualIsNoBias) { EXPECT_TRUE(check({.has_bias = false})); }
// Windows still read what a sum in its place would have written over.
TEST_F(Int8SumEpilogueTest, TheInputIsTheResidual) { EXPECT_TRUE(check({.adds_its_input = true})); }
TEST_F(Int8SumEpilogueTest, ZeroPointsThatAreNotGivenOrOthers) {
  EXPECT_TRUE(check({.has_zeros = false}));
  w_ = OnnxWriter(13);
  EXPECT_TRUE(check({.is_signed = true, .other_zero = true}));
}
TEST_F(Int8SumEpilogueTest, SumsThatMayBeInfiniteRunAlone) {
  EXPECT_FALSE(check({.sum_scale = 1e-9f}));
  w_ = OnnxWriter(13);
  EXPECT_FALSE(check({.sum_scale = 0.0f}));
}
TEST_F(Int8SumEpilogueTest, WhatStandsBetweenKeepsThemApart) { EXPECT_FALSE(check({.between = "Abs"})); }
TEST_F(Int8SumEpilogueTest, ASumOfAnotherShapeRunsAlone) {
  make<std::uint8_t>({}, {"N", kChannels, "P", "Q"});
  const Shape whole = {1, kChannels, 9, 9}, one = {1, kChannels, 1, 1};
  EXPECT_FALSE(check({}, {{whole, whole}, {whole, one}}));
  EXPECT_TRUE(check({}, {{whole, one}, {whole, whole}}));
}

}  // namespace
}  // namespace evn::test
