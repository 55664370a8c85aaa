// GraphProto: values by name, constants, inputs and outputs. The message is walked twice: value_info only says more about values
// that the rest of the graph has named.
#include <algorithm>
#include <set>
#include <utility>

#include "base/cancel.h"
#include "base/error.h"
#include "core/name_map.h"
#include "model/loader.h"

namespace evn {
namespace {

using wire::Count;
using wire::Field;
using wire::Kind;

constexpr std::uint32_t kNode = 1, kSparseInitializer = 15;  // numbers of fields

enum Role : std::uint8_t { kIsInput = 1, kIsOutput = 2, kIsInitializer = 4, kHasConflict = 8 };

struct Reader {
  Loader& loader;
  bool is_body;
  Graph graph;
  NameMap ids;
  std::vector<std::uint8_t> roles;  // by value
  // Initializers of a type that is not stored, with its name. They must not be used.
  std::unordered_map<ValueId, const char*> unstored;
  std::vector<Value> declared;                               // as graph.inputs, of the main graph: what the inputs alone say
  std::vector<std::pair<ValueId, TensorDesc>> conflicts;     // values, and their types in entries of value_info that are ignored
  std::string_view signature;                                // of the main graph: torch.export's list of inputs, as text
  std::vector<std::pair<ValueId, std::string_view>> folded;  // values, and the lists of those that they were made of

  ValueId id(std::string_view name) {
    const auto next = static_cast<ValueId>(graph.values.size());
    const auto [it, is_new] = ids.try_emplace(name, next);
    if (is_new) {
      if (next == INT32_MAX) fail(EVN_ERROR_LIMIT, "the graph has too many values");
      graph.values.emplace_back().name = name;
      roles.push_back(0);
    }
    return it->second;
  }

  Value& value(ValueId id_) { return graph.values[static_cast<std::size_t>(id_)]; }

  // Gives a value a role that it can have once.
  void set_role(ValueId id_, Role role, const char* field, const std::uint8_t* at) {
    std::uint8_t& r = roles[static_cast<std::size_t>(id_)];
    if ((r & role) != 0) {
      loader.file.fail_at(EVN_ERROR_INVALID_MODEL, at, "GraphProto", "%s '%.128s' is there twice", field, value(id_).name.c_str());
    }
    r = static_cast<std::uint8_t>(r | role);
  }
};

// Reports the entries of value_info that are ignored, one for each value.
void report_conflicts(const Reader& r) {
  if (r.loader.options.conflicts == nullptr || r.conflicts.empty()) return;
  std::vector<const Node*> producers(r.graph.values.size(), nullptr);
  for (const Node& node : r.graph.nodes) {
    cancellation_point(kNodeWork);
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) producers[static_cast<std::size_t>(id)] = &node;
    }
  }
  for (const auto& [id, declared] : r.conflicts) {
    cancellation_point(kNodeWork);
    const Value& value = r.graph.values[static_cast<std::size_t>(id)];
    TypeConflict conflict{"", value.name, declared.type_string(), TensorDesc{value.dtype, {}, value.wraps}.type_string()};
    const Node* const node = producers[static_cast<std::size_t>(id)];
    if (node != nullptr) conflict.node = node->name.empty() ? node->op_type : node->name;
    r.loader.options.conflicts->push_back(std::move(conflict));
  }
}

DType dtype_of(const TypeRead& type) {
  return is_stored_type(type.data_type) ? static_cast<DType>(type.data_type) : DType::kUndefined;
}

bool contradicts(const Value& value, const TypeRead& type) {
  const DType dtype = dtype_of(type);
  return dtype != DType::kUndefined && value.dtype != DType::kUndefined && (dtype != value.dtype || type.wraps != value.wraps);
}

// Adds what a ValueInfoProto says to what is known. A constant's own type and shape stand above it.
void declare(Reader& r, Value& value, TypeRead& type, const std::uint8_t* at) {
  if (!type.is_known) return;
  const DType dtype = dtype_of(type);
  if (contradicts(value, type)) {
    r.loader.file.fail_at(EVN_ERROR_INVALID_MODEL, at, "ValueInfoProto", "'%.128s' is declared as %s and as %s", value.name.c_str(),
                          TensorDesc{value.dtype, {}, value.wraps}.type_string().c_str(),
                          TensorDesc{dtype, {}, type.wraps}.type_string().c_str());
  }
  if (dtype != DType::kUndefined) value.dtype = dtype;
  value.wraps = type.wraps;
  if (type.wraps || value.constant != nullptr || value.has_shape || !type.has_shape) return;
  value.has_shape = true;
  value.shape = type.shape;
  value.symbols = std::move(type.symbols);
}

void read_input(Reader& r, const Field& f) {
  ValueInfo info = read_value_info(r.loader, f.bytes);
  const ValueId id = r.id(info.name);
  r.set_role(id, kIsInput, "input", f.at);
  r.graph.inputs.push_back(id);
  const std::string name(info.name);
  const TypeRead& type = info.type;
  if (!r.is_body && (!info.has_type || (type.is_known && type.data_type == 0))) {
    r.loader.file.fail_at(EVN_ERROR_INVALID_MODEL, f.at, "ValueInfoProto.type", "input '%.128s' has no type", name.c_str());
  }
  if (info.has_type && !r.is_body && (!type.is_known || !is_stored_type(type.data_type))) {
    r.loader.file.fail_at(EVN_ERROR_UNSUPPORTED, f.at, "ValueInfoProto.type", "input '%.128s' is %s, which is not supported",
                          name.c_str(), type.is_known ? onnx_type_name(type.data_type) : "a sparse tensor or opaque");
  }
  if (!r.is_body) {
    Value& declared = r.declared.emplace_back();
    declared.name = name;
    TypeRead again = type;
    declare(r, declared, again, f.at);
  }
  declare(r, r.value(id), info.type, f.at);
}

// Inputs with an initializer are constants, but for those that are to be open, which are then the last inputs. Before IR version 4
// initializers had to be among the inputs.
void settle_defaults(Reader& r) {
  const auto has_default = [&](ValueId id) { return (r.roles[static_cast<std::size_t>(id)] & kIsInitializer) != 0; };
  const std::vector<ValueId> inputs = std::move(r.graph.inputs);
  r.graph.inputs.clear();
  for (const ValueId id : inputs) {
    if (!has_default(id)) r.graph.inputs.push_back(id);
  }
  if (r.is_body || r.loader.ir_version < 4) return;
  const NameViewSet open = set_of(r.loader.options.open_inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    cancellation_point(kNameWork);
    if (!has_default(inputs[i]) || r.unstored.contains(inputs[i])) continue;
    InputDefault& d = r.loader.defaults.emplace_back();
    d.declared = r.declared[i];
    Value& value = r.value(inputs[i]);
    if (!open.contains(value.name)) continue;
    d.value = std::move(value.constant);
    d.input = static_cast<std::int32_t>(r.graph.inputs.size());
    value = d.declared;
    r.graph.inputs.push_back(inputs[i]);
  }
}

void read_output(Reader& r, const Field& f) {
  ValueInfo info = read_value_info(r.loader, f.bytes);
  const ValueId id = r.id(info.name);
  // PyTorch's exporter lists a tensor twice that a module gives twice. Who runs a model asks for outputs by name: once is enough.
  const bool is_again = !r.is_body && (r.roles[static_cast<std::size_t>(id)] & kIsOutput) != 0;
  if (!is_again) {
    r.set_role(id, kIsOutput, "output", f.at);
    r.graph.outputs.push_back(id);
  }
  declare(r, r.value(id), info.type, f.at);
}

void read_initializer(Reader& r, const Field& f) {
  TensorRead tensor =
      f.number == kSparseInitializer ? read_sparse_tensor(r.loader, f.bytes) : read_tensor(r.loader, f.bytes, !r.is_body);
  if (tensor.name.empty()) r.loader.file.fail_field("GraphProto", "initializer", f.at, "has no name");
  const ValueId id = r.id(tensor.name);
  r.set_role(id, kIsInitializer, "initializer", f.at);
  if (tensor.weight == nullptr) {
    r.unstored.emplace(id, tensor.unstored);
    return;
  }
  Value& value = r.value(id);
  const TensorDesc& desc = tensor.weight->desc;
  if (value.dtype != DType::kUndefined && value.dtype != desc.dtype) {
    r.loader.file.fail_at(EVN_ERROR_INVALID_MODEL, f.at, "GraphProto.initializer", "'%.128s' is declared as %s and has %s values",
                          value.name.c_str(), dtype_name(value.dtype), dtype_name(desc.dtype));
  }
  value.dtype = desc.dtype;
  value.has_shape = true;
  value.shape = desc.shape;
  value.symbols.clear();
  value.constant = std::move(tensor.weight);
  value.origin = tensor.origin;
}

// Calls `f` with each text of `all` between `begin` and the next quote.
template <typename F>
void each_quoted(std::string_view all, std::string_view begin, F&& f) {
  for (std::size_t at = all.find(begin); at != std::string_view::npos; at = all.find(begin, at)) {
    cancellation_point();
    at += begin.size();
    const std::size_t end = all.find('\'', at);
    if (end == std::string_view::npos) return;
    f(all.substr(at, end - at));
    at = end + 1;
  }
}

// A model that says of some initializers that they were parameters or buffers says it of all: what no parameter is and what was
// made of none is a number of the program.
void settle_origins(Reader& r) {
  if (r.is_body) return;
  std::set<std::string_view> parameters;
  each_quoted(r.signature, ": PARAMETER target='", [&](std::string_view name) { parameters.insert(name); });
  for (const auto& [id, names] : r.folded) {
    each_quoted(names, "'", [&, id = id](std::string_view name) {
      if (parameters.contains(name)) r.value(id).origin = Origin::kParameter;
    });
  }
  bool is_said = !parameters.empty();
  for (const Value& value : r.graph.values) {
    cancellation_point();
    is_said |= value.constant != nullptr && value.origin != Origin::kUnknown;
  }
  if (!is_said) return;
  for (Value& value : r.graph.values) {
    cancellation_point();
    if (value.constant == nullptr || value.origin != Origin::kUnknown) continue;
    value.origin = parameters.contains(value.name) ? Origin::kParameter : Origin::kOther;
  }
}

void read_graph_node(Reader& r, const Field& f) {
  r.loader.count_node(f.at);
  const NodeNames names{&r, [](void* context, std::string_view name) { return static_cast<Reader*>(context)->id(name); }};
  r.graph.nodes.push_back(read_node(r.loader, f.bytes, names));
}

constexpr wire::Row<Reader> kRows[] = {
    {{kNode, "node", Kind::kBytes, Count::kMany}, read_graph_node},
    {{2, "name", Kind::kBytes, Count::kOnce},
     [](Reader& r, const Field& f) { r.graph.name = r.loader.text(f, "GraphProto", "name"); }},
    {{5, "initializer", Kind::kBytes, Count::kMany}, read_initializer},
    {{10, "doc_string", Kind::kBytes, Count::kOnce}, nullptr},
    {{11, "input", Kind::kBytes, Count::kMany}, read_input},
    {{12, "output", Kind::kBytes, Count::kMany}, read_output},
    {{13, "value_info", Kind::kBytes, Count::kMany}, nullptr},
    {{14, "quantization_annotation", Kind::kBytes, Count::kMany}, nullptr},
    {{kSparseInitializer, "sparse_initializer", Kind::kBytes, Count::kMany}, read_initializer},
    {{16, "metadata_props", Kind::kBytes, Count::kMany},
     [](Reader& r, const Field& f) {
       const StringEntry entry = read_string_entry(r.loader, f.bytes);
       if (entry.key == "pkg.torch.export.ExportedProgram.graph_signature") r.signature = entry.value;
     }},
};

constexpr wire::Row<Reader> kValueInfoRows[] = {
    {{13, "value_info", Kind::kBytes, Count::kMany},
     [](Reader& r, const Field& f) {
       ValueInfo info = read_value_info(r.loader, f.bytes);
       const auto it = r.ids.find(info.name);
       if (it == r.ids.end()) return;
       if (info.origin != Origin::kUnknown) r.value(it->second).origin = info.origin;
       if (!info.folded_from.empty()) r.folded.emplace_back(it->second, info.folded_from);
       if (!info.type.is_known) return;
       // An entry of value_info may contradict what the inputs, outputs and initializers say, and is then ignored.
       Value& value = r.value(it->second);
       if (!contradicts(value, info.type)) return declare(r, value, info.type, f.at);
       std::uint8_t& role = r.roles[static_cast<std::size_t>(it->second)];
       if ((role & kHasConflict) == 0) r.conflicts.push_back({it->second, {dtype_of(info.type), {}, info.type.wraps}});
       role |= kHasConflict;
     }},
};

void refuse_unstored(const Reader& r, ValueId id, const char* node) {
  const auto it = r.unstored.find(id);
  if (it == r.unstored.end()) return;
  throw make_error(EVN_ERROR_UNSUPPORTED, "initializer '%.128s' has elements of type %s, which is not supported",
                   r.graph.values[static_cast<std::size_t>(id)].name.c_str(), it->second)
      .with_node(node);
}

void check_unstored(const Reader& r) {
  if (r.unstored.empty()) return;
  for (const Node& node : r.graph.nodes) {
    cancellation_point(kNodeWork);
    for (const ValueId id : node.inputs) refuse_unstored(r, id, node.name.empty() ? node.op_type.c_str() : node.name.c_str());
  }
  for (const ValueId id : r.graph.outputs) refuse_unstored(r, id, "");
}

// Nodes are counted beforehand: a list that grows moves all of them many times.
std::size_t count_nodes(Loader& loader, wire::Bytes range) {
  std::size_t count = 0;
  wire::Cursor cursor(loader.file, range, "GraphProto");
  for (Field field; cursor.next(&field);) count += field.number == kNode ? 1 : 0;
  return static_cast<std::size_t>(std::min<std::uint64_t>(count, loader.options.limits.nodes));
}

}  // namespace

Graph read_graph(Loader& loader, wire::Bytes range, bool is_body) {
  Reader reader{.loader = loader,
                .is_body = is_body,
                .graph = {},
                .ids = {},
                .roles = {},
                .unstored = {},
                .declared = {},
                .conflicts = {},
                .signature = {},
                .folded = {}};
  reader.graph.nodes.reserve(count_nodes(loader, range));
  wire::read_message(loader.file, range, "GraphProto", kRows, reader);
  wire::read_message(loader.file, range, "GraphProto", kValueInfoRows, reader);
  settle_origins(reader);
  check_unstored(reader);
  report_conflicts(reader);
  // What a caller may leave out of a model, whoever runs a body gives.
  const auto has_default = [&](ValueId id) { return (reader.roles[static_cast<std::size_t>(id)] & kIsInitializer) != 0; };
  if (is_body && loader.ir_version >= 4 && std::any_of(reader.graph.inputs.begin(), reader.graph.inputs.end(), has_default)) {
    loader.file.fail_field("GraphProto", "input", range.begin, "of a body is an initializer, too");
  }
  settle_defaults(reader);
  return std::move(reader.graph);
}

}  // namespace evn
