/* Evener: OpenCL objects shared with the host program: its context and queue, buffers and events. The conventions of evener.h hold.
 * No header of OpenCL is needed: cl_context, cl_device_id, cl_command_queue, cl_mem and cl_event are passed as void *. They must be
 * live objects of the libOpenCL.so.1 of this process, which nobody can check. In a library that was built without OpenCL all of
 * these functions return EVN_ERROR_UNSUPPORTED.
 *
 *   evn_opencl_attach_options options = EVN_OPENCL_ATTACH_OPTIONS_INIT;
 *   options.name = "display"; options.context = context; options.device = id;
 *   evn_opencl_attach(runtime, &options, &device, &error);
 *   evn_opencl_wrap_buffer(device, buffer, 0, EVN_DTYPE_FLOAT32, dims, 4, 0, NULL, NULL, &input, &error);
 *   clEnqueueNDRangeKernel(queue, kernel, ..., &written); clFlush(queue);        the host's kernel fills the buffer
 *   evn_opencl_import_event(device, written, &event, &error);
 *   evn_device_wait_event(device, event, &error);
 *   evn_session_run(session, &input, 1, &output, 1, NULL, &error);               no byte has gone through the host
 */
#ifndef EVENER_OPENCL_H
#define EVENER_OPENCL_H

#include "evener/event.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------------------------- OpenCL -- */

/* What a host gives of a device that it has opened. @since 0.2 */
typedef struct evn_opencl_attach_options {
  uint32_t struct_size;
  uint32_t flags;           /* 0 */
  const char *name;         /* of the device in the runtime: one that the configuration has with `attached: true`, or one that means
                               nothing yet: at most 63 letters, digits and _ . -, the first a letter */
  void *context;            /* cl_context, which has the device */
  void *device;             /* cl_device_id; may be a part of a device (clCreateSubDevices) */
  void *queue;              /* cl_command_queue of both, in order, for the kernels of Evener; NULL: one of its own */
  uint64_t memory_limit_bytes; /* 0: what the configuration says, else no limit. What the host allocates itself is not counted */
} evn_opencl_attach_options;
#define EVN_OPENCL_ATTACH_OPTIONS_INIT {sizeof(evn_opencl_attach_options), 0, NULL, NULL, NULL, NULL, 0}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_opencl_attach_options_init(evn_opencl_attach_options *options, uint32_t struct_size);

/* Makes a device of the runtime of the host's context. It is like one that the configuration names: rules and session options say
 * its name. The context and the queue are retained as long as the runtime. A physical device is one device of a runtime: "gpu" and
 * "opencl:0" mean the attached one from now on where they name the same hardware, and one that is open already is not attached.
 *   options  name, context and device must be given
 *   device   out, nullable, released by the caller
 * Returns EVN_ERROR_INVALID_ARGUMENT (the name; the context does not have the device; the queue is of another context or device, or
 * out of order), EVN_ERROR_WRONG_STATE (the device is open: attach it before something names it), EVN_ERROR_DEVICE_UNAVAILABLE,
 * EVN_ERROR_UNSUPPORTED. Thread-safe. @since 0.2 */
EVN_API evn_status evn_opencl_attach(evn_runtime runtime, const evn_opencl_attach_options *options, evn_device *device,
                                     evn_error *error);

/* Gives the objects of an OpenCL device, attached or opened by the library: its cl_context, cl_device_id, and the cl_command_queue
 * of its kernels. They are the device's: valid as long as the runtime, and released by nobody else. What the host enqueues to the
 * queue itself is in order with the kernels of Evener.
 *   context, native_device, queue  out, each nullable
 * Returns EVN_ERROR_INVALID_ARGUMENT (no OpenCL device), EVN_ERROR_UNSUPPORTED. No cost. @since 0.2 */
EVN_API evn_status evn_opencl_device_objects(evn_device device, void **context, void **native_device, void **queue,
                                             evn_error *error);

/* Makes a tensor over a cl_mem, without a copy: an input or output of runs like any other of the device. It retains the cl_mem. The
 * host sees to the order of its own commands (events, or evn_opencl_device_objects' queue). Its bytes do not count as the device's.
 *   mem      a buffer of the device's context, or a part of one (clCreateSubBuffer)
 *   offset   bytes from its beginning; with that of a part a multiple of 128
 *   flags    0 or EVN_TENSOR_READ_ONLY, which a buffer that is read-only for kernels or for the host needs
 *   deleter  nullable: called once with `user` and `mem` when the tensor is gone, on whichever thread; not where this call fails
 * Returns EVN_ERROR_INVALID_ARGUMENT (no OpenCL device; no buffer, or one of another context; it ends before the tensor does;
 * read-only without the flag), EVN_ERROR_UNSUPPORTED (the offset; strings; a buffer that kernels or the host cannot read; the
 * build), EVN_ERROR_LIMIT. Thread-safe. @since 0.2 */
EVN_API evn_status evn_opencl_wrap_buffer(evn_device device, void *mem, uint64_t offset, evn_dtype dtype, const int64_t *dims,
                                          uint32_t rank, uint32_t flags, evn_deleter deleter, void *user, evn_tensor *tensor,
                                          evn_error *error);

/* Gives the cl_mem under a tensor on an OpenCL device, and the byte at which the tensor begins there. The cl_mem is the library's:
 * valid as long as the tensor is, even where the host retains it, as its memory is used again afterwards. It may hold other tensors
 * too, and may be longer. A tensor without elements has NULL.
 *   mem, offset  out
 * Returns EVN_ERROR_INVALID_ARGUMENT (the tensor is on another kind of device), EVN_ERROR_UNSUPPORTED. No cost. @since 0.2 */
EVN_API evn_status evn_opencl_get_buffer(evn_tensor tensor, void **mem, uint64_t *offset, evn_error *error);

/* Makes an event of the host's cl_event, which it retains: evn_event_wait, evn_device_wait_event and evn_tensor_copy_async take it.
 * The host must have had the driver begin what it waits for (clFlush), or set it if it is a user event: work that waits for it
 * holds up what comes later, and tensors of a copy that waits for it stay until then.
 *   device  an OpenCL device of the event's context
 * Returns EVN_ERROR_INVALID_ARGUMENT (no OpenCL device; an event of another context), EVN_ERROR_UNSUPPORTED. Thread-safe.
 * @since 0.2 */
EVN_API evn_status evn_opencl_import_event(evn_device device, void *native_event, evn_event *event, evn_error *error);

/* Gives a cl_event of the device's context that ends as the event does, for wait lists of the host's commands: the device's own; a
 * user event that has ended for what has happened; for events of other devices, one that a callback of theirs completes.
 *   native_event  out: the caller releases it with clReleaseEvent
 * Returns EVN_ERROR_INVALID_ARGUMENT (no OpenCL device; an event of another runtime), EVN_ERROR_DEVICE_LOST (the event has ended
 * with an error), EVN_ERROR_UNSUPPORTED. Thread-safe. @since 0.2 */
EVN_API evn_status evn_opencl_export_event(evn_event event, evn_device device, void **native_event, evn_error *error);

/* Flags of evn_opencl_store_programs. @since 0.2 */
enum {
  EVN_PROGRAMS_SOURCES = 1 /* instead of binaries, texts in OpenCL C for a compiler to SPIR-V. The device needs none */
};

/* Builds every program that the library has for an OpenCL device, and writes their binaries into a folder, for devices that have no
 * compiler, or none at hand: with `devices.NAME.programs: FOLDER` they are read from there. A binary is taken by the build of the
 * library that has stored it alone, and by the same device, driver and platform, which the file's name tells; a folder may hold
 * those of many. Devices without a compiler that take SPIR-V may instead have EVN_PROGRAMS_SOURCES, of which scripts/make_il.py
 * makes SPIR-V elsewhere.
 *   folder   made where it is missing; files of the same programs are replaced
 *   flags    0 or EVN_PROGRAMS_SOURCES
 *   stored   out, nullable: how many programs the folder has now of this device
 *   refused  out, nullable: how many the driver does not build, or gives no binary of; for each the log has a warning
 * Returns EVN_ERROR_INVALID_ARGUMENT (no OpenCL device; the flags), EVN_ERROR_IO (a file cannot be written),
 * EVN_ERROR_UNSUPPORTED (the device has no compiler; the build), EVN_ERROR_OUT_OF_MEMORY. Blocks, some tenths of a second for each
 * of about 120 programs. Thread-safe; runs go on meanwhile. @since 0.2 */
EVN_API evn_status evn_opencl_store_programs(evn_device device, const char *folder, uint32_t flags, uint32_t *stored,
                                             uint32_t *refused, evn_error *error);

#ifdef __cplusplus
}
#endif
#endif
