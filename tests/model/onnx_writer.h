// Writes ONNX models for tests: a small protobuf writer, and a model builder on top of it. It shares no code with the reader that
// it tests, and it can also write what is wrong.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace evn::test {

// The bytes of one protobuf message.
class Proto {
 public:
  static std::string encode_varint(std::uint64_t v) {
    std::string s;
    for (; v >= 0x80; v >>= 7) s += static_cast<char>(v | 0x80);
    return s + static_cast<char>(v);
  }
  Proto& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  Proto& tag(std::uint64_t number, unsigned wire_type) { return raw(encode_varint(number << 3 | wire_type)); }
  Proto& varint(std::uint64_t number, std::int64_t v) { return tag(number, 0).raw(encode_varint(static_cast<std::uint64_t>(v))); }
  Proto& fixed32(std::uint64_t number, float v) { return tag(number, 5).raw({reinterpret_cast<const char*>(&v), sizeof v}); }
  Proto& fixed64(std::uint64_t number, double v) { return tag(number, 1).raw({reinterpret_cast<const char*>(&v), sizeof v}); }
  Proto& bytes(std::uint64_t number, std::string_view v) { return tag(number, 2).raw(encode_varint(v.size())).raw(v); }
  Proto& message(std::uint64_t number, const Proto& v) { return bytes(number, v.bytes_); }
  const std::string& str() const { return bytes_; }

 private:
  std::string bytes_;
};

template <typename T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Element types by ONNX's numbers.
enum : int {
  kF32 = 1,
  kU8 = 2,
  kI8 = 3,
  kU16 = 4,
  kI16 = 5,
  kI32 = 6,
  kI64 = 7,
  kStr = 8,
  kBool = 9,
  kF16 = 10,
  kF64 = 11,
  kU32 = 12,
  kU64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kFloat6 = 27
};

template <typename T>
constexpr int onnx_type() {
  if constexpr (std::is_same_v<T, float>) return kF32;
  if constexpr (std::is_same_v<T, double>) return kF64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return kU8;
  if constexpr (std::is_same_v<T, std::int8_t>) return kI8;
  if constexpr (std::is_same_v<T, std::int32_t>) return kI32;
  if constexpr (std::is_same_v<T, std::int64_t>) return kI64;
  return 0;
}

// A dim of a declared shape: a number, or the name of an unknown one.
struct Dim {
  std::int64_t value = -1;
  std::string symbol;
  Dim(std::int64_t v) : value(v) {}
  Dim(int v) : value(v) {}
  Dim(const char* s) : symbol(s) {}
};

inline Proto tensor_proto(std::string_view name, int dtype, const std::vector<std::int64_t>& dims, std::string_view raw_data) {
  Proto p;
  for (const std::int64_t d : dims) p.varint(1, d);
  return p.varint(2, dtype).bytes(8, name).bytes(9, raw_data);
}

inline Proto value_info_proto(std::string_view name, int dtype, const std::vector<Dim>& dims, bool has_shape = true) {
  Proto shape;
  for (const Dim& d : dims) shape.message(1, d.symbol.empty() ? Proto().varint(1, d.value) : Proto().bytes(2, d.symbol));
  Proto tensor;
  tensor.varint(1, dtype);
  if (has_shape) tensor.message(2, shape);
  return Proto().bytes(1, name).message(2, Proto().message(1, tensor));
}

// An AttributeProto.
struct Attr {
  Proto proto;

  Attr(std::string_view name, std::int64_t v) { proto.bytes(1, name).varint(3, v).varint(20, 2); }
  Attr(std::string_view name, int v) : Attr(name, static_cast<std::int64_t>(v)) {}
  Attr(std::string_view name, float v) { proto.bytes(1, name).fixed32(2, v).varint(20, 1); }
  Attr(std::string_view name, const char* v) { proto.bytes(1, name).bytes(4, v).varint(20, 3); }
  Attr(std::string_view name, const std::vector<std::int64_t>& v) {
    proto.bytes(1, name);
    for (const std::int64_t x : v) proto.varint(8, x);
    proto.varint(20, 7);
  }
  Attr(std::string_view name, const std::vector<float>& v) {
    proto.bytes(1, name);
    for (const float x : v) proto.fixed32(7, x);
    proto.varint(20, 6);
  }
  // What a node in a function takes from the function's attribute `ref`.
  static Attr refer(std::string_view name, std::string_view ref, int type) {
    return Attr(Proto().bytes(1, name).varint(20, type).bytes(21, ref));
  }
  static Attr tensor(std::string_view name, const Proto& tensor) {
    return Attr(Proto().bytes(1, name).message(5, tensor).varint(20, 4));
  }
  static Attr graph(std::string_view name, const Proto& graph) {
    return Attr(Proto().bytes(1, name).message(6, graph).varint(20, 5));
  }
  explicit Attr(Proto p) : proto(std::move(p)) {}
};

inline Proto node_proto(std::string_view op_type, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                        const std::vector<Attr>& attributes = {}, std::string_view name = "", std::string_view domain = "") {
  Proto node;
  for (const std::string& i : inputs) node.bytes(1, i);
  for (const std::string& o : outputs) node.bytes(2, o);
  if (!name.empty()) node.bytes(3, name);
  node.bytes(4, op_type);
  for (const Attr& a : attributes) node.message(5, a.proto);
  if (!domain.empty()) node.bytes(7, domain);
  return node;
}

// A FunctionProto of the domain "local".
struct FunctionWriter {
  Proto proto;

  FunctionWriter(std::string_view name, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                 std::string_view domain = "local") {
    proto.bytes(1, name).bytes(10, domain);
    for (const std::string& i : inputs) proto.bytes(4, i);
    for (const std::string& o : outputs) proto.bytes(5, o);
  }
  FunctionWriter& import(std::string_view domain, std::int64_t version) {
    proto.message(9, Proto().bytes(1, domain).varint(2, version));
    return *this;
  }
  FunctionWriter& add_attribute(std::string_view name) {
    proto.bytes(6, name);
    return *this;
  }
  FunctionWriter& add_default(const Attr& attribute) {
    proto.message(11, attribute.proto);
    return *this;
  }
  FunctionWriter& add_node(const Proto& node) {
    proto.message(7, node);
    return *this;
  }
  FunctionWriter& add_node(std::string_view op_type, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& outputs, const std::vector<Attr>& attributes = {},
                           std::string_view name = "", std::string_view domain = "") {
    return add_node(node_proto(op_type, inputs, outputs, attributes, name, domain));
  }
};

// A model under construction. Parts are written in the order in which they are added.
class OnnxWriter {
 public:
  explicit OnnxWriter(std::int64_t opset = 17, std::int64_t ir_version = 8) : ir_version_(ir_version) { import("", opset); }

  OnnxWriter& import(std::string_view domain, std::int64_t version) {
    opsets_.message(8, Proto().bytes(1, domain).varint(2, version));
    return *this;
  }
  OnnxWriter& add_input(std::string_view name, int dtype, const std::vector<Dim>& dims) {
    graph_.message(11, value_info_proto(name, dtype, dims));
    return *this;
  }
  // Outputs without dims leave their shape to inference.
  OnnxWriter& add_output(std::string_view name, int dtype = kF32) {
    graph_.message(12, value_info_proto(name, dtype, {}, false));
    return *this;
  }
  OnnxWriter& add_output(std::string_view name, int dtype, const std::vector<Dim>& dims) {
    graph_.message(12, value_info_proto(name, dtype, dims));
    return *this;
  }
  OnnxWriter& add_value_info(std::string_view name, int dtype, const std::vector<Dim>& dims) {
    graph_.message(13, value_info_proto(name, dtype, dims));
    return *this;
  }
  template <typename T>
  OnnxWriter& add_initializer(std::string_view name, const std::vector<std::int64_t>& dims, const std::vector<T>& values) {
    return add_initializer(tensor_proto(name, onnx_type<T>(), dims, bytes_of(values)));
  }
  OnnxWriter& add_initializer(const Proto& tensor) {
    graph_.message(5, tensor);
    return *this;
  }
  OnnxWriter& add_node(std::string_view op_type, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                       const std::vector<Attr>& attributes = {}, std::string_view name = "", std::string_view domain = "") {
    return add_node(node_proto(op_type, inputs, outputs, attributes, name, domain));
  }
  OnnxWriter& add_node(const Proto& node) {
    graph_.message(1, node);
    return *this;
  }
  OnnxWriter& add_function(const FunctionWriter& function) {
    extra_.message(25, function.proto);
    return *this;
  }
  // For what the functions above cannot say.
  Proto& graph() { return graph_; }
  Proto& model() { return extra_; }

  std::string serialize() const {
    return Proto().varint(1, ir_version_).bytes(2, "test").message(7, graph_).raw(opsets_.str()).raw(extra_.str()).str();
  }

 private:
  std::int64_t ir_version_;
  Proto graph_, opsets_, extra_;
};

// A copy in a block of exactly its size, so that a sanitizer sees any read beyond the end.
inline std::shared_ptr<const void> exact_copy(std::string_view bytes) {
  void* p = std::malloc(bytes.size());
  if (!bytes.empty()) std::memcpy(p, bytes.data(), bytes.size());
  return std::shared_ptr<const void>(p, [](const void* q) { std::free(const_cast<void*>(q)); });
}

// A convolutional network of some 2 KiB with every common construct: attributes of several types, raw and typed initializers,
// constants in nodes, symbolic dims. Input "x" [N,3,8,8], output "y" [N,10].
inline OnnxWriter small_network() {
  std::vector<float> conv(8 * 3 * 3 * 3), gemm(10 * 8);
  for (std::size_t i = 0; i < conv.size(); ++i) conv[i] = 0.01f * static_cast<float>(i % 17) - 0.08f;
  for (std::size_t i = 0; i < gemm.size(); ++i) gemm[i] = 0.02f * static_cast<float>(i % 13) - 0.12f;
  Proto bias;
  bias.varint(1, 8)
      .varint(2, kF32)
      .bytes(4, bytes_of(std::vector<float>{0.1f, -0.1f, 0.2f, 0.3f, 0, 0, 0.5f, -1}))
      .bytes(8, "conv.bias");
  Proto shape;
  shape.bytes(1, Proto::encode_varint(2)).varint(2, kI64).bytes(8, "shape").varint(7, -1).varint(7, 8);
  OnnxWriter w(13);
  w.add_node("Conv", {"x", "conv.weight", "conv.bias"}, {"c"},
             {{"kernel_shape", std::vector<std::int64_t>{3, 3}},
              {"pads", std::vector<std::int64_t>{1, 1, 1, 1}},
              {"strides", std::vector<std::int64_t>{2, 2}},
              {"group", 1}},
             "conv");
  w.add_node("Relu", {"c"}, {"r"}, {}, "relu");
  w.add_node("GlobalAveragePool", {"r"}, {"p"}, {}, "pool");
  w.add_node("Constant", {}, {"shape_const"}, {Attr::tensor("value", shape)});
  w.add_node("Reshape", {"p", "shape_const"}, {"f"}, {}, "reshape");
  w.add_node("Gemm", {"f", "gemm.weight", "gemm.bias"}, {"g"}, {{"alpha", 1.0f}, {"beta", 0.5f}, {"transB", 1}}, "gemm");
  w.add_node("Softmax", {"g"}, {"y"}, {{"axis", -1}}, "softmax");
  w.add_input("x", kF32, {"N", 3, 8, 8}).add_output("y", kF32, {"N", 10}).add_value_info("r", kF32, {"N", 8, 4, 4});
  w.add_initializer("conv.weight", {8, 3, 3, 3}, conv).add_initializer(bias);
  w.add_initializer("gemm.weight", {10, 8}, gemm).add_initializer("gemm.bias", {10}, std::vector<float>(10, 0.25f));
  w.graph().bytes(2, "small");
  w.model().message(14, Proto().bytes(1, "author").bytes(2, "test"));
  return w;
}

}  // namespace evn::test
