/* Runs a model, and then looks at what its further runs ask of the system: allocations are counted by a malloc of this program that
 * stands before the C library's, and system calls end the program (a seccomp filter), but for these where there are several
 * threads: futex, and the calls by which a worker leaves its caller's core (sched_getaffinity and sched_setaffinity).
 *   usage: quiet_run MODEL THREADS RUNS [NAME=DIM,DIM,...=FILE]...    FILE: the input's bytes
 * Prints "allocations N", then "quiet" or "system call N". tests/models/test_quiet.py runs it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "evener/evener.h"

/* ------------------------------------------------------------------------------------------------- allocations -- */

extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);
extern void* __libc_realloc(void* old, size_t size);
extern void* __libc_memalign(size_t alignment, size_t size);

static int g_counting; /* both by atomic operations */
static long g_allocations;

static void count_one(void) {
  if (__atomic_load_n(&g_counting, __ATOMIC_RELAXED)) __atomic_fetch_add(&g_allocations, 1, __ATOMIC_RELAXED);
}

void* malloc(size_t size) {
  count_one();
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
  count_one();
  return __libc_calloc(count, size);
}

void* realloc(void* old, size_t size) {
  count_one();
  return __libc_realloc(old, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  count_one();
  return __libc_memalign(alignment, size);
}

void* memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }

int posix_memalign(void** memory, size_t alignment, size_t size) {
  void* p = aligned_alloc(alignment, size);
  if (p == NULL) return ENOMEM;
  *memory = p;
  return 0;
}

/* ------------------------------------------------------------------------------------------------ system calls -- */

#define REPORT_FD 97 /* the only one that may be written to */

static void report_and_end(int number, siginfo_t* info, void* context) {
  char text[64];
  (void)number;
  (void)context;
  _exit(write(REPORT_FD, text, (size_t)snprintf(text, sizeof text, "system call %d\n", info->si_syscall)) > 0 ? 1 : 2);
}

static int forbid_system_calls(int has_workers) {
  const struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 6, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, has_workers ? SYS_futex : SYS_exit_group, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, has_workers ? SYS_sched_getaffinity : SYS_exit_group, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, has_workers ? SYS_sched_setaffinity : SYS_exit_group, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, REPORT_FD, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
  };
  const struct sock_fprog program = {sizeof code / sizeof code[0], (struct sock_filter*)code};
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = report_and_end;
  action.sa_flags = SA_SIGINFO;
  if (dup2(1, REPORT_FD) < 0 || sigaction(SIGSYS, &action, NULL) != 0) return -1;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

/* Threads that have just been started make calls of their own before they do what they are for: waits until all but this one sleep.
 */
static void await_sleepers(void) {
  int awake = 1;
  while (awake != 0) {
    DIR* tasks = opendir("/proc/self/task");
    struct dirent* entry;
    awake = 0;
    while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
      char path[300], text[512];
      const char* state;
      FILE* stat;
      size_t n;
      if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid()) continue;
      snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
      stat = fopen(path, "r");
      if (stat == NULL) continue;
      n = fread(text, 1, sizeof text - 1, stat);
      fclose(stat);
      text[n] = '\0';
      state = strrchr(text, ')');
      awake |= state == NULL || state[2] != 'S';
    }
    if (tasks != NULL) closedir(tasks);
    if (awake) usleep(1000);
  }
}

/* ---------------------------------------------------------------------------------------------------- the runs -- */

#define MOST_VALUES 64

static evn_error g_error = EVN_ERROR_INIT;

static void end(const char* what) {
  fprintf(stderr, "quiet_run: %s\n", what);
  exit(3);
}

static void must(evn_status status) {
  if (status != EVN_OK) end(g_error.message);
}

/* "NAME=DIM,DIM=FILE"; no dims: a scalar. */
static void read_input(evn_session session, evn_device cpu, char* text, evn_tensor* inputs) {
  char* file = strrchr(text, '=');
  char* dims_text;
  int64_t dims[EVN_MAX_RANK];
  uint32_t rank = 0, index = 0;
  evn_value_info info = EVN_VALUE_INFO_INIT;
  size_t size = 0;
  void* bytes = NULL;
  FILE* from;
  if (file == NULL) end("an input is not NAME=DIMS=FILE");
  *file++ = '\0';
  dims_text = strrchr(text, '=');
  if (dims_text == NULL) end("an input is not NAME=DIMS=FILE");
  *dims_text++ = '\0';
  while (*dims_text != '\0' && rank < EVN_MAX_RANK) {
    dims[rank++] = strtoll(dims_text, &dims_text, 10);
    if (*dims_text == ',') ++dims_text;
  }
  must(evn_session_find_input(session, text, &index, &g_error));
  must(evn_session_get_input_info(session, index, &info, &g_error));
  must(evn_tensor_create(cpu, info.dtype, dims, rank, 0, &inputs[index], &g_error));
  must(evn_tensor_map(inputs[index], EVN_MAP_WRITE, &bytes, &size, &g_error));
  from = fopen(file, "rb");
  if (from == NULL || fread(bytes, 1, size, from) != size) end("an input's file is too short");
  fclose(from);
  must(evn_tensor_unmap(inputs[index], &g_error));
}

int main(int argc, char** argv) {
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  evn_runtime runtime = NULL;
  evn_device cpu = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_tensor inputs[MOST_VALUES] = {NULL}, outputs[MOST_VALUES] = {NULL};
  uint32_t input_count = 0, output_count = 0;
  int runs, i;
  if (argc < 4) end("usage: quiet_run MODEL THREADS RUNS [NAME=DIMS=FILE]...");
  options.thread_count = atoi(argv[2]);
  runs = atoi(argv[3]);
  must(evn_runtime_create(&options, &runtime, &g_error));
  must(evn_runtime_device_find(runtime, "cpu", &cpu, &g_error));
  must(evn_model_load_file(runtime, argv[1], NULL, &model, &g_error));
  must(evn_session_create(runtime, model, NULL, &session, &g_error));
  must(evn_session_input_count(session, &input_count, &g_error));
  must(evn_session_output_count(session, &output_count, &g_error));
  if (input_count > MOST_VALUES || output_count > MOST_VALUES) end("too many inputs or outputs");
  for (i = 4; i < argc; ++i) read_input(session, cpu, argv[i], inputs);
  must(evn_session_run(session, inputs, input_count, outputs, output_count, NULL, &g_error));

  __atomic_store_n(&g_counting, 1, __ATOMIC_RELAXED);
  for (i = 0; i < runs; ++i) must(evn_session_run(session, inputs, input_count, outputs, output_count, NULL, &g_error));
  __atomic_store_n(&g_counting, 0, __ATOMIC_RELAXED);
  printf("allocations %ld\n", g_allocations);
  fflush(stdout);

  await_sleepers();
  if (forbid_system_calls(options.thread_count > 1) != 0) {
    printf("no seccomp\n");
    fflush(stdout);
    return 0;
  }
  for (i = 0; i < runs; ++i) {
    const evn_status status = evn_session_run(session, inputs, input_count, outputs, output_count, NULL, &g_error);
    if (status != EVN_OK) _exit(4);
  }
  _exit(write(REPORT_FD, "quiet\n", 6) == 6 ? 0 : 2);
}
