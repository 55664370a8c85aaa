// ModelProto: versions, imports, metadata, and the main graph.
#include "model/load.h"

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

struct ModelReader {
  Loader& loader;
  Model model;
  bool has_ir_version = false;
  wire::Bytes graph;
  bool has_graph = false;
  std::vector<FunctionHeader> functions;
};

struct OpsetReader {
  Loader& loader;
  OpsetImport opset;
};

constexpr wire::Row<OpsetReader> kOpsetRows[] = {
    {{1, "domain", Kind::kBytes, Count::kOnce},
     [](OpsetReader& r, const Field& f) { r.opset.domain = plain_domain(r.loader.text(f, "OperatorSetIdProto", "domain")); }},
    {{2, "version", Kind::kVarint, Count::kOnce}, [](OpsetReader& r, const Field& f) { r.opset.version = f.as_int64(); }},
};

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
    {{8, "opset_import", Kind::kBytes, Count::kMany},
     [](ModelReader& r, const Field& f) { read_opset(r.loader, f, "ModelProto", r.model.opsets); }},
    {{14, "metadata_props", Kind::kBytes, Count::kMany}, read_metadata},
    {{20, "training_info", Kind::kBytes, Count::kMany}, nullptr},
    {{25, "functions", Kind::kBytes, Count::kMany},
     [](ModelReader& r, const Field& f) { r.functions.push_back(read_function_header(r.loader, f.bytes)); }},
    {{26, "configuration", Kind::kBytes, Count::kMany}, nullptr},
};

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

void Loader::count_node(const std::uint8_t* at) {
  if (++nodes <= options.limits.nodes) return;
  file.fail_at(EVN_ERROR_LIMIT, at, "GraphProto.node", "the model has more than %llu nodes",
               static_cast<unsigned long long>(options.limits.nodes));
}

void read_opset(Loader& loader, const Field& field, const char* message, std::vector<OpsetImport>& to) {
  OpsetReader o{loader, {}};
  wire::read_message(loader.file, field.bytes, "OperatorSetIdProto", kOpsetRows, o);
  if (o.opset.version < 1) loader.file.fail_field(message, "opset_import", field.at, "has a version below 1");
  for (const OpsetImport& other : to) {
    if (other.domain != o.opset.domain) continue;
    if (other.version == o.opset.version) return;  // some converters write an import twice
    loader.file.fail_field(message, "opset_import", field.at, "imports a domain in two versions");
  }
  if (to.size() >= 256) loader.file.fail_at(EVN_ERROR_LIMIT, field.at, message, "more than 256 opset imports");
  to.push_back(std::move(o.opset));
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
  loader.ir_version = reader.model.ir_version;
  loader.file.enter(reader.graph.begin, "GraphProto");
  reader.model.graph = read_graph(loader, reader.graph, false);
  loader.file.leave();
  reader.model.defaults = std::move(loader.defaults);
  reader.model.functions = read_called_functions(loader, std::move(reader.functions), reader.model.graph);
  return std::move(reader.model);
}

}  // namespace evn
