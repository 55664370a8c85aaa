// NodeProto and AttributeProto.
#include <utility>

#include "base/error.h"
#include "base/heap.h"
#include "model/loader.h"

namespace evn {
namespace {

using wire::Count;
using wire::Field;
using wire::Kind;

// More inputs or outputs than any real node has; keeps a short file from claiming much memory for one node.
constexpr std::size_t kMaxValuesOfNode = 65'536;

// ------------------------------------------------------------------------------------------------------ attributes --

// AttributeProto.type.
enum OnnxAttribute : std::int32_t {
  kUndefined = 0,
  kFloat = 1,
  kInt = 2,
  kString = 3,
  kTensor = 4,
  kGraph = 5,
  kFloats = 6,
  kInts = 7,
  kStrings = 8,
  kTensors = 9,
  kGraphs = 10,
  kSparseTensor = 11,
  kSparseTensors = 12,
  kTypeProto = 13,
  kTypeProtos = 14,
};
constexpr const char* kTypeNames[] = {"undefined",      "float",      "int",        "string",  "tensor", "graph",
                                      "floats",         "ints",       "strings",    "tensors", "graphs", "sparse_tensor",
                                      "sparse_tensors", "type_proto", "type_protos"};

struct AttributeReader {
  Loader& loader;
  std::string_view name;
  std::int32_t type = kUndefined;
  std::uint32_t present = 0;  // bit by OnnxAttribute: a value of this type stands in the message
  float f = 0;
  std::int64_t i = 0;
  std::string_view s;
  std::string_view ref;
  wire::Bytes message;  // of a tensor or a graph
  std::vector<float> floats;
  std::vector<std::int64_t> ints;
  std::vector<std::string> strings;
};

template <OnnxAttribute kType>
void mark(AttributeReader& r, const Field& f) {
  r.present |= 1u << kType;
  r.message = f.bytes;
}

constexpr wire::Row<AttributeReader> kAttributeRows[] = {
    {{1, "name", Kind::kBytes, Count::kOnce},
     [](AttributeReader& r, const Field& f) { r.name = r.loader.text(f, "AttributeProto", "name"); }},
    {{2, "f", Kind::kFixed32, Count::kOnce},
     [](AttributeReader& r, const Field& f) {
       r.present |= 1u << kFloat;
       r.f = f.as_float();
     }},
    {{3, "i", Kind::kVarint, Count::kOnce},
     [](AttributeReader& r, const Field& f) {
       r.present |= 1u << kInt;
       r.i = f.as_int64();
     }},
    {{4, "s", Kind::kBytes, Count::kOnce},
     [](AttributeReader& r, const Field& f) {
       r.present |= 1u << kString;
       r.s = f.bytes.text();
     }},
    {{5, "t", Kind::kBytes, Count::kOnce}, mark<kTensor>},
    {{6, "g", Kind::kBytes, Count::kOnce}, mark<kGraph>},
    {{7, "floats", Kind::kFixed32s, Count::kMany},
     [](AttributeReader& r, const Field& f) {
       r.present |= 1u << kFloats;
       r.floats.push_back(f.as_float());
     }},
    {{8, "ints", Kind::kVarints, Count::kMany},
     [](AttributeReader& r, const Field& f) {
       r.present |= 1u << kInts;
       r.ints.push_back(f.as_int64());
     }},
    {{9, "strings", Kind::kBytes, Count::kMany},
     [](AttributeReader& r, const Field& f) {
       r.present |= 1u << kStrings;
       r.strings.emplace_back(f.bytes.text());
     }},
    {{10, "tensors", Kind::kBytes, Count::kMany}, mark<kTensors>},
    {{11, "graphs", Kind::kBytes, Count::kMany}, mark<kGraphs>},
    {{13, "doc_string", Kind::kBytes, Count::kOnce}, nullptr},
    {{14, "tp", Kind::kBytes, Count::kOnce}, mark<kTypeProto>},
    {{15, "type_protos", Kind::kBytes, Count::kMany}, mark<kTypeProtos>},
    {{20, "type", Kind::kVarint, Count::kOnce}, [](AttributeReader& r, const Field& f) { r.type = f.as_int32(); }},
    {{21, "ref_attr_name", Kind::kBytes, Count::kOnce},
     [](AttributeReader& r, const Field& f) {
       r.ref = r.loader.text(f, "AttributeProto", "ref_attr_name");
       if (!r.ref.empty() && !r.loader.in_function) {
         r.loader.file.fail_field("AttributeProto", "ref_attr_name", f.at, "stands outside a function");
       }
     }},
    {{22, "sparse_tensor", Kind::kBytes, Count::kOnce}, mark<kSparseTensor>},
    {{23, "sparse_tensors", Kind::kBytes, Count::kMany}, mark<kSparseTensors>},
};

// The type that the message names; without one (writers before IR version 3 left it out), that of its only value.
std::int32_t type_of(const AttributeReader& r, const std::uint8_t* at) {
  const wire::File& file = r.loader.file;
  if (r.type < 0 || static_cast<std::size_t>(r.type) >= std::size(kTypeNames)) {
    file.fail_field("AttributeProto", "type", at, "is not an attribute type");
  }
  if (r.type == kUndefined) {
    if (__builtin_popcount(r.present) != 1) file.fail_field("AttributeProto", "type", at, "is missing");
    return __builtin_ctz(r.present);
  }
  // A value of the right type may be missing: proto3 writers leave zeros and empty lists out.
  if ((r.present & ~(1u << r.type)) != 0) file.fail_field("AttributeProto", "type", at, "contradicts the value");
  return r.type;
}

WeightPtr tensor_of(const AttributeReader& r, std::int32_t type, const std::uint8_t* at) {
  const TensorRead tensor = type == kSparseTensor ? read_sparse_tensor(r.loader, r.message) : read_tensor(r.loader, r.message);
  if (tensor.weight == nullptr) {
    r.loader.file.fail_at(EVN_ERROR_UNSUPPORTED, at, "AttributeProto.t", "attribute '%.64s' has elements of type %s",
                          std::string(r.name).c_str(), tensor.unstored);
  }
  return tensor.weight;
}

AttributeValue value_of(AttributeReader& r, const std::uint8_t* at) {
  if (!r.ref.empty()) {
    if (r.present != 0) r.loader.file.fail_field("AttributeProto", "ref_attr_name", at, "is there beside a value");
    return {};
  }
  const std::int32_t type = type_of(r, at);
  if ((type == kTensor || type == kGraph || type == kSparseTensor || type == kTypeProto) && r.present == 0) {
    r.loader.file.fail_field("AttributeProto", kTypeNames[type], at, "is missing");
  }
  switch (type) {
    case kFloat: return r.f;
    case kInt: return r.i;
    case kString: return std::string(r.s);
    case kTensor:
    case kSparseTensor:  // only Constant has one
      return tensor_of(r, type, at);
    case kGraph: return std::make_shared<Graph>(read_graph(r.loader, r.message, true));
    case kFloats: return std::move(r.floats);
    case kInts: return std::move(r.ints);
    case kStrings: return std::move(r.strings);
    case kTypeProto: {
      const TypeRead said = read_type(r.loader, r.message);
      if (!said.is_known || !is_stored_type(said.data_type)) {
        r.loader.file.fail_at(EVN_ERROR_UNSUPPORTED, at, "AttributeProto.tp",
                              "attribute '%.64s' is of a type that is not supported", std::string(r.name).c_str());
      }
      return TensorDesc{static_cast<DType>(said.data_type), said.shape, said.wraps};
    }
    default:
      r.loader.file.fail_at(EVN_ERROR_UNSUPPORTED, at, "AttributeProto", "attribute '%.64s' of type %s is not supported",
                            std::string(r.name).c_str(), kTypeNames[type]);
  }
}

// ----------------------------------------------------------------------------------------------------------- nodes --

struct NodeReader {
  Loader& loader;
  const NodeNames& names;
  Node node;
};

void add_value(NodeReader& r, const Field& f, const char* field, std::vector<ValueId>& to) {
  if (to.size() >= kMaxValuesOfNode) {
    r.loader.file.fail_at(EVN_ERROR_LIMIT, f.at, "NodeProto", "more than %zu of %s", kMaxValuesOfNode, field);
  }
  const std::string_view name = r.loader.text(f, "NodeProto", field);
  to.push_back(name.empty() ? kNoValue : r.names.value(r.names.context, name));
}

constexpr wire::Row<NodeReader> kNodeRows[] = {
    {{1, "input", Kind::kBytes, Count::kMany}, [](NodeReader& r, const Field& f) { add_value(r, f, "input", r.node.inputs); }},
    {{2, "output", Kind::kBytes, Count::kMany}, [](NodeReader& r, const Field& f) { add_value(r, f, "output", r.node.outputs); }},
    {{3, "name", Kind::kBytes, Count::kOnce},
     [](NodeReader& r, const Field& f) { r.node.name = r.loader.text(f, "NodeProto", "name"); }},
    {{4, "op_type", Kind::kBytes, Count::kOnce},
     [](NodeReader& r, const Field& f) { r.node.op_type = r.loader.text(f, "NodeProto", "op_type"); }},
    {{5, "attribute", Kind::kBytes, Count::kMany},
     [](NodeReader& r, const Field& f) { r.node.attributes.push_back(read_attribute(r.loader, f.bytes)); }},
    {{6, "doc_string", Kind::kBytes, Count::kOnce}, nullptr},
    {{7, "domain", Kind::kBytes, Count::kOnce},
     [](NodeReader& r, const Field& f) {
       const std::string_view domain = r.loader.text(f, "NodeProto", "domain");
       if (domain != "ai.onnx") r.node.domain = domain;
     }},
    {{8, "overload", Kind::kBytes, Count::kOnce},
     [](NodeReader& r, const Field& f) { r.node.overload = r.loader.text(f, "NodeProto", "overload"); }},
    {{9, "metadata_props", Kind::kBytes, Count::kMany}, nullptr},
    {{10, "device_configurations", Kind::kBytes, Count::kMany}, nullptr},
};

}  // namespace

Attribute read_attribute(Loader& loader, wire::Bytes range) {
  AttributeReader reader{.loader = loader, .name = {}, .s = {}, .ref = {}, .message = {}, .floats = {}, .ints = {}, .strings = {}};
  wire::read_message(loader.file, range, "AttributeProto", kAttributeRows, reader);
  if (reader.name.empty()) loader.file.fail_field("AttributeProto", "name", range.begin, "is missing");
  // Tensors and graphs are read late, once the type is known; they are nested in the attribute all the same.
  loader.file.enter(range.begin, "AttributeProto");
  Attribute attribute{std::string(reader.name), value_of(reader, range.begin), std::string(reader.ref)};
  loader.file.leave();
  return attribute;
}

Node read_node(Loader& loader, wire::Bytes range, const NodeNames& names) {
  NodeReader reader{loader, names, {}};
  const Node& node = reader.node;
  completing_errors(
      [&] {
        wire::read_message(loader.file, range, "NodeProto", kNodeRows, reader);
        if (node.op_type.empty()) loader.file.fail_field("NodeProto", "op_type", range.begin, "is missing");
      },
      [&](Error& e) {
        if (e.node[0] == '\0') e.with_node(node.name.empty() ? node.op_type.c_str() : node.name.c_str());
      });
  return std::move(reader.node);
}

}  // namespace evn
