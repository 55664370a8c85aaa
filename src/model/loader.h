// What the readers of the parts of a model share. One Loader lives as long as one load.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph.h"
#include "model/load.h"
#include "model/wire.h"

namespace evn {

struct Loader {
  const LoadOptions& options;
  std::shared_ptr<const void> bytes;  // the file; weights may stay in it
  wire::File file;
  std::uint64_t nodes = 0;                  // so far, in all graphs
  std::int64_t ir_version = 0;              // known when graphs are read
  bool in_function = false;                 // attributes may come from the function's own
  std::vector<InputDefault> defaults = {};  // of the main graph

  void count_node(const std::uint8_t* at);

  // A name or text: any bytes but NUL, which would cut it at the C border.
  std::string_view text(const wire::Field& field, const char* message, const char* name) const;
};

// A TensorProto. `weight` is null for an element type that this library does not store (`unstored` tells which): an error only
// for whoever uses the tensor.
struct TensorRead {
  std::string_view name;
  WeightPtr weight;
  const char* unstored = nullptr;
  bool is_external = false;
  Origin origin = Origin::kUnknown;
};
// `stays_in_file`: large values are not read yet (Weight::source).
TensorRead read_tensor(Loader& loader, wire::Bytes range, bool stays_in_file = false);

// A SparseTensorProto, made dense. The name is that of its values.
TensorRead read_sparse_tensor(Loader& loader, wire::Bytes range);

// A StringStringEntryProto.
struct StringEntry {
  std::string_view key;
  std::string_view value;
};
StringEntry read_string_entry(Loader& loader, wire::Bytes range);

// Where the bytes of a tensor outside the model file lie: `size_bytes` of them. `at` is where the tensor stands, for messages.
inline constexpr std::size_t kMaxExternalEntries = 16;
struct ExternalRange {
  std::shared_ptr<const os::File> file;
  std::shared_ptr<const void> mapping;  // of the whole file; null: it is not mapped
  std::uint64_t offset = 0;
  bool stays_open = false;  // bytes may be read later
};
ExternalRange find_external(Loader& loader, std::size_t size_bytes, std::span<const StringEntry> entries, const std::uint8_t* at);

// A TypeProto: of a tensor, or of what `wraps` puts around tensors. `is_known` is false for opaque and sparse types, and for one
// that says nothing.
struct TypeRead {
  bool is_known = false;
  Wraps wraps;
  std::int32_t data_type = 0;  // of the tensors; 0: not said
  bool has_shape = false;      // of the tensors
  Shape shape;
  std::vector<std::string> symbols;  // empty, or one per dim
};
TypeRead read_type(Loader& loader, wire::Bytes range);

// A ValueInfoProto: what the model says about a value.
struct ValueInfo {
  std::string_view name;
  bool has_type = false;
  TypeRead type;
  Origin origin = Origin::kUnknown;
  std::string_view folded_from;  // Python list of the names of values of which constant folding made this one; "": not said
};
ValueInfo read_value_info(Loader& loader, wire::Bytes range);

// Element types by ONNX's numbers. A type may be known and yet not be stored by this library.
const char* onnx_type_name(std::int32_t number);  // nullptr: not defined by ONNX
bool is_stored_type(std::int32_t number);

// "ai.onnx" and "" are one domain; this is how it is called inside.
inline std::string_view plain_domain(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }

// An OperatorSetIdProto, added to `to`. `message` is whose field it is.
void read_opset(Loader& loader, const wire::Field& field, const char* message, std::vector<OpsetImport>& to);

// A GraphProto. The inputs of the model's own graph must have types; those of a body need not. Sets the loader's `defaults` by the
// model's own.
Graph read_graph(Loader& loader, wire::Bytes range, bool is_body);

// A NodeProto. `value(context, name)` gives the id of a name that is not empty.
struct NodeNames {
  void* context;
  ValueId (*value)(void* context, std::string_view name);
};
Node read_node(Loader& loader, wire::Bytes range, const NodeNames& names);

// An AttributeProto.
Attribute read_attribute(Loader& loader, wire::Bytes range);

// What names a FunctionProto, and where it stands.
struct FunctionHeader {
  std::string_view domain;
  std::string_view name;
  std::string_view overload;
  wire::Bytes range;
};
FunctionHeader read_function_header(Loader& loader, wire::Bytes range);

// The functions that the graph calls, directly or through others. Those that nobody calls are not read.
std::vector<Function> read_called_functions(Loader& loader, std::vector<FunctionHeader> headers, const Graph& graph);

}  // namespace evn
