// evn_model_describe: a loaded model as text and as JSON.
#include <span>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "runtime/loaded/model.h"
#include "runtime/loaded/model_summary.h"

namespace evn {
namespace {

std::string dims_text(const Value& v) {
  if (!v.has_shape) return "[rank unknown]";
  std::string s = "[";
  for (int i = 0; i < v.shape.rank(); ++i) {
    if (i > 0) s += ',';
    const bool named = static_cast<std::size_t>(i) < v.symbols.size() && !v.symbols[i].empty();
    s += v.shape[i] >= 0 ? std::to_string(v.shape[i]) : (named ? v.symbols[i] : std::string("?"));
  }
  return s + "]";
}

std::vector<const Value*> values_of(const Graph& graph, std::span<const ValueId> ids) {
  std::vector<const Value*> values;
  for (const ValueId id : ids) values.push_back(&graph.values[static_cast<std::size_t>(id)]);
  return values;
}

std::vector<const Value*> declared_defaults(const Model& model) {
  std::vector<const Value*> values;
  for (const InputDefault& d : model.defaults) values.push_back(&d.declared);
  return values;
}

void write_values(JsonWriter& json, const char* key, const std::vector<const Value*>& values, std::string* text) {
  json.key(key);
  json.begin_array();
  for (const Value* value : values) {
    const Value& v = *value;
    *text += std::string("  ") + key + "  " + v.name + "  " + dtype_name(v.dtype) + dims_text(v) + "\n";
    json.begin_object();
    json.field("name", v.name);
    json.field("dtype", dtype_name(v.dtype));
    json.key("dims");
    json.begin_array();
    for (int i = 0; v.has_shape && i < v.shape.rank(); ++i) {
      if (v.shape[i] >= 0) {
        json.value(v.shape[i]);
      } else if (static_cast<std::size_t>(i) < v.symbols.size() && !v.symbols[i].empty()) {
        json.value(v.symbols[i]);
      } else {
        json.null();
      }
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::string describe_model(const LoadedModel& model, evn_format format) {
  const Graph& graph = model.graph();
  const Summary s = summarize(graph);
  std::string text = std::string("model ") + model.shown_name() + ", IR version " + std::to_string(model.model.ir_version) +
                     ", producer " + model.model.producer + "\n";
  JsonWriter json;
  json.begin_object();
  json.field("file", model.file_name);
  json.field("ir_version", model.model.ir_version);
  json.field("producer", model.model.producer);
  json.key("opsets");
  json.begin_object();
  for (const OpsetImport& o : model.model.opsets) {
    text += "  opset   " + (o.domain.empty() ? std::string("ai.onnx") : o.domain) + " " + std::to_string(o.version) + "\n";
    json.field(o.domain.empty() ? "ai.onnx" : o.domain, o.version);
  }
  json.end_object();
  write_values(json, "inputs", values_of(graph, std::span(graph.inputs).first(model.required_inputs())), &text);
  write_values(json, "defaults", declared_defaults(model.model), &text);
  write_values(json, "outputs", values_of(graph, graph.outputs), &text);
  text += "  nodes   " + std::to_string(graph.nodes.size()) + " after optimization, " + std::to_string(s.fused) +
          " more fused into them\n";
  text += "  weights " + std::to_string(s.parameters) + " values, " + std::to_string(s.weight_bytes) + " bytes\n  operators:\n";
  json.field("node_count", std::uint64_t{graph.nodes.size()});
  json.field("fused_nodes", std::uint64_t{s.fused});
  json.field("parameters", s.parameters);
  json.field("weight_bytes", s.weight_bytes);
  json.key("operators");
  json.begin_object();
  for (const auto& [op, count] : s.ops) {
    text += "    " + op + " " + std::to_string(count) + "\n";
    json.field(op, std::int64_t{count});
  }
  json.end_object();
  json.key("metadata");
  json.begin_array();
  for (const MetadataEntry& m : model.model.metadata) json.value(m.key);
  json.end_array();
  json.end_object();
  return format == EVN_FORMAT_JSON ? json.take() : text;
}

}  // namespace evn
