// A trainer: the tensors of parameters, gradients and the optimizer's state, and the sessions that work on them. One call at a
// time uses it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "core/shape.h"
#include "train/buckets.h"
#include "train/checkpoint.h"
#include "train/graphs.h"
#include "train/handles.h"
#include "train/host.h"
#include "train/learning_rate.h"
#include "train/loss_scale.h"
#include "train/pruning.h"
#include "train/rank_sums.h"
#include "train/ranks.h"
#include "train/replica_sums.h"
#include "train/update_bounds.h"

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
  // A session whose arguments change little from run to run.
  struct Work {
    Session session;
    std::vector<evn_tensor> inputs, outputs;
  };
  evn_runtime runtime_;
  const Settings settings_;
  Ranks ranks_;
  evn_cancel cancel_;
  SourceModel source_;  // without the values of what learns
  std::optional<TrainingGraphs> graphs_;
  std::optional<Pruning> pruning_;
  LearningRate rate_;
  LossScale scale_;
  std::vector<Tensor> values_, gradients_, sums_;     // by parameter; sums_ where steps are accumulated
  std::vector<std::vector<Tensor>> optimizer_state_;  // by kind, by parameter
  std::vector<Tensor> statistics_, new_statistics_;   // new_statistics_: those of the step that is under way
  std::vector<Tensor> rates_;                         // by used group
  Tensor loss_, norm_, finite_, right_, count_, loss_scale_;
  Tensor shape_;  // of what the loss reads (give_shape)
  Tensor safe_norm_, moved_;
  UpdateBounds bounds_;
  std::string latest_skip_;  // reason of the latest step that was skipped; "": none was
  // A device that takes a part of each batch.
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
  std::vector<Replica> replicas_;
  bool output_follows_rows_ = false;   // it is known that the first dim of what the loss reads is the number of rows
  Queue ended_;                        // their runs
  std::optional<RankSums> norm_sums_;  // of EVN_TRAIN_SYNC_NORM
  std::optional<Buckets> buckets_;     // of gradients_ or sums_, where there are other ranks
  std::optional<ReplicaSums> replica_sums_;
  std::vector<double> exchanged_;  // with other ranks
  std::vector<float> exchanged_statistics_;
  std::optional<evn::Error> failed_;  // this rank did not move its parameters when others did
  std::optional<Work> gradient_[3], evaluation_[3], update_, adding_, shape_of_output_;  // by Labels
  const Work* latest_ = nullptr;                                                         // of gradient_, which a step has used
  std::uint64_t calls_ = 0;  // calls of step() that did not fail, for seeds
  std::uint64_t steps_ = 0, skipped_ = 0;
  std::uint32_t accumulated_ = 0;  // steps in the sums
  std::string text_;

  // `arena_limit`: of each run's intermediate values; 0: none.
  Session make_session(evn::Model model, const char* name, bool is_own, const std::string& device,
                       std::uint64_t arena_limit = 0) const;
  Session make_session(evn::Model model, const char* name, bool is_own) const {
    return make_session(std::move(model), name, is_own, settings_.device);
  }
  Labels kind_of(evn_tensor labels) const;
  std::string device_of_tensors() const;
  void read_model(const char* path, const evn_trainer_options& options);
  void prepare(const char* path, const evn_trainer_options& options);
  void prepare_gradients(Labels labels);
  void make_tensors();
  std::int64_t check_arguments(std::span<const evn_tensor> inputs, evn_tensor labels) const;
  enum class Run {
    kCancellable,
    kOverlapped,
    kUninterrupted
  };  // what may stop it; and whether gradients go to the buckets as they come
  void run(Work& work, std::uint64_t seed, Run how);
  // Throw EVN_ERROR_INVALID_ARGUMENT with both shapes if labels do not fit what the loss reads. `shape`: filled by give_shape.
  void check_labels(const evn::Shape& output, Labels kind, evn_tensor labels) const;
  void check_labels_of_run(const Tensor& shape, Labels kind, evn_tensor labels) const;
  evn::Shape find_shape(std::span<const evn_tensor> inputs);
  bool follows_rows(const evn::Shape& part, std::size_t rows, std::span<const evn_tensor> inputs);
  void check_labels_of_parts(std::span<const evn_tensor> inputs, Labels kind, evn_tensor labels, std::size_t rows);
  // Throws if the labels are the reason of a failed run.
  void explain_failure(const evn::Error& error, std::span<const evn_tensor> inputs, Labels kind, evn_tensor labels);
  void run_with_labels(Work& work, Labels kind, std::span<const evn_tensor> inputs, evn_tensor labels, std::uint64_t seed, Run how);
  void make_gradients(Labels labels, std::span<const evn_tensor> inputs, evn_tensor of_labels, std::int64_t batch, Run how);
  void give_loss_scale(Work& work);
  Work& adding_work();
  bool add_gradients();
  void drop_latest_gradients();
  std::uint64_t seed_of_run(std::size_t replica) const;
  Work& gradient_work(Labels labels);
  Work& evaluation_work(Labels labels);
  void set_arguments(Work& work, std::span<const evn_tensor> inputs, evn_tensor labels) const;
  void make_replicas();
  Work& replica_work(Replica& replica, Labels labels);
  void split_batch(std::size_t rows);
  void rebalance();
  void set_part(Replica& replica, Labels labels, std::span<const evn_tensor> inputs, evn_tensor of_labels, std::size_t first);
  void begin_sums(std::size_t rows, Run how);
  void submit_replica(std::size_t index, Work& work, evn_request* request);
  void make_gradients_split(Labels labels, std::span<const evn_tensor> inputs, evn_tensor of_labels, std::int64_t batch, Run how);
  void step_alone(std::span<const evn_tensor> inputs, evn_tensor labels, evn_step_info* info);
  void step_with_ranks(std::span<const evn_tensor> inputs, evn_tensor labels, evn_step_info* info);
  void make_buckets();
  void join_ranks(const std::optional<evn::Error>& own);
  float open_step(std::int64_t batch, const std::optional<evn::Error>& own);
  void close_step(float weight, const std::optional<evn::Error>& own);
  void exchange(std::span<double> numbers, const std::optional<evn::Error>& own, const char* what);
  void average_statistics(float weight);
  void check_parameters();
  void take_state(const std::string& path, const std::function<void()>& commit);
  void restore_with_ranks(const std::string& path);
  bool update(double rate, evn_step_info* info);
  void run_update(double rate, double safe_norm, const std::vector<Tensor>& values, const std::vector<std::vector<Tensor>>& states,
                  Run how);
  void find_bounds();
  bool update_carefully(double rate);
  void skip_for_gradients();
  bool is_batch_finite();
  void end_step(bool is_complete, evn_step_info* info);
  float gradient_factor() const;
  template <typename F>
  void each_saved(F&& f);
  Checkpoint checkpoint();
  std::vector<std::string> notes() const;
  RunMemory memory() const;
  void write_memory(evn::JsonWriter& json) const;
  std::string memory_text() const;
  std::string describe_as_json() const;
  std::string describe_as_text() const;
  evn::SavedModel trained_model();
};

}  // namespace evn_train
