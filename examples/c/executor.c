/* Runs a model on threads of the program's own: the library starts none, and the results have the same bits as with its own.
 *
 *   cc executor.c $(pkg-config --cflags --libs evener) -lpthread -o executor
 *   ./executor model.onnx
 *
 * A real program hands the tasks to the pool that it has anyway. Here each call starts threads and joins them, which is right but
 * not fast.
 */
#include <evener/evener.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4

static evn_error error = EVN_ERROR_INIT;

static void check(evn_status status) {
  if (status == EVN_OK) return;
  fprintf(stderr, "%s: %s%s%s\n", evn_status_name(status), error.message, error.node[0] != '\0' ? " at node " : "", error.node);
  exit(1);
}

typedef struct share {
  evn_task task;
  void* context;
  uint32_t index;
} share;

static void* run_share(void* argument) {
  const share* s = argument;
  s->task(s->context, s->index);
  return NULL;
}

/* The contract: task(context, i) once for each i < count, on any threads, and no return before all have ended. `count` is never
 * above the runtime's thread_count. */
static void parallel_for(void* user, uint32_t count, evn_task task, void* context) {
  pthread_t threads[THREADS];
  share shares[THREADS];
  int started[THREADS] = {0};
  ++*(unsigned*)user;
  for (uint32_t i = 1; i < count; ++i) {
    shares[i] = (share){task, context, i};
    started[i] = pthread_create(&threads[i], NULL, run_share, &shares[i]) == 0;
  }
  task(context, 0); /* the caller works too */
  for (uint32_t i = 1; i < count; ++i) {
    if (started[i]) {
      pthread_join(threads[i], NULL);
    } else {
      task(context, i); /* the system had no thread for it */
    }
  }
}

/* Runs the model once on an input of ones and returns the output's bytes, which the caller frees. */
static void* run_model(const evn_runtime_options* options, const char* path, size_t* size) {
  evn_runtime runtime = NULL;
  evn_device cpu = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_tensor x = NULL, y = NULL;
  evn_value_info info = EVN_VALUE_INFO_INIT;
  void* data = NULL;
  check(evn_runtime_create(options, &runtime, &error));
  check(evn_runtime_device_at(runtime, 0, &cpu, &error));
  check(evn_model_load_file(runtime, path, NULL, &model, &error));
  check(evn_session_create(runtime, model, NULL, &session, &error));
  check(evn_session_get_input_info(session, 0, &info, &error));
  if (info.dtype != EVN_DTYPE_FLOAT32 || info.rank > EVN_MAX_RANK) {
    fprintf(stderr, "input %s is not float32, or its rank is not known\n", info.name);
    exit(1);
  }
  for (uint32_t i = 0; i < info.rank; ++i) info.dims[i] = info.dims[i] >= 0 ? info.dims[i] : i == 0 ? 16 : 128;
  check(evn_tensor_create(cpu, info.dtype, info.dims, info.rank, 0, &x, &error));
  check(evn_tensor_map(x, EVN_MAP_WRITE, &data, size, &error));
  for (size_t i = 0; i < *size / sizeof(float); ++i) ((float*)data)[i] = (float)(i % 256) / 255;
  check(evn_tensor_unmap(x, &error));
  check(evn_session_run(session, &x, 1, &y, 1, NULL, &error));
  check(evn_tensor_map(y, EVN_MAP_READ, &data, size, &error));
  void* copy = malloc(*size);
  if (copy == NULL) exit(1);
  memcpy(copy, data, *size);
  evn_tensor_release(x);
  evn_tensor_release(y);
  evn_session_release(session);
  evn_model_release(model);
  evn_device_release(cpu);
  evn_runtime_release(runtime);
  return copy;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s MODEL.onnx\n", argv[0]);
    return 2;
  }
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.thread_count = THREADS;
  size_t size = 0, own_size = 0;
  void* own = run_model(&options, argv[1], &own_size);
  unsigned calls = 0;
  options.parallel_for = parallel_for;
  options.parallel_user = &calls;
  void* ours = run_model(&options, argv[1], &size);
  const int same = size == own_size && memcmp(own, ours, size) == 0;
  printf("the executor was called %s; the results are %s\n", calls > 0 ? "for some operators" : "never: the model is too small",
         same ? "the same bits" : "different");
  free(own);
  free(ours);
  return same ? 0 : 1;
}
