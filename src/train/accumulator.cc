#include "train/accumulator.h"

#include <utility>

namespace evn_train {

Accumulator::Accumulator(const Works& works, const TrainingGraphs& graphs, const Settings& settings, const TensorMaker& maker,
                         std::vector<Tensor> in_buckets)
    : works_(works),
      graphs_(graphs),
      accumulates_(settings.accumulates()),
      wanted_(settings.accumulate),
      is_alone_(in_buckets.empty()) {
  if (is_alone_ || accumulates_) gradients_ = maker.make(graphs.parameters());
  if (is_alone_ && accumulates_) sums_ = maker.make(graphs.parameters());
  if (!is_alone_) (accumulates_ ? sums_ : gradients_) = std::move(in_buckets);
}

void Accumulator::prepare() {
  if (accumulates_ && !adding_) adding_ = works_.make(graphs_.adding_model(), "training: sums");
}

// The new sums lie beside the old ones, which drop_latest takes back; ranks, whose sums lie in buckets, add in place.
bool Accumulator::add() {
  if (accumulates_ && count_ > 0) {
    prepare();
    const bool in_place = !is_alone_;
    adding_->inputs.clear();
    append(&adding_->inputs, in_place ? sums_ : gradients_);
    adding_->outputs = adding_->inputs;
    append(&adding_->inputs, in_place ? gradients_ : sums_);
    works_.run(*adding_, 0, Works::Stop::kNever);
    if (!in_place) std::swap(sums_, gradients_);
  }
  return ++count_ >= wanted_;
}

void Accumulator::drop_latest() {
  --count_;
  if (count_ > 0 && is_alone_) std::swap(sums_, gradients_);
}

}  // namespace evn_train
