// What the Go files of this package share in C: how the library is opened, and the callbacks that it is given.
#ifndef EVENER_GO_GLUE_H
#define EVENER_GO_GLUE_H

#include "raw.h"

enum { EVN_GO_OPENED = 0, EVN_GO_NOT_OPENED = 1, EVN_GO_NO_SYMBOL = 2, EVN_GO_OTHER_VERSION = 3, EVN_GO_OTHER_LAYOUT = 4 };

// Opens a library and sets evn_go_table. It stays open until the process ends: objects and threads of it may be anywhere.
//   reason  gets the loader's message, or where a struct lies otherwise
//   found   the library's version, where it is another one
int evn_go_open(const char *path, char *reason, size_t capacity, uint32_t *found);

// CLOCK_MONOTONIC in nanoseconds.
uint64_t evn_go_now(void);

void evn_go_log(uintptr_t user, const evn_log_record *record);
void evn_go_release(uintptr_t user);
void evn_go_done(uintptr_t user, evn_request request);
void evn_go_delete(uintptr_t user, void *data);
int32_t evn_go_progress(uintptr_t user, const char *what, uint64_t done, uint64_t total);
evn_status evn_go_infer(uintptr_t user, evn_operator_node node, const evn_tensor_view *inputs, uint32_t input_count, evn_tensor_view *outputs,
                        uint32_t output_count, evn_error *error);
evn_status evn_go_run(uintptr_t user, evn_operator_node node, const evn_tensor_view *inputs, uint32_t input_count,
                      const evn_tensor_view *outputs, uint32_t output_count, evn_error *error);
evn_status evn_go_reduce(void *user, void *data, uint64_t count, evn_dtype dtype, evn_error *error);

#endif
