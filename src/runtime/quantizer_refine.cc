// What a quantizer does for better numbers with what calibration has shown: columns for smoothing, and the correction of biases (Nagel et
// al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019, section 4.2, with data): what a layer makes
// in 8 bits is on average off by some number in each channel, which goes into its bias.
#include "runtime/quantizer.h"
#include "runtime/run_values.h"

namespace evn {
namespace {

// Mean of expected - got over all but one axis.
std::vector<float> mean_difference(const Tensor& expected, const Tensor& got, int axis) {
  const Shape& shape = expected.desc().shape;
  const std::span<const float> a = floats_of(expected), b = floats_of(got);
  const std::int64_t inner = shape.elements(axis + 1, shape.rank()), channels = shape[axis];
  std::vector<double> sums(static_cast<std::size_t>(channels));
  for (std::size_t i = 0; i < a.size(); ++i) {
    sums[static_cast<std::size_t>(static_cast<std::int64_t>(i) / inner % channels)] += static_cast<double>(a[i]) - static_cast<double>(b[i]);
  }
  std::vector<float> mean;
  const double count = static_cast<double>(a.size()) / static_cast<double>(std::max<std::int64_t>(channels, 1));
  for (const double s : sums) mean.push_back(count > 0 ? static_cast<float>(s / count) : 0.0f);
  return mean;
}

}  // namespace

// The caller may write over his tensors.
void Quantizer::keep_batch(std::span<const RunValue> inputs) {
  std::vector<RunValue> copies;
  for (const RunValue& input : inputs) {
    if (input.tensor == nullptr) return;  // sequences and the like have no bias behind them that could be corrected
    auto copy = std::make_shared<Tensor>(runtime_, &runtime_->cpu(), input.tensor->desc(), false, Tensor::Fill::kNone);
    copy_tensor(*input.tensor, *copy);
    copies.push_back({std::move(copy), nullptr});
  }
  last_batch_ = std::move(copies);
}

void Quantizer::observe_columns(std::map<ValueId, ColumnRanges>& columns, ValueId v, const Tensor& tensor) const {
  const auto it = columns.find(v);
  const Shape& shape = tensor.desc().shape;
  if (it == columns.end() || shape.rank() == 0) return;
  // A value whose last dimension changes cannot go into one matrix: a run would have failed.
  EVN_CHECK(it->second.add(floats_of(tensor), static_cast<std::size_t>(shape[shape.rank() - 1])));
}

// Once, before the first model is built.
void Quantizer::refine() {
  if (refined_ || last_batch_.empty()) return;
  std::vector<std::size_t> layers;
  const std::vector<RunValue> outputs = run_probe(last_batch_, &layers);
  std::map<std::size_t, std::vector<float>> shifts;
  for (std::size_t k = 0; k < layers.size(); ++k) {
    const Node& node = model_.graph.nodes[layers[k]];
    const Tensor &expected = *outputs[2 * k].tensor, &got = *outputs[2 * k + 1].tensor;
    if (node.op_type == "MatMul" || expected.desc().shape.elements() == 0) continue;
    shifts.emplace(layers[k], mean_difference(expected, got, 1));
  }
  bias_shifts_ = std::move(shifts);
  scheme_ = scheme_without(refused_);
  last_batch_.clear();
  refined_ = true;
}

}  // namespace evn
