// Instruction-set clusters of the CPU device: which there are, and which one runs here.
#pragma once

namespace evn {

enum class Isa { k_baseline, k_avx2, k_avx512 };

// The best cluster that this CPU and operating system have (CPUID bits and XCR0, never model names), or the one that EVN_CPU_ISA
// names ("baseline", "avx2", "avx512"), if the CPU has it; a name that it has not is ignored. Read once per process.
Isa cpu_isa();

// Whether a core's second-level cache has 2 MB or more. Read once per process; kernels may go by it in what they fetch ahead, not in what
// they compute.
bool has_large_l2();

// True when this CPU can run the cluster (and it was compiled in).
bool isa_available(Isa isa);

const char* isa_name(Isa isa);

// For tests: overrides cpu_isa() for kernels planned from now on. The caller checks isa_available first.
void force_isa(Isa isa);

}  // namespace evn
