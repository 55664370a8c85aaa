// Which instruction-set cluster runs here. __builtin_cpu_supports looks at CPUID and, for the wide registers, at XCR0.
#include "backends/cpu/isa.h"

#include <atomic>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/error.h"
#include "base/os/os.h"

namespace evn {
namespace {

constexpr int kUnset = -1;
std::atomic<int> g_isa{kUnset};

// From the best on.
constexpr Isa kAll[] = {Isa::k_avx512_amx, Isa::k_avx512_fp16, Isa::k_avx512_bf16, Isa::k_avx512_vnni,
                        Isa::k_avx512,     Isa::k_avx2_vnni,   Isa::k_avx2,        Isa::k_baseline};

Isa chosen() {
  int isa = g_isa.load(std::memory_order_relaxed);
  if (isa == kUnset) {
    isa = static_cast<int>(choose_isa(os::environment("EVN_CPU_ISA")));
    g_isa.store(isa, std::memory_order_relaxed);
  }
  return static_cast<Isa>(isa);
}

// Whether the system lets the process use tiles.
bool tiles_are_allowed() {
  static std::atomic<int> allowed{kUnset};
  int answer = allowed.load(std::memory_order_relaxed);
  if (answer == kUnset) {
    answer = os::allow_tiles() ? 1 : 0;
    allowed.store(answer, std::memory_order_relaxed);
  }
  return answer != 0;
}

#if defined(__x86_64__)
// What __builtin_cpu_supports of gcc 12 has no word for.
bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1u) != 0;
}

bool has_avx512_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1u) != 0;
}

bool has_avx512_fp16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 23 & 1u) != 0;
}

// The tiles, for bytes and for bfloat16, and that the system keeps their state. Whether this process may use them is another
// question.
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d >> 24 & 3u) != 3u || (d >> 22 & 1u) == 0) return false;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c >> 27 & 1u) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17 & 3u) == 3u;
}
#endif

}  // namespace

bool isa_available(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  const bool avx512_vnni = avx512 && __builtin_cpu_supports("avx512vnni") != 0;
  switch (isa) {
    case Isa::k_avx2: return avx2;
    case Isa::k_avx2_vnni: return avx2 && has_avx_vnni();
    case Isa::k_avx512: return avx512;
    case Isa::k_avx512_vnni: return avx512_vnni;
    case Isa::k_avx512_bf16: return avx512_vnni && has_avx512_bf16();
    case Isa::k_avx512_fp16: return avx512_vnni && has_avx512_bf16() && has_avx512_fp16();
    case Isa::k_avx512_amx: return avx512_vnni && has_avx512_bf16() && has_amx();
    default: return true;
  }
#else
  return isa == Isa::k_baseline;
#endif
}

Isa choose_isa(const std::string& wanted) {
  const char* missing = nullptr;
  for (const Isa isa : kAll) {
    if (!wanted.empty() && wanted != isa_name(isa)) continue;
    if (isa_available(isa) && (wanted.empty() || isa != Isa::k_avx512_amx || tiles_are_allowed())) return isa;
    missing = isa_name(isa);
  }
  std::string available;
  for (const Isa isa : kAll) {
    if (!isa_available(isa) || (isa == Isa::k_avx512_amx && !tiles_are_allowed())) continue;
    available = isa_name(isa) + (available.empty() ? "" : ", " + available);
  }
  if (missing != nullptr) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "EVN_CPU_ISA: this CPU has no %s that this process may use; there are: %s", missing,
         available.c_str());
  }
  fail(EVN_ERROR_INVALID_ARGUMENT, "EVN_CPU_ISA: there is no instruction set \"%.80s\"; there are: %s", wanted.c_str(),
       available.c_str());
}

Isa cpu_isa() { return cluster_of(chosen()); }

Isa integer_isa() {
  const Isa isa = chosen();
  if (isa == Isa::k_avx512_bf16 || isa == Isa::k_avx512_fp16) return Isa::k_avx512_vnni;
  return isa != Isa::k_avx512_amx || tiles_are_allowed() ? isa : Isa::k_avx512_vnni;
}

Isa bfloat16_isa() {
  const Isa isa = chosen();
  if (isa == Isa::k_avx512_amx) return tiles_are_allowed() ? isa : Isa::k_avx512_bf16;
  return isa == Isa::k_avx512_bf16 || isa == Isa::k_avx512_fp16 ? Isa::k_avx512_bf16 : Isa::k_baseline;
}

Isa float16_isa() {
  const Isa isa = chosen();
  if (isa == Isa::k_avx512_fp16) return isa;
  static const bool is_there = isa_available(Isa::k_avx512_fp16);
  return isa == Isa::k_avx512_amx && is_there ? Isa::k_avx512_fp16 : Isa::k_baseline;
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

Isa chosen_isa() { return chosen(); }

void force_isa(Isa isa) { g_isa.store(static_cast<int>(isa), std::memory_order_relaxed); }

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::k_avx2: return "avx2";
    case Isa::k_avx512: return "avx512";
    case Isa::k_avx2_vnni: return "avx2_vnni";
    case Isa::k_avx512_vnni: return "avx512_vnni";
    case Isa::k_avx512_bf16: return "avx512_bf16";
    case Isa::k_avx512_fp16: return "avx512_fp16";
    case Isa::k_avx512_amx: return "avx512_amx";
    default: return "baseline";
  }
}

}  // namespace evn
