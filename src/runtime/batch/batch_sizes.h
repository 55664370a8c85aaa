// How many rows a batch should have: as many as make a row cheaper. Measured while requests are served.
// docs/decisions/0057-batching.md
#pragma once

#include <array>
#include <cstdint>

#include "base/scheduling_constants.h"

namespace evn {

// For rows of one size. Guarded by its owner.
class BatchSizes {
 public:
  // `run_ns`: what the shortest run of the session has taken so far; 0: not known. `other`: for rows of another size, of the same
  // session, from which this one begins; nullable.
  BatchSizes(std::int64_t most_rows, std::uint64_t run_ns, const BatchSizes* other = nullptr);

  // The next batch takes so many at most: what is being tried, or else the best of what has been tried.
  std::int64_t most_rows() const;
  // A batch of so many rows has been computed. `core_ns`: processor time of its thread, times the share of the cores that it had.
  // `completed`: false if deadlines or failures ended some of the rows.
  void note(std::int64_t rows, std::uint64_t core_ns, bool completed = true);

 private:
  // Batches of 2^i to 2^(i+1)-1 rows.
  struct Size {
    double row_ns = 0;  // a moving average; 0: not known
    std::uint32_t batches = 0;
    std::uint64_t trial_ns = 0;

    bool is_known() const { return batches >= scheduling::kTrialBatches && trial_ns >= scheduling::kTrialNs; }
  };
  static constexpr int kNone = -1;

  void try_sizes(int first, int last);
  void try_neighbours();  // of the chosen size
  static void add_cost(Size& size, double row_ns, std::uint64_t core_ns);
  int best() const;
  void go_on();

  std::int64_t most_rows_;
  int largest_;  // index of the size that has the most rows
  std::uint64_t computed_ns_ = 0;
  std::uint64_t again_ns_ = 0;  // of computed_ns_, when the next look is due
  std::uint64_t again_after_ns_ = scheduling::kRetrialNs;
  int kept_ = kNone;  // the size that was chosen before the trials
  int chosen_;
  int trial_ = kNone;
  int unusable_ = 0;        // number of batches above the size on trial, or not completed, since the trial began
  int last_trial_ = kNone;  // of those that are to be tried one after the other
  std::array<Size, scheduling::kMaxSizes> sizes_ = {};
};

}  // namespace evn
