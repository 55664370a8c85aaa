// The models that a trainer runs: gradients of a batch, the move of the parameters, and the model as it is in use with a comparison
// of its output with labels. Parameters and statistics are inputs of all of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/node_writer.h"
#include "train/settings.h"
#include "train/source_model.h"

namespace evn_train {

struct Parameter {
  std::string name;
  std::vector<std::int64_t> dims;
  ValueId value = kNoValue;  // of the model's graph
  std::size_t group = 0;     // of the settings
  std::string note{};        // remark for describe(): doubt that it is a parameter, a part of its gradient that is 0
  std::size_t bytes() const;
  evn::Shape shape() const { return evn::Shape(std::span<const std::int64_t>(dims)); }
};

std::string gradient_name(const std::string& name);
// [2,3]
std::string dims_text(std::span<const std::int64_t> dims);

// Finds the nodes of BatchNormalization that globs of `frozen` name: by the node, or by its mean or variance as the model calls
// them. Gives each BatchNormalization a copy of its mean or variance if the model reads that for something else too: as the scale
// of the same node, for example, or as a statistic of a node that is frozen. Nodes that share both statistics keep them if all of
// them are frozen or none is.
void separate_statistics(const std::vector<std::string>& frozen, SourceModel* source);  // graph_norms.cc

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
  // `source`: as read_source (host.h) gives it, and separate_statistics leaves it; it need not outlive this. Throws
  // EVN_ERROR_INVALID_ARGUMENT.
  TrainingGraphs(const SourceModel& source, const Settings& settings);

  const std::vector<Parameter>& parameters() const { return parameters_; }  // by name
  const std::vector<Statistic>& statistics() const { return statistics_; }
  const std::vector<Frozen>& frozen() const { return frozen_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::string& output() const { return name_of(graph(), output_); }  // of which the loss is
  const std::string& logits() const { return name_of(graph(), logits_); }  // what the loss reads
  // Throws if the loss has no classes in a value of this rank that it reads, or has them along another axis than a Softmax that it
  // contains.
  void check_rank(int rank) const;
  // The source's graph, whose loss is what loss() of the settings is of. Values are the source's.
  const Graph& graph() const { return model_.graph; }
  // Names of the inputs that batches give, and of those with a default, which batches cannot give.
  std::vector<std::string> inputs() const;
  std::vector<std::string> defaults() const;
  // Lets go of the values of a parameter or statistic, which a tensor has by now.
  void forget(const Parameter& p) { model_.graph.values[at(p.value)].constant.reset(); }
  // The kinds of labels that the loss takes.
  bool takes(Labels labels) const;
  // The kind that it usually gets.
  Labels usual_labels() const;

  // Meanings of the tensors that the optimizer keeps beside each parameter ("momentum", "average" or "square" of gradients), in the
  // order of OptimizerStep's inputs.
  std::vector<std::string> optimizer_states() const;
  std::size_t optimizer_state_count() const { return optimizer_states().size(); }

  // Models as load_onnx gives them.
  // inputs: the model's, labels (but of kNone), parameters, statistics, the loss scale where it is used; outputs: loss, gradients,
  // statistics, the dims of what the loss reads (give_shape). `sums`: by which BatchNormalization sums over ranks (RankSums::id);
  // 0: it normalizes by the batch.
  evn::Model gradient_model(Labels labels, std::int64_t sums = 0) const;
  // Channels of the BatchNormalization that has most; 0: none trains.
  std::size_t most_norm_channels() const;
  // inputs: the same; outputs: loss, how many are right (int64), of how many (int64), the dims of what the loss reads.
  evn::Model evaluation_model(Labels labels) const;
  // inputs: the model's, parameters, statistics; output: the dims of what the loss reads.
  evn::Model shape_model() const;
  // inputs: loss, the largest norm with which parameters move, the statistics of the step, rates [8] of each group with parameters,
  // parameters, gradients, the optimizer's state kind by kind;
  // outputs: norm, whether loss, gradients and statistics are finite, whether parameters moved, parameters, the optimizer's state.
  // Nodes are of the library's own domain.
  evn::Model update_model() const;
  // The groups that have parameters, in the order of their rates.
  const std::vector<std::size_t>& used_groups() const { return used_groups_; }
  // inputs: sums, then what is added; outputs: sums.
  evn::Model adding_model() const;

 private:
  evn::Model model_;
  const Settings& settings_;
  ValueId output_ = kNoValue, logits_ = kNoValue;  // logits_: what the loss reads
  std::string softmax_;   // node that the loss contains, if the rank of the output is not known before a run
  int softmax_rank_ = 0;  // rank that the output then has
  std::vector<Parameter> parameters_;
  std::vector<Statistic> statistics_;
  std::vector<std::size_t> trained_norms_;  // nodes of BatchNormalization that normalize by the batch
  std::vector<Frozen> frozen_;
  std::vector<std::string> notes_;
  std::vector<std::size_t> used_groups_;

  Value& value(ValueId v) { return model_.graph.values[at(v)]; }
  void check_output() const;
  void free_batches();
  void find_output();  // graph_output.cc, as the next two
  void leave_activation_out(std::optional<std::size_t> rank);
  void check_softmax(const Node& softmax, std::size_t axis, std::optional<std::size_t> rank, const Node* reshaping);
  void find_parameters(const std::set<std::uint64_t>& literals);  // learnable.cc
  std::string reason_to_stay(const Value& tensor, const Ways& ways, const Suspicion& suspicion) const;
  void check_bodies();
  void find_norms(const std::set<std::size_t>& frozen);
  evn::Model empty_model() const;
  evn::Model without_parameters() const;
  ValueId add_inputs(evn::NodeWriter& w, Labels labels) const;
  void train_norm(Graph* graph, std::size_t node) const;
  void synchronize_norm(Graph* graph, std::size_t node, std::int64_t sums) const;
};

}  // namespace evn_train
