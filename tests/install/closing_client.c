/* Closes the library while objects of it are alive: with a session and its tensors, with requests under way, with all handles
 * released while requests are under way, and with handles that are used and released after it. The program must end normally.
 * usage: closing_client LIBRARY MODEL ROUNDS */
#include <dlfcn.h>
#include <evener/api.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { kRequests = 20 };

static atomic_int done_count;

static void count_done(void* user, evn_request request) {
  (void)user;
  (void)request;
  atomic_fetch_add(&done_count, 1);
}

/* `keep`: handles stay alive; `late`: they are used and released after dlclose. */
static int close_early(const char* path, const char* model_path, int keep, int late) {
  static float values[6] = {0, 1, 2, 3, 4, 5};
  static const int64_t dims[2] = {2, 3};
  evn_get_api_function get_api = NULL;
  const evn_api* evn = NULL;
  evn_runtime_options options = EVN_RUNTIME_OPTIONS_INIT;
  evn_submit_options submit = EVN_SUBMIT_OPTIONS_INIT;
  evn_error error = EVN_ERROR_INIT;
  evn_runtime runtime = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_tensor input = NULL;
  evn_tensor output = NULL;
  int i;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return 9;
  *(void**)&get_api = dlsym(library, "evn_get_api");
  if (get_api == NULL || get_api(EVN_VERSION_NUMBER, &evn) != EVN_OK) return 10;
  options.thread_count = 2;
  submit.done = count_done;
  atomic_store(&done_count, 0);
  if (evn->runtime_create(&options, &runtime, &error) != EVN_OK) return 11;
  if (evn->model_load_file(runtime, model_path, NULL, &model, &error) != EVN_OK) return 12;
  if (evn->session_create(runtime, model, NULL, &session, &error) != EVN_OK) return 13;
  if (evn->tensor_wrap(runtime, values, sizeof values, EVN_DTYPE_FLOAT32, dims, 2, NULL, NULL, &input, &error) != EVN_OK) return 14;
  for (i = 0; i < kRequests; ++i) {
    if (evn->session_submit(session, &input, 1, NULL, 1, NULL, &submit, NULL, &error) != EVN_OK) return 15;
  }
  if (!keep) {
    evn->tensor_release(input);
    evn->session_release(session);
    evn->model_release(model);
    evn->runtime_release(runtime);
  }
  if (dlclose(library) != 0) return 16;
  for (i = 0; atomic_load(&done_count) < kRequests && i < 10000; ++i) usleep(1000);
  if (atomic_load(&done_count) != kRequests) return 17;
  if (late) {
    if (evn->session_run(session, &input, 1, &output, 1, NULL, &error) != EVN_OK) return 18;
    evn->tensor_release(output);
    evn->tensor_release(input);
    evn->session_release(session);
    evn->model_release(model);
    if (evn->runtime_release(runtime) != EVN_OK) return 19;
  }
  return 0;
}

int main(int argc, char** argv) {
  int rounds;
  int i;
  if (argc != 4) return 2;
  rounds = atoi(argv[3]);
  for (i = 0; i < rounds; ++i) {
    const int result = close_early(argv[1], argv[2], i % 3 != 0, i % 3 == 2);
    if (result != 0) {
      fprintf(stderr, "round %d: %d\n", i, result);
      return result;
    }
  }
  return 0;
}
