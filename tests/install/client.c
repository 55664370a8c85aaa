/* A C client of the installed library: runs a model whose output is its input times two plus one, and checks it. */
#include <evener/evener.h>
#include <stdio.h>
#include <stdlib.h>

static void check(evn_status status, const evn_error* error, const char* what) {
  if (status == EVN_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, evn_status_name(status), error->message);
  exit(1);
}

int main(int argc, char** argv) {
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_tensor input = NULL;
  evn_tensor output = NULL;
  float values[6] = {0, 1, 2, 3, 4, -5};
  int64_t dims[2] = {2, 3};
  void* data = NULL;
  size_t size = 0;
  int i;
  if (argc != 2) return 2;
  check(evn_runtime_create(NULL, &runtime, &error), &error, "runtime");
  check(evn_model_load_file(runtime, argv[1], NULL, &model, &error), &error, "model");
  check(evn_session_create(runtime, model, NULL, &session, &error), &error, "session");
  check(evn_tensor_wrap(runtime, values, sizeof values, EVN_DTYPE_FLOAT32, dims, 2, NULL, NULL, &input, &error), &error, "tensor");
  check(evn_session_run(session, &input, 1, &output, 1, NULL, &error), &error, "run");
  check(evn_tensor_map(output, EVN_MAP_READ, &data, &size, &error), &error, "map");
  if (size != sizeof values) return 3;
  for (i = 0; i < 6; ++i) {
    if (((const float*)data)[i] != 2 * values[i] + 1) return 4;
  }
  /* Any order of release is right. */
  evn_runtime_release(runtime);
  evn_model_release(model);
  evn_tensor_release(input);
  evn_session_release(session);
  check(evn_tensor_unmap(output, &error), &error, "unmap");
  evn_tensor_release(output);
  printf("evener %s ok\n", evn_version());
  return 0;
}
