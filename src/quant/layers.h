// What the changes of a float32 graph before quantization share: products and their weights, channel by channel.
#pragma once

#include <algorithm>
#include <vector>

#include "base/cancel.h"
#include "quant/scheme.h"

namespace evn {

// The float32 elements of a constant.
inline std::vector<float> floats_of_weight(const Weight& weight) {
  std::vector<float> numbers(static_cast<std::size_t>(weight.desc.shape.elements()));
  move_in_pieces(numbers.data(), weight.bytes(), numbers.size() * sizeof(float));
  return numbers;
}

// A constant of these elements.
inline WeightPtr weight_of_floats(const Shape& shape, const std::vector<float>& numbers, const LedgerPtr& ledger) {
  void* to = nullptr;
  WeightPtr weight = make_unfilled_weight({DType::kFloat32, shape}, ledger, &to);
  move_in_pieces(to, numbers.data(), numbers.size() * sizeof(float));
  return weight;
}

// Calls body(output channel, element) for each element of a product's weight.
template <typename F>
void for_output_channels(const Shape& w, int axis, F&& body) {
  const std::int64_t inner = w.elements(axis + 1, w.rank());
  in_pieces(w.elements(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(static_cast<std::size_t>(i / inner % w[axis]), static_cast<std::size_t>(i));
  });
}

// Visits each element with the channel of the input that an element is multiplied by.
template <typename F>
void for_input_channels(const Node& node, const QuantNode& q, const Shape& w, F&& body) {
  if (node.op_type != "Conv") return for_output_channels(w, 1 - q.weight_axis, body);
  const std::int64_t groups = std::max<std::int64_t>(int_attribute_of(node, "group", 1), 1),
                     outputs = std::max<std::int64_t>(w[0] / groups, 1);
  const std::int64_t inner = w.elements(2, w.rank());
  in_pieces(w.elements(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t o = i / (w[1] * inner);
      body(static_cast<std::size_t>(o / outputs * w[1] + i / inner % w[1]), static_cast<std::size_t>(i));
    }
  });
}

// By value: the nodes that read it, one entry for each time.
inline std::vector<std::vector<std::int32_t>> readers_of(const Graph& graph) {
  std::vector<std::vector<std::int32_t>> readers(graph.values.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    cancellation_point(kNodeWork);
    for (const ValueId v : graph.nodes[i].inputs) {
      if (v != kNoValue) readers[static_cast<std::size_t>(v)].push_back(static_cast<std::int32_t>(i));
    }
  }
  return readers;
}

// By value: the node that makes it, or -1.
inline std::vector<std::int32_t> producers_of(const Graph& graph) {
  std::vector<std::int32_t> producers(graph.values.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    cancellation_point(kNodeWork);
    for (const ValueId v : graph.nodes[i].outputs) {
      if (v != kNoValue) producers[static_cast<std::size_t>(v)] = static_cast<std::int32_t>(i);
    }
  }
  return producers;
}

}  // namespace evn
