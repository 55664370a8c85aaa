#include "runtime/loaded/model_summary.h"

#include <set>

namespace evn {

Summary summarize(const Graph& graph) {
  Summary s;
  for (const Node& n : graph.nodes) {
    ++s.ops[(n.domain.empty() ? "" : n.domain + "::") + n.op_type];
    s.fused += n.fused.size();
  }
  std::set<std::uint64_t> seen;
  for (const Value& v : graph.values) {
    if (v.constant == nullptr || !seen.insert(v.constant->id).second) continue;
    s.parameters += static_cast<std::uint64_t>(v.constant->desc.shape.elements());
    s.weight_bytes += v.constant->size_bytes;
  }
  return s;
}

void log_loaded(const LoadedModel& model, std::size_t file_bytes, std::uint64_t duration_ns) {
  const LogSink& log = model.runtime->log();
  if (!log.wants(EVN_LOG_INFO)) return;
  const Summary s = summarize(model.graph());
  const char* const name = model.shown_name();
  LogEvent(log, EVN_LOG_INFO, "model.loaded")
      .field("file", model.file_name.c_str())
      .field("bytes", file_bytes)
      .field("nodes", model.graph().nodes.size())
      .field("weight_bytes", s.weight_bytes)
      .field("duration_ns", duration_ns)
      .write("loaded %s: %zu bytes, %zu nodes, %llu ms", name, file_bytes, model.graph().nodes.size(),
             static_cast<unsigned long long>(duration_ns / 1'000'000));
}

void log_wrong_shape(const Runtime& runtime, const LoadedModel& model, const WrongShape& w) {
  const Value& output = model.graph().values[w.output];
  const std::string declared = w.declared.to_string(), computed = output.shape.to_string();
  LogEvent(runtime.log(), EVN_LOG_WARNING, "model.output_shape")
      .field("file", model.file_name.c_str())
      .field("output", output.name.c_str())
      .field("declared", declared.c_str())
      .field("computed", computed.c_str())
      .write("output \"%s\" is declared with shape %s, and computed with shape %s, which counts", output.name.c_str(),
             declared.c_str(), computed.c_str());
}

void log_conflict(const Runtime& runtime, const LoadedModel& model, const TypeConflict& c) {
  LogEvent(runtime.log(), EVN_LOG_WARNING, "model.value_type")
      .field("file", model.file_name.c_str())
      .field("node", c.node.c_str())
      .field("value", c.value.c_str())
      .field("declared", c.declared.c_str())
      .field("actual", c.actual.c_str())
      .write("value \"%s\" of node \"%s\" is declared as %s in value_info, and is %s, which counts", c.value.c_str(),
             c.node.c_str(), c.declared.c_str(), c.actual.c_str());
}

}  // namespace evn
