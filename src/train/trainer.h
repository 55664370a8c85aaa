// A trainer: parameters, their gradients and the optimizer's state, and the steps that move them. One call at a time uses it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/accumulator.h"
#include "train/checkpoint.h"
#include "train/graphs.h"
#include "train/host.h"
#include "train/label_check.h"
#include "train/learning_rate.h"
#include "train/loss_scale.h"
#include "train/pruning.h"
#include "train/rank_steps.h"
#include "train/replicas.h"
#include "train/tensors.h"
#include "train/updater.h"
#include "train/works.h"

namespace evn_train {

class Trainer {
 public:
  Trainer(evn_runtime runtime, const char* path, const evn_trainer_options& options);

  void step(std::span<const evn_tensor> inputs, evn_tensor labels, evn_step_info* info);
  void evaluate(std::span<const evn_tensor> inputs, evn_tensor labels, evn_evaluation* evaluation);
  void note_metric(double value);
  void set_learning_rate(double rate);
  std::vector<std::string> inputs() const { return graphs_->inputs(); }
  std::vector<std::string> defaults() const { return graphs_->defaults(); }  // inputs that batches cannot give
  std::size_t input_count() const { return graphs_->graph().inputs.size(); }
  const std::vector<Parameter>& parameters() const { return graphs_->parameters(); }
  evn_tensor copy_of(std::uint32_t index, evn_parameter_part part);
  void save(const std::string& path);
  void restore(const std::string& path);
  evn_model finish();
  void write_model(const std::string& path);
  const std::string& describe(evn_format format);

 private:
  const Settings settings_;
  RankSteps ranks_;
  const Works works_;
  LearningRate rate_;
  LossScale scale_;
  SourceModel source_;  // without the values of what learns
  // All members below are set once the trainer is made.
  std::optional<TrainingGraphs> graphs_;
  std::optional<Pruning> pruning_;  // none: nothing is pruned
  std::optional<TensorMaker> maker_;
  std::optional<TrainerTensors> tensors_;
  std::optional<LabelCheck> labels_;
  std::optional<Accumulator> gradients_;
  std::optional<Replicas> replicas_;  // none: one device takes the whole batch
  std::optional<Updater> updater_;
  std::optional<Work> gradient_[3], evaluation_[3];  // by Labels
  const Work* latest_ = nullptr;                     // of gradient_, which a step has used
  Tensor right_, count_;                             // of an evaluation
  std::uint64_t calls_ = 0;                          // calls of step() that did not fail, for seeds
  std::uint64_t steps_ = 0, skipped_ = 0;
  std::string text_;

  void read_model(const char* path, const evn_trainer_options& options);
  void prepare(const char* path, const evn_trainer_options& options);
  void prepare_gradients(Labels kind);
  Work& gradient_work(Labels kind);
  Work& evaluation_work(Labels kind);
  std::uint64_t seed_of_run(std::size_t replica) const;
  void make_gradients(const Batch& batch);
  void step_alone(std::span<const evn_tensor> inputs, evn_tensor labels, evn_step_info* info);
  void step_with_ranks(std::span<const evn_tensor> inputs, evn_tensor labels, evn_step_info* info);
  bool is_kept(evn_step_info* info);
  void end_step(bool is_complete, evn_step_info* info);
  bool update(evn_step_info* info);
  float gradient_factor() const;
  evn::SavedModel trained_model();
  // state.cc
  template <typename F>
  void each_saved(F&& f);
  Checkpoint checkpoint();
  void take_state(const std::string& path, const std::function<void()>& commit);
  void restore_with_ranks(const std::string& path);
  // report.cc
  std::vector<std::string> notes() const;
  RunMemory memory() const;
  std::string describe_as_json() const;
  std::string describe_as_text() const;
};

}  // namespace evn_train
