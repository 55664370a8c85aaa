// See survey.h. Tables of its own over the same wire reader as the loader's: it wants less of each message, and of more kinds.
#include "model/survey.h"

#include <tuple>
#include <utility>

#include "base/error.h"
#include "core/dtype.h"
#include "model/loader.h"

namespace evn {
namespace {

using wire::Count;
using wire::Field;
using wire::Kind;
using Opsets = std::shared_ptr<const std::map<std::string, std::int64_t>>;

constexpr std::size_t kMaxName = 128;
constexpr std::size_t kMaxPath = 512;
constexpr std::size_t kMaxDims = 256;  // far above what can run

std::string cut(std::string_view text, std::size_t most) { return std::string(text.substr(0, most)); }

// What all readers of one survey share.
struct Surveyor {
  Loader loader;
  const IsOperator& is_operator;
  Survey result;
  bool has_ir_version = false;
  bool has_graph = false;
  wire::Bytes graph;
  struct Function {
    const std::uint8_t* at = nullptr;  // first byte, for messages
    SurveyFunction name;
    std::map<std::string, std::int64_t> opsets;
    std::vector<wire::Bytes> nodes;
    bool called = false;
  };
  std::map<std::tuple<std::string, std::string, std::string>, Function> functions;
  std::vector<Function*> called;  // to be walked

  std::string text(const Field& f, const char* message, const char* name) const {
    return std::string(loader.text(f, message, name));
  }
};

// ---------------------------------------------------------------------------------------------------------- tensors --

struct TensorReader {
  Surveyor& s;
  std::string name;
  std::int32_t data_type = 0;
  std::uint64_t elements = 1;
  bool overflow = false;
  bool empty = false;
  std::uint64_t string_bytes = 0;
  bool external = false;
  std::string location;
};

struct EntryReader {
  Surveyor& s;
  std::string_view key;
  std::string_view value;
};

constexpr wire::Row<EntryReader> kEntryRows[] = {
    {{1, "key", Kind::kBytes, Count::kOnce},
     [](EntryReader& r, const Field& f) { r.key = r.s.loader.text(f, "StringStringEntryProto", "key"); }},
    {{2, "value", Kind::kBytes, Count::kOnce},
     [](EntryReader& r, const Field& f) { r.value = r.s.loader.text(f, "StringStringEntryProto", "value"); }},
};

void read_entry(TensorReader& r, const Field& f) {
  EntryReader entry{r.s, {}, {}};
  wire::read_message(r.s.loader.file, f.bytes, "StringStringEntryProto", kEntryRows, entry);
  if (entry.key == "location") r.location = cut(entry.value, 4096);
}

constexpr wire::Row<TensorReader> kTensorRows[] = {
    {{1, "dims", Kind::kVarints, Count::kMany},
     [](TensorReader& r, const Field& f) {
       if (f.as_int64() < 0) r.s.loader.file.fail_field("TensorProto", "dims", f.at, "is negative");
       r.empty |= f.value == 0;
       r.overflow |= __builtin_mul_overflow(r.elements, f.value, &r.elements);
     }},
    {{2, "data_type", Kind::kVarint, Count::kOnce}, [](TensorReader& r, const Field& f) { r.data_type = f.as_int32(); }},
    {{6, "string_data", Kind::kBytes, Count::kMany}, [](TensorReader& r, const Field& f) { r.string_bytes += f.bytes.size(); }},
    {{8, "name", Kind::kBytes, Count::kOnce}, [](TensorReader& r, const Field& f) { r.name = r.s.text(f, "TensorProto", "name"); }},
    {{13, "external_data", Kind::kBytes, Count::kMany}, read_entry},
    {{14, "data_location", Kind::kVarint, Count::kOnce}, [](TensorReader& r, const Field& f) { r.external = f.value == 1; }},
};

// Bits of an element as ONNX stores it; 0 for strings.
std::uint64_t onnx_bits(std::int32_t type) {
  constexpr std::int32_t kFloat6[] = {27, 28};
  if (const std::size_t bits = dtype_bits(static_cast<DType>(type)); bits != 0) return bits;
  return type == kFloat6[0] || type == kFloat6[1] ? 6 : 0;
}

// Counts a tensor and returns its name.
std::string add_tensor(Surveyor& s, wire::Bytes range) {
  TensorReader r{.s = s, .name = {}, .location = {}};
  wire::read_message(s.loader.file, range, "TensorProto", kTensorRows, r);
  const char* type = onnx_type_name(r.data_type);
  if (type == nullptr) s.loader.file.fail_field("TensorProto", "data_type", range.begin, "is not an element type");
  if (r.empty) r.elements = 0;
  std::uint64_t bits = 0;
  r.overflow = !r.empty && (r.overflow || __builtin_mul_overflow(r.elements, onnx_bits(r.data_type), &bits));
  SurveyWeights& w = s.result.weights[type];
  const std::uint64_t bytes = r.data_type == EVN_DTYPE_STRING ? r.string_bytes : bits / 8 + (bits % 8 != 0 ? 1 : 0);
  r.overflow |= __builtin_add_overflow(w.parameters, r.elements, &w.parameters) || __builtin_add_overflow(w.bytes, bytes, &w.bytes);
  if (r.overflow) s.loader.file.fail_field("TensorProto", "dims", range.begin, "claims more bytes than 64 bits can count");
  ++w.tensors;
  if (r.external) {
    w.external_bytes += bytes;
    s.result.external_files.insert(std::move(r.location));
  }
  return std::move(r.name);
}

struct SparseReader {
  Surveyor& s;
  std::string name;
};

constexpr wire::Row<SparseReader> kSparseRows[] = {
    {{1, "values", Kind::kBytes, Count::kOnce}, [](SparseReader& r, const Field& f) { r.name = add_tensor(r.s, f.bytes); }},
    {{2, "indices", Kind::kBytes, Count::kOnce}, [](SparseReader& r, const Field& f) { add_tensor(r.s, f.bytes); }},
};

std::string add_sparse(Surveyor& s, wire::Bytes range) {
  SparseReader r{s, {}};
  wire::read_message(s.loader.file, range, "SparseTensorProto", kSparseRows, r);
  return std::move(r.name);
}

// ------------------------------------------------------------------------------------------------------------ types --

struct TypeReader {
  Surveyor& s;
  SurveyValue& value;
  std::string type;
};

std::string read_type(Surveyor& s, wire::Bytes range, SurveyValue& value);

constexpr wire::Row<std::pair<Surveyor*, SurveyDim>> kDimRows[] = {
    {{1, "dim_value", Kind::kVarint, Count::kOnce},
     [](std::pair<Surveyor*, SurveyDim>& r, const Field& f) { r.second.value = f.as_int64() < 0 ? -1 : f.as_int64(); }},
    {{2, "dim_param", Kind::kBytes, Count::kOnce},
     [](std::pair<Surveyor*, SurveyDim>& r, const Field& f) {
       r.second.symbol = cut(r.first->loader.text(f, "TensorShapeProto.Dimension", "dim_param"), kMaxName);
     }},
};

constexpr wire::Row<TypeReader> kShapeRows[] = {
    {{1, "dim", Kind::kBytes, Count::kMany},
     [](TypeReader& r, const Field& f) {
       std::pair<Surveyor*, SurveyDim> dim{&r.s, {}};
       wire::read_message(r.s.loader.file, f.bytes, "TensorShapeProto.Dimension", kDimRows, dim);
       if (r.value.dims.size() >= kMaxDims)
         r.s.loader.file.fail_at(EVN_ERROR_LIMIT, f.at, "TensorShapeProto.dim", "more than %zu", kMaxDims);
       r.value.dims.push_back(std::move(dim.second));
     }},
};

constexpr wire::Row<TypeReader> kTensorTypeRows[] = {
    {{1, "elem_type", Kind::kVarint, Count::kOnce},
     [](TypeReader& r, const Field& f) {
       const char* name = onnx_type_name(f.as_int32());
       r.type = name != nullptr ? name : "undefined";
     }},
    {{2, "shape", Kind::kBytes, Count::kOnce},
     [](TypeReader& r, const Field& f) {
       r.value.has_shape = true;
       wire::read_message(r.s.loader.file, f.bytes, "TensorShapeProto", kShapeRows, r);
     }},
};

constexpr wire::Row<TypeReader> kElementRows[] = {
    {{1, "elem_type", Kind::kBytes, Count::kOnce},
     [](TypeReader& r, const Field& f) { r.type = read_type(r.s, f.bytes, r.value); }},
};

constexpr wire::Row<TypeReader> kMapRows[] = {
    {{1, "key_type", Kind::kVarint, Count::kOnce}, nullptr},
    {{2, "value_type", Kind::kBytes, Count::kOnce},
     [](TypeReader& r, const Field& f) { r.type = read_type(r.s, f.bytes, r.value); }},
};

template <std::size_t kRows>
void read_inner(TypeReader& r, const Field& f, const char* message, const wire::Row<TypeReader> (&rows)[kRows],
                const char* around) {
  TypeReader inner{r.s, r.value, {}};
  wire::read_message(r.s.loader.file, f.bytes, message, rows, inner);
  r.type = around == nullptr ? inner.type : around + ("(" + inner.type + ")");
}

constexpr wire::Row<TypeReader> kTypeRows[] = {
    {{1, "tensor_type", Kind::kBytes, Count::kOnce},
     [](TypeReader& r, const Field& f) { read_inner(r, f, "TypeProto.Tensor", kTensorTypeRows, nullptr); }},
    {{4, "sequence_type", Kind::kBytes, Count::kOnce},
     [](TypeReader& r, const Field& f) { read_inner(r, f, "TypeProto.Sequence", kElementRows, "sequence"); }},
    {{5, "map_type", Kind::kBytes, Count::kOnce},
     [](TypeReader& r, const Field& f) { read_inner(r, f, "TypeProto.Map", kMapRows, "map"); }},
    {{8, "sparse_tensor_type", Kind::kBytes, Count::kOnce},
     [](TypeReader& r, const Field& f) { read_inner(r, f, "TypeProto.SparseTensor", kTensorTypeRows, "sparse"); }},
    {{9, "optional_type", Kind::kBytes, Count::kOnce},
     [](TypeReader& r, const Field& f) { read_inner(r, f, "TypeProto.Optional", kElementRows, "optional"); }},
};

std::string read_type(Surveyor& s, wire::Bytes range, SurveyValue& value) {
  TypeReader r{s, value, {}};
  wire::read_message(s.loader.file, range, "TypeProto", kTypeRows, r);
  return std::move(r.type);
}

struct ValueReader {
  Surveyor& s;
  SurveyValue value;
};

constexpr wire::Row<ValueReader> kValueRows[] = {
    {{1, "name", Kind::kBytes, Count::kOnce},
     [](ValueReader& r, const Field& f) { r.value.name = r.s.text(f, "ValueInfoProto", "name"); }},
    {{2, "type", Kind::kBytes, Count::kOnce},
     [](ValueReader& r, const Field& f) { r.value.type = read_type(r.s, f.bytes, r.value); }},
};

SurveyValue read_value(Surveyor& s, const Field& f) {
  ValueReader r{s, {}};
  wire::read_message(s.loader.file, f.bytes, "ValueInfoProto", kValueRows, r);
  return std::move(r.value);
}

// ------------------------------------------------------------------------------------------------- nodes and bodies --

struct NodeReader {
  Surveyor& s;
  SurveyNode node;
  std::string overload;
  std::vector<std::pair<std::string, wire::Bytes>> graphs;  // by the attribute's name
};

struct AttributeReader {
  NodeReader& node;
  std::string name;
  std::vector<wire::Bytes> graphs;
};

constexpr wire::Row<AttributeReader> kAttributeRows[] = {
    {{1, "name", Kind::kBytes, Count::kOnce},
     [](AttributeReader& r, const Field& f) { r.name = cut(r.node.s.loader.text(f, "AttributeProto", "name"), kMaxName); }},
    {{5, "t", Kind::kBytes, Count::kOnce}, [](AttributeReader& r, const Field& f) { add_tensor(r.node.s, f.bytes); }},
    {{6, "g", Kind::kBytes, Count::kOnce}, [](AttributeReader& r, const Field& f) { r.graphs.push_back(f.bytes); }},
    {{10, "tensors", Kind::kBytes, Count::kMany}, [](AttributeReader& r, const Field& f) { add_tensor(r.node.s, f.bytes); }},
    {{11, "graphs", Kind::kBytes, Count::kMany}, [](AttributeReader& r, const Field& f) { r.graphs.push_back(f.bytes); }},
    {{22, "sparse_tensor", Kind::kBytes, Count::kOnce}, [](AttributeReader& r, const Field& f) { add_sparse(r.node.s, f.bytes); }},
};

constexpr wire::Row<NodeReader> kNodeRows[] = {
    {{3, "name", Kind::kBytes, Count::kOnce},
     [](NodeReader& r, const Field& f) { r.node.name = cut(r.s.loader.text(f, "NodeProto", "name"), kMaxName); }},
    {{4, "op_type", Kind::kBytes, Count::kOnce},
     [](NodeReader& r, const Field& f) { r.node.op_type = cut(r.s.loader.text(f, "NodeProto", "op_type"), kMaxName); }},
    {{5, "attribute", Kind::kBytes, Count::kMany},
     [](NodeReader& r, const Field& f) {
       AttributeReader a{r, {}, {}};
       wire::read_message(r.s.loader.file, f.bytes, "AttributeProto", kAttributeRows, a);
       for (const wire::Bytes& g : a.graphs) r.graphs.emplace_back(a.name, g);
     }},
    {{7, "domain", Kind::kBytes, Count::kOnce},
     [](NodeReader& r, const Field& f) { r.node.domain = cut(plain_domain(r.s.loader.text(f, "NodeProto", "domain")), kMaxName); }},
    {{8, "overload", Kind::kBytes, Count::kOnce},
     [](NodeReader& r, const Field& f) { r.overload = cut(r.s.loader.text(f, "NodeProto", "overload"), kMaxName); }},
};

struct GraphReader {
  Surveyor& s;
  std::size_t body = 0;
  std::size_t nodes = 0;  // so far, in this body
  std::set<std::string> initializers;
  std::vector<SurveyValue> inputs;
  std::vector<SurveyValue> outputs;
};

void read_body(Surveyor& s, wire::Bytes range, SurveyBody body);

void find_callee(Surveyor& s, NodeReader& r) {
  const auto it = s.functions.find({r.node.domain, r.node.op_type, r.overload});
  if (it == s.functions.end()) return;
  const auto& opsets = *s.result.bodies[r.node.body].opsets;
  const auto opset = opsets.find(r.node.domain);
  if (r.overload.empty() && opset != opsets.end() && s.is_operator(r.node.domain, r.node.op_type, opset->second)) return;
  r.node.is_call = true;
  if (std::exchange(it->second.called, true)) return;
  s.called.push_back(&it->second);
}

void read_node(Surveyor& s, wire::Bytes range, std::size_t body, std::size_t number) {
  Loader& loader = s.loader;
  if (++loader.nodes > loader.options.limits.nodes) {
    loader.file.fail_at(EVN_ERROR_LIMIT, range.begin, "NodeProto", "the model has more than %llu nodes",
                        static_cast<unsigned long long>(loader.options.limits.nodes));
  }
  NodeReader r{s, {}, {}, {}};
  r.node.body = body;
  wire::read_message(loader.file, range, "NodeProto", kNodeRows, r);
  if (r.node.name.empty()) r.node.name = r.node.op_type + "_" + std::to_string(number);
  find_callee(s, r);
  const std::size_t index = s.result.nodes.size();
  s.result.nodes.push_back(std::move(r.node));
  for (const auto& [name, graph] : r.graphs) {
    const std::size_t suffix = name.find("_branch");  // then_branch is "then", as in names of nodes that run
    read_body(s, graph, {name.substr(0, suffix), index, s.result.bodies[body].opsets});
  }
}

constexpr wire::Row<GraphReader> kGraphRows[] = {
    {{1, "node", Kind::kBytes, Count::kMany}, [](GraphReader& r, const Field& f) { read_node(r.s, f.bytes, r.body, r.nodes++); }},
    {{5, "initializer", Kind::kBytes, Count::kMany},
     [](GraphReader& r, const Field& f) { r.initializers.insert(add_tensor(r.s, f.bytes)); }},
    {{11, "input", Kind::kBytes, Count::kMany}, [](GraphReader& r, const Field& f) { r.inputs.push_back(read_value(r.s, f)); }},
    {{12, "output", Kind::kBytes, Count::kMany}, [](GraphReader& r, const Field& f) { r.outputs.push_back(read_value(r.s, f)); }},
    {{15, "sparse_initializer", Kind::kBytes, Count::kMany},
     [](GraphReader& r, const Field& f) { r.initializers.insert(add_sparse(r.s, f.bytes)); }},
};

// Adds a body and returns its index. `at` is its first byte, for messages.
std::size_t add_body(Surveyor& s, const std::uint8_t* at, SurveyBody body) {
  const std::uint64_t most = s.loader.options.limits.nodes;
  if (s.result.bodies.size() >= most) {
    s.loader.file.fail_at(EVN_ERROR_LIMIT, at, "GraphProto", "the model has more than %llu graphs and functions",
                          static_cast<unsigned long long>(most));
  }
  s.result.bodies.push_back(std::move(body));
  return s.result.bodies.size() - 1;
}

void read_body(Surveyor& s, wire::Bytes range, SurveyBody body) {
  s.loader.file.enter(range.begin, "GraphProto");
  GraphReader r{.s = s, .body = add_body(s, range.begin, std::move(body)), .initializers = {}, .inputs = {}, .outputs = {}};
  wire::read_message(s.loader.file, range, "GraphProto", kGraphRows, r);
  s.loader.file.leave();
  if (r.body != 0) return;
  for (SurveyValue& v : r.inputs) {
    if (!r.initializers.contains(v.name)) {
      s.result.inputs.push_back(std::move(v));
    } else if (s.result.ir_version >= 4) {  // before, initializers had to be inputs
      s.result.defaults.push_back(std::move(v));
    }
  }
  s.result.outputs = std::move(r.outputs);
}

// -------------------------------------------------------------------------------------------------------- the model --

struct OpsetReader {
  Surveyor& s;
  OpsetImport opset;
};

constexpr wire::Row<OpsetReader> kOpsetRows[] = {
    {{1, "domain", Kind::kBytes, Count::kOnce},
     [](OpsetReader& r, const Field& f) {
       r.opset.domain = cut(plain_domain(r.s.loader.text(f, "OperatorSetIdProto", "domain")), kMaxName);
     }},
    {{2, "version", Kind::kVarint, Count::kOnce}, [](OpsetReader& r, const Field& f) { r.opset.version = f.as_int64(); }},
};

OpsetImport read_opset(Surveyor& s, const Field& f) {
  OpsetReader r{s, {}};
  wire::read_message(s.loader.file, f.bytes, "OperatorSetIdProto", kOpsetRows, r);
  return std::move(r.opset);
}

struct FunctionReader {
  Surveyor& s;
  Surveyor::Function function;
};

constexpr wire::Row<FunctionReader> kFunctionRows[] = {
    {{1, "name", Kind::kBytes, Count::kOnce},
     [](FunctionReader& r, const Field& f) { r.function.name.name = cut(r.s.loader.text(f, "FunctionProto", "name"), kMaxName); }},
    {{7, "node", Kind::kBytes, Count::kMany}, [](FunctionReader& r, const Field& f) { r.function.nodes.push_back(f.bytes); }},
    {{9, "opset_import", Kind::kBytes, Count::kMany},
     [](FunctionReader& r, const Field& f) {
       OpsetImport o = read_opset(r.s, f);
       r.function.opsets.emplace(std::move(o.domain), o.version);
     }},
    {{10, "domain", Kind::kBytes, Count::kOnce},
     [](FunctionReader& r, const Field& f) {
       r.function.name.domain = cut(plain_domain(r.s.loader.text(f, "FunctionProto", "domain")), kMaxName);
     }},
    {{13, "overload", Kind::kBytes, Count::kOnce},
     [](FunctionReader& r, const Field& f) {
       r.function.name.overload = cut(r.s.loader.text(f, "FunctionProto", "overload"), kMaxName);
     }},
};

constexpr std::size_t kMaxOpsets = 256;

constexpr wire::Row<Surveyor> kModelRows[] = {
    {{1, "ir_version", Kind::kVarint, Count::kOnce},
     [](Surveyor& s, const Field& f) {
       s.result.ir_version = f.as_int64();
       s.has_ir_version = true;
     }},
    {{2, "producer_name", Kind::kBytes, Count::kOnce},
     [](Surveyor& s, const Field& f) { s.result.producer = s.text(f, "ModelProto", "producer_name"); }},
    {{7, "graph", Kind::kBytes, Count::kOnce},
     [](Surveyor& s, const Field& f) {
       s.graph = f.bytes;
       s.has_graph = true;
     }},
    {{8, "opset_import", Kind::kBytes, Count::kMany},
     [](Surveyor& s, const Field& f) {
       if (s.result.opsets.size() >= kMaxOpsets)
         s.loader.file.fail_at(EVN_ERROR_LIMIT, f.at, "ModelProto.opset_import", "more than %zu domains", kMaxOpsets);
       s.result.opsets.push_back(read_opset(s, f));
     }},
    {{25, "functions", Kind::kBytes, Count::kMany},
     [](Surveyor& s, const Field& f) {
       FunctionReader r{s, {}};
       r.function.at = f.at;
       wire::read_message(s.loader.file, f.bytes, "FunctionProto", kFunctionRows, r);
       auto key = std::make_tuple(r.function.name.domain, r.function.name.name, r.function.name.overload);
       s.functions.emplace(std::move(key), std::move(r.function));
     }},
};

void read_functions(Surveyor& s) {
  for (std::size_t i = 0; i < s.called.size(); ++i) {  // grows while it is walked
    Surveyor::Function& f = *s.called[i];
    s.result.functions.push_back(f.name);
    const std::string shown = f.name.domain.empty() ? "" : f.name.domain + "::";
    auto opsets = std::make_shared<const std::map<std::string, std::int64_t>>(std::move(f.opsets));
    const std::size_t body = add_body(s, f.at, {shown + f.name.name, SurveyBody::kNoNode, std::move(opsets)});
    for (std::size_t n = 0; n < f.nodes.size(); ++n) read_node(s, f.nodes[n], body, n);
  }
}

}  // namespace

std::string body_path(const Survey& survey, std::size_t body) {
  std::string path;
  while (body != 0 && path.size() <= kMaxPath) {
    const SurveyBody& b = survey.bodies[body];
    path.insert(0, b.name + "/");
    if (b.node == SurveyBody::kNoNode) break;
    const SurveyNode& node = survey.nodes[b.node];
    path.insert(0, node.name + "/");
    body = node.body;
  }
  return path.size() > kMaxPath ? "..." + path.substr(path.size() - kMaxPath + 3) : path;
}

Survey survey_onnx(std::shared_ptr<const void> bytes, std::size_t size, const LoadOptions& options, const IsOperator& is_operator) {
  if (size > options.limits.model_bytes) {
    throw make_error(EVN_ERROR_LIMIT, "the model has %zu bytes, the limit is %llu", size,
                     static_cast<unsigned long long>(options.limits.model_bytes))
        .with_bytes(size, options.limits.model_bytes);
  }
  const auto* begin = static_cast<const std::uint8_t*>(bytes.get());
  const wire::Bytes all{begin, begin + size};
  wire::File file(all, options.source.c_str(), options.limits.nesting, options.deadline_ns);
  Surveyor s{.loader = {options, std::move(bytes), file},
             .is_operator = is_operator,
             .result = {},
             .graph = {},
             .functions = {},
             .called = {}};
  wire::read_message(s.loader.file, all, "ModelProto", kModelRows, s);
  if (!s.has_ir_version) s.loader.file.fail_field("ModelProto", "ir_version", begin, "is missing: this is not an ONNX model");
  if (!s.has_graph) s.loader.file.fail_field("ModelProto", "graph", begin, "is missing");
  auto opsets = std::make_shared<std::map<std::string, std::int64_t>>();
  for (const OpsetImport& o : s.result.opsets) opsets->emplace(o.domain, o.version);
  read_body(s, s.graph, {"", SurveyBody::kNoNode, std::move(opsets)});
  read_functions(s);
  return std::move(s.result);
}

}  // namespace evn
