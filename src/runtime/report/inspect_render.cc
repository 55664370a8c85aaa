// An inspection as JSON and as text.
#include "base/json_writer.h"
#include "base/number_text.h"
#include "base/status.h"
#include "runtime/report/inspect.h"

namespace evn {
namespace {

constexpr std::size_t kMaxNames = 10'000;  // of unsupported nodes, in all; a hostile model may have a million

std::string shown_op(const OperatorUse& use) { return use.domain.empty() ? use.name : use.domain + "::" + use.name; }

std::string whole(double number) { return fixed_text(number, 0); }

std::string dim_text(const SurveyDim& d) { return d.value >= 0 ? std::to_string(d.value) : d.symbol.empty() ? "?" : d.symbol; }

std::string type_text(const SurveyValue& v) {
  std::string s = v.type;
  if (!v.has_shape) return s;
  s += '[';
  for (std::size_t i = 0; i < v.dims.size(); ++i) s += (i > 0 ? "," : "") + dim_text(v.dims[i]);
  return s + "]";
}

// Writes both forms at once, so that they cannot differ in what they say.
class Renderer {
 public:
  explicit Renderer(const Inspection& i) : i_(i) {}

  std::string run(evn_format format) {
    json_.begin_object();
    head();
    values("inputs", "input    ", i_.survey.inputs);
    values("defaults", "default  ", i_.survey.defaults);
    values("outputs", "output   ", i_.survey.outputs);
    operators();
    weights();
    unsupported();
    verdict();
    estimate();
    json_.end_object();
    return format == EVN_FORMAT_JSON ? json_.take() : std::move(text_);
  }

 private:
  const Inspection& i_;
  JsonWriter json_;
  std::string text_;
  std::size_t names_ = 0;

  void head() {
    const Survey& s = i_.survey;
    text_ += "model " + (i_.file_name.empty() ? std::string("(from a buffer)") : i_.file_name) + ", IR version " +
             std::to_string(s.ir_version) + ", producer " + s.producer + "\n";
    json_.field("file", i_.file_name);
    json_.field("ir_version", s.ir_version);
    json_.field("producer", s.producer);
    json_.key("opsets");
    json_.begin_object();
    for (const OpsetImport& o : s.opsets) {
      text_ += "  opset    " + shown_domain(o.domain) + " " + std::to_string(o.version) + "\n";
      json_.field(shown_domain(o.domain), o.version);
    }
    json_.end_object();
    json_.key("functions");
    json_.begin_array();
    for (const SurveyFunction& f : s.functions) {
      text_ += "  function " + shown_domain(f.domain) + "::" + f.name + (f.overload.empty() ? "" : ":" + f.overload) + "\n";
      json_.begin_object();
      json_.field("domain", shown_domain(f.domain));
      json_.field("name", f.name);
      json_.field("overload", f.overload);
      json_.end_object();
    }
    json_.end_array();
  }

  void values(const char* key, const char* word, const std::vector<SurveyValue>& values) {
    json_.key(key);
    json_.begin_array();
    for (const SurveyValue& v : values) {
      text_ += std::string("  ") + word + v.name + "  " + type_text(v) + "\n";
      json_.begin_object();
      json_.field("name", v.name);
      json_.field("type", v.type);
      json_.key("dims");
      if (v.has_shape) {
        json_.begin_array();
        for (const SurveyDim& d : v.dims) {
          if (d.value >= 0) {
            json_.value(d.value);
          } else if (!d.symbol.empty()) {
            json_.value(d.symbol);
          } else {
            json_.null();
          }
        }
        json_.end_array();
      } else {
        json_.null();
      }
      json_.end_object();
    }
    json_.end_array();
  }

  void operators() {
    text_ += "  nodes    " + std::to_string(i_.survey.nodes.size()) + ", bodies and functions included\n  operators\n";
    json_.field("node_count", std::uint64_t{i_.survey.nodes.size()});
    json_.key("operators");
    json_.begin_array();
    for (const OperatorUse& use : i_.operators) {
      text_ += "    " + shown_op(use) + " " + std::to_string(use.nodes.size());
      text_ += use.refusal.empty() ? ", version " + std::to_string(use.since) + "\n" : ", not supported\n";
      json_.begin_object();
      json_.field("domain", shown_domain(use.domain));
      json_.field("name", use.name);
      json_.field("opset", use.opset);
      json_.key("since");
      if (use.since > 0) {
        json_.value(std::int64_t{use.since});
      } else {
        json_.null();
      }
      json_.field("count", std::uint64_t{use.nodes.size()});
      json_.field("supported", use.refusal.empty());
      json_.end_object();
    }
    json_.end_array();
  }

  void weights() {
    SurveyWeights all;
    for (const auto& [type, w] : i_.survey.weights) {
      all.parameters += w.parameters;
      all.bytes += w.bytes;
      all.external_bytes += w.external_bytes;
    }
    text_ += "  weights  " + std::to_string(all.parameters) + " values, " + std::to_string(all.bytes) + " bytes\n";
    json_.field("parameters", all.parameters);
    json_.field("weight_bytes", all.bytes);
    json_.key("weights");
    json_.begin_array();
    for (const auto& [type, w] : i_.survey.weights) {
      text_ += "    " + type + "  " + std::to_string(w.parameters) + " values in " + std::to_string(w.tensors) + " tensors, " +
               std::to_string(w.bytes) + " bytes\n";
      json_.begin_object();
      json_.field("dtype", type);
      json_.field("tensors", w.tensors);
      json_.field("parameters", w.parameters);
      json_.field("bytes", w.bytes);
      json_.end_object();
    }
    json_.end_array();
    json_.key("external_data");
    json_.begin_object();
    json_.field("bytes", all.external_bytes);
    json_.key("files");
    json_.begin_array();
    if (!i_.survey.external_files.empty()) text_ += "  external " + std::to_string(all.external_bytes) + " bytes in";
    for (const std::string& file : i_.survey.external_files) {
      text_ += " " + file;
      json_.value(file);
    }
    if (!i_.survey.external_files.empty()) text_ += "\n";
    json_.end_array();
    json_.end_object();
  }

  void name_node(const std::string& name) {
    if (names_++ >= kMaxNames) return;
    text_ += "      " + name + "\n";
    json_.value(name);
  }

  void begin_refused(const std::string& domain, const std::string& op, std::size_t count, const std::string& reason) {
    json_.begin_object();
    json_.field("domain", domain);
    json_.field("name", op);
    json_.field("count", std::uint64_t{count});
    json_.field("reason", reason);
    json_.key("nodes");
    json_.begin_array();
  }

  void end_refused() {
    json_.end_array();
    json_.end_object();
  }

  void unsupported() {
    json_.key("unsupported");
    json_.begin_array();
    for (const OperatorUse& use : i_.operators) {
      if (use.refusal.empty()) continue;
      text_ += "  not supported: " + shown_op(use) + " (opset " + std::to_string(use.opset) + "), " +
               std::to_string(use.nodes.size()) + " nodes: " + use.refusal + "\n";
      begin_refused(shown_domain(use.domain), use.name, use.nodes.size(), use.refusal);
      for (const std::size_t n : use.nodes) name_node(body_path(i_.survey, i_.survey.nodes[n].body) + i_.survey.nodes[n].name);
      end_refused();
    }
    for (const RefusedNode& r : i_.refused) {
      text_ += "  not supported: " + r.reason + "\n";
      begin_refused("", "", 1, r.reason);
      name_node(r.name);
      end_refused();
    }
    json_.end_array();
  }

  void verdict() {
    json_.field("loads", !i_.error.has_value());
    json_.key("error");
    if (!i_.error.has_value()) {
      text_ += "  it loads\n";
      json_.null();
      return;
    }
    const Error& e = *i_.error;
    text_ += std::string("  it does not load: ") + status_name(e.status) + ": " + e.message;
    if (e.node[0] != '\0') text_ += std::string(" (node ") + e.node + ")";
    text_ += "\n";
    json_.begin_object();
    json_.field("status", status_name(e.status));
    json_.field("message", e.message);
    json_.field("node", e.node);
    json_.end_object();
  }

  void shapes() {
    json_.key("shapes");
    json_.begin_object();
    for (const auto& [name, shape] : i_.shapes) {
      text_ += " " + name + shape.to_string();
      json_.key(name);
      json_.begin_array();
      for (const std::int64_t d : shape.dims()) {
        if (d >= 0) {
          json_.value(d);
        } else {
          json_.null();
        }
      }
      json_.end_array();
    }
    json_.end_object();
  }

  void memory_row(const char* key, const char* shown, std::uint64_t bytes) {
    text_ += std::string("      ") + shown + " " + std::to_string(bytes) + "\n";
    json_.field(key, bytes);
  }

  void estimate() {
    json_.key("estimate");
    if (!i_.estimate.has_value()) {
      text_ += "  no estimate: the graph cannot be followed\n";
      json_.null();
      return;
    }
    const Estimate& e = *i_.estimate;
    text_ += "  estimate for";
    json_.begin_object();
    shapes();
    text_ += "\n";
    json_.field("complete", e.complete);
    json_.field("nodes_left_out", std::uint64_t{e.nodes_left_out});
    json_.field("nodes_of_unknown_shape", std::uint64_t{e.nodes_of_unknown_shape});
    json_.field("first_unknown", e.first_unknown);
    json_.field("bodies_of_unknown_turns", std::uint64_t{e.bodies_of_unknown_iterations});
    if (e.nodes_left_out > 0) text_ += "    without " + std::to_string(e.nodes_left_out) + " nodes that are not supported\n";
    if (e.nodes_of_unknown_shape > 0) {
      text_ += "    without " + std::to_string(e.nodes_of_unknown_shape) + " nodes whose shapes are not known, the first is " +
               e.first_unknown + "\n";
    }
    if (e.bodies_of_unknown_iterations > 0) {
      text_ += "    with one iteration of each of " + std::to_string(e.bodies_of_unknown_iterations) +
               " bodies whose iterations are not known\n";
    }
    text_ += "    multiply-adds " + whole(e.multiply_adds) + "\n";
    json_.key("multiply_adds");
    json_.number(whole(e.multiply_adds));
    json_.key("multiply_adds_by_operator");
    json_.begin_object();
    for (const auto& [op, count] : e.by_operator) {
      text_ += "      " + op + " " + whole(count) + "\n";
      json_.key(op);
      json_.number(whole(count));
    }
    json_.end_object();
    text_ += "    peak memory " + std::to_string(e.peak_bytes()) + " bytes on the CPU\n";
    json_.field("peak_bytes", e.peak_bytes());
    memory_row("weights_bytes", "weights, as the file has them", e.weights_bytes);
    memory_row("packed_bytes", "weights, as kernels want them", e.packed_bytes);
    memory_row("arena_bytes", "intermediate values and scratch", e.arena_bytes);
    memory_row("input_bytes", "inputs", e.input_bytes);
    memory_row("output_bytes", "outputs", e.output_bytes);
    json_.end_object();
  }
};

}  // namespace

std::string render_inspection(const Inspection& inspection, evn_format format) { return Renderer(inspection).run(format); }

}  // namespace evn
