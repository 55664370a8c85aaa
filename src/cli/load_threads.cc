// Load by evn_session_run: a thread for each client.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "cli/load_sources.h"

namespace evn::cli {
namespace {

constexpr std::uint64_t kLongestSleepNs = 50'000'000;  // so that an interruption is seen

void sleep_until(std::uint64_t end_ns, const Interruption& interruption) {
  for (std::uint64_t now = monotonic_ns(); now < end_ns && !interruption.came(); now = monotonic_ns()) {
    const std::uint64_t step = std::min(end_ns - now, kLongestSleepNs);
    const timespec t{static_cast<time_t>(step / 1'000'000'000), static_cast<long>(step % 1'000'000'000)};
    nanosleep(&t, nullptr);
  }
}

// A source, and what its clients share of it.
struct Shared {
  LoadSource source;
  std::mutex mutex;  // guards the arrivals of the source
};

class Client {
 public:
  Client(const LoadPlan& plan, const Interruption& interruption, Shared& shared, std::uint64_t seed, std::uint64_t end_ns,
         std::atomic<std::uint64_t>& completed)
      : plan_(plan), interruption_(interruption), shared_(shared), dice_(seed), end_ns_(end_ns), completed_(completed) {
    outcome.results.resize(plan.targets.size());
  }

  LoadOutcome outcome;
  std::uint64_t last_end_ns = 0;
  std::exception_ptr error;  // that ended it

  void run() noexcept {
    try {
      for (std::uint64_t arrival = 0; next(&arrival); run_once(arrival)) {}
    } catch (...) {
      error = std::current_exception();
    }
  }

 private:
  // Where more arrives than can be computed, what has not begun by then is given up.
  std::uint64_t give_up_ns() const {
    return end_ns_ + std::max<std::uint64_t>(2'000'000'000, static_cast<std::uint64_t>(plan_.seconds * 1e9));
  }
  // When the next request arrives; returns then. False: none does any more.
  bool next(std::uint64_t* arrival) {
    if (interruption_.came()) return false;
    if (shared_.source.rate == 0) {
      *arrival = monotonic_ns();
      return *arrival < end_ns_;
    }
    {
      const std::lock_guard<std::mutex> lock(shared_.mutex);
      *arrival = shared_.source.next_ns;
      if (*arrival >= end_ns_) return false;
      if (monotonic_ns() > give_up_ns()) {
        for (; shared_.source.next_ns < end_ns_; shared_.source.draw_next())
          ++outcome.results[shared_.source.pick(dice_)].unfinished;
        return false;
      }
      shared_.source.draw_next();
    }
    sleep_until(*arrival, interruption_);
    return !interruption_.came();
  }

  void run_once(std::uint64_t arrival) {
    const std::size_t index = shared_.source.pick(dice_);
    const LoadTarget& target = plan_.targets[index];
    const evn_run_options options = options_of(target, arrival, interruption_);
    evn_error why = EVN_ERROR_INIT;
    Outputs outputs;
    const evn_status status = target.arguments->run(options, &outputs, &why);
    last_end_ns = monotonic_ns();
    outputs = {};
    outcome.results[index].add(status, why, last_end_ns - arrival);
    if (status == EVN_OK) completed_.fetch_add(1, std::memory_order_relaxed);
  }

  const LoadPlan& plan_;
  const Interruption& interruption_;
  Shared& shared_;
  Dice dice_;
  const std::uint64_t end_ns_;
  std::atomic<std::uint64_t>& completed_;
};

// Says how it goes on until all clients have ended.
class Watch {
 public:
  explicit Watch(double seconds) : progress_(seconds) {}

  void client_ended() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }
  void wait(std::size_t clients, const std::atomic<std::uint64_t>& completed) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(200), [&] { return ended_ == clients; }))
      progress_.say(monotonic_ns(), completed.load(std::memory_order_relaxed));
  }

 private:
  LoadProgress progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t ended_ = 0;
};

}  // namespace

LoadOutcome run_threads(const LoadPlan& plan, const Interruption& interruption) {
  std::atomic<std::uint64_t> completed{0};
  std::vector<std::unique_ptr<Shared>> sources;
  std::vector<std::unique_ptr<Client>> clients;
  const std::uint64_t begin_ns = monotonic_ns();
  const std::uint64_t end_ns = begin_ns + static_cast<std::uint64_t>(plan.seconds * 1e9);
  for (LoadSource& s : sources_of(plan)) {
    sources.push_back(std::make_unique<Shared>());
    Shared& shared = *sources.back();
    shared.source = std::move(s);
    if (shared.source.rate != 0) {
      shared.source.next_ns = begin_ns;
      shared.source.draw_next();
    }
    for (int i = 0; i < shared.source.clients; ++i) {
      clients.push_back(std::make_unique<Client>(plan, interruption, shared, clients.size() + 1000, end_ns, completed));
    }
  }
  Watch watch(plan.seconds);
  std::vector<std::thread> threads;
  std::exception_ptr refused;
  try {
    threads.reserve(clients.size());
    for (const auto& client : clients) {
      threads.emplace_back([&watch, &c = *client] {
        c.run();
        watch.client_ended();
      });
    }
  } catch (const std::exception&) {  // the system has no more threads
    refused = std::current_exception();
    interruption.request();
  }
  watch.wait(threads.size(), completed);
  for (std::thread& t : threads) t.join();
  for (const auto& client : clients) refused = refused ? refused : client->error;
  if (refused) std::rethrow_exception(refused);
  LoadOutcome outcome;
  outcome.results.resize(plan.targets.size());
  std::uint64_t last = begin_ns;
  for (const auto& client : clients) {
    for (std::size_t i = 0; i < outcome.results.size(); ++i) outcome.results[i].add(client->outcome.results[i]);
    last = std::max(last, client->last_end_ns);
  }
  outcome.seconds = static_cast<double>(last - begin_ns) / 1e9;
  return outcome;
}

}  // namespace evn::cli
