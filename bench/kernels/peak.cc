// What this machine can do, as a yardstick for the other measurements: float32 multiply-adds of each instruction-set cluster,
// products of bytes and of bfloat16 with their sums by the instruction set that the library would take (EVN_CPU_ISA may name a
// lesser one), and the bandwidth of reading and of a triad (a = b + s * c) in the second cache and out of all caches, for 1 to N
// threads.
//   usage: peak [--threads N[-M]] [--ms T] [--json]    N: as many threads; default: 1 to all cores
// A triad counts the bytes that the code names: two read and one written. Each figure is the best of several tries of T ms.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "backends/cpu/isa.h"
#include "base/os/os.h"
#include "peak_dots.h"
#include "peak_loops.h"

namespace evn {
namespace {

constexpr std::int64_t kInL2 = 384 << 10;  // bytes of all arrays of a thread
constexpr std::int64_t kOutOfCache = 192 << 20;
constexpr int kTries = 5;

const PeakLoops& loops_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::k_avx512) return avx512::peak_loops;
  if (isa == Isa::k_avx2) return avx2::peak_loops;
#endif
  static_cast<void>(isa);
  return baseline::peak_loops;
}

// How the library multiplies bytes or bfloat16 on it; nullptr for an instruction set without such products, or whose were not
// written.
const PeakDots* dots_of(Isa isa) {
#if defined(__x86_64__)
  constexpr std::pair<Isa, const PeakDots*> kAll[] = {
      {Isa::k_avx2, &avx2::peak_dots},
      {Isa::k_avx2_vnni, &avx2_vnni::peak_dots},
      {Isa::k_avx512, &avx512::peak_dots},
      {Isa::k_avx512_vnni, &avx512_vnni::peak_dots},
      {Isa::k_avx512_bf16, &avx512_bf16::peak_dots},
      {Isa::k_avx512_amx, &avx512_amx::peak_dots},
  };
  for (const auto& [its, dots] : kAll) {
    if (its == isa) return dots;
  }
#endif
  static_cast<void>(isa);
  return nullptr;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Runs work(thread) on all threads at once, over and over until the time is up; gives the calls of all threads per second.
double calls_per_second(int threads, double seconds, const std::function<void(int)>& work) {
  std::atomic<int> ready{0};
  std::vector<double> rates(static_cast<std::size_t>(threads));
  const auto body = [&](int thread) {
    work(thread);
    ready.fetch_add(1);
    while (ready.load() < threads) os::relax();
    const double begin = now();
    double end = begin;
    std::int64_t calls = 0;
    for (; end - begin < seconds; end = now(), ++calls) work(thread);
    rates[static_cast<std::size_t>(thread)] = static_cast<double>(calls) / (end - begin);
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(body, t);
  body(0);
  for (std::thread& t : others) t.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

double best_of(int threads, double seconds, const std::function<void(int)>& work) {
  double best = 0;
  for (int i = 0; i < kTries; ++i) best = std::max(best, calls_per_second(threads, seconds, work));
  return best;
}

std::atomic<float> g_sink;  // what loops compute must be used

double multiply_add_gflops(const PeakLoops& loops, int threads, double seconds) {
  constexpr std::int64_t kRounds = 20000;
  const double rate = best_of(threads, seconds, [&](int) { g_sink = loops.multiply_adds(kRounds); });
  return rate * static_cast<double>(kRounds * kPeakChains * loops.lanes * 2) / 1e9;
}

double giga_operations(void (*dots)(std::int64_t), std::int64_t operations, int threads, double seconds) {
  constexpr std::int64_t kRounds = 10000;
  return best_of(threads, seconds, [=](int) { dots(kRounds); }) * static_cast<double>(kRounds * operations) / 1e9;
}

// Bytes that the three arrays of each thread have together.
double gigabytes_per_second(const PeakLoops& loops, int threads, double seconds, std::int64_t bytes, bool triad) {
  const std::int64_t count = bytes / 3 / 4 / 256 * 256;
  std::vector<std::vector<float>> memory(static_cast<std::size_t>(threads));
  for (auto& m : memory) m.assign(static_cast<std::size_t>(3 * count) + 16, 1.0f);
  const double rate = best_of(threads, seconds, [&](int thread) {
    float* p = memory[static_cast<std::size_t>(thread)].data();
    p += 16 - reinterpret_cast<std::uintptr_t>(p) / 4 % 16;
    if (triad) {
      loops.triad(p, p + count, p + 2 * count - 16, 0.5f, count);
    } else {
      g_sink = loops.read(p, 3 * count - 256);
    }
  });
  return rate * static_cast<double>((triad ? 3 * count : 3 * count - 256) * 4) / 1e9;
}

struct Figure {
  const char* name;
  const char* unit;
  std::function<double(int threads)> measure;
};

std::vector<Figure> figures(double seconds) {
  std::vector<Figure> all;
  constexpr std::pair<Isa, const char*> kClusters[] = {
      {Isa::k_avx512, "fma_avx512"}, {Isa::k_avx2, "fma_avx2"}, {Isa::k_baseline, "fma_baseline"}};
  for (const auto& [isa, name] : kClusters) {
    if (!isa_available(isa)) continue;
    all.push_back({name, "GFLOPS", [isa = isa, seconds](int t) { return multiply_add_gflops(loops_of(isa), t, seconds); }});
  }
  if (const PeakDots* dots = dots_of(integer_isa())) {
    all.push_back({"int8", "GOPS", [=](int t) { return giga_operations(dots->int8, dots->int8_operations, t, seconds); }});
  }
  if (const PeakDots* dots = dots_of(bfloat16_isa()); dots != nullptr && dots->bf16 != nullptr) {
    all.push_back({"bf16", "GFLOPS", [=](int t) { return giga_operations(dots->bf16, dots->bf16_operations, t, seconds); }});
  }
  const PeakLoops& loops = loops_of(cpu_isa());
  const auto bandwidth = [&](std::int64_t bytes, bool triad) {
    return [=, &loops](int t) { return gigabytes_per_second(loops, t, seconds, bytes, triad); };
  };
  all.push_back({"read_l2", "GB/s", bandwidth(kInL2, false)});
  all.push_back({"triad_l2", "GB/s", bandwidth(kInL2, true)});
  all.push_back({"read", "GB/s", bandwidth(kOutOfCache, false)});
  all.push_back({"triad", "GB/s", bandwidth(kOutOfCache, true)});
  return all;
}

int usage() {
  std::fprintf(stderr, "usage: peak [--threads N[-M]] [--ms T] [--json]\n");
  return 2;
}

int run(int argc, char** argv) {
  int first = 1, last = os::usable_cores();
  double seconds = 0.02;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      char* end = nullptr;
      first = last = static_cast<int>(std::strtol(argv[++i], &end, 10));
      if (*end == '-') last = static_cast<int>(std::strtol(end + 1, nullptr, 10));
    } else if (std::strcmp(argv[i], "--ms") == 0 && i + 1 < argc) {
      seconds = std::strtod(argv[++i], nullptr) / 1000;
    } else {
      return usage();
    }
  }
  if (first < 1 || last < first || last > 1024 || !(seconds > 0)) return usage();
  std::printf(json ? "{\"isa\": \"%s\", \"int8_isa\": \"%s\", \"bf16_isa\": \"%s\", \"first_threads\": %d"
                   : "%s, bytes by %s, bfloat16 by %s; threads from %d on\n",
              isa_name(cpu_isa()), isa_name(integer_isa()), isa_name(bfloat16_isa()), first);
  for (const Figure& f : figures(seconds)) {
    std::printf(json ? ", \"%s\": [" : "%-14s", f.name);
    for (int t = first; t <= last; ++t) std::printf(json ? "%s%.2f" : "%s%10.1f", json && t > first ? ", " : "", f.measure(t));
    if (json) {
      std::printf("]");
    } else {
      std::printf(" %s\n", f.unit);
    }
    std::fflush(stdout);
  }
  std::printf(json ? "}\n" : "");
  return 0;
}

}  // namespace
}  // namespace evn

int main(int argc, char** argv) { return evn::run(argc, argv); }
