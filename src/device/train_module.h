/* What libevener_train.so exports: trainers and loaders (include/evener/train.h). The library opens the module, which lies beside
 * it, when the first trainer or loader is made; the module calls the library by the C API and what evn_train_host has beside it. C,
 * because each has a C++ runtime of its own.
 */
#ifndef EVN_DEVICE_TRAIN_MODULE_H
#define EVN_DEVICE_TRAIN_MODULE_H

#include "evener/api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with this file; a module of another number, or of another version of the library, is not used. */
#define EVN_TRAIN_MODULE_ABI 7u
#define EVN_TRAIN_MODULE_SYMBOL "evn_train_module"

/* Bytes that the library owns until they are released. */
typedef struct evn_train_bytes {
  const void* data;
  size_t size;
  void* owner; /* for release */
} evn_train_bytes;

/* The plans of a session's latest run. */
typedef struct evn_train_memory {
  uint64_t arena_bytes;       /* intermediate values */
  uint64_t unlimited_bytes;   /* without a limit */
  uint32_t steps;             /* of the plans, those that run a second time not counted */
  uint32_t recomputed_steps;  /* that run a second time */
  uint32_t kept_values;       /* that live at the fullest moment; 0: nothing is computed again */
  uint32_t recomputed_values; /* that are let go of and made again */
} evn_train_memory;

typedef struct evn_train_host {
  const evn_api* api;
  /* The model as the trainer wants it: checked, functions expanded, in its inference form, nothing folded or fused, of opset
   * `least_opset` or newer, one ONNX file without external data whose float tensors are raw_data, with the element types of
   * what nodes make (value_info). Ends with EVN_ERROR_CANCELLED once `cancel` (nullable) is requested, with EVN_ERROR_TIMEOUT after
   * limits.load_time of the configuration. */
  evn_status (*plain_model)(evn_runtime runtime, const char* path, const void* data, size_t size, const char* external_dir,
                            int64_t least_opset, evn_cancel cancel, evn_train_bytes* bytes, evn_error* error);
  void (*release)(evn_train_bytes* bytes);
  /* When loads end early: after `time_ns` nanoseconds (limits.load_time of the configuration; 0: never), and once *requested, a
   * std::atomic<bool>, is true (NULL without a token). The flag lives as long as the token does. */
  evn_status (*load_limits)(evn_runtime runtime, evn_cancel cancel, uint64_t* time_ns, const void** requested, evn_error* error);
  /* A model as evn_model_load_buffer loads it, but with the library's own operators (domain "evener") allowed. `cancel` may be
   * NULL. */
  evn_status (*load_own)(evn_runtime runtime, const void* data, size_t size, evn_cancel cancel, evn_model* model, evn_error* error);
  /* evn_session_run, which calls ready(context, output) as soon as an output is whole, while the run goes on; not for each output.
   * `ready` is called on the thread that runs, throws nothing and returns soon. */
  evn_status (*run_listened)(evn_session session, const evn_tensor* inputs, uint32_t input_count, evn_tensor* outputs,
                             uint32_t output_count, const evn_run_options* options, void (*ready)(void* context, uint32_t output),
                             void* context, evn_error* error);
  /* evn_session_submit with the same; EVN_ERROR_UNSUPPORTED in a library without requests. */
  evn_status (*submit_listened)(evn_session session, const evn_tensor* inputs, uint32_t input_count, const evn_tensor* outputs,
                                uint32_t output_count, const evn_run_options* options, const evn_submit_options* submit,
                                void (*ready)(void* context, uint32_t output), void* context, evn_request* request,
                                evn_error* error);
  /* What is the same for all handles of a runtime, as long as it lives. */
  evn_status (*runtime_identity)(evn_runtime runtime, void** identity, evn_error* error);
  /* Calls wait(context), which waits for other threads or processes and throws nothing, from within an operator: meanwhile another
   * run may compute on the core of the run that the operator is in. */
  void (*wait_without_core)(void (*wait)(void* context), void* context);
  /* The function `symbol` of a module that lies beside the library. It stays open. EVN_ERROR_UNSUPPORTED: there is no such module,
   * or it has no such function. */
  evn_status (*open_module)(const char* file, const char* symbol, void** function, evn_error* error);
  /* Whether the token has been requested. */
  int (*is_requested)(evn_cancel cancel);
  /* A session as evn_session_create makes it, whose runs have intermediate values of at most so many bytes (0: no limit): what does
   * not fit is computed again. Where that is not enough, runs return EVN_ERROR_LIMIT. */
  evn_status (*create_limited)(evn_runtime runtime, evn_model model, const evn_session_options* options, uint64_t arena_limit,
                               evn_session* session, evn_error* error);
  /* Zeros before the first run. */
  evn_status (*memory_of)(evn_session session, evn_train_memory* memory, evn_error* error);
} evn_train_host;

/* The functions of train.h, on what `create` gives; that is used by one call at a time. */
typedef struct evn_train_module_table {
  uint32_t abi;
  uint32_t version; /* EVN_VERSION_NUMBER */
  evn_status (*create)(evn_runtime runtime, const char* path, const evn_trainer_options* options, void** trainer, evn_error* error);
  void (*release)(void* trainer);
  evn_status (*input_count)(void* trainer, uint32_t* count, evn_error* error);
  evn_status (*find_input)(void* trainer, const char* name, uint32_t* index, evn_error* error);
  evn_status (*step)(void* trainer, const evn_tensor* inputs, uint32_t input_count, evn_tensor labels, evn_step_info* info,
                     evn_error* error);
  evn_status (*evaluate)(void* trainer, const evn_tensor* inputs, uint32_t input_count, evn_tensor labels,
                         evn_evaluation* evaluation, evn_error* error);
  evn_status (*note_metric)(void* trainer, double value, evn_error* error);
  evn_status (*set_learning_rate)(void* trainer, double rate, evn_error* error);
  evn_status (*parameter_count)(void* trainer, uint32_t* count, evn_error* error);
  evn_status (*parameter_name)(void* trainer, uint32_t index, const char** name, evn_error* error);
  evn_status (*get_parameter)(void* trainer, uint32_t index, evn_parameter_part part, evn_tensor* tensor, evn_error* error);
  evn_status (*save)(void* trainer, const char* path, evn_error* error);
  evn_status (*restore)(void* trainer, const char* path, evn_error* error);
  evn_status (*finish)(void* trainer, evn_model* model, evn_error* error);
  evn_status (*write_model)(void* trainer, const char* path, evn_error* error);
  /* The text stays until the next call. */
  evn_status (*describe)(void* trainer, evn_format format, const char** text, size_t* size, evn_error* error);
  /* Loaders. The functions may be called at the same time, except loader_release, which is the last call. `loader_stop` ends a call
   * of `loader_next`. */
  evn_status (*loader_create)(evn_runtime runtime, const evn_loader_options* options, void** loader, evn_error* error);
  evn_status (*loader_start_epoch)(void* loader, uint64_t epoch, uint64_t first_batch, evn_error* error);
  evn_status (*loader_next)(void* loader, evn_tensor* tensors, uint32_t tensor_count, uint32_t* samples, evn_error* error);
  evn_status (*loader_batch_count)(void* loader, uint64_t* count, evn_error* error);
  evn_status (*loader_stop)(void* loader, evn_error* error);
  void (*loader_release)(void* loader);
} evn_train_module_table;

/* `host` outlives the module's use. */
typedef const evn_train_module_table* (*evn_train_module_function)(const evn_train_host* host);

#ifdef __cplusplus
}
#endif

#endif
