// Sums over ranks in the middle of a run: the custom operator evener.train.AllReduce, by which BatchNormalization normalizes by the
// batches of all ranks (synchronized batch normalization; Ioffe and Szegedy, 2015).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/library.h"
#include "train/ranks.h"

namespace evn_train {

inline constexpr char kTrainDomain[] = "evener.train";
inline constexpr char kAllReduce[] = "AllReduce";  // of one float32 tensor; its derivative is itself
inline constexpr char kSumsId[] = "sums";          // its attribute: which RankSums
inline constexpr char kSumNumber[] = "number";     // its attribute: number of the sum in the model; its derivative has the same

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
  // Sums `count` elements, for the node whose kSumNumber is `number`. Throws EVN_ERROR_WRONG_STATE if another rank has stopped, and
  // in all ranks if they are at different nodes, since devices run nodes in different orders. A sum and its derivative have one
  // number, and each rank makes the sum first: ranks whose calls have the same numbers are at the same nodes.
  void sum(std::int64_t number, const float* from, float* to, std::size_t count);
  // The run has ended; `failed`: before its end.
  void end(bool failed);

 private:
  std::span<float> digits();
  void exchange(bool failed, bool ended);

  Ranks& ranks_;
  std::int64_t id_ = 0;
  std::vector<float> numbers_;  // of a call, then: the node's number, how many ranks have failed, how many have ended
  bool is_stopped_ = true;
};

}  // namespace evn_train
