#include "runtime/batch/batch_sizes.h"

#include <algorithm>
#include <bit>

namespace evn {
namespace {

int size_of(std::int64_t rows) { return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows))) - 1; }

}  // namespace

BatchSizes::BatchSizes(std::int64_t most_rows, std::uint64_t run_ns, const BatchSizes* other)
    : most_rows_(most_rows), largest_(std::min(size_of(most_rows), scheduling::kMaxSizes - 1)), chosen_(largest_) {
  if (other != nullptr && other->last_trial_ != kNone) {
    chosen_ = other->chosen_;
    try_neighbours();
  } else if (run_ns >= scheduling::kLongRunNs) {
    try_sizes(0, largest_);
  }
}

void BatchSizes::try_sizes(int first, int last) {
  trial_ = first;
  unusable_ = 0;
  last_trial_ = last;
}

void BatchSizes::try_neighbours() {
  kept_ = chosen_;
  try_sizes(std::max(chosen_ - 1, 0), std::min(chosen_ + 1, largest_));
  for (int i = trial_; i <= last_trial_; ++i) {
    if (i != chosen_) sizes_[i] = {};
  }
}

std::int64_t BatchSizes::most_rows() const {
  const int size = trial_ != kNone ? trial_ : chosen_;
  return size == largest_ ? most_rows_ : std::int64_t{1} << size;
}

// The smallest size than which none is cheaper by more than the least gain.
int BatchSizes::best() const {
  double least = 0;
  for (int i = 0; i <= largest_; ++i) {
    if (sizes_[i].is_known() && (least == 0 || sizes_[i].row_ns < least)) least = sizes_[i].row_ns;
  }
  for (int i = 0; i <= largest_; ++i) {
    if (sizes_[i].is_known() && sizes_[i].row_ns * (1 - scheduling::kMinGain) <= least) return i;
  }
  return chosen_;
}

// The trial's size is known. The first time all sizes are tried from 1 on, until one gains nothing.
void BatchSizes::go_on() {
  chosen_ = best();
  const bool more = trial_ < last_trial_ && trial_ <= chosen_;
  trial_ = more ? trial_ + 1 : kNone;
  unusable_ = 0;
  if (trial_ != kNone) return;
  again_after_ns_ = chosen_ == kept_ ? std::min(2 * again_after_ns_, scheduling::kMaxRetrialNs) : scheduling::kRetrialNs;
  again_ns_ = computed_ns_ + again_after_ns_;
}

void BatchSizes::note(std::int64_t rows, std::uint64_t core_ns, bool completed) {
  computed_ns_ += core_ns;
  const int at = std::min(size_of(rows), largest_);
  const bool unusable = !completed || at > trial_;
  if (trial_ != kNone && unusable) ++unusable_;
  if (last_trial_ == kNone) {
    if (computed_ns_ < scheduling::kFreeNs) return;
    try_sizes(0, largest_);
  } else if (trial_ == kNone && computed_ns_ >= again_ns_) {
    try_neighbours();
  }
  if (completed) add_cost(sizes_[at], static_cast<double>(core_ns) / static_cast<double>(rows), core_ns);
  // Requests of many rows never make a batch of few, and a size may take longer than requests have.
  while (trial_ != kNone && (sizes_[trial_].is_known() || (unusable && unusable_ >= scheduling::kUnseenBatches))) go_on();
}

void BatchSizes::add_cost(Size& size, double row_ns, std::uint64_t core_ns) {
  if (++size.batches == 1 && core_ns < scheduling::kTrialNs) return;  // planning has a part in it
  size.trial_ns += core_ns;
  const double seen = size.row_ns != 0 ? std::min(row_ns, scheduling::kMaxOfMean * size.row_ns) : row_ns;
  size.row_ns = size.row_ns != 0 ? size.row_ns + (seen - size.row_ns) / static_cast<double>(scheduling::kMeanShare) : seen;
}

}  // namespace evn
