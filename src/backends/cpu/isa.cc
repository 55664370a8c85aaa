// Which instruction-set cluster runs here. __builtin_cpu_supports looks at CPUID and, for the wide registers, at XCR0; on ARM the
// system says it, which is who may read the registers that do.
#include "backends/cpu/isa.h"

#include <atomic>
#include <iterator>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "base/error.h"
#include "base/os/os.h"

namespace evn {
namespace {

constexpr int kUnset = -1;

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
// Features that __builtin_cpu_supports of gcc 12, or of older clangs, does not know.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 29 & 1u) != 0;
}

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
#elif defined(__aarch64__)
// What the kernel says of the processor, as it stands in the ABI of Linux: HWCAP_ASIMDDP, HWCAP2_I8MM.
#if defined(__linux__)
bool has_dotprod() { return (getauxval(AT_HWCAP) >> 20 & 1u) != 0; }
bool has_i8mm() { return (getauxval(AT_HWCAP2) >> 13 & 1u) != 0; }
#else
bool has_dotprod() { return false; }
bool has_i8mm() { return false; }
#endif
#endif

// A row of isas.cmake.
struct IsaRow {
  const char* name;
  bool compiled;         // for the processor that this was built for, and chosen by EVN_INSTRUCTION_SETS
  Isa base;              // itself where it extends nothing
  Isa int8, bf16, fp16;  // whose loops multiply such operands; k_baseline where there are no such products
  Isa until;             // whose products it has while `permitted` says no
  bool (*detected)();    // whether CPU and system have what it adds to its base
  bool (*permitted)();   // whether the system lets this process use it; nullptr: it need not be asked
};
#include "isa_rows.h"
static_assert(std::size(kRows) == kIsaCount);

const IsaRow& row_of(Isa isa) { return kRows[static_cast<int>(isa)]; }

bool is_permitted(Isa isa) { return row_of(isa).permitted == nullptr || row_of(isa).permitted(); }

// What is multiplied with; it may be less than what was chosen, which is asked for only here.
const IsaRow& products() {
  Isa isa = ChosenIsa::get();
  while (!is_permitted(isa)) isa = row_of(isa).until;
  return row_of(isa);
}

}  // namespace

bool isa_includes(Isa isa, Isa part) {
  while (isa != part && row_of(isa).base != isa) isa = row_of(isa).base;
  return isa == part;
}

bool isa_available(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
  if (!row_of(isa).compiled) return false;
  while (row_of(isa).detected() && row_of(isa).base != isa) isa = row_of(isa).base;  // which need not be compiled
  return row_of(isa).detected();
}

Isa choose_isa(const std::string& wanted) {
  const char* missing = nullptr;
  std::string available;
  for (int i = kIsaCount - 1; i >= 0; --i) {
    const auto isa = static_cast<Isa>(i);
    const bool is_there = isa_available(isa);
    if (wanted.empty() ? is_there : wanted == isa_name(isa) && is_there && is_permitted(isa)) return isa;
    if (wanted == isa_name(isa)) missing = isa_name(isa);
    if (is_there && is_permitted(isa)) available = isa_name(isa) + (available.empty() ? "" : ", " + available);
  }
  if (available.empty())
    fail(EVN_ERROR_UNSUPPORTED, "this CPU has none of the instruction sets that the library was built for (EVN_INSTRUCTION_SETS)");
  if (missing != nullptr) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "EVN_CPU_ISA: this CPU has no %s that this process may use; there are: %s", missing,
         available.c_str());
  }
  fail(EVN_ERROR_INVALID_ARGUMENT, "EVN_CPU_ISA: there is no instruction set \"%.80s\"; there are: %s", wanted.c_str(),
       available.c_str());
}

constinit std::atomic<int> ChosenIsa::isa_{kUnset};

Isa ChosenIsa::get() {
  int isa = isa_.load(std::memory_order_relaxed);
  if (isa == kUnset) {
    isa = static_cast<int>(choose_isa(os::environment("EVN_CPU_ISA")));
    isa_.store(isa, std::memory_order_relaxed);
  }
  return static_cast<Isa>(isa);
}

Isa cpu_isa() { return cluster_of(ChosenIsa::get()); }

Isa integer_isa() { return products().int8; }

Isa bfloat16_isa() { return products().bf16; }

bool has_fast_bfloat16() {
  const Isa isa = bfloat16_isa();
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (isa != Isa::k_baseline && __builtin_cpu_is("amd")) return true;
#endif
  return isa == Isa::k_avx512_amx;
}

Isa float16_isa() {
  const Isa isa = ChosenIsa::get();
  const Isa products = row_of(isa).fp16;
  if (products == isa || products == Isa::k_baseline) return products;
  static std::atomic<int> is_there{kUnset};  // of the one that others than itself name
  int answer = is_there.load(std::memory_order_relaxed);
  if (answer == kUnset) {
    answer = isa_available(products) ? 1 : 0;
    is_there.store(answer, std::memory_order_relaxed);
  }
  return answer != 0 ? products : Isa::k_baseline;
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

const char* isa_name(Isa isa) { return row_of(isa).name; }

}  // namespace evn
