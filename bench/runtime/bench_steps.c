/* Steps of a decoder whose cache grows: each run's outputs from the second on are the next run's inputs from the third on, so that
 * every run has shapes that no run had before. Prints which share of their time goes into what new shapes cost.
 *   usage: bench_steps MODEL [STEPS [THREADS]]    inputs: ids [1, 1], positions [1, 1], then caches; their open axes but the first
 * are empty at first "planning" is what the library says of its own plans (log event plan.created). "new shapes" is the difference
 * to a second run of each step, whose plan and memory are there: planning, arenas, and what the caches have lost meanwhile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "evener/evener.h"

enum { kMost = 64 };

static evn_error g_error = EVN_ERROR_INIT;
static double g_plan_ns = 0;
static int g_plans = 0;
static int g_full_plans = 0;

static void must(evn_status status) {
  if (status == EVN_OK) return;
  fprintf(stderr, "bench_steps: %s\n", g_error.message);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void on_log(void* user, const evn_log_record* record) {
  (void)user;
  if (strcmp(record->event, "plan.created") != 0) return;
  ++g_plans;
  int full = 1;
  for (uint32_t i = 0; i < record->field_count; ++i) {
    if (strcmp(record->fields[i].key, "duration_ns") == 0) g_plan_ns += strtod(record->fields[i].value, NULL);
    if (strcmp(record->fields[i].key, "made_over") == 0 && record->fields[i].value[0] != '0') full = 0;
  }
  g_full_plans += full;
}

static void set_int(evn_tensor tensor, int64_t value) {
  void* data = NULL;
  size_t bytes = 0;
  must(evn_tensor_map(tensor, EVN_MAP_WRITE, &data, &bytes, &g_error));
  *(int64_t*)data = value;
  must(evn_tensor_unmap(tensor, &g_error));
}

static double run(evn_session session, evn_tensor* in, uint32_t inputs, evn_tensor* out, uint32_t outputs) {
  const double begin = now();
  must(evn_session_run(session, in, inputs, out, outputs, NULL, &g_error));
  return now() - begin;
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int steps = argc > 2 ? atoi(argv[2]) : 512;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.thread_count = argc > 3 ? atoi(argv[3]) : 1;
  options.log_sink = on_log;
  options.log_level = EVN_LOG_DEBUG;
  evn_runtime runtime = NULL;
  evn_device cpu = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  must(evn_runtime_create(&options, &runtime, &g_error));
  must(evn_model_load_file(runtime, argv[1], NULL, &model, &g_error));
  must(evn_session_create(runtime, model, NULL, &session, &g_error));
  must(evn_runtime_device_find(runtime, "cpu", &cpu, &g_error));
  uint32_t inputs = 0, outputs = 0;
  must(evn_session_input_count(session, &inputs, &g_error));
  must(evn_session_output_count(session, &outputs, &g_error));
  if (inputs > kMost || outputs > kMost || inputs != outputs + 1) {
    fprintf(stderr, "bench_steps: not a decoder with a cache\n");
    return 1;
  }
  evn_tensor in[kMost] = {0}, out[kMost] = {0};
  for (uint32_t i = 0; i < inputs; ++i) {
    evn_value_info info = EVN_VALUE_INFO_INIT;
    must(evn_session_get_input_info(session, i, &info, &g_error));
    int64_t dims[EVN_MAX_RANK];
    for (uint32_t d = 0; d < info.rank; ++d) dims[d] = info.dims[d] >= 0 ? info.dims[d] : d == 0 || i < 2 ? 1 : 0;
    must(evn_tensor_create(cpu, info.dtype, dims, info.rank, 0, &in[i], &g_error));
  }
  double first = 0, second = 0;
  for (int step = 0; step < steps; ++step) {
    set_int(in[0], step % 100);
    set_int(in[1], step);
    first += run(session, in, inputs, out, outputs);
    for (uint32_t j = 0; j < outputs; ++j) evn_tensor_release(out[j]);
    memset(out, 0, sizeof out);
    second += run(session, in, inputs, out, outputs);
    evn_tensor_release(out[0]);
    for (uint32_t j = 1; j < outputs; ++j) {
      evn_tensor_release(in[j + 1]);
      in[j + 1] = out[j];
    }
    memset(out, 0, sizeof out);
  }
  printf("%d steps: %.1f ms, and %.1f ms with all plans there\n", steps, 1e3 * first, 1e3 * second);
  printf("planning: %d plans, %d of them full, %.1f us each, %.2f %% of the time\n", g_plans, g_full_plans,
         1e-3 * g_plan_ns / g_plans, 1e-7 * g_plan_ns / first);
  printf("new shapes: %.2f %% of the time\n", 100 * (first - second) / first);
  for (uint32_t i = 0; i < inputs; ++i) evn_tensor_release(in[i]);
  evn_session_release(session);
  evn_model_release(model);
  evn_device_release(cpu);
  evn_runtime_release(runtime);
  return 0;
}
