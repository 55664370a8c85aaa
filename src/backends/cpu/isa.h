// Instruction-set clusters of the CPU device: which there are, and which one runs here.
#pragma once

#include <atomic>
#include <iterator>
#include <string>

#include "base/test_access.h"
#include "isa_names.h"

namespace evn {

// Isa has an enumerator `k_<name>` for each row of isas.cmake, from the least on: clusters, for which all inner loops are compiled,
// and their extensions by products of bytes, of bfloat16 or of float16. Loops that have nothing to gain by an extension have the
// cluster's code.
inline constexpr int kIsaCount = static_cast<int>(std::size(kIsaClusters));

// Without the extension.
constexpr Isa cluster_of(Isa isa) { return kIsaClusters[static_cast<int>(isa)]; }

// Whether `part` is `isa` or what that extends.
bool isa_includes(Isa isa, Isa part);

// The best cluster that this CPU and operating system have (CPUID bits and XCR0, never model names), or that of the one that
// EVN_CPU_ISA names. Read once per process, when the first CPU device is opened or listed; throws what choose_isa throws, and then
// the variable is read again the next time.
Isa cpu_isa();

// The one of that name; "": the best that this CPU has. Throws EVN_ERROR_INVALID_ARGUMENT with a list of what there is for a name
// that is none or that this CPU has not.
Isa choose_isa(const std::string& wanted);

// The instruction set for products of bytes: the chosen one with its extension. The first call where there are tiles (AMX) asks the
// system to let the process use them; where it refuses, they are as good as absent.
Isa integer_isa();

// The instruction set for products of bfloat16: an extension that has them, or k_baseline where there is none.
Isa bfloat16_isa();

// Whether these are faster than products of float32: those of AMX, and vdpbf16ps where a core begins as many of them in a cycle as
// multiply-adds, each of which is two. That is so with AMD; Intel's cores with vdpbf16ps have it on one of two ports.
bool has_fast_bfloat16();

// The instruction set for products of float16, which a CPU with AMX may have as well.
Isa float16_isa();

// Whether a core's second-level cache has 2 MB or more. Read once per process; kernels may go by it in what they fetch ahead, not
// in what they compute.
bool has_large_l2();

// True when this CPU can run the cluster (and it was compiled in).
bool isa_available(Isa isa);

const char* isa_name(Isa isa);

// What choose_isa chose for the process, whether or not its products exist for bytes; kernels that are planned go by it.
class ChosenIsa {
 public:
  static Isa get();

 private:
  friend struct test::Access<ChosenIsa>;
  static constexpr int kUnset = -1;
  static std::atomic<int> isa_;
};

}  // namespace evn
