// Requests on the simulated machine: their dispatcher, and batching. Whole sessions of the C API execute in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/mutex.h"
#include "base/os/os.h"
#include "base/scheduling_constants.h"
#include "base/thread_pool.h"
#include "evener/evener.hpp"
#include "tests/model/onnx_writer.h"
#include "tests/simulation/load.h"
#include "tests/support/sanitized.h"

#define EVN_PARALLEL_FOR(kind) __##kind##__ZN3evn10ThreadPool12parallel_forEllPFvPvillES1_PNS_12ScheduledRunE
extern "C" void EVN_PARALLEL_FOR(real)(evn::ThreadPool*, std::int64_t, std::int64_t, evn::ThreadPool::Body, void*,
                                       evn::ScheduledRun*);

namespace evn::sim {
namespace {

// Virtual time that the model's kernel takes.
struct Cost {
  std::uint64_t run_ns = 0, row_ns = 0;
  std::int64_t cheap_rows = INT64_MAX;  // each row above this number takes three times as long
};
constinit const Cost* g_cost = nullptr;         // null: no time
constexpr std::int64_t kRowElements = 1 << 15;  // one tile of the kernel, so that its tiles tell the number of rows
constinit std::int64_t g_row_tiles = 0;         // tiles of one row; 0: set by the next run

struct RequestClient {
  std::int32_t priority = 0;
  std::uint64_t interval_ns = 0;  // mean of the time between submissions, which are random; 0: a closed loop
  std::uint64_t deadline_ns = 0;  // from the submission; 0: none
  std::uint64_t callback_ns = 0;  // CPU time of the callback that each request ends with
};

struct RequestLoad {
  int cores = 2;
  std::uint64_t length_ns = kSecond;
  Cost cost;
  std::vector<RequestClient> clients;
  std::int32_t max_batch = 0;  // 0: no batching
  std::uint64_t max_delay_ns = 0;
};

struct RequestSite {
  explicit RequestSite(const RequestLoad& l) : load(l) {
    test::OnnxWriter w(17);
    w.add_input("x", test::kF32, {"N", kRowElements}).add_output("y").add_node("Relu", {"x"}, {"y"});
    const std::string bytes = w.serialize();
    evener::SessionOptions session_options;
    if (load.max_batch != 0) session_options.batching = {load.max_batch, std::chrono::nanoseconds(load.max_delay_ns), "", {}};
    session = runtime.session(runtime.load(bytes.data(), bytes.size()), session_options);
    std::vector<evener::Tensor> inputs;
    inputs.push_back(runtime.tensor({1, kRowElements}, std::vector<float>(kRowElements)));
    g_cost = &load.cost;
    g_row_tiles = 0;
    session.run(inputs);
    row = std::move(inputs[0]);
  }
  ~RequestSite() { g_cost = nullptr; }

  const RequestLoad& load;
  evener::Runtime runtime{[this] {
    evener::RuntimeOptions options;
    options.cache_dir = "";
    options.thread_count = load.cores;
    return options;
  }()};
  evener::Session session;
  evener::Tensor row;
};

struct RequestThread {
  RequestSite& site;
  const RequestClient& client;
  ClientResult result = {};
  std::uint64_t submitted = 0, ended = 0;
  Mutex mutex = {};
  Condition end = {};

  struct Sent {
    RequestThread& thread;
    std::uint64_t begin;
  };

  static void done(void* user, evn_request request) {
    const std::unique_ptr<Sent> sent(static_cast<Sent*>(user));
    RequestThread& t = sent->thread;
    evn_tensor out = nullptr;
    const evn_status status = evn_request_take(request, &out, 1, nullptr);
    const std::uint64_t latency = os::now_ns() - sent->begin, deadline = t.client.deadline_ns;
    EXPECT_EQ(evn_tensor_release(out), EVN_OK);
    EXPECT_TRUE(status == EVN_OK || (status == EVN_ERROR_TIMEOUT && deadline != 0)) << status;
    if (status == EVN_OK) t.result.latency_ns.push_back(latency);
    else ++t.result.late;
    if (deadline != 0) t.result.most_late_ns = std::max(t.result.most_late_ns, latency - std::min(latency, deadline));
    if (t.client.callback_ns != 0) compute(t.client.callback_ns);
    const std::lock_guard<Mutex> lock(t.mutex);
    ++t.ended;
    t.end.notify_one();
  }

  void submit(std::uint64_t begin) {
    evn_run_options run = EVN_RUN_OPTIONS_INIT;
    run.priority = client.priority;
    run.deadline_ns = client.deadline_ns != 0 ? begin + client.deadline_ns : 0;
    evn_submit_options options = EVN_SUBMIT_OPTIONS_INIT;
    options.done = &done;
    options.user = new Sent{*this, begin};
    const evn_tensor input = site.row.get();
    ASSERT_EQ(evn_session_submit(site.session.get(), &input, 1, nullptr, 1, &run, &options, nullptr, nullptr), EVN_OK);
    ++submitted;
    if (client.interval_ns != 0) return;
    std::unique_lock<Mutex> lock(mutex);
    end.wait(lock, [this] { return ended == submitted; });
  }
};

// Every request ends exactly once, or the process ends with the machine's message.
Result simulate(const RequestLoad& load, std::uint64_t seed, double jitter = 0) {
  Result result;
  Machine machine({.cores = load.cores, .seed = seed, .jitter = jitter});
  machine.run([&] {
    RequestSite site(load);
    std::vector<std::unique_ptr<RequestThread>> clients;
    std::vector<Pace> paces;
    for (const RequestClient& c : load.clients) {
      clients.push_back(std::make_unique<RequestThread>(site, c));
      paces.push_back({c.interval_ns});
    }
    std::uint64_t begin = 0;
    execute_clients(paces, load.length_ns, seed, &begin, [&](std::size_t i, std::uint64_t time) { clients[i]->submit(time); });
    site.session.finish();
    result.time_ns = os::now_ns() - begin;
    for (const auto& c : clients) {
      EXPECT_EQ(c->result.latency_ns.size() + c->result.late, c->submitted);
      result.clients.push_back(std::move(c->result));
    }
  });
  result.machine = machine.counters();
  std::printf("[          ] seed %llu, %d cores, %zu clients, run of %.3f ms + %.3f ms a row: %s\n",
              static_cast<unsigned long long>(seed), load.cores, load.clients.size(), static_cast<double>(load.cost.run_ns) * 1e-6,
              static_cast<double>(load.cost.row_ns) * 1e-6, result.summary().c_str());
  return result;
}

class RequestSimulation : public testing::TestWithParam<int> {
 protected:
  int cores() const { return GetParam(); }
  std::vector<RequestClient> clients(int for_each_core, RequestClient client = {}) const {
    return std::vector<RequestClient>(static_cast<std::size_t>(cores() * for_each_core), client);
  }
};

// The course of a load of short runs depends on chance: medians of seven seeds.
TEST_P(RequestSimulation, ClientsOfAClosedLoopGetEqualSharesOfAllCores) {
  for (const std::uint64_t run : {50 * kMicrosecond, kMillisecond, 20 * kMillisecond}) {
    std::vector<double> fairness, used;
    for (std::uint64_t seed = 1; seed <= 7; ++seed) {
      const Result result = simulate({cores(), std::max(20 * run, 20 * kMillisecond), {run}, clients(2)}, seed);
      fairness.push_back(result.fairness());
      used.push_back(result.runs_per_second() * static_cast<double>(run) * 1e-9 / cores());
    }
    EXPECT_GE(median_of(fairness), 0.9);
    EXPECT_GE(median_of(used), run >= kMillisecond ? 0.8 : 0.05);
  }
}

TEST_P(RequestSimulation, RequestsThatArriveAtRandomTimesAreServedInTime) {
  for (const std::uint64_t run : {50 * kMicrosecond, kMillisecond, 20 * kMillisecond}) {
    const RequestClient client{.interval_ns = 4 * run};  // half of the cores
    std::vector<std::uint64_t> medians;
    for (std::uint64_t seed = 1; seed <= 7; ++seed)
      medians.push_back(
          simulate({cores(), std::max(40 * run, 20 * kMillisecond), {run}, clients(2, client)}, seed).all().quantile(0.5));
    EXPECT_LE(median_of(medians), 3 * run + (run >= kMillisecond || cores() < 16 ? 1 : 20) * kMillisecond);
  }
}

TEST_P(RequestSimulation, AnUrgentRequestWaitsForNoneOfTheOthers) {
  RequestLoad load{cores(), kSecond, {20 * kMillisecond}, clients(4)};
  load.clients.push_back({.priority = 3, .interval_ns = 100 * kMillisecond});
  const ClientResult urgent = simulate(load, 3).clients.back();
  EXPECT_GE(urgent.latency_ns.size(), 3u);
  EXPECT_LE(urgent.quantile(0.5), load.cost.run_ns + 3 * kMillisecond);
}

// A second of waiting counts as one step of priority for the dispatcher; a run that has begun waits for a second at most.
TEST_P(RequestSimulation, NoRequestStarves) {
  RequestLoad load{cores(), 6 * kSecond, {20 * kMillisecond}, clients(2, {.priority = 1})};
  load.clients.push_back({});
  const ClientResult low = simulate(load, 4).clients.back();
  EXPECT_GE(low.latency_ns.size(), 2u);
  EXPECT_LE(low.quantile(1), 5 * kSecond);
}

// Four times as much work as the cores can do.
TEST_P(RequestSimulation, RequestsEndAtTheirDeadlines) {
  const RequestClient client{.interval_ns = 5 * kMillisecond, .deadline_ns = 30 * kMillisecond};
  const ClientResult all = simulate({cores(), 500 * kMillisecond, {20 * kMillisecond}, clients(1, client)}, 5).all();
  EXPECT_LE(all.most_late_ns, scheduling::kWatchIntervalNs + 5 * kMillisecond);
}

// Twice as much work as the cores can do. Requests that can no longer end in time do not take the cores from those that can.
TEST_P(RequestSimulation, UnderTwiceTheLoadMostOfTheCoresTimeEndsInTime) {
  const RequestClient client{.interval_ns = 20 * kMillisecond, .deadline_ns = 60 * kMillisecond};
  std::vector<double> used;
  for (std::uint64_t seed = 1; seed <= 5; ++seed)
    used.push_back(simulate({cores(), kSecond, {20 * kMillisecond}, clients(2, client)}, seed).runs_per_second() / (50 * cores()));
  EXPECT_GE(median_of(used), 0.6);
}

TEST_P(RequestSimulation, LongCallbacksHoldUpNoOtherRequest) {
  RequestLoad load{cores(), 500 * kMillisecond, {kMillisecond}, clients(1, {.interval_ns = 10 * kMillisecond})};
  const Result without = simulate(load, 6);
  for (int i = 0; i < cores(); ++i) load.clients.push_back({.interval_ns = 150 * kMillisecond, .callback_ns = 5 * kMillisecond});
  const Result with = simulate(load, 6);
  EXPECT_LE(with.clients[0].quantile(0.5), without.clients[0].quantile(0.5) + scheduling::kLongCallbackNs + 4 * kMillisecond);
}

INSTANTIATE_TEST_SUITE_P(Cores, RequestSimulation,
                         testing::ValuesIn(test::kIsSanitized ? std::vector<int>{4} : std::vector<int>{2, 4, 16}),
                         testing::PrintToStringParamName());

// With 32 clients and runs whose rows are nearly free, joined rows are served many times faster.
TEST(BatchingSimulation, RowsThatAreCheapTogetherAreJoined) {
  const RequestLoad load{2, 3 * kSecond, {kMillisecond, 20 * kMicrosecond}, std::vector<RequestClient>(32), 16, kMillisecond};
  EXPECT_GE(simulate(load, 7).runs_per_second(), 10'000);
}

// Two cores compute at most 1,000 rows of 2 ms a second, one by one.
TEST(BatchingSimulation, RowsThatGainNothingAreNotJoined) {
  const RequestLoad load{2, 3 * kSecond, {0, 2 * kMillisecond, 1}, std::vector<RequestClient>(8), 8, kMillisecond};
  const double rows = simulate(load, 8).runs_per_second();
  EXPECT_GE(rows, 800);
  EXPECT_LE(rows, 1000);
}

// Rows above the fourth of a batch cost three times as much: two cores compute 2,000 rows a second in batches of four, 1,600 in
// batches of eight, 1,391 in batches of 32 and 800 one by one.
TEST(BatchingSimulation, TheBestSizeOfABatchIsFound) {
  const RequestLoad load{2,  4 * kSecond, {2 * kMillisecond, 500 * kMicrosecond, 4}, std::vector<RequestClient>(32),
                         32, kMillisecond};
  const double rows = simulate(load, 9).runs_per_second();
  EXPECT_GE(rows, 1650);
  EXPECT_LE(rows, 2000);
}

// Requests that have lost their time while small sizes were tried do not keep the batches small.
TEST(BatchingSimulation, RequestsWithDeadlinesAreJoined) {
  const RequestClient client{.interval_ns = 12 * kMillisecond, .deadline_ns = 20 * kMillisecond};
  const RequestLoad load{2,  2 * kSecond,      {4 * kMillisecond, 200 * kMicrosecond}, std::vector<RequestClient>(16, client),
                         16, 30 * kMillisecond};
  for (std::uint64_t seed = 1; seed <= 5; ++seed) EXPECT_GE(simulate(load, seed).runs_per_second(), 1100);  // of 1,333 that come
}

TEST(BatchingSimulation, AClientThatIsAloneWaitsForNobody) {
  const RequestLoad load{2, kSecond, {kMillisecond, 10 * kMicrosecond}, std::vector<RequestClient>(1), 16, 10 * kMillisecond};
  EXPECT_LE(simulate(load, 10).clients[0].quantile(0.5), 1500 * kMicrosecond);
}

// Delays at random calls of the machine: a lost wake-up ends the process with a message.
TEST(RequestSimulationOfRandomLoads, EveryRequestEnds) {
  for (std::uint64_t seed = 1; seed <= (test::kIsSanitized ? 5 : 30); ++seed) {
    Random random(seed);
    RequestLoad load{1 << random.below(4), 50 * kMillisecond, {(1 + random.below(20)) * 100 * kMicrosecond, 50 * kMicrosecond}, {}};
    load.max_batch = random.below(2) == 0 ? 0 : 8;
    load.max_delay_ns = random.below(3) * kMillisecond;
    const std::uint64_t count = 1 + random.below(static_cast<std::uint64_t>(4 * load.cores));
    for (std::uint64_t i = 0; i < count; ++i) {
      load.clients.push_back({.priority = static_cast<std::int32_t>(random.below(3)),
                              .interval_ns = random.below(2) * 3 * kMillisecond,
                              .deadline_ns = random.below(4) == 0 ? 5 * kMillisecond : 0,
                              .callback_ns = random.below(4) == 0 ? 6 * kMillisecond : 0});
    }
    simulate(load, seed, 0.002);
  }
}

}  // namespace

// Seam of the kernels: what a job of the model takes is shared by the threads of its pool; the job itself takes no time.
extern "C" void EVN_PARALLEL_FOR(wrap)(ThreadPool* pool, std::int64_t count, std::int64_t grain, ThreadPool::Body body,
                                       void* context, ScheduledRun* run) {
  if (g_cost != nullptr) {
    if (g_row_tiles == 0) g_row_tiles = count;
    const Cost& cost = *g_cost;
    const std::int64_t rows = count / g_row_tiles, dear = std::max<std::int64_t>(rows - cost.cheap_rows, 0);
    const std::uint64_t all_ns = cost.run_ns + static_cast<std::uint64_t>(rows + 2 * dear) * cost.row_ns;
    std::uint64_t range_ns = std::min(all_ns, std::clamp(all_ns / 16, 20 * kMicrosecond, kMillisecond));
    if (range_ns != 0) {
      std::pair<std::uint64_t, const ScheduledRun*> job{range_ns, run};
      const auto range = [](void* of_job, int, std::int64_t, std::int64_t) {
        const auto& [ns, of] = *static_cast<decltype(job)*>(of_job);
        if (of == nullptr || !of->cancel().stop()) compute(ns);
      };
      EVN_PARALLEL_FOR(real)(pool, static_cast<std::int64_t>(all_ns / range_ns), 1, range, &job, run);
    }
  }
  EVN_PARALLEL_FOR(real)(pool, count, grain, body, context, run);
}

}  // namespace evn::sim
