/* Memory under control: a cap, the program's own allocator, and what an error says when the cap is reached.
 *
 *   cc limits.c $(pkg-config --cflags --libs evener) -o limits
 *   ./limits model.onnx BYTES
 */
#define _POSIX_C_SOURCE 200112L
#include <evener/evener.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Counts what it gives. It may be called from several threads. */
typedef struct heap {
  atomic_llong bytes;
  atomic_llong blocks;
} heap;

static void* heap_allocate(void* user, size_t size, size_t alignment) {
  heap* h = user;
  void* memory = NULL;
  if (posix_memalign(&memory, alignment, size) != 0) return NULL;
  atomic_fetch_add(&h->bytes, (long long)size);
  atomic_fetch_add(&h->blocks, 1);
  return memory;
}

static void heap_free(void* user, void* memory, size_t size) {
  heap* h = user;
  atomic_fetch_sub(&h->bytes, (long long)size);
  atomic_fetch_sub(&h->blocks, 1);
  free(memory);
}

/* Every call that fails fills the error; the program goes on and releases what it has. */
static evn_status load_and_run(evn_runtime runtime, const char* path, evn_error* error) {
  evn_device cpu = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_tensor x = NULL, y = NULL;
  evn_value_info info = EVN_VALUE_INFO_INIT;
  evn_status status = evn_runtime_device_at(runtime, 0, &cpu, error);
  if (status == EVN_OK) status = evn_model_load_file(runtime, path, NULL, &model, error);
  if (status == EVN_OK) status = evn_session_create(runtime, model, NULL, &session, error);
  if (status == EVN_OK) status = evn_session_get_input_info(session, 0, &info, error);
  if (status == EVN_OK && info.rank > EVN_MAX_RANK) {
    snprintf(error->message, sizeof error->message, "input %.64s has no rank", info.name);
    error->node[0] = '\0';
    status = EVN_ERROR_UNSUPPORTED;
  }
  if (status == EVN_OK) {
    for (uint32_t i = 0; i < info.rank; ++i) info.dims[i] = info.dims[i] >= 0 ? info.dims[i] : i == 0 ? 1 : 128;
    status = evn_tensor_create(cpu, info.dtype, info.dims, info.rank, 0, &x, error);
  }
  if (status == EVN_OK) status = evn_session_run(session, &x, 1, &y, 1, NULL, error);
  if (status == EVN_OK) {
    evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
    status = evn_device_get_memory_stats(cpu, &stats, error);
    printf("ran with a peak of %llu bytes\n", (unsigned long long)stats.peak);
  }
  evn_tensor_release(x);
  evn_tensor_release(y);
  evn_session_release(session);
  evn_model_release(model);
  evn_device_release(cpu);
  return status;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL.onnx BYTES\n", argv[0]);
    return 2;
  }
  heap h;
  atomic_init(&h.bytes, 0);
  atomic_init(&h.blocks, 0);
  evn_error error = EVN_ERROR_INIT;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.cpu_memory_limit_bytes = strtoull(argv[2], NULL, 10); /* 0: no cap */
  options.allocator = (evn_allocator){heap_allocate, heap_free, &h};
  evn_runtime runtime = NULL;
  evn_status status = evn_runtime_create(&options, &runtime, &error);
  if (status == EVN_OK) status = load_and_run(runtime, argv[1], &error);
  if (status == EVN_ERROR_OUT_OF_MEMORY) {
    printf("over the cap: %llu bytes asked, %llu left\n  %s\n", (unsigned long long)error.bytes_requested,
           (unsigned long long)error.bytes_available, error.message);
  } else if (status != EVN_OK) {
    printf("%s: %s%s%s\n", evn_status_name(status), error.message, error.node[0] != '\0' ? " at node " : "", error.node);
  }
  evn_runtime_release(runtime);
  printf("%lld blocks left\n", atomic_load(&h.blocks)); /* 0: all memory has come back */
  return status == EVN_OK ? 0 : 1;
}
