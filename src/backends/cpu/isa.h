// Instruction-set clusters of the CPU device: which there are, and which one runs here.
#pragma once

#include <string>

namespace evn {

// The last five are extensions of clusters by products of bytes, of bfloat16 or of float16: loops that have nothing to gain by them
// have the cluster's code.
enum class Isa { k_baseline, k_avx2, k_avx512, k_avx2_vnni, k_avx512_vnni, k_avx512_bf16, k_avx512_fp16, k_avx512_amx };

// Without the extension.
constexpr Isa cluster_of(Isa isa) {
  switch (isa) {
    case Isa::k_avx2_vnni: return Isa::k_avx2;
    case Isa::k_avx512_vnni:
    case Isa::k_avx512_bf16:
    case Isa::k_avx512_fp16:
    case Isa::k_avx512_amx: return Isa::k_avx512;
    default: return isa;
  }
}

// The best cluster that this CPU and operating system have (CPUID bits and XCR0, never model names), or that of the one that
// EVN_CPU_ISA names. Read once per process, when the first CPU device is opened or listed; throws what choose_isa throws, and then
// the variable is read again the next time.
Isa cpu_isa();

// The class of that name ("baseline", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx512_amx");
// "": the best that this CPU has. Throws EVN_ERROR_INVALID_ARGUMENT with a list of what there is for a name that is none or that
// this CPU has not.
Isa choose_isa(const std::string& wanted);

// The same with its extension, for products of bytes. The first call where there are tiles (AMX) asks the system to let the process
// use them; where it refuses, they are as good as absent.
Isa integer_isa();

// The same for products of bfloat16: an extension that has them, or k_baseline where there is none.
Isa bfloat16_isa();

// The same for products of float16, which a CPU with AMX may have as well.
Isa float16_isa();

// Whether a core's second-level cache has 2 MB or more. Read once per process; kernels may go by it in what they fetch ahead, not
// in what they compute.
bool has_large_l2();

// True when this CPU can run the cluster (and it was compiled in).
bool isa_available(Isa isa);

const char* isa_name(Isa isa);

// For tests: overrides what these functions say for kernels planned from now on. The caller checks isa_available first.
void force_isa(Isa isa);

// What force_isa was last given, else the choice of choose_isa, whether or not its products exist for bytes. For tests that put it
// back.
Isa chosen_isa();

}  // namespace evn
