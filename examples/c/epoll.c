/* One thread with an event loop: runs that end wake it by the descriptor of a completion queue, among its timers and sockets.
 * cc epoll.c $(pkg-config --cflags --libs evener) && ./a.out model.onnx */
#include <evener/request.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { kRuns = 5 };
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
  evn_queue queue = NULL;
  evn_tensor x = NULL;
  evn_value_info info = EVN_VALUE_INFO_INIT;
  int numbers[kRuns], left = kRuns;
  int32_t fd = -1;
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

  check(evn_queue_create(&queue, &error));
  check(evn_queue_fd(queue, &fd, &error));
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
  if (loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) != 0) return 1;

  for (int i = 0; i < kRuns; ++i) {
    evn_submit_options submit = EVN_SUBMIT_OPTIONS_INIT;
    submit.queue = queue;
    numbers[i] = i;
    submit.user = &numbers[i]; /* by which the loop knows it again */
    check(evn_session_submit(session, &x, 1, NULL, 1, NULL, &submit, NULL, &error));
  }

  while (left > 0) {
    if (epoll_wait(loop, &event, 1, -1) < 1 || event.data.fd != fd) continue;
    evn_request request = NULL;
    check(evn_queue_next(queue, 0, &request, &error)); /* does not wait */
    if (request == NULL) continue;
    void* user = NULL;
    evn_tensor y = NULL;
    check(evn_request_user(request, &user, &error));
    check(evn_request_take(request, &y, 1, &error));
    printf("run %d has ended\n", *(int*)user);
    evn_tensor_release(y), evn_request_release(request);
    --left;
  }

  close(loop);
  evn_queue_release(queue), evn_tensor_release(x), evn_session_release(session), evn_model_release(model);
  evn_device_release(cpu), evn_runtime_release(runtime);
  return 0;
}
