// Random calls of all exported functions from several threads, with live, stale, foreign and random handles, structs of wrong sizes
// and memory that ends at unreadable pages, in floating-point environments that a host may have set. No call crashes, hangs,
// reports EVN_ERROR_INTERNAL, changes outputs where it fails, or leaves the environment changed.
//
// AddressSanitizer needs allocator_may_return_null=1, so that huge requests fail as they do without it.
//
// usage: api_fuzz [--seed N] [--seconds N] [--threads N] [--counts] [--full-only]
//   --full-only   only with EVN_TEST_FULL=1
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include "evener/event.h"
#include "evener/opencl.h"
#include "evener/quantize.h"
#include "evener/request.h"
#include "evener/state.h"
#include "evener/train.h"
#include "tests/api_fuzz/models.h"
#include "tests/api_fuzz/scenes.h"

namespace evn::fuzz {
namespace {

constexpr std::size_t kMostElements = 80, kMostStrings = 9;
constexpr std::uint64_t kMostAddressBytes = 10ull << 30;  // of the process, so that huge requests fail
constexpr int kHangSeconds = 120, kMostThreads = 16;

template <typename Handle>
Handle untouched() {
  return reinterpret_cast<Handle>(0xdeadbeefcafe1234u);
}

template <typename Handle>
void keep_made(Random& random, Handle made, const char* function, evn_status status) {
  if (status == EVN_OK && made != untouched<Handle>()) return keep(random, made);
  if (status != EVN_OK && made != untouched<Handle>()) complain("a call that failed changed an output", function, status);
}

template <typename Handle, std::size_t N>
void keep_filled(Random& random, Handle (&now)[N], const Handle (&before)[N], const char* function, evn_status status) {
  for (std::size_t i = 0; i < N; ++i) {
    if (now[i] == before[i]) continue;
    if (status != EVN_OK) complain("a call that failed changed an output", function, status);
    keep(random, now[i]);
  }
}

struct Function {
  const char* name;
  void (*call)(Random&);
};

#include "calls.inc"

constexpr std::size_t kFunctionCount = std::size(kFunctions);
std::atomic<std::uint64_t> g_counts[kFunctionCount][EVN_ERROR_FORKED + 1];

// What a thread calls, and since when; for the watchdog.
struct Worker {
  std::atomic<const char*> function{nullptr};
  std::atomic<std::int64_t> since{0};
};
Worker g_workers[kMostThreads];
std::atomic<bool> g_stop{false};

std::int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Percent of the draws of a function that are carried out: slow functions, and those that end what others need, are rarer.
int weight_of(std::string_view name) {
  static constexpr struct {
    std::string_view name;
    int percent;
  } kWeights[] = {{"evn_opencl_store_programs", 0},    {"evn_session_finish", 8},       {"evn_session_release", 15},
                  {"evn_state_release", 15},           {"evn_trainer_release", 15},     {"evn_runtime_release", 15},
                  {"evn_device_release", 15},          {"evn_runtime_calibrate", 20},   {"evn_cancel_request", 20},
                  {"evn_runtime_create", 25},          {"evn_quantizer_guard", 30},     {"evn_quantizer_verify", 20},
                  {"evn_device_set_memory_limit", 30}, {"evn_runtime_device_find", 50}, {"evn_runtime_describe_devices", 50},
                  {"evn_model_load_buffer", 60},       {"evn_model_load_file", 60}};
  for (const auto& w : kWeights) {
    if (w.name == name) return w.percent;
  }
  return name.ends_with("_release") ? 50 : 100;
}

std::vector<std::size_t> find_functions(std::initializer_list<std::string_view> names) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < kFunctionCount; ++i) {
    for (const std::string_view name : names) {
      if (name == kFunctions[i].name) found.push_back(i);
    }
  }
  return found;
}

void begin(Worker& worker, const char* function) {
  worker.since = now_seconds();
  worker.function = function;
}

void work(Worker& worker, std::uint64_t seed) {
  static const std::vector<std::size_t> busy = find_functions(
      {"evn_session_run", "evn_session_submit", "evn_request_take", "evn_trainer_step", "evn_loader_next", "evn_state_restore",
       "evn_quantizer_add_batch", "evn_runtime_reconfigure", "evn_state_fork", "evn_session_create"});
  Random random(seed);
  for (std::uint64_t n = 0; !g_stop; ++n) {
    if (n % 250 == 0) {
      begin(worker, "make_objects");
      make_objects(random);
    }
    const Function& f = kFunctions[random.chance(25) ? busy[random.below(busy.size())] : random.below(kFunctionCount)];
    if (!random.chance(weight_of(f.name))) continue;
    const std::uint64_t way = random.below(100);
    begin(worker, f.name);
    if (way < 6) run_with_state(random);
    else if (way < 11) train_step(random);
    else f.call(random);
    worker.function = nullptr;
  }
}

void write_file(const std::string& path, const std::string& bytes) {
  std::FILE* const f = std::fopen(path.c_str(), "wb");
  if (f == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), f) != bytes.size() || std::fclose(f) != 0) {
    std::fprintf(stderr, "api_fuzz: cannot write %s\n", path.c_str());
    std::exit(2);
  }
}

std::string make_folder() {
  const char* const base = std::getenv("TMPDIR");
  std::string name = std::string(base != nullptr ? base : "/tmp") + "/api_fuzz.XXXXXX";
  if (mkdtemp(name.data()) == nullptr) std::exit(2);
  name += '/';
  for (const NamedModel& m : models()) write_file(name + m.name, m.bytes);
  write_file(name + "models.yaml",
             "models: {mlp: {path: mlp.onnx}, cnn: {path: cnn.onnx, warm: [{x: [2, 3, 8, 8]}]}, cut: {path: cut.onnx}}\n"
             "devices: {cpu: {type: cpu, threads: 2, memory_limit: 64MiB}}\n");
  write_file(name + "batching.yaml",
             "models: {mlp: {path: mlp.onnx}, cnn: {path: cnn.onnx}}\n"
             "session: {batching: {max_batch: 4, max_delay: 200us}}\ndevices: {cpu: {type: cpu, threads: 2}}\n");
  return name;
}

// Removes the files of the folder, and those of folders in it.
void remove_folder(const std::string& name) {
  if (DIR* const d = opendir(name.c_str())) {
    while (const dirent* const entry = readdir(d)) {
      const std::string file = entry->d_name;
      if (file == "." || file == "..") continue;
      if (unlink((name + file).c_str()) != 0) remove_folder(name + file + "/");
    }
    closedir(d);
  }
  rmdir(name.c_str());
}

// Ends the process where a call does not return.
void watch(int threads) {
  for (int i = 0; i < threads; ++i) {
    const char* const function = g_workers[i].function;
    if (function == nullptr || now_seconds() - g_workers[i].since < kHangSeconds) continue;
    std::fprintf(stderr, "%s has not returned for %d seconds\n", function, kHangSeconds);
    std::abort();
  }
}

void print_counts() {
  for (std::size_t i = 0; i < kFunctionCount; ++i) {
    std::printf("%-40s", kFunctions[i].name);
    for (int s = 0; s <= EVN_ERROR_FORKED; ++s) {
      if (const std::uint64_t n = g_counts[i][s]) std::printf(" %s %llu", evn_status_name(s), static_cast<unsigned long long>(n));
    }
    std::printf("\n");
  }
}

bool is_full() {
  const char* const full = std::getenv("EVN_TEST_FULL");
  return full != nullptr && std::string_view(full) == "1";
}

int default_seconds() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (is_full()) return 600;
#endif
  return 20;
}

int fuzz(std::uint64_t seed, int seconds, int threads, bool counts) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit limit{kMostAddressBytes, kMostAddressBytes};
  setrlimit(RLIMIT_AS, &limit);
#endif
  set_folder(make_folder());
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) workers.emplace_back(work, std::ref(g_workers[i]), seed * 1000 + static_cast<std::uint64_t>(i));
  for (const std::int64_t end = now_seconds() + seconds; now_seconds() < end;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    watch(threads);
  }
  g_stop = true;
  std::atomic<bool> ended{false};
  std::thread watchdog([&] {
    while (!ended) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      watch(threads);
    }
  });
  for (std::thread& w : workers) w.join();
  ended = true;
  watchdog.join();
  release_handles();
  remove_folder(folder());
  std::uint64_t calls = 0;
  for (const auto& function : g_counts) {
    for (const auto& n : function) calls += n;
  }
  if (counts) print_counts();
  std::printf("seed %llu: %llu calls, %llu complaints\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(calls), static_cast<unsigned long long>(complaint_count()));
  return complaint_count() == 0 && calls > 0 ? 0 : 1;
}

}  // namespace

void note(const char* function, evn_status status) {
  static thread_local std::size_t last = 0;
  for (std::size_t i = 0; i < kFunctionCount; ++i) {
    const std::size_t at = (last + i) % kFunctionCount;
    if (std::string_view(kFunctions[at].name) != function) continue;
    last = at;
    if (status >= 0 && status <= EVN_ERROR_FORKED) ++g_counts[at][status];
    return;
  }
}

}  // namespace evn::fuzz

#if defined(__SANITIZE_THREAD__)
// Threads share handles, so that two of them may use the bytes of one tensor at a time, which is for a host to order. Races on
// anything else of the library are reported.
extern "C" const char* __tsan_default_suppressions() { return "race:evn::copy_tensor\n"; }  // NOLINT: the sanitizer's name
#endif

int main(int count, char** arguments) {
  std::uint64_t seed = 1;
  int seconds = evn::fuzz::default_seconds(), threads = 4;
  bool counts = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view name = arguments[i];
    const bool has_value = i + 1 < count;
    if (name == "--counts") counts = true;
    else if (name == "--full-only" && evn::fuzz::is_full()) continue;
    else if (name == "--full-only") return std::puts("skipped: set EVN_TEST_FULL=1 for another seed"), 0;
    else if (name == "--seed" && has_value) seed = std::strtoull(arguments[++i], nullptr, 10);
    else if (name == "--seconds" && has_value) seconds = std::atoi(arguments[++i]);
    else if (name == "--threads" && has_value) threads = std::min(std::atoi(arguments[++i]), evn::fuzz::kMostThreads);
    else return std::fprintf(stderr, "usage: api_fuzz [--seed N] [--seconds N] [--threads N] [--counts] [--full-only]\n"), 2;
  }
  return evn::fuzz::fuzz(seed, seconds, threads, counts);
}
