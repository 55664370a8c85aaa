/* Runs a program, and all threads that it starts, as on a processor on which Linux can make CPUID fault, for tests of
 * bench/only_isa.c on others. usage: cpuid_faults PROGRAM [ARGUMENT...]; LD_PRELOAD is what the environment's CPUID_FAULTS_PRELOAD
 * says.
 *
 * arch_prctl(ARCH_SET_CPUID) is answered here, as the kernel would. From the first one on the program goes by single steps: where a
 * thread has forbidden CPUID, the instruction is not executed, and SIGSEGV is delivered with si_code SI_KERNEL. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kArchSetCpuid = 0x1012, kMostThreads = 64, kCannot = 76 };

static struct thread {
  pid_t id;
  bool is_forbidden; /* CPUID */
  bool is_faulting;  /* a SIGSEGV that was sent for CPUID has not been delivered yet */
} g_threads[kMostThreads];

static struct thread* thread_of(pid_t id) {
  for (int i = 0; i < kMostThreads; ++i) {
    if (g_threads[i].id == id) return &g_threads[i];
  }
  for (int i = 0; i < kMostThreads; ++i) {
    if (g_threads[i].id == 0) {
      g_threads[i] = (struct thread){id, false, false};
      return &g_threads[i];
    }
  }
  fprintf(stderr, "cpuid_faults: more than %d threads\n", kMostThreads);
  exit(kCannot);
}

/* At the entry to a system call before the first single step. Whether it was answered here. */
static bool answers(struct thread* t) {
  struct user_regs_struct r;
  if (ptrace(PTRACE_GETREGS, t->id, NULL, &r) != 0 || r.orig_rax != SYS_arch_prctl || r.rdi != kArchSetCpuid) return false;
  t->is_forbidden = r.rsi == 0;
  r.orig_rax = (unsigned long long)-1; /* no system call */
  ptrace(PTRACE_SETREGS, t->id, NULL, &r);
  int status = 0;
  ptrace(PTRACE_SYSCALL, t->id, NULL, NULL);
  waitpid(t->id, &status, __WALL);
  ptrace(PTRACE_GETREGS, t->id, NULL, &r);
  r.rax = 0;
  ptrace(PTRACE_SETREGS, t->id, NULL, &r);
  return true;
}

/* Before each instruction: what is not to be executed as it is. */
static void look(struct thread* t, pid_t program) {
  struct user_regs_struct r;
  if (ptrace(PTRACE_GETREGS, t->id, NULL, &r) != 0) return;
  errno = 0;
  const long code = ptrace(PTRACE_PEEKTEXT, t->id, (void*)r.rip, NULL);
  if (errno != 0) return;
  if ((code & 0xffff) == 0x050f && r.rax == SYS_arch_prctl && r.rdi == kArchSetCpuid) { /* syscall */
    t->is_forbidden = r.rsi == 0;
    r.rax = 0;
    r.rcx = r.rip += 2;
    ptrace(PTRACE_SETREGS, t->id, NULL, &r);
  } else if ((code & 0xffff) == 0xa20f && t->is_forbidden && !t->is_faulting) { /* cpuid */
    t->is_faulting = true;
    syscall(SYS_tgkill, program, t->id, SIGSEGV);
  }
}

int main(int count, char** arguments) {
  if (count < 2) return kCannot;
  const pid_t program = fork();
  if (program == 0) {
    const char* preload = getenv("CPUID_FAULTS_PRELOAD");
    if (preload != NULL) setenv("LD_PRELOAD", preload, 1);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(kCannot);
    execv(arguments[1], arguments + 1);
    _exit(kCannot);
  }
  int status = 0;
  if (program < 0 || waitpid(program, &status, 0) != program || !WIFSTOPPED(status)) return kCannot;
  ptrace(PTRACE_SETOPTIONS, program, NULL, (void*)(PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD));
  enum __ptrace_request go = PTRACE_SYSCALL; /* PTRACE_SINGLESTEP from the first answer on */
  ptrace(go, program, NULL, NULL);
  int ended = kCannot;
  for (pid_t id; (id = waitpid(-1, &status, __WALL)) > 0;) {
    struct thread* t = thread_of(id);
    if (!WIFSTOPPED(status)) {
      t->id = 0;
      if (id == program) ended = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      continue;
    }
    long sent = WSTOPSIG(status);
    if (sent == SIGTRAP && status >> 16 == PTRACE_EVENT_CLONE) {
      unsigned long child = 0;
      ptrace(PTRACE_GETEVENTMSG, id, NULL, &child);
      thread_of((pid_t)child)->is_forbidden = t->is_forbidden;
      sent = 0;
    } else if (sent == (SIGTRAP | 0x80)) {
      sent = 0;
      if (go == PTRACE_SYSCALL && answers(t)) go = PTRACE_SINGLESTEP;
    } else if (sent == SIGTRAP || sent == SIGSTOP) {
      sent = 0;
    } else if (sent == SIGSEGV && t->is_faulting) {
      siginfo_t info;
      ptrace(PTRACE_GETSIGINFO, id, NULL, &info);
      info.si_code = SI_KERNEL;
      ptrace(PTRACE_SETSIGINFO, id, NULL, &info);
      t->is_faulting = false;
      ptrace(PTRACE_SINGLESTEP, id, NULL, (void*)sent); /* to the handler's first instruction */
      continue;
    }
    if (sent == 0 && go == PTRACE_SINGLESTEP) look(t, program);
    ptrace(go, id, NULL, (void*)sent);
  }
  return ended;
}
