/* Adds an operator of the program's own to a runtime, and runs a model that uses it on a ramp.
 *
 *   cc custom_operator.c $(pkg-config --cflags --libs evener) -o custom_operator
 *   ./custom_operator model.onnx
 *
 * The operator is example::Fold: it folds what lies outside of [low, high] back into it, like a mirror at both ends. It has the
 * attributes `low` and `high` (floats; 0 and 1 when they are not given), one float32 input and one output of its shape.
 */
#include <evener/evener.h>
#include <stdio.h>
#include <stdlib.h>

static evn_error error = EVN_ERROR_INIT;

static void check(evn_status status) {
  if (status == EVN_OK) return;
  fprintf(stderr, "%s: %s%s%s\n", evn_status_name(status), error.message, error.node[0] != '\0' ? " at node " : "", error.node);
  exit(1);
}

/* What the output will be: called while the model loads, when dims may not be known (-1), and once for each new shape. Copying what
 * is known of the input says the right thing in both cases. */
static evn_status infer(void* user, evn_operator_node node, const evn_tensor_view* inputs, uint32_t input_count,
                        evn_tensor_view* outputs, uint32_t output_count, evn_error* why) {
  (void)user, (void)node, (void)input_count, (void)output_count;
  if (inputs[0].dtype != EVN_DTYPE_FLOAT32) {
    snprintf(why->message, sizeof why->message, "Fold takes float32");
    return EVN_ERROR_UNSUPPORTED;
  }
  outputs[0] = inputs[0];
  return EVN_OK;
}

/* Called for each run, on any thread. */
static evn_status run(void* user, evn_operator_node node, const evn_tensor_view* inputs, uint32_t input_count,
                      const evn_tensor_view* outputs, uint32_t output_count, evn_error* why) {
  (void)input_count, (void)output_count;
  float low = 0, high = 1; /* stay when the node does not say */
  evn_operator_attribute_float(node, "low", &low, NULL);
  evn_operator_attribute_float(node, "high", &high, NULL);
  if (!(low < high)) {
    snprintf(why->message, sizeof why->message, "low is not below high");
    return EVN_ERROR_INVALID_ARGUMENT;
  }
  const float* x = inputs[0].data;
  float* y = outputs[0].data;
  for (uint64_t i = 0; i < inputs[0].size_bytes / sizeof(float); ++i) {
    float v = x[i];
    for (int k = 0; k < 64 && (v < low || v > high); ++k) v = v < low ? 2 * low - v : 2 * high - v;
    y[i] = v;
  }
  ++*(unsigned*)user; /* this program runs one session at a time */
  return EVN_OK;
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
  unsigned runs = 0;
  if (argc != 2) {
    fprintf(stderr, "usage: %s MODEL.onnx\n", argv[0]);
    return 2;
  }
  check(evn_runtime_create(NULL, &runtime, &error));

  evn_operator fold = EVN_OPERATOR_INIT;
  fold.domain = "example";
  fold.name = "Fold";
  fold.min_inputs = fold.max_inputs = 1;
  fold.user = &runs;
  fold.infer = infer;
  fold.run = run;
  check(evn_runtime_register_operator(runtime, &fold, &error)); /* before the model is loaded */

  check(evn_model_load_file(runtime, argv[1], NULL, &model, &error));
  check(evn_session_create(runtime, model, NULL, &session, &error));
  check(evn_session_get_input_info(session, 0, &info, &error));
  if (info.dtype != EVN_DTYPE_FLOAT32 || info.rank > EVN_MAX_RANK) {
    fprintf(stderr, "input %s is not float32, or its rank is not known\n", info.name);
    return 1;
  }
  for (uint32_t i = 0; i < info.rank; ++i) info.dims[i] = info.dims[i] >= 0 ? info.dims[i] : i == 0 ? 1 : 128;
  check(evn_runtime_device_at(runtime, 0, &cpu, &error));
  check(evn_tensor_create(cpu, info.dtype, info.dims, info.rank, 0, &x, &error));
  check(evn_tensor_map(x, EVN_MAP_WRITE, &data, &size, &error));
  for (size_t i = 0; i < size / sizeof(float); ++i) ((float*)data)[i] = (float)i / 2 - 2;
  check(evn_tensor_unmap(x, &error));
  check(evn_session_run(session, &x, 1, &y, 1, NULL, &error));
  check(evn_tensor_map(y, EVN_MAP_READ, &data, &size, &error));
  for (size_t i = 0; i < size / sizeof(float); ++i) printf("%g\n", (double)((float*)data)[i]);
  printf("the operator ran %u times\n", runs);
  evn_tensor_release(x), evn_tensor_release(y), evn_session_release(session), evn_model_release(model);
  evn_device_release(cpu), evn_runtime_release(runtime);
  return 0;
}
