#include "quant/smooth.h"

#include <algorithm>
#include <cmath>

#include "quant/layers.h"

namespace evn {
namespace {

constexpr float kUneven = 4;  // times the median column: below that one scale does

bool is_matrix_product(const Graph& graph, const QuantScheme& scheme, std::int32_t n, ValueId v) {
  const Node& node = graph.nodes[static_cast<std::size_t>(n)];
  return scheme.nodes[static_cast<std::size_t>(n)].role == QuantRole::kProduct && node.op_type != "Conv" && node.inputs[0] == v;
}

// Columns of the value as its products' weights have them; 0: it cannot be smoothed.
std::int64_t columns_of(const Graph& graph, const QuantScheme& scheme, const std::vector<std::int32_t>& readers, ValueId v) {
  std::int64_t columns = 0;
  for (const std::int32_t r : readers) {
    cancellation_point();
    const QuantNode& q = scheme.nodes[static_cast<std::size_t>(r)];
    if (q.role == QuantRole::kFloat || q.role == QuantRole::kFunction) continue;
    if (!is_matrix_product(graph, scheme, r, v)) return 0;
    const ValueId w = graph.nodes[static_cast<std::size_t>(r)].inputs[static_cast<std::size_t>(q.weight)];
    columns = graph.values[static_cast<std::size_t>(w)].shape[1 - q.weight_axis];
  }
  return columns;
}

// The LayerNormalization that takes the division into its constants, or -1. The value is no output of the graph.
std::int32_t norm_of(const Graph& graph, const QuantScheme& scheme, const std::vector<std::int32_t>& readers, std::int32_t producer,
                     ValueId v, std::int64_t columns) {
  if (producer < 0) return -1;
  const Node& node = graph.nodes[static_cast<std::size_t>(producer)];
  if (node.op_type != "LayerNormalization" || !node.domain.empty() || node.outputs[0] != v) return -1;
  for (const std::int32_t r : readers) {
    cancellation_point();
    if (!is_matrix_product(graph, scheme, r, v)) return -1;
  }
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    const Value& c = graph.values[static_cast<std::size_t>(node.inputs[i])];
    if (c.constant == nullptr || c.dtype != DType::kFloat32 || c.shape != Shape{columns}) return -1;
  }
  return producer;
}

}  // namespace

bool ColumnRanges::add(std::span<const float> elements, std::size_t columns) {
  if (columns == 0 || elements.size() % columns != 0) return false;
  if (low.empty()) {
    low.assign(columns, 0);
    high.assign(columns, 0);
  }
  if (low.size() != columns) return false;
  for (std::size_t at = 0; at < elements.size(); at += columns) {
    in_pieces(static_cast<std::int64_t>(columns), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto c = static_cast<std::size_t>(begin); c < static_cast<std::size_t>(end); ++c) {
        low[c] = std::min(low[c], elements[at + c]);
        high[c] = std::max(high[c], elements[at + c]);
      }
    });
  }
  return true;
}

std::vector<ValueId> smoothable(const Graph& graph, const QuantScheme& scheme) {
  const auto readers = readers_of(graph);
  std::vector<std::int32_t> members(static_cast<std::size_t>(scheme.group_count));
  for (const std::int32_t g : scheme.group) {
    if (g >= 0) ++members[static_cast<std::size_t>(g)];
  }
  std::vector<ValueId> values;
  for (std::size_t v = 0; v < scheme.group.size(); ++v) {
    cancellation_point();
    // Where a product makes the value it is quantized as that has it.
    if (scheme.group[v] < 0 || members[static_cast<std::size_t>(scheme.group[v])] != 1) continue;
    if (columns_of(graph, scheme, readers[v], static_cast<ValueId>(v)) > 0) values.push_back(static_cast<ValueId>(v));
  }
  const auto producers = producers_of(graph);
  std::erase_if(values, [&](ValueId v) {
    const std::int32_t p = producers[static_cast<std::size_t>(v)];
    return p >= 0 && makes_bytes(scheme.nodes[static_cast<std::size_t>(p)].role);
  });
  return values;
}

std::map<ValueId, Smoothing> smooth(const Graph& graph, const QuantScheme& scheme, const std::map<ValueId, ColumnRanges>& seen) {
  const auto readers = readers_of(graph);
  const auto producers = producers_of(graph);
  std::vector<bool> is_output(graph.values.size());
  for (const ValueId v : graph.outputs) is_output[static_cast<std::size_t>(v)] = true;
  std::map<ValueId, Smoothing> result;
  for (const ValueId v : smoothable(graph, scheme)) {
    cancellation_point(kNodeWork);
    const auto it = seen.find(v);
    const std::vector<std::int32_t>& products = readers[static_cast<std::size_t>(v)];
    const auto columns = static_cast<std::size_t>(columns_of(graph, scheme, products, v));
    if (it == seen.end() || it->second.low.size() != columns) continue;
    const ColumnRanges& ranges = it->second;
    std::vector<float> largest(columns), rows(columns);
    for (std::size_t c = 0; c < columns; ++c) {
      cancellation_point();
      largest[c] = std::max(-ranges.low[c], ranges.high[c]);
    }
    std::vector<float> sorted = largest;
    std::ranges::sort(sorted, [](float a, float b) {
      cancellation_point();
      return a < b;
    });
    if (!(sorted.back() > kUneven * sorted[columns / 2])) continue;
    for (const std::int32_t r : products) {
      const QuantNode& q = scheme.nodes[static_cast<std::size_t>(r)];
      const Node& node = graph.nodes[static_cast<std::size_t>(r)];
      if (q.role != QuantRole::kProduct) continue;
      const Weight& w = *graph.values[static_cast<std::size_t>(node.inputs[static_cast<std::size_t>(q.weight)])].constant;
      const std::vector<float> numbers = floats_of_weight(w);
      for_input_channels(node, q, w.desc.shape,
                         [&](std::size_t c, std::size_t i) { rows[c] = std::max(rows[c], std::fabs(numbers[i])); });
    }
    Smoothing s;
    s.factors.assign(columns, 1.0f);
    for (std::size_t c = 0; c < columns; ++c) {
      cancellation_point();
      const float f = std::sqrt(largest[c] / rows[c]);
      if (largest[c] > 0 && rows[c] > 0 && std::isfinite(f) && f > 0) s.factors[c] = f;
      s.range = join(s.range, {ranges.low[c] / s.factors[c], ranges.high[c] / s.factors[c]});
    }
    const auto value = static_cast<std::size_t>(v);
    if (!is_output[value]) s.norm = norm_of(graph, scheme, products, producers[value], v, static_cast<std::int64_t>(columns));
    result.emplace(v, std::move(s));
  }
  return result;
}

}  // namespace evn
