// Checks that a batch fits its trainer. Labels have the shape of what the loss reads, which a run tells: no label is repeated to
// fit.
#pragma once

#include <optional>
#include <span>

#include "base/error.h"
#include "core/shape.h"
#include "train/graphs.h"
#include "train/tensors.h"
#include "train/works.h"

namespace evn_train {

class LabelCheck {
 public:
  // All that is passed by reference outlives this.
  LabelCheck(const Works& works, const TrainingGraphs& graphs, const Settings& settings, const TrainerTensors& tensors)
      : works_(works), graphs_(graphs), settings_(settings), tensors_(tensors) {}

  // Throws EVN_ERROR_INVALID_ARGUMENT: another number of inputs, batches of several sizes, labels of a type that the loss does not
  // take.
  Batch batch_of(std::span<const evn_tensor> inputs, evn_tensor labels) const;
  // Runs a gradient or an evaluation, and checks the labels. The shape of what the loss reads is its last output.
  void run(Work& work, const Batch& batch, std::uint64_t seed, evn::OutputListener listener = {});
  // Throws if the labels are the reason of a failed run.
  void explain(const evn::Error& error, const Batch& batch);

  // Part of a batch: its rows, its labels, and the shape of what the loss has read (filled by give_shape).
  struct Part {
    std::size_t rows = 0;
    evn_tensor labels = nullptr;
    const Tensor* shape = nullptr;
  };
  // The loss of a batch whose rows several devices have shared is checked as one device would check it: by the shape for all rows.
  void check_parts(const Batch& batch, std::span<const Part> parts);

 private:
  const Works& works_;
  const TrainingGraphs& graphs_;
  const Settings& settings_;
  const TrainerTensors& tensors_;
  std::optional<Work> shape_of_output_;
  bool output_follows_rows_ = false;  // it is known that the first dim of what the loss reads is the number of rows

  Labels kind_of(evn_tensor labels) const;
  void check(const evn::Shape& output, Labels kind, evn_tensor labels) const;
  evn::Shape find_shape(std::span<const evn_tensor> inputs);
  bool follows_rows(const evn::Shape& part, std::size_t rows, std::span<const evn_tensor> inputs);
};

}  // namespace evn_train
