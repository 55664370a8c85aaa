// Models that mean harm. Each name carries the id of its case in the project's list of hostile inputs.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>

#include "tests/model/load_helpers.h"

namespace evn {
namespace {

using namespace test;

TEST(HostileModel, H01_WhatIsNoModelIsRefused) {
  EXPECT_EQ(load_status(""), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(load_status(std::string(1, '\0')), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(load_status(std::string(10, '\xff')), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(load_status("\x89PNG\r\n\x1a\n" + std::string(64, '\0')), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(load_status(std::string("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", 10) + small_network().serialize()),
            EVN_ERROR_INVALID_MODEL);
}

TEST(HostileModel, H02_CutAtEveryOffset) {
  const std::string bytes = small_network().serialize();
  ASSERT_GT(bytes.size(), 1500u);
  ASSERT_EQ(load_status(bytes), EVN_OK);
  int accepted = 0;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const evn_status status = load_status(bytes.substr(0, size));
    // Protobuf accepts a cut between fields of the outermost message; the model is whole once graph and opset are there.
    accepted += status == EVN_OK;
    EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_INVALID_MODEL) << size << ": " << status;
  }
  EXPECT_EQ(accepted, 1);  // without the metadata at the end
}

TEST(HostileModel, H03_EverySingleBitFlip) {
  std::string bytes = small_network().serialize();
  int refused = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      const evn_status status = load_status(bytes);
      refused += status != EVN_OK;
      EXPECT_TRUE(status == EVN_OK || status == EVN_ERROR_INVALID_MODEL || status == EVN_ERROR_UNSUPPORTED ||
                  status == EVN_ERROR_LIMIT || status == EVN_ERROR_INVALID_ARGUMENT)
          << i << "." << bit << ": " << status;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_EQ(load_status(bytes), EVN_OK);
}

TEST(HostileModel, H04_VarintsInAModel) {
  const std::string rest = small_network().serialize().substr(2);  // after ir_version
  const auto with_version = [&](const std::string& varint) { return load_status("\x08" + varint + rest); };
  EXPECT_EQ(with_version("\x08"), EVN_OK);
  EXPECT_EQ(with_version(std::string("\x88\x00", 2)), EVN_OK);
  EXPECT_EQ(with_version(std::string("\x88\x80\x80\x80\x80\x80\x80\x80\x80\x00", 10)), EVN_OK);
  EXPECT_EQ(with_version(std::string("\x88\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 11)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(load_status(small_network().serialize() + "\x28\x80"), EVN_ERROR_INVALID_MODEL);  // model_version ends with the file
}

TEST(HostileModel, H05_NestedLengthBeyondItsParent) {
  // A node that claims more bytes than its graph has, with bytes behind the graph that would satisfy it.
  Proto node;
  node.tag(1, 2).raw(Proto::encode_varint(100)).raw("\x22\x04Relu");
  OnnxWriter w;
  w.graph().raw(node.str());
  w.model().bytes(6, std::string(200, 'd'));
  EXPECT_EQ(load_status(w.serialize()), EVN_ERROR_INVALID_MODEL);
  for (const std::uint64_t length : {(1ull << 32) + 3, 1ull << 63, static_cast<unsigned long long>(UINT64_MAX)}) {
    OnnxWriter v;
    v.graph().tag(2, 2).raw(Proto::encode_varint(length)).raw("abc");
    EXPECT_EQ(load_status(v.serialize()), EVN_ERROR_INVALID_MODEL) << length;
  }
}

// onnx.proto as this library knows it: 'v' varint, 'b' bytes, 'f' fixed32, 'd' fixed64; capitals: repeated, packed or not.
struct KnownField {
  const char* message;
  int number;
  char form;
  const char* name;
};
constexpr KnownField kKnownFields[] = {
    {"ModelProto", 1, 'v', "ir_version"},
    {"ModelProto", 2, 'b', "producer_name"},
    {"ModelProto", 3, 'b', "producer_version"},
    {"ModelProto", 4, 'b', "domain"},
    {"ModelProto", 5, 'v', "model_version"},
    {"ModelProto", 6, 'b', "doc_string"},
    {"ModelProto", 7, 'b', "graph"},
    {"ModelProto", 8, 'b', "opset_import"},
    {"ModelProto", 14, 'b', "metadata_props"},
    {"ModelProto", 20, 'b', "training_info"},
    {"ModelProto", 25, 'b', "functions"},
    {"ModelProto", 26, 'b', "configuration"},
    {"OperatorSetIdProto", 1, 'b', "domain"},
    {"OperatorSetIdProto", 2, 'v', "version"},
    {"StringStringEntryProto", 1, 'b', "key"},
    {"StringStringEntryProto", 2, 'b', "value"},
    {"FunctionProto", 1, 'b', "name"},
    {"FunctionProto", 4, 'b', "input"},
    {"FunctionProto", 5, 'b', "output"},
    {"FunctionProto", 6, 'b', "attribute"},
    {"FunctionProto", 7, 'b', "node"},
    {"FunctionProto", 8, 'b', "doc_string"},
    {"FunctionProto", 9, 'b', "opset_import"},
    {"FunctionProto", 10, 'b', "domain"},
    {"FunctionProto", 11, 'b', "attribute_proto"},
    {"FunctionProto", 12, 'b', "value_info"},
    {"FunctionProto", 13, 'b', "overload"},
    {"FunctionProto", 14, 'b', "metadata_props"},
    {"GraphProto", 1, 'b', "node"},
    {"GraphProto", 2, 'b', "name"},
    {"GraphProto", 5, 'b', "initializer"},
    {"GraphProto", 10, 'b', "doc_string"},
    {"GraphProto", 11, 'b', "input"},
    {"GraphProto", 12, 'b', "output"},
    {"GraphProto", 13, 'b', "value_info"},
    {"GraphProto", 14, 'b', "quantization_annotation"},
    {"GraphProto", 15, 'b', "sparse_initializer"},
    {"GraphProto", 16, 'b', "metadata_props"},
    {"NodeProto", 1, 'b', "input"},
    {"NodeProto", 2, 'b', "output"},
    {"NodeProto", 3, 'b', "name"},
    {"NodeProto", 4, 'b', "op_type"},
    {"NodeProto", 5, 'b', "attribute"},
    {"NodeProto", 6, 'b', "doc_string"},
    {"NodeProto", 7, 'b', "domain"},
    {"NodeProto", 8, 'b', "overload"},
    {"NodeProto", 9, 'b', "metadata_props"},
    {"NodeProto", 10, 'b', "device_configurations"},
    {"AttributeProto", 1, 'b', "name"},
    {"AttributeProto", 2, 'f', "f"},
    {"AttributeProto", 3, 'v', "i"},
    {"AttributeProto", 4, 'b', "s"},
    {"AttributeProto", 5, 'b', "t"},
    {"AttributeProto", 6, 'b', "g"},
    {"AttributeProto", 7, 'F', "floats"},
    {"AttributeProto", 8, 'V', "ints"},
    {"AttributeProto", 9, 'b', "strings"},
    {"AttributeProto", 10, 'b', "tensors"},
    {"AttributeProto", 11, 'b', "graphs"},
    {"AttributeProto", 13, 'b', "doc_string"},
    {"AttributeProto", 14, 'b', "tp"},
    {"AttributeProto", 15, 'b', "type_protos"},
    {"AttributeProto", 20, 'v', "type"},
    {"AttributeProto", 21, 'b', "ref_attr_name"},
    {"AttributeProto", 22, 'b', "sparse_tensor"},
    {"AttributeProto", 23, 'b', "sparse_tensors"},
    {"TensorProto", 1, 'V', "dims"},
    {"TensorProto", 2, 'v', "data_type"},
    {"TensorProto", 3, 'b', "segment"},
    {"TensorProto", 4, 'F', "float_data"},
    {"TensorProto", 5, 'V', "int32_data"},
    {"TensorProto", 6, 'b', "string_data"},
    {"TensorProto", 7, 'V', "int64_data"},
    {"TensorProto", 8, 'b', "name"},
    {"TensorProto", 9, 'b', "raw_data"},
    {"TensorProto", 10, 'D', "double_data"},
    {"TensorProto", 11, 'V', "uint64_data"},
    {"TensorProto", 12, 'b', "doc_string"},
    {"TensorProto", 13, 'b', "external_data"},
    {"TensorProto", 14, 'v', "data_location"},
    {"TensorProto", 16, 'b', "metadata_props"},
    {"SparseTensorProto", 1, 'b', "values"},
    {"SparseTensorProto", 2, 'b', "indices"},
    {"SparseTensorProto", 3, 'V', "dims"},
    {"ValueInfoProto", 1, 'b', "name"},
    {"ValueInfoProto", 2, 'b', "type"},
    {"ValueInfoProto", 3, 'b', "doc_string"},
    {"ValueInfoProto", 4, 'b', "metadata_props"},
    {"TypeProto", 1, 'b', "tensor_type"},
    {"TypeProto", 4, 'b', "sequence_type"},
    {"TypeProto", 5, 'b', "map_type"},
    {"TypeProto", 6, 'b', "denotation"},
    {"TypeProto", 7, 'b', "opaque_type"},
    {"TypeProto", 8, 'b', "sparse_tensor_type"},
    {"TypeProto", 9, 'b', "optional_type"},
    {"TypeProto.Tensor", 1, 'v', "elem_type"},
    {"TypeProto.Tensor", 2, 'b', "shape"},
    {"TensorShapeProto", 1, 'b', "dim"},
    {"TensorShapeProto.Dimension", 1, 'v', "dim_value"},
    {"TensorShapeProto.Dimension", 2, 'b', "dim_param"},
    {"TensorShapeProto.Dimension", 3, 'b', "denotation"},
};

// A model in which `field` stands as the first field of the first message of its kind.
std::string model_with(const std::string& message, const Proto& field) {
  OnnxWriter w;
  const auto in_type = [&](const Proto& type) { w.graph().message(11, Proto().message(2, type)); };
  if (message == "ModelProto") return field.str() + w.serialize();
  if (message == "OperatorSetIdProto") w.model().message(8, field);
  if (message == "StringStringEntryProto") w.model().message(14, field);
  if (message == "FunctionProto") w.model().message(25, field);
  if (message == "GraphProto") w.graph() = field;
  if (message == "NodeProto") w.graph().message(1, field);
  if (message == "AttributeProto") w.graph().message(1, Proto().message(5, field));
  if (message == "TensorProto") w.graph().message(5, field);
  if (message == "SparseTensorProto") w.graph().message(15, field);
  if (message == "ValueInfoProto") w.graph().message(11, field);
  if (message == "TypeProto") in_type(field);
  if (message == "TypeProto.Tensor") in_type(Proto().message(1, field));
  if (message == "TensorShapeProto") in_type(Proto().message(1, Proto().message(2, field)));
  if (message == "TensorShapeProto.Dimension") in_type(Proto().message(1, Proto().message(2, Proto().message(1, field))));
  return w.serialize();
}

TEST(HostileModel, H06_EveryKnownFieldRefusesOtherWireTypes) {
  int combinations = 0;
  for (const KnownField& known : kKnownFields) {
    const bool may_be_packed = known.form < 'a';
    const char form = may_be_packed ? static_cast<char>(known.form - 'A' + 'a') : known.form;
    const auto number = static_cast<std::uint64_t>(known.number);
    const std::pair<char, Proto> forms[] = {{'v', Proto().varint(number, 1)},
                                            {'d', Proto().fixed64(number, 0)},
                                            {'b', Proto().bytes(number, "")},
                                            {'f', Proto().fixed32(number, 0)}};
    for (const auto& [other, field] : forms) {
      if (other == form || (other == 'b' && may_be_packed)) continue;
      const Error e = read_error(model_with(known.message, field));
      EXPECT_EQ(e.status, EVN_ERROR_INVALID_MODEL) << known.message << "." << known.name << " as " << other;
      const std::string want = std::string(known.message) + "." + known.name + " at byte";
      EXPECT_NE(std::string(e.message).find(want), std::string::npos) << e.message << " lacks " << want;
      EXPECT_NE(std::string(e.message).find("wrong wire type"), std::string::npos) << e.message;
      ++combinations;
    }
  }
  EXPECT_GT(combinations, 250);
}

// Reads on a thread with a stack of 128 KiB.
evn_status status_on_small_stack(const std::string& bytes) {
  struct Job {
    const std::string* bytes;
    evn_status status;
  } job{&bytes, EVN_OK};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
#if defined(__SANITIZE_ADDRESS__)
  pthread_attr_setstacksize(&attributes, 8 << 20);  // frames are several times larger
#else
  pthread_attr_setstacksize(&attributes, 128 << 10);
#endif
  pthread_t thread;
  const auto body = [](void* p) -> void* {
    auto& j = *static_cast<Job*>(p);
    j.status = read_status(*j.bytes);
    return nullptr;
  };
  EXPECT_EQ(pthread_create(&thread, &attributes, body, &job), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  return job.status;
}

std::string nested_graphs(int depth) {
  std::string graph = Proto().bytes(2, "innermost").str();
  for (int i = 0; i < depth; ++i) {
    const Proto attribute = Proto().bytes(1, "body").bytes(6, graph).varint(20, 5);
    graph = Proto().message(1, Proto().bytes(4, "Loop").message(5, attribute)).str();
  }
  OnnxWriter w;
  w.graph() = Proto().raw(graph);
  return w.serialize();
}

TEST(HostileModel, H08_NestingIsLimitedOnASmallStack) {
  EXPECT_EQ(status_on_small_stack(nested_graphs(20)), EVN_OK);
  EXPECT_EQ(status_on_small_stack(nested_graphs(21)), EVN_ERROR_LIMIT);
  EXPECT_EQ(status_on_small_stack(nested_graphs(3000)), EVN_ERROR_LIMIT);
}

TEST(HostileModel, H08_TypesNestedInTypes) {
  for (const int levels : {100, 10'000}) {
    Proto type = Proto().message(1, Proto().varint(1, kF32));
    for (int i = 0; i < levels; ++i) type = Proto().message(i % 2 == 0 ? 4 : 9, Proto().message(1, type));
    OnnxWriter w;
    w.graph().message(11, Proto().bytes(1, "x").message(2, type));
    const evn_status status = status_on_small_stack(w.add_output("x").serialize());
    EXPECT_TRUE(status == EVN_ERROR_LIMIT || status == EVN_ERROR_UNSUPPORTED) << status;
  }
}

TEST(HostileModel, H09_ManyTinyFieldsCostLittle) {
  std::string unknown;
  for (int i = 0; i < 1'000'000; ++i) unknown += "\xf8\x07\x01";  // field 127
  OnnxWriter w = small_network();
  w.model().raw(unknown);
  EXPECT_EQ(load_status(w.serialize()), EVN_OK);
  std::string empty;
  for (int i = 0; i < 1'000'000; ++i) empty += std::string("\x2a\x00", 2);
  OnnxWriter v;
  v.graph().raw(empty);
  EXPECT_EQ(load_status(v.serialize()), EVN_ERROR_INVALID_MODEL);
}

TEST(HostileModel, H11_SingularFieldsStandOnce) {
  const std::string bytes = small_network().serialize();
  EXPECT_EQ(load_status(bytes + Proto().varint(1, 8).str()), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(load_status(bytes + Proto().bytes(7, "").str()), EVN_ERROR_INVALID_MODEL);
  OnnxWriter w = small_network();
  w.add_initializer(tensor_proto("d", kF32, {1}, "abcd").bytes(9, "abcd"));
  EXPECT_EQ(load_status(w.serialize()), EVN_ERROR_INVALID_MODEL);
}

TEST(HostileModel, H12_NamesAreBytesWithoutNul) {
  const auto error = [](const std::string& name) {
    return load_error(
        OnnxWriter().add_input(name, kF32, {1}).add_node("Nope", {name}, {"y"}, {}, name).add_output("y").serialize());
  };
  EXPECT_EQ(error(std::string("a\0b", 3)).status, EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(error("\xff\xfe").status, EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(error(std::string(1 << 20, 'n')).status, EVN_ERROR_UNSUPPORTED);
  const Error e = error("\x1b[31mred");
  EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(e.node, "\\x1b[31mred");
}

TEST(HostileModel, H13_VersionsAreChecked) {
  const auto with_ir = [](std::int64_t ir) {
    return load_status(OnnxWriter(17, ir).add_input("x", kF32, {1}).add_output("x").serialize());
  };
  EXPECT_EQ(with_ir(3), EVN_OK);
  EXPECT_EQ(with_ir(10), EVN_OK);
  EXPECT_EQ(with_ir(0), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(with_ir(-1), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(with_ir(2), EVN_ERROR_UNSUPPORTED);
  EXPECT_EQ(with_ir(INT64_MAX), EVN_ERROR_UNSUPPORTED);
  const auto with_opset = [](std::int64_t opset) {
    return load_status(OnnxWriter(opset).add_input("x", kF32, {1}).add_output("x").serialize());
  };
  EXPECT_EQ(with_opset(0), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(with_opset(-1), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(with_opset(INT64_MAX), EVN_ERROR_UNSUPPORTED);
  const auto with_another = [](const char* domain, std::int64_t version) {
    return load_status(OnnxWriter(17).import(domain, version).add_input("x", kF32, {1}).add_output("x").serialize());
  };
  EXPECT_EQ(with_another("", 18), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(with_another("ai.onnx", 16), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(with_another("", 17), EVN_OK);  // as skl2onnx writes it
  EXPECT_EQ(with_another("other", 17), EVN_OK);
  EXPECT_EQ(load_status(Proto().varint(1, 8).bytes(7, "").str()), EVN_ERROR_INVALID_MODEL);  // no opset
}

Proto numbers(int dtype, const std::vector<std::int64_t>& dims) {
  Proto p;
  for (const std::int64_t d : dims) p.varint(1, d);
  return p.varint(2, dtype).bytes(8, "t");
}

evn_status tensor_status(const Proto& tensor) {
  return read_status(OnnxWriter().add_initializer(tensor).add_output("t", 0).serialize());
}

TEST(HostileModel, H14_H15_H16_DimsAreChecked) {
  EXPECT_EQ(tensor_status(numbers(kF32, {-1, 4}).bytes(9, "")), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kF32, {INT64_MIN}).bytes(9, "")), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kF32, {1ll << 32, 1ll << 32}).bytes(9, "")), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kF32, {1ll << 62, 4}).bytes(9, "")), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kF32, {0, INT64_MAX}).bytes(9, "")), EVN_OK);
  EXPECT_EQ(tensor_status(numbers(kF64, {1ll << 61}).bytes(9, "")), EVN_ERROR_INVALID_MODEL);
}

TEST(HostileModel, H18_H19_ValuesMustFitTheTensor) {
  EXPECT_EQ(tensor_status(numbers(kF32, {1}).bytes(9, "abcd")), EVN_OK);
  EXPECT_EQ(tensor_status(numbers(kF32, {1}).bytes(9, "abc")), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kF32, {1}).bytes(9, "abcde")), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kF32, {1}).bytes(9, "abcd").fixed32(4, 1)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kF32, {2}).fixed32(4, 1)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kF32, {1}).varint(5, 1)), EVN_ERROR_INVALID_MODEL);  // the wrong typed field
  EXPECT_EQ(tensor_status(numbers(kU8, {1}).varint(5, 255)), EVN_OK);
  EXPECT_EQ(tensor_status(numbers(kU8, {1}).varint(5, 300)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kU8, {1}).varint(5, -1)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kI8, {1}).varint(5, 128)), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kU32, {1}).varint(11, 1ll << 32)), EVN_ERROR_INVALID_MODEL);
  const Model m = load_bytes(
      OnnxWriter().add_initializer(numbers(kBool, {3}).bytes(9, std::string("\x00\x02\xff", 3))).add_output("t", 0).serialize());
  const Weight& w = *m.graph.values[0].constant;
  EXPECT_EQ(std::string_view(w.as<char>(), 3), std::string_view("\x00\x01\x01", 3));
}

TEST(HostileModel, H20_ElementTypesAreChecked) {
  for (const int type : {0, -1, 29, 999}) EXPECT_EQ(tensor_status(numbers(type, {0})), EVN_ERROR_INVALID_MODEL) << type;
  for (const int type : {27, 28}) EXPECT_EQ(tensor_status(numbers(type, {0})), EVN_ERROR_UNSUPPORTED) << type;
}

TEST(HostileModel, H20_ElementsOfLessThanAByteFillBytes) {
  constexpr int kInt4 = 22, kUint2 = 25;
  EXPECT_EQ(tensor_status(numbers(kInt4, {3}).bytes(9, "ab")), EVN_OK);
  EXPECT_EQ(tensor_status(numbers(kInt4, {3}).bytes(9, "abc")), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kInt4, {3}).bytes(9, "a")), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kUint2, {5}).bytes(9, "ab")), EVN_OK);
  EXPECT_EQ(tensor_status(numbers(kUint2, {1, 4}).bytes(9, "ab")), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(tensor_status(numbers(kUint2, {INT64_MAX, 4}).bytes(9, "ab")), EVN_ERROR_INVALID_MODEL);
}

TEST(HostileModel, H23_RankIsLimited) {
  EXPECT_EQ(tensor_status(numbers(kF32, std::vector<std::int64_t>(8, 1)).bytes(9, "abcd")), EVN_OK);
  EXPECT_EQ(tensor_status(numbers(kF32, std::vector<std::int64_t>(9, 1)).bytes(9, "abcd")), EVN_ERROR_LIMIT);
  EXPECT_EQ(tensor_status(numbers(kF32, std::vector<std::int64_t>(1'000'000, 1))), EVN_ERROR_LIMIT);
  EXPECT_EQ(load_status(OnnxWriter().add_input("x", kF32, std::vector<Dim>(1'000'000, 1)).serialize()), EVN_ERROR_LIMIT);
}

TEST(HostileModel, H35_InputsHaveTypes) {
  OnnxWriter w;
  w.graph().message(11, Proto().bytes(1, "x"));
  EXPECT_EQ(load_status(w.add_output("x").serialize()), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(load_status(OnnxWriter().add_input("x", 0, {1}).add_output("x").serialize()), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(load_status(OnnxWriter().add_input("x", 999, {1}).add_output("x").serialize()), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(load_status(OnnxWriter().add_input("x", kFloat6, {1}).add_output("x", 0).serialize()), EVN_ERROR_UNSUPPORTED);
  OnnxWriter sequence;
  sequence.graph().message(11, Proto().bytes(1, "x").message(2, Proto().message(4, Proto())));
  EXPECT_EQ(load_status(sequence.add_output("x", 0).serialize()), EVN_ERROR_INVALID_MODEL);  // of nothing
}

TEST(HostileModel, H36_NamesAreTakenOnce) {
  const auto twice = [](auto add) {
    OnnxWriter w;
    add(w);
    add(w);
    return load_status(w.serialize());
  };
  EXPECT_EQ(twice([](OnnxWriter& w) { w.add_input("x", kF32, {1}); }), EVN_ERROR_INVALID_MODEL);
  EXPECT_EQ(twice([](OnnxWriter& w) { w.add_initializer("x", {1}, std::vector<float>{1}); }), EVN_ERROR_INVALID_MODEL);
}

TEST(HostileModel, H54_ALongChainOfNodes) {
  OnnxWriter w;
  w.add_input("t0", kF32, {1});
  const int count = 40'000;
  for (int i = 0; i < count; ++i) w.add_node("Relu", {"t" + std::to_string(i)}, {"t" + std::to_string(i + 1)});
  w.add_output("t" + std::to_string(count));
  const std::string bytes = w.serialize();
  EXPECT_EQ(load_status(bytes), EVN_OK);
  LoadOptions options;
  options.limits.nodes = count - 1;
  EXPECT_EQ(load_status(bytes, options), EVN_ERROR_LIMIT);
}

TEST(HostileModel, H54_ChainsBackwardsAndNamesThatDifferInOneByte) {
  OnnxWriter w;
  const std::string same(64, 'n');
  w.add_input(same + "0", kF32, {1});
  const int count = 20'000;
  for (int i = count; i > 0; --i) w.add_node("Relu", {same + std::to_string(i - 1)}, {same + std::to_string(i)});
  EXPECT_EQ(load_status(w.add_output(same + std::to_string(count)).serialize()), EVN_OK);
}

TEST(HostileModel, H54_OneNodeWithAMillionInputs) {
  OnnxWriter w;
  w.add_node("Concat", std::vector<std::string>(1'000'000, "x"), {"y"});
  EXPECT_EQ(load_status(w.serialize()), EVN_ERROR_LIMIT);
}

TEST(HostileModel, H55_EndlessMetadataIsLimitedAndTrainingIgnored) {
  OnnxWriter w = small_network();
  w.model().bytes(20, std::string(1000, '\xff'));
  EXPECT_EQ(load_status(w.serialize()), EVN_OK);
  for (int i = 0; i < 100'000; ++i) w.model().bytes(14, "");
  EXPECT_EQ(load_status(w.serialize()), EVN_ERROR_LIMIT);
}

TEST(HostileModel, H55_ALongTextIsPassedOver) {
  OnnxWriter w = small_network();
  const std::string text(8 << 20, 'd');
  w.model().bytes(6, text);
  w.graph().bytes(10, text);
  EXPECT_EQ(load_status(w.serialize()), EVN_OK);
}

TEST(HostileModel, H56_UnknownOperatorsAreNamed) {
  OnnxWriter w;
  w.import("evil", 1).add_input("x", kF32, {1}).add_node("../../evil.so", {"x"}, {"y"}, {}, "n", "evil").add_output("y");
  const Error e = load_error(w.serialize());
  EXPECT_EQ(e.status, EVN_ERROR_UNSUPPORTED);
  EXPECT_STREQ(e.node, "n");
  EXPECT_STREQ(e.message, "operator ../../evil.so (domain evil) is not supported");
}

TEST(HostileModel, H57_NegativeDimsAreRefused) {
  EXPECT_EQ(load_status(OnnxWriter().add_input("x", kF32, {-5}).add_output("x").serialize()), EVN_ERROR_INVALID_MODEL);
}

}  // namespace
}  // namespace evn
