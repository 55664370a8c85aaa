// Exchanges between ranks in a step, in an order that is the same in all of them. A rank that fails takes part until the exchange
// in which the others learn of it, so that nobody waits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "train/buckets.h"
#include "train/graphs.h"
#include "train/rank_sums.h"
#include "train/ranks.h"
#include "train/tensors.h"

namespace evn_train {

class RankSteps {
 public:
  // Waits for the others. The settings outlive this.
  explicit RankSteps(const Settings& settings) : settings_(settings), ranks_(settings) {}

  Ranks& ranks() { return ranks_; }
  const Ranks& ranks() const { return ranks_; }
  bool is_alone() const { return ranks_.is_alone(); }

  // Makes what sums over ranks: the buckets of gradients, and the sums of BatchNormalization where these are synchronized. Returns
  // the tensors of the gradients, or of their sums, which lie in the buckets.
  std::vector<Tensor> prepare(evn_runtime runtime, const TrainingGraphs& graphs);
  // RankSums::id of these sums; 0: they are not synchronized.
  std::int64_t norm_sums() const { return norm_sums_ ? norm_sums_->id() : 0; }
  // All ranks train the same model in the same way, and begin with the parameters of rank 0. `own`: what this one has failed with,
  // without which the graphs and tensors are there.
  void join(const std::optional<evn::Error>& own, const TrainingGraphs* graphs, const TrainerTensors* tensors);

  // Sums numbers over all ranks. Throws in all of them where one has failed: `own` is what this one has failed with.
  void exchange(std::span<double> numbers, const std::optional<evn::Error>& own, const char* what);
  // Begins a step with a batch of `rows`. Returns what this rank's mean over its batch counts, so that the mean of all ranks is
  // that over all batches.
  float open(std::int64_t rows, const std::optional<evn::Error>& own);
  // Gradients are going to be made. They go to the buckets as they come where `overlaps()`.
  void begin_gradients(float weight);
  bool overlaps() const;
  Buckets& buckets() { return *buckets_; }
  // Gradients are there, or this rank has failed. Returns that, or what the others have failed with.
  std::optional<evn::Error> end_gradients(std::optional<evn::Error> own);
  // The loss becomes the mean of all ranks, and so do the new statistics.
  void close(float weight, const std::optional<evn::Error>& own, const TrainingGraphs& graphs, TrainerTensors* tensors);
  // The sums of several batches, which are in the buckets, are summed over ranks.
  void sum_whole();

  // Parameters have the same bits in all ranks; else this rank has failed.
  void check_parameters(const TrainingGraphs& graphs, const std::vector<Tensor>& values);
  // Checks the parameters after a step with EVN_TRAIN_CHECK_RANKS. Every rank calls it once the gradients are summed, also a rank
  // that could not move its parameters.
  void check_step(const TrainingGraphs& graphs, const std::vector<Tensor>& values);

  // This rank did not move its parameters when others did: what it has failed with.
  std::optional<evn::Error> failed;

 private:
  const Settings& settings_;
  Ranks ranks_;
  std::optional<RankSums> norm_sums_;  // of EVN_TRAIN_SYNC_NORM
  std::optional<Buckets> buckets_;
  std::vector<double> exchanged_;
  std::vector<float> exchanged_statistics_;

  void average_statistics(float weight, const TrainingGraphs& graphs, TrainerTensors* tensors);
};

}  // namespace evn_train
