#include "quant/equalize.h"

#include <cmath>

#include "quant/layers.h"

namespace evn {
namespace {

constexpr int kSweeps = 20;
constexpr float kNear = 1e-3f;  // factors that are no change any more
constexpr float kLeast = 1e-3f, kMost = 1e3f;

struct Layer {
  std::size_t node = 0;
  std::vector<float> weight, bias;  // no bias: empty
  bool changed = false;
};

struct Pair {
  std::size_t first = 0, second = 0;  // indices of layers
};

class Equalizer {
 public:
  Equalizer(Graph& graph, const QuantScheme& scheme, const LedgerPtr& ledger)
      : graph_(graph), scheme_(scheme), ledger_(ledger), readers_(readers_of(graph)), layer_of_(graph.nodes.size(), -1) {
    for (const ValueId v : graph.outputs) readers_[at(v)].push_back(-1);
  }

  int run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      if (const std::int32_t next = alone_behind(i); next >= 0) pairs_.push_back({layer(i), layer(static_cast<std::size_t>(next))});
    }
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      bool moved = false;
      for (const Pair& p : pairs_) {
        cancellation_point(kNodeWork);
        moved |= balance(layers_[p.first], layers_[p.second]);
      }
      if (!moved) break;
    }
    for (Layer& l : layers_) {
      if (!l.changed) continue;
      const Node& node = graph_.nodes[l.node];
      const QuantNode& q = scheme_.nodes[l.node];
      write(node.inputs[static_cast<std::size_t>(q.weight)], l.weight);
      if (!l.bias.empty()) write(node.inputs[static_cast<std::size_t>(q.bias)], l.bias);
    }
    return static_cast<int>(pairs_.size());
  }

 private:
  Graph& graph_;
  const QuantScheme& scheme_;
  const LedgerPtr& ledger_;
  std::vector<std::vector<std::int32_t>> readers_;  // -1: the graph's output
  std::vector<std::int32_t> layer_of_;              // by node
  std::vector<Layer> layers_;
  std::vector<Pair> pairs_;

  static std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }

  const Shape& shape_of(const Layer& l) const {
    return graph_.values[at(graph_.nodes[l.node].inputs[static_cast<std::size_t>(scheme_.nodes[l.node].weight)])]
        .constant->desc.shape;
  }

  // A product whose constants nobody else reads.
  bool is_own(std::size_t i) const {
    const QuantNode& q = scheme_.nodes[i];
    if (q.role != QuantRole::kProduct || graph_.nodes[i].op_type == "MatMul") return false;
    for (const int input : {q.weight, q.bias}) {
      if (input >= 0 && readers_[at(graph_.nodes[i].inputs[static_cast<std::size_t>(input)])].size() != 1) return false;
    }
    return true;
  }

  // The product that alone reads product i; -1: there is none.
  std::int32_t alone_behind(std::size_t i) const {
    if (!is_own(i)) return -1;
    constexpr std::string_view kCommute[] = {"Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "Identity"};
    for (ValueId v = graph_.nodes[i].outputs[0]; readers_[at(v)].size() == 1;) {
      cancellation_point(kNodeWork);
      const std::int32_t r = readers_[at(v)][0];
      if (r < 0) return -1;
      const Node& node = graph_.nodes[static_cast<std::size_t>(r)];
      if (scheme_.nodes[static_cast<std::size_t>(r)].role == QuantRole::kProduct) {
        return is_own(static_cast<std::size_t>(r)) && node.inputs[0] == v && node.op_type == graph_.nodes[i].op_type ? r : -1;
      }
      const bool commutes =
          node.domain.empty() && std::find(std::begin(kCommute), std::end(kCommute), node.op_type) != std::end(kCommute);
      if (!commutes || node.outputs.size() != 1) return -1;
      v = node.outputs[0];
    }
    return -1;
  }

  std::size_t layer(std::size_t i) {
    if (layer_of_[i] >= 0) return static_cast<std::size_t>(layer_of_[i]);
    const Node& node = graph_.nodes[i];
    const QuantNode& q = scheme_.nodes[i];
    const auto numbers = [&](int input) {
      return floats_of_weight(*graph_.values[at(node.inputs[static_cast<std::size_t>(input)])].constant);
    };
    layer_of_[i] = static_cast<std::int32_t>(layers_.size());
    layers_.push_back({i, numbers(q.weight), q.bias >= 0 ? numbers(q.bias) : std::vector<float>{}, false});
    return layers_.size() - 1;
  }

  // Whether anything moved.
  bool balance(Layer& a, Layer& b) {
    const Shape &wa = shape_of(a), &wb = shape_of(b);
    const int axis = scheme_.nodes[a.node].weight_axis;
    std::vector<float> made(static_cast<std::size_t>(wa[axis])), read(made.size());
    for_output_channels(wa, axis, [&](std::size_t c, std::size_t i) { made[c] = std::max(made[c], std::fabs(a.weight[i])); });
    const auto inputs = [&](auto&& body) { for_input_channels(graph_.nodes[b.node], scheme_.nodes[b.node], wb, body); };
    bool fits = true;
    inputs([&](std::size_t c, std::size_t i) {
      fits &= c < read.size();
      if (c < read.size()) read[c] = std::max(read[c], std::fabs(b.weight[i]));
    });
    if (!fits) return false;
    std::vector<float> factor(made.size(), 1.0f);
    bool moved = false;
    for (std::size_t c = 0; c < factor.size(); ++c) {
      cancellation_point();
      const float f = std::sqrt(made[c] / read[c]);
      if (!(made[c] > 0 && read[c] > 0 && std::isfinite(f))) continue;
      factor[c] = std::clamp(f, kLeast, kMost);
      moved |= std::fabs(factor[c] - 1) > kNear;
    }
    if (!moved) return false;
    for_output_channels(wa, axis, [&](std::size_t c, std::size_t i) { a.weight[i] /= factor[c]; });
    for (std::size_t c = 0; c < a.bias.size(); ++c) {
      cancellation_point();
      a.bias[c] /= factor[c];
    }
    inputs([&](std::size_t c, std::size_t i) { b.weight[i] *= factor[c]; });
    a.changed = b.changed = true;
    return true;
  }

  void write(ValueId v, const std::vector<float>& numbers) {
    Value& value = graph_.values[at(v)];
    value.constant = weight_of_floats(value.constant->desc.shape, numbers, ledger_);
  }
};

}  // namespace

int equalize_layers(Graph& graph, const QuantScheme& scheme, const LedgerPtr& ledger) {
  return Equalizer(graph, scheme, ledger).run();
}

}  // namespace evn
