#include "tests/simulation/load.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/help_worth.h"
#include "base/os/os.h"
#include "base/thread_pool.h"

namespace evn::sim {
namespace {

constexpr int kPriorities = 8;

// State that all clients of a load share.
struct Site {
  explicit Site(const Load& l) : load(l), scheduler(l.cores), pool(l.cores, {}, kDefaultSpinNs, &scheduler) {}

  const Load& load;
  RunScheduler scheduler;
  ThreadPool pool;
  std::uint64_t begin = 0;
  std::atomic<int> inside{0};     // runs that have begun and not ended
  std::atomic<int> computing{0};  // runs that have begun and do not wait for their first core
  std::atomic<std::uint64_t> most_computing{0}, inverted{0};
  std::atomic<std::uint64_t> since[kPriorities] = {};  // time at which the last run of a priority got a core; 0: none computes
};

struct ClientThread {
  Site& site;
  const Client& client;
  ClientResult result = {};
  HelpWorth worth = {};

  void run_once(std::uint64_t arrival);
  void execute_jobs(ScheduledRun& run);
  void count_inversion();
  static void range(void* context, int, std::int64_t, std::int64_t);
};

// Counts the range if it begins although its thread can have seen that a more urgent run computes.
void ClientThread::count_inversion() {
  for (int p = client.priority + 1; p < kPriorities; ++p) {
    const std::uint64_t since = site.since[p].load(std::memory_order_relaxed);
    if (since == 0 || now_without_price() - since < 10 * kMicrosecond + client.shape.range_ns) continue;
    site.inverted.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

void ClientThread::range(void* context, int, std::int64_t, std::int64_t) {
  auto& c = *static_cast<ClientThread*>(context);
  c.count_inversion();
  compute(c.client.shape.range_ns);
}

void ClientThread::execute_jobs(ScheduledRun& run) {
  const RunShape& shape = client.shape;
  run.set_alone(worth.begin_alone());
  for (int i = 0; i < shape.jobs; ++i) {
    if (run.must_pause()) run.pause();
    if (shape.serial_ns != 0) compute(shape.serial_ns);
    site.pool.parallel_for(shape.ranges, 1, &range, this, &run);
  }
  if (const std::uint64_t begin = run.first_help_ns(); begin != 0) worth.note(os::now_ns() - begin, run.saved_ns());
}

void ClientThread::run_once(std::uint64_t arrival) {
  Cancel cancel;
  if (client.deadline_ns != 0) cancel.deadline_ns = arrival + client.deadline_ns;
  site.inside.fetch_add(1, std::memory_order_relaxed);
  try {
    ScheduledRun run(site.scheduler, {client.priority, cancel.deadline_ns}, nullptr, cancel);
    run.enter();
    const auto computing = static_cast<std::uint64_t>(site.computing.fetch_add(1, std::memory_order_relaxed) + 1);
    if (computing > site.most_computing.load(std::memory_order_relaxed))
      site.most_computing.store(computing, std::memory_order_relaxed);
    site.since[client.priority].store(now_without_price(), std::memory_order_relaxed);
    execute_jobs(run);
    site.since[client.priority].store(0, std::memory_order_relaxed);
    result.most_waited_ns = std::max(result.most_waited_ns, run.waited_ns());
    site.computing.fetch_sub(1, std::memory_order_relaxed);
    run.leave();
    result.latency_ns.push_back(os::now_ns() - arrival);
  } catch (const Error&) {
    ++result.late;
    result.most_late_ns = std::max(result.most_late_ns, os::now_ns() - cancel.deadline_ns);
  }
  site.inside.fetch_sub(1, std::memory_order_relaxed);
}

void execute_on(Site& site, std::uint64_t seed, Result* result) {
  std::vector<std::unique_ptr<ClientThread>> clients;
  std::vector<Pace> paces;
  for (const Client& c : site.load.clients) {
    clients.push_back(std::make_unique<ClientThread>(site, c));
    paces.push_back({c.interval_ns, c.begin_ns});
  }
  result->time_ns = execute_clients(paces, site.load.length_ns, seed, &site.begin, [&](std::size_t i, std::uint64_t arrival) {
    clients[i]->run_once(arrival);
    compute(clients[i]->client.host_ns);
  });
  for (const auto& c : clients) result->clients.push_back(std::move(c->result));
  result->inverted_ranges = site.inverted;
  result->most_computing = site.most_computing;
}

}  // namespace

RunShape RunShape::of(std::uint64_t work_ns) {
  const int jobs = static_cast<int>(std::clamp<std::uint64_t>(work_ns / (2 * kMillisecond), 1, 20));
  const std::uint64_t job = work_ns / static_cast<std::uint64_t>(jobs);
  const std::uint64_t range = std::clamp<std::uint64_t>(job / 16, 5 * kMicrosecond, 2 * kMillisecond);
  const std::uint64_t serial = job / 10;
  return {serial, jobs, static_cast<int>((job - serial) / range), range};
}

std::uint64_t ClientResult::quantile(double q) const {
  if (latency_ns.empty()) return 0;
  std::vector<std::uint64_t> sorted = latency_ns;
  std::sort(sorted.begin(), sorted.end());
  return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))];
}

ClientResult Result::all() const {
  ClientResult all;
  for (const ClientResult& c : clients) {
    all.latency_ns.insert(all.latency_ns.end(), c.latency_ns.begin(), c.latency_ns.end());
    all.most_waited_ns = std::max(all.most_waited_ns, c.most_waited_ns);
    all.late += c.late;
    all.most_late_ns = std::max(all.most_late_ns, c.most_late_ns);
  }
  return all;
}

double Result::runs_per_second() const { return static_cast<double>(all().latency_ns.size()) * 1e9 / static_cast<double>(time_ns); }

double Result::fairness() const {
  double sum = 0, squares = 0;
  for (const ClientResult& c : clients) {
    const auto n = static_cast<double>(c.latency_ns.size());
    sum += n;
    squares += n * n;
  }
  return squares > 0 ? sum * sum / (squares * static_cast<double>(clients.size())) : 0;
}

std::string Result::summary() const {
  const ClientResult total = all();
  const auto us = [](std::uint64_t ns) { return static_cast<double>(ns) * 1e-3; };
  char text[320];
  std::snprintf(text, sizeof text,
                "%9.1f runs/s, p50 %9.1f us, p99 %9.1f us, wait <= %9.1f us, wasted %6.2f %% (<= %7.1f us), fair %.3f, time-outs "
                "%llu, late <= %.1f us",
                runs_per_second(), us(total.quantile(0.5)), us(total.quantile(0.99)), us(total.most_waited_ns),
                100 * us(wasted_ns) / us(time_ns), us(longest_waste_ns), fairness(),
                static_cast<unsigned long long>(machine.timeouts), us(total.most_late_ns));
  return text;
}

std::uint64_t execute_clients(const std::vector<Pace>& paces, std::uint64_t length_ns, std::uint64_t seed, std::uint64_t* begin,
                              const std::function<void(std::size_t, std::uint64_t)>& request) {
  *begin = os::now_ns() + paces.size() * 30 * kMicrosecond;
  const auto loop = [&](std::size_t i) {
    Random random(seed * 1000 + i);
    const std::uint64_t end = *begin + length_ns;
    const Pace& pace = paces[i];
    for (std::uint64_t next = *begin + pace.begin_ns;;) {
      if (pace.interval_ns != 0)
        next += static_cast<std::uint64_t>(-std::log(1 - random.uniform()) * static_cast<double>(pace.interval_ns));
      const std::uint64_t now = os::now_ns();
      if (std::max(now, next) >= end) return;
      if (next > now) sleep_until(next);
      request(i, pace.interval_ns != 0 ? next : std::max(now, next));
    }
  };
  std::vector<std::function<void()>> bodies;
  for (std::size_t i = 0; i < paces.size(); ++i) bodies.emplace_back([&loop, i] { loop(i); });
  std::vector<os::Thread> threads;
  threads.reserve(paces.size());
  for (auto& body : bodies) threads.emplace_back([](void* of) { (*static_cast<std::function<void()>*>(of))(); }, &body);
  threads.clear();  // joins
  return os::now_ns() - *begin;
}

Result execute(const Load& load, const Machine::Options* options) {
  Result result;
  if (options == nullptr) {
    Site site(load);
    execute_on(site, 1, &result);
    return result;
  }
  Machine machine(*options);
  machine.run([&] {
    Site site(load);
    // Runs that wait are those that have begun and have no core. Lingering threads count as having one.
    std::uint64_t wastes = 0;
    machine.on_advance = [&](std::uint64_t ns) {
      if (machine.now() > site.begin + load.length_ns) return;  // clients end: their threads do not return
      const int idle = site.scheduler.idle_cores();
      const bool waits = site.inside.load(std::memory_order_relaxed) > load.cores - idle;
      wastes = idle > 0 && waits ? wastes + ns : 0;
      result.wasted_ns += wastes != 0 ? ns : 0;
      result.longest_waste_ns = std::max(result.longest_waste_ns, wastes);
    };
    execute_on(site, options->seed, &result);
    machine.on_advance = nullptr;
  });
  result.machine = machine.counters();
  return result;
}

}  // namespace evn::sim
