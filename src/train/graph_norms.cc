// BatchNormalization as it trains: by the batch of one process, or by those of all ranks.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/cancel.h"
#include "train/graphs.h"
#include "train/rank_sums.h"

namespace evn_train {
namespace {

using evn::NodeWriter;

// How often nodes read each value, and the names that are taken. Nodes in bodies count too.
class Uses {
 public:
  explicit Uses(const Graph& graph) {
    for (const Value& v : graph.values) taken_.insert(v.name);
    for_each_node(graph, [&](const NodeAt& n) {
      for (std::size_t i = 0; i < n.node->inputs.size(); ++i) ++counts_[n.input(i)];
      for (std::size_t i = 0; i < n.node->outputs.size(); ++i) taken_.insert(n.output(i));
    });
  }

  std::size_t& of(const std::string& value) { return counts_[value]; }
  std::string fresh_name(std::string name) {
    while (!taken_.insert(name).second) name += "_";
    return name;
  }

 private:
  std::map<std::string, std::size_t> counts_;
  std::set<std::string> taken_;
};

// A constant of the same elements.
ValueId copy_constant(SourceModel* source, ValueId from, std::string name) {
  Graph& graph = source->model.graph;
  const evn::WeightPtr old = graph.values[at(from)].constant;
  void* to = nullptr;
  const std::shared_ptr<evn::Weight> weight = evn::make_unfilled_weight(old->desc, source->ledger, &to);
  std::memcpy(to, old->bytes(), old->size_bytes);
  return NodeWriter(&graph).add_constant(std::move(name), weight);
}

// The statistics that are moved on. The variance that the node moves on is that of the batch; PyTorch's is that of what the batch
// is a sample of: times n / (n - 1).
void give_statistics(NodeWriter& w, ValueId mean, ValueId moved_mean, ValueId variance, ValueId moved_variance) {
  w.add_output_as("evener/new/" + w.name(mean), moved_mean, DType::kFloat32, {});
  w.add_output_as("evener/new/" + w.name(variance), moved_variance, DType::kFloat32, {});
}

// The variance of one value is not defined: the old one stays.
ValueId variance_of_several(NodeWriter& w, ValueId count, ValueId moved, ValueId old) {
  return w.op("Where", {w.op("Greater", {count, w.number(1)}), moved, old});
}

}  // namespace

void separate_statistics(const std::vector<std::string>& frozen, SourceModel* source) {
  Graph& graph = source->model.graph;
  // Names of mean and variance, and true for nodes that are frozen. Fresh names are given in this order.
  using Statistics = std::tuple<std::string, std::string, bool>;
  std::map<Statistics, std::vector<std::size_t>> norms;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    evn::cancellation_point(evn::kNodeWork);
    const Node& node = graph.nodes[n];
    if (!is_batch_norm(node)) continue;
    const std::string &mean = name_of(graph, node.inputs[3]), &variance = name_of(graph, node.inputs[4]);
    const bool is_frozen = fits_any(frozen, node.name) || fits_any(frozen, mean) || fits_any(frozen, variance);
    if (is_frozen) source->frozen_norms.insert(n);
    norms[{mean, variance, is_frozen}].push_back(n);
  }
  if (norms.empty()) return;
  Uses uses(graph);
  std::map<std::string_view, std::size_t> readers;  // of moved statistics, by the name of the node
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    evn::cancellation_point(evn::kNodeWork);
    if (graph.nodes[n].op_type == "Identity") readers.emplace(graph.nodes[n].name, n);
  }
  for (const auto& [statistics, nodes] : norms) {
    for (const std::size_t input : {3u, 4u}) {
      const ValueId statistic = graph.nodes[nodes[0]].inputs[input];
      if (!has_floats(graph.values[at(statistic)])) continue;
      const std::string name = name_of(graph, statistic);
      const std::string suffix = input == 3 ? "/mean" : "/variance";  // as graph/inference_form.h names the node
      std::vector<ValueId*> own;
      for (const std::size_t n : nodes) {
        evn::cancellation_point(evn::kNodeWork);
        own.push_back(&graph.nodes[n].inputs[input]);
        const auto reader = readers.find(graph.nodes[n].name + suffix);
        if (reader != readers.end() && graph.nodes[reader->second].inputs[0] == statistic)
          own.push_back(&graph.nodes[reader->second].inputs[0]);
      }
      if (uses.of(name) == own.size()) continue;
      const std::string fresh = uses.fresh_name(graph.nodes[nodes[0]].name + suffix);
      const ValueId copy = copy_constant(source, statistic, fresh);
      uses.of(name) -= own.size();
      uses.of(fresh) = own.size();
      for (ValueId* value : own) *value = copy;
    }
  }
}

void TrainingGraphs::train_norm(Graph* graph, std::size_t n) const {
  NodeWriter w(graph);
  const ValueId x = graph->nodes[n].inputs[0], mean = graph->nodes[n].inputs[3], variance = graph->nodes[n].inputs[4];
  const ValueId new_mean = w.add_value("evener/moved/" + w.name(mean)),
                new_variance = w.add_value("evener/batch/" + w.name(variance));
  const float momentum = evn::float_attribute_of(graph->nodes[n], "momentum", 0.9f);
  evn::set_attribute(graph->nodes[n], evn::make_attribute("training_mode", 1));
  graph->nodes[n].outputs = {graph->nodes[n].outputs[0], new_mean, new_variance};
  const ValueId count = w.cast(w.op("Div", {w.op("Size", {x}), w.op("Size", {mean})}), DType::kFloat32);
  const ValueId others = w.op("Max", {w.op("Sub", {count, w.number(1)}), w.number(1)});
  const ValueId kept = w.op("Mul", {variance, w.number(momentum)});
  const ValueId added = w.op("Mul", {w.op("Sub", {new_variance, kept}), w.op("Div", {count, others})});
  const ValueId moved = variance_of_several(w, count, w.op("Add", {kept, added}), variance);
  give_statistics(w, mean, new_mean, variance, moved);
}

// Mean and variance are made of sums over ranks: of the elements with their number, and of the squares of what is left without the
// mean.
void TrainingGraphs::synchronize_norm(Graph* graph, std::size_t n, std::int64_t sums) const {
  const std::vector<ValueId> inputs = graph->nodes[n].inputs;
  const ValueId x = inputs[0], scale = inputs[1], bias = inputs[2], mean = inputs[3], variance = inputs[4];
  const float momentum = evn::float_attribute_of(graph->nodes[n], "momentum", 0.9f);
  const float epsilon = evn::float_attribute_of(graph->nodes[n], "epsilon", 1e-5f);
  NodeWriter w(graph);
  auto number = static_cast<std::int64_t>(2 * n);  // of the next of the node's two sums
  const auto reduce = [&](ValueId value) {
    return w.ops(kAllReduce, {value}, 1, {evn::make_attribute(kSumsId, sums), evn::make_attribute(kSumNumber, number++)},
                 kTrainDomain)[0];
  };
  const auto sum = [&](ValueId value) {
    return w.op("ReduceSum", {value, w.integers({0, 2})}, {evn::make_attribute("keepdims", 0)});
  };
  const auto slice = [&](ValueId value, std::int64_t first, std::int64_t last) {
    return w.op("Slice", {value, w.integers({first}), w.integers({last})});
  };
  const auto column = [&](ValueId value) { return w.op("Unsqueeze", {value, w.integers({1})}); };
  const ValueId rows = w.op("Reshape", {x, w.integers({0, 0, -1})});
  const ValueId own = w.cast(w.op("Div", {w.op("Size", {x}), w.op("Size", {mean})}), DType::kFloat32);
  const ValueId packed = w.op("Concat", {sum(rows), w.op("Reshape", {own, w.integers({1})})}, {evn::make_attribute("axis", 0)});
  const ValueId total = reduce(packed);
  const ValueId count = slice(total, -1, INT64_MAX);
  const ValueId batch_mean = w.op("Div", {slice(total, 0, -1), count});
  const ValueId rest = w.op("Sub", {rows, column(batch_mean)});
  const ValueId squares = reduce(sum(w.op("Mul", {rest, rest})));
  const ValueId batch_variance = w.op("Div", {squares, count});
  const ValueId deviation = w.op("Sqrt", {w.op("Add", {batch_variance, w.number(epsilon)})});
  const ValueId scaled = w.op("Mul", {rest, column(w.op("Div", {scale, deviation}))});
  const ValueId normal = w.op("Add", {scaled, column(bias)});
  const ValueId shape = w.op("Shape", {x});
  const auto moved = [&](ValueId old, ValueId fresh) {
    return w.op("Add", {w.op("Mul", {old, w.number(momentum)}), w.op("Mul", {fresh, w.number(1 - momentum)})});
  };
  const ValueId others = w.op("Max", {w.op("Sub", {count, w.number(1)}), w.number(1)});
  const ValueId new_variance = moved(variance, w.op("Div", {squares, others}));
  give_statistics(w, mean, moved(mean, batch_mean), variance, variance_of_several(w, count, new_variance, variance));
  Node& node = graph->nodes[n];
  node.op_type = "Reshape";
  node.inputs = {normal, shape};
  node.outputs.resize(1);
  node.attributes.clear();
}

std::size_t TrainingGraphs::most_norm_channels() const {
  std::size_t most = 0;
  for (const Statistic& s : statistics_) most = std::max(most, s.bytes() / sizeof(float));
  return most;
}

}  // namespace evn_train
