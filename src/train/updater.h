// Moving the parameters: a step is written if all that it would write is finite, and skipped otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/graphs.h"
#include "train/tensors.h"
#include "train/update_bounds.h"
#include "train/works.h"

namespace evn_train {

class Updater {
 public:
  // All that is passed by reference outlives this.
  Updater(const Works& works, const TrainingGraphs& graphs, const Settings& settings, const TensorMaker& maker,
          TrainerTensors* tensors);

  struct Step {
    double rate = 0;           // learning rate
    double factor = 1;         // of the gradients
    std::uint64_t number = 0;  // how often the parameters have moved
    std::uint64_t batch = 0;   // number of the latest batch, for describe()
  };
  struct Result {
    bool has_moved = false, is_finite = true;
    double norm = 0;  // of the gradients, where the parameters have moved
  };
  // Moves the parameters by `gradients`. Throws EVN_ERROR_CANCELLED and EVN_ERROR_OUT_OF_MEMORY before anything moves.
  Result move(const Step& step, const std::vector<Tensor>& gradients);
  // Returns true if the loss and the statistics of a batch, one of several of a step, are finite.
  bool is_finite(std::uint64_t batch);
  // The parameters were set by somebody else.
  void forget_bounds() { bounds_.forget(); }
  // Reason of the latest step that was skipped; "": none was.
  const std::string& latest_skip() const { return latest_skip_; }

 private:
  const Works& works_;
  const TrainingGraphs& graphs_;
  const Settings& settings_;
  const TensorMaker& maker_;
  TrainerTensors& tensors_;
  Work work_;
  std::vector<Tensor> rates_;  // by used group
  Tensor norm_, finite_, moved_, safe_norm_;
  UpdateBounds bounds_;
  std::string latest_skip_;

  const std::vector<Parameter>& parameters() const { return graphs_.parameters(); }
  void find_bounds();
  void run(const Step& step, double safe_norm, const std::vector<Tensor>& gradients, const std::vector<Tensor>& values,
           const std::vector<std::vector<Tensor>>& states, Works::Stop stop);
  bool move_carefully(const Step& step, const std::vector<Tensor>& gradients);
  void note_skip(std::uint64_t batch, const std::string& why);
  void skip_for_gradients(std::uint64_t batch, const std::vector<Tensor>& gradients);
};

}  // namespace evn_train
