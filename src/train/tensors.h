// The tensors of a trainer: of what learns, and of a step.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/graphs.h"
#include "train/handles.h"

namespace evn_train {

struct Work;

// One call's inputs and labels.
struct Batch {
  std::span<const evn_tensor> inputs;
  evn_tensor labels = nullptr;
  Labels kind = Labels::kNone;
  std::int64_t rows = 0;  // 0: no tensor has that dim
};

// Tensors of float32 where parameters and what belongs to them lie: on the first device of the sessions, so that no step copies
// them. What other devices or processes read too lies on the host.
class TensorMaker {
 public:
  TensorMaker(evn_runtime runtime, const Settings& settings, bool is_alone);
  Tensor make(const Parameter& like) const { return Tensor(*device_, EVN_DTYPE_FLOAT32, like.dims, 0); }
  std::vector<Tensor> make(const std::vector<Parameter>& like) const;

 private:
  std::optional<Device> device_;
};

struct TrainerTensors {
  // The values of parameters and statistics move from `source` into tensors.
  TrainerTensors(evn_runtime runtime, const TensorMaker& maker, SourceModel* source, TrainingGraphs* graphs,
                 const Settings& settings);

  std::vector<Tensor> values, statistics;            // in the order of TrainingGraphs
  std::vector<std::vector<Tensor>> optimizer_state;  // by kind, by parameter
  std::vector<Tensor> new_statistics;                // those of the step that is under way
  Tensor loss;
  Tensor shape;       // of what the loss reads (give_shape)
  Tensor loss_scale;  // where it is used

  // The batch, parameters and statistics become the arguments of a gradient, an evaluation or a shape; the loss its only output.
  void give(const Batch& batch, Work* work) const;
  // The last input of a gradient, where the loss is scaled.
  void give_loss_scale(float scale, Work* work);
};

// Largest magnitude; a NaN if there is one.
double most_of(const std::vector<Tensor>& tensors, const std::vector<Parameter>& list);
// Index of the first tensor with an element that is not finite; their number if there is none.
std::size_t first_not_finite(const std::vector<Tensor>& tensors, const std::vector<Parameter>& list);

}  // namespace evn_train
