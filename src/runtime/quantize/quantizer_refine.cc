// What a quantizer does for better numbers with what calibration has shown: columns for smoothing, and the correction of biases
// (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019, section 4.2, with data): what
// a layer makes in 8 bits is on average off by some number in each channel, which goes into its bias.
#include "base/cancel.h"
#include "runtime/quantize/quantizer.h"
#include "runtime/report/run_values.h"

namespace evn {
namespace {

// The mean of expected - got over all but one axis.
struct MeanDifference {
  std::vector<double> sums;
  std::size_t elements = 0;

  void add(const Shape& shape, std::span<const float> a, std::span<const float> b, int axis) {
    const std::int64_t inner = shape.elements(axis + 1, shape.rank()), channels = shape[axis];
    sums.resize(static_cast<std::size_t>(channels));
    in_pieces(std::ssize(a), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<std::size_t>(i);
        sums[static_cast<std::size_t>(i / inner % channels)] += static_cast<double>(a[at]) - static_cast<double>(b[at]);
      }
    });
    elements += a.size();
  }

  std::vector<float> mean() const {
    std::vector<float> mean;
    const double count = static_cast<double>(elements) / static_cast<double>(sums.size());
    for (const double s : sums) {
      cancellation_point();
      mean.push_back(static_cast<float>(s / count));
    }
    return mean;
  }
};

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

void Quantizer::observe_columns(std::map<ValueId, ColumnRanges>& columns, ValueId v, const Shape& shape,
                                std::span<const float> elements) const {
  const auto it = columns.find(v);
  if (it == columns.end() || shape.rank() == 0) return;
  // A value whose last dimension changes cannot go into one matrix: a run would have failed.
  EVN_CHECK(it->second.add(elements, static_cast<std::size_t>(shape[shape.rank() - 1])));
}

// Once, before the first model is built.
void Quantizer::refine() {
  if (refined_ || last_batch_.empty()) return;
  std::map<std::size_t, MeanDifference> differences;
  run_probe(last_batch_, [&](std::size_t layer, const Shape& shape, std::span<const float> expected, std::span<const float> got) {
    if (model_.graph.nodes[layer].op_type == "MatMul" || expected.empty()) return;
    differences[layer].add(shape, expected, got, 1);
  });
  std::map<std::size_t, std::vector<float>> shifts;
  for (const auto& [layer, difference] : differences) shifts.emplace(layer, difference.mean());
  bias_shifts_.swap(shifts);
  try {
    scheme_ = scheme_without(refused_);
  } catch (...) {  // the next call measures again, without the shifts
    bias_shifts_.swap(shifts);
    throw;
  }
  last_batch_.clear();
  refined_ = true;
}

}  // namespace evn
