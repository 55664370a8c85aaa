// ModelProto: versions, imports, metadata, and the main graph.
#include "model/load.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/loader.h"

namespace evn {
namespace {

using wire::Count;
using wire::Field;
using wire::Kind;

constexpr std::int64_t kOldestIrVersion = 3;
constexpr std::int64_t kNewestIrVersion = 14;
constexpr std::size_t kMaxMetadata = 65'536;

// Model-local functions are only named: a model may carry some that it does not use.
struct FunctionName {
  std::string_view domain;
  std::string_view name;
  friend auto operator<=>(const FunctionName&, const FunctionName&) = default;
};

struct ModelReader {
  Loader& loader;
  Model model;
  bool has_ir_version = false;
  wire::Bytes graph;
  bool has_graph = false;
  std::vector<FunctionName> functions;
};

std::string_view plain_domain(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }

struct OpsetReader {
  Loader& loader;
  OpsetImport opset;
};

constexpr wire::Row<OpsetReader> kOpsetRows[] = {
    {{1, "domain", Kind::kBytes, Count::kOnce},
     [](OpsetReader& r, const Field& f) { r.opset.domain = plain_domain(r.loader.text(f, "OperatorSetIdProto", "domain")); }},
    {{2, "version", Kind::kVarint, Count::kOnce}, [](OpsetReader& r, const Field& f) { r.opset.version = f.as_int64(); }},
};

void read_opset(ModelReader& r, const Field& f) {
  OpsetReader o{r.loader, {}};
  wire::read_message(r.loader.file, f.bytes, "OperatorSetIdProto", kOpsetRows, o);
  if (o.opset.version < 1) r.loader.file.fail_field("ModelProto", "opset_import", f.at, "has a version below 1");
  for (const OpsetImport& other : r.model.opsets) {
    if (other.domain == o.opset.domain) r.loader.file.fail_field("ModelProto", "opset_import", f.at, "imports a domain twice");
  }
  if (r.model.opsets.size() >= 256) r.loader.file.fail_at(EVN_ERROR_LIMIT, f.at, "ModelProto.opset_import", "more than 256 domains");
  r.model.opsets.push_back(std::move(o.opset));
}

struct FunctionReader {
  Loader& loader;
  FunctionName function;
};

constexpr wire::Row<FunctionReader> kFunctionRows[] = {
    {{1, "name", Kind::kBytes, Count::kOnce},
     [](FunctionReader& r, const Field& f) { r.function.name = r.loader.text(f, "FunctionProto", "name"); }},
    {{10, "domain", Kind::kBytes, Count::kOnce},
     [](FunctionReader& r, const Field& f) { r.function.domain = plain_domain(r.loader.text(f, "FunctionProto", "domain")); }},
};

void read_function(ModelReader& r, const Field& f) {
  FunctionReader function{r.loader, {}};
  wire::read_message(r.loader.file, f.bytes, "FunctionProto", kFunctionRows, function);
  if (function.function.name.empty()) r.loader.file.fail_field("FunctionProto", "name", f.at, "is missing");
  r.functions.push_back(function.function);
}

void read_metadata(ModelReader& r, const Field& f) {
  if (r.model.metadata.size() >= kMaxMetadata) {
    r.loader.file.fail_at(EVN_ERROR_LIMIT, f.at, "ModelProto.metadata_props", "more than %zu entries", kMaxMetadata);
  }
  const StringEntry entry = read_string_entry(r.loader, f.bytes);
  r.model.metadata.push_back({std::string(entry.key), std::string(entry.value)});
}

constexpr wire::Row<ModelReader> kModelRows[] = {
    {{1, "ir_version", Kind::kVarint, Count::kOnce},
     [](ModelReader& r, const Field& f) {
       r.model.ir_version = f.as_int64();
       r.has_ir_version = true;
     }},
    {{2, "producer_name", Kind::kBytes, Count::kOnce},
     [](ModelReader& r, const Field& f) { r.model.producer = r.loader.text(f, "ModelProto", "producer_name"); }},
    {{3, "producer_version", Kind::kBytes, Count::kOnce}, nullptr},
    {{4, "domain", Kind::kBytes, Count::kOnce}, nullptr},
    {{5, "model_version", Kind::kVarint, Count::kOnce}, nullptr},
    {{6, "doc_string", Kind::kBytes, Count::kOnce}, nullptr},
    {{7, "graph", Kind::kBytes, Count::kOnce},
     [](ModelReader& r, const Field& f) {
       r.graph = f.bytes;
       r.has_graph = true;
     }},
    {{8, "opset_import", Kind::kBytes, Count::kMany}, read_opset},
    {{14, "metadata_props", Kind::kBytes, Count::kMany}, read_metadata},
    {{20, "training_info", Kind::kBytes, Count::kMany}, nullptr},
    {{25, "functions", Kind::kBytes, Count::kMany}, read_function},
    {{26, "configuration", Kind::kBytes, Count::kMany}, nullptr},
};

// Functions are not expanded. One that has the name of an operator would replace it, so names decide before operators do.
void refuse_function_calls(const Graph& graph, const std::vector<FunctionName>& functions) {
  for (const Node& node : graph.nodes) {
    if (std::binary_search(functions.begin(), functions.end(), FunctionName{node.domain, node.op_type})) {
      throw make_error(EVN_ERROR_UNSUPPORTED, "the model's own function %.128s is called; model-local functions are not supported",
                       node.op_type.c_str())
          .with_node(node.name.empty() ? node.op_type.c_str() : node.name.c_str());
    }
    for (const Attribute& attribute : node.attributes) {
      if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute.value)) refuse_function_calls(**body, functions);
    }
  }
}

void check_versions(const ModelReader& r) {
  const std::int64_t ir = r.model.ir_version;
  const std::uint8_t* begin = r.loader.file.all().begin;
  if (!r.has_ir_version) r.loader.file.fail_field("ModelProto", "ir_version", begin, "is missing: this is not an ONNX model");
  if (ir < 1) r.loader.file.fail_field("ModelProto", "ir_version", begin, "is below 1");
  if (ir < kOldestIrVersion || ir > kNewestIrVersion) {
    r.loader.file.fail_at(EVN_ERROR_UNSUPPORTED, begin, "ModelProto.ir_version", "is %lld; supported are %lld to %lld",
                          static_cast<long long>(ir), static_cast<long long>(kOldestIrVersion),
                          static_cast<long long>(kNewestIrVersion));
  }
  if (r.model.opsets.empty()) r.loader.file.fail_field("ModelProto", "opset_import", begin, "is missing");
  if (!r.has_graph) r.loader.file.fail_field("ModelProto", "graph", begin, "is missing");
}

}  // namespace

std::string_view Loader::text(const Field& field, const char* message, const char* name) const {
  const std::string_view text = field.bytes.text();
  if (text.find('\0') != std::string_view::npos) file.fail_field(message, name, field.at, "has a NUL byte in it");
  return text;
}

Model load_onnx(std::shared_ptr<const void> bytes, std::size_t size, const LoadOptions& options) {
  if (size > options.limits.model_bytes) {
    throw make_error(EVN_ERROR_LIMIT, "the model has %zu bytes, the limit is %llu", size,
                     static_cast<unsigned long long>(options.limits.model_bytes))
        .with_bytes(size, options.limits.model_bytes);
  }
  const auto* begin = static_cast<const std::uint8_t*>(bytes.get());
  const wire::Bytes all{begin, begin + size};
  Loader loader{options, std::move(bytes), wire::File(all, options.source.c_str(), options.limits.nesting, options.deadline_ns)};
  ModelReader reader{.loader = loader, .model = {}, .graph = {}, .functions = {}};
  wire::read_message(loader.file, all, "ModelProto", kModelRows, reader);
  check_versions(reader);
  loader.file.enter(reader.graph.begin, "GraphProto");
  reader.model.graph = read_graph(loader, reader.graph, false);
  loader.file.leave();
  if (!reader.functions.empty()) {
    std::sort(reader.functions.begin(), reader.functions.end());
    refuse_function_calls(reader.model.graph, reader.functions);
  }
  return std::move(reader.model);
}

}  // namespace evn
