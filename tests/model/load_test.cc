#include "model/load.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/load_helpers.h"

namespace evn::load_test {
namespace {

using namespace test;

const Value& value_of(const Graph& graph, const std::string& name) {
  for (const Value& v : graph.values) {
    if (v.name == name) return v;
  }
  throw std::out_of_range(name);
}

// The model's only tensor, read from `tensor`.
WeightPtr tensor_of(const Proto& tensor) {
  OnnxWriter w;
  w.add_initializer(tensor).add_output("t", 0);
  return value_of(load_bytes(w.serialize()).graph, "t").constant;
}

Error tensor_error(const Proto& tensor) { return read_error(OnnxWriter().add_initializer(tensor).add_output("t", 0).serialize()); }
evn_status tensor_status(const Proto& tensor) { return tensor_error(tensor).status; }

Proto tensor_head(int dtype, const std::vector<std::int64_t>& dims) {
  Proto p;
  for (const std::int64_t d : dims) p.varint(1, d);
  return p.varint(2, dtype).bytes(8, "t");
}

template <typename T>
std::vector<T> values_of(const Weight& w) {
  return std::vector<T>(w.as<T>(), w.as<T>() + w.size_bytes / sizeof(T));
}

TEST(LoadOnnx, AnOutputThatIsListedTwiceIsOne) {
  OnnxWriter w;
  w.add_input("x", 1, {2}).add_node("Relu", {"x"}, {"y"}).add_node("Neg", {"x"}, {"z"});
  const Graph g = load_bytes(w.add_output("y").add_output("z").add_output("y").serialize()).graph;
  ASSERT_EQ(g.outputs.size(), 2u);
  EXPECT_EQ(g.values[g.outputs[0]].name, "y");
  EXPECT_EQ(g.values[g.outputs[1]].name, "z");
}

TEST(LoadOnnx, ReadsAWholeNetwork) {
  const Model m = load_bytes(small_network().serialize());
  EXPECT_EQ(m.ir_version, 8);
  EXPECT_EQ(m.producer, "test");
  ASSERT_EQ(m.opsets.size(), 1u);
  EXPECT_EQ(m.opsets[0].domain, "");
  EXPECT_EQ(m.opsets[0].version, 13);
  ASSERT_EQ(m.metadata.size(), 1u);
  EXPECT_EQ(m.metadata[0].key, "author");
  EXPECT_EQ(m.metadata[0].value, "test");
  const Graph& g = m.graph;
  EXPECT_EQ(g.name, "small");
  ASSERT_EQ(g.nodes.size(), 7u);
  EXPECT_EQ(g.nodes[0].op_type, "Conv");
  EXPECT_EQ(g.nodes[0].name, "conv");
  ASSERT_EQ(g.nodes[0].inputs.size(), 3u);
  ASSERT_EQ(g.inputs.size(), 1u);
  EXPECT_EQ(g.values[g.inputs[0]].name, "x");
  EXPECT_EQ(g.nodes[0].inputs[0], g.inputs[0]);
  ASSERT_EQ(g.outputs.size(), 1u);
  EXPECT_EQ(g.nodes[6].outputs[0], g.outputs[0]);
  const Value& x = g.values[g.inputs[0]];
  EXPECT_EQ(x.dtype, DType::kFloat32);
  EXPECT_EQ(x.shape, (Shape{-1, 3, 8, 8}));
  EXPECT_EQ(x.symbols, (std::vector<std::string>{"N", "", "", ""}));
  EXPECT_EQ(value_of(g, "r").shape, (Shape{-1, 8, 4, 4}));
  EXPECT_EQ(values_of<float>(*value_of(g, "conv.bias").constant), (std::vector<float>{0.1f, -0.1f, 0.2f, 0.3f, 0, 0, 0.5f, -1}));
}

TEST(LoadOnnx, ReadsEveryAttributeType) {
  OnnxWriter w;
  Proto strings;
  strings.bytes(1, "strings").bytes(9, "a").bytes(9, "").varint(20, 8);
  OnnxWriter body;
  body.add_node("Relu", {"outer"}, {"inner"}).add_output("inner");
  w.add_node("Foo", {}, {"y"},
             {{"f", 1.5f},
              {"i", -3},
              {"s", "text"},
              {"floats", std::vector<float>{1, 2}},
              {"ints", std::vector<std::int64_t>{-1, 1}},
              Attr(strings),
              Attr::tensor("t", tensor_proto("", kF32, {1}, bytes_of(std::vector<float>{7}))),
              Attr::graph("g", body.graph())});
  const Model m = load_bytes(w.add_output("y").serialize());
  const std::vector<Attribute>& a = m.graph.nodes[0].attributes;
  ASSERT_EQ(a.size(), 8u);
  EXPECT_EQ(std::get<float>(a[0].value), 1.5f);
  EXPECT_EQ(std::get<std::int64_t>(a[1].value), -3);
  EXPECT_EQ(std::get<std::string>(a[2].value), "text");
  EXPECT_EQ(std::get<std::vector<float>>(a[3].value), (std::vector<float>{1, 2}));
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(a[4].value), (std::vector<std::int64_t>{-1, 1}));
  EXPECT_EQ(std::get<std::vector<std::string>>(a[5].value), (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(values_of<float>(*std::get<WeightPtr>(a[6].value)), std::vector<float>{7});
  const Graph& g = *std::get<std::shared_ptr<Graph>>(a[7].value);
  ASSERT_EQ(g.nodes.size(), 1u);
  EXPECT_EQ(g.values[g.nodes[0].inputs[0]].name, "outer");
}

TEST(LoadOnnx, AttributeTypeMustAgreeWithTheValue) {
  const auto status = [](const Proto& attribute) {
    return read_status(OnnxWriter().add_node("Foo", {}, {"y"}, {Attr(attribute)}).add_output("y").serialize());
  };
  const auto named = [] { return Proto().bytes(1, "a"); };
  EXPECT_EQ(status(named().varint(3, 1).varint(20, 2)), EVN_OK);
  EXPECT_EQ(status(named().varint(20, 2)), EVN_OK);  // proto3 writers leave a zero out
  EXPECT_EQ(status(named().varint(3, 1)), EVN_OK);   // old writers leave the type out
  EXPECT_EQ(status(named().varint(3, 1).fixed32(2, 1)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(named()), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(named().varint(3, 1).varint(20, 1)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(named().varint(3, 1).fixed32(2, 1).varint(20, 2)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(named().varint(20, 4)), EVN_ERROR_INVALID_MODEL);  // a tensor has no zero
  EXPECT_EQ(status(named().varint(20, 5)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(named().varint(20, 15)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(named().varint(20, -1)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(named().varint(20, 13)), EVN_ERROR_INVALID_MODEL);  // a type has no zero
  EXPECT_EQ(status(named().bytes(10, "").varint(20, 9)), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(status(named().varint(3, 1).varint(20, 2).bytes(21, "outer")), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(status(Proto().varint(3, 1).varint(20, 2)), EVN_ERROR_INVALID_MODEL);  // no name
}

TEST(LoadOnnx, ReadsTypedTensors) {
  EXPECT_EQ(values_of<float>(*tensor_of(tensor_head(kF32, {2}).fixed32(4, 1).fixed32(4, -2))), (std::vector<float>{1, -2}));
  EXPECT_EQ(values_of<double>(*tensor_of(tensor_head(kF64, {1}).fixed64(10, 0.5))), std::vector<double>{0.5});
  EXPECT_EQ(values_of<std::int64_t>(*tensor_of(tensor_head(kI64, {2}).varint(7, INT64_MIN).varint(7, 5))),
            (std::vector<std::int64_t>{INT64_MIN, 5}));
  EXPECT_EQ(values_of<std::uint64_t>(*tensor_of(tensor_head(kU64, {1}).varint(11, -1))), std::vector<std::uint64_t>{UINT64_MAX});
  EXPECT_EQ(values_of<std::uint32_t>(*tensor_of(tensor_head(kU32, {1}).varint(11, 0xffffffff))),
            std::vector<std::uint32_t>{UINT32_MAX});
  EXPECT_EQ(values_of<std::int32_t>(*tensor_of(tensor_head(kI32, {2}).varint(5, -7).varint(5, INT32_MAX))),
            (std::vector<std::int32_t>{-7, INT32_MAX}));
  EXPECT_EQ(values_of<std::int16_t>(*tensor_of(tensor_head(kI16, {1}).varint(5, -32768))), std::vector<std::int16_t>{-32768});
  EXPECT_EQ(values_of<std::int8_t>(*tensor_of(tensor_head(kI8, {2}).varint(5, -128).varint(5, 127))),
            (std::vector<std::int8_t>{-128, 127}));
  EXPECT_EQ(values_of<std::uint8_t>(*tensor_of(tensor_head(kU8, {1}).varint(5, 255))), std::vector<std::uint8_t>{255});
  EXPECT_EQ(values_of<std::uint16_t>(*tensor_of(tensor_head(kF16, {1}).varint(5, 0x3c00))), std::vector<std::uint16_t>{0x3c00});
  EXPECT_EQ(values_of<std::uint8_t>(*tensor_of(tensor_head(kBool, {3}).varint(5, 0).varint(5, 1).varint(5, 2))),
            (std::vector<std::uint8_t>{0, 1, 1}));
}

TEST(LoadOnnx, AlignedRawDataStaysInTheFileAndOtherIsCopied) {
  int in_place = 0, copied = 0;
  for (int shift = 0; shift < 4; ++shift) {
    OnnxWriter w;
    w.graph().bytes(2, std::string(static_cast<std::size_t>(shift), 'n'));
    const std::string bytes = w.add_initializer("t", {3}, std::vector<float>{1, 2, 3}).add_output("t").serialize();
    const std::shared_ptr<const void> block = exact_copy(bytes);
    const WeightPtr t = value_of(load_onnx(block, bytes.size(), {}).graph, "t").constant;
    EXPECT_EQ(values_of<float>(*t), (std::vector<float>{1, 2, 3}));
    EXPECT_TRUE(t->aligned);
    const auto* begin = static_cast<const char*>(block.get());
    const bool inside = t->as<char>() >= begin && t->as<char>() < begin + bytes.size();
    ++(inside ? in_place : copied);
    EXPECT_EQ(block.use_count() > 1, inside);  // the weight keeps the file alive
  }
  EXPECT_EQ(in_place, 1);
  EXPECT_EQ(copied, 3);
}

TEST(LoadOnnx, WeightsOutliveTheFileThatHoldsThem) {
  const std::string bytes =
      OnnxWriter().add_initializer("t", {4}, std::vector<std::uint8_t>{1, 2, 3, 4}).add_output("t", 0).serialize();
  WeightPtr t = value_of(load_bytes(bytes).graph, "t").constant;
  EXPECT_EQ(values_of<std::uint8_t>(*t), (std::vector<std::uint8_t>{1, 2, 3, 4}));
}

TEST(LoadOnnx, EmptyTensorsNeedNoData) {
  EXPECT_EQ(tensor_of(tensor_head(kF32, {0}))->size_bytes, 0u);
  EXPECT_EQ(tensor_of(tensor_head(kF32, {3, 0}).bytes(9, ""))->size_bytes, 0u);
  EXPECT_EQ(tensor_of(tensor_head(kF32, {0, INT64_MAX}))->size_bytes, 0u);
  EXPECT_EQ(tensor_status(tensor_head(kF32, {1})), EVN_ERROR_INVALID_MODEL);
}

TEST(LoadOnnx, InputThatIsAnInitializerIsAConstant) {
  for (const bool input_first : {true, false}) {
    OnnxWriter w;
    if (input_first) w.add_input("w", kF32, {2});
    w.add_initializer("w", {2}, std::vector<float>{1, 2});
    if (!input_first) w.add_input("w", kF32, {2});
    w.add_input("x", kF32, {2}).add_node("Add", {"x", "w"}, {"y"}).add_output("y");
    const Model m = load_bytes(w.serialize());
    ASSERT_EQ(m.graph.inputs.size(), 1u);
    EXPECT_EQ(m.graph.values[m.graph.inputs[0]].name, "x");
    EXPECT_NE(value_of(m.graph, "w").constant, nullptr);
  }
}

TEST(LoadOnnx, DeclaredTypesMustAgree) {
  const auto status = [](int declared, int initializer_first) {
    OnnxWriter w;
    if (initializer_first == 1) w.add_initializer("w", {1}, std::vector<float>{1});
    w.add_input("w", declared, {1});
    if (initializer_first == 0) w.add_initializer("w", {1}, std::vector<float>{1});
    return read_status(w.add_output("w").serialize());
  };
  for (const int first : {0, 1}) {
    EXPECT_EQ(status(kF32, first), EVN_OK);
    EXPECT_EQ(status(kI64, first), EVN_ERROR_INVALID_MODEL);
  }
}

TEST(LoadOnnx, ValueInfoSaysMoreAboutNamedValuesOnly) {
  OnnxWriter w;
  w.add_value_info("ghost", kF32, {1}).add_value_info("r", kF32, {2, "M"}).add_value_info("x", kF32, {9});
  w.add_input("x", kF32, {2}).add_node("Relu", {"x"}, {"r"}).add_node("Relu", {"r"}, {"y"}).add_output("y");
  const Model m = load_bytes(w.serialize());
  EXPECT_EQ(m.graph.values.size(), 3u);
  EXPECT_EQ(value_of(m.graph, "r").shape, (Shape{2, -1}));
  EXPECT_EQ(value_of(m.graph, "r").symbols, (std::vector<std::string>{"", "M"}));
  EXPECT_EQ(value_of(m.graph, "x").shape, Shape{2});  // an input's own shape stands above it
}

TEST(LoadOnnx, UnknownDimsOfAllFormsAreMinusOne) {
  OnnxWriter w;
  Proto dims;
  dims.message(1, Proto()).message(1, Proto().varint(1, -1)).message(1, Proto().bytes(2, "")).message(1, Proto().varint(1, 0));
  w.graph().message(11, Proto().bytes(1, "x").message(2, Proto().message(1, Proto().varint(1, kF32).message(2, dims))));
  const Model m = load_bytes(w.add_output("x").serialize());
  EXPECT_EQ(value_of(m.graph, "x").shape, (Shape{-1, -1, -1, 0}));
  EXPECT_TRUE(value_of(m.graph, "x").symbols.empty());
}

TEST(LoadOnnx, UnsupportedElementTypesHurtOnlyWhoUsesThem) {
  Proto numbers;
  numbers.varint(1, 1).varint(2, kFloat6).fixed32(4, 0).fixed32(4, 0).bytes(8, "s");
  OnnxWriter unused;
  unused.add_initializer(numbers).add_input("x", kF32, {1}).add_node("Relu", {"x"}, {"y"}).add_output("y");
  EXPECT_EQ(read_status(unused.serialize()), EVN_OK);
  OnnxWriter used;
  used.add_initializer(numbers).add_node("Foo", {"s"}, {"y"}, {}, "reader").add_output("y");
  const Error e = read_error(used.serialize());
  EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(e.node, "reader");
  EXPECT_NE(std::string(e.message).find("float6e2m3"), std::string::npos);
}

TEST(LoadOnnx, ComplexNumbersArePairs) {
  const auto numbers = [](std::int32_t type, int count) {
    Proto p = tensor_head(type, {1});
    for (int i = 0; i < count; ++i) type == kComplex64 ? p.fixed32(4, 0) : p.fixed64(10, 0);
    return p;
  };
  for (const std::int32_t type : {kComplex64, kComplex128}) {
    EXPECT_EQ(tensor_status(numbers(type, 2)), EVN_OK);
    EXPECT_EQ(tensor_status(numbers(type, 1)), EVN_ERROR_INVALID_MODEL);
    EXPECT_EQ(tensor_status(numbers(type, 3)), EVN_ERROR_INVALID_MODEL);
    EXPECT_EQ(tensor_status(tensor_head(type, {1}).bytes(9, std::string(type == kComplex64 ? 8 : 16, 'x'))), EVN_OK);
    EXPECT_EQ(tensor_status(tensor_head(type, {1}).bytes(9, std::string(type == kComplex64 ? 4 : 8, 'x'))),
              EVN_ERROR_INVALID_MODEL);
  }
}

TEST(LoadOnnx, SegmentsAreUnsupported) {
  EXPECT_EQ(tensor_status(tensor_head(kF32, {1}).message(3, Proto())), EVN_ERROR_UNSUPPORTED);
}

TEST(LoadOnnx, LimitsAreObeyed) {
  const std::string bytes = small_network().serialize();
  LoadOptions options;
  options.limits.nodes = 7;
  EXPECT_EQ(read_status(bytes, options), EVN_OK);
  options.limits.nodes = 6;
  EXPECT_EQ(read_status(bytes, options), EVN_ERROR_LIMIT);
  options = {};
  options.limits.model_bytes = bytes.size() - 1;
  EXPECT_EQ(read_status(bytes, options), EVN_ERROR_LIMIT);
  options = {};
  options.limits.tensor_bytes = 8 * 3 * 3 * 3 * 4 - 1;
  const Error e = read_error(bytes, options);
  EXPECT_EQ(e.status, EVN_ERROR_LIMIT);
  EXPECT_EQ(e.bytes_requested, 864u);
  options.limits.tensor_bytes = 8 * 3 * 3 * 3 * 4;
  EXPECT_EQ(read_status(bytes, options), EVN_OK);
}

TEST(LoadOnnx, NodesOfBodiesCount) {
  OnnxWriter body;
  body.add_node("A", {}, {"a"}).add_node("B", {}, {"b"});
  const std::string bytes = OnnxWriter().add_node("If", {}, {"y"}, {Attr::graph("g", body.graph())}).serialize();
  LoadOptions options;
  options.limits.nodes = 3;
  EXPECT_EQ(read_status(bytes, options), EVN_OK);
  options.limits.nodes = 2;
  EXPECT_EQ(read_status(bytes, options), EVN_ERROR_LIMIT);
}

// Counts what is charged.
struct CountingLedger : Ledger {
  std::size_t now = 0, peak = 0;
  void charge(std::size_t bytes, MemoryClass) override { peak = std::max(peak, now += bytes); }
  void discharge(std::size_t bytes, MemoryClass) noexcept override { now -= bytes; }
};

TEST(LoadOnnx, WeightsAreChargedUntilTheyGo) {
  auto ledger = std::make_shared<CountingLedger>();
  LoadOptions options;
  options.ledger = ledger;
  Proto t = tensor_head(kF32, {3});
  t.fixed32(4, 1).fixed32(4, 2).fixed32(4, 3);
  {
    const Model m = load_bytes(OnnxWriter().add_initializer(t).add_output("t").serialize(), options);
    EXPECT_EQ(ledger->now, 12u);
  }
  EXPECT_EQ(ledger->now, 0u);
}

TEST(LoadOnnx, H17_AClaimWithoutBytesTakesNoMemory) {
  auto ledger = std::make_shared<CountingLedger>();
  LoadOptions options;
  options.ledger = ledger;
  const std::string raw = OnnxWriter().add_initializer(tensor_head(kF32, {1ll << 38}).bytes(9, "abcd")).serialize();
  const std::string typed = OnnxWriter().add_initializer(tensor_head(kF32, {1ll << 38}).fixed32(4, 1)).serialize();
  EXPECT_EQ(read_status(raw, options), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(read_status(typed, options), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(ledger->peak, 0u);
}

}  // namespace
}  // namespace evn::load_test
