// Which channels belong together, and which stay. That a model without some of them computes the same is
// tests/training/test_pruning.py.
#include "train/channels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/train/named_graph.h"

namespace evn_train {
namespace {

using Dims = std::vector<std::int64_t>;

class Net : public NamedGraph {
 public:
  Net& conv(const std::string& x, const std::string& output, const Dims& filters, std::int64_t groups = 1) {
    NamedGraph::conv(x, output, filters, groups);
    return *this;
  }
  // A classifier of the mean of each channel.
  Net& end(const std::string& x, std::int64_t channels) {
    weight("end.w", {channels, 3})
        .node("GlobalAveragePool", {x}, "mean")
        .node("Flatten", {"mean"}, "flat")
        .node("Gemm", {"flat", "end.w"}, "y")
        .output("y");
    return *this;
  }
  Channels find() const { return find_channels(graph()); }
};

Net image() {
  Net g;
  g.input("x", {-1, 3, 8, 8});
  return g;
}

// "name axis first length" of each part, in order.
std::vector<std::string> uses_of(const ChannelGroup& group, Net* graph) {
  std::vector<std::string> texts;
  for (const ChannelUse& use : group.uses) {
    texts.push_back(name_of(graph->graph(), use.value) + " " + std::to_string(use.axis) + " " + std::to_string(use.first) + " " +
                    std::to_string(use.length) + (use.is_filter ? " filter" : "") + (use.is_statistic ? " statistic" : ""));
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Channels, AreThoseOfTheConvolutionAndOfWhatReadsThem) {
  Net g = image();
  g.conv("x", "a", {6, 3, 3, 3}).weight("s", {6}).weight("b", {6}).weight("m", {6}).weight("v", {6});
  g.node("BatchNormalization", {"a", "s", "b", "m", "v"}, "n").node("Relu", {"n"}, "r").conv("r", "c", {5, 6, 1, 1});
  const Channels found = g.end("c", 5).find();
  ASSERT_EQ(found.groups.size(), 2u);
  EXPECT_EQ(found.groups[0].name, "Conv a");
  EXPECT_EQ(found.groups[0].reason, "");
  EXPECT_EQ(found.groups[0].units, 6);
  EXPECT_EQ(uses_of(found.groups[0], &g),
            (Texts{"a.w 0 0 6 filter", "b 0 0 6", "c.w 1 0 6", "m 0 0 6 statistic", "s 0 0 6", "v 0 0 6 statistic"}));
  EXPECT_EQ(uses_of(found.groups[1], &g), (Texts{"c.w 0 0 5 filter", "end.w 0 0 5"}));
}

TEST(Channels, OfAResidualStreamAreOneGroup) {
  Net g = image();
  g.conv("x", "a", {6, 3, 3, 3}).conv("a", "b", {6, 6, 3, 3}).node("Add", {"a", "b"}, "sum").conv("sum", "c", {6, 6, 3, 3});
  g.node("Add", {"sum", "c"}, "last");
  const Channels found = g.end("last", 6).find();
  ASSERT_EQ(found.groups.size(), 1u);
  EXPECT_EQ(found.groups[0].convolutions, (Texts{"Conv a", "Conv b", "Conv c"}));
  EXPECT_EQ(uses_of(found.groups[0], &g),
            (Texts{"a.w 0 0 6 filter", "b.w 0 0 6 filter", "b.w 1 0 6", "c.w 0 0 6 filter", "c.w 1 0 6", "end.w 0 0 6"}));
}

TEST(Channels, OfGroupsLeaveGroupByGroup) {
  Net g = image();
  g.conv("x", "a", {12, 3, 3, 3}).conv("a", "b", {24, 3, 3, 3}, 4).conv("b", "c", {48, 4, 3, 3}, 6);
  const Channels found = g.end("c", 48).find();
  ASSERT_EQ(found.groups.size(), 1u);
  EXPECT_EQ(found.groups[0].units, 2) << "4 groups of 6 channels and 6 groups of 4: ends of both are after 12 and 24";
  EXPECT_EQ(found.groups[0].channels, 12);
  ASSERT_EQ(found.grouped.size(), 2u);
  EXPECT_EQ(found.grouped[0].spans[0].length, 4);
  EXPECT_EQ(found.grouped[1].spans[0].length, 6);
  EXPECT_EQ(uses_of(found.groups[0], &g), (Texts{"a.w 0 0 12 filter", "b.w 0 0 24 filter", "c.w 0 0 48 filter", "end.w 0 0 48"}));
}

TEST(Channels, OfDepthwiseConvolutionsAreThoseTheyRead) {
  Net g = image();
  g.conv("x", "a", {8, 3, 1, 1}).conv("a", "b", {16, 1, 3, 3}, 8);
  g.weight("t.w", {16, 2, 2, 2}).node("ConvTranspose", {"b", "t.w"}, "t", {evn::make_attribute("group", 16)});
  const Channels found = g.end("t", 32).find();
  ASSERT_EQ(found.groups.size(), 1u);
  EXPECT_EQ(found.groups[0].units, 8);
  EXPECT_EQ(uses_of(found.groups[0], &g), (Texts{"a.w 0 0 8 filter", "b.w 0 0 16 filter", "end.w 0 0 32", "t.w 0 0 16 filter"}));
}

TEST(Channels, SideBySideAndFlattenedKeepTheirPlaces) {
  Net g = image();
  g.conv("x", "a", {4, 3, 1, 1}).weight("t.w", {4, 6, 1, 1}).node("ConvTranspose", {"a", "t.w"}, "t");
  g.node("Concat", {"t", "x", "a"}, "all", {evn::make_attribute("axis", -3)}).node("Flatten", {"all"}, "flat");
  g.weight("m", {832, 5}).node("MatMul", {"flat", "m"}, "y").output("y");
  const Channels found = g.find();
  ASSERT_EQ(found.groups.size(), 2u);
  EXPECT_EQ(uses_of(found.groups[0], &g), (Texts{"a.w 0 0 4 filter", "m 0 576 256", "t.w 0 0 4"}));
  EXPECT_EQ(uses_of(found.groups[1], &g), (Texts{"m 0 0 384", "t.w 1 0 6 filter"}));
}

TEST(Channels, OfAnUnknownSizeAreFlattenedByWhatReadsThem) {
  Net g;
  g.input("x", {-1, 3, -1, -1});
  g.conv("x", "a", {4, 3, 1, 1}).ints("to", {0, -1}).node("Reshape", {"a", "to"}, "flat");
  g.weight("m", {5, 100}).node("Gemm", {"flat", "m"}, "y", {evn::make_attribute("transB", 1)}).output("y");
  const Channels found = g.find();
  EXPECT_EQ(found.groups[0].reason, "");
  EXPECT_EQ(uses_of(found.groups[0], &g), (Texts{"a.w 0 0 4 filter", "m 1 0 100"}));
  g.weight("m", {5, 99});  // no multiple of 4
  EXPECT_NE(g.find().groups[0].reason, "");
}

TEST(Channels, NumbersOfReshapesAreNoted) {
  for (const auto& [target, number] : std::vector<std::pair<Dims, std::int64_t>>{{{-1, 256}, 256}, {{0, 256}, 256}, {{7, -1}, 0}}) {
    Net g = image();
    g.conv("x", "a", {4, 3, 1, 1}).ints("to", target).node("Reshape", {"a", "to"}, "flat");
    g.weight("m", {256, 5}).node("MatMul", {"flat", "m"}, "y").output("y");
    const Channels found = g.find();
    EXPECT_EQ(found.groups[0].reason, "");
    ASSERT_EQ(found.reshapes.size(), number == 0 ? 0u : 1u);
    if (number > 0) {
      EXPECT_EQ(found.reshapes[0].spans[0].length, number);
    }
  }
  // The batch is another one, or cannot be told.
  for (const Dims& target : std::vector<Dims>{{-1, 64}, {-1, 4}, {64, 4}, {0, 0, 8}, {256, 0}}) {
    Net g = image();
    g.conv("x", "a", {4, 3, 1, 1}).ints("to", target).node("Reshape", {"a", "to"}, "y");
    g.weight("m", {target.back() == 0 ? 8 : target.back(), 5}).node("MatMul", {"y", "m"}, "z").output("z");
    EXPECT_NE(g.find().groups[0].reason, "") << target[0];
  }
}

struct Kept {
  const char* what;
  void (*build)(Net*);
  const char* reason;
};

TEST(Channels, StayWhereTheyCannotBeFollowed) {
  const Kept kRows[] = {
      {"an output", [](Net* g) { g->output("a"); }, "they reach the output a"},
      {"another operator", [](Net* g) { g->node("Softmax", {"a"}, "s"); }, "Softmax s is not followed"},
      {"another domain",
       [](Net* g) {
         g->node("Relu", {"a"}, "s");
         g->graph().nodes.back().domain = "com.example";
       },
       "Relu s is not followed"},
      {"a body", [](Net* g) { g->node("If", {"x"}, "s", {evn::make_attribute("then_branch", std::make_shared<evn::Graph>())}); },
       "the model has If s, whose body may read them"},
      {"filters that are an output", [](Net* g) { g->output("a.w"); }, "a.w is read in another way too"},
      {"filters that are read as numbers", [](Net* g) { g->node("Softmax", {"a.w"}, "s"); }, "a.w is read in another way too"},
      {"what is added comes from nowhere",
       [](Net* g) {
         g->node("Add", {"a", "x"}, "s");
       },
       "Add s reads them with values that are not followed"},
      {"a sum over channels",
       [](Net* g) {
         g->ints("one", {1}).node("ReduceSum", {"a", "one"}, "s");
       },
       "ReduceSum s reduces them"},
      {"a divisor",
       [](Net* g) {
         g->node("Div", {"x", "a"}, "s");
       },
       "Div s is set by them"},
      {"a divisor for each",
       [](Net* g) {
         g->weight("d", {4, 1, 1}).node("Div", {"a", "d"}, "s");
       },
       "Div s divides them"},
      {"filters that are made",
       [](Net* g) {
         g->node("Conv", {"x", "a"}, "s");
       },
       "Conv s is set by them"},
      {"a scale that is made",
       [](Net* g) {
         g->weight("s", {4}).node("InstanceNormalization", {"x", "a", "s"}, "n");
       },
       "InstanceNormalization n is set by them"},
      {"an epsilon of 0",
       [](Net* g) {
         g->weight("s", {4}).weight("b", {4}).node("InstanceNormalization", {"a", "s", "b"}, "n",
                                                   {evn::make_attribute("epsilon", 0.0f)});
       },
       "InstanceNormalization n divides by the deviation of a channel of zeros"},
      {"another axis", [](Net* g) { g->node("Flatten", {"a"}, "f", {evn::make_attribute("axis", 2)}); },
       "Flatten f flattens them into the batch"},
      {"a permutation that is none",
       [](Net* g) {
         g->node("Transpose", {"a"}, "t", {evn::make_attribute("perm", Dims{0, 1, 1, 3})});
       },
       "Transpose t has no permutation of their axes"},
      {"more channels by factors",
       [](Net* g) {
         g->factors("f", {1, 2, 1, 1}).node("Resize", {"a", "", "f"}, "r");
       },
       "Resize r has no constant factors that leave the channels"},
      {"pads beside channels",
       [](Net* g) {
         g->ints("p", {0, 1, 0, 0, 0, 0, 0, 0}).node("Pad", {"a", "p"}, "r");
       },
       "Pad r has no constant pads that leave the channels"},
  };
  for (const Kept& row : kRows) {
    SCOPED_TRACE(row.what);
    Net g = image();
    g.conv("x", "a", {4, 3, 3, 3}).end("a", 4);
    EXPECT_EQ(g.find().groups[0].reason, "");
    row.build(&g);
    const Channels found = g.find();
    ASSERT_GE(found.groups.size(), 1u);
    EXPECT_EQ(found.groups[0].reason, row.reason);
  }
}

TEST(Channels, OfSharedFiltersAreShared) {
  Net g = image();
  g.conv("x", "a", {3, 3, 3, 3}).node("Conv", {"a", "a.w"}, "b");
  const Channels found = g.end("b", 3).find();
  EXPECT_NE(found.groups[0].reason, "") << "the filters read the model's input once, and what they have made";
  Net h = image();
  h.conv("x", "a", {3, 3, 3, 3}).conv("a", "b", {3, 3, 3, 3}).node("Conv", {"b", "b.w"}, "c");
  const Channels shared = h.end("c", 3).find();
  ASSERT_EQ(shared.groups.size(), 1u);
  EXPECT_EQ(shared.groups[0].reason, "");
  EXPECT_EQ(shared.groups[0].convolutions, (Texts{"Conv a", "Conv b", "Conv c"}));
}

TEST(Channels, ThatDoubleManyTimesAreGivenUp) {
  Net g = image();
  g.conv("x", "v0", {2, 3, 1, 1});
  for (int i = 0; i < 80; ++i) {
    const std::string from = "v" + std::to_string(i);
    g.node("Concat", {from, from}, "v" + std::to_string(i + 1), {evn::make_attribute("axis", 1)});
  }
  g.output("v80");
  EXPECT_NE(g.find().groups[0].reason, "");
}

// Whatever a graph is made of: parts lie within their axes, and those of different groups do not meet.
TEST(Channels, OfAnyGraphAreParts) {
  std::mt19937 random(1);
  const auto below = [&](std::size_t n) { return random() % n; };
  const char* const ops[] = {"Conv",    "Conv",       "Conv",    "ConvTranspose", "Gemm",  "MatMul",       "BatchNormalization",
                             "Add",     "Mul",        "Concat",  "Flatten",       "Relu",  "Reshape",      "Transpose",
                             "MaxPool", "ReduceMean", "Squeeze", "Unsqueeze",     "PRelu", "Softmax",      "Pad",
                             "Resize",  "Identity",   "Div",     "AveragePool",   "Clip",  "GlobalMaxPool"};
  std::size_t free_groups = 0;
  for (int graph = 0; graph < 20000; ++graph) {
    Net g;
    const Dims sizes = {1, 2, 4, 4, 4, 8};
    g.input("x", {-1, sizes[below(6)], static_cast<std::int64_t>(below(9)) - 1, 4});
    Texts values = {"x"}, constants;
    const auto number = [&] { return static_cast<std::int64_t>(below(8) == 0 ? random() : below(5)) - 2; };
    const auto pick = [&] { return values[values.size() - 1 - below(std::min<std::size_t>(values.size(), 3))]; };
    for (std::size_t n = 0; n < 4 + below(12); ++n) {
      const std::string op = ops[below(std::size(ops))], name = "n" + std::to_string(n);
      Texts inputs = {pick()};
      const bool filters = op.starts_with("Conv") && below(4) > 0;
      for (std::size_t i = 0; i < (filters ? 1 : below(5)); ++i) {
        const std::string constant_name = name + "." + std::to_string(i);
        switch (filters ? 3 : below(4)) {
          case 0: inputs.push_back(pick()); break;
          case 1: {
            Dims numbers;
            for (std::size_t k = 0; k < below(5); ++k) numbers.push_back(number());
            g.ints(constant_name, numbers);
            constants.push_back(constant_name);
            inputs.push_back(constant_name);
            break;
          }
          default: {
            Dims dims;
            const std::size_t rank = filters ? 4 : i == 0 ? 2 + 2 * below(2) : below(3);
            for (std::size_t k = 0; k < rank; ++k) dims.push_back(k < 2 ? sizes[below(6)] : 1);
            if (!constants.empty() && below(6) == 0) {
              inputs.push_back(constants[below(constants.size())]);
            } else {
              constants.push_back(constant_name);
              g.weight(constant_name, dims);
              inputs.push_back(constant_name);
            }
          }
        }
      }
      std::vector<evn::Attribute> attributes;
      for (const char* a : {"group", "axis", "transA", "transB", "keepdims", "ceil_mode", "allowzero"}) {
        if (below(4) == 0) attributes.push_back(evn::make_attribute(a, number()));
      }
      for (const char* a : {"kernel_shape", "strides", "pads", "dilations", "perm", "axes"}) {
        Dims numbers;
        for (std::size_t k = 0; k < below(5); ++k) numbers.push_back(number());
        if (below(3) == 0) attributes.push_back(evn::make_attribute(a, numbers));
      }
      g.node(op.c_str(), inputs, name, attributes);
      values.push_back(name);
    }
    if (below(2) == 0) g.output(pick());
    const Channels found = g.find();
    std::map<std::pair<ValueId, std::size_t>, std::vector<std::size_t>> owners;  // of each element of an axis
    for (std::size_t i = 0; i < found.groups.size(); ++i) {
      const ChannelGroup& group = found.groups[i];
      ASSERT_GE(group.units, 1);
      ASSERT_EQ(group.channels % group.units, 0);
      free_groups += group.reason.empty() ? 1 : 0;
      for (const ChannelUse& use : group.uses) {
        const evn::Shape& shape = g.graph().values[at(use.value)].constant->desc.shape;
        const Dims dims(shape.dims().begin(), shape.dims().end());
        ASSERT_LT(use.axis, dims.size());
        ASSERT_GT(use.length, 0);
        ASSERT_EQ(use.length % group.units, 0);
        ASSERT_LE(use.first + use.length, dims[use.axis]);
        auto& of = owners[{use.value, use.axis}];
        of.resize(static_cast<std::size_t>(dims[use.axis]));
        for (std::int64_t e = use.first; e < use.first + use.length; ++e) {
          ASSERT_EQ(of[static_cast<std::size_t>(e)], 0u);
          of[static_cast<std::size_t>(e)] = i + 1;
        }
      }
    }
    for (const GroupedConvolution& c : found.grouped) {
      for (const ChannelSpan& s : c.spans) {
        ASSERT_TRUE(s.group == ChannelSpan::kNone || s.length % found.groups[s.group].units == 0);
      }
    }
    for (const ReshapeNumber& r : found.reshapes) {
      for (const ChannelSpan& s : r.spans) {
        ASSERT_TRUE(s.group == ChannelSpan::kNone || s.length % found.groups[s.group].units == 0);
      }
    }
  }
  EXPECT_GT(free_groups, 300u) << "or the graphs say little";
}

}  // namespace
}  // namespace evn_train
