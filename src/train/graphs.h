// The ONNX models that a trainer runs: gradients of a batch, the move of the parameters, and the model as it is in use with a
// comparison of its output with labels. Parameters and statistics are inputs of all of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/onnx.h"
#include "train/settings.h"

namespace evn_train {

struct Parameter {
  std::string name;
  std::vector<std::int64_t> dims;
  std::size_t initializer = 0;  // of the model
  std::size_t group = 0;        // of the settings
  std::string note{};           // remark for describe(): doubt that it is a parameter, a part of its gradient that is 0
  std::size_t bytes() const;
};

// A model without nodes, of the opsets of another.
OnnxModel empty_model(const OnnxModel& like);
std::string gradient_name(const std::string& name);
// [2,3]
std::string dims_text(const std::vector<std::int64_t>& dims);

// Gives a BatchNormalization a copy of its mean or variance if the model reads that for something else too: as the scale of the
// same node, for example. Nodes that share both keep them.
void separate_statistics(OnnxModel* model);  // graph_norms.cc

// What stays, and why.
struct Frozen {
  std::string name, reason;
};

// What has an input and an output of its own in the gradient's model: a moving mean or variance.
using Statistic = Parameter;

enum class Labels { kNone, kClasses, kNumbers };  // int64, float32

class Ways;
struct Suspicion;

class TrainingGraphs {
 public:
  // `model`: as evn_train_host::plain_model gives it; its bytes outlive this. Throws EVN_ERROR_INVALID_ARGUMENT.
  TrainingGraphs(OnnxModel model, const Settings& settings);

  const std::vector<Parameter>& parameters() const { return parameters_; }  // by name
  const std::vector<Statistic>& statistics() const { return statistics_; }
  const std::vector<Frozen>& frozen() const { return frozen_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::string& output() const { return output_; }  // of which the loss is
  const std::string& logits() const { return logits_; }  // what the loss reads
  // Throws if the loss has no classes in a value of this rank that it reads, or has them along another axis than a Softmax that it
  // contains.
  void check_rank(int rank) const;
  std::size_t input_count() const { return model_.inputs.size(); }
  const OnnxModel& model() const { return model_; }
  // The kinds of labels that the loss takes.
  bool takes(Labels labels) const;
  // The kind that it usually gets.
  Labels usual_labels() const;

  // Meanings of the tensors that the optimizer keeps beside each parameter ("momentum", "average" or "square" of gradients), in the
  // order of OptimizerStep's inputs.
  std::vector<std::string> optimizer_states() const;
  std::size_t optimizer_state_count() const { return optimizer_states().size(); }

  // inputs: the model's, labels (but of kNone), parameters, statistics, the loss scale where it is used; outputs: loss, gradients,
  // statistics, the dims of what the loss reads (give_shape). `sums`: by which BatchNormalization sums over ranks (RankSums::id);
  // 0: it normalizes by the batch.
  std::string gradient_model(Labels labels, std::int64_t sums = 0) const;
  // Channels of the BatchNormalization that has most; 0: none trains.
  std::size_t most_norm_channels() const;
  // inputs: the same; outputs: loss, how many are right (int64), of how many (int64), the dims of what the loss reads.
  std::string evaluation_model(Labels labels) const;
  // inputs: the model's, parameters, statistics; output: the dims of what the loss reads.
  std::string shape_model() const;
  // inputs: loss, the largest norm with which parameters move, the statistics of the step, rates [8] of each group with parameters,
  // parameters, gradients, the optimizer's state kind by kind;
  // outputs: norm, whether loss, gradients and statistics are finite, whether parameters moved, parameters, the optimizer's state.
  std::string update_model() const;
  // The groups that have parameters, in the order of their rates.
  const std::vector<std::size_t>& used_groups() const { return used_groups_; }
  // inputs: sums, then what is added; outputs: sums.
  std::string adding_model() const;

 private:
  OnnxModel model_;
  const Settings& settings_;
  std::string output_, logits_;  // logits_: what the loss reads
  std::string softmax_;          // node that the loss contains, if the rank of the output is not known before a run
  int softmax_rank_ = 0;         // rank that the output then has
  std::vector<Parameter> parameters_;
  std::vector<Statistic> statistics_;
  std::vector<std::size_t> trained_norms_;  // nodes of BatchNormalization that normalize by the batch
  std::vector<Frozen> frozen_;
  std::vector<std::string> notes_;
  std::vector<std::size_t> used_groups_;

  void check_output() const;
  void free_batches();
  void find_output();  // graph_output.cc, as the next two
  void leave_activation_out(std::optional<std::size_t> rank);
  void check_softmax(const OnnxNode& softmax, std::size_t axis, std::optional<std::size_t> rank, const OnnxNode* reshaping);
  void find_parameters();  // learnable.cc
  std::string reason_to_stay(const OnnxTensor& tensor, const Ways& ways, const Suspicion& suspicion) const;
  void check_bodies();
  void find_norms();
  OnnxModel without_parameters() const;
  std::vector<std::string> moved_names(std::optional<std::size_t> group) const;  // none: of all groups
  void add_inputs(OnnxModel* m, Labels labels) const;
  void train_norm(OnnxModel* m, std::size_t node) const;
  void synchronize_norm(OnnxModel* m, std::size_t node, std::int64_t sums) const;
};

}  // namespace evn_train
