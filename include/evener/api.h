/* One table of all functions, for hosts that open the library with dlopen: they look up evn_get_api and nothing else. The
 * conventions of evener.h hold. @since 0.2
 *
 *   void *library = dlopen("libevener.so.0", RTLD_NOW | RTLD_LOCAL);
 *   evn_get_api_function get_api = (evn_get_api_function)dlsym(library, "evn_get_api");
 *   const evn_api *evn = NULL;
 *   if (get_api == NULL || get_api(EVN_VERSION_NUMBER, &evn) != EVN_OK) ...         older than this header
 *   evn->runtime_create(NULL, &runtime, &error);
 */
#ifndef EVENER_API_H
#define EVENER_API_H

#include "evener/evener.h"
#include "evener/event.h"
#include "evener/opencl.h"
#include "evener/quantize.h"
#include "evener/request.h"
#include "evener/state.h"
#include "evener/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------------------- function table -- */

/* The functions of evener.h, quantize.h, request.h, state.h, event.h, opencl.h and train.h, each under its name without evn_. Their
 * order never changes; those of later versions are appended. */
typedef struct evn_api {
  uint32_t struct_size; /* of the library's table, which may be larger than the client's */
  uint32_t api_version; /* of the library: what evn_version_number gives. `version` is evn_version */
  /* 0.1 */
  const char *(*status_name)(evn_status status);
  const char *(*version)(void);
  uint32_t (*version_number)(void);
  evn_status (*runtime_create)(const evn_runtime_options *options, evn_runtime *runtime, evn_error *error);
  evn_status (*runtime_release)(evn_runtime runtime);
  evn_status (*runtime_device_count)(evn_runtime runtime, uint32_t *count, evn_error *error);
  evn_status (*runtime_device_at)(evn_runtime runtime, uint32_t index, evn_device *device, evn_error *error);
  evn_status (*runtime_device_find)(evn_runtime runtime, const char *name, evn_device *device, evn_error *error);
  evn_status (*runtime_describe_devices)(evn_runtime runtime, evn_format format, char *buffer, size_t capacity, size_t *size,
                                         evn_error *error);
  evn_status (*runtime_register_operator)(evn_runtime runtime, const evn_operator *op, evn_error *error);
  evn_status (*operator_node_name)(evn_operator_node node, char *buffer, size_t capacity, size_t *size, evn_error *error);
  evn_status (*operator_attribute_type)(evn_operator_node node, const char *name, evn_attribute_type *type, evn_error *error);
  evn_status (*operator_attribute_int)(evn_operator_node node, const char *name, int64_t *value, evn_error *error);
  evn_status (*operator_attribute_float)(evn_operator_node node, const char *name, float *value, evn_error *error);
  evn_status (*operator_attribute_string)(evn_operator_node node, const char *name, char *buffer, size_t capacity, size_t *size,
                                          evn_error *error);
  evn_status (*operator_attribute_ints)(evn_operator_node node, const char *name, const int64_t **values, size_t *count,
                                        evn_error *error);
  evn_status (*operator_attribute_floats)(evn_operator_node node, const char *name, const float **values, size_t *count,
                                          evn_error *error);
  evn_status (*operator_attribute_tensor)(evn_operator_node node, const char *name, evn_tensor_view *view, evn_error *error);
  evn_status (*device_release)(evn_device device);
  evn_status (*device_get_info)(evn_device device, evn_device_info *info, evn_error *error);
  evn_status (*device_get_memory_stats)(evn_device device, evn_memory_stats *stats, evn_error *error);
  evn_status (*device_reset_memory_peak)(evn_device device, evn_error *error);
  evn_status (*device_trim_memory)(evn_device device, evn_error *error);
  evn_status (*tensor_create)(evn_device device, evn_dtype dtype, const int64_t *dims, uint32_t rank, uint32_t flags,
                              evn_tensor *tensor, evn_error *error);
  evn_status (*tensor_wrap)(evn_runtime runtime, void *data, size_t size_bytes, evn_dtype dtype, const int64_t *dims,
                            uint32_t rank, evn_deleter deleter, void *user, evn_tensor *tensor, evn_error *error);
  evn_status (*tensor_release)(evn_tensor tensor);
  evn_status (*tensor_get_info)(evn_tensor tensor, evn_tensor_info *info, evn_error *error);
  evn_status (*tensor_copy)(evn_tensor source, evn_tensor target, evn_error *error);
  evn_status (*tensor_copy_to)(evn_tensor source, evn_device device, evn_tensor *tensor, evn_error *error);
  evn_status (*tensor_map)(evn_tensor tensor, uint32_t flags, void **data, size_t *size_bytes, evn_error *error);
  evn_status (*tensor_unmap)(evn_tensor tensor, evn_error *error);
  evn_status (*tensor_set_strings)(evn_tensor tensor, const char *const *strings, const size_t *sizes, size_t count,
                                   evn_error *error);
  evn_status (*tensor_get_string)(evn_tensor tensor, size_t index, char *buffer, size_t capacity, size_t *size, evn_error *error);
  evn_status (*tensor_to_dlpack)(evn_tensor tensor, uint32_t flags, void **managed, evn_error *error);
  evn_status (*tensor_from_dlpack)(evn_runtime runtime, void *managed, uint32_t flags, evn_tensor *tensor, evn_error *error);
  evn_status (*value_from_tensor)(evn_tensor tensor, evn_value *value, evn_error *error);
  evn_status (*value_create)(evn_runtime runtime, const char *type, const evn_value *parts, uint32_t part_count, evn_value *value,
                             evn_error *error);
  evn_status (*value_release)(evn_value value);
  evn_status (*value_get_type)(evn_value value, char *buffer, size_t capacity, size_t *size, evn_error *error);
  evn_status (*value_part_count)(evn_value value, uint32_t *count, evn_error *error);
  evn_status (*value_part_at)(evn_value value, uint32_t index, evn_value *part, evn_error *error);
  evn_status (*value_get_tensor)(evn_value value, evn_tensor *tensor, evn_error *error);
  evn_status (*model_load_file)(evn_runtime runtime, const char *path, const evn_model_options *options, evn_model *model,
                                evn_error *error);
  evn_status (*model_load_buffer)(evn_runtime runtime, const void *data, size_t size, const evn_model_options *options,
                                  evn_model *model, evn_error *error);
  evn_status (*model_release)(evn_model model);
  evn_status (*model_describe)(evn_model model, evn_format format, char *buffer, size_t capacity, size_t *size, evn_error *error);
  evn_status (*model_get_metadata)(evn_model model, const char *key, char *buffer, size_t capacity, size_t *size,
                                   evn_error *error);
  evn_status (*model_inspect)(evn_runtime runtime, const char *path, const evn_inspect_options *options, evn_format format,
                              char *buffer, size_t capacity, size_t *size, evn_error *error);
  evn_status (*session_create)(evn_runtime runtime, evn_model model, const evn_session_options *options, evn_session *session,
                               evn_error *error);
  evn_status (*session_release)(evn_session session);
  evn_status (*session_input_count)(evn_session session, uint32_t *count, evn_error *error);
  evn_status (*session_output_count)(evn_session session, uint32_t *count, evn_error *error);
  evn_status (*session_get_input_info)(evn_session session, uint32_t index, evn_value_info *info, evn_error *error);
  evn_status (*session_get_output_info)(evn_session session, uint32_t index, evn_value_info *info, evn_error *error);
  evn_status (*session_find_input)(evn_session session, const char *name, uint32_t *index, evn_error *error);
  evn_status (*session_find_output)(evn_session session, const char *name, uint32_t *index, evn_error *error);
  evn_status (*session_run)(evn_session session, const evn_tensor *inputs, uint32_t input_count, evn_tensor *outputs,
                            uint32_t output_count, const evn_run_options *options, evn_error *error);
  evn_status (*session_run_values)(evn_session session, const evn_value *inputs, uint32_t input_count, evn_value *outputs,
                                   uint32_t output_count, const evn_run_options *options, evn_error *error);
  evn_status (*session_explain)(evn_session session, evn_format format, char *buffer, size_t capacity, size_t *size,
                                evn_error *error);
  evn_status (*session_compare)(evn_session expected, evn_session got, const evn_tensor *inputs, uint32_t input_count,
                                evn_format format, char *buffer, size_t capacity, size_t *size, evn_error *error);
  evn_status (*session_trace_start)(evn_session session, uint32_t event_capacity, evn_error *error);
  evn_status (*session_trace_stop)(evn_session session, evn_error *error);
  evn_status (*session_get_trace)(evn_session session, evn_format format, char *buffer, size_t capacity, size_t *size,
                                  evn_error *error);
  evn_status (*quantizer_create)(evn_runtime runtime, const char *path, const evn_quantizer_options *options,
                                 evn_quantizer *quantizer, evn_error *error);
  evn_status (*quantizer_release)(evn_quantizer quantizer);
  evn_status (*quantizer_input_count)(evn_quantizer quantizer, uint32_t *count, evn_error *error);
  evn_status (*quantizer_find_input)(evn_quantizer quantizer, const char *name, uint32_t *index, evn_error *error);
  evn_status (*quantizer_add_batch)(evn_quantizer quantizer, const evn_tensor *inputs, uint32_t input_count, evn_error *error);
  evn_status (*quantizer_guard)(evn_quantizer quantizer, const evn_tensor *inputs, uint32_t input_count,
                                const evn_guard_options *options, evn_error *error);
  evn_status (*quantizer_finish)(evn_quantizer quantizer, evn_model *model, evn_error *error);
  evn_status (*quantizer_save)(evn_quantizer quantizer, const char *path, evn_error *error);
  evn_status (*quantizer_verify)(evn_quantizer quantizer, const evn_tensor *inputs, uint32_t input_count, evn_error *error);
  evn_status (*quantizer_report)(evn_quantizer quantizer, evn_format format, char *buffer, size_t capacity, size_t *size,
                                 evn_error *error);
  /* 0.2 */
  void (*error_init)(evn_error *error, uint32_t struct_size);
  void (*runtime_options_init)(evn_runtime_options *options, uint32_t struct_size);
  void (*operator_init)(evn_operator *op, uint32_t struct_size);
  evn_status (*operator_attribute_string_count)(evn_operator_node node, const char *name, uint32_t *count, evn_error *error);
  evn_status (*operator_attribute_string_at)(evn_operator_node node, const char *name, uint32_t index, char *buffer,
                                             size_t capacity, size_t *size, evn_error *error);
  void (*device_info_init)(evn_device_info *info, uint32_t struct_size);
  evn_status (*device_description)(evn_device device, char *buffer, size_t capacity, size_t *size, evn_error *error);
  evn_status (*device_driver)(evn_device device, char *buffer, size_t capacity, size_t *size, evn_error *error);
  void (*memory_stats_init)(evn_memory_stats *stats, uint32_t struct_size);
  void (*tensor_info_init)(evn_tensor_info *info, uint32_t struct_size);
  void (*model_options_init)(evn_model_options *options, uint32_t struct_size);
  evn_status (*model_metadata_count)(evn_model model, uint32_t *count, evn_error *error);
  evn_status (*model_metadata_key)(evn_model model, uint32_t index, char *buffer, size_t capacity, size_t *size,
                                   evn_error *error);
  void (*value_info_init)(evn_value_info *info, uint32_t struct_size);
  evn_status (*model_input_count)(evn_model model, uint32_t *count, evn_error *error);
  evn_status (*model_output_count)(evn_model model, uint32_t *count, evn_error *error);
  evn_status (*model_get_input_info)(evn_model model, uint32_t index, evn_value_info *info, evn_error *error);
  evn_status (*model_get_output_info)(evn_model model, uint32_t index, evn_value_info *info, evn_error *error);
  evn_status (*model_input_name)(evn_model model, uint32_t index, char *buffer, size_t capacity, size_t *size, evn_error *error);
  evn_status (*model_output_name)(evn_model model, uint32_t index, char *buffer, size_t capacity, size_t *size, evn_error *error);
  evn_status (*model_input_symbol)(evn_model model, uint32_t index, uint32_t axis, char *buffer, size_t capacity, size_t *size,
                                   evn_error *error);
  evn_status (*model_output_symbol)(evn_model model, uint32_t index, uint32_t axis, char *buffer, size_t capacity, size_t *size,
                                    evn_error *error);
  void (*inspect_options_init)(evn_inspect_options *options, uint32_t struct_size);
  void (*session_options_init)(evn_session_options *options, uint32_t struct_size);
  evn_status (*session_input_name)(evn_session session, uint32_t index, char *buffer, size_t capacity, size_t *size,
                                   evn_error *error);
  evn_status (*session_output_name)(evn_session session, uint32_t index, char *buffer, size_t capacity, size_t *size,
                                    evn_error *error);
  void (*run_options_init)(evn_run_options *options, uint32_t struct_size);
  void (*quantizer_options_init)(evn_quantizer_options *options, uint32_t struct_size);
  void (*guard_options_init)(evn_guard_options *options, uint32_t struct_size);
  evn_status (*describe_passes)(evn_format format, char *buffer, size_t capacity, size_t *size, evn_error *error);
  evn_status (*cancel_create)(evn_cancel *cancel, evn_error *error);
  evn_status (*cancel_request)(evn_cancel cancel);
  evn_status (*cancel_release)(evn_cancel cancel);
  void (*submit_options_init)(evn_submit_options *options, uint32_t struct_size);
  evn_status (*session_submit)(evn_session session, const evn_tensor *inputs, uint32_t input_count, const evn_tensor *outputs,
                               uint32_t output_count, const evn_run_options *options, const evn_submit_options *submit,
                               evn_request *request, evn_error *error);
  evn_status (*session_submit_values)(evn_session session, const evn_value *inputs, uint32_t input_count, const evn_value *outputs,
                                      uint32_t output_count, const evn_run_options *options, const evn_submit_options *submit,
                                      evn_request *request, evn_error *error);
  evn_status (*request_wait)(evn_request request, uint64_t timeout_ns, bool *done, evn_error *error);
  evn_status (*request_take)(evn_request request, evn_tensor *outputs, uint32_t output_count, evn_error *error);
  evn_status (*request_take_values)(evn_request request, evn_value *outputs, uint32_t output_count, evn_error *error);
  evn_status (*request_user)(evn_request request, void **user, evn_error *error);
  evn_status (*request_release)(evn_request request);
  evn_status (*queue_create)(evn_queue *queue, evn_error *error);
  evn_status (*queue_next)(evn_queue queue, uint64_t timeout_ns, evn_request *request, evn_error *error);
  evn_status (*queue_fd)(evn_queue queue, int32_t *fd, evn_error *error);
  evn_status (*queue_release)(evn_queue queue);
  evn_status (*session_finish)(evn_session session, uint64_t timeout_ns, evn_error *error);
  evn_status (*runtime_session)(evn_runtime runtime, const char *name, evn_session *session, evn_error *error);
  evn_status (*device_set_memory_limit)(evn_device device, uint64_t limit_bytes, evn_error *error);
  evn_status (*tensor_create_view)(evn_tensor tensor, uint64_t first, const int64_t *dims, uint32_t rank, evn_tensor *view,
                                   evn_error *error);
  evn_status (*tensor_get_strings)(evn_tensor tensor, char *buffer, size_t capacity, size_t *offsets, size_t count, size_t *size,
                                   evn_error *error);
  void (*batching_options_init)(evn_batching_options *options, uint32_t struct_size);
  void (*session_memory_stats_init)(evn_session_memory_stats *stats, uint32_t struct_size);
  evn_status (*session_get_memory_stats)(evn_session session, evn_session_memory_stats *stats, evn_error *error);
  evn_status (*session_get_statistics)(evn_session session, evn_format format, char *buffer, size_t capacity, size_t *size,
                                       evn_error *error);
  evn_status (*runtime_get_statistics)(evn_runtime runtime, evn_format format, char *buffer, size_t capacity, size_t *size,
                                       evn_error *error);
  void (*state_options_init)(evn_state_options *options, uint32_t struct_size);
  evn_status (*state_create)(evn_session session, const evn_state_pair *pairs, uint32_t pair_count,
                             const evn_state_options *options, evn_state *state, evn_error *error);
  evn_status (*state_reset)(evn_state state, evn_error *error);
  evn_status (*state_fork)(evn_state state, evn_state *copy, evn_error *error);
  evn_status (*state_length)(evn_state state, uint32_t index, int64_t *positions, evn_error *error);
  evn_status (*state_truncate)(evn_state state, int64_t positions, evn_error *error);
  evn_status (*state_save)(evn_state state, void *buffer, size_t capacity, size_t *size, evn_error *error);
  evn_status (*state_restore)(evn_state state, const void *data, size_t size, evn_error *error);
  evn_status (*state_describe)(evn_state state, evn_format format, char *buffer, size_t capacity, size_t *size, evn_error *error);
  evn_status (*state_release)(evn_state state);
  void (*calibrate_options_init)(evn_calibrate_options *options, uint32_t struct_size);
  evn_status (*runtime_calibrate)(evn_runtime runtime, evn_model model, const evn_calibrate_options *options, evn_format format,
                                  char *buffer, size_t capacity, size_t *size, evn_error *error);
  void (*reconfigure_options_init)(evn_reconfigure_options *options, uint32_t struct_size);
  evn_status (*runtime_reconfigure)(evn_runtime runtime, const evn_reconfigure_options *options, evn_error *error);
  evn_status (*tensor_copy_async)(evn_tensor source, evn_tensor target, const evn_event *wait_for, uint32_t wait_count, evn_event
                                  *event, evn_error *error);
  evn_status (*event_wait)(evn_event event, uint64_t timeout_ns, evn_error *error);
  evn_status (*event_release)(evn_event event);
  evn_status (*device_record_event)(evn_device device, evn_event *event, evn_error *error);
  evn_status (*device_wait_event)(evn_device device, evn_event event, evn_error *error);
  void (*opencl_attach_options_init)(evn_opencl_attach_options *options, uint32_t struct_size);
  evn_status (*opencl_attach)(evn_runtime runtime, const evn_opencl_attach_options *options, evn_device *device, evn_error *error);
  evn_status (*opencl_device_objects)(evn_device device, void **context, void **native_device, void **queue, evn_error *error);
  evn_status (*opencl_wrap_buffer)(evn_device device, void *mem, uint64_t offset, evn_dtype dtype, const int64_t *dims, uint32_t
                                   rank, uint32_t flags, evn_deleter deleter, void *user, evn_tensor *tensor, evn_error *error);
  evn_status (*opencl_get_buffer)(evn_tensor tensor, void **mem, uint64_t *offset, evn_error *error);
  evn_status (*opencl_import_event)(evn_device device, void *native_event, evn_event *event, evn_error *error);
  evn_status (*opencl_export_event)(evn_event event, evn_device device, void **native_event, evn_error *error);
  evn_status (*device_condition)(evn_device device, char *buffer, size_t capacity, size_t *size, evn_error *error);
  evn_status (*device_set_cache_policy)(evn_device device, uint64_t cache_limit_bytes, evn_trim trim, evn_error *error);
  evn_status (*opencl_store_programs)(evn_device device, const char *folder, uint32_t flags, uint32_t *stored, uint32_t *refused,
                                      evn_error *error);
  /* 0.3 */
  evn_status (*abi_layout)(const char *structure, const char *field, size_t *offset, size_t *size, evn_error *error);
  void (*trainer_options_init)(evn_trainer_options *options, uint32_t struct_size);
  evn_status (*trainer_create)(evn_runtime runtime, const char *path, const evn_trainer_options *options, evn_trainer *trainer,
                               evn_error *error);
  evn_status (*trainer_release)(evn_trainer trainer);
  void (*step_info_init)(evn_step_info *info, uint32_t struct_size);
  evn_status (*trainer_input_count)(evn_trainer trainer, uint32_t *count, evn_error *error);
  evn_status (*trainer_find_input)(evn_trainer trainer, const char *name, uint32_t *index, evn_error *error);
  evn_status (*trainer_step)(evn_trainer trainer, const evn_tensor *inputs, uint32_t input_count, evn_tensor labels,
                             evn_step_info *info, evn_error *error);
  void (*evaluation_init)(evn_evaluation *evaluation, uint32_t struct_size);
  evn_status (*trainer_evaluate)(evn_trainer trainer, const evn_tensor *inputs, uint32_t input_count, evn_tensor labels,
                                 evn_evaluation *evaluation, evn_error *error);
  evn_status (*trainer_note_metric)(evn_trainer trainer, double value, evn_error *error);
  evn_status (*trainer_set_learning_rate)(evn_trainer trainer, double rate, evn_error *error);
  evn_status (*trainer_parameter_count)(evn_trainer trainer, uint32_t *count, evn_error *error);
  evn_status (*trainer_parameter_name)(evn_trainer trainer, uint32_t index, char *buffer, size_t capacity, size_t *size,
                                       evn_error *error);
  evn_status (*trainer_get_parameter)(evn_trainer trainer, uint32_t index, evn_parameter_part part, evn_tensor *tensor,
                                      evn_error *error);
  evn_status (*trainer_save)(evn_trainer trainer, const char *path, evn_error *error);
  evn_status (*trainer_restore)(evn_trainer trainer, const char *path, evn_error *error);
  evn_status (*trainer_finish)(evn_trainer trainer, evn_model *model, evn_error *error);
  evn_status (*trainer_export)(evn_trainer trainer, const char *path, evn_error *error);
  evn_status (*trainer_describe)(evn_trainer trainer, evn_format format, char *buffer, size_t capacity, size_t *size,
                                 evn_error *error);
  void (*loader_options_init)(evn_loader_options *options, uint32_t struct_size);
  evn_status (*loader_create)(evn_runtime runtime, const evn_loader_options *options, evn_loader *loader, evn_error *error);
  evn_status (*loader_start_epoch)(evn_loader loader, uint64_t epoch, uint64_t first_batch, evn_error *error);
  evn_status (*loader_next)(evn_loader loader, evn_tensor *tensors, uint32_t tensor_count, uint32_t *samples, evn_error *error);
  evn_status (*loader_batch_count)(evn_loader loader, uint64_t *count, evn_error *error);
  evn_status (*loader_release)(evn_loader loader);
  evn_status (*model_default_count)(evn_model model, uint32_t *count, evn_error *error);
  evn_status (*session_default_count)(evn_session session, uint32_t *count, evn_error *error);
} evn_api;

/* Sets *api to the library's table. It is static memory, valid until the library is unloaded.
 *   version  EVN_VERSION_NUMBER of the header that the client was compiled with
 * Returns EVN_ERROR_VERSION when that is newer than the library, or older than the oldest that the library still fits (0.2.0): the
 * client must not go on; EVN_ERROR_INVALID_ARGUMENT when api is NULL. *api is then unchanged. No cost. @since 0.2 */
EVN_API evn_status evn_get_api(uint32_t version, const evn_api **api);

/* The type of evn_get_api, for what dlsym gives. @since 0.2 */
typedef evn_status (*evn_get_api_function)(uint32_t version, const evn_api **api);

#ifdef __cplusplus
}
#endif
#endif
