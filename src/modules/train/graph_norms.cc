// BatchNormalization as it trains: by the batch of one process, or by those of all ranks.
#include <algorithm>

#include "modules/train/graphs.h"
#include "modules/train/node_writer.h"
#include "modules/train/rank_sums.h"

namespace evn_train {
namespace {

// The statistics that are moved on. The variance that the node moves on is that of the batch; PyTorch's is that of what the batch
// is a sample of: times n / (n - 1).
void give_statistics(NodeWriter& w, OnnxModel* m, const std::string& mean, const std::string& moved_mean,
                     const std::string& variance, const std::string& moved_variance) {
  w.give(moved_mean, "evener/new/" + mean, tensor_value("", kFloat, {}));
  w.give(moved_variance, "evener/new/" + variance, tensor_value("", kFloat, {}));
  for (std::size_t i = 1; i <= 2; ++i) m->outputs[m->outputs.size() - i].has_shape = false;
}

}  // namespace

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
  give_statistics(w, m, mean, new_mean, variance, w.op("Add", {kept, added}));
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
  give_statistics(w, m, mean, moved(mean, batch_mean), variance, moved(variance, w.op("Div", {squares, others})));
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
