/* The cost of evn_session_run of one node into given outputs, by the table of a library that was opened, as the bindings call it:
 * nanoseconds a call.
 *
 *   cost LIBRARY MODEL COUNT      (the model: one float32 input and output of any length)
 */
#include <dlfcn.h>
#include <evener/api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const evn_api* evn;
static evn_error error;

static void check(evn_status status) {
  if (status == EVN_OK) return;
  fprintf(stderr, "%s: %s\n", evn->status_name(status), error.message);
  exit(1);
}

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  void* const found = library != NULL ? dlsym(library, "evn_get_api") : NULL;
  evn_get_api_function get_api = NULL;
  memcpy(&get_api, &found, sizeof found);
  if (get_api == NULL || get_api(EVN_VERSION_NUMBER, &evn) != EVN_OK) return 1;
  evn->error_init(&error, sizeof error);
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.thread_count = 1;
  options.cache_dir = "";
  evn_runtime runtime = NULL;
  evn_device cpu = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_tensor x = NULL, y = NULL;
  const int64_t one = 1;
  check(evn->runtime_create(&options, &runtime, &error));
  check(evn->runtime_device_find(runtime, "cpu", &cpu, &error));
  check(evn->model_load_file(runtime, argv[2], NULL, &model, &error));
  check(evn->session_create(runtime, model, NULL, &session, &error));
  check(evn->tensor_create(cpu, EVN_DTYPE_FLOAT32, &one, 1, 0, &x, &error));
  check(evn->tensor_create(cpu, EVN_DTYPE_FLOAT32, &one, 1, 0, &y, &error));
  const long count = atol(argv[3]);
  for (long i = 0; i < count / 5; ++i) check(evn->session_run(session, &x, 1, &y, 1, NULL, &error));
  const double begin = now_ns();
  for (long i = 0; i < count; ++i) check(evn->session_run(session, &x, 1, &y, 1, NULL, &error));
  printf("%.1f\n", (now_ns() - begin) / (double)count);
  evn->tensor_release(x);
  evn->tensor_release(y);
  evn->session_release(session);
  evn->model_release(model);
  evn->device_release(cpu);
  evn->runtime_release(runtime);
  return 0;
}
