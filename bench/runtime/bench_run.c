/* Times a run of a model with one node, Relu of 16 floats, through the C API with one thread: what a run costs beside its work.
 *   usage: bench_run [RUNS]
 * Least of several tries. The aim is 1 us a run. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "evener/evener.h"

/* y = Relu(x), float32[16], opset 13. */
static const unsigned char kModel[] = {
    0x08, 0x08, 0x3a, 0x33,                                                                              /* ir_version 8; graph: */
    0x0a, 0x0c, 0x0a, 0x01, 'x', 0x12, 0x01, 'y',  0x22, 0x04, 'R',  'e',  'l',  'u',                    /* node */
    0x12, 0x01, 'g',                                                                                     /* name */
    0x5a, 0x0f, 0x0a, 0x01, 'x', 0x12, 0x0a, 0x0a, 0x08, 0x08, 0x01, 0x12, 0x04, 0x0a, 0x02, 0x08, 0x10, /* input */
    0x62, 0x0f, 0x0a, 0x01, 'y', 0x12, 0x0a, 0x0a, 0x08, 0x08, 0x01, 0x12, 0x04, 0x0a, 0x02, 0x08, 0x10, /* output */
    0x42, 0x02, 0x10, 0x0d};                                                                             /* opset 13 */

static evn_error g_error = EVN_ERROR_INIT;

static void must(evn_status status) {
  if (status == EVN_OK) return;
  fprintf(stderr, "bench_run: %s\n", g_error.message);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double least_seconds(evn_session session, evn_tensor x, evn_tensor y, int runs) {
  double least = 1e9;
  for (int i = 0; i < 20; ++i) {
    const double begin = now();
    for (int r = 0; r < runs; ++r) {
      evn_tensor out = y;
      must(evn_session_run(session, &x, 1, &out, 1, NULL, &g_error));
      if (y == NULL) evn_tensor_release(out);
    }
    const double seconds = (now() - begin) / runs;
    if (seconds < least) least = seconds;
  }
  return least;
}

int main(int argc, char** argv) {
  const int runs = argc > 1 ? atoi(argv[1]) : 20000;
  if (runs < 1) return 2;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.thread_count = 1;
  evn_runtime runtime = NULL;
  evn_device cpu = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_tensor x = NULL, y = NULL;
  const int64_t dims[] = {16};
  must(evn_runtime_create(&options, &runtime, &g_error));
  must(evn_model_load_buffer(runtime, kModel, sizeof kModel, NULL, &model, &g_error));
  must(evn_session_create(runtime, model, NULL, &session, &g_error));
  must(evn_runtime_device_find(runtime, "cpu", &cpu, &g_error));
  must(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 1, 0, &x, &g_error));
  must(evn_tensor_create(cpu, EVN_DTYPE_FLOAT32, dims, 1, 0, &y, &g_error));
  printf("a run into a tensor of the caller: %.0f ns\n", 1e9 * least_seconds(session, x, y, runs));
  printf("a run that makes its output:       %.0f ns\n", 1e9 * least_seconds(session, x, NULL, runs));
  evn_tensor_release(x);
  evn_tensor_release(y);
  evn_device_release(cpu);
  evn_session_release(session);
  evn_model_release(model);
  evn_runtime_release(runtime);
  return 0;
}
