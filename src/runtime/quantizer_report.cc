// What evn_quantizer_report writes.
#include <algorithm>
#include <cmath>

#include "base/json_writer.h"
#include "base/number_text.h"
#include "runtime/quantizer.h"

namespace evn {
namespace {

constexpr const char* kCalibrations[] = {"minmax", "percentile", "entropy", "mse"};

std::uint64_t median(std::vector<std::uint64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void number_field(JsonWriter& json, const char* key, double x) {
  json.key(key);
  if (std::isfinite(x)) {
    json.number(shortest_text(x));
  } else {
    json.null();
  }
}

}  // namespace

std::string Quantizer::report(evn_format format) const {
  const std::lock_guard lock(mutex_);
  const Graph& graph = model_.graph;
  const auto is_quantized = [](const QuantNode& q) { return q.role != QuantRole::kFloat; };
  const auto count = static_cast<std::uint64_t>(std::count_if(scheme_.nodes.begin(), scheme_.nodes.end(), is_quantized));
  JsonWriter json;
  json.begin_object();
  json.field("mode", request_.dynamic ? "dynamic" : "static");
  json.field("calibration", kCalibrations[static_cast<int>(request_.calibration)]);
  json.field("batches", batches_);
  json.field("quantized_nodes", count);
  std::string text = std::string(request_.dynamic ? "dynamic" : "static") + " quantization";
  const char* const calibration = kCalibrations[static_cast<int>(request_.calibration)];
  if (!request_.dynamic) text += std::string(", ") + calibration + ", " + std::to_string(batches_) + " batches";
  text += "\n  " + std::to_string(count) + " of " + std::to_string(graph.nodes.size()) + " nodes are quantized\n";
  json.key("nodes");
  json.begin_array();
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const QuantNode& q = scheme_.nodes[i];
    if (!is_quantized(q) && q.reason.empty()) continue;
    json.begin_object();
    json.field("name", graph.nodes[i].name);
    json.field("op", graph.nodes[i].op_type);
    json.field("quantized", is_quantized(q));
    json.key("reason");
    if (q.reason.empty()) {
      json.null();
    } else {
      json.value(q.reason);
    }
    json.end_object();
    if (q.reason.empty()) continue;
    text += "  " + graph.nodes[i].op_type + " \"" + graph.nodes[i].name + "\": " + (is_quantized(q) ? "" : "float32, ") + q.reason + "\n";
  }
  json.end_array();
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
    const double cosine = f.dot / std::sqrt(f.float_square * f.quantized_square);
    const double sqnr = 10 * std::log10(f.float_square / f.error_square);
    const double agreeing = static_cast<double>(f.agreeing) / static_cast<double>(f.rows);
    json.begin_object();
    json.field("name", f.name);
    number_field(json, "cosine", cosine);
    number_field(json, "sqnr_db", sqnr);
    number_field(json, "top1", agreeing);
    number_field(json, "largest_error", f.elements == 0 ? NAN : f.largest_error);
    json.end_object();
    if (f.elements == 0) continue;
    text += "  output \"" + f.name + "\": cosine " + fixed_text(cosine, 5) + ", " + fixed_text(sqnr, 1) + " dB, the same largest element in " +
            fixed_text(100 * agreeing, 1) + " % of rows, largest error " + fixed_text(f.largest_error, 4) + "\n";
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
    text += "  " + fixed_text(static_cast<double>(before) / 1e6, 3) + " ms before, " + fixed_text(static_cast<double>(after) / 1e6, 3) + " ms after" +
            (after > before ? ": the quantized model is slower on this machine" : "") + "\n";
  } else {
    json.null();
  }
  json.end_object();
  return format == EVN_FORMAT_JSON ? json.take() : text;
}

}  // namespace evn
