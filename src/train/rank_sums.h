// Sums over ranks in the middle of a run: the custom operator evener.train.AllReduce, by which BatchNormalization normalizes by the
// batches of all ranks (synchronized batch normalization; Ioffe and Szegedy, 2015).
#pragma once

#include <cstdint>
#include <vector>

#include "train/library.h"
#include "train/ranks.h"

namespace evn_train {

inline constexpr char kTrainDomain[] = "evener.train";
inline constexpr char kAllReduce[] = "AllReduce";  // of one float32 tensor; its derivative is itself
inline constexpr char kSumsId[] = "sums";          // its attribute: which RankSums

// The calls that a run makes. All have the same size and tell whether their rank goes on, so that a rank which fails in the middle
// of a run, and calls no more, stops the others at the same call.
class RankSums {
 public:
  // `most`: elements of the largest call.
  RankSums(evn_runtime runtime, Ranks& ranks, std::size_t most);
  ~RankSums();
  RankSums(const RankSums&) = delete;
  RankSums& operator=(const RankSums&) = delete;

  std::int64_t id() const { return id_; }
  void begin() { is_stopped_ = false; }
  // What the operator does. Throws where another rank has stopped.
  void sum(const float* from, float* to, std::size_t count);
  // The run has ended; `failed`: before its end.
  void end(bool failed);

 private:
  void exchange(bool failed, bool ended);

  Ranks& ranks_;
  std::int64_t id_ = 0;
  std::vector<float> numbers_;  // of a call, then: how many have failed, how many have ended
  bool is_stopped_ = true;
};

}  // namespace evn_train
