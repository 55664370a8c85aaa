#include "cli/bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "cli/failure.h"
#include "cli/file.h"
#include "cli/outputs.h"
#include "cli/values.h"

namespace evn::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint32_t kEvents = 65536;
constexpr int kLayerRuns = 5;

double since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

int count_option(const Arguments& arguments, const char* name, int otherwise, int max) {
  const char* const text = arguments.get(name);
  return text == nullptr ? otherwise : parse_count(name, text, 1, max);
}

// A line on stderr that is written over as the runs go on; nothing when that is no terminal.
class Progress {
 public:
  explicit Progress(int count) : count_(count), shown_(isatty(STDERR_FILENO) == 1) {}
  ~Progress() {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(int done) {
    if (!shown_ || since(last_) < 100) return;
    last_ = Clock::now();
    std::fprintf(stderr, "\r%d of %d runs", done, count_);
  }

 private:
  int count_;
  bool shown_;
  Clock::time_point last_{};
};

struct Times {
  double load = 0;  // all in ms
  double session = 0;
  double first = 0;
  std::vector<double> runs;  // sorted

  // The smallest time that a share of the runs does not exceed.
  double quantile(double share) const {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(runs.size())));
    return runs[std::clamp<std::size_t>(rank, 1, runs.size()) - 1];
  }
};

std::vector<double> time_runs(const Session& session, const std::vector<Tensor>& inputs, int count) {
  std::vector<double> times;
  Progress progress(count);
  const RunArguments arguments(session.get(), inputs);  // not timed
  for (int i = 0; i < count; ++i) {
    const auto start = Clock::now();
    run_once(arguments, 0);
    times.push_back(since(start));
    progress.step(i + 1);
  }
  std::sort(times.begin(), times.end());
  return times;
}

void start_trace(const Session& session, std::uint32_t events) {
  Call call;
  call.check(evn_session_trace_start(session.get(), events, call));
}

std::string take_trace(const Session& session, evn_format format) {
  return read_text([&](char* buffer, std::size_t capacity, std::size_t* size, evn_error* error) {
    return evn_session_get_trace(session.get(), format, buffer, capacity, size, error);
  });
}

void stop_trace(const Session& session) {
  Call call;
  call.check(evn_session_trace_stop(session.get(), call));
}

struct DeviceMemory {
  std::string name;
  evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
};

struct Memory {
  std::vector<DeviceMemory> devices;
  evn_session_memory_stats session = EVN_SESSION_MEMORY_STATS_INIT;
};

Memory memory_of(const Runtime& runtime, const Session& session) {
  std::uint32_t count = 0;
  Call call;
  call.check(evn_runtime_device_count(runtime.get(), &count, call));
  Memory all;
  all.devices.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    Device device;
    evn_device_info info = EVN_DEVICE_INFO_INIT;
    Call each;
    each.check(evn_runtime_device_at(runtime.get(), i, device.out(), each));
    each.check(evn_device_get_info(device.get(), &info, each));
    each.check(evn_device_get_memory_stats(device.get(), &all.devices[i].stats, each));
    all.devices[i].name = info.name;
  }
  call.check(evn_session_get_memory_stats(session.get(), &all.session, call));
  return all;
}

// Names of devices come from the configuration: letters, digits and little else, but not for certain.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\u%04x", u);
    result += u < 0x20 || c == '"' || c == '\\' ? std::string(escape) : std::string(1, c);
  }
  return result + "\"";
}

void print_json(const Times& t, const Memory& memory, const std::string& trace) {
  std::printf("{\"load_ms\":%.3f,\"session_ms\":%.3f,\"first_run_ms\":%.3f,", t.load, t.session, t.first);
  std::printf("\"runs\":%zu,\"median_ms\":%.4f,\"p90_ms\":%.4f,\"min_ms\":%.4f", t.runs.size(), t.quantile(0.5), t.quantile(0.9),
              t.runs.front());
  std::printf(",\"memory\":{");
  for (std::size_t i = 0; i < memory.devices.size(); ++i) {
    const evn_memory_stats& s = memory.devices[i].stats;
    std::printf("%s%s:{\"current_bytes\":%llu,\"peak_bytes\":%llu,\"reserved_bytes\":%llu", i == 0 ? "" : ",",
                quoted(memory.devices[i].name).c_str(), wide(s.current), wide(s.peak), wide(s.reserved));
    std::printf(",\"cached_bytes\":%llu,\"unused_bytes\":%llu,\"free_blocks\":%llu,\"largest_free_block_bytes\":%llu",
                wide(s.cached), wide(s.unused), wide(s.free_blocks), wide(s.largest_free_block));
    std::printf(",\"fragmentation\":%.4f,\"weights_dropped_bytes\":%llu,\"weights_restored_bytes\":%llu}", s.fragmentation,
                wide(s.weights_dropped), wide(s.weights_restored));
  }
  const evn_session_memory_stats& kept = memory.session;
  std::printf("},\"session_memory\":{\"arena_bytes\":%llu,\"idle_arena_bytes\":%llu,\"peak_arena_bytes\":%llu,\"plan_bytes\":%llu}",
              wide(kept.arena_bytes), wide(kept.idle_arena_bytes), wide(kept.peak_arena_bytes), wide(kept.plan_bytes));
  if (!trace.empty()) std::printf(",\"trace\":%s", trace.c_str());
  std::printf("}\n");
}

void print_plain(const Times& t, const Memory& memory, const std::string& layers) {
  std::printf("load: model %.3f ms, session %.3f ms\n", t.load, t.session);
  std::printf("time: first run %.3f ms; %zu more: median %.3f ms, p90 %.3f ms, least %.3f ms\n", t.first, t.runs.size(),
              t.quantile(0.5), t.quantile(0.9), t.runs.front());
  for (const DeviceMemory& m : memory.devices) {
    std::printf("memory of %s: %llu bytes in use, peak %llu, reserved %llu\n", m.name.c_str(), wide(m.stats.current),
                wide(m.stats.peak), wide(m.stats.reserved));
    std::printf("  %llu cached in %llu blocks, the largest %llu (fragmentation %.2f), %llu unused in blocks in use\n",
                wide(m.stats.cached), wide(m.stats.free_blocks), wide(m.stats.largest_free_block), m.stats.fragmentation,
                wide(m.stats.unused));
    if (m.stats.weights_dropped != 0) {
      std::printf("  packed weights dropped for want of memory: %llu bytes, packed again: %llu\n", wide(m.stats.weights_dropped),
                  wide(m.stats.weights_restored));
    }
  }
  const evn_session_memory_stats& kept = memory.session;
  std::printf("memory of the session: %llu bytes of intermediate values, peak %llu, kept for runs to come %llu; plans %llu\n",
              wide(kept.arena_bytes), wide(kept.peak_arena_bytes), wide(kept.idle_arena_bytes), wide(kept.plan_bytes));
  if (!layers.empty()) std::printf("layers, from %d runs that are traced:\n", kLayerRuns);
  if (!layers.empty()) print_text(layers);
}

}  // namespace

int run_bench(const Arguments& arguments) {
  if (wants_load(arguments)) return run_load_bench(arguments);
  const int count = count_option(arguments, "--runs", 20, 1'000'000);
  const evn_format format = text_format(arguments);
  Times times;
  const Runtime runtime = open_runtime(arguments);
  auto start = Clock::now();
  const Model model = load_model(runtime, arguments.operand(0));
  times.load = since(start);
  start = Clock::now();
  const Session session = open_session(arguments, runtime, model);
  times.session = since(start);
  const std::vector<Tensor> inputs = make_inputs(arguments, runtime, session, false);
  const RunArguments of_run(session.get(), inputs);
  start = Clock::now();
  run_once(of_run, 0);
  times.first = since(start);
  times.runs = time_runs(session, inputs, count);
  const Memory memory = memory_of(runtime, session);
  std::string layers;
  if (arguments.has("--layers")) {
    start_trace(session, kEvents);
    for (int i = 0; i < kLayerRuns; ++i) run_once(session, inputs, 0);
    stop_trace(session);
    layers = take_trace(session, format);
  }
  if (format == EVN_FORMAT_JSON) {
    print_json(times, memory, layers);
  } else {
    print_plain(times, memory, layers);
  }
  return kExitOk;
}

int run_trace(const Arguments& arguments) {
  const int count = count_option(arguments, "--runs", 3, 1'000'000);
  const int events = count_option(arguments, "--events", kEvents, 100'000'000);
  const char* const path = arguments.get("-o");
  const Runtime runtime = open_runtime(arguments);
  const Model model = load_model(runtime, arguments.operand(0));
  const Session session = open_session(arguments, runtime, model);
  const std::vector<Tensor> inputs = make_inputs(arguments, runtime, session, false);
  run_once(session, inputs, 0);
  start_trace(session, static_cast<std::uint32_t>(events));
  time_runs(session, inputs, count);
  stop_trace(session);
  const std::string trace = take_trace(session, EVN_FORMAT_JSON);
  if (path == nullptr) {
    print_text(trace);
    return kExitOk;
  }
  write_file(path, trace, nullptr, 0);
  print_text(take_trace(session, EVN_FORMAT_TEXT));
  return kExitOk;
}

}  // namespace evn::cli
