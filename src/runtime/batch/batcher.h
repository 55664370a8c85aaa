// Which requests of a session may be joined, and how many wait for how long. The session has one where requests are joined.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/scheduling_constants.h"
#include "runtime/batch/batch_sizes.h"
#include "runtime/rows/row_proofs.h"

namespace evn {

class Request;
using RequestPtr = std::shared_ptr<Request>;

class Batcher {
 public:
  // Throws EVN_ERROR_UNSUPPORTED with the node that mixes rows, and EVN_ERROR_INVALID_ARGUMENT for a mask that is no input.
  Batcher(const CompiledGraph& graph, const BatchingConfig& config);

  // -- Requests -------------------------------------------------------------------------------------------------------------

  // Rows of a request that may be joined with others; 0: it runs alone. Called when it is made: Request::joinable_rows has it.
  std::int64_t rows_of(const Request& request) const;
  // Whether two that may be joined, may be so with each other.
  bool agree(const Request& a, const Request& b) const;
  // Bytes of one row of a request that may be joined, filled up to its bucket: by these the costs of rows are kept apart.
  std::uint64_t row_bytes(const Request& request) const;

  // -- Waiting: guarded by the dispatcher's mutex ---------------------------------------------------------------------------

  std::int64_t max_batch() const { return config_.max_batch; }
  // Number of rows, of `row_bytes` bytes each, below which a batch takes further requests.
  std::int64_t most_rows(std::uint64_t row_bytes) { return sizes_of(row_bytes).most_rows(); }
  // A batch of `rows` rows has taken `core_ns`; `completed`: all of them have been computed.
  void note_cost(std::uint64_t row_bytes, std::int64_t rows, std::uint64_t core_ns, bool completed) {
    sizes_of(row_bytes).note(rows, core_ns, completed);
  }

  // A request has come, with which so many are in flight.
  void note_arrival(std::uint64_t in_flight) { expected_ = std::max(expected_, in_flight); }
  // A batch has ended, with which so many were in flight. What once was is forgotten by and by.
  void note_end(std::uint64_t in_flight) {
    expected_ = std::max(in_flight, expected_ - std::min(expected_, 1 + expected_ / scheduling::kMeanShare));
  }
  // Whether more than so many have lately been in flight at a time, so that others may be on their way.
  bool expects_more_than(std::size_t members) const { return expected_ > members; }
  // Until when the first of a batch waits for others, as far as this member of it goes.
  std::uint64_t waits_until(const Request& member) const;

  // -- Batches --------------------------------------------------------------------------------------------------------------

  int axis_of(std::size_t input) const { return axes_[input]; }
  std::span<const int> axes() const { return axes_; }
  // The length of a request's rows (0: without a mask), of those that are filled up to it, and whether an input is.
  std::int64_t length_of(const Request& request) const;
  std::int64_t bucket_of(std::int64_t length) const;
  bool is_filled_up(std::size_t input) const { return filled_up_[input]; }

  // What is proven for one row such as the request's, of that length, in a batch of so many; null: nothing, and it is not joined.
  std::shared_ptr<const RowOutputs> proof_for(const Request& request, std::int64_t length, std::int64_t rows);

  // A run has taken so long.
  void note_duration(std::uint64_t duration_ns) noexcept;

 private:
  struct RowSizes {
    std::uint64_t row_bytes;
    BatchSizes sizes;
  };

  std::uint64_t shortest_run_ns() const;
  BatchSizes& sizes_of(std::uint64_t row_bytes) noexcept;
  void find_mask();

  const CompiledGraph& graph_;
  const BatchingConfig config_;
  const std::vector<int> axes_;  // per input
  int mask_ = kNoRows;           // input
  std::vector<bool> filled_up_;  // per input
  std::uint64_t expected_ = 0;
  std::vector<RowSizes> sizes_;            // most recently used first
  std::atomic<std::uint64_t> mean_ns_{0};  // of runs
  std::atomic<std::uint64_t> least_ns_{UINT64_MAX};
  std::atomic<std::uint32_t> runs_{0};
  RowProofs proofs_;
};

}  // namespace evn
