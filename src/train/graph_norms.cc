// BatchNormalization as it trains: by the batch of one process, or by those of all ranks.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/cancel.h"
#include "train/graphs.h"
#include "train/node_writer.h"
#include "train/rank_sums.h"

namespace evn_train {
namespace {

bool is_norm(const OnnxNode& node) {
  return node.op_type == "BatchNormalization" && node.domain.empty() && node.inputs.size() == 5;
}

// How often nodes read each value, and the names that are taken. Nodes in bodies count too.
class Uses {
 public:
  explicit Uses(const OnnxModel& model) {
    for (const OnnxValue& input : model.inputs) taken_.insert(input.name);
    for (const OnnxTensor& t : model.initializers) taken_.insert(t.name);
    for (const OnnxNode& node : model.nodes) {
      add(node);
      if (!has_body(node)) continue;
      for (const OnnxNode& inner : nodes_in_bodies(node)) add(inner);
    }
  }

  std::size_t& of(const std::string& value) { return counts_[value]; }
  std::string fresh_name(std::string name) {
    while (!taken_.insert(name).second) name += "_";
    return name;
  }

 private:
  std::map<std::string, std::size_t> counts_;
  std::set<std::string> taken_;

  void add(const OnnxNode& node) {
    evn::cancellation_point(evn::kNodeWork);
    for (const std::string& input : node.inputs) ++counts_[input];
    taken_.insert(node.outputs.begin(), node.outputs.end());
  }
};

// The statistics that are moved on. The variance that the node moves on is that of the batch; PyTorch's is that of what the batch
// is a sample of: times n / (n - 1).
void give_statistics(NodeWriter& w, OnnxModel* m, const std::string& mean, const std::string& moved_mean,
                     const std::string& variance, const std::string& moved_variance) {
  w.give(moved_mean, "evener/new/" + mean, tensor_value("", kFloat, {}));
  w.give(moved_variance, "evener/new/" + variance, tensor_value("", kFloat, {}));
  for (std::size_t i = 1; i <= 2; ++i) m->outputs[m->outputs.size() - i].has_shape = false;
}

// The variance of one value is not defined: the old one stays.
std::string variance_of_several(NodeWriter& w, const std::string& count, const std::string& moved, const std::string& old) {
  return w.op("Where", {w.op("Greater", {count, w.number(1)}), moved, old});
}

}  // namespace

void separate_statistics(OnnxModel* m) {
  using Pair = std::pair<std::string, std::string>;  // mean and variance
  std::map<Pair, std::vector<std::size_t>> norms;
  for (std::size_t n = 0; n < m->nodes.size(); ++n) {
    evn::cancellation_point(evn::kNodeWork);
    if (is_norm(m->nodes[n])) norms[{m->nodes[n].inputs[3], m->nodes[n].inputs[4]}].push_back(n);
  }
  if (norms.empty()) return;
  Uses uses(*m);
  std::map<std::string, std::size_t> initializers, readers;  // readers: of moved statistics, by the name of the node
  for (std::size_t i = 0; i < m->initializers.size(); ++i) {
    evn::cancellation_point(evn::kNodeWork);
    if (m->initializers[i].dtype == kFloat && !m->initializers[i].data.empty()) initializers.emplace(m->initializers[i].name, i);
  }
  for (std::size_t n = 0; n < m->nodes.size(); ++n) {
    evn::cancellation_point(evn::kNodeWork);
    if (m->nodes[n].op_type == "Identity") readers.emplace(m->nodes[n].name, n);
  }
  for (const auto& [pair, nodes] : norms) {
    for (const std::size_t input : {3u, 4u}) {
      const std::string& name = input == 3 ? pair.first : pair.second;
      const auto found = initializers.find(name);
      if (found == initializers.end()) continue;
      const std::string suffix = input == 3 ? "/mean" : "/variance";  // as graph/inference_form.h names the node
      std::vector<std::string*> own;
      for (const std::size_t n : nodes) {
        evn::cancellation_point(evn::kNodeWork);
        own.push_back(&m->nodes[n].inputs[input]);
        const auto reader = readers.find(m->nodes[n].name + suffix);
        if (reader != readers.end() && m->nodes[reader->second].inputs[0] == name)
          own.push_back(&m->nodes[reader->second].inputs[0]);
      }
      if (uses.of(name) == own.size()) continue;
      const std::string fresh = uses.fresh_name(m->nodes[nodes[0]].name + suffix);
      OnnxTensor copy = m->initializers[found->second];
      m->initializers.push_back(constant(fresh, copy.dtype, copy.dims, copy.data));
      uses.of(name) -= own.size();
      uses.of(fresh) = own.size();
      for (std::string* value : own) *value = fresh;
    }
  }
}

void TrainingGraphs::train_norm(OnnxModel* m, std::size_t n) const {
  const std::string mean = m->nodes[n].inputs[3], variance = m->nodes[n].inputs[4], x = m->nodes[n].inputs[0];
  const std::string new_mean = "evener/moved/" + mean, new_variance = "evener/batch/" + variance;
  const auto momentum = static_cast<float>(attribute_number(m->nodes[n], "momentum", 0.9));
  OnnxNode& node = m->nodes[n];
  std::erase_if(node.attributes, [](const std::string& a) { return attribute_name(a) == "training_mode"; });
  node.attributes.push_back(int_attribute("training_mode", 1));
  node.outputs.resize(1);
  node.outputs.push_back(new_mean);
  node.outputs.push_back(new_variance);
  NodeWriter w(m);
  const std::string count = w.cast(w.op("Div", {w.op("Size", {x}), w.op("Size", {mean})}), kFloat);
  const std::string others = w.op("Max", {w.op("Sub", {count, w.number(1)}), w.number(1)});
  const std::string kept = w.op("Mul", {variance, w.number(momentum)});
  const std::string added = w.op("Mul", {w.op("Sub", {new_variance, kept}), w.op("Div", {count, others})});
  const std::string moved = variance_of_several(w, count, w.op("Add", {kept, added}), variance);
  give_statistics(w, m, mean, new_mean, variance, moved);
}

// Mean and variance are made of sums over ranks: of the elements with their number, and of the squares of what is left without the
// mean.
void TrainingGraphs::synchronize_norm(OnnxModel* m, std::size_t n, std::int64_t sums) const {
  const std::vector<std::string> inputs = m->nodes[n].inputs;
  const std::string &x = inputs[0], &scale = inputs[1], &bias = inputs[2], &mean = inputs[3], &variance = inputs[4];
  const auto momentum = static_cast<float>(attribute_number(m->nodes[n], "momentum", 0.9));
  const auto epsilon = static_cast<float>(attribute_number(m->nodes[n], "epsilon", 1e-5));
  NodeWriter w(m);
  const auto reduce = [&](const std::string& value) {
    return w.ops(kAllReduce, {value}, 1, {int_attribute(kSumsId, sums)}, kTrainDomain)[0];
  };
  const auto sum = [&](const std::string& value) {
    return w.op("ReduceSum", {value, w.integers({0, 2})}, {int_attribute("keepdims", 0)});
  };
  const auto slice = [&](const std::string& value, std::int64_t first, std::int64_t last) {
    return w.op("Slice", {value, w.integers({first}), w.integers({last})});
  };
  const auto column = [&](const std::string& value) { return w.op("Unsqueeze", {value, w.integers({1})}); };
  const std::string rows = w.op("Reshape", {x, w.integers({0, 0, -1})});
  const std::string own = w.cast(w.op("Div", {w.op("Size", {x}), w.op("Size", {mean})}), kFloat);
  const std::string packed = w.op("Concat", {sum(rows), w.op("Reshape", {own, w.integers({1})})}, {int_attribute("axis", 0)});
  const std::string total = reduce(packed);
  const std::string count = slice(total, -1, INT64_MAX);
  const std::string batch_mean = w.op("Div", {slice(total, 0, -1), count});
  const std::string rest = w.op("Sub", {rows, column(batch_mean)});
  const std::string squares = reduce(sum(w.op("Mul", {rest, rest})));
  const std::string batch_variance = w.op("Div", {squares, count});
  const std::string deviation = w.op("Sqrt", {w.op("Add", {batch_variance, w.number(epsilon)})});
  const std::string scaled = w.op("Mul", {rest, column(w.op("Div", {scale, deviation}))});
  const std::string normal = w.op("Add", {scaled, column(bias)});
  const std::string shape = w.op("Shape", {x});
  const auto moved = [&](const std::string& old, const std::string& fresh) {
    return w.op("Add", {w.op("Mul", {old, w.number(momentum)}), w.op("Mul", {fresh, w.number(1 - momentum)})});
  };
  const std::string others = w.op("Max", {w.op("Sub", {count, w.number(1)}), w.number(1)});
  const std::string new_variance = moved(variance, w.op("Div", {squares, others}));
  give_statistics(w, m, mean, moved(mean, batch_mean), variance, variance_of_several(w, count, new_variance, variance));
  OnnxNode& node = m->nodes[n];
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
