// How many rows a batch should have: as many as make a row cheaper. Measured while requests are served.
// docs/decisions/0057-batching.md
#pragma once

#include <array>
#include <cstdint>

namespace evn {

// Of rows of one shape. Guarded by its owner.
class BatchSizes {
 public:
  // `run_ns`: what the shortest run of the session has taken so far; 0: not known.
  BatchSizes(std::int64_t most_rows, std::uint64_t run_ns);

  // A batch now takes so many at most; that of a trial, or of those that were tried the best.
  std::int64_t most_rows() const;
  // A batch of so many rows has taken so much time of a processor on its own thread, times the cores that it had.
  void note(std::int64_t rows, std::uint64_t core_ns);

  // Until so much has been computed, batches take all that they may: no sooner can they be measured. Where runs are known to be
  // long, sizes are tried from the first batch on.
  static constexpr std::uint64_t kFreeNs = 50'000'000;
  static constexpr std::uint64_t kLongRunNs = 5'000'000;
  // A size is known after so many batches and so much time, and is looked at again after so much more.
  static constexpr std::uint32_t kTrialBatches = 2;
  static constexpr std::uint64_t kTrialNs = 20'000'000;
  static constexpr std::uint64_t kAgainNs = 3'000'000'000;
  // A larger batch, which makes its members wait longer, must make a row cheaper by so much.
  static constexpr double kLeastGain = 0.04;

 private:
  // Batches of 2^i to 2^(i+1)-1 rows.
  struct Size {
    double row_ns = 0;  // a moving average; 0: not known
    std::uint32_t batches = 0;
    std::uint64_t trial_ns = 0;

    bool is_known() const { return batches >= kTrialBatches && trial_ns >= kTrialNs; }
    void forget();
  };
  static constexpr int kMostSizes = 20;
  static constexpr int kNone = -1;

  void begin_trials();
  int best() const;
  void go_on();

  std::int64_t most_rows_;
  int largest_;  // index of the size that has the most rows
  std::uint64_t computed_ns_ = 0;
  std::uint64_t again_ns_ = 0;
  int chosen_;
  int trial_ = kNone;
  int last_trial_ = kNone;  // of those that are to be tried one after the other
  std::array<Size, kMostSizes> sizes_ = {};
};

}  // namespace evn
