// What is saved reads back as what was read.
#include "model/save.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/text.h"
#include "tests/model/load_helpers.h"

namespace evn {
namespace {

using namespace test;

std::string saved_bytes(const Model& model) {
  const SavedModel saved = save_onnx(model);
  const std::shared_ptr<const void> bytes = model_bytes(saved, nullptr);
  return {static_cast<const char*>(bytes.get()), static_cast<std::size_t>(saved.size)};
}

void expect_same_graph(const Graph& a, const Graph& b) {
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  const auto name = [](const Graph& g, ValueId v) {
    return v == kNoValue ? std::string() : g.values[static_cast<std::size_t>(v)].name;
  };
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    const Node &x = a.nodes[i], &y = b.nodes[i];
    EXPECT_EQ(x.op_type, y.op_type);
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.domain, y.domain);
    ASSERT_EQ(x.inputs.size(), y.inputs.size());
    for (std::size_t k = 0; k < x.inputs.size(); ++k) EXPECT_EQ(name(a, x.inputs[k]), name(b, y.inputs[k]));
    ASSERT_EQ(x.outputs.size(), y.outputs.size());
    for (std::size_t k = 0; k < x.outputs.size(); ++k) EXPECT_EQ(name(a, x.outputs[k]), name(b, y.outputs[k]));
    ASSERT_EQ(x.attributes.size(), y.attributes.size());
    for (std::size_t k = 0; k < x.attributes.size(); ++k) {
      const AttributeValue &v = x.attributes[k].value, &w = y.attributes[k].value;
      EXPECT_EQ(x.attributes[k].name, y.attributes[k].name);
      ASSERT_EQ(v.index(), w.index()) << x.attributes[k].name;
      if (const auto* graph = std::get_if<std::shared_ptr<Graph>>(&v)) {
        expect_same_graph(**graph, *std::get<std::shared_ptr<Graph>>(w));
      } else if (const auto* tensor = std::get_if<WeightPtr>(&v)) {
        const Weight& other = *std::get<WeightPtr>(w);
        ASSERT_EQ((*tensor)->size_bytes, other.size_bytes);
        EXPECT_EQ(std::memcmp((*tensor)->bytes(), other.bytes(), other.size_bytes), 0);
      } else if (!std::holds_alternative<TensorDesc>(v)) {
        EXPECT_TRUE(v == w) << x.attributes[k].name;
      }
    }
  }
  ASSERT_EQ(a.inputs.size(), b.inputs.size());
  for (std::size_t i = 0; i < a.inputs.size(); ++i) {
    const Value &x = a.values[static_cast<std::size_t>(a.inputs[i])], &y = b.values[static_cast<std::size_t>(b.inputs[i])];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.dtype, y.dtype);
    EXPECT_EQ(x.wraps, y.wraps);
    EXPECT_EQ(x.has_shape, y.has_shape);
    EXPECT_EQ(x.shape, y.shape);
    EXPECT_EQ(x.symbols, y.symbols);
  }
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (const Value& v : a.values) {
    if (v.constant == nullptr) continue;
    const auto other = std::find_if(b.values.begin(), b.values.end(), [&](const Value& o) { return o.name == v.name; });
    ASSERT_NE(other, b.values.end()) << v.name;
    ASSERT_NE(other->constant, nullptr) << v.name;
    EXPECT_EQ(other->constant->desc.dtype, v.constant->desc.dtype);
    EXPECT_EQ(other->shape, v.shape);
    if (v.dtype == DType::kString) continue;
    EXPECT_EQ(std::memcmp(other->constant->bytes(), v.constant->bytes(), v.constant->size_bytes), 0) << v.name;
  }
}

void expect_round_trip(const std::string& bytes) {
  const Model first = load_bytes(bytes);
  const std::string saved = saved_bytes(first);
  const Model second = load_bytes(saved);
  expect_same_graph(first.graph, second.graph);
  EXPECT_EQ(first.ir_version, second.ir_version);
  ASSERT_EQ(first.opsets.size(), second.opsets.size());
  for (std::size_t i = 0; i < first.opsets.size(); ++i) EXPECT_EQ(first.opsets[i].version, second.opsets[i].version);
  ASSERT_EQ(first.metadata.size(), second.metadata.size());
  for (std::size_t i = 0; i < first.metadata.size(); ++i) EXPECT_EQ(first.metadata[i].value, second.metadata[i].value);
  EXPECT_EQ(saved_bytes(second), saved);
}

TEST(Save, ANetworkReadsBackAsItWas) { expect_round_trip(small_network().serialize()); }

TEST(Save, InputsWithADefaultReadBackBehindTheOthers) {
  OnnxWriter w;
  w.add_input("k", kF32, {2}).add_input("x", kF32, {2}).add_input("unused", kF32, {2}).add_output("y");
  w.add_node("Mul", {"x", "k"}, {"y"}).add_initializer("k", {2}, std::vector<float>{1, 2});
  expect_round_trip(w.serialize());
  Model model = load_bytes(w.serialize());
  ASSERT_EQ(model.defaults.size(), 1u);
  const Model again = load_bytes(saved_bytes(model));
  ASSERT_EQ(again.defaults.size(), 1u);
  EXPECT_EQ(again.defaults[0].declared.name, "k");
  EXPECT_EQ(again.graph.inputs.size(), 2u);
  model.defaults.clear();
  EXPECT_TRUE(load_bytes(saved_bytes(model)).defaults.empty());
}

TEST(Save, LargeTensorsArePiecesOfTheirOwn) {
  OnnxWriter w;
  w.add_input("x", kF32, {1, 1000}).add_output("y").add_node("MatMul", {"x", "w"}, {"y"});
  w.add_initializer("w", {1000, 3}, std::vector<float>(3000, 0.5f));
  const Model model = load_bytes(w.serialize());
  const SavedModel saved = save_onnx(model);
  EXPECT_EQ(std::count_if(saved.pieces.begin(), saved.pieces.end(), [](const SavedPiece& p) { return p.data != nullptr; }), 1);
  expect_round_trip(w.serialize());
}

TEST(Save, BodiesTextsAndTypesReadBack) {
  Proto texts;
  texts.varint(1, 2).varint(2, kStr).bytes(6, "one").bytes(6, std::string_view("t\0o", 3)).bytes(8, "texts");
  Proto body = Proto()
                   .message(1, node_proto("Add", {"x", "x"}, {"twice"}))
                   .bytes(2, "then")
                   .message(12, value_info_proto("twice", kF32, {2}));
  Proto other =
      Proto().message(1, node_proto("Identity", {"x"}, {"same"})).bytes(2, "else").message(12, value_info_proto("same", kF32, {2}));
  OnnxWriter w(18);
  w.add_input("c", kBool, {}).add_input("x", kF32, {"N"}).add_output("y").add_output("s", kStr);
  w.add_node("If", {"c"}, {"y"}, {Attr::graph("then_branch", body), Attr::graph("else_branch", other)}, "if");
  w.add_node("Identity", {"texts"}, {"s"}).add_initializer(texts);
  w.graph().message(
      11, Proto().bytes(1, "q").message(2, Proto().message(4, Proto().message(1, Proto().message(1, Proto().varint(1, kF32))))));
  expect_round_trip(w.serialize());
  const Model again = load_bytes(saved_bytes(load_bytes(w.serialize())));
  for (const Value& v : again.graph.values) {
    if (v.name != "texts") continue;
    EXPECT_EQ(text_of(v.constant->as<TextElement>()[1]), std::string_view("t\0o", 3));
  }
}

Proto entry_proto(std::string_view key, std::string_view value) { return Proto().bytes(1, key).bytes(2, value); }

Origin origin_in(const Model& model, std::string_view name) {
  for (const Value& v : model.graph.values) {
    if (v.name == name) return v.origin;
  }
  ADD_FAILURE() << "no value " << name;
  return Origin::kUnknown;
}

// As torch.onnx writes it: the kind in value_info, a list of all inputs in the graph, and of which values a constant was made.
OnnxWriter network_with_origins() {
  OnnxWriter w;
  w.add_input("x", kF32, {1, 2}).add_output("y");
  w.add_node("Add", {"x", "weight"}, {"a"}).add_node("Add", {"a", "buffer"}, {"b"}).add_node("Add", {"b", "number"}, {"c"});
  w.add_node("Add", {"c", "folded"}, {"d"}).add_node("Add", {"d", "folded_buffer"}, {"e"}).add_node("Add", {"e", "listed"}, {"y"});
  for (const char* name : {"weight", "buffer", "number", "folded", "folded_buffer", "listed"})
    w.add_initializer(name, {2}, std::vector<float>{1, 2});
  return w;
}

TEST(Save, OriginsOfInitializersReadBack) {
  OnnxWriter w = network_with_origins();
  const auto describe = [&](std::string_view name, std::string_view key, std::string_view value) {
    w.graph().message(13, value_info_proto(name, kF32, {2}).message(4, entry_proto(key, value)));
  };
  describe("weight", kOriginKey, "PARAMETER");
  describe("buffer", kOriginKey, "BUFFER");
  describe("folded", "pkg.onnxscript.optimizer.folded_from", "['other', 'lost']");
  describe("folded_buffer", "pkg.onnxscript.optimizer.folded_from", "['lost_buffer']");
  w.graph().message(16, entry_proto("pkg.torch.export.ExportedProgram.graph_signature",
                                    "\n# inputs\np_weight: PARAMETER target='weight'\np_lost: PARAMETER target='lost'\n"
                                    "b_lost: BUFFER target='lost_buffer' persistent=True\np_listed: PARAMETER target='listed'\n"));
  const Model model = load_bytes(w.serialize());
  for (const Model& m : {model, load_bytes(saved_bytes(model))}) {
    for (const char* name : {"weight", "folded", "listed"}) EXPECT_EQ(origin_in(m, name), Origin::kParameter) << name;
    for (const char* name : {"buffer", "number", "folded_buffer"}) EXPECT_EQ(origin_in(m, name), Origin::kOther) << name;
  }
}

TEST(Save, AModelThatDoesNotSayOriginsHasNone) {
  const Model model = load_bytes(network_with_origins().serialize());
  for (const Model& m : {model, load_bytes(saved_bytes(model))}) {
    for (const char* name : {"weight", "buffer", "number"}) EXPECT_EQ(origin_in(m, name), Origin::kUnknown) << name;
  }
}

TEST(Save, WhatARewritePutInIsRefusedByName) {
  Model model = load_bytes(small_network().serialize());
  ASSERT_TRUE(model.graph.nodes[0].epilogue.push({EpilogueOpKind::kRelu, 0, 0}));
  try {
    save_onnx(model);
    FAIL() << "it was saved";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
    EXPECT_STREQ(e.node, "conv");
  }
}

}  // namespace
}  // namespace evn
