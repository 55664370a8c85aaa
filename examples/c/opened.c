/* Runs a model with a library that is found while the program runs, as a plug-in or a language binding does: nothing is linked, one
 * symbol is looked up, and the program goes on without the library where there is none, or one that is too old.
 *
 *   cc opened.c $(pkg-config --cflags evener) -ldl -o opened
 *   ./opened libevener.so.0 model.onnx
 */
#include <dlfcn.h>
#include <evener/api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const evn_api* evn = NULL;
static evn_error error;

static void check(evn_status status) {
  if (status == EVN_OK) return;
  fprintf(stderr, "%s: %s%s%s\n", evn->status_name(status), error.message, error.node[0] != '\0' ? " at node " : "", error.node);
  exit(1);
}

/* The table of functions, or NULL and a reason. */
static const evn_api* open_library(const char* name, const char** why) {
  const evn_api* table = NULL;
  evn_get_api_function get_api = NULL;
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  void* found = library != NULL ? dlsym(library, "evn_get_api") : NULL;
  *why = library == NULL ? dlerror() : "it is older than 0.2";
  if (found == NULL) return NULL;
  memcpy(&get_api, &found, sizeof found); /* C has no cast from an object's pointer to a function's */
  *why = "it does not fit the version that this program was compiled for";
  return get_api(EVN_VERSION_NUMBER, &table) == EVN_OK ? table : NULL;
}

int main(int argc, char** argv) {
  evn_runtime_options options;
  evn_value_info info;
  evn_runtime runtime = NULL;
  evn_device cpu = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_tensor x = NULL, y = NULL;
  const char* why = NULL;
  void* data = NULL;
  size_t size = 0;
  if (argc != 3) {
    fprintf(stderr, "usage: %s LIBRARY MODEL.onnx\n", argv[0]);
    return 2;
  }
  evn = open_library(argv[1], &why);
  if (evn == NULL) {
    printf("going on without %s: %s\n", argv[1], why);
    return 0;
  }
  /* Languages without brace macros make structs by functions. */
  evn->error_init(&error, sizeof error);
  evn->runtime_options_init(&options, sizeof options);
  evn->value_info_init(&info, sizeof info);
  options.thread_count = 1;
  check(evn->runtime_create(&options, &runtime, &error));
  check(evn->runtime_device_at(runtime, 0, &cpu, &error));
  check(evn->model_load_file(runtime, argv[2], NULL, &model, &error));
  check(evn->session_create(runtime, model, NULL, &session, &error));

  check(evn->session_get_input_info(session, 0, &info, &error));
  if (info.dtype != EVN_DTYPE_FLOAT32 || info.rank > EVN_MAX_RANK) {
    fprintf(stderr, "input %s is not float32, or its rank is not known\n", info.name);
    return 1;
  }
  for (uint32_t i = 0; i < info.rank; ++i) info.dims[i] = info.dims[i] >= 0 ? info.dims[i] : i == 0 ? 1 : 128;
  check(evn->tensor_create(cpu, info.dtype, info.dims, info.rank, 0, &x, &error));
  check(evn->tensor_map(x, EVN_MAP_WRITE, &data, &size, &error));
  for (size_t i = 0; i < size / sizeof(float); ++i) ((float*)data)[i] = (float)(i % 256) / 255;
  check(evn->tensor_unmap(x, &error));
  check(evn->session_run(session, &x, 1, &y, 1, NULL, &error));
  check(evn->tensor_map(y, EVN_MAP_READ, &data, &size, &error));
  for (size_t i = 0; i < size / sizeof(float); ++i) printf("%zu %.5f\n", i, (double)((float*)data)[i]);

  evn->tensor_release(x);
  evn->tensor_release(y);
  evn->session_release(session);
  evn->model_release(model);
  evn->device_release(cpu);
  evn->runtime_release(runtime);
  return 0;
}
