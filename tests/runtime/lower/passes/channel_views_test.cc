// Concat, Split and Slice of channels that copy nothing: that they are found, and that graphs drawn of them give what the reference
// gives, with any number of threads and for dims that come and go.
#include "tests/runtime/support.h"

namespace evn::test::channel_views_test {
namespace {

using ChannelViewsTest = RuntimeTest;

std::vector<float> weights(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> w(static_cast<std::size_t>(count));
  for (float& e : w) e = random.uniform(-0.25f, 0.25f);
  return w;
}

// A graph of values of the same spatial dims, node by node.
class Network {
 public:
  explicit Network(bool any_dims, std::int64_t channels = 16) : writer_(13) {
    const Dim n = any_dims ? Dim("N") : Dim(2), h = any_dims ? Dim("H") : Dim(9), w = any_dims ? Dim("W") : Dim(7);
    writer_.add_input("x", kF32, {n, channels, h, w});
    channels_["x"] = channels;
  }

  std::string conv(const std::string& x, std::int64_t channels, std::int64_t kernel, std::int64_t groups = 1) {
    const std::string y = next(channels), w = "w_" + y;
    const std::int64_t in = channels_[x] / groups;
    writer_.add_initializer(w, {channels, in, kernel, kernel}, weights(channels * in * kernel * kernel, channels_.size()));
    const std::vector<std::int64_t> pads(4, kernel / 2);
    writer_.add_node("Conv", {x, w}, {y},
                     {{"kernel_shape", std::vector<std::int64_t>{kernel, kernel}}, {"pads", pads}, {"group", groups}});
    return y;
  }
  std::string depthwise(const std::string& x) { return conv(x, channels_[x], 3, channels_[x]); }
  std::string pool(const std::string& x, const char* op) {
    const std::string y = next(channels_[x]);
    writer_.add_node(op, {x}, {y},
                     {{"kernel_shape", std::vector<std::int64_t>{3, 3}}, {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
    return y;
  }
  std::string halve(const std::string& x) {
    const std::string y = next(channels_[x]);
    const std::vector<std::int64_t> two = {2, 2};
    writer_.add_node("AveragePool", {x}, {y}, {{"kernel_shape", two}, {"strides", two}});
    return y;
  }
  std::string twice(const std::string& x, const char* mode) {
    const std::string y = next(channels_[x]);
    writer_.add_initializer("scales_" + y, {4}, std::vector<float>{1, 1, 2, 2});
    writer_.add_node("Resize", {x, "", "scales_" + y}, {y}, {{"mode", mode}});
    return y;
  }
  std::string multiply(const std::string& a, const std::string& b) {
    const std::string y = next(channels_[a]);
    writer_.add_node("Mul", {a, b}, {y});
    return y;
  }
  std::string unary(const std::string& x, const char* op) {
    const std::string y = next(channels_[x]);
    writer_.add_node(op, {x}, {y});
    return y;
  }
  std::string add(const std::string& a, const std::string& b) {
    const std::string y = next(channels_[a]);
    writer_.add_node("Add", {a, b}, {y});
    return y;
  }
  std::string batch_norm(const std::string& x) {
    const std::string y = next(channels_[x]);
    std::vector<std::string> inputs = {x};
    for (const char* name : {"scale", "bias", "mean", "variance"}) {
      inputs.push_back(std::string(name) + y);
      std::vector<float> values = weights(channels_[x], channels_.size());
      if (inputs.size() == 5) std::fill(values.begin(), values.end(), 0.5f);
      writer_.add_initializer(inputs.back(), {channels_[x]}, values);
    }
    writer_.add_node("BatchNormalization", inputs, {y});
    return y;
  }
  std::string concat(const std::vector<std::string>& parts) {
    std::int64_t sum = 0;
    for (const std::string& p : parts) sum += channels_[p];
    const std::string y = next(sum);
    writer_.add_node("Concat", parts, {y}, {{"axis", 1}});
    return y;
  }
  std::vector<std::string> split(const std::string& x, const std::vector<std::int64_t>& sizes) {
    std::vector<std::string> parts;
    for (const std::int64_t c : sizes) parts.push_back(next(c));
    const std::string list = "sizes_" + parts[0];
    writer_.add_initializer(list, {static_cast<std::int64_t>(sizes.size())}, sizes);
    writer_.add_node("Split", {x, list}, parts, {{"axis", 1}});
    return parts;
  }
  std::string slice(const std::string& x, std::int64_t begin, std::int64_t end) {
    const std::string y = next(end - begin - (begin < 0 ? channels_[x] : 0));
    writer_.add_initializer("begin_" + y, {1}, std::vector<std::int64_t>{begin})
        .add_initializer("end_" + y, {1}, std::vector<std::int64_t>{end});
    writer_.add_initializer("axis_" + y, {1}, std::vector<std::int64_t>{1});
    writer_.add_node("Slice", {x, "begin_" + y, "end_" + y, "axis_" + y}, {y});
    return y;
  }
  void output(const std::string& x) { writer_.add_output(x, kF32); }

  std::int64_t channels(const std::string& x) { return channels_[x]; }
  const OnnxWriter& writer() const { return writer_; }

 private:
  std::string next(std::int64_t channels) {
    const std::string name = "v" + std::to_string(channels_.size());
    channels_[name] = channels;
    return name;
  }
  OnnxWriter writer_;
  std::map<std::string, std::int64_t> channels_;
};

int count_views(const Session& session, const std::string& op) {
  const std::string text = explain(session, EVN_FORMAT_TEXT);
  int count = 0;
  const std::string row = "  " + op + "  cpu  view  ";
  for (std::size_t at = text.find(row); at != std::string::npos; at = text.find(row, at + 1)) ++count;
  return count;
}

// Runs and compares; returns how many nodes of the operator had nothing to do.
int run_and_count(const Network& network, const std::string& op, const Shape& x = {2, 16, 9, 7}) {
  const ModelPtr model = load(make_runtime(), network.writer());
  TestSession session(model, "");
  const std::vector<HostTensor> in = {random_tensor(x, 3, -1, 1)};
  expect_close(run(session, in), GraphRunner(model->graph()).run(in));
  return count_views(session, op);
}

TEST_F(ChannelViewsTest, AConcatOfConvolutionsAndPoolsIsWrittenByThem) {
  Network n(false);
  const std::string a = n.conv("x", 24, 1), b = n.conv(a, 20, 3), c = n.pool(a, "MaxPool");
  n.output(n.conv(n.concat({b, c, n.depthwise(a)}), 16, 1));
  EXPECT_EQ(run_and_count(n, "Concat"), 1);
}

TEST_F(ChannelViewsTest, ConcatsThatBeginWithEachOtherShareOneBuffer) {
  Network n(true);
  std::vector<std::string> all = {n.conv("x", 32, 1)};
  for (int layer = 0; layer < 4; ++layer) {
    all.push_back(n.conv(n.unary(n.batch_norm(all.size() == 1 ? all[0] : n.concat(all)), "Relu"), 16, 3));
  }
  n.output(n.conv(n.concat(all), 16, 1));
  EXPECT_EQ(run_and_count(n, "Concat"), 4);
}

TEST_F(ChannelViewsTest, AConcatInsideAConcatIsNoCopyEither) {
  Network n(false);
  const std::string a = n.conv("x", 16, 1), b = n.conv("x", 17, 1), c = n.conv(b, 18, 3);
  const std::string inner = n.concat({a, b});
  n.output(n.conv(n.concat({c, inner, n.conv(inner, 16, 3)}), 16, 1));
  EXPECT_EQ(run_and_count(n, "Concat"), 2);
}

TEST_F(ChannelViewsTest, WhatIsJoinedTwiceOrComesFromOutsideIsCopiedIntoItsPlace) {
  Network n(false);
  const std::string a = n.conv("x", 16, 1), b = n.conv("x", 24, 3);
  n.output(n.conv(n.concat({a, b, a}), 16, 1));
  n.output(n.conv(n.concat({b, "x"}), 16, 1));
  EXPECT_EQ(run_and_count(n, "Concat"), 0);
}

TEST_F(ChannelViewsTest, AJoinedValueMayBeAnOutput) {
  Network n(false);
  const std::string a = n.conv("x", 16, 1), b = n.conv("x", 24, 3), c = n.concat({a, b});
  n.output(a);
  n.output(c);
  n.output(n.conv(c, 16, 1));
  EXPECT_EQ(run_and_count(n, "Concat"), 1);
}

TEST_F(ChannelViewsTest, WhatASplitCutsOutStaysWhereItLies) {
  Network n(true);
  const std::string a = n.conv("x", 48, 1);
  const std::vector<std::string> parts = n.split(a, {16, 32});
  const std::string c = n.conv(parts[1], 32, 3), d = n.add(n.conv(c, 32, 3), parts[1]);
  n.output(n.conv(n.concat({parts[0], parts[1], d}), 16, 1));
  EXPECT_EQ(run_and_count(n, "Split"), 1);
  EXPECT_EQ(run_and_count(n, "Concat"), 1) << "both parts lie side by side in the Concat as they do in the Split's input";
}

TEST_F(ChannelViewsTest, ASliceOfChannelsStaysWhereItLies) {
  Network n(true);
  const std::string a = n.conv("x", 40, 1);
  n.output(n.add(n.conv(n.slice(a, 3, 23), 24, 3), n.depthwise(n.slice(a, -24, 40))));
  EXPECT_EQ(run_and_count(n, "Slice"), 2);
}

TEST_F(ChannelViewsTest, TheFirstLayerAndResizedImagesAreWrittenIntoTheirPlaces) {
  Network n(true, 3);
  const std::string a = n.conv("x", 24, 3), b = n.conv(n.halve(a), 33, 3);
  const std::string joined = n.concat({a, n.twice(b, "nearest"), n.twice(b, "linear")});
  const std::string inner = n.concat({b, n.halve(a)});
  n.output(n.conv(joined, 16, 1));
  n.output(n.concat({n.conv(n.twice(b, "linear"), 16, 1), n.twice(n.conv(inner, 32, 3), "nearest")}));
  EXPECT_EQ(run_and_count(n, "Concat", {2, 3, 8, 10}), 3);
}

TEST_F(ChannelViewsTest, SumsProductsAndMeansReadWhatIsJoined) {
  Network n(true);
  const std::string a = n.conv("x", 33, 1), b = n.conv("x", 33, 3), one = n.conv("x", 16, 1);
  const std::string gate = n.unary(n.conv(n.unary(a, "GlobalAveragePool"), 33, 1), "Sigmoid");
  const std::string gated = n.multiply(a, gate), sum = n.unary(n.add(gated, b), "Relu");
  n.output(n.conv(n.concat({a, b, gated, sum, one}), 16, 1));
  n.output(n.conv(n.concat({n.add(n.conv(one, 33, 3), b), sum}), 16, 1));
  EXPECT_GE(run_and_count(n, "Concat"), 1);
}

// Units of ShuffleNet: the channels that are passed on stay, and new ones take the place of those that were read.
TEST_F(ChannelViewsTest, NewChannelsAreWrittenOverThoseThatNobodyReadsAnyMore) {
  Network n(true);
  std::string x = n.conv("x", 48, 1);
  for (int unit = 0; unit < 3; ++unit) {
    const std::vector<std::string> parts = n.split(x, {24, 24});
    x = n.conv(n.concat({parts[0], n.conv(n.depthwise(n.conv(parts[1], 24, 1)), 24, 1)}), 48, 1);
  }
  const std::string back = n.slice(x, 24, 48), begin = n.conv(n.slice(x, 0, 24), 24, 3);
  n.output(n.conv(n.concat({begin, back}), 16, 1));
  EXPECT_EQ(run_and_count(n, "Concat"), 3) << "the last convolution reads what it would write over";
}

TEST_F(ChannelViewsTest, WhatIsStillReadIsNotWrittenOver) {
  Network n(true);
  const std::string x = n.conv("x", 48, 1), y = n.conv("x", 40, 3), z = n.conv("x", 32, 1);
  const std::string front = n.slice(x, 0, 24), back = n.slice(x, 24, 48);
  const std::string t = n.conv(back, 24, 1), a = n.concat({front, n.conv(t, 24, 3)}), b = n.concat({front, n.conv(t, 24, 1)});
  const std::vector<std::string> parts = n.split(y, {20, 20});
  const std::string c = n.concat({parts[0], n.conv(parts[1], 20, 3)});
  const std::string late = n.conv(n.add(n.conv(c, 20, 1), parts[1]), 16, 1);
  const std::string kept = n.slice(z, 16, 32), d = n.concat({n.slice(z, 0, 16), n.conv(kept, 16, 1)});
  n.output(n.conv(a, 16, 1));
  n.output(n.conv(b, 16, 1));
  n.output(late);
  n.output(n.conv(d, 16, 3));
  n.output(kept);
  run_and_count(n, "Concat");
}

// What lies in a wider value is not written over while a neighbour is read, and has room that nobody else is given.
TEST_F(ChannelViewsTest, AReaderWritesNothingOverItsNeighbours) {
  Network n(false);
  const std::string a = n.conv("x", 16, 1), b = n.conv("x", 16, 3);
  const std::string joined = n.concat({a, b});
  const std::string e = n.unary(a, "Exp"), f = n.unary(joined, "Sigmoid");
  const std::vector<std::string> parts = n.split(n.conv(joined, 32, 1), {16, 16});
  const std::string g = n.unary(parts[0], "Tanh"), h = n.add(parts[1], g);
  n.output(n.conv(n.concat({e, f, g, h, n.add(parts[0], b)}), 16, 1));
  run_and_count(n, "Concat");
}

Network draw(Random& random, bool any_dims) {
  Network n(any_dims);
  static constexpr std::int64_t kChannels[] = {16, 17, 24, 32, 48, 64};
  std::vector<std::string> values = {"x", n.conv("x", 32, 1)};
  const auto pick = [&] { return values[values.size() - 1 - random.next() % std::min<std::size_t>(values.size(), 5)]; };
  for (int i = 0; i < 14; ++i) {
    const std::string x = pick();
    const std::int64_t c = n.channels(x);
    switch (random.next() % 13) {
      case 0:
      case 1: values.push_back(n.conv(x, kChannels[random.next() % 6], 1)); break;
      case 2:
      case 3: values.push_back(n.conv(x, kChannels[random.next() % 6], 3)); break;
      case 4: values.push_back(n.depthwise(x)); break;
      case 5: values.push_back(n.pool(x, random.next() % 2 == 0 ? "MaxPool" : "AveragePool")); break;
      case 6:
        values.push_back(n.unary(random.next() % 2 == 0 ? x : n.batch_norm(x), random.next() % 2 == 0 ? "Relu" : "Sigmoid"));
        break;
      case 7: values.push_back(n.add(n.conv(pick(), c, 1), x)); break;
      case 8:
        for (const std::string& part : n.split(x, {c / 2, c - c / 2})) values.push_back(part);
        break;
      case 9: values.push_back(n.slice(x, c / 3, c)); break;
      case 10: {
        const std::vector<std::string> parts = n.split(x, {c / 2, c - c / 2});
        const std::string computed = n.conv(parts[1], c - c / 2, random.next() % 2 == 0 ? 1 : 3);
        for (const std::string& part : {n.concat({parts[0], computed}), parts[random.next() % 2]}) values.push_back(part);
        break;
      }
      default: {
        std::vector<std::string> parts = {x, pick()};
        while (random.next() % 2 == 0) parts.push_back(pick());
        values.push_back(n.concat(parts));
      }
    }
    if (n.channels(values.back()) > 400) values.push_back(n.conv(values.back(), 16, 1));
  }
  for (std::size_t i = 0; i < 3; ++i) n.output(values[values.size() - 1 - i]);
  const std::string far = values[1 + random.next() % (values.size() - 4)];
  n.output(far);
  return n;
}

TEST_F(ChannelViewsTest, DrawnGraphsGiveWhatTheReferenceGivesWithAnyNumberOfThreads) {
  Random random(11);
  int views = 0;
  for (int round = 0; round < 24; ++round) {
    const Network n = draw(random, round % 2 == 0);
    const ModelPtr model = load(make_runtime({}, 0, 1), n.writer());
    const ModelPtr other = load(make_runtime({}, 0, 3), n.writer());
    TestSession one(model, ""), three(other, "");
    for (const Shape& shape :
         {Shape{2, 16, 9, 7}, Shape{1, 16, 12, 13}, Shape{3, 16, 1, 1}, Shape{0, 16, 5, 5}, Shape{2, 16, 5, 9}}) {
      if (round % 2 != 0 && !(shape == Shape{2, 16, 9, 7})) continue;
      const std::vector<HostTensor> in = {random_tensor(shape, random.next(), -1, 1)};
      const std::vector<HostTensor> got = run(one, in), again = run(three, in);
      ASSERT_NO_FATAL_FAILURE(expect_close(got, GraphRunner(model->graph()).run(in))) << "round " << round;
      for (std::size_t k = 0; k < got.size(); ++k) EXPECT_EQ(got[k].bytes, again[k].bytes) << "round " << round << " output " << k;
    }
    for (const char* op : {"Concat", "Split", "Slice"}) views += count_views(one, op);
  }
  EXPECT_GT(views, 24);
}

}  // namespace
}  // namespace evn::test::channel_views_test
