/* Loads a model, runs it once on a ramp, prints the five largest values of its first output. explained.c is the same at length.
 * cc terse.c $(pkg-config --cflags --libs evener) && ./a.out model.onnx [sizes of dims that the model leaves open] */
#include <evener/evener.h>
#include <stdio.h>
#include <stdlib.h>

static evn_error error = EVN_ERROR_INIT;

static void check(evn_status status) {
  if (status == EVN_OK) return;
  fprintf(stderr, "%s: %s%s%s\n", evn_status_name(status), error.message, error.node[0] != '\0' ? " at node " : "", error.node);
  exit(1);
}

int main(int argc, char** argv) {
  evn_runtime runtime = NULL;
  evn_device cpu = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_tensor x = NULL, y = NULL;
  evn_value_info info = EVN_VALUE_INFO_INIT;
  void* data = NULL;
  size_t size = 0;
  int next = 2;
  if (argc < 2) return 2;

  check(evn_runtime_create(NULL, &runtime, &error));
  check(evn_runtime_device_at(runtime, 0, &cpu, &error));
  check(evn_model_load_file(runtime, argv[1], NULL, &model, &error));
  check(evn_session_create(runtime, model, NULL, &session, &error));

  check(evn_session_get_input_info(session, 0, &info, &error));
  if (info.dtype != EVN_DTYPE_FLOAT32 || info.rank > EVN_MAX_RANK) {
    fprintf(stderr, "input %s is not float32, or its rank is not known\n", info.name);
    return 1;
  }
  for (uint32_t i = 0; i < info.rank; ++i) {
    if (info.dims[i] < 0) info.dims[i] = next < argc ? atoll(argv[next++]) : i == 0 ? 1 : 128;
  }
  check(evn_tensor_create(cpu, info.dtype, info.dims, info.rank, 0, &x, &error));
  check(evn_tensor_map(x, EVN_MAP_WRITE, &data, &size, &error));
  for (size_t i = 0; i < size / sizeof(float); ++i) ((float*)data)[i] = (float)(i % 256) / 255;
  check(evn_tensor_unmap(x, &error));

  check(evn_session_run(session, &x, 1, &y, 1, NULL, &error));

  check(evn_tensor_map(y, EVN_MAP_READ | EVN_MAP_WRITE, &data, &size, &error));
  float* value = data;
  for (size_t rank = 0; rank < 5 && rank < size / sizeof(float); ++rank) {
    size_t best = 0;
    for (size_t i = 1; i < size / sizeof(float); ++i) best = value[i] > value[best] ? i : best;
    printf("%zu %.5f\n", best, (double)value[best]);
    value[best] = -1e30f;
  }
  evn_tensor_release(x), evn_tensor_release(y), evn_session_release(session), evn_model_release(model);
  evn_device_release(cpu), evn_runtime_release(runtime);
  return 0;
}
