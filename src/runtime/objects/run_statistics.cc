#include "runtime/objects/run_statistics.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <memory>
#include <new>

#include "base/os/os.h"
#include "base/text.h"

namespace evn {
namespace {

constexpr const char* kOutcomeNames[] = {"completed", "failed", "cancelled", "late", "rejected"};
static_assert(std::size(kOutcomeNames) == kRunOutcomes);

// Names come from files and hosts: what is no UTF-8 and what steers a terminal is replaced, before names are told apart.
std::string plain(std::string_view name) {
  std::string text;
  for (std::size_t i = 0; i < name.size();) {
    const std::size_t length = printable_character(name.substr(i));
    if (length == 0) {
      text += name[i] == '\n' ? '\n' : '?';
    } else {
      text.append(name, i, length);
    }
    i += std::max<std::size_t>(utf8_character(name.substr(i)), 1);
  }
  return text;
}

}  // namespace

const char* outcome_name(RunOutcome outcome) { return kOutcomeNames[static_cast<std::size_t>(outcome)]; }

RunOutcome outcome_of(evn_status status) noexcept {
  switch (status) {
    case EVN_OK: return RunOutcome::kCompleted;
    case EVN_ERROR_CANCELLED: return RunOutcome::kCancelled;
    case EVN_ERROR_TIMEOUT: return RunOutcome::kLate;
    case EVN_ERROR_BUSY: return RunOutcome::kRejected;
    default: return RunOutcome::kFailed;
  }
}

void PriorityCounts::add(const PriorityCounts& other) {
  for (std::size_t i = 0; i < kRunOutcomes; ++i) outcomes[i] += other.outcomes[i];
  waited.add(other.waited);
  ran.add(other.ran);
}

PriorityCounts SessionCounts::all() const {
  PriorityCounts sum;
  for (const PriorityCounts& p : priorities) sum.add(p);
  return sum;
}

namespace {

constexpr std::uint64_t kMostNumber = 1'000'000'000;

// The number behind the last "#" of a label, and what stands in front of it; 0: there is none.
std::uint64_t number_of(const std::string& label, std::string* front) {
  const std::size_t at = label.rfind('#');
  if (at == std::string::npos) return 0;
  const std::uint64_t n = parse_u64(std::string_view(label).substr(at + 1)).value_or(0);
  *front = label.substr(0, at);
  return n < kMostNumber ? n : 0;
}

}  // namespace

// A session keeps its label, whichever others end before it.
std::string StatisticsList::take_label(const std::string& name) {
  const std::string wanted = plain(name);
  std::string label = wanted;
  if (labels_.contains(label)) {
    const auto numbers = numbers_.find(wanted);
    const bool any = numbers != numbers_.end() && !numbers->second.empty();  // none if memory was refused for the first
    std::uint64_t number = any ? *numbers->second.rbegin() + 1 : 2;
    do label = wanted + "#" + std::to_string(number++);
    while (labels_.contains(label));  // a name may end like a number of ours
  }
  std::string front;
  const std::uint64_t n = number_of(label, &front);
  if (n != 0) numbers_[front].insert(n);
  labels_.insert(label);
  return label;
}

void StatisticsList::give_back(const std::string& label) noexcept {
  labels_.erase(label);
  try {
    std::string front;
    const std::uint64_t n = number_of(label, &front);
    const auto numbers = n != 0 ? numbers_.find(front) : numbers_.end();
    if (numbers == numbers_.end()) return;
    numbers->second.erase(n);
    if (numbers->second.empty()) numbers_.erase(numbers);
  } catch (const std::bad_alloc&) {  // the number is not given again
  }
}

RunStatistics::RunStatistics(StatisticsList* list, std::string name, const std::atomic<std::size_t>& waiting)
    : list_(list), name_(std::move(name)), waiting_(waiting) {
  if (list_ == nullptr) return;
  auto times = std::make_unique<Times>();  // so that runs of the usual priority allocate nothing
  const std::lock_guard<Mutex> lock(list_->mutex_);
  label_ = list_->take_label(name_);
  times_[class_of(0)].store(times.release(), std::memory_order_relaxed);
  before_ = list_->last_;
  (before_ != nullptr ? before_->after_ : list_->first_) = this;
  list_->last_ = this;
}

RunStatistics::~RunStatistics() {
  if (list_ != nullptr) {
    // A list that a fork left half linked has only sessions that there are; its labels may be half changed.
    const bool is_alive = list_->mutex_.lock_if_alive();
    if (is_alive) list_->give_back(label_);
    (before_ != nullptr ? before_->after_ : list_->first_) = after_;
    (after_ != nullptr ? after_->before_ : list_->last_) = before_;
    if (is_alive) list_->mutex_.unlock();
  }
  for (std::atomic<Times*>& t : times_) delete t.load(std::memory_order_acquire);
  delete batches_.load(std::memory_order_acquire);
}

RunStatistics::Times* RunStatistics::times_of(std::int32_t priority) noexcept {
  std::atomic<Times*>& place = times_[class_of(priority)];
  Times* times = place.load(std::memory_order_acquire);
  if (times != nullptr) return times;
  auto* const made = new (std::nothrow) Times;
  if (made == nullptr || place.compare_exchange_strong(times, made, std::memory_order_acq_rel)) return made;
  delete made;
  return times;  // another thread's
}

void RunStatistics::note_end(std::int32_t priority, RunOutcome outcome) noexcept {
  if (list_ != nullptr) count(priority, outcome);
}

void RunStatistics::note_refusal(std::int32_t priority, evn_status status) noexcept {
  if (const RunOutcome outcome = outcome_of(status); outcome > RunOutcome::kFailed) note_end(priority, outcome);
}

void RunStatistics::note_run(std::int32_t priority, RunOutcome outcome, std::uint64_t waited_ns, std::uint64_t ran_ns) noexcept {
  if (list_ == nullptr) return;
  Times* const times = times_of(priority);
  if (times == nullptr || outcome != RunOutcome::kCompleted) count(priority, outcome);  // others are counted with their times
  if (times == nullptr) {
    uncounted_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  times->waited.add(waited_ns);
  if (outcome == RunOutcome::kCompleted) times->ran.add(ran_ns);
}

std::size_t RunStatistics::row_bucket(std::size_t rows) noexcept {
  if (rows <= kExactRows) return rows == 0 ? 0 : rows - 1;
  return std::min<std::size_t>(kRowBuckets - 1, kExactRows + static_cast<std::size_t>(std::bit_width(rows - 1)) - 9);
}

std::uint64_t RunStatistics::rows_of(std::size_t bucket) noexcept {
  return bucket < kExactRows ? bucket + 1 : std::uint64_t{2 * kExactRows} << (bucket - kExactRows);
}

void RunStatistics::note_rows(std::size_t rows) noexcept {
  if (list_ == nullptr) return;
  RowBuckets* buckets = batches_.load(std::memory_order_acquire);
  if (buckets == nullptr) {
    auto* const made = new (std::nothrow) RowBuckets{};
    if (made == nullptr) {
      uncounted_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    if (batches_.compare_exchange_strong(buckets, made, std::memory_order_acq_rel)) {
      buckets = made;
    } else {
      delete made;
    }
  }
  (*buckets)[row_bucket(rows)].fetch_add(1, std::memory_order_relaxed);
}

SessionCounts RunStatistics::read() const {
  SessionCounts s;
  s.name = name_;
  s.label = label_;
  const std::uint64_t now = now_.load(std::memory_order_relaxed);
  s.running = now / kOneRunning;
  s.queued = now % kOneRunning + waiting_.load(std::memory_order_relaxed);
  s.uncounted = uncounted_.load(std::memory_order_relaxed);
  if (const RowBuckets* const buckets = batches_.load(std::memory_order_acquire)) {
    for (std::size_t i = 0; i < kRowBuckets; ++i) {
      const std::uint64_t n = (*buckets)[i].load(std::memory_order_relaxed);
      if (n != 0) s.batches.push_back({rows_of(i), n});
    }
  }
  for (std::int32_t priority = -kMostPriority; priority <= kMostPriority; ++priority) {
    PriorityCounts p;
    p.priority = priority;
    if (const Times* const times = times_[class_of(priority)].load(std::memory_order_acquire)) {
      times->ran.read(&p.ran);
      times->waited.read(&p.waited);
    }
    std::uint64_t all = p.outcomes[0] = p.ran.count;
    for (std::size_t i = 0; i < kRunOutcomes; ++i) {
      const std::uint64_t n = outcomes_[class_of(priority)][i].load(std::memory_order_relaxed);
      p.outcomes[i] += n;
      all += n;
    }
    if (all != 0) s.priorities.push_back(std::move(p));
  }
  return s;
}

RunNote::RunNote(RunStatistics& statistics, std::int32_t priority, std::uint64_t submitted_ns, RunTimes* times) noexcept
    : statistics_(statistics.list_ != nullptr ? &statistics : nullptr),
      priority_(priority),
      submitted_ns_(submitted_ns),
      times_(times != nullptr ? times : &own_) {
  if (statistics_ != nullptr) statistics_->now_.fetch_add(times_->requests, std::memory_order_relaxed);
}

void RunNote::begin(const ScheduledRun& run) noexcept {
  if (statistics_ == nullptr || times_->begin_ns != 0) return;
  times_->begin_ns = os::now_ns();
  waited_ns_ = submitted_ns_ != 0 && times_->begin_ns > submitted_ns_ ? times_->begin_ns - submitted_ns_ : run.waited_ns();
  times_->waited_ns = run.waited_ns();
  statistics_->now_.fetch_add(times_->requests * (RunStatistics::kOneRunning - 1), std::memory_order_relaxed);
}

void RunNote::end(const ScheduledRun& run) noexcept {
  if (statistics_ == nullptr) return;
  times_->end_ns = os::now_ns();
  times_->waited_ns = run.waited_ns() - times_->waited_ns;
}

void RunNote::begin_split() noexcept {
  if (statistics_ == nullptr || times_->begin_ns != 0) return;
  times_->begin_ns = os::now_ns();
  waited_ns_ = submitted_ns_ != 0 && times_->begin_ns > submitted_ns_ ? times_->begin_ns - submitted_ns_ : 0;
  statistics_->now_.fetch_add(times_->requests * (RunStatistics::kOneRunning - 1), std::memory_order_relaxed);
}

RunNote::~RunNote() {
  if (statistics_ == nullptr) return;
  const bool computed = times_->begin_ns != 0;
  statistics_->now_.fetch_sub(times_->requests * (computed ? RunStatistics::kOneRunning : 1), std::memory_order_relaxed);
  if (times_ != &own_) return;
  if (!computed) {
    statistics_->note_end(priority_, outcome_);
  } else if (outcome_ == RunOutcome::kCompleted) {
    statistics_->note_run(priority_, outcome_, waited_ns_ + own_.waited_ns, own_.end_ns - own_.begin_ns - own_.waited_ns);
  } else {
    statistics_->note_run(priority_, outcome_, waited_ns_, 0);
  }
}

}  // namespace evn
