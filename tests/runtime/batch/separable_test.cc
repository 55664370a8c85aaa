// The proof that rows are independent: graphs that it takes are run row by row and joined, and give the same bits; graphs that it
// does not take are refused with the node.
#include "runtime/rows/separable.h"

#include "runtime/batch/batcher.h"
#include "tests/runtime/support.h"

namespace evn::test::separable_test {
namespace {

using Ints = std::vector<std::int64_t>;

SessionRequest batching() {
  SessionRequest request("");
  request.batching.max_batch = 8;
  return request;
}

// A graph of inputs with open dims "N" and "S", of which a row has 1 and 5.
struct Graph1 {
  const char* name;
  OnnxWriter writer;
};

std::vector<float> numbers(std::size_t count, float step = 0.37f) {
  std::vector<float> v(count);
  for (std::size_t i = 0; i < count; ++i)
    v[i] = 0.5f * static_cast<float>(std::sin(static_cast<double>(step) * static_cast<double>(i + 1)));
  return v;
}

// x [N, 6, 4] and y [N, 6, 4] to "out".
OnnxWriter two(std::int64_t opset = 18) {
  OnnxWriter w(opset);
  w.import("com.microsoft", 1);
  w.add_input("x", kF32, {"N", 6, 4}).add_input("y", kF32, {"N", 6, 4}).add_output("out");
  return w;
}
// x [N, 8, 6, 6], an image, to "out".
OnnxWriter image(std::int64_t opset = 18) {
  OnnxWriter w(opset);
  w.add_input("x", kF32, {"N", 8, 6, 6}).add_output("out");
  return w;
}
// x [N, S, 16], a text, to "out".
OnnxWriter text(std::int64_t opset = 18) {
  OnnxWriter w(opset);
  w.import("com.microsoft", 1);
  w.add_input("x", kF32, {"N", "S", 16}).add_output("out");
  return w;
}

OnnxWriter with(OnnxWriter w, std::string_view op, const std::vector<std::string>& inputs, const std::vector<Attr>& attributes = {},
                std::string_view domain = "") {
  w.add_node(op, inputs, {"out"}, attributes, "it", domain);
  return w;
}

OnnxWriter transformer_layer() {
  OnnxWriter w(17);
  w.add_input("x", kF32, {"N", "S", 16}).add_input("mask", kF32, {"N", "S"}).add_output("out");
  for (const char* name : {"wq", "wk", "wv", "wo"})
    w.add_initializer(name, {16, 16}, numbers(256, 0.1f * static_cast<float>(name[1])));
  w.add_initializer("bias", {16}, numbers(16))
      .add_initializer("one", {}, std::vector<float>{1})
      .add_initializer("low", {}, std::vector<float>{-1e4f});
  w.add_initializer("i0", {}, Ints{0}).add_initializer("i1", {}, Ints{1}).add_initializer("ax0", {1}, Ints{0});
  w.add_initializer("ax12", {2}, Ints{1, 2}).add_initializer("heads", {1}, Ints{4}).add_initializer("depth", {1}, Ints{4});
  w.add_initializer("wide", {1}, Ints{16}).add_initializer("scale", {}, std::vector<float>{0.5f});
  w.add_node("Shape", {"x"}, {"shape"}).add_node("Gather", {"shape", "i0"}, {"n"}).add_node("Gather", {"shape", "i1"}, {"s"});
  w.add_node("Unsqueeze", {"n", "ax0"}, {"n1"}).add_node("Unsqueeze", {"s", "ax0"}, {"s1"});
  w.add_node("Concat", {"n1", "s1", "heads", "depth"}, {"split"}, {{"axis", 0}});
  w.add_node("Concat", {"n1", "s1", "wide"}, {"joined"}, {{"axis", 0}});
  for (const std::string p : {"q", "k", "v"}) {
    w.add_node("MatMul", {"x", "w" + p}, {p + "0"}).add_node("Add", {p + "0", "bias"}, {p + "1"});
    w.add_node("Reshape", {p + "1", "split"}, {p + "2"});
    w.add_node("Transpose", {p + "2"}, {p + "3"}, {{"perm", p == "k" ? Ints{0, 2, 3, 1} : Ints{0, 2, 1, 3}}});
  }
  w.add_node("Unsqueeze", {"mask", "ax12"}, {"m1"}).add_node("Sub", {"one", "m1"}, {"m2"}).add_node("Mul", {"m2", "low"}, {"m3"});
  w.add_node("MatMul", {"q3", "k3"}, {"s0"}).add_node("Mul", {"s0", "scale"}, {"s2"}).add_node("Add", {"s2", "m3"}, {"s3"});
  w.add_node("Softmax", {"s3"}, {"p"}, {{"axis", -1}}).add_node("MatMul", {"p", "v3"}, {"c"});
  w.add_node("Transpose", {"c"}, {"c1"}, {{"perm", Ints{0, 2, 1, 3}}}).add_node("Reshape", {"c1", "joined"}, {"c2"});
  w.add_node("MatMul", {"c2", "wo"}, {"o"}).add_node("Add", {"o", "x"}, {"out"});
  return w;
}

OnnxWriter recurrent(const char* op, std::int64_t gates) {
  OnnxWriter w(17);
  w.add_input("x", kF32, {"N", "S", 6}).add_input("h", kF32, {1, "N", 8}).add_output("out").add_output("last");
  w.add_initializer("w", {1, gates * 8, 6}, numbers(static_cast<std::size_t>(gates) * 48));
  w.add_initializer("r", {1, gates * 8, 8}, numbers(static_cast<std::size_t>(gates) * 64));
  w.add_node("Transpose", {"x"}, {"t"}, {{"perm", Ints{1, 0, 2}}})
      .add_node(op, {"t", "w", "r", "", "", "h"}, {"out", "last"}, {{"hidden_size", 8}}, "it");
  return w;
}

// As exporters write a mask for scores: mask[row, key] for each row, query and key, by lists of these two numbers.
OnnxWriter mask_by_indices() {
  OnnxWriter w(18);
  w.add_input("x", kF32, {"N", "S"}).add_output("out");
  w.add_initializer("i0", {}, Ints{0}).add_initializer("i1", {}, Ints{1}).add_initializer("front", {3}, Ints{1, 2, 3});
  w.add_initializer("key", {3}, Ints{0, 1, 2}).add_initializer("query", {3}, Ints{0, 1, 3}).add_initializer("end", {1}, Ints{-1});
  w.add_node("Shape", {"x"}, {"s"}).add_node("Gather", {"s", "i0"}, {"n"}).add_node("Gather", {"s", "i1"}, {"l"});
  w.add_node("Range", {"i0", "n", "i1"}, {"rows"}).add_node("Range", {"i0", "l", "i1"}, {"places"});
  w.add_node("Unsqueeze", {"rows", "front"}, {"r"})
      .add_node("Unsqueeze", {"places", "key"}, {"k"})
      .add_node("Unsqueeze", {"places", "query"}, {"q"});
  w.add_node("Max", {"r", "k", "q"}, {"all"}).add_node("Shape", {"all"}, {"shape"});
  for (const std::string p : {"r", "k"})
    w.add_node("Expand", {p, "shape"}, {p + "1"}).add_node("Unsqueeze", {p + "1", "end"}, {p + "2"});
  w.add_node("Concat", {"r2", "k2"}, {"lists"}, {{"axis", -1}}).add_node("GatherND", {"x", "lists"}, {"out"});
  return w;
}

// The mask of mask_by_indices, gathered by offsets into the flattened mask.
OnnxWriter mask_by_offsets() {
  OnnxWriter w(18);
  w.add_input("x", kF32, {"N", "S"}).add_output("out");
  w.add_initializer("i0", {}, Ints{0}).add_initializer("i1", {}, Ints{1}).add_initializer("front", {3}, Ints{1, 2, 3});
  w.add_initializer("key", {3}, Ints{0, 1, 2}).add_initializer("flat", {1}, Ints{-1});
  w.add_node("Shape", {"x"}, {"s"}).add_node("Gather", {"s", "i0"}, {"n"}).add_node("Gather", {"s", "i1"}, {"l"});
  w.add_node("Range", {"i0", "n", "i1"}, {"rows"}).add_node("Range", {"i0", "l", "i1"}, {"places"});
  w.add_node("Unsqueeze", {"rows", "front"}, {"r"}).add_node("Unsqueeze", {"places", "key"}, {"k"});
  w.add_node("Mul", {"r", "l"}, {"begin"}).add_node("Add", {"k", "begin"}, {"at"});
  w.add_node("Reshape", {"x", "flat"}, {"f"}).add_node("Gather", {"f", "at"}, {"out"});
  return w;
}

// x as bytes "q", of scale "s" and zero point "z".
OnnxWriter bytes(OnnxWriter w) {
  w.add_initializer("s", {}, std::vector<float>{0.03f}).add_initializer("z", {}, std::vector<std::uint8_t>{120});
  w.add_node("QuantizeLinear", {"x", "s", "z"}, {"q"});
  return w;
}
std::vector<std::int8_t> small_bytes(std::size_t count) {
  std::vector<std::int8_t> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = static_cast<std::int8_t>(static_cast<int>(i * 37 % 61) - 30);
  return v;
}
OnnxWriter from_bytes(OnnxWriter w) {
  w.add_node("DequantizeLinear", {"y", "s", "z"}, {"out"});
  return w;
}

OnnxWriter group_query_attention() {
  OnnxWriter w(18);
  w.import("com.microsoft", 1)
      .add_input("q", kF32, {"N", 1, 16})
      .add_input("k", kF32, {"N", 1, 8})
      .add_input("v", kF32, {"N", 1, 8});
  w.add_input("pk", kF32, {"N", 1, 5, 8}).add_input("pv", kF32, {"N", 1, 5, 8}).add_output("out").add_output("k1").add_output("v1");
  w.add_initializer("end", {1}, Ints{1})
      .add_initializer("begin", {1}, Ints{0})
      .add_initializer("total", {1}, std::vector<std::int32_t>{6});
  w.add_node("Shape", {"q"}, {"shape"}).add_node("Slice", {"shape", "begin", "end"}, {"n"});
  w.add_node("ConstantOfShape", {"n"}, {"lengths"},
             {Attr::tensor("value", tensor_proto("", kI32, {1}, std::string("\5\0\0\0", 4)))});
  w.add_node("GroupQueryAttention", {"q", "k", "v", "pk", "pv", "lengths", "total"}, {"out", "k1", "v1"},
             {{"num_heads", 2}, {"kv_num_heads", 1}}, "it", "com.microsoft");
  return w;
}

OnnxWriter attention_with_past() {
  OnnxWriter w(23);
  w.add_input("q", kF32, {"N", 2, "S", 8}).add_input("k", kF32, {"N", 2, "S", 8}).add_input("v", kF32, {"N", 2, "S", 8});
  w.add_input("pk", kF32, {"N", 2, 3, 8}).add_input("pv", kF32, {"N", 2, 3, 8}).add_output("out").add_output("k1").add_output("v1");
  w.add_node("Attention", {"q", "k", "v", "", "pk", "pv"}, {"out", "k1", "v1"}, {{"is_causal", 1}}, "it");
  return w;
}

OnnxWriter packed_attention() {
  OnnxWriter w = text();
  w.add_input("past", kF32, {2, "N", 2, 3, 8})
      .add_output("present")
      .add_initializer("w", {16, 48}, numbers(768))
      .add_initializer("b", {48}, numbers(48));
  w.add_node("Attention", {"x", "w", "b", "", "past"}, {"out", "present"}, {{"num_heads", 2}}, "it", "com.microsoft");
  return w;
}

std::vector<Graph1> taken() {
  std::vector<Graph1> g;
  const auto add = [&](const char* name, OnnxWriter w) { g.push_back({name, std::move(w)}); };
  add("Add", with(two(), "Add", {"x", "y"}));
  add("AddOfConstant", with(two().add_initializer("c", {6, 4}, numbers(24)), "Add", {"x", "c"}));
  add("Where", with(two().add_node("Greater", {"x", "y"}, {"b"}), "Where", {"b", "x", "y"}));
  add("Softmax", with(two(), "Softmax", {"x"}, {{"axis", 1}}));
  add("SoftmaxOfOldVersions", with(two(11), "Softmax", {"x"}, {{"axis", 1}}));
  add("ReduceMean", with(two().add_initializer("a", {1}, Ints{2}), "ReduceMean", {"x", "a"}, {{"keepdims", 0}}));
  add("ReduceSumOfOuterAxes",
      with(text().add_node("Transpose", {"x"}, {"t"}, {{"perm", Ints{1, 0, 2}}}).add_initializer("a", {1}, Ints{0}), "ReduceSum",
           {"t", "a"}, {{"keepdims", 0}}));
  add("ArgMax",
      OnnxWriter(18).add_input("x", kF32, {"N", 6, 4}).add_output("out", kI64).add_node("ArgMax", {"x"}, {"out"}, {{"axis", 1}}));
  add("CumSum", with(two().add_initializer("a", {}, Ints{1}), "CumSum", {"x", "a"}));
  add("Concat", with(two(), "Concat", {"x", "y"}, {{"axis", 2}}));
  add("Split", two()
                   .add_initializer("s", {2}, Ints{2, 4})
                   .add_node("Split", {"x", "s"}, {"a", "b"}, {{"axis", 1}})
                   .add_node("Relu", {"b"}, {"out"}));
  add("Slice", with(two()
                        .add_initializer("b", {2}, Ints{0, 1})
                        .add_initializer("e", {2}, Ints{1000, 5})
                        .add_initializer("a", {2}, Ints{0, 1}),
                    "Slice", {"x", "b", "e", "a"}));
  add("Pad", with(two().add_initializer("p", {6}, Ints{0, 1, 0, 0, 2, 1}), "Pad", {"x", "p"}));
  add("GatherOfTable", OnnxWriter(18)
                           .add_input("i", kI64, {"N", "S"})
                           .add_output("out")
                           .add_initializer("t", {2, 4}, numbers(8))
                           .add_node("Gather", {"t", "i"}, {"out"}));
  add("GatherOfRows", with(two().add_initializer("i", {2}, Ints{3, 0}), "Gather", {"x", "i"}, {{"axis", 1}}));
  add("Transpose", with(two(), "Transpose", {"x"}, {{"perm", Ints{0, 2, 1}}}));
  add("ReshapeOfZeros", with(two().add_initializer("s", {4}, Ints{0, 2, 3, 4}), "Reshape", {"x", "s"}));
  add("ReshapeOfRest", with(two().add_initializer("s", {2}, Ints{-1, 24}), "Reshape", {"x", "s"}));
  add("ReshapeThatMergesRowsInFront", two()
                                          .add_initializer("s", {2}, Ints{-1, 4})
                                          .add_initializer("t", {3}, Ints{-1, 6, 4})
                                          .add_initializer("w", {4, 4}, numbers(16))
                                          .add_node("Reshape", {"x", "s"}, {"f"})
                                          .add_node("MatMul", {"f", "w"}, {"m"})
                                          .add_node("Reshape", {"m", "t"}, {"out"}));
  add("Flatten", with(image(), "Flatten", {"x"}));
  add("ExpandBySizeOfBatch", two()
                                 .add_initializer("c", {1, 6, 1}, numbers(6))
                                 .add_node("Shape", {"x"}, {"s"})
                                 .add_node("Expand", {"c", "s"}, {"e"})
                                 .add_node("Mul", {"e", "x"}, {"out"}));
  add("ConstantOfShape",
      two().add_node("Shape", {"x"}, {"s"}).add_node("ConstantOfShape", {"s"}, {"z"}).add_node("Sub", {"z", "x"}, {"out"}));
  add("ScaleByAShape", two()
                           .add_node("Shape", {"x"}, {"s"})
                           .add_initializer("i", {}, Ints{2})
                           .add_node("Gather", {"s", "i"}, {"d"})
                           .add_node("Cast", {"d"}, {"f"}, {{"to", 1}})
                           .add_node("Sqrt", {"f"}, {"r"})
                           .add_node("Div", {"x", "r"}, {"out"}));
  add("Tile", with(two().add_initializer("r", {3}, Ints{1, 2, 1}), "Tile", {"x", "r"}));
  add("MatMul", with(text().add_initializer("w", {16, 24}, numbers(384)), "MatMul", {"x", "w"}));
  add("MatMulOfRows", with(two().add_node("Transpose", {"y"}, {"t"}, {{"perm", Ints{0, 2, 1}}}), "MatMul", {"x", "t"}));
  add("MatMulOfAVector", with(text().add_initializer("w", {16}, numbers(16)), "MatMul", {"x", "w"}));
  add("Gemm", OnnxWriter(18)
                  .add_input("x", kF32, {"N", 40})
                  .add_output("out")
                  .add_initializer("w", {40, 20}, numbers(800))
                  .add_initializer("b", {20}, numbers(20))
                  .add_node("Gemm", {"x", "w", "b"}, {"out"}));
  add("Einsum", with(two(), "Einsum", {"x", "y"}, {{"equation", "nij,nkj->nik"}}));
  add("Conv", with(image().add_initializer("w", {16, 8, 3, 3}, numbers(1152)), "Conv", {"x", "w"}, {{"pads", Ints{1, 1, 1, 1}}}));
  add("ConvOfGroups", with(image().add_initializer("w", {8, 1, 3, 3}, numbers(72)), "Conv", {"x", "w"}, {{"group", 8}}));
  add("ConvTranspose",
      with(image().add_initializer("w", {8, 4, 2, 2}, numbers(128)), "ConvTranspose", {"x", "w"}, {{"strides", Ints{2, 2}}}));
  add("MaxPool", with(image(), "MaxPool", {"x"}, {{"kernel_shape", Ints{2, 2}}}));
  add("AveragePool", with(image(), "AveragePool", {"x"}, {{"kernel_shape", Ints{3, 3}}}));
  add("GlobalAveragePool", with(image(), "GlobalAveragePool", {"x"}));
  add("BatchNormalization", with(image().add_initializer("s", {8}, numbers(8)).add_initializer("v", {8}, std::vector<float>(8, 2)),
                                 "BatchNormalization", {"x", "s", "s", "s", "v"}));
  add("InstanceNormalization", with(image().add_initializer("s", {8}, numbers(8)), "InstanceNormalization", {"x", "s", "s"}));
  add("LRN", with(image(), "LRN", {"x"}, {{"size", 3}}));
  add("LayerNormalization", with(text().add_initializer("s", {16}, numbers(16)), "LayerNormalization", {"x", "s"}));
  add("SkipLayerNormalization",
      with(two().add_initializer("s", {4}, numbers(4)), "SkipLayerNormalization", {"x", "y", "s", "s"}, {}, "com.microsoft"));
  add("Resize",
      with(image().add_initializer("s", {4}, std::vector<float>{1, 1, 2, 2}), "Resize", {"x", "", "s"}, {{"mode", "linear"}}));
  add("DepthToSpace", with(image(), "DepthToSpace", {"x"}, {{"blocksize", 2}}));
  add("TopK", two().add_initializer("k", {1}, Ints{3}).add_node("TopK", {"x", "k"}, {"out", "i"}, {{"axis", 1}}));
  add("GatherElements", two()
                            .add_initializer("k", {1}, Ints{3})
                            .add_node("TopK", {"x", "k"}, {"v", "i"}, {{"axis", 1}})
                            .add_node("GatherElements", {"y", "i"}, {"out"}, {{"axis", 1}}));
  add("ScatterElements", two()
                             .add_initializer("k", {1}, Ints{3})
                             .add_node("TopK", {"x", "k"}, {"v", "i"}, {{"axis", 1}})
                             .add_node("ScatterElements", {"y", "i", "v"}, {"out"}, {{"axis", 1}}));
  add("ScatterND", two()
                       .add_node("Transpose", {"x"}, {"t"}, {{"perm", Ints{1, 0, 2}}})
                       .add_node("Transpose", {"y"}, {"u"}, {{"perm", Ints{1, 0, 2}}})
                       .add_initializer("i", {6, 1}, Ints{5, 3, 1, 0, 2, 4})
                       .add_node("ScatterND", {"t", "i", "u"}, {"v"})
                       .add_node("Transpose", {"v"}, {"out"}, {{"perm", Ints{1, 0, 2}}}));
  add("Trilu", with(two(), "Trilu", {"x"}));
  add("OneHot", OnnxWriter(18)
                    .add_input("i", kI64, {"N", "S"})
                    .add_output("out")
                    .add_initializer("d", {}, Ints{3})
                    .add_initializer("v", {2}, std::vector<float>{0, 1})
                    .add_node("OneHot", {"i", "d", "v"}, {"out"}));
  add("QuantizeLinear", two()
                            .add_initializer("s", {}, std::vector<float>{0.02f})
                            .add_initializer("z", {}, std::vector<std::uint8_t>{100})
                            .add_node("QuantizeLinear", {"x", "s", "z"}, {"q"})
                            .add_node("DequantizeLinear", {"q", "s", "z"}, {"out"}));
  add("LSTM", recurrent("LSTM", 4));
  add("GRU", recurrent("GRU", 3));
  add("RNN", recurrent("RNN", 1));
  add("Attention", transformer_layer());
  add("AttentionWithPast", attention_with_past());
  add("PackedAttention", packed_attention());
  add("GroupQueryAttention", group_query_attention());
  add("QLinearMatMul", from_bytes(bytes(text())
                                      .add_initializer("w", {16, 8}, small_bytes(128))
                                      .add_initializer("wz", {}, std::vector<std::int8_t>{1})
                                      .add_node("QLinearMatMul", {"q", "s", "z", "w", "s", "wz", "s", "z"}, {"y"})));
  add("QLinearConv", from_bytes(bytes(image())
                                    .add_initializer("w", {8, 8, 3, 3}, small_bytes(576))
                                    .add_initializer("wz", {}, std::vector<std::int8_t>{0})
                                    .add_node("QLinearConv", {"q", "s", "z", "w", "s", "wz", "s", "z"}, {"y"})));
  add("MatMulInteger", bytes(text())
                           .add_initializer("w", {16, 8}, small_bytes(128))
                           .add_node("MatMulInteger", {"q", "w", "z"}, {"y"})
                           .add_node("Cast", {"y"}, {"out"}, {{"to", 1}}));
  add("ConvInteger", bytes(image())
                         .add_initializer("w", {8, 8, 3, 3}, small_bytes(576))
                         .add_node("ConvInteger", {"q", "w", "z"}, {"y"})
                         .add_node("Cast", {"y"}, {"out"}, {{"to", 1}}));
  add("QLinearAdd", (bytes(two())
                         .add_node("QuantizeLinear", {"y", "s", "z"}, {"r"})
                         .add_node("QLinearAdd", {"q", "s", "z", "r", "s", "z", "s", "z"}, {"y1"}, {}, "", "com.microsoft")
                         .add_node("Identity", {"y1"}, {"y2"})
                         .add_node("DequantizeLinear", {"y2", "s", "z"}, {"out"})));
  add("RotaryEmbedding", with(OnnxWriter(23)
                                  .add_input("x", kF32, {"N", 2, 5, 8})
                                  .add_output("out")
                                  .add_initializer("c", {9, 4}, numbers(36))
                                  .add_input("at", kI64, {"N", 5}),
                              "RotaryEmbedding", {"x", "c", "c", "at"}));
  add("GatherNDByNumbersOfRows", mask_by_indices());
  add("GatherByOffsetsOfRows", mask_by_offsets());
  add("BiasGelu", with(two().add_initializer("b", {4}, numbers(4)), "BiasGelu", {"x", "b"}, {}, "com.microsoft"));
  add("MultiHeadAttention", with(OnnxWriter(18)
                                     .import("com.microsoft", 1)
                                     .add_input("q", kF32, {"N", "S", 16})
                                     .add_input("k", kF32, {"N", "S", 16})
                                     .add_input("v", kF32, {"N", "S", 16})
                                     .add_output("out"),
                                 "MultiHeadAttention", {"q", "k", "v"}, {{"num_heads", 2}}, "com.microsoft"));
  return g;
}

HostTensor random_input(const TensorDesc& desc, std::uint64_t seed) {
  if (desc.dtype == DType::kFloat32) return random_tensor(desc.shape, seed);
  HostTensor t(desc);
  Random random(seed);
  for (std::int64_t& e : t.as<std::int64_t>()) e = random.uniform(0, 1) > 0.5f ? 1 : 0;
  return t;
}

// Parts along an axis, one after the other.
HostTensor join(const std::vector<HostTensor>& parts, int axis) {
  TensorDesc desc = parts[0].desc;
  desc.shape[axis] = 0;
  for (const HostTensor& p : parts) desc.shape[axis] += p.desc.shape[axis];
  HostTensor all(desc);
  const std::int64_t before = desc.shape.elements(0, axis);
  auto* to = reinterpret_cast<unsigned char*>(all.bytes.data());
  for (std::int64_t b = 0; b < before; ++b) {
    for (const HostTensor& p : parts) {
      const std::size_t block = p.desc.size_bytes() / static_cast<std::size_t>(before);
      std::memcpy(to, reinterpret_cast<const unsigned char*>(p.bytes.data()) + static_cast<std::size_t>(b) * block, block);
      to += block;
    }
  }
  return all;
}

struct SeparableTest : RuntimeTest {
  void expect_same_bits(const OnnxWriter& writer, std::int64_t rows, std::int64_t length = 5) {
    const auto runtime = make_runtime({}, 0, 1);
    TestSession session(load(runtime, writer), batching());
    const std::vector<int> axes = row_axes(session.graph());
    RowInputs one;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const Value& v = session.graph().values[session.graph().inputs[i]];
      TensorDesc desc{v.dtype, v.shape};
      for (int k = 0; k < desc.shape.rank(); ++k) desc.shape[k] = k == axes[i] ? 1 : desc.shape[k] < 0 ? length : desc.shape[k];
      one.one.push_back(desc);
    }
    one.values.resize(axes.size());
    const RowOutputs proven = prove_rows(session.compiled(), axes, one, rows);
    std::vector<std::vector<HostTensor>> in(axes.size()), out(proven.axes.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      std::vector<HostTensor> inputs;
      for (std::size_t i = 0; i < axes.size(); ++i)
        inputs.push_back(random_input(one.one[i], static_cast<std::uint64_t>(100 * r) + i));
      const std::vector<HostTensor> outputs = run(session, inputs);
      for (std::size_t i = 0; i < axes.size(); ++i) in[i].push_back(inputs[i]);
      for (std::size_t j = 0; j < outputs.size(); ++j) out[j].push_back(outputs[j]);
    }
    std::vector<HostTensor> joined;
    for (std::size_t i = 0; i < axes.size(); ++i) joined.push_back(join(in[i], axes[i]));
    const std::vector<HostTensor> got = run(session, joined);
    for (std::size_t j = 0; j < got.size(); ++j) {
      ASSERT_NE(proven.axes[j], kNoRows);
      EXPECT_EQ(out[j][0].desc, proven.one[j]);
      const HostTensor want = join(out[j], proven.axes[j]);
      ASSERT_EQ(got[j].desc, want.desc) << "output " << j;
      EXPECT_EQ(std::memcmp(got[j].bytes.data(), want.bytes.data(), want.desc.size_bytes()), 0) << "output " << j;
    }
  }

  static Error refusal(const OnnxWriter& writer) {
    try {
      TestSession session(load(make_runtime({}, 0, 1), writer), batching());
    } catch (const Error& e) {
      return e;
    }
    return make_error(EVN_OK, "the session was made");
  }
  static void expect_refused(const OnnxWriter& writer, const char* why, const char* node = "it") {
    const Error e = refusal(writer);
    EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED) << e.message;
    EXPECT_STREQ(e.node, node) << e.message;
    EXPECT_NE(std::string(e.message).find(why), std::string::npos) << e.message;
  }
};

TEST_F(SeparableTest, RowsHaveTheSameBitsJoinedAndAlone) {
  for (const Graph1& g : taken()) {
    for (const std::int64_t rows : {2, 3, 7}) {
      SCOPED_TRACE(std::string(g.name) + ", rows: " + std::to_string(rows));
      try {
        expect_same_bits(g.writer, rows);
      } catch (const Error& e) {
        ADD_FAILURE() << e.message << " " << e.node;
      }
    }
  }
}

// The lists of indices are too long to be looked at one by one.
TEST_F(SeparableTest, NumbersOfRowsAreFollowed) {
  expect_same_bits(mask_by_indices(), 3, 80);
  OnnxWriter w = two();
  w.add_node("Shape", {"x"}, {"s"})
      .add_initializer("i", {}, Ints{0})
      .add_initializer("one", {}, Ints{1})
      .add_node("Gather", {"s", "i"}, {"n"});
  w.add_node("Range", {"i", "n", "one"}, {"rows"}).add_node("Gather", {"x", "rows"}, {"out"}, {{"axis", 1}}, "it");
  expect_refused(w, "chooses by the size of the batch");
}

TEST_F(SeparableTest, OperatorsThatMixRowsAreRefused) {
  expect_refused(with(two(), "Softmax", {"x"}, {{"axis", 0}}), "works along the axis");
  expect_refused(with(two(11), "Softmax", {"x"}, {{"axis", 0}}), "works along the axis");
  expect_refused(with(two().add_initializer("a", {1}, Ints{0}), "ReduceSum", {"x", "a"}), "brings together all rows");
  expect_refused(with(two().add_initializer("a", {}, Ints{0}), "CumSum", {"x", "a"}), "works along the axis");
  expect_refused(with(two(), "Concat", {"x", "y"}, {{"axis", 0}}), "joins values along the axis");
  expect_refused(with(two().add_initializer("i", {2}, Ints{0, 0}), "Gather", {"x", "i"}), "chooses among the rows");
  expect_refused(with(two().add_initializer("s", {3}, Ints{6, -1, 4}), "Reshape", {"x", "s"}), "mixes the rows");
  expect_refused(with(two().add_initializer("r", {3}, Ints{2, 1, 1}), "Tile", {"x", "r"}), "repeats the rows");
  expect_refused(with(two().add_initializer("p", {6}, Ints{1, 0, 0, 0, 0, 0}), "Pad", {"x", "p"}), "pads the batch");
  expect_refused(with(two(), "Einsum", {"x", "y"}, {{"equation", "nij,mij->nm"}}), "multiplies by a matrix whose");
  expect_refused(with(two(), "Einsum", {"x", "y"}, {{"equation", "nij,nij->ij"}}), "multiplies by a matrix whose", "it/4");
  OnnxWriter square(17);  // diagonals stay an Einsum
  square.add_input("x", kF32, {"batch", 4, 4}).add_input("y", kF32, {"batch", 4, 4}).add_output("out");
  expect_refused(with(square, "Einsum", {"x", "y"}, {{"equation", "nii,mii->nm"}}), "brings together rows");
  expect_refused(with(square, "Einsum", {"x", "y"}, {{"equation", "nii,nii->i"}}), "sums up");
  OnnxWriter top = two();
  top.add_initializer("k", {1}, Ints{1}).add_node("TopK", {"x", "k"}, {"out", "i"}, {{"axis", 0}}, "it");
  expect_refused(top, "works along the axis");
  OnnxWriter quantize = two();
  quantize.add_node("DynamicQuantizeLinear", {"x"}, {"q", "s", "z"}, {}, "it")
      .add_node("DequantizeLinear", {"q", "s", "z"}, {"out"});
  expect_refused(quantize, "one scale from all rows");
  OnnxWriter norm = image(15);
  norm.add_initializer("s", {8}, numbers(8)).add_initializer("v", {8}, std::vector<float>(8, 2));
  norm.add_node("BatchNormalization", {"x", "s", "s", "s", "v"}, {"out", "m", "w"}, {{"training_mode", 1}}, "it");
  expect_refused(norm, "is in training");
  // Of one row, columns are lines.
  OnnxWriter inner(18);
  inner.add_input("x", kF32, {"N", 40}).add_output("out").add_node("Transpose", {"x"}, {"t"}, {{"perm", Ints{1, 0}}});
  expect_refused(with(inner, "Softmax", {"t"}, {{"axis", 0}}), "in another order");
  inner.add_initializer("a", {1}, Ints{0});
  expect_refused(with(inner, "ReduceSum", {"t", "a"}), "in another order");
  expect_refused(with(inner, "ReduceL2", {"t", "a"}), "in another order");
  OnnxWriter pool = image();
  pool.add_output("places", kI64).add_node("MaxPool", {"x"}, {"out", "places"}, {{"kernel_shape", Ints{2, 2}}}, "it");
  expect_refused(pool, "count through the whole batch");
}

TEST_F(SeparableTest, ValuesThatDependOnTheSizeOfABatchAreRefused) {
  OnnxWriter w = two();
  w.add_node("Shape", {"x"}, {"s"}).add_initializer("i", {}, Ints{0}).add_node("Gather", {"s", "i"}, {"n"});
  w.add_node("Cast", {"n"}, {"f"}, {{"to", 1}}).add_node("Mul", {"x", "f"}, {"out"}, {}, "it");
  expect_refused(w, "computes with the size of the batch");
  OnnxWriter shape(18);
  shape.add_input("x", kF32, {"N", 4}).add_output("out", kI64).add_node("Shape", {"x"}, {"out"}, {}, "it");
  const Error e = refusal(shape);
  EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
  EXPECT_NE(std::string(e.message).find("output \"out\" depends on how many rows there are"), std::string::npos) << e.message;
}

TEST_F(SeparableTest, OperandsWithNumbersOfTheirOwnForEachRowAreRefused) {
  expect_refused(with(two().add_initializer("c", {3, 6, 4}, numbers(72)), "Add", {"x", "c"}), "numbers of its own");
  expect_refused(with(two().add_initializer("c", {3, 4, 4}, numbers(48)), "MatMul", {"x", "c"}), "numbers of its own");
}

TEST_F(SeparableTest, RandomAndUnknownOperatorsAreRefused) {
  expect_refused(with(two(), "RandomNormalLike", {"x"}), "draws numbers");
  expect_refused(with(two(), "Bernoulli", {"x"}), "draws numbers");
  expect_refused(with(two(), "MeanVarianceNormalization", {"x"}, {{"axes", Ints{0, 2}}}), "not known");
}

TEST_F(SeparableTest, NodesOnOtherDevicesAreRefused) {
  Config config = two_mocks();
  config.rules.push_back(rule({"Relu"}, {}, "m", Policy::kRequire, 1));
  SessionRequest request = batching();
  try {
    TestSession session(load(make_runtime(config), with(two(), "Relu", {"x"})), request);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
    EXPECT_STREQ(e.node, "it");
    EXPECT_NE(std::string(e.message).find("on a device"), std::string::npos) << e.message;
  }
}

TEST_F(SeparableTest, BodiesAreRefused) {
  const Proto body = Proto()
                         .message(1, node_proto("Identity", {"c"}, {"c1"}))
                         .message(1, node_proto("Relu", {"v"}, {"v1"}))
                         .bytes(2, "body")
                         .message(11, value_info_proto("i", kI64, {}))
                         .message(11, value_info_proto("c", kBool, {}))
                         .message(11, value_info_proto("v", kF32, {}, false))
                         .message(12, value_info_proto("c1", kBool, {}))
                         .message(12, value_info_proto("v1", kF32, {}, false));
  OnnxWriter w = two();
  w.add_input("n", kI64, {}).add_node("Loop", {"n", "", "x"}, {"out"}, {Attr::graph("body", body)}, "it");
  expect_refused(w, "on the host");
}

TEST_F(SeparableTest, ABatchOfOneInTheFileIsNone) {
  OnnxWriter w(18);
  w.add_input("pixels", kF32, {1, 3, 8, 8}).add_output("out").add_node("Relu", {"pixels"}, {"out"});
  const Error e = refusal(w);
  EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
  EXPECT_NE(std::string(e.message).find("dim 0 of input \"pixels\" is 1"), std::string::npos) << e.message;
}

// Both ways of an If that an input without rows decides are looked at.
TEST_F(SeparableTest, BothBranchesMustKeepRowsApart) {
  const auto branches = [](const char* op, const std::vector<Attr>& attributes) {
    const auto graph = [](const char* name, const Proto& node) {
      return Proto().message(1, node).bytes(2, name).message(12, value_info_proto("b", kF32, {}, false));
    };
    OnnxWriter w(18);
    w.add_input("x", kF32, {"N", 6, 4}).add_input("rate", kI64, {}).add_output("out");
    w.add_initializer("r", {}, Ints{8}).add_node("Equal", {"rate", "r"}, {"c"});
    w.add_node("If", {"c"}, {"out"},
               {Attr::graph("then_branch", graph("t", node_proto("Relu", {"x"}, {"b"}, {}, "fine"))),
                Attr::graph("else_branch", graph("e", node_proto(op, {"x"}, {"b"}, attributes, "bad")))});
    return w;
  };
  EXPECT_EQ(refusal(branches("Softmax", {{"axis", 1}})).status, EVN_OK);
  const Error e = refusal(branches("Softmax", {{"axis", 0}}));
  EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
  EXPECT_NE(std::string(e.node).find("bad"), std::string::npos) << e.node;
}

}  // namespace
}  // namespace evn::test::separable_test
