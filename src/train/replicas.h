// Steps whose batch is split among several devices of the runtime. Each has the parameters of the trainer, makes the gradients of
// its rows, and these are summed by the rows that each had, while the backward passes go on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "train/label_check.h"
#include "train/replica_sums.h"
#include "train/tensors.h"
#include "train/works.h"

namespace evn_train {

class Replicas {
 public:
  // All that is passed by reference outlives this.
  Replicas(const Works& works, const TrainingGraphs& graphs, const Settings& settings, TrainerTensors* tensors, LabelCheck* labels);

  // Makes the sessions for labels of a kind.
  void prepare(Labels kind);

  struct Run {
    std::span<const Tensor> gradients;  // where their sums go
    float loss_scale = 1;
    std::uint64_t step = 0;                             // number of the batch
    std::function<std::uint64_t(std::size_t)> seed;     // of a replica's random numbers
    std::function<void(std::size_t)> summed = nullptr;  // is called for each gradient when its sum is there, by any thread
  };
  // The loss, gradients and new statistics of a batch.
  void make_gradients(const Batch& batch, const Run& run);

  // The run of the first device; nullptr before the first.
  const Work* latest() const { return latest_; }
  void describe(evn::JsonWriter* json) const;
  std::string describe_as_text() const;

 private:
  struct Replica {
    std::string device;
    std::optional<Work> work[3];  // by Labels
    std::vector<Tensor> gradients, statistics;
    Tensor loss, shape;
    std::vector<Tensor> views;  // of the batch that is under way
    std::size_t rows = 0;       // of it
    double row_ns = 0;          // what a row has taken; 0: not known yet
    double share = 0;           // of each batch
    std::uint64_t begin_ns = 0, end_ns = 0;
    struct Listener {
      ReplicaSums* sums = nullptr;
      std::size_t replica = 0, end = 0;  // end: of the gradients and statistics among the outputs, behind the loss
    } listener;                          // of the run that is under way
  };

  const Works& works_;
  const TrainingGraphs& graphs_;
  const Settings& settings_;
  TrainerTensors& tensors_;
  LabelCheck& labels_;
  std::vector<Replica> replicas_;
  Queue ended_;  // their runs
  std::optional<ReplicaSums> sums_;
  const Work* latest_ = nullptr;

  Work& work_of(Replica& replica, Labels kind);
  void split_batch(std::size_t rows);
  void rebalance();
  LabelCheck::Part set_part(Replica& replica, const Batch& batch, float loss_scale, std::size_t first);
  void begin_sums(const Batch& batch, const Run& run);
  void submit(std::size_t index, Work& work, std::uint64_t seed, evn_request* request);
  void run_parts(const Batch& batch, const Run& run);
};

}  // namespace evn_train
