/* Loads a model, runs it once on a ramp, prints the five largest values of its first output: the program of terse.c, with
 * every step explained and every failure handled where it happens.
 *
 *   cc explained.c $(pkg-config --cflags --libs evener) -o explained
 *   ./explained model.onnx [sizes of dims that the model leaves open]
 *
 * The model must have one input and one output of dtype float32. The sizes come in the order of the dims; without them an open dim
 * is 1 on axis 0, which is most often the batch, and 128 elsewhere.
 */
#include <evener/evener.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOP 5

/* Everything that the program holds. All handles begin as NULL, and releasing NULL does nothing: whatever has been made when
 * something fails, close_all() is right. */
typedef struct program {
  evn_runtime runtime;
  evn_device cpu;
  evn_model model;
  evn_session session;
  evn_tensor input;
  evn_tensor output;
} program;

/* The order does not matter: a session keeps its model alive inside, a tensor its runtime, and so on. */
static void close_all(program* p) {
  evn_runtime_release(p->runtime);
  evn_device_release(p->cpu);
  evn_model_release(p->model);
  evn_session_release(p->session);
  evn_tensor_release(p->input);
  evn_tensor_release(p->output);
}

/* An error says more than its status: a line of text, and where it applies the graph node, the device and the bytes that were
 * asked for and left. It is the caller's own struct, so there is nothing to free and nothing that another thread can change. */
static int report(const char* what, const evn_error* error) {
  fprintf(stderr, "%s failed: %s: %s\n", what, evn_status_name(error->status), error->message);
  if (error->node[0] != '\0') fprintf(stderr, "  node: %s\n", error->node);
  if (error->device[0] != '\0') fprintf(stderr, "  device: %s\n", error->device);
  if (error->bytes_requested != 0) {
    fprintf(stderr, "  bytes: %llu asked, %llu left\n", (unsigned long long)error->bytes_requested,
            (unsigned long long)error->bytes_available);
  }
  return 1;
}

/* A runtime owns devices, memory and threads. Options begin with EVN_..._INIT, which sets struct_size and the defaults; NULL for
 * the options means the same. A program may hold several runtimes; they share nothing. */
static int open_runtime(program* p, evn_error* error) {
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  options.thread_count = 0; /* as many as this process may use */
  if (evn_runtime_create(&options, &p->runtime, error) != EVN_OK) return report("making a runtime", error);
  /* Device 0 is always the CPU. */
  if (evn_runtime_device_at(p->runtime, 0, &p->cpu, error) != EVN_OK) return report("finding the CPU", error);
  return 0;
}

/* A model is a graph and its weights. A session is a model placed on devices, with kernels chosen and weights packed. Several
 * sessions of one model share the weights. */
static int open_session(program* p, const char* path, evn_error* error) {
  if (evn_model_load_file(p->runtime, path, NULL, &p->model, error) != EVN_OK) return report("loading the model", error);
  if (evn_session_create(p->runtime, p->model, NULL, &p->session, error) != EVN_OK) return report("making a session", error);
  uint32_t inputs = 0, outputs = 0;
  if (evn_session_input_count(p->session, &inputs, error) != EVN_OK) return report("counting inputs", error);
  if (evn_session_output_count(p->session, &outputs, error) != EVN_OK) return report("counting outputs", error);
  if (inputs != 1 || outputs != 1) {
    fprintf(stderr, "the model has %u inputs and %u outputs; this program wants one of each\n", (unsigned)inputs,
            (unsigned)outputs);
    return 1;
  }
  return 0;
}

/* Makes the input tensor and fills it. A dimension of -1 is open: the caller says what it is, as an image's width or the length of
 * a sentence, and the model may refuse a size that its operators cannot take. */
static int make_input(program* p, char** sizes, int size_count, evn_error* error) {
  evn_value_info info = EVN_VALUE_INFO_INIT;
  if (evn_session_get_input_info(p->session, 0, &info, error) != EVN_OK) return report("asking for the input", error);
  if (info.dtype != EVN_DTYPE_FLOAT32 || info.rank > EVN_MAX_RANK) {
    fprintf(stderr, "input %s is not float32, or its rank is not known\n", info.name);
    return 1;
  }
  int next = 0;
  for (uint32_t i = 0; i < info.rank; ++i) {
    if (info.dims[i] < 0) info.dims[i] = next < size_count ? atoll(sizes[next++]) : i == 0 ? 1 : 128;
  }
  const evn_status made = evn_tensor_create(p->cpu, info.dtype, info.dims, info.rank, 0, &p->input, error);
  if (made != EVN_OK) return report("making the input", error);
  /* A map gives the bytes. On the CPU it is free; on another device it copies at unmap what was written. Memory of the program's
   * own would need no copy and no map: evn_tensor_wrap. */
  void* data = NULL;
  size_t size = 0;
  if (evn_tensor_map(p->input, EVN_MAP_WRITE, &data, &size, error) != EVN_OK) return report("mapping the input", error);
  float* values = data;
  for (size_t i = 0; i < size / sizeof(float); ++i) values[i] = (float)(i % 256) / 255;
  if (evn_tensor_unmap(p->input, error) != EVN_OK) return report("unmapping the input", error);
  return 0;
}

/* Prints the largest values, the largest first. */
static int print_top(program* p, evn_error* error) {
  void* data = NULL;
  size_t size = 0;
  if (evn_tensor_map(p->output, EVN_MAP_READ, &data, &size, error) != EVN_OK) return report("mapping the output", error);
  const float* values = data;
  const size_t count = size / sizeof(float);
  size_t best[TOP];
  size_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    size_t at = found < TOP ? found++ : TOP;
    while (at > 0 && values[i] > values[best[at - 1]]) {
      if (at < TOP) best[at] = best[at - 1];
      --at;
    }
    if (at < TOP) best[at] = i;
  }
  for (size_t i = 0; i < found; ++i) printf("%zu %.5f\n", best[i], (double)values[best[i]]);
  if (evn_tensor_unmap(p->output, error) != EVN_OK) return report("unmapping the output", error);
  return 0;
}

/* A NULL slot among the outputs gets a new tensor, which is then ours; a tensor in the slot would be written in place. The first
 * run with an input's shape plans and allocates, later ones do not. Runs of one session may go on in several threads at a time. */
static int run(program* p, const char* path, char** sizes, int size_count, evn_error* error) {
  if (open_runtime(p, error) != 0 || open_session(p, path, error) != 0 || make_input(p, sizes, size_count, error) != 0) return 1;
  if (evn_session_run(p->session, &p->input, 1, &p->output, 1, NULL, error) != EVN_OK) return report("the run", error);
  return print_top(p, error);
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s MODEL.onnx [SIZE ...]\n", argv[0]);
    return 2;
  }
  program p;
  memset(&p, 0, sizeof p);
  evn_error error = EVN_ERROR_INIT;
  const int code = run(&p, argv[1], argv + 2, argc - 2, &error);
  close_all(&p);
  return code;
}
