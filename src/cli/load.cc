#include "cli/load.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/load_sources.h"

namespace evn::cli {
namespace {

// What the handler of SIGINT knows.
volatile std::sig_atomic_t g_interrupted = 0;
evn_cancel g_token = nullptr;

void on_interrupt(int) {
  g_interrupted = 1;
  evn_cancel_request(g_token);  // which may be called here
}

}  // namespace

std::uint64_t monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

void LoadResult::add(evn_status status, const evn_error& error, std::uint64_t latency_ns) {
  switch (status) {
    case EVN_OK:
      ++completed;
      latencies.add(latency_ns);
      return;
    case EVN_ERROR_BUSY: ++busy; return;
    case EVN_ERROR_TIMEOUT: ++late; return;
    case EVN_ERROR_CANCELLED: ++cancelled; return;
    default: break;
  }
  if (failed++ == 0) first_error = describe(error);
}

void LoadResult::add(const LoadResult& other) {
  latencies.add(other.latencies);
  completed += other.completed;
  busy += other.busy;
  late += other.late;
  cancelled += other.cancelled;
  unfinished += other.unfinished;
  if (failed == 0) first_error = other.first_error;
  failed += other.failed;
}

double Dice::uniform() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return (static_cast<double>(z >> 11) + 1) * 0x1p-53;
}

double Dice::exponential() { return -std::log(uniform()); }

std::size_t LoadSource::pick(Dice& by) const {
  const double at = by.uniform() * shares.back();
  const auto it = std::lower_bound(shares.begin(), shares.end(), at);
  return targets[std::min<std::size_t>(static_cast<std::size_t>(it - shares.begin()), targets.size() - 1)];
}

std::vector<LoadSource> sources_of(const LoadPlan& plan) {
  std::vector<LoadSource> sources;
  LoadSource shared;
  shared.clients = plan.clients;
  shared.rate = plan.rate;
  double sum = 0;
  for (std::size_t i = 0; i < plan.targets.size(); ++i) {
    const LoadStream& s = plan.targets[i].stream;
    if (s.has_own_load()) {
      LoadSource own;
      own.targets = {i};
      own.shares = {1};
      own.clients = s.clients;
      own.rate = s.rate;
      own.dice = Dice(i + 2);
      sources.push_back(std::move(own));
    } else {
      shared.targets.push_back(i);
      shared.shares.push_back(sum += s.weight);
    }
  }
  if (!shared.targets.empty()) sources.push_back(std::move(shared));
  return sources;
}

Interruption::Interruption() {
  Call call;
  call.check(evn_cancel_create(token_.out(), call));
  g_token = token_.get();
  g_interrupted = 0;
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second one ends the process
  sigaction(SIGINT, &action, &before_);
}

Interruption::~Interruption() {
  sigaction(SIGINT, &before_, nullptr);
  g_token = nullptr;
}

bool Interruption::came() const { return g_interrupted != 0; }

void Interruption::request() const { on_interrupt(SIGINT); }

LoadProgress::LoadProgress(double seconds)
    : seconds_(seconds),
      step_ns_(isatty(STDERR_FILENO) == 1 ? 1'000'000'000 : 10'000'000'000),
      begin_ns_(monotonic_ns()),
      next_ns_(begin_ns_ + step_ns_),
      last_ns_(begin_ns_) {}

void LoadProgress::say(std::uint64_t now_ns, std::uint64_t completed) {
  if (now_ns < next_ns_) return;
  next_ns_ = now_ns + step_ns_;
  const double step = static_cast<double>(now_ns - last_ns_) / 1e9;
  std::fprintf(stderr, "%.0f of %.6g s: %llu requests, %.1f per second\n", static_cast<double>(now_ns - begin_ns_) / 1e9, seconds_,
               static_cast<unsigned long long>(completed), static_cast<double>(completed - last_completed_) / step);
  last_ns_ = now_ns;
  last_completed_ = completed;
}

evn_run_options options_of(const LoadTarget& target, std::uint64_t arrival_ns, const Interruption& interruption) {
  evn_run_options o = EVN_RUN_OPTIONS_INIT;
  o.cancel = interruption.token();
  o.priority = target.stream.priority;
  if (target.stream.deadline_ns != 0) o.deadline_ns = arrival_ns + target.stream.deadline_ns;
  return o;
}

LoadOutcome run_load(const LoadPlan& plan) {
  const Interruption interruption;
  LoadOutcome outcome = plan.sync ? run_threads(plan, interruption) : run_submitted(plan, interruption);
  outcome.interrupted = interruption.came();
  return outcome;
}

}  // namespace evn::cli
