/* Submits several runs of a model with a callback for each, does something else, and cancels what is not done when it has had
 * enough. cc async.c $(pkg-config --cflags --libs evener) && ./a.out model.onnx */
#include <evener/request.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRuns = 8 };
static evn_error error = EVN_ERROR_INIT;
static atomic_int finished, cancelled;

static void check(evn_status status) {
  if (status == EVN_OK) return;
  fprintf(stderr, "%s: %s%s%s\n", evn_status_name(status), error.message, error.node[0] != '\0' ? " at node " : "", error.node);
  exit(1);
}

/* On a thread of the library's. Outputs are taken here, while the request's handle lives. */
static void on_done(void* user, evn_request request) {
  evn_error e = EVN_ERROR_INIT;
  evn_tensor y = NULL;
  (void)user;
  const evn_status status = evn_request_take(request, &y, 1, &e);
  if (status == EVN_OK) atomic_fetch_add(&finished, 1);
  if (status == EVN_ERROR_CANCELLED) atomic_fetch_add(&cancelled, 1);
  evn_tensor_release(y);
}

int main(int argc, char** argv) {
  evn_runtime runtime = NULL;
  evn_device cpu = NULL;
  evn_model model = NULL;
  evn_session session = NULL;
  evn_cancel cancel = NULL;
  evn_request last = NULL;
  evn_tensor x = NULL, y = NULL;
  evn_value_info info = EVN_VALUE_INFO_INIT;
  bool done = false;
  if (argc != 2) return 2;

  check(evn_runtime_create(NULL, &runtime, &error));
  check(evn_runtime_device_at(runtime, 0, &cpu, &error));
  check(evn_model_load_file(runtime, argv[1], NULL, &model, &error));
  check(evn_session_create(runtime, model, NULL, &session, &error));
  check(evn_session_get_input_info(session, 0, &info, &error));
  if (info.rank > EVN_MAX_RANK) {
    fprintf(stderr, "input %s has no rank\n", info.name);
    return 1;
  }
  for (uint32_t i = 0; i < info.rank; ++i) info.dims[i] = info.dims[i] >= 0 ? info.dims[i] : i == 0 ? 1 : 128;
  check(evn_tensor_create(cpu, info.dtype, info.dims, info.rank, 0, &x, &error)); /* zeros */

  /* One token for all that may be given up. */
  check(evn_cancel_create(&cancel, &error));
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.cancel = cancel;
  evn_submit_options submit = EVN_SUBMIT_OPTIONS_INIT;
  submit.done = on_done;
  for (int i = 0; i < kRuns; ++i) check(evn_session_submit(session, &x, 1, NULL, 1, &options, &submit, NULL, &error));

  /* An urgent one, which is waited for: it does not wait for the others. */
  evn_run_options urgent = EVN_RUN_OPTIONS_INIT;
  urgent.priority = EVN_PRIORITY_HIGHEST;
  check(evn_session_submit(session, &x, 1, NULL, 1, &urgent, NULL, &last, &error));
  while (!done) check(evn_request_wait(last, 1000000, &done, &error)); /* here the program could do something else */
  check(evn_request_take(last, &y, 1, &error));
  printf("the urgent run is done\n");

  check(evn_cancel_request(cancel));
  check(evn_session_finish(session, UINT64_MAX, &error)); /* all callbacks have returned */
  printf("%d runs ended, finished or cancelled\n", atomic_load(&finished) + atomic_load(&cancelled));

  evn_request_release(last), evn_cancel_release(cancel), evn_tensor_release(x), evn_tensor_release(y);
  evn_model_release(model), evn_device_release(cpu), evn_runtime_release(runtime);
  return 0;
}
