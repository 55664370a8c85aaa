// Opens the library, and hands its callbacks to the exported functions of Go, which know no const.
#include "glue.h"
#include "raw_layouts.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "_cgo_export.h"

const evn_api *evn_go_table;

static void say(char *reason, size_t capacity) {
  const char *text = dlerror();
  snprintf(reason, capacity, "%s", text == NULL ? "the loader does not say why" : text);
}

int evn_go_open(const char *path, char *reason, size_t capacity, uint32_t *found) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    say(reason, capacity);
    return EVN_GO_NOT_OPENED;
  }
  void *symbol = dlsym(library, "evn_get_api");
  if (symbol == NULL) {
    say(reason, capacity);
    dlclose(library);
    return EVN_GO_NO_SYMBOL;
  }
  evn_get_api_function get_api;
  memcpy(&get_api, &symbol, sizeof(get_api));
  const evn_api *table = NULL;
  *found = 0;
  if (get_api(EVN_VERSION_NUMBER, &table) != EVN_OK || table == NULL) {
    uint32_t (*number)(void) = NULL;
    symbol = dlsym(library, "evn_version_number");
    memcpy(&number, &symbol, sizeof(number));
    if (number != NULL) *found = number();
    return EVN_GO_OTHER_VERSION;
  }
  // Only the head may be read before the size is known.
  if (table->struct_size < sizeof(evn_api)) {
    *found = table->api_version;
    return EVN_GO_OTHER_VERSION;
  }
  if (!evn_go_compare_layouts(table->abi_layout, reason, capacity)) return EVN_GO_OTHER_LAYOUT;
  evn_go_table = table;
  return EVN_GO_OPENED;
}

uint64_t evn_go_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void evn_go_log(uintptr_t user, const evn_log_record *record) { evenerLog(user, (evn_log_record *)record); }

void evn_go_release(uintptr_t user) { evenerRelease(user); }

void evn_go_done(uintptr_t user, evn_request request) {
  (void)request;
  evenerDone(user);
}

void evn_go_delete(uintptr_t user, void *data) {
  (void)data;
  evenerDelete(user);
}

int32_t evn_go_progress(uintptr_t user, const char *what, uint64_t done, uint64_t total) {
  return evenerProgress(user, (char *)what, done, total);
}

evn_status evn_go_infer(uintptr_t user, evn_operator_node node, const evn_tensor_view *inputs, uint32_t input_count, evn_tensor_view *outputs,
                        uint32_t output_count, evn_error *error) {
  return evenerInfer(user, node, (evn_tensor_view *)inputs, input_count, outputs, output_count, error);
}

evn_status evn_go_run(uintptr_t user, evn_operator_node node, const evn_tensor_view *inputs, uint32_t input_count,
                      const evn_tensor_view *outputs, uint32_t output_count, evn_error *error) {
  return evenerOperatorRun(user, node, (evn_tensor_view *)inputs, input_count, (evn_tensor_view *)outputs, output_count, error);
}

evn_status evn_go_reduce(void *user, void *data, uint64_t count, evn_dtype dtype, evn_error *error) {
  return evenerReduce((uintptr_t)user, data, count, dtype, error);
}
