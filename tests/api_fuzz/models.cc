#include "tests/api_fuzz/models.h"

#include <vector>

#include "tests/model/onnx_writer.h"

namespace evn::fuzz {
namespace {

using namespace evn::test;

std::vector<float> numbers(std::size_t count) {
  std::vector<float> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = 0.03f * static_cast<float>(i * 7 % 23) - 0.33f;
  return made;
}

OnnxWriter& weight(OnnxWriter& w, const char* name, const std::vector<std::int64_t>& dims) {
  std::int64_t count = 1;
  for (const std::int64_t d : dims) count *= d;
  return w.add_initializer(name, dims, numbers(static_cast<std::size_t>(count)));
}

std::string mlp() {
  OnnxWriter w;
  w.add_input("x", kF32, {"N", 4}).add_output("y", kF32, {"N", 3});
  weight(weight(weight(weight(w, "w1", {4, 16}), "b1", {16}), "w2", {16, 3}), "b2", {3});
  w.add_node("Gemm", {"x", "w1", "b1"}, {"h"}, {}, "g1").add_node("Relu", {"h"}, {"a"}).add_node("Gemm", {"a", "w2", "b2"}, {"y"});
  return w.serialize();
}

// With a cache of keys, for states.
std::string attention() {
  OnnxWriter w;
  w.add_input("x", kF32, {"N", "S", 8}).add_input("past", kF32, {"N", "P", 8});
  w.add_output("y", kF32, {"N", "S", 8}).add_output("present", kF32, {"N", "T", 8});
  weight(w, "wk", {8, 8});
  w.add_node("MatMul", {"x", "wk"}, {"k"}).add_node("Concat", {"past", "k"}, {"present"}, {{"axis", 1}});
  w.add_node("Transpose", {"present"}, {"kt"}, {{"perm", std::vector<std::int64_t>{0, 2, 1}}})
      .add_node("MatMul", {"x", "kt"}, {"s"});
  w.add_node("Softmax", {"s"}, {"p"}, {{"axis", -1}}).add_node("MatMul", {"p", "present"}, {"y"});
  return w.serialize();
}

std::string lstm() {
  OnnxWriter w;
  w.add_input("x", kF32, {3, 2, 5}).add_input("h0", kF32, {1, 2, 4}).add_input("c0", kF32, {1, 2, 4});
  w.add_output("h1", kF32, {1, 2, 4}).add_output("c1", kF32, {1, 2, 4});
  weight(weight(w, "w", {1, 16, 5}), "r", {1, 16, 4});
  w.add_node("LSTM", {"x", "w", "r", "", "", "h0", "c0"}, {"", "h1", "c1"}, {{"hidden_size", 4}});
  return w.serialize();
}

std::string strings() {
  OnnxWriter w(20, 9);
  w.add_input("a", kStr, {"N"}).add_input("b", kStr, {"N"}).add_output("y", kStr).add_output("n", kI64);
  w.add_node("StringConcat", {"a", "b"}, {"c"}).add_node("StringSplit", {"c"}, {"y", "n"}, {{"delimiter", "x"}});
  return w.serialize();
}

std::string sequence() {
  OnnxWriter w;
  w.add_input("a", kF32, {"N"}).add_input("b", kF32, {"M"}).add_input("i", kI64, {}).add_output("y");
  w.add_node("SequenceConstruct", {"a", "b"}, {"s"}).add_node("SequenceAt", {"s", "i"}, {"y"});
  return w.serialize();
}

std::string random_numbers() {
  OnnxWriter w(13);
  w.add_input("x", kF32, {"N", "M"}).add_output("y", kI64).add_output("z", kF32);
  w.add_node("RandomNormalLike", {"x"}, {"n"}).add_node("NonZero", {"n"}, {"y"}).add_node("Dropout", {"x"}, {"z"});
  return w.serialize();
}

std::string host_operator() {
  OnnxWriter w;
  w.import("my.domain", 1);
  w.add_input("x", kF32, {"N"}).add_output("y", kF32, {"N"});
  w.add_node("Twice", {"x"}, {"h"}, {{"a", 3}, {"c", "s"}, {"d", std::vector<std::int64_t>{1, 2}}}, "twice", "my.domain");
  w.add_node("Relu", {"h"}, {"y"});
  return w.serialize();
}

std::string quantized() {
  OnnxWriter w;
  w.add_input("x", kF32, {"N", 8}).add_output("y", kF32, {"N", 4});
  std::vector<std::int8_t> bytes(32);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::int8_t>(i * 5 % 19);
  w.add_initializer("s", {}, std::vector<float>{0.1f}).add_initializer("z", {}, std::vector<std::uint8_t>{3});
  w.add_initializer("wz", {}, std::vector<std::int8_t>{0}).add_initializer("wq", {8, 4}, bytes);
  w.add_node("QuantizeLinear", {"x", "s", "z"}, {"q"}).add_node("DequantizeLinear", {"q", "s", "z"}, {"d"});
  w.add_node("DequantizeLinear", {"wq", "s", "wz"}, {"wd"}).add_node("MatMul", {"d", "wd"}, {"y"});
  return w.serialize();
}

std::string branches() {
  OnnxWriter yes, no, w;
  yes.add_node("Exp", {"x"}, {"e"}).add_output("e");
  no.add_node("Neg", {"x"}, {"n"}).add_output("n");
  w.add_input("c", kBool, {}).add_input("x", kF32, {"a", "b"}).add_output("y", kF32, {"a", "b"});
  w.add_node("If", {"c"}, {"y"}, {Attr::graph("then_branch", yes.graph()), Attr::graph("else_branch", no.graph())});
  return w.serialize();
}

// Of at most 200 iterations, since the caller's number is random.
std::string loop() {
  OnnxWriter body, w;
  body.add_input("i", kI64, {}).add_input("go_in", kBool, {}).add_input("sum", kF32, {2});
  body.add_output("go", kBool, {}).add_output("next", kF32, {2}).add_output("seen", kF32, {2});
  body.add_node("Add", {"sum", "one"}, {"next"}).add_node("Identity", {"go_in"}, {"go"}).add_node("Identity", {"next"}, {"seen"});
  w.add_input("n", kI64, {}).add_input("x", kF32, {2}).add_output("y", kF32, {2}).add_output("s");
  w.add_initializer("one", {2}, std::vector<float>{1, 1});
  w.add_initializer("most", {}, std::vector<std::int64_t>{200});
  w.add_node("Min", {"n", "most"}, {"count"});
  w.add_node("Loop", {"count", "", "x"}, {"y", "s"}, {Attr::graph("body", body.graph())});
  return w.serialize();
}

// Some milliseconds a row of 512, so that runs meet deadlines and each other.
std::string heavy() {
  OnnxWriter w;
  w.add_input("x", kF32, {"N", 512}).add_output("y", kF32, {"N", 512});
  weight(w, "w", {512, 512});
  w.add_node("MatMul", {"x", "w"}, {"a"}).add_node("Relu", {"a"}, {"b"}).add_node("MatMul", {"b", "w"}, {"c"});
  w.add_node("Softmax", {"c"}, {"y"});
  return w.serialize();
}

}  // namespace

std::span<const NamedModel> models() {
  static const NamedModel all[] = {{"mlp.onnx", mlp()},
                                   {"cnn.onnx", small_network().serialize()},
                                   {"attention.onnx", attention()},
                                   {"lstm.onnx", lstm()},
                                   {"branches.onnx", branches()},
                                   {"loop.onnx", loop()},
                                   {"strings.onnx", strings()},
                                   {"sequence.onnx", sequence()},
                                   {"random.onnx", random_numbers()},
                                   {"host.onnx", host_operator()},
                                   {"int8.onnx", quantized()},
                                   {"heavy.onnx", heavy()},
                                   {"cut.onnx", mlp().substr(0, 200)}};
  return all;
}

}  // namespace evn::fuzz
