/* A process for each device: each has a YAML file of its own, all of them map one file of packed weights, so that these are in
 * memory once, and a process that dies takes only its own device with it. Inputs are dealt over pipes to whoever is free, and
 * results are gathered in their order.
 *
 *   cc processes.c $(pkg-config --cflags --libs evener) -o processes
 *   ./processes model.onnx weights.cache cpu.yaml gpu.yaml
 *
 * Prints the largest output of each of 16 inputs, then how many processes there were. The parent uses no function of the library,
 * so that it may fork. */
#include <errno.h>
#include <evener/evener.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kItems = 16, kMostWorkers = 8 };

typedef struct worker {
  pid_t process;
  int to, from; /* pipes */
  int item;     /* that it computes; -1: none */
} worker;

typedef struct result {
  int32_t item, index;
  float value;
} result;

/* All of it, or 0 where the other side has gone. */
static int move_all(int fd, void* data, size_t size, int writes) {
  char* at = data;
  while (size > 0) {
    const ssize_t n = writes ? write(fd, at, size) : read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    at += n;
    size -= (size_t)n;
  }
  return 1;
}

/* ----------------------------------------------------------------------------------------------------------- a worker -- */

static evn_error error = EVN_ERROR_INIT;

static void check(evn_status status) {
  if (status == EVN_OK) return;
  fprintf(stderr, "%s: %s%s%s\n", evn_status_name(status), error.message, error.node[0] != '\0' ? " at node " : "", error.node);
  _exit(1);
}

static void work(const char* model_path, const char* cache, const char* config, int in, int out) {
  evn_runtime runtime = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_device cpu = NULL;
  evn_tensor x = NULL, y = NULL;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.config_path = config;
  check(evn_runtime_create(&options, &runtime, &error));
  check(evn_model_load_file(runtime, model_path, NULL, &model, &error));
  evn_session_options how = EVN_SESSION_OPTIONS_INIT;
  how.cache_file = cache; /* the first process writes it, the others find it written */
  how.cache_flags = EVN_CACHE_MAP;
  check(evn_session_create(runtime, model, &how, &session, &error));
  evn_value_info info = EVN_VALUE_INFO_INIT;
  check(evn_session_get_input_info(session, 0, &info, &error));
  if (info.dtype != EVN_DTYPE_FLOAT32 || info.rank > EVN_MAX_RANK) {
    fprintf(stderr, "input %s is not float32, or its rank is not known\n", info.name);
    _exit(1);
  }
  for (uint32_t i = 0; i < info.rank; ++i) info.dims[i] = info.dims[i] >= 0 ? info.dims[i] : i == 0 ? 1 : 128;
  check(evn_runtime_device_at(runtime, 0, &cpu, &error));
  check(evn_tensor_create(cpu, info.dtype, info.dims, info.rank, 0, &x, &error));
  int32_t item = -1; /* ready */
  while (move_all(out, &(result){item, 0, 0}, sizeof(result), 1) && move_all(in, &item, sizeof item, 0)) {
    void* data = NULL;
    size_t size = 0;
    check(evn_tensor_map(x, EVN_MAP_WRITE, &data, &size, &error));
    for (size_t i = 0; i < size / sizeof(float); ++i) ((float*)data)[i] = (float)((i + (size_t)item) % 256) / 255;
    check(evn_tensor_unmap(x, &error));
    check(evn_session_run(session, &x, 1, &y, 1, NULL, &error));
    check(evn_tensor_map(y, EVN_MAP_READ, &data, &size, &error));
    result r = {item, 0, ((float*)data)[0]};
    for (size_t i = 1; i < size / sizeof(float); ++i) {
      if (((float*)data)[i] > r.value) r.index = (int32_t)i, r.value = ((float*)data)[i];
    }
    check(evn_tensor_unmap(y, &error));
    if (!move_all(out, &r, sizeof r, 1)) break;
    item = -1;
  }
  evn_tensor_release(y), evn_tensor_release(x), evn_device_release(cpu);
  evn_session_release(session), evn_model_release(model), evn_runtime_release(runtime);
  _exit(0);
}

/* ---------------------------------------------------------------------------------------------------------- the parent -- */

static int start(worker* w, const worker* others, int count, const char* model, const char* cache, const char* config) {
  int to[2], from[2];
  if (pipe(to) != 0 || pipe(from) != 0) return 0;
  w->process = fork();
  if (w->process < 0) return 0;
  if (w->process == 0) {
    for (int i = 0; i < count; ++i) close(others[i].to), close(others[i].from); /* or their ends would never be seen */
    close(to[1]), close(from[0]);
    work(model, cache, config, to[0], from[1]);
  }
  close(to[0]), close(from[1]);
  w->to = to[1];
  w->from = from[0];
  w->item = -1;
  return 1;
}

int main(int argc, char** argv) {
  worker workers[kMostWorkers];
  result results[kItems];
  int waiting[kItems], wait_count = 0, done = 0, count = 0, alive = 0;
  if (argc < 4 || argc > 3 + kMostWorkers) return 2;
  signal(SIGPIPE, SIG_IGN);
  for (int i = kItems; i-- > 0;) waiting[wait_count++] = i;
  for (int i = 3; i < argc; ++i) {
    result ready;
    if (!start(&workers[count], workers, count, argv[1], argv[2], argv[i])) return 1;
    /* One after the other: the first one packs, and the cache is there for the others. */
    if (!move_all(workers[count].from, &ready, sizeof ready, 0)) {
      fprintf(stderr, "the process of %s does not start\n", argv[i]);
      close(workers[count].to), close(workers[count].from);
      waitpid(workers[count].process, NULL, 0);
      continue;
    }
    ++count;
  }
  alive = count;
  const int started = count;
  while (done < kItems && alive > 0) {
    struct pollfd polls[kMostWorkers];
    for (int i = 0; i < count; ++i) {
      worker* const w = &workers[i];
      if (w->process != 0 && w->item < 0 && wait_count > 0) {
        int32_t item = waiting[wait_count - 1];
        if (move_all(w->to, &item, sizeof item, 1)) w->item = item, --wait_count;
      }
      polls[i] = (struct pollfd){w->process != 0 ? w->from : -1, POLLIN, 0};
    }
    if (poll(polls, (nfds_t)count, -1) < 0 && errno != EINTR) return 1;
    for (int i = 0; i < count; ++i) {
      worker* const w = &workers[i];
      result r;
      if (polls[i].fd < 0 || (polls[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      if (move_all(w->from, &r, sizeof r, 0)) {
        if (r.item < 0) continue; /* ready for another */
        results[r.item] = r;
        ++done;
        w->item = -1;
        continue;
      }
      if (w->item >= 0) waiting[wait_count++] = w->item; /* it has died: another one computes this */
      waitpid(w->process, NULL, 0);
      w->process = 0;
      --alive;
    }
  }
  for (int i = 0; i < count; ++i) {
    close(workers[i].to), close(workers[i].from);
    if (workers[i].process != 0) waitpid(workers[i].process, NULL, 0);
  }
  if (done < kItems) return fprintf(stderr, "no process is left\n"), 1;
  for (int i = 0; i < kItems; ++i) printf("%d %g\n", results[i].index, (double)results[i].value);
  printf("%d processes\n", started);
  return 0;
}
