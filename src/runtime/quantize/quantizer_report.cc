// What evn_quantizer_report writes.
#include <algorithm>
#include <cmath>

#include "base/json_writer.h"
#include "base/number_text.h"
#include "runtime/quantize/quantizer.h"
#include "runtime/report/compare.h"

namespace evn {
namespace {

constexpr const char* kModes[] = {"static", "dynamic", "weights", "float16", "bfloat16"};
constexpr const char* kCalibrations[] = {"minmax", "percentile", "entropy", "mse"};

}  // namespace

void Quantizer::write_guard(JsonWriter& json, std::string& text) const {
  json.key("guard");
  if (guarded_batches_ == 0) return json.null();
  json.begin_object();
  json.field("batches", guarded_batches_);
  json.field("error", budget_.error);
  json.field("speed", budget_.speed);
  number_field(json, "min_cosine", budget_.min_cosine);
  number_field(json, "min_layer_sqnr_db", budget_.min_layer_sqnr_db);
  const auto taken =
      static_cast<std::uint64_t>(std::count_if(refused_.begin(), refused_.end(), [](const std::string& r) { return !r.empty(); }));
  json.field("taken_back", taken);
  json.end_object();
  text += "  the guard has looked at " + std::to_string(guarded_batches_) + (guarded_batches_ == 1 ? " batch" : " batches") +
          " and taken back " + std::to_string(taken) + " layers\n";
}

void Quantizer::write_layers(JsonWriter& json, std::string& text) const {
  const Graph& graph = model_.graph;
  const char* const reduced = is_half() ? kModes[static_cast<int>(request_.mode)] : "8 bits";
  json.key("nodes");
  json.begin_array();
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const QuantNode& q = scheme_.nodes[i];
    const bool quantized = q.role != QuantRole::kFloat;
    if (!quantized && q.reason.empty()) continue;
    json.begin_object();
    json.field("name", graph.nodes[i].name);
    json.field("op", graph.nodes[i].op_type);
    json.field("quantized", quantized);
    json.key("reason");
    if (q.reason.empty()) {
      json.null();
    } else {
      json.value(q.reason);
    }
    const LayerFigures figures = layers_.empty() ? LayerFigures{} : layers_[i];
    write_closeness(json, figures.closeness);
    const bool timed = figures.float_ns > 0 && figures.quantized_ns > 0;
    for (const auto& [key, ns] : {std::pair{"float_ns", figures.float_ns}, std::pair{"quantized_ns", figures.quantized_ns}}) {
      json.key(key);
      if (timed) {
        json.value(ns);
      } else {
        json.null();
      }
    }
    json.end_object();
    const bool looked_at = figures.closeness.elements > 0 || timed;
    if (q.reason.empty() && !looked_at) continue;
    text += "  " + graph.nodes[i].op_type + " \"" + graph.nodes[i].name + "\": " + (quantized ? reduced : "float32");
    if (!q.reason.empty()) text += ", " + q.reason;
    if (figures.closeness.elements > 0) text += "; " + fixed_text(figures.closeness.sqnr_db(), 1) + " dB";
    if (timed) text += "; " + ms_text(figures.float_ns) + " in float32, " + ms_text(figures.quantized_ns) + " in 8 bits";
    text += "\n";
  }
  json.end_array();
}

std::string Quantizer::report(evn_format format) const {
  const std::lock_guard lock(mutex_);
  const Graph& graph = model_.graph;
  const auto is_quantized = [](const QuantNode& q) { return q.role != QuantRole::kFloat; };
  const auto count = static_cast<std::uint64_t>(std::count_if(scheme_.nodes.begin(), scheme_.nodes.end(), is_quantized));
  JsonWriter json;
  json.begin_object();
  const char* const mode = kModes[static_cast<int>(request_.mode)];
  json.field("mode", mode);
  json.field("calibration", kCalibrations[static_cast<int>(request_.calibration)]);
  json.field("batches", batches_);
  json.field("quantized_nodes", count);
  std::string text = std::string(mode) + (is_half() ? " conversion" : " quantization");
  if (request_.mode == QuantMode::kWeights) text += ", " + std::to_string(request_.weight_bits) + " bits";
  const char* const calibration = kCalibrations[static_cast<int>(request_.calibration)];
  if (request_.mode == QuantMode::kStatic) text += std::string(", ") + calibration + ", " + std::to_string(batches_) + " batches";
  text += "\n  " + std::to_string(count) + " of " + std::to_string(graph.nodes.size()) + " nodes are quantized\n";
  const std::pair<const char*, std::size_t> kRefined[] = {{"equalized_pairs", static_cast<std::size_t>(equalized_)},
                                                          {"smoothed_inputs", smoothed_},
                                                          {"corrected_biases", bias_shifts_.size()}};
  for (const auto& [key, n] : kRefined) {
    json.field(key, std::uint64_t{n});
    if (n > 0) text += std::string("  ") + key + ": " + std::to_string(n) + "\n";
  }
  json.key("unmatched");
  json.begin_array();
  for (const std::string& pattern : unmatched_) {
    json.value(pattern);
    text += "  keep \"" + pattern + "\" matches no node\n";
  }
  json.end_array();
  write_guard(json, text);
  write_layers(json, text);
  json.field("float_bytes", float_bytes_);
  json.key("quantized_bytes");
  if (saved_.has_value()) {
    json.value(saved_->size);
    text += "  " + std::to_string(float_bytes_) + " bytes before, " + std::to_string(saved_->size) + " after\n";
  } else {
    json.null();
  }
  json.key("outputs");
  json.begin_array();
  for (const OutputFigures& f : outputs_) {
    json.begin_object();
    json.field("name", f.name);
    write_closeness(json, f.closeness);
    json.end_object();
    if (f.closeness.elements > 0) text += "  output \"" + f.name + "\": " + closeness_text(f.closeness) + "\n";
  }
  json.end_array();
  const bool timed = !float_ns_.empty();
  const std::uint64_t before = timed ? median(float_ns_) : 0, after = timed ? median(quantized_ns_) : 0;
  for (const auto& [key, ns] : {std::pair{"float_ns", before}, std::pair{"quantized_ns", after}}) {
    json.key(key);
    if (timed) {
      json.value(ns);
    } else {
      json.null();
    }
  }
  json.key("slower");
  if (timed) {
    json.value(after > before);
    text += "  " + fixed_text(static_cast<double>(before) / 1e6, 3) + " ms before, " +
            fixed_text(static_cast<double>(after) / 1e6, 3) + " ms after" +
            (after > before ? ": the quantized model is slower on this machine" : "") + "\n";
  } else {
    json.null();
  }
  json.end_object();
  return format == EVN_FORMAT_JSON ? json.take() : text;
}

}  // namespace evn
