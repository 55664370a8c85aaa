// What the runs of a session have come to: how many of each priority ended in which way, and how long they waited and ran.
// docs/decisions/0060-statistics.md
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "base/os/fork.h"
#include "base/run_scheduler.h"
#include "runtime/objects/time_histogram.h"

namespace evn {

inline constexpr std::int32_t kMostPriority = 7;  // priorities are -7 .. 7

enum class RunOutcome : std::uint8_t { kCompleted, kFailed, kCancelled, kLate, kRejected };
inline constexpr std::size_t kRunOutcomes = 5;
const char* outcome_name(RunOutcome outcome);
RunOutcome outcome_of(evn_status status) noexcept;

struct PriorityCounts {
  std::int32_t priority = 0;
  std::array<std::uint64_t, kRunOutcomes> outcomes{};
  TimeCounts waited, ran;

  void add(const PriorityCounts& other);
};

struct BatchCount {
  std::uint64_t rows;
  std::uint64_t count;
};

// The statistics of a session at one moment.
struct SessionCounts {
  std::string name;
  std::string label;  // the name where no other session of the runtime has it, else with "#2", "#3" behind it
  std::uint64_t queued = 0;
  std::uint64_t running = 0;
  std::uint64_t uncounted = 0;             // times that were not kept, as there was no memory
  std::vector<BatchCount> batches;         // by rows
  std::vector<PriorityCounts> priorities;  // that were used, rising

  PriorityCounts all() const;
};

class RunStatistics;

// The statistics of the sessions of a runtime.
class StatisticsList {
 public:
  // In the order in which the sessions were made. None is made, and none ends, meanwhile.
  template <typename F>
  void for_each(F&& f) const;

 private:
  friend class RunStatistics;
  // Returns a label that no other session has: the name, or that with "#" and one more than the largest number in use.
  std::string take_label(const std::string& name);
  void give_back(const std::string& label) noexcept;

  mutable Mutex mutex_;  // guards what follows, and links
  RunStatistics* first_ = nullptr;
  RunStatistics* last_ = nullptr;
  std::unordered_set<std::string> labels_;
  std::unordered_map<std::string, std::set<std::uint64_t>> numbers_;  // behind "#", by what stands in front of it
};

class RunStatistics {
 public:
  // `list`: null for a session that is a part of another one, of which nothing is kept. `requests` lives longer.
  RunStatistics(StatisticsList* list, std::string name, const std::atomic<std::size_t>& waiting);
  ~RunStatistics();
  RunStatistics(const RunStatistics&) = delete;
  RunStatistics& operator=(const RunStatistics&) = delete;

  const std::string& name() const { return name_; }

  // From any thread, without locks; the first of a priority allocates.
  void note_end(std::int32_t priority, RunOutcome outcome) noexcept;  // of what never came to compute
  // What was not accepted, for want of room or of time; a status that says something else is not counted.
  void note_refusal(std::int32_t priority, evn_status status) noexcept;
  void note_run(std::int32_t priority, RunOutcome outcome, std::uint64_t waited_ns, std::uint64_t ran_ns) noexcept;
  // A completed run of requests, one or several, in a session with batching.
  void note_rows(std::size_t rows) noexcept;

  SessionCounts read() const;

 private:
  friend class StatisticsList;
  friend class RunNote;
  struct Times {
    TimeHistogram waited, ran;
  };
  // Rows up to 256 have a bucket each; of more, those up to the next power of 2 have one.
  static constexpr std::size_t kExactRows = 256;
  static constexpr std::size_t kRowBuckets = kExactRows + 24;
  using RowBuckets = std::array<std::atomic<std::uint64_t>, kRowBuckets>;
  static constexpr std::uint64_t kOneRunning = std::uint64_t{1} << 32;

  static std::size_t class_of(std::int32_t priority) { return static_cast<std::size_t>(priority + kMostPriority); }
  static std::size_t row_bucket(std::size_t rows) noexcept;
  static std::uint64_t rows_of(std::size_t bucket) noexcept;
  Times* times_of(std::int32_t priority) noexcept;
  void count(std::int32_t priority, RunOutcome outcome) noexcept {
    outcomes_[class_of(priority)][static_cast<std::size_t>(outcome)].fetch_add(1, std::memory_order_relaxed);
  }

  StatisticsList* const list_;
  const std::string name_;
  std::string label_;
  const std::atomic<std::size_t>& waiting_;  // requests of the session
  RunStatistics* before_ = nullptr;
  RunStatistics* after_ = nullptr;
  std::atomic<std::uint64_t> now_{0};  // runs that wait for a core, and above those that compute
  std::atomic<std::uint64_t> uncounted_{0};
  // Completed runs are counted here only where there was no memory for their histograms.
  std::array<std::array<std::atomic<std::uint64_t>, kRunOutcomes>, 2 * kMostPriority + 1> outcomes_{};
  std::array<std::atomic<Times*>, 2 * kMostPriority + 1> times_{};
  std::atomic<RowBuckets*> batches_{nullptr};
};

template <typename F>
void StatisticsList::for_each(F&& f) const {
  const std::lock_guard<Mutex> lock(mutex_);
  for (const RunStatistics* s = first_; s != nullptr; s = s->after_) f(*s);
}

// When a run computed; of who notes what came of it himself: of several requests that were one run.
struct RunTimes {
  std::uint32_t requests = 1;
  std::uint64_t begin_ns = 0;   // 0: it never came to compute
  std::uint64_t waited_ns = 0;  // for a core, later than begin_ns
  std::uint64_t end_ns = 0;
};

// One run on its way: queued, then computing, then ended.
class RunNote {
 public:
  // `submitted_ns`: of a request; 0: its caller waits for it. `times`, nullable: gets the times, and nothing is counted but that it
  // is on its way.
  RunNote(RunStatistics& statistics, std::int32_t priority, std::uint64_t submitted_ns, RunTimes* times) noexcept;
  ~RunNote();
  RunNote(const RunNote&) = delete;
  RunNote& operator=(const RunNote&) = delete;

  // Once: a run that begins again elsewhere, as a device was lost, has begun already.
  void begin(const ScheduledRun& run) noexcept;
  void end(const ScheduledRun& run) noexcept;
  // In the place of begin and end, for a run whose parts are runs of other sessions, which wait for cores themselves.
  void begin_split() noexcept;
  void end_split() noexcept { own_.end_ns = times_->end_ns = os::now_ns(); }
  // Runs it, and notes how that ends.
  template <typename F>
  void follow(F&& run) {
    try {
      run();
      outcome_ = RunOutcome::kCompleted;
    } catch (const Error& e) {
      outcome_ = outcome_of(e.status);
      throw;
    }
  }

 private:
  RunStatistics* const statistics_;  // null: nothing is kept of the session
  const std::int32_t priority_;
  RunOutcome outcome_ = RunOutcome::kFailed;
  const std::uint64_t submitted_ns_;
  std::uint64_t waited_ns_ = 0;  // before it computed
  RunTimes* const times_;
  RunTimes own_;
};

}  // namespace evn
