// Gradients of a step, and their sums over several batches where a step accumulates them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "train/graphs.h"
#include "train/tensors.h"
#include "train/works.h"

namespace evn_train {

class Accumulator {
 public:
  // `in_buckets`: the tensors that are summed over ranks, the gradients or their sums; empty: this rank is alone.
  Accumulator(const Works& works, const TrainingGraphs& graphs, const Settings& settings, const TensorMaker& maker,
              std::vector<Tensor> in_buckets);

  // Tensors for the next batch's gradients.
  const std::vector<Tensor>& next() const { return accumulates_ && count_ == 0 ? sums_ : gradients_; }
  // Gradients, or sums of gradients, by which the parameters move.
  const std::vector<Tensor>& whole() const { return accumulates_ ? sums_ : gradients_; }
  std::vector<Tensor>& sums() { return sums_; }

  // Takes the gradients of `next` into the sums. Returns whether these are complete.
  bool add();
  // Undoes the latest add(). Sums of ranks stay as they are: a rank that fails here trains on after a restore alone.
  void drop_latest();
  // The next batch is the first of a step.
  void begin_step() { count_ = 0; }
  // Batches in the sums.
  std::uint32_t count() const { return count_; }
  void set_count(std::uint32_t count) { count_ = count; }
  // Makes what adds gradients now, and not at the first batch that does.
  void prepare();

 private:
  const Works& works_;
  const TrainingGraphs& graphs_;
  const bool accumulates_;
  const std::uint32_t wanted_;  // batches of a step
  const bool is_alone_;
  std::vector<Tensor> gradients_, sums_;  // by parameter; sums_ where steps are accumulated
  std::optional<Work> adding_;
  std::uint32_t count_ = 0;
};

}  // namespace evn_train
