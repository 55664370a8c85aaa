// Load by evn_session_submit: one thread makes all requests, at their times, and takes all answers from a queue.
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <memory>

#include "cli/load_sources.h"
#include "evener/request.h"

namespace evn::cli {
namespace {

constexpr std::uint64_t kPauseNs = 1'000'000;           // before clients that were refused ask again
constexpr std::uint64_t kLongestWaitNs = 50'000'000;    // so that an interruption is seen
constexpr int kMostTaken = 64;                          // before it is seen whether others have arrived
constexpr std::uint64_t kLeastGraceNs = 2'000'000'000;  // for what has not ended when the time is over

using Queue = Owner<evn_queue, evn_queue_release>;

// A request on its way.
struct Flight {
  std::size_t target = 0;
  LoadSource* source = nullptr;
  std::uint64_t arrival_ns = 0;
  std::uint64_t end_ns = 0;  // noted by the thread that ended it: this one may look later
};

class Submitter {
 public:
  Submitter(const LoadPlan& plan, const Interruption& interruption)
      : plan_(plan), interruption_(interruption), sources_(sources_of(plan)), progress_(plan.seconds) {
    outcome_.results.resize(plan.targets.size());
    Call call;
    call.check(evn_queue_create(queue_.out(), call));
  }
  ~Submitter() {
    if (in_flight_ > 0) evn_cancel_request(interruption_.token());
    while (in_flight_ > 0 && take(UINT64_MAX)) {}
  }
  Submitter(const Submitter&) = delete;
  Submitter& operator=(const Submitter&) = delete;

  LoadOutcome run() {
    begin_ns_ = last_end_ns_ = monotonic_ns();
    end_ns_ = begin_ns_ + static_cast<std::uint64_t>(plan_.seconds * 1e9);
    for (LoadSource& s : sources_) {
      if (s.rate == 0) continue;
      s.next_ns = begin_ns_;
      s.draw_next();
    }
    for (std::uint64_t now = begin_ns_; now < end_ns_ && !interruption_.came(); now = monotonic_ns()) {
      progress_.say(now, completed_);
      std::uint64_t next = std::min({end_ns_, progress_.next_ns(), now + kLongestWaitNs});
      for (LoadSource& s : sources_) next = std::min(next, serve(s, now));
      now = monotonic_ns();
      bool some = take(next > now ? next - now : 0);
      for (int i = 1; some && i < kMostTaken; ++i) some = take(0);
    }
    finish();
    outcome_.seconds = static_cast<double>(last_end_ns_ - begin_ns_) / 1e9;
    return std::move(outcome_);
  }

 private:
  // Makes the requests whose time has come; when to look again.
  std::uint64_t serve(LoadSource& s, std::uint64_t now) {
    if (s.rate == 0) {
      while (s.in_flight < s.clients && s.pause_end_ns <= now) submit(s, monotonic_ns());
      return s.pause_end_ns > now ? s.pause_end_ns : UINT64_MAX;
    }
    arrive(s, now);
    return s.next_ns;
  }
  // Requests of a source that has a rate, up to `now`; each goes off when a client is free.
  void arrive(LoadSource& s, std::uint64_t now) {
    for (; s.next_ns <= now && s.next_ns < end_ns_; s.draw_next()) s.waiting.push_back(s.next_ns);
    while (!s.waiting.empty() && (s.clients == 0 || s.in_flight < s.clients)) {
      const std::uint64_t arrival = s.waiting.front();
      s.waiting.pop_front();
      submit(s, arrival);
    }
  }

  void submit(LoadSource& s, std::uint64_t arrival_ns) {
    const std::size_t index = s.pick(s.picks);
    const LoadTarget& target = plan_.targets[index];
    if (free_.empty()) {
      all_.push_back(std::make_unique<Flight>());
      free_.push_back(all_.back().get());
    }
    Flight* const flight = free_.back();
    *flight = {index, &s, arrival_ns, 0};
    evn_submit_options o = EVN_SUBMIT_OPTIONS_INIT;
    o.flags = EVN_SUBMIT_FAIL_WHEN_FULL;
    o.queue = queue_.get();
    o.done = [](void* user, evn_request) { static_cast<Flight*>(user)->end_ns = monotonic_ns(); };
    o.user = flight;
    const evn_run_options run = options_of(target, arrival_ns, interruption_);
    evn_error error = EVN_ERROR_INIT;
    const evn_status status = target.arguments->submit(run, o, &error);
    if (status != EVN_OK) {
      outcome_.results[index].add(status, error, 0);
      s.pause_end_ns = monotonic_ns() + kPauseNs;
      return;
    }
    free_.pop_back();
    ++s.in_flight;
    ++in_flight_;
  }

  // Takes one request that has ended; false: none came.
  bool take(std::uint64_t timeout_ns) {
    evn_request request = nullptr;
    Call next;
    next.check(evn_queue_next(queue_.get(), timeout_ns, &request, next));
    if (request == nullptr) return false;
    void* user = nullptr;
    Call who;
    who.check(evn_request_user(request, &user, who));
    auto* const flight = static_cast<Flight*>(user);
    evn_error error = EVN_ERROR_INIT;
    const evn_status status = plan_.targets[flight->target].arguments->take(request, &error);
    evn_request_release(request);
    LoadResult& result = outcome_.results[flight->target];
    if (abandoned_ && status == EVN_ERROR_CANCELLED) {
      ++result.unfinished;
    } else {
      result.add(status, error, flight->end_ns > flight->arrival_ns ? flight->end_ns - flight->arrival_ns : 0);
      last_end_ns_ = std::max(last_end_ns_, flight->end_ns);
    }
    completed_ += status == EVN_OK;
    --flight->source->in_flight;
    --in_flight_;
    free_.push_back(flight);
    return true;
  }

  // Waits for what has arrived, though not for ever where more arrives than can be computed.
  void finish() {
    const std::uint64_t grace = std::max(kLeastGraceNs, static_cast<std::uint64_t>(plan_.seconds * 1e9));
    const std::uint64_t give_up = monotonic_ns() + grace;
    bool some_wait = true;
    while (in_flight_ > 0 || some_wait) {
      const std::uint64_t now = monotonic_ns();
      progress_.say(now, completed_);
      if (now >= give_up && !abandoned_ && !interruption_.came()) {
        abandoned_ = true;
        evn_cancel_request(interruption_.token());
      }
      some_wait = false;
      for (LoadSource& s : sources_) {
        if (abandoned_ || interruption_.came()) break;
        if (s.rate != 0) arrive(s, end_ns_);
        some_wait = some_wait || !s.waiting.empty();
      }
      if (in_flight_ > 0) take(kLongestWaitNs);
    }
    for (LoadSource& s : sources_) {
      if (!abandoned_) break;  // after an interruption nobody wants them
      for (; s.next_ns < end_ns_; s.draw_next()) s.waiting.push_back(s.next_ns);
      for (std::size_t i = 0; i < s.waiting.size(); ++i) ++outcome_.results[s.pick(s.picks)].unfinished;
    }
  }

  const LoadPlan& plan_;
  const Interruption& interruption_;
  std::vector<LoadSource> sources_;
  LoadProgress progress_;
  LoadOutcome outcome_;
  std::vector<std::unique_ptr<Flight>> all_;
  std::vector<Flight*> free_;
  Queue queue_;
  std::uint64_t begin_ns_ = 0;
  std::uint64_t end_ns_ = 0;
  std::uint64_t last_end_ns_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t in_flight_ = 0;
  bool abandoned_ = false;
};

}  // namespace

LoadOutcome run_submitted(const LoadPlan& plan, const Interruption& interruption) {
#ifdef __linux__
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // arrivals are not to be late by the 50 us that the system allows itself
#endif
  return Submitter(plan, interruption).run();
}

}  // namespace evn::cli
