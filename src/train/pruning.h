// Magnitude pruning of channels while a model is trained: their share grows by the cubic schedule of Zhu and Gupta (2017,
// arXiv:1710.01878), those of the smallest norm become zero and stay so, and the finished model has them no more.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "train/channels.h"
#include "train/checkpoint.h"
#include "train/graphs.h"
#include "train/handles.h"

namespace evn_train {

// What a trainer has of its parameters and statistics, in the order of TrainingGraphs.
struct PrunedTensors {
  std::span<Tensor> values;
  std::span<std::vector<Tensor>> optimizer_state;  // by kind, by parameter
  std::span<Tensor> statistics;
};

class Pruning {
 public:
  // Throws EVN_ERROR_UNSUPPORTED (no channel can leave; why) and EVN_ERROR_INVALID_ARGUMENT (the share is too small for one).
  Pruning(const TrainingGraphs& graphs, const evn_trainer_options& options);

  // After the parameters have moved `steps` times. Nothing that is zero has another value afterwards. Allocates nothing.
  void apply(std::uint64_t steps, const PrunedTensors& tensors);
  // Takes the channels that are zero now out of the graph, in which parameters and statistics have their values of now. New
  // constants are charged to `ledger`.
  void shrink(Graph* graph, const evn::LedgerPtr& ledger) const;
  // The masks.
  void add_to(Checkpoint* checkpoint) const;
  // Takes those of a checkpoint that has all that add_to adds, by name.
  void take_from(const std::map<std::string, const SavedTensor*>& saved);
  void describe(evn::JsonWriter* json) const;
  std::string describe_as_text() const;

 private:
  struct Group {
    ChannelGroup channels;
    std::int64_t removed_at_end = 0;  // units
    std::vector<float> kept;          // 1 or 0, by unit
    std::int64_t removed() const;
    std::int64_t channels_of(std::int64_t units) const { return units * (channels.channels / channels.units); }
  };
  // A constant, as the trainer has it.
  struct Place {
    enum class Kind { kNone, kParameter, kStatistic } kind = Kind::kNone;
    std::size_t index = 0;
  };
  const TrainingGraphs& graphs_;
  const double share_;
  const std::uint64_t begin_, steps_;
  Channels found_;             // its groups have moved to groups_
  std::vector<Group> groups_;  // with found_'s numbers; those that stay have removed_at_end 0
  std::vector<Place> places_;  // by value
  struct Scratch {             // by unit, so that a step allocates nothing
    std::vector<double> norms, squares;
    std::vector<std::size_t> order;
  } scratch_;

  std::string mask_name(std::size_t group) const;
  void find_places();
  void refuse_what_cannot_learn(ChannelGroup* group) const;
  void require_some() const;
  void choose(Group* group, std::int64_t removed, const PrunedTensors& tensors);
  void clear(const Group& group, const PrunedTensors& tensors) const;
  std::int64_t length_removed(const std::vector<ChannelSpan>& spans) const;
  void change_numbers(Graph* graph, const evn::LedgerPtr& ledger) const;
};

}  // namespace evn_train
