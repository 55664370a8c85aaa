/* A library for LD_PRELOAD: the program, and every thread that it starts, finds by CPUID a processor with AVX2 and FMA, and nothing
 * wider or newer (no AVX-512, AVX10, AMX, AVX-VNNI). So engines that have no switch for it can be compared with AVX2; isa.py builds
 * it. It is linked with -z initfirst: constructors of other libraries ask CPUID too.
 *
 * Linux makes CPUID fault for a thread and what it clones (arch_prctl(ARCH_SET_CPUID, 0); x86-64 with cpuid_fault). The handler
 * executes the instruction with faulting off, clears bits, and goes on behind it. XGETBV cannot be made to fault: it still shows
 * the state of the wide registers, so a program that looks at nothing else would not be held back. A program that installs a
 * handler of its own for SIGSEGV ends at its next CPUID, and so does CPUID in a thread that blocks SIGSEGV: neither goes by
 * unnoticed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#if !defined(__linux__) || !defined(__x86_64__)
#error "CPUID faulting is a thing of Linux on x86-64"
#endif

enum { kArchSetCpuid = 0x1012, kEax = 0, kEbx, kEcx, kEdx, kCannot = 77 };

#define BIT(n) (1u << (n))

static struct sigaction g_before;
static unsigned long g_answered;

/* Without errno, which a handler must not touch: what the kernel returns. */
static long allow_cpuid(long allowed) {
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "0"((long)SYS_arch_prctl), "D"((long)kArchSetCpuid), "S"(allowed)
                   : "rcx", "r11", "memory");
  return result;
}

static void cpuid(unsigned leaf, unsigned subleaf, unsigned r[4]) {
  __asm__ volatile("cpuid" : "=a"(r[kEax]), "=b"(r[kEbx]), "=c"(r[kEcx]), "=d"(r[kEdx]) : "0"(leaf), "2"(subleaf) : "memory");
}

/* State components of XCR0: 5 to 7 are AVX-512's, 17 and 18 AMX's, 19 APX's. */
static int hidden_state(unsigned component) { return (component >= 5 && component <= 7) || (component >= 17 && component <= 19); }

static void hide(unsigned leaf, unsigned subleaf, unsigned r[4]) {
  if (leaf == 7 && subleaf == 0) {
    r[kEax] = 0; /* no further subleaves: AVX-VNNI, AVX512-BF16, AVX10, ... are told there */
    /* avx512: f, dq, ifma, pf, er, cd, bw, vl */
    r[kEbx] &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
    /* avx512: vbmi, vbmi2, vnni, bitalg, vpopcntdq; gfni, vaes and vpclmulqdq, which no processor of AVX2's time has */
    r[kEcx] &= ~(BIT(1) | BIT(6) | BIT(8) | BIT(9) | BIT(10) | BIT(11) | BIT(12) | BIT(14));
    /* avx512: 4vnniw, 4fmaps, vp2intersect, fp16; amx: bf16, tile, int8 */
    r[kEdx] &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));
  } else if (leaf == 0xd && subleaf == 0) {
    /* The sizes in EBX and ECX stay: XSAVE stores as much as the kernel has enabled. */
    for (unsigned component = 0; component < 32; ++component) {
      if (hidden_state(component)) r[kEax] &= ~BIT(component);
    }
  } else if (leaf == 7 || (leaf == 0xd && hidden_state(subleaf)) || leaf == 0x19 || leaf == 0x1d || leaf == 0x1e || leaf == 0x24) {
    memset(r, 0, 4 * sizeof *r); /* key locker, AMX's tiles and products, AVX10 */
  }
}

static void on_fault(int number, siginfo_t* info, void* context) {
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  const unsigned char* code = (const unsigned char*)registers[REG_RIP];
  /* A general protection fault comes from the kernel without an address; its instruction can be read. */
  if (info->si_code == SI_KERNEL && code[0] == 0x0f && code[1] == 0xa2) {
    const unsigned leaf = (unsigned)registers[REG_RAX], subleaf = (unsigned)registers[REG_RCX];
    unsigned r[4];
    allow_cpuid(1);
    cpuid(leaf, subleaf, r);
    allow_cpuid(0);
    hide(leaf, subleaf, r);
    registers[REG_RAX] = r[kEax];
    registers[REG_RBX] = r[kEbx];
    registers[REG_RCX] = r[kEcx];
    registers[REG_RDX] = r[kEdx];
    registers[REG_RIP] += 2;
    __atomic_fetch_add(&g_answered, 1, __ATOMIC_RELAXED);
    return;
  }
  sigaction(number, &g_before, NULL); /* and the instruction faults again */
  if (info->si_code <= 0) raise(number);
}

/* How many CPUID instructions were answered so far. */
__attribute__((visibility("default"))) unsigned long only_avx2_answered(void) {
  return __atomic_load_n(&g_answered, __ATOMIC_RELAXED);
}

/* CPUID as the program sees it: EAX, EBX, ECX, EDX. */
__attribute__((visibility("default"))) void only_avx2_cpuid(unsigned leaf, unsigned subleaf, unsigned registers[4]) {
  cpuid(leaf, subleaf, registers);
}

__attribute__((constructor)) static void begin(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &g_before);
  const long result = allow_cpuid(0);
  if (result != 0) {
    fprintf(stderr, "no CPUID faulting: %s\n", result == -ENODEV ? "the processor has none" : strerror((int)-result));
    _exit(kCannot);
  }
}
