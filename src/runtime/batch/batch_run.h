// One run for several requests: their rows are copied together, and each is given its part of the outputs.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "runtime/batch/batcher.h"
#include "runtime/request/request.h"

namespace evn {

class BatchRun : public std::enable_shared_from_this<BatchRun> {
 public:
  // The members agree with the first, and all of them may be joined. Null: there is no memory, and they have been run alone.
  static std::shared_ptr<BatchRun> make(Batcher& batcher, std::vector<RequestPtr> members) noexcept;
  BatchRun(Batcher& batcher, std::vector<RequestPtr>&& members);
  BatchRun(const BatchRun&) = delete;
  BatchRun& operator=(const BatchRun&) = delete;

  // Ends members that have been stopped, and copies the rows of the others. False: they are to run alone.
  bool prepare() noexcept;
  // True if take_stopped() has to be called while it runs.
  bool has_stops() const { return has_stops_; }
  std::size_t member_count() const { return members_.size(); }
  std::int64_t rows() const { return rows_; }
  // From another thread: moves members that have been stopped to `to`, which has room for all members; their ends are then the
  // caller's to tell. Stops the run if no member is left.
  void take_stopped(std::vector<RequestPtr>* to) noexcept;
  // Runs the model, and releases the copies of the rows. False: the members are to run alone.
  bool run() noexcept;
  // Returns false if rows of a member have not been computed, as it was stopped or its run failed.
  bool has_computed_all() const { return has_computed_all_; }
  // Ends all members that have not ended: with their parts, or by running them alone.
  void finish(bool has_run) noexcept;

 private:
  friend class BatchList;
  struct Member {
    RequestPtr request;
    std::int64_t rows = 0;
    std::int64_t first = 0;                   // row of the batch
    std::int64_t length = 0;                  // 0: without a mask
    std::shared_ptr<const RowOutputs> proof;  // of its own length
  };

  void note_failure(const Error& e) const noexcept;
  void drop_stopped();
  bool prove();
  void copy_rows();
  void copy_input(std::size_t input, const Tensor& to) const;
  StopCondition stop_of_all();
  bool give(const Member& member, const RequestPtr& to);
  TensorPtr part(const Member& member, std::size_t output) const;
  void copy_part(const Member& member, std::size_t output, Tensor& to) const;
  TensorDesc desc_of_part(const Member& member, std::size_t output) const;
  const Request& leader() const { return *leader_; }

  Batcher& batcher_;
  const std::shared_ptr<Session> session_;
  std::vector<Member> members_;
  RequestPtr leader_;  // one of them, whose token the run may look at
  std::int64_t rows_ = 0;
  std::int64_t length_ = 0;
  bool has_stops_ = false;
  bool has_computed_all_ = true;
  std::shared_ptr<const RowOutputs> proof_;  // of a row of the batch
  RunRequest request_;
  std::vector<RunValue> inputs_, outputs_;  // of the batch: inputs with rows are copies
  RunTimes times_;                          // of the run, for the statistics of its members
  BatchRun* next_ = nullptr;                // in a list
  CancelToken token_;
  Mutex mutex_;  // guards which of the members have a request while the run is under way
};

// Those under way; guarded by the dispatcher's mutex.
class BatchList {
 public:
  void add(BatchRun& batch);
  void remove(BatchRun& batch);
  bool is_empty() const { return first_ == nullptr; }
  // As many as there is memory to name.
  std::vector<std::shared_ptr<BatchRun>> all() const noexcept;

 private:
  BatchRun* first_ = nullptr;
};

}  // namespace evn
