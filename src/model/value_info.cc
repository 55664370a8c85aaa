// ValueInfoProto and the messages in it, string entries, and ONNX's element types.
#include "base/error.h"
#include "model/loader.h"

namespace evn {
namespace {

using wire::Count;
using wire::Field;
using wire::Kind;

// By ONNX's numbers.
constexpr const char* kTypeNames[] = {nullptr,          "float32",    "uint8",          "int8",       "uint16",    "int16",
                                      "int32",          "int64",      "string",         "bool",       "float16",   "float64",
                                      "uint32",         "uint64",     "complex64",      "complex128", "bfloat16",  "float8e4m3fn",
                                      "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",      "int4",      "float4e2m1",
                                      "float8e8m0",     "uint2",      "int2",           "float6e2m3", "float6e3m2"};

struct TypeReader {
  Loader& loader;
  TypeRead type;
};

struct Reader {
  Loader& loader;
  ValueInfo info;
};

struct DimReader {
  Loader& loader;
  bool has_value = false;
  std::int64_t value = -1;
  std::string_view symbol;
};

constexpr wire::Row<DimReader> kDimRows[] = {
    {{1, "dim_value", Kind::kVarint, Count::kOnce},
     [](DimReader& r, const Field& f) {
       r.has_value = true;
       r.value = f.as_int64();
     }},
    {{2, "dim_param", Kind::kBytes, Count::kOnce},
     [](DimReader& r, const Field& f) { r.symbol = r.loader.text(f, "TensorShapeProto.Dimension", "dim_param"); }},
    {{3, "denotation", Kind::kBytes, Count::kOnce}, nullptr},
};

void read_dim(TypeReader& r, const Field& f) {
  DimReader dim{.loader = r.loader, .symbol = {}};
  wire::read_message(r.loader.file, f.bytes, "TensorShapeProto.Dimension", kDimRows, dim);
  // Exporters write -1 for a dim that is not known.
  if (dim.value < -1) r.loader.file.fail_field("TensorShapeProto", "dim", f.at, "is negative");
  TypeRead& type = r.type;
  type.shape.push_back(dim.value);
  if (dim.value < 0 && !dim.symbol.empty()) {
    type.symbols.resize(static_cast<std::size_t>(type.shape.rank() - 1));
    type.symbols.emplace_back(dim.symbol);
  }
}

constexpr wire::Row<TypeReader> kShapeRows[] = {
    {{1, "dim", Kind::kBytes, Count::kMany}, read_dim},
};

constexpr wire::Row<TypeReader> kTensorTypeRows[] = {
    {{1, "elem_type", Kind::kVarint, Count::kOnce}, [](TypeReader& r, const Field& f) { r.type.data_type = f.as_int32(); }},
    {{2, "shape", Kind::kBytes, Count::kOnce},
     [](TypeReader& r, const Field& f) {
       r.type.has_shape = true;
       wire::read_message(r.loader.file, f.bytes, "TensorShapeProto", kShapeRows, r);
     }},
};

void wrap(TypeReader& r, Wrap outer) { r.type.wraps = r.type.wraps.in(outer); }

// The type that stands in a field of a message of its own: TypeProto.Sequence, Optional, Map.
struct InnerReader {
  TypeReader& outer;
  std::int32_t key = 0;
  bool has_type = false;
};

void read_inner(InnerReader& r, const Field& f);

constexpr wire::Row<InnerReader> kElementRows[] = {
    {{1, "elem_type", Kind::kBytes, Count::kOnce}, read_inner},
};

constexpr wire::Row<InnerReader> kMapRows[] = {
    {{1, "key_type", Kind::kVarint, Count::kOnce}, [](InnerReader& r, const Field& f) { r.key = f.as_int32(); }},
    {{2, "value_type", Kind::kBytes, Count::kOnce}, read_inner},
};

template <Wrap kOuter>
void read_element(TypeReader& r, const Field& f) {
  InnerReader inner{.outer = r};
  wire::read_message(r.loader.file, f.bytes, kOuter == Wrap::kSequence ? "TypeProto.Sequence" : "TypeProto.Optional", kElementRows,
                     inner);
  if (!inner.has_type) r.loader.file.fail_field("TypeProto", "elem_type", f.at, "is missing");
  wrap(r, kOuter);
}

void read_map(TypeReader& r, const Field& f) {
  InnerReader inner{.outer = r};
  wire::read_message(r.loader.file, f.bytes, "TypeProto.Map", kMapRows, inner);
  if (!inner.has_type) r.loader.file.fail_field("TypeProto.Map", "value_type", f.at, "is missing");
  const bool strings = inner.key == EVN_DTYPE_STRING;
  if (!strings && inner.key != EVN_DTYPE_INT64) {
    r.loader.file.fail_at(EVN_ERROR_UNSUPPORTED, f.at, "TypeProto.Map.key_type", "only int64 and string keys are supported");
  }
  wrap(r, strings ? Wrap::kMapOfStrings : Wrap::kMapOfInts);
}

constexpr wire::Row<TypeReader> kTypeRows[] = {
    {{1, "tensor_type", Kind::kBytes, Count::kOnce},
     [](TypeReader& r, const Field& f) {
       r.type.is_known = true;
       wire::read_message(r.loader.file, f.bytes, "TypeProto.Tensor", kTensorTypeRows, r);
     }},
    {{4, "sequence_type", Kind::kBytes, Count::kOnce}, read_element<Wrap::kSequence>},
    {{5, "map_type", Kind::kBytes, Count::kOnce}, read_map},
    {{6, "denotation", Kind::kBytes, Count::kOnce}, nullptr},
    {{7, "opaque_type", Kind::kBytes, Count::kOnce}, nullptr},
    {{8, "sparse_tensor_type", Kind::kBytes, Count::kOnce}, nullptr},
    {{9, "optional_type", Kind::kBytes, Count::kOnce}, read_element<Wrap::kOptional>},
};

void read_inner(InnerReader& r, const Field& f) {
  r.has_type = true;
  r.outer.type = read_type(r.outer.loader, f.bytes);
}

constexpr wire::Row<Reader> kValueInfoRows[] = {
    {{1, "name", Kind::kBytes, Count::kOnce},
     [](Reader& r, const Field& f) { r.info.name = r.loader.text(f, "ValueInfoProto", "name"); }},
    {{2, "type", Kind::kBytes, Count::kOnce},
     [](Reader& r, const Field& f) {
       r.info.has_type = true;
       r.info.type = read_type(r.loader, f.bytes);
     }},
    {{3, "doc_string", Kind::kBytes, Count::kOnce}, nullptr},
    {{4, "metadata_props", Kind::kBytes, Count::kMany},
     [](Reader& r, const Field& f) {
       const StringEntry entry = read_string_entry(r.loader, f.bytes);
       if (entry.key == kOriginKey) r.info.origin = origin_of(entry.value);
       if (entry.key == "pkg.onnxscript.optimizer.folded_from") r.info.folded_from = entry.value;
     }},
};

struct EntryReader {
  Loader& loader;
  StringEntry entry;
};

constexpr wire::Row<EntryReader> kEntryRows[] = {
    {{1, "key", Kind::kBytes, Count::kOnce},
     [](EntryReader& r, const Field& f) { r.entry.key = r.loader.text(f, "StringStringEntryProto", "key"); }},
    {{2, "value", Kind::kBytes, Count::kOnce},
     [](EntryReader& r, const Field& f) { r.entry.value = r.loader.text(f, "StringStringEntryProto", "value"); }},
};

}  // namespace

const char* onnx_type_name(std::int32_t number) {
  return number > 0 && static_cast<std::size_t>(number) < std::size(kTypeNames) ? kTypeNames[number] : nullptr;
}

bool is_stored_type(std::int32_t number) { return is_stored(static_cast<DType>(number)); }

TypeRead read_type(Loader& loader, wire::Bytes range) {
  TypeReader reader{loader, {}};
  wire::read_message(loader.file, range, "TypeProto", kTypeRows, reader);
  TypeRead& type = reader.type;
  if (type.data_type != 0 && onnx_type_name(type.data_type) == nullptr) {
    loader.file.fail_field("TypeProto.Tensor", "elem_type", range.begin, "is not an element type");
  }
  if (!type.symbols.empty()) type.symbols.resize(static_cast<std::size_t>(type.shape.rank()));
  return std::move(type);
}

ValueInfo read_value_info(Loader& loader, wire::Bytes range) {
  Reader reader{loader, {}};
  wire::read_message(loader.file, range, "ValueInfoProto", kValueInfoRows, reader);
  if (reader.info.name.empty()) loader.file.fail_field("ValueInfoProto", "name", range.begin, "is missing");
  return std::move(reader.info);
}

StringEntry read_string_entry(Loader& loader, wire::Bytes range) {
  EntryReader reader{loader, {}};
  wire::read_message(loader.file, range, "StringStringEntryProto", kEntryRows, reader);
  return reader.entry;
}

}  // namespace evn
