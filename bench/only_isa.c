/* A library for LD_PRELOAD: the program, and every thread that it starts, finds by CPUID a processor of the class of instruction
 * sets that the environment variable EVENER_ONLY_ISA names, and nothing wider or newer (only_isa.h). So engines that have no switch
 * for it can be compared within a class; isa.py builds it. It is linked with -z initfirst: constructors of other libraries ask
 * CPUID too.
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

#include "only_isa.h"

#if !defined(__linux__) || !defined(__x86_64__)
#error "CPUID faulting is a thing of Linux on x86-64"
#endif

enum { kArchSetCpuid = 0x1012, kCannot = 77 };

static enum isa_class g_class;
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
    hide(g_class, leaf, subleaf, r);
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
__attribute__((visibility("default"))) unsigned long only_isa_answered(void) {
  return __atomic_load_n(&g_answered, __ATOMIC_RELAXED);
}

/* CPUID as the program sees it: EAX, EBX, ECX, EDX. */
__attribute__((visibility("default"))) void only_isa_cpuid(unsigned leaf, unsigned subleaf, unsigned registers[4]) {
  cpuid(leaf, subleaf, registers);
}

/* This runs before the C library has set `environ`. */
__attribute__((constructor)) static void begin(int count, char** arguments, char** environment) {
  static const char variable[] = "EVENER_ONLY_ISA=";
  const char* name = "";
  (void)count, (void)arguments;
  for (char** entry = environment; *entry != NULL; ++entry) {
    if (strncmp(*entry, variable, sizeof variable - 1) == 0) name = *entry + sizeof variable - 1;
  }
  g_class = find_class(name);
  if (g_class == kNoClass) {
    fprintf(stderr, "EVENER_ONLY_ISA: there is no class of instruction sets \"%.80s\"\n", name);
    _exit(kCannot);
  }
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
