// Which instruction-set cluster runs here. __builtin_cpu_supports looks at CPUID and, for the wide registers, at XCR0.
#include "backends/cpu/isa.h"

#include <atomic>
#include <string>

#include "base/os/os.h"

namespace evn {
namespace {

constexpr int kUnset = -1;
std::atomic<int> g_isa{kUnset};

Isa choose() {
  const std::string wanted = os::environment("EVN_CPU_ISA");
  for (Isa isa : {Isa::k_baseline, Isa::k_avx2, Isa::k_avx512}) {
    if (wanted == isa_name(isa) && isa_available(isa)) return isa;
  }
  if (isa_available(Isa::k_avx512)) return Isa::k_avx512;
  return isa_available(Isa::k_avx2) ? Isa::k_avx2 : Isa::k_baseline;
}

}  // namespace

bool isa_available(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (isa == Isa::k_avx2) return avx2;
  if (isa == Isa::k_avx512) {
    return avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  }
#endif
  return isa == Isa::k_baseline;
}

Isa cpu_isa() {
  int isa = g_isa.load(std::memory_order_relaxed);
  if (isa == kUnset) {
    isa = static_cast<int>(choose());
    g_isa.store(isa, std::memory_order_relaxed);
  }
  return static_cast<Isa>(isa);
}

bool has_large_l2() {
  static std::atomic<int> large{kUnset};
  int answer = large.load(std::memory_order_relaxed);
  if (answer == kUnset) {
    answer = os::l2_cache_bytes() >= 2 << 20 ? 1 : 0;
    large.store(answer, std::memory_order_relaxed);
  }
  return answer != 0;
}

void force_isa(Isa isa) { g_isa.store(static_cast<int>(isa), std::memory_order_relaxed); }

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::k_avx2: return "avx2";
    case Isa::k_avx512: return "avx512";
    default: return "baseline";
  }
}

}  // namespace evn
