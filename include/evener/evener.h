/* Evener: embeddable inference of ONNX models over CPU and OpenCL devices. The public C API.
 *
 * Conventions, stated once:
 *
 *  Handles    Every object is a typed opaque handle whose value is a slot and a generation, never an address. A NULL,
 *             released, random or wrong-kind handle gives EVN_ERROR_INVALID_HANDLE, in release builds too. `create`,
 *             `load`, `wrap`, `find` and `at` functions give a handle that the caller owns and ends with the matching
 *             `release`. Children keep their parents alive inside, so handles may be released in any order, also while
 *             a call that uses them runs on another thread: that call ends normally. `release(NULL)` does nothing.
 *             At most 262,144 handles are alive in a process at a time; one more is EVN_ERROR_LIMIT.
 *  Errors     A fallible function returns EVN_OK or an error and takes a nullable `error`, owned by the caller, whose
 *             `struct_size` must be set (EVN_ERROR_INIT). Nothing is kept per thread, nothing needs freeing. When a
 *             function fails, all its outputs are unchanged. Nothing is thrown, printed or aborted.
 *             Besides the statuses that a function lists, each may return EVN_ERROR_INVALID_ARGUMENT (a NULL where it
 *             is not allowed, an unknown enum value or flag, a struct_size that is too small),
 *             EVN_ERROR_INVALID_HANDLE, EVN_ERROR_OUT_OF_MEMORY and EVN_ERROR_INTERNAL (a bug of ours).
 *  Options    Structs begin with `struct_size` and have an EVN_..._INIT macro, and for languages without such macros a
 *             function evn_..._init, which is given the client's sizeof and makes the same bytes. They only grow at the end:
 *             a smaller size is an older client and gets defaults; a larger one with a non-zero tail is EVN_ERROR_VERSION.
 *  Infos      Structs that the library fills begin with `struct_size` too, which the caller sets to its sizeof (by the same
 *             macros and functions). No more than that is written, and on return `struct_size` is how many bytes were: the
 *             smaller of both sides' sizes. What lies behind is as it was before. Text in an info is cut to fit; the whole of
 *             it comes from a function of its own.
 *  Arrays     Arrays, texts and bytes that are counted come as a pointer and a number. A NULL with a number above 0 is
 *             EVN_ERROR_INVALID_ARGUMENT. With the number 0 an array is empty, and its pointer is not looked at. A
 *             configuration's text, and a model in the `data` of options, whose size is 0 are EVN_ERROR_INVALID_ARGUMENT.
 *  User data  What a caller gives with a callback, to be handed to it (`user`), may come with a function that takes it back
 *             (`release`, nullable). It is called once, after the last call of the callback, when the library has no more use
 *             for both. Where the function that was given them fails it is not called: they stay the caller's. It may run on
 *             any thread, must not throw, and must not call the library but to release other objects.
 *  Threads    Every function may be called from any thread at any time, unless it says otherwise. A tensor's bytes are
 *             the caller's: writing them while a run reads them is a race.
 *  Strings    UTF-8, ending in NUL. Functions that give text take `buffer`, `capacity` and `size`: they write the text
 *             and set *size to its length with the NUL. With buffer NULL and capacity 0 they only set *size. A
 *             capacity that is too small is EVN_ERROR_BUFFER_TOO_SMALL, with `bytes_requested` in the error.
 *  Numbers    Every function computes in the default floating-point environment (rounding to nearest, no traps), whatever the
 *             calling thread has set. The thread's own environment is in force again in each callback, and when the function
 *             returns, exception flags included. Kernels are fast by default: on x86 CPUs results below 2^-126 in magnitude are 0,
 *             and products and convolutions take inputs that small for 0 (others, and tensors that are only moved, keep
 *             them); and convolutions may use Winograd's method, whose sums err by up to 9 times as much as plain ones.
 *             EVN_NUMERICS_STRICT, or `numerics: strict` of the configuration, has neither, for all nodes or for some.
 *  Cost       "No cost" means no allocation, no lock and no system call beyond the handle check (some 10 ns).
 *  Since      What does not say otherwise is there since 0.1; "@since 0.2" is said of what came later. docs/abi.md says what
 *             may change, and when.
 */
#ifndef EVENER_EVENER_H
#define EVENER_EVENER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define EVN_API __attribute__((visibility("default")))
#else
#define EVN_API
#endif

/* ---------------------------------------------------------------------------------------------------- status -- */

/* What a call came to. Values are appended, never renumbered. */
typedef int32_t evn_status;
enum {
  EVN_OK = 0,
  EVN_ERROR_INVALID_ARGUMENT = 1,   /* an argument is NULL, out of range, or does not fit the model */
  EVN_ERROR_INVALID_HANDLE = 2,     /* NULL, released, random or of another kind */
  EVN_ERROR_INVALID_MODEL = 3,      /* the model's bytes or graph are not valid ONNX */
  EVN_ERROR_UNSUPPORTED = 4,        /* valid, but this library or device cannot run it */
  EVN_ERROR_LIMIT = 5,              /* a limit of the configuration would be exceeded */
  EVN_ERROR_OUT_OF_MEMORY = 6,      /* the system or a memory cap refused bytes */
  EVN_ERROR_IO = 7,                 /* a file cannot be read or written */
  EVN_ERROR_CONFIG = 8,             /* the YAML is wrong; the message has line, column and the nearest valid key */
  EVN_ERROR_DEVICE_UNAVAILABLE = 9, /* no such device on this machine */
  EVN_ERROR_DEVICE_LOST = 10,       /* a device stopped working */
  EVN_ERROR_TIMEOUT = 11,           /* the run's time ended */
  EVN_ERROR_CANCELLED = 12,         /* the run was cancelled */
  EVN_ERROR_NO_THREADS = 13,        /* the system refused a thread */
  EVN_ERROR_WRONG_STATE = 14,       /* the object is not in a state that allows the call */
  EVN_ERROR_VERSION = 15,           /* the client is newer than the library */
  EVN_ERROR_BUFFER_TOO_SMALL = 16,  /* a caller's buffer is too small */
  EVN_ERROR_INTERNAL = 17,          /* a bug of the library, or of a custom operator that it called */
  EVN_ERROR_BUSY = 18,              /* too much is queued already, or what is asked for is still under way. @since 0.2 */
  EVN_ERROR_FORKED = 19             /* a forked child cannot use this: an OpenCL device, or what another thread was using when the
                                       process forked. @since 0.2 */
};

/* Returns the name of a status ("EVN_ERROR_IO"); "EVN_ERROR_UNKNOWN" for another value. Static memory. No cost. */
EVN_API const char *evn_status_name(evn_status status);

/* Where and why a call failed. Owned by the caller; written only on failure. All strings end in NUL and are cut to fit;
 * unprintable bytes of hostile names are escaped. */
typedef struct evn_error {
  uint32_t struct_size;      /* sizeof(evn_error) of the client */
  evn_status status;         /* the value that the function returned */
  char message[512];         /* one line */
  char node[128];            /* the graph node concerned, or "" */
  char device[64];           /* the device concerned, or "" */
  uint64_t bytes_requested;  /* for memory, limits and buffers: bytes asked for; else 0 */
  uint64_t bytes_available;  /* for memory and limits: bytes that were left; else 0 */
} evn_error;
#define EVN_ERROR_INIT {sizeof(evn_error), EVN_OK, {0}, {0}, {0}, 0, 0}

/* Makes *error what EVN_ERROR_INIT makes it. So do all functions called evn_..._init with their structs.
 *   struct_size  sizeof(evn_error) of the client: all of these bytes are written, and no others. Sizes that no client has (fewer
 *                bytes than the field itself, more than 65536) leave *error as it is, and so does NULL
 * No cost. @since 0.2 */
EVN_API void evn_error_init(evn_error *error, uint32_t struct_size);

/* --------------------------------------------------------------------------------------------------- version -- */

#define EVN_ABI_MAJOR 0

/* The version of this header. @since 0.2 */
#define EVN_VERSION_MAJOR 0
#define EVN_VERSION_MINOR 3
#define EVN_VERSION_PATCH 0
#define EVN_VERSION_NUMBER ((uint32_t)EVN_VERSION_MAJOR << 16 | (uint32_t)EVN_VERSION_MINOR << 8 | (uint32_t)EVN_VERSION_PATCH)

/* Returns the library's version, as "0.3.0". Static memory. No cost. */
EVN_API const char *evn_version(void);

/* Returns major << 16 | minor << 8 | patch. No cost. */
EVN_API uint32_t evn_version_number(void);

/* Says where this library has a field of a struct of these headers: what a binding that declares the structs in another language
 * compares its own layout with, before it hands any of them over.
 *   structure  its name, as "evn_error"
 *   field      of it, as "message"; NULL: the whole struct, at offset 0. Fields of arrays are one
 *   offset     out, in bytes
 *   size       out, in bytes
 * Returns EVN_ERROR_INVALID_ARGUMENT (this library has no such struct or field: it is older). Searches in a list. @since 0.3 */
EVN_API evn_status evn_abi_layout(const char *structure, const char *field, size_t *offset, size_t *size, evn_error *error);

/* -------------------------------------------------------------------------------------------------- handles -- */

typedef struct evn_runtime_handle *evn_runtime; /* devices, memory pools, threads, logger */
typedef struct evn_device_handle *evn_device;   /* a view of one device of a runtime */
typedef struct evn_tensor_handle *evn_tensor;   /* dtype, shape and storage on one device */
typedef struct evn_model_handle *evn_model;     /* an immutable graph and its weights */
typedef struct evn_session_handle *evn_session; /* a model placed and compiled on devices */
typedef struct evn_value_handle *evn_value;     /* a tensor, or a sequence, optional or map */
typedef struct evn_cancel_handle *evn_cancel;   /* asks work to stop. @since 0.2 */
typedef struct evn_state_handle *evn_state;     /* what one stream keeps from run to run (state.h). @since 0.2 */

/* Element types; the values are ONNX's TensorProto.DataType. */
typedef int32_t evn_dtype;
enum {
  EVN_DTYPE_UNDEFINED = 0,
  EVN_DTYPE_FLOAT32 = 1,
  EVN_DTYPE_UINT8 = 2,
  EVN_DTYPE_INT8 = 3,
  EVN_DTYPE_UINT16 = 4,
  EVN_DTYPE_INT16 = 5,
  EVN_DTYPE_INT32 = 6,
  EVN_DTYPE_INT64 = 7,
  EVN_DTYPE_STRING = 8,
  EVN_DTYPE_BOOL = 9, /* one byte, 0 or 1 */
  EVN_DTYPE_FLOAT16 = 10,
  EVN_DTYPE_FLOAT64 = 11,
  EVN_DTYPE_UINT32 = 12,
  EVN_DTYPE_UINT64 = 13,
  EVN_DTYPE_COMPLEX64 = 14,
  EVN_DTYPE_COMPLEX128 = 15,
  EVN_DTYPE_BFLOAT16 = 16,
  EVN_DTYPE_FLOAT8E4M3FN = 17,
  EVN_DTYPE_FLOAT8E4M3FNUZ = 18,
  EVN_DTYPE_FLOAT8E5M2 = 19,
  EVN_DTYPE_FLOAT8E5M2FNUZ = 20,
  /* Elements of less than a byte lie as in a model file: several to a byte, the first in the lowest bits, and what is left of the
     last byte is 0. A tensor of them begins at a byte of its own. */
  EVN_DTYPE_UINT4 = 21,
  EVN_DTYPE_INT4 = 22,
  EVN_DTYPE_FLOAT4E2M1 = 23,
  EVN_DTYPE_FLOAT8E8M0 = 24,
  EVN_DTYPE_UINT2 = 25,
  EVN_DTYPE_INT2 = 26
};

/* The largest rank of a tensor. */
#define EVN_MAX_RANK 8

/* -------------------------------------------------------------------------------------------------- runtime -- */

typedef int32_t evn_log_level;
enum { EVN_LOG_ERROR = 0, EVN_LOG_WARNING = 1, EVN_LOG_INFO = 2, EVN_LOG_DEBUG = 3 };

/* Takes back what was given to be handed to a callback; see "User data" above. @since 0.2 */
typedef void (*evn_user_release)(void *user);

/* Receives one line of log. Called from any thread that is inside the library; `message` lives for the call only. It must
 * return, must not throw, and must not call the library. */
typedef void (*evn_log_callback)(void *user, evn_log_level level, const char *message);

/* One key and value of a record. */
typedef struct evn_log_field {
  const char *key;
  const char *value;
} evn_log_field;

/* One thing that happened. All strings live for the call only, except `event`, which is static memory. */
typedef struct evn_log_record {
  uint32_t struct_size;        /* of the library: it may be larger than the client's */
  evn_log_level level;
  uint64_t timestamp_ns;       /* CLOCK_MONOTONIC */
  const char *message;         /* the line that evn_log_callback gets */
  const char *event;           /* what happened, for programs; these names stay. "runtime.created", "device.opened",
                                  "device.named" (by another name, a device that is open), "device.absent", "model.loaded",
                                  "model.output_shape" (declared otherwise than computed), "model.value_type" (value_info
                                  says another type of a value than it has), "session.created",
                                  "plan.created", "program.compiling" (begins, and may take seconds),
                                  "program.compiled", "program.restored" (from the cache), "program.refused" (by the
                                  driver, when all are stored), "clblast.tried",
                                  "kernel.tuned" (which of several kernels is fastest for some sizes),
                                  "memory.refused" (a cap), "cache.opened", "cache.ignored" (a file of packed weights that
                                  is not used), "cache.written", "cache.not_written", "batching.open" (a session's batching is
                                  proven for each batch), "batching.refused" (requests of some shapes are not joined),
                                  "batching.failed" (a batch failed, and its requests run alone), "split.refused" (runs of some
                                  shapes are not split over devices, or nodes keep their shares there),
                                  "runtime.reconfigured", "session.replaced" (another
                                  placement took over), "placement.unmatched" (a rule, or a pattern of keep_fp32, matches no
                                  node of a session's model), "quantizer.unmatched" (the same of `keep`),
                                  "config.unknown_operator" (a name in a rule that the host may register later),
                                  "device.lost", "memory.spared" (a session or a plan that does not fit
                                  takes less: "step" says how, "bytes" how many less), "memory.moved" (nodes go to another device,
                                  as one has no memory for them), "device.quarantined" (it has not ended work whose time was
                                  over: runs and copies fail until it has), "device.returned" (it has), "probe.failed" (drivers that
                                  the probe found unfit, and that this process does not ask), "recording.failed" (a file of a
                                  run's inputs cannot be written, and the session records no more) */
  const char *device;          /* the device concerned, or "" */
  const char *node;            /* the graph node concerned, or "" */
  const evn_log_field *fields; /* field_count figures of the event: "duration_ns", "bytes", ... Numbers are decimal */
  uint32_t field_count;
  uint32_t reserved;
} evn_log_record;

/* Receives one record. The rules of evn_log_callback hold. */
typedef void (*evn_log_sink)(void *user, const evn_log_record *record);

/* One of the tasks that a host's executor is given; may be called on any thread. Never throws. */
typedef void (*evn_task)(void *context, uint32_t index);

/* A host's executor: calls task(context, i) once for each i < count, on any threads, in any order, and returns when all these
 * calls have returned. It may run them all on the calling thread. It is called by the thread that runs a session, also by several
 * at a time, and must not throw. What happens when it does not keep to this: an index left out costs only time (others do its
 * work), an index >= count or one that comes twice is ignored, but returning while a task runs is undefined. */
typedef void (*evn_parallel_for)(void *user, uint32_t count, evn_task task, void *context);

/* Has a task run later, once, as task(context, 0), on any thread that may block for as long as a run takes. It returns at once,
 * and does not call the task itself. A status other than EVN_OK says that the task will not be run: what asked for it fails with
 * that status. @since 0.2 */
typedef evn_status (*evn_post)(void *user, evn_task task, void *context);

/* A host's memory for what the CPU device holds: tensors, weights, packed weights, arenas, scratch, files while they are read.
 * Small bookkeeping does not pass it. Both functions are called from any thread, under locks of the library, and must not throw
 * or call the library. Caps count these bytes as they count the system's.
 * evn_allocate gives `size` > 0 bytes aligned to `alignment`, a power of two up to 4096; NULL becomes EVN_ERROR_OUT_OF_MEMORY.
 * evn_free takes back what it gave, with the same size. */
typedef void *(*evn_allocate)(void *user, size_t size, size_t alignment);
typedef void (*evn_free)(void *user, void *memory, size_t size);
typedef struct evn_allocator {
  evn_allocate allocate;
  evn_free free;
  void *user; /* handed to both */
} evn_allocator;

/* How a runtime is made. Everything may be left zero: the CPU with all cores this process may use, no caps. */
typedef struct evn_runtime_options {
  uint32_t struct_size;
  int32_t thread_count;         /* threads of the CPU device, the caller included; 0: from the configuration, else as many
                                   as the process's affinity and its cgroup's quota allow. 1 starts no thread */
  const char *config_path;      /* a YAML file (config/schema.yaml documents every key), or NULL */
  const char *config_text;      /* the same as text of config_size bytes, or NULL; not both */
  size_t config_size;           /* bytes of config_text: 0 exactly if that is NULL */
  evn_log_callback log_callback; /* NULL: no log. The library never prints */
  void *log_user;               /* handed to log_callback */
  evn_log_level log_level;      /* the last level that is delivered */
  uint32_t reserved;            /* 0 */
  const char *cache_dir;        /* folder for compiled OpenCL programs; NULL: $EVN_CACHE_DIR, else $XDG_CACHE_HOME/evener,
                                   else ~/.cache/evener; "" : no cache. A damaged or unwritable one does no harm */
  uint64_t cpu_memory_limit_bytes; /* cap of the CPU device; 0: from the configuration, else none */
  evn_parallel_for parallel_for; /* the host's executor: the library starts no thread of its own, and thread_count says into how
                                    many tasks work is split at most. NULL: threads of the library. Results have the same bits */
  void *parallel_user;          /* handed to parallel_for */
  evn_log_sink log_sink;        /* receives what log_callback does, with its fields; log_level counts for both. NULL: none */
  void *log_sink_user;          /* handed to log_sink */
  evn_allocator allocator;      /* memory of the CPU device; both functions or none. All zero: the system's. It must outlive the
                                   runtime, which goes with the last object that was made of it */
  /* Take back the `user` of what their names say, when the runtime has ended: the last object that was made of it has gone, its
     threads have ended, its devices are closed, all memory has been given back. They are called in this order, behind those of
     custom operators, and whether or not there is a callback. @since 0.2 */
  evn_user_release parallel_release;  /* nullable; of parallel_user */
  evn_user_release log_release;       /* nullable; of log_user */
  evn_user_release log_sink_release;  /* nullable; of log_sink_user */
  evn_user_release allocator_release; /* nullable; of allocator.user */
  evn_user_release ended;       /* nullable. Called last: the runtime has ended. The call that ended it may still be returning, so
                                   that the library must not be unloaded from here. @since 0.2 */
  void *ended_user;             /* handed to ended */
  evn_post post;                /* nullable: how requests (request.h) are run on the host's threads. Without it, a runtime with
                                   parallel_for has none. @since 0.2 */
  void *post_user;              /* handed to post */
  evn_user_release post_release; /* nullable; of post_user. Called after parallel_release */
  const char *probe_program; /* nullable: path of the `evener` command. Before the runtime first asks drivers for their devices, by
                                which a bad one could end this process, that program asks them, as a process of its own. Where it
                                crashes, or takes longer than probe_timeout_ns, the runtime has no such devices, and says why
                                wherever it says that one is not there. NULL: the configuration's `probe.program`, else nothing is
                                tried. @since 0.2 */
  uint64_t probe_timeout_ns; /* how long that may take for each set of drivers that is tried; 0: the configuration's
                                `probe.timeout`, else 5 s. @since 0.2 */
} evn_runtime_options;
#define EVN_RUNTIME_OPTIONS_INIT                                                                                    \
  {sizeof(evn_runtime_options), 0, NULL, NULL, 0, NULL, NULL, EVN_LOG_WARNING, 0, NULL, 0, NULL, NULL, NULL, NULL, \
   {NULL, NULL, NULL}, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_runtime_options_init(evn_runtime_options *options, uint32_t struct_size);

/* Makes a runtime: reads the configuration and opens the devices that it names (without one: only the CPU; OpenCL devices are
 * opened when evn_runtime_device_find first asks for them). EVN_CPU_ISA in the environment limits the CPU to an instruction set, as
 * "avx2".
 *   options  nullable; copied. What it has of `user`s is the library's from the moment that this succeeds
 *   runtime  out; the caller releases it
 * Returns EVN_ERROR_CONFIG, EVN_ERROR_IO (config_path), EVN_ERROR_INVALID_ARGUMENT (also: EVN_CPU_ISA is none that there is), or
 * EVN_ERROR_DEVICE_UNAVAILABLE (one that is configured and not `optional`). Allocates; may load OpenCL's loader and block on a
 * driver. The first runtime keeps the library loaded until the process ends: dlclose returns 0 and unloads nothing, since threads
 * and objects may still need its code. */
EVN_API evn_status evn_runtime_create(const evn_runtime_options *options, evn_runtime *runtime, evn_error *error);

/* Ends the caller's hold. Sessions of `models:` that nobody else holds end with it. The runtime itself goes when its last device,
 * tensor, model and session have gone, and devices have done
 * what runs that timed out have left to them. May block for its threads to end. Never fails on NULL. */
EVN_API evn_status evn_runtime_release(evn_runtime runtime);

/* Sets *count to the number of devices that the runtime has opened. */
EVN_API evn_status evn_runtime_device_count(evn_runtime runtime, uint32_t *count, evn_error *error);

/* Gives the device number `index` (0 is always the CPU), in the order in which they were opened.
 * Returns EVN_ERROR_INVALID_ARGUMENT when there is none of that index. */
EVN_API evn_status evn_runtime_device_at(evn_runtime runtime, uint32_t index, evn_device *device, evn_error *error);

/* Gives a device by its string: a name of the configuration, "cpu", "gpu" (the first OpenCL GPU), "gpu:1", "opencl:0" (the
 * first OpenCL device of any kind). Opens an OpenCL device that was not open under any name yet: each is opened once in a
 * runtime, and has one cap.
 * Returns EVN_ERROR_DEVICE_UNAVAILABLE; the message lists the devices that there are. May block on the driver. */
EVN_API evn_status evn_runtime_device_find(evn_runtime runtime, const char *name, evn_device *device, evn_error *error);

typedef int32_t evn_format;
enum {
  EVN_FORMAT_TEXT = 0,
  EVN_FORMAT_JSON = 1,
  EVN_FORMAT_DOT = 2, /* a graph in Graphviz's language; evn_session_explain only */
  EVN_FORMAT_SVG = 3, /* the same graph as a picture that stands by itself; evn_session_explain only */
  EVN_FORMAT_PROMETHEUS = 4 /* the text format of Prometheus; evn_runtime_get_statistics only. @since 0.2 */
};

/* Gives a session of a model that the configuration names in `models:`, made as that says and warmed: the same one to all who
 * ask, so that its weights, requests and statistics are one. The first call for a name loads the model and makes the session, and
 * those that come meanwhile wait for it; a call that fails leaves the next one to try again.
 *   name  a key of `models:`
 * Returns EVN_ERROR_INVALID_ARGUMENT (no such name; the message lists those there are), EVN_ERROR_CONFIG (what the configuration
 * says of the model does not fit it), EVN_ERROR_WRONG_STATE (the calling thread is loading that model, or would wait for one that
 * waits for it), and what evn_model_load_file, evn_session_create and evn_session_run return otherwise. Blocks; allocates. The
 * caller releases the session. @since 0.2 */
EVN_API evn_status evn_runtime_session(evn_runtime runtime, const char *name, evn_session *session, evn_error *error);

/* Another configuration for a runtime. @since 0.2 */
typedef struct evn_reconfigure_options {
  uint32_t struct_size;
  uint32_t reserved;       /* 0 */
  const char *config_path; /* a YAML file, or NULL */
  const char *config_text; /* the same as text of config_size bytes, or NULL; not both. Both NULL: as a runtime that was made
                              without a configuration */
  size_t config_size;      /* bytes of config_text: 0 exactly if that is NULL */
  evn_cancel cancel;       /* nullable: once it is requested, the call ends with EVN_ERROR_CANCELLED, and nothing has changed */
  uint64_t deadline_ns;    /* of CLOCK_MONOTONIC, or 0: the call ends with EVN_ERROR_TIMEOUT then, and nothing has changed */
} evn_reconfigure_options;
#define EVN_RECONFIGURE_OPTIONS_INIT {sizeof(evn_reconfigure_options), 0, NULL, NULL, 0, NULL, 0}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_reconfigure_options_init(evn_reconfigure_options *options, uint32_t struct_size);

/* Gives the runtime another configuration, and every session of it, those that exist, the placement that this says. Runs and
 * requests that were submitted before end on the old placement; later ones use the new. Handles of sessions, models, tensors and
 * states stay valid: a state goes on with what it holds, which its next run copies to where the new placement wants it.
 *
 * Everything is made before anything changes: devices that are new are opened, each session is placed and its weights are packed
 * anew, models of `models:` that are in use are loaded where their path is another one, and warmed. Where that fails the call
 * returns the error, naming the file and line or the session's model, and nothing has changed. While it lasts, both placements
 * are in memory and count against the devices' limits, the higher one of the old and the new; at the end what is held must be
 * within the new ones.
 *
 * What is bound to an open device stays: a device that the new configuration describes with other options than memory_limit,
 * precision and products is refused (EVN_ERROR_CONFIG), and so are a name that is another device's and another number of threads.
 * Devices that it does not name stay open, unused. Sessions keep the options that the caller made them with, before what the
 * configuration says; a session of `models:` has what the new configuration says of its name, or where it has that name no more,
 * what it had. A model under another path must have the same inputs and outputs. A trace that is being recorded goes on with the
 * new placement, and begins again.
 *   options  nullable: as without a configuration
 * Returns EVN_ERROR_CONFIG, EVN_ERROR_IO, EVN_ERROR_INVALID_ARGUMENT, EVN_ERROR_DEVICE_UNAVAILABLE, EVN_ERROR_OUT_OF_MEMORY (bytes
 * asked and left), EVN_ERROR_CANCELLED, EVN_ERROR_TIMEOUT, and what evn_session_create and evn_model_load_file return. Takes as
 * long as making all sessions; thread-safe, one call after the other; runs go on meanwhile. @since 0.2 */
EVN_API evn_status evn_runtime_reconfigure(evn_runtime runtime, const evn_reconfigure_options *options, evn_error *error);

/* Writes every platform and device that this machine offers, opened or not, and says why when there is no OpenCL; and the models
 * that the configuration names. */
EVN_API evn_status evn_runtime_describe_devices(evn_runtime runtime, evn_format format, char *buffer, size_t capacity,
                                                size_t *size, evn_error *error);

/* ------------------------------------------------------------------------------------------- custom operators -- */

/* A node of a custom operator, as its callbacks see it. A handle that is valid while the callback that got it runs. */
typedef struct evn_operator_node_handle *evn_operator_node;

/* A tensor in host memory, row-major and aligned for its dtype. Arrays of it are handed to callbacks: it never grows. */
typedef struct evn_tensor_view {
  evn_dtype dtype;            /* EVN_DTYPE_UNDEFINED: an optional one that is not given or not wanted */
  uint32_t rank;              /* EVN_UNKNOWN_RANK: not known yet (in `infer` only) */
  int64_t dims[EVN_MAX_RANK]; /* the first `rank` count; -1: not known yet (in `infer` only) */
  void *data;                 /* in `run`: the elements; NULL when there are none. Those of inputs must not be written. In `infer`:
                                 NULL, but for inputs of `value_inputs` whose value is known */
  uint64_t size_bytes;        /* of data */
} evn_tensor_view;
#define EVN_UNKNOWN_RANK UINT32_MAX

/* Says what a custom operator would make of its inputs: sets dtype, rank and dims of each output; what is set of an output that the
 * model does not want is ignored. Called while a model loads, where ranks and dims
 * of inputs may not be known and those of outputs may be left so, and for each new input shape of a run, where all are known and
 * all must be set. The answers must agree: the same dtypes, and ranks and dims that are the same once they are known. It must
 * depend on nothing but its arguments, and may be called from several threads at a time.
 *   error  may be given a message (`snprintf` into error->message) for a status other than EVN_OK */
typedef evn_status (*evn_operator_infer)(void *user, evn_operator_node node, const evn_tensor_view *inputs, uint32_t input_count,
                                         evn_tensor_view *outputs, uint32_t output_count, evn_error *error);

/* Computes the outputs' elements. dtype and dims are those that `infer` gave. May be called from several threads at a time, and on
 * threads of the library, but for EVN_OPERATOR_CALLER_THREAD. */
typedef evn_status (*evn_operator_run)(void *user, evn_operator_node node, const evn_tensor_view *inputs, uint32_t input_count,
                                       const evn_tensor_view *outputs, uint32_t output_count, evn_error *error);

/* Called once, when the runtime and everything made of it have gone; no other callback runs then or later. */
typedef void (*evn_operator_release)(void *user);

/* As max_inputs or max_outputs: any number. */
#define EVN_VARIADIC UINT32_MAX

/* Flags of evn_operator. @since 0.3 */
enum {
  EVN_OPERATOR_CALLER_THREAD = 1 /* `infer` and `run` are called on no thread but one that is inside of a call of the library which
                                    the host made on it (loading, making a session, a run, ...): for hosts whose functions may be
                                    entered on their own threads only (Lua, Node, interpreters with a lock). What would run such an
                                    operator elsewhere is refused with its node and name: evn_session_submit, with
                                    EVN_ERROR_UNSUPPORTED. `release` may be called on any thread all the same */
};

/* A custom operator. Callbacks must not call the library but for evn_operator_..., with the node that they got. Exceptions of C++
 * that leave them are caught, and are EVN_ERROR_INTERNAL; std::uncaught_exceptions() of the host's C++ runtime counts them
 * still. */
typedef struct evn_operator {
  uint32_t struct_size;
  int32_t since_version;  /* first version of the domain that this is for, >= 1; the highest that a model's import allows applies */
  const char *domain;     /* of the operator in the model; not ai.onnx, which may not be extended */
  const char *name;
  uint32_t min_inputs;
  uint32_t max_inputs;
  uint32_t min_outputs;
  uint32_t max_outputs;
  uint32_t value_inputs;  /* bit i: shapes of outputs depend on the value of input i, which `infer` gets where it is known */
  uint32_t reserved;      /* 0 */
  void *user;             /* handed to the callbacks */
  evn_operator_infer infer;
  evn_operator_run run;
  evn_operator_release release; /* nullable. Not called when the registration fails */
  uint64_t flags;               /* EVN_OPERATOR_... @since 0.3 */
} evn_operator;
#define EVN_OPERATOR_INIT {sizeof(evn_operator), 1, NULL, NULL, 0, 0, 1, 1, 0, 0, NULL, NULL, NULL, NULL, 0}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_operator_init(evn_operator *op, uint32_t struct_size);

/* Adds an operator to those that models which this runtime loads from now on may use. It runs on the CPU device; others refuse it,
 * and evn_session_explain says so. Its attributes may have any names. Nodes of it are never computed while a model loads.
 *   op   copied, strings included
 * Returns EVN_ERROR_INVALID_ARGUMENT (a domain, name or version that is empty, too long or taken by the library or by an earlier
 * registration; counts that contradict each other; a callback that is missing). Allocates. */
EVN_API evn_status evn_runtime_register_operator(evn_runtime runtime, const evn_operator *op, evn_error *error);

/* Writes the node's name. */
EVN_API evn_status evn_operator_node_name(evn_operator_node node, char *buffer, size_t capacity, size_t *size, evn_error *error);

/* Kinds of attributes; the values are ONNX's AttributeProto.AttributeType. */
typedef int32_t evn_attribute_type;
enum {
  EVN_ATTRIBUTE_NONE = 0, /* not given */
  EVN_ATTRIBUTE_FLOAT = 1,
  EVN_ATTRIBUTE_INT = 2,
  EVN_ATTRIBUTE_STRING = 3,
  EVN_ATTRIBUTE_TENSOR = 4,
  EVN_ATTRIBUTE_GRAPH = 5,
  EVN_ATTRIBUTE_FLOATS = 6,
  EVN_ATTRIBUTE_INTS = 7,
  EVN_ATTRIBUTE_STRINGS = 8
};

/* Sets *type to the kind of the node's attribute `name`, or to EVN_ATTRIBUTE_NONE. No cost but the search. */
EVN_API evn_status evn_operator_attribute_type(evn_operator_node node, const char *name, evn_attribute_type *type,
                                               evn_error *error);

/* Give an attribute's value. Return EVN_ERROR_INVALID_ARGUMENT when the node has no such attribute, or one of another kind: what
 * *value was before, the default for example, stays. */
EVN_API evn_status evn_operator_attribute_int(evn_operator_node node, const char *name, int64_t *value, evn_error *error);
EVN_API evn_status evn_operator_attribute_float(evn_operator_node node, const char *name, float *value, evn_error *error);
EVN_API evn_status evn_operator_attribute_string(evn_operator_node node, const char *name, char *buffer, size_t capacity,
                                                 size_t *size, evn_error *error);

/* The same of lists and tensors, which stay where they are: the pointers are valid while the callback runs. */
EVN_API evn_status evn_operator_attribute_ints(evn_operator_node node, const char *name, const int64_t **values, size_t *count,
                                               evn_error *error);
EVN_API evn_status evn_operator_attribute_floats(evn_operator_node node, const char *name, const float **values, size_t *count,
                                                 evn_error *error);
EVN_API evn_status evn_operator_attribute_tensor(evn_operator_node node, const char *name, evn_tensor_view *view, evn_error *error);

/* The same of a list of strings: how many there are, and the one at `index`. They are bytes: *size is the string's length and 1 for
 * the NUL behind it. Returns EVN_ERROR_INVALID_ARGUMENT also when there is none of that index. @since 0.2 */
EVN_API evn_status evn_operator_attribute_string_count(evn_operator_node node, const char *name, uint32_t *count, evn_error *error);
EVN_API evn_status evn_operator_attribute_string_at(evn_operator_node node, const char *name, uint32_t index, char *buffer,
                                                    size_t capacity, size_t *size, evn_error *error);

/* --------------------------------------------------------------------------------------------------- device -- */

typedef int32_t evn_device_kind;
enum { EVN_DEVICE_CPU = 0, EVN_DEVICE_OPENCL = 1, EVN_DEVICE_OTHER = 2 };

typedef int32_t evn_device_class;
enum { EVN_DEVICE_CLASS_UNKNOWN = 0, EVN_DEVICE_CLASS_CPU = 1, EVN_DEVICE_CLASS_GPU = 2, EVN_DEVICE_CLASS_ACCELERATOR = 3 };

/* What a device has (evn_device_info.features). Whether it is faster is another question: see evn_precision. */
enum {
  EVN_DEVICE_FP16 = 1,           /* arithmetic of float16: cl_khr_fp16, AVX512-FP16 */
  EVN_DEVICE_BF16 = 2,           /* products of bfloat16: AVX512-BF16, AMX */
  EVN_DEVICE_INT8_DOT = 4,       /* products of bytes that are summed up: cl_khr_integer_dot_product, VNNI, AMX */
  EVN_DEVICE_UNIFIED_MEMORY = 8, /* its memory is the host's */
  EVN_DEVICE_SUBGROUPS = 16      /* work items of OpenCL that run in step share values */
};

/* Whether a device can be used. @since 0.2 */
typedef int32_t evn_device_state;
enum {
  EVN_DEVICE_READY = 0,
  EVN_DEVICE_QUARANTINED = 1, /* a run or copy whose time was over has left work to the device, which has not ended it within
                                 `limits.overdue_time`: until it has, runs and copies fail at once with EVN_ERROR_DEVICE_LOST */
  EVN_DEVICE_LOST = 2         /* it stopped working: it is used no more (`on_device_lost: move` of the configuration) */
};

/* What a device is. Strings are cut to fit. */
typedef struct evn_device_info {
  uint32_t struct_size;
  evn_device_kind kind;
  char name[64];            /* as the configuration or evn_runtime_device_find names it */
  char description[128];    /* the processor's or driver's own name of the device */
  char driver[128];         /* platform and driver version, or the chosen instruction set of the CPU */
  uint32_t compute_units;   /* threads of the CPU device; compute units of an OpenCL one */
  uint32_t reserved;
  uint64_t memory_bytes;    /* memory that the device reports */
  evn_device_class device_class; /* @since 0.2 */
  uint32_t features;             /* EVN_DEVICE_FP16, ... @since 0.2 */
  uint64_t largest_allocation;   /* bytes of the largest buffer that it can have. @since 0.2 */
  char identity[128];            /* tells it apart from other devices of this machine, as long as hardware and drivers stay: "pci
                                    0000:01:00.0" or "uuid ...", which it has under every driver that says so, else a name made of
                                    platform, device and index. @since 0.2 */
  evn_device_state state;        /* now; evn_device_condition says why. @since 0.2 */
  uint32_t quarantines;          /* how often it was in quarantine so far. @since 0.2 */
} evn_device_info;
#define EVN_DEVICE_INFO_INIT {sizeof(evn_device_info), 0, {0}, {0}, {0}, 0, 0, 0, 0, 0, 0, {0}, EVN_DEVICE_READY, 0}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_device_info_init(evn_device_info *info, uint32_t struct_size);

/* Ends the caller's hold of the view; the device lives as long as its runtime. No cost. */
EVN_API evn_status evn_device_release(evn_device device);

/* Fills *info, whose struct_size the caller sets. No cost. */
EVN_API evn_status evn_device_get_info(evn_device device, evn_device_info *info, evn_error *error);

/* Write the whole texts of which evn_device_info has as much as fits; a name always fits. @since 0.2 */
EVN_API evn_status evn_device_description(evn_device device, char *buffer, size_t capacity, size_t *size, evn_error *error);
EVN_API evn_status evn_device_driver(evn_device device, char *buffer, size_t capacity, size_t *size, evn_error *error);

/* Writes why the device is not ready: "it is lost: ...", "it is in quarantine: ..."; "" where it is ready (evn_device_info.state).
 * @since 0.2 */
EVN_API evn_status evn_device_condition(evn_device device, char *buffer, size_t capacity, size_t *size, evn_error *error);

/* Classes of memory. EVN_MEMORY_CLASS_COUNT grows only with the ABI's major number. */
enum {
  EVN_MEMORY_TENSORS = 0,  /* tensors of the caller */
  EVN_MEMORY_WEIGHTS = 1,  /* constants of models as the file has them */
  EVN_MEMORY_PACKED = 2,   /* constants as a kernel wants them */
  EVN_MEMORY_ARENAS = 3,   /* intermediate values of runs */
  EVN_MEMORY_SCRATCH = 4,  /* work space of kernels */
  EVN_MEMORY_LOADING = 5,  /* bytes of a model while it is read */
  EVN_MEMORY_STATES = 6,   /* what streams keep from run to run (state.h). @since 0.2 */
  EVN_MEMORY_HEAP = 7,     /* on the CPU device: all else that the library allocates for the runtime, as graphs, plans, sequences,
                              strings and work space of operators. @since 0.3 */
  EVN_MEMORY_CLASS_COUNT = 8
};

/* When blocks that nobody uses go back to the system, beside when something else needs the memory. @since 0.2 */
typedef int32_t evn_trim;
enum {
  EVN_TRIM_NEVER = 0,
  EVN_TRIM_IDLE = 1,  /* when no run of the runtime is under way, and with them what sessions keep for runs to come */
  EVN_TRIM_ALWAYS = 2 /* as soon as they are free */
};

/* One device's memory, in bytes, as the library's own ledger counts it. */
typedef struct evn_memory_stats {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t current;                              /* in use */
  uint64_t peak;                                 /* highest `current` since the start or evn_device_reset_memory_peak */
  uint64_t reserved;                             /* held from the system: in use and cached; never above `limit`, unless that was
                                                    lowered below what is in use */
  uint64_t limit;                                /* the cap on `reserved`, or UINT64_MAX */
  uint64_t by_class[EVN_MEMORY_CLASS_COUNT];     /* `current` by class; the rest is 0 */
  uint64_t allocations;                          /* blocks handed out so far */
  uint64_t cache_hits;                           /* of these, without asking the system */
  uint64_t largest_free_block;                   /* largest cached block */
  uint64_t cached;                               /* of `reserved`: blocks that nobody uses, kept for those to come. @since 0.2 */
  uint64_t unused;                               /* of `reserved`: in blocks in use, beyond what was asked for. @since 0.2 */
  uint64_t free_blocks;                          /* number of cached blocks. @since 0.2 */
  double fragmentation;                          /* share of `cached` that is not in the largest free block: 0 (one block, or
                                                    none) to 1. @since 0.2 */
  uint64_t weights_dropped;                      /* bytes of packed weights given back so far, as others needed the memory.
                                                    @since 0.2 */
  uint64_t weights_restored;                     /* bytes of packed weights that runs packed again from the model's file.
                                                    @since 0.2 */
  uint64_t cache_limit;                          /* the most that `cached` may be, or UINT64_MAX. @since 0.2 */
  evn_trim trim;                                 /* when cached blocks are given back. @since 0.2 */
  uint32_t reserved1;
} evn_memory_stats;
#define EVN_MEMORY_STATS_INIT {sizeof(evn_memory_stats), 0, 0, 0, 0, 0, {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, EVN_TRIM_NEVER, 0}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_memory_stats_init(evn_memory_stats *stats, uint32_t struct_size);

/* Fills *stats, whose struct_size the caller sets. Takes the pool's lock for a moment. */
EVN_API evn_status evn_device_get_memory_stats(evn_device device, evn_memory_stats *stats, evn_error *error);

/* Sets the peak to what is in use now. */
EVN_API evn_status evn_device_reset_memory_peak(evn_device device, evn_error *error);

/* Changes the cap on what the library holds on the device, while it is in use.
 *   limit_bytes  UINT64_MAX: none
 * Cached blocks and memory of sessions' idle runs are given back first where that is needed; a device with memory of its own stays
 * within what it has. A limit below what is in use is set all the same: nothing is taken away, and what asks for more gets
 * EVN_ERROR_OUT_OF_MEMORY until enough has been given back.
 * Returns EVN_ERROR_INVALID_ARGUMENT (below 4096). Thread-safe. @since 0.2 */
EVN_API evn_status evn_device_set_memory_limit(evn_device device, uint64_t limit_bytes, evn_error *error);

/* Gives the cached blocks of the device, and what sessions keep there for runs to come, back to the system; on the
 * CPU also what the C library keeps of freed blocks (glibc), if that is 1 MiB or more. */
EVN_API evn_status evn_device_trim_memory(evn_device device, evn_error *error);

/* Changes what the device's pool keeps of blocks that nobody uses, while it is in use; as `cache_limit` and `trim` of the
 * configuration, which a later evn_runtime_reconfigure does not put back.
 *   cache_limit_bytes  UINT64_MAX: all that the memory limit has room for; 0: nothing
 *   trim               EVN_TRIM_...
 * What is cached beyond the limit is given back at once, and where `trim` is not EVN_TRIM_NEVER, all of it. Takes the pool's lock.
 * Thread-safe. @since 0.2 */
EVN_API evn_status evn_device_set_cache_policy(evn_device device, uint64_t cache_limit_bytes, evn_trim trim, evn_error *error);

/* --------------------------------------------------------------------------------------------------- tensor -- */

/* Flags of a tensor. Only EVN_TENSOR_PINNED can be asked for in evn_tensor_create. */
enum {
  EVN_TENSOR_PINNED = 1,   /* pinned host memory: the device's own DMA-able memory, mapped without a copy of the library's */
  EVN_TENSOR_READ_ONLY = 2 /* from evn_tensor_from_dlpack or evn_opencl_wrap_buffer with that flag: it can be no output, no target
                              of a copy, and not be mapped for writing */
};

/* What a tensor is. */
typedef struct evn_tensor_info {
  uint32_t struct_size;
  evn_dtype dtype;
  uint32_t rank;
  uint32_t flags;                 /* EVN_TENSOR_... */
  int64_t dims[EVN_MAX_RANK];     /* the first `rank` count */
  uint64_t size_bytes;            /* dense, row-major */
  char device[64];                /* name of the device that holds it */
} evn_tensor_info;
#define EVN_TENSOR_INFO_INIT {sizeof(evn_tensor_info), 0, 0, 0, {0}, 0, {0}}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_tensor_info_init(evn_tensor_info *info, uint32_t struct_size);

/* Makes a tensor, row-major, with bytes set to zero.
 *   device  where its memory lies
 *   dims    rank values >= 0; nullable when rank is 0 (a scalar)
 *   flags   0 or EVN_TENSOR_PINNED
 * Returns EVN_ERROR_OUT_OF_MEMORY (bytes asked and left are in the error), EVN_ERROR_LIMIT (rank, or `tensor_bytes` of the
 * configuration), EVN_ERROR_UNSUPPORTED (strings on another device than the CPU). Allocates from the device's pool. */
EVN_API evn_status evn_tensor_create(evn_device device, evn_dtype dtype, const int64_t *dims, uint32_t rank, uint32_t flags,
                                     evn_tensor *tensor, evn_error *error);

/* Called once when the library has no more use for wrapped memory, from any thread. Must not call the library. */
typedef void (*evn_deleter)(void *user, void *data);

/* Wraps host memory as a tensor of the runtime's CPU device, without a copy.
 *   data        row-major elements; any alignment. NULL only when the tensor has no elements
 *   size_bytes  must be the size that dtype and dims give
 *   deleter     nullable; called once when the last use ends. Not called when this function fails: the memory stays the
 *               caller's
 * Memory that is written by the caller or a run is the caller's to order. */
EVN_API evn_status evn_tensor_wrap(evn_runtime runtime, void *data, size_t size_bytes, evn_dtype dtype, const int64_t *dims,
                                   uint32_t rank, evn_deleter deleter, void *user, evn_tensor *tensor, evn_error *error);

/* Makes a tensor over a part of another one's memory, without a copy: elements that lie one behind the other, seen with dims of
 * their own. It keeps the memory, whoever releases the other tensor; what is written through one is seen through the other, and a
 * run or map of one counts as a use of both. Views of a read-only tensor are read-only.
 *   first  number of the first element of the part, in row-major order
 *   dims   rank values >= 0; nullable when rank is 0
 * Returns EVN_ERROR_INVALID_ARGUMENT (beyond the end of the tensor; elements of less than a byte that do not begin at a byte, or
 * end neither at one nor with the tensor), EVN_ERROR_UNSUPPORTED (strings; a part on an OpenCL device that does not begin at the
 * device's alignment), EVN_ERROR_LIMIT (rank). @since 0.2 */
EVN_API evn_status evn_tensor_create_view(evn_tensor tensor, uint64_t first, const int64_t *dims, uint32_t rank, evn_tensor *view,
                                          evn_error *error);

/* Ends the caller's hold; the memory goes when its last use ends. The last handle of a tensor ends its maps too, as
 * evn_tensor_unmap does, but for bytes that were written and not yet copied to the device: these are lost. */
EVN_API evn_status evn_tensor_release(evn_tensor tensor);

/* Fills *info, whose struct_size the caller sets. No cost. */
EVN_API evn_status evn_tensor_get_info(evn_tensor tensor, evn_tensor_info *info, evn_error *error);

/* Copies all bytes of `source` into `target`; they may lie on different devices. Blocks until done.
 * Returns EVN_ERROR_INVALID_ARGUMENT when dtype or dims differ, EVN_ERROR_WRONG_STATE when one of them is mapped. */
EVN_API evn_status evn_tensor_copy(evn_tensor source, evn_tensor target, evn_error *error);

/* Makes a tensor on `device` with the dtype, dims and bytes of `source`. Errors as evn_tensor_create and evn_tensor_copy. */
EVN_API evn_status evn_tensor_copy_to(evn_tensor source, evn_device device, evn_tensor *tensor, evn_error *error);

enum { EVN_MAP_READ = 1, EVN_MAP_WRITE = 2 };

/* Gives host access to a tensor's bytes until evn_tensor_unmap. On a device that does not share memory with the host this
 * copies (READ: device to host now; WRITE: host to device at unmap; a map for WRITE alone has undefined bytes), unless the tensor
 * is EVN_TENSOR_PINNED: then the driver maps its memory. It waits for runs and copies that use the tensor.
 *   flags       EVN_MAP_READ, EVN_MAP_WRITE or both
 *   data        out; NULL for a tensor without elements
 *   size_bytes  out, nullable
 * Any number of maps for READ alone may be there at a time, and give the same address; each is ended by an evn_tensor_unmap
 * (from 0.2 on). Returns EVN_ERROR_WRONG_STATE when it is mapped already and one of both maps is for WRITE,
 * EVN_ERROR_INVALID_ARGUMENT for WRITE on a read-only tensor. While mapped it cannot be run with or copied, except on the CPU,
 * where mapping is free and a tensor may be used while mapped. */
EVN_API evn_status evn_tensor_map(evn_tensor tensor, uint32_t flags, void **data, size_t *size_bytes, evn_error *error);

/* Ends a map. Returns EVN_ERROR_WRONG_STATE when it is not mapped. */
EVN_API evn_status evn_tensor_unmap(evn_tensor tensor, evn_error *error);

/* Sets all elements of a string tensor (EVN_DTYPE_STRING), which is made with empty strings. Strings are bytes; those of models are
 * UTF-8. They are no memory that could be wrapped or mapped, and lie on the CPU device.
 *   strings  count pointers, in row-major order; copied
 *   sizes    count lengths in bytes (strings may have NUL in them); NULL: each ends in NUL
 *   count    the number of elements that the tensor has
 * A run that has begun goes on with what was there before. Returns EVN_ERROR_INVALID_ARGUMENT (another dtype or count).
 * Allocates. */
EVN_API evn_status evn_tensor_set_strings(evn_tensor tensor, const char *const *strings, const size_t *sizes, size_t count,
                                          evn_error *error);

/* Writes the element at `index`, in row-major order, of a string tensor. *size is its length in bytes and 1 for the NUL behind it.
 * Returns EVN_ERROR_INVALID_ARGUMENT (another dtype, no such index). */
EVN_API evn_status evn_tensor_get_string(evn_tensor tensor, size_t index, char *buffer, size_t capacity, size_t *size,
                                         evn_error *error);

/* Writes all elements of a string tensor, in row-major order, each with a NUL behind it.
 *   buffer    nullable with capacity 0: then only *size is set, and offsets
 *   offsets   nullable; count + 1 places: where each element begins in the buffer, and where the last ends: element i has
 *             offsets[i + 1] - offsets[i] - 1 bytes
 *   count     the number of elements that the tensor has
 *   size      out, nullable where a buffer is given: the bytes of all
 * Returns EVN_ERROR_INVALID_ARGUMENT (another dtype or count), EVN_ERROR_BUFFER_TOO_SMALL. @since 0.2 */
EVN_API evn_status evn_tensor_get_strings(evn_tensor tensor, char *buffer, size_t capacity, size_t *offsets, size_t count,
                                          size_t *size, evn_error *error);

/* Flags of evn_tensor_to_dlpack and evn_tensor_from_dlpack. */
enum { EVN_DLPACK_LEGACY = 1 }; /* `managed` is a DLManagedTensor (before DLPack 1.0) instead of a DLManagedTensorVersioned */

/* Gives a tensor's memory to another library by the DLPack ABI (github.com/dmlc/dlpack, version 1.0), without a copy.
 *   tensor   lies in host memory (the CPU device); the result is of device type kDLCPU, row-major, with strides
 *   flags    0 or EVN_DLPACK_LEGACY
 *   managed  out; a DLManagedTensorVersioned or DLManagedTensor. Whoever consumes it calls its deleter once, on any thread; until
 *            then it keeps the memory, also when the tensor and the runtime have been released. The library must stay loaded
 * A read-only tensor gets DLPACK_FLAG_BITMASK_READ_ONLY.
 * Returns EVN_ERROR_UNSUPPORTED (on another device: evn_tensor_copy_to first; read-only and EVN_DLPACK_LEGACY, which cannot say
 * so). Allocates. */
EVN_API evn_status evn_tensor_to_dlpack(evn_tensor tensor, uint32_t flags, void **managed, evn_error *error);

/* Makes a tensor of the runtime's CPU device over another library's memory, without a copy.
 *   managed  a DLManagedTensorVersioned of major version 1, or with EVN_DLPACK_LEGACY a DLManagedTensor; row-major (strides NULL
 *            or those of a dense tensor), device type kDLCPU, kDLCUDAHost or kDLROCMHost. The library takes it over only on
 *            success: then it calls its deleter once, on any thread, when the last use ends. On failure it stays the caller's
 *   flags    0 or EVN_DLPACK_LEGACY, as `managed` is
 * DLPACK_FLAG_BITMASK_READ_ONLY makes an EVN_TENSOR_READ_ONLY tensor.
 * Returns EVN_ERROR_UNSUPPORTED (device type, strides, lanes, element type), EVN_ERROR_VERSION (major version),
 * EVN_ERROR_LIMIT (rank, or `tensor_bytes` of the configuration). */
EVN_API evn_status evn_tensor_from_dlpack(evn_runtime runtime, void *managed, uint32_t flags, evn_tensor *tensor,
                                          evn_error *error);

/* ---------------------------------------------------------------------------------------------------- value -- */

/* What models take and give besides tensors. A value never changes; what it holds is shared, not copied. Types are written as
 * "tensor(float32)", "seq(tensor(int64))", "optional(seq(tensor(float32)))", "map(string,tensor(float32))". */

/* Makes a value of a tensor, whose bytes must not be written while the value is in use. A tensor on another device than the CPU can
 * be given to evn_session_run_values, and cannot be a part of another value. */
EVN_API evn_status evn_value_from_tensor(evn_tensor tensor, evn_value *value, evn_error *error);

/* Makes a sequence, an optional or a map.
 *   type   as above; the outermost says what is made. Maps have int64 or string keys
 *   parts  sequence: its elements. optional: one or none. map: two, a tensor of keys and one of values, both of rank 1 and one
 *          length
 * Returns EVN_ERROR_INVALID_ARGUMENT (a type that is none, parts of another type), EVN_ERROR_LIMIT (more than 5 levels). */
EVN_API evn_status evn_value_create(evn_runtime runtime, const char *type, const evn_value *parts, uint32_t part_count,
                                    evn_value *value, evn_error *error);

EVN_API evn_status evn_value_release(evn_value value);

/* Writes the value's type. */
EVN_API evn_status evn_value_get_type(evn_value value, char *buffer, size_t capacity, size_t *size, evn_error *error);

/* Sets *count to the number of parts: of a sequence its elements, of an optional 0 or 1, of a map 2, of a tensor 0. No cost. */
EVN_API evn_status evn_value_part_count(evn_value value, uint32_t *count, evn_error *error);

/* Gives the part at `index`. Returns EVN_ERROR_INVALID_ARGUMENT when there is none of that index. */
EVN_API evn_status evn_value_part_at(evn_value value, uint32_t index, evn_value *part, evn_error *error);

/* Gives the tensor that a value is, without a copy. Those that runs make are EVN_TENSOR_READ_ONLY where they are parts.
 * Returns EVN_ERROR_INVALID_ARGUMENT for another kind of value. */
EVN_API evn_status evn_value_get_tensor(evn_value value, evn_tensor *tensor, evn_error *error);

/* ---------------------------------------------------------------------------------------------------- model -- */

/* How a model is loaded. */
typedef struct evn_model_options {
  uint32_t struct_size;
  uint32_t reserved;
  const char *external_dir; /* folder of the external data of a model that comes from a buffer; NULL: none is allowed. For a
                               model from a file it is always the file's own folder, and this must be NULL */
  evn_cancel cancel;        /* nullable: once it is requested, the load ends with EVN_ERROR_CANCELLED. @since 0.2 */
  uint64_t deadline_ns;     /* of CLOCK_MONOTONIC, or 0: the load ends with EVN_ERROR_TIMEOUT then, or after limits.load_time of the
                               configuration if that is earlier. @since 0.2 */
  const char *const *allowed_roots; /* folders beneath which files of external data may lie that are reached through symbolic links,
                               or that have several hard links, beside those of the configuration's `files.allowed_roots`: the
                               path of the file itself counts, as the system tells it once the file is open. A folder that
                               does not exist allows nothing. @since 0.3 */
  uint32_t allowed_root_count;      /* of allowed_roots. @since 0.3 */
  uint32_t flags;                   /* EVN_MODEL_... @since 0.3 */
} evn_model_options;
#define EVN_MODEL_OPTIONS_INIT {sizeof(evn_model_options), 0, NULL, NULL, 0, NULL, 0, 0}

/* How a model's files are used. @since 0.3 */
enum {
  EVN_MODEL_MAP = 1 /* large tensors that are used as they are lie in mapped files, whose pages are read when they are first
                       touched and shared with other processes: `files.map` of the configuration. For files that nobody
                       writes to: if one is truncated the process ends (SIGBUS). Where the host gives memory of its own,
                       files are read */
};

/* See evn_error_init. @since 0.2 */
EVN_API void evn_model_options_init(evn_model_options *options, uint32_t struct_size);

/* Reads an ONNX file, checks it and rewrites it (constant folding, dead code, batch-norm folding, activation fusion).
 * Weights in external files must lie inside the model's folder: no link, no device, no path that leaves it; a link may lead to a
 * file beneath an allowed root (`allowed_roots`).
 * The files are read, not mapped (but with EVN_MODEL_MAP), and stay open as long as the model: large weights are read when a
 * session packs them, and let go of then; a later session on another device may read them again. Rows of large external tensors
 * that CPU kernels only gather (embeddings) are read when a run wants them. Making a session, and a run that reads rows, fail
 * with EVN_ERROR_IO naming file and tensor when the file was written over or truncated meanwhile; to remove a file or to put
 * another in its place is no problem.
 * Returns EVN_ERROR_IO, EVN_ERROR_INVALID_MODEL, EVN_ERROR_UNSUPPORTED (the node is named), EVN_ERROR_LIMIT (`limits` of the
 * configuration), EVN_ERROR_TIMEOUT (`load_time`). Blocks; allocates. */
EVN_API evn_status evn_model_load_file(evn_runtime runtime, const char *path, const evn_model_options *options,
                                       evn_model *model, evn_error *error);

/* The same from `size` bytes at `data`, which are copied: the caller may free them at once. */
EVN_API evn_status evn_model_load_buffer(evn_runtime runtime, const void *data, size_t size, const evn_model_options *options,
                                         evn_model *model, evn_error *error);

EVN_API evn_status evn_model_release(evn_model model);

/* Writes what the model is: inputs, inputs with a default ("defaults"), outputs, operators by domain and version, parameters, bytes
 * of weights. */
EVN_API evn_status evn_model_describe(evn_model model, evn_format format, char *buffer, size_t capacity, size_t *size,
                                      evn_error *error);

/* Writes the value of the model's metadata entry `key` (ONNX metadata_props).
 * Returns EVN_ERROR_INVALID_ARGUMENT when there is none. */
EVN_API evn_status evn_model_get_metadata(evn_model model, const char *key, char *buffer, size_t capacity, size_t *size,
                                          evn_error *error);

/* Set *count to the number of the model's metadata entries, and write the key of the one at `index`, in the order of the file.
 * Returns EVN_ERROR_INVALID_ARGUMENT when there is none of that index. @since 0.2 */
EVN_API evn_status evn_model_metadata_count(evn_model model, uint32_t *count, evn_error *error);
EVN_API evn_status evn_model_metadata_key(evn_model model, uint32_t index, char *buffer, size_t capacity, size_t *size,
                                          evn_error *error);

/* An input or output of a model or session. */
typedef struct evn_value_info {
  uint32_t struct_size;
  evn_dtype dtype;
  uint32_t rank;                     /* UINT32_MAX: unknown until it runs */
  uint32_t reserved;
  int64_t dims[EVN_MAX_RANK];        /* -1: known only when it runs */
  char name[256];                    /* cut to fit; the whole is given by evn_model_input_name and its like */
  char symbols[EVN_MAX_RANK][64];    /* the model's name of a dim that is -1, or ""; cut to fit */
  char type[128];                    /* "tensor(float32)", "seq(tensor(int64))": what is no tensor has no rank and dims, and is run
                                        with by evn_session_run_values */
  uint32_t flags;                    /* EVN_VALUE_... @since 0.3 */
  uint32_t reserved1;
} evn_value_info;
#define EVN_VALUE_INFO_INIT {sizeof(evn_value_info), 0, 0, 0, {0}, {0}, {{0}}, {0}, 0, 0}

/* Flags of an input or output. @since 0.3 */
enum {
  EVN_VALUE_HAS_DEFAULT = 1 /* an input that need not be given: its initializer counts unless a run gives another value */
};

/* See evn_error_init. @since 0.2 */
EVN_API void evn_value_info_init(evn_value_info *info, uint32_t struct_size);

/* Set *count to the number of the model's inputs (weights are none) or outputs. No cost. @since 0.2 */
EVN_API evn_status evn_model_input_count(evn_model model, uint32_t *count, evn_error *error);
EVN_API evn_status evn_model_output_count(evn_model model, uint32_t *count, evn_error *error);

/* Sets *count to the number of inputs that have a default: inputs with an initializer of the same name, in models of IR version 4
 * and later. They are not among those that evn_model_input_count counts, and follow them: their indexes begin at that count. No
 * cost. @since 0.3 */
EVN_API evn_status evn_model_default_count(evn_model model, uint32_t *count, evn_error *error);

/* Fill *info, whose struct_size the caller sets, of the input or output at `index`, in the model's order: as the model declares
 * them, and where its nodes say more of an output, that too. Those of a session are the same.
 * Return EVN_ERROR_INVALID_ARGUMENT when there is none of that index. @since 0.2 */
EVN_API evn_status evn_model_get_input_info(evn_model model, uint32_t index, evn_value_info *info, evn_error *error);
EVN_API evn_status evn_model_get_output_info(evn_model model, uint32_t index, evn_value_info *info, evn_error *error);

/* Write the whole name of the input or output at `index`. @since 0.2 */
EVN_API evn_status evn_model_input_name(evn_model model, uint32_t index, char *buffer, size_t capacity, size_t *size,
                                        evn_error *error);
EVN_API evn_status evn_model_output_name(evn_model model, uint32_t index, char *buffer, size_t capacity, size_t *size,
                                         evn_error *error);

/* Write the model's whole name of the dim `axis` of the input or output at `index`; "" where it has none, or the dim is known.
 * Return EVN_ERROR_INVALID_ARGUMENT when there is no such index or axis. @since 0.2 */
EVN_API evn_status evn_model_input_symbol(evn_model model, uint32_t index, uint32_t axis, char *buffer, size_t capacity,
                                          size_t *size, evn_error *error);
EVN_API evn_status evn_model_output_symbol(evn_model model, uint32_t index, uint32_t axis, char *buffer, size_t capacity,
                                           size_t *size, evn_error *error);

/* The dims of an input, for evn_model_inspect. */
typedef struct evn_input_shape {
  const char *name;
  const int64_t *dims; /* `rank` values >= 0 */
  uint32_t rank;
  uint32_t reserved;   /* 0 */
} evn_input_shape;

/* What evn_model_inspect is asked. */
typedef struct evn_inspect_options {
  uint32_t struct_size;
  uint32_t shape_count;          /* of `shapes` */
  const evn_input_shape *shapes; /* inputs whose dims are not fixed by the model. Dims with one symbol are one: what is given for it
                                    holds for all inputs. NULL when shape_count is 0 */
  const void *data;              /* the model's bytes, which must stay for the call, when path is NULL */
  size_t size;                   /* bytes of data */
  const char *external_dir;      /* as in evn_model_options, for a model from `data` */
} evn_inspect_options;
#define EVN_INSPECT_OPTIONS_INIT {sizeof(evn_inspect_options), 0, NULL, NULL, 0, NULL}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_inspect_options_init(evn_inspect_options *options, uint32_t struct_size);

/* Writes what a model needs, also when this library cannot load it: imports, inputs and outputs of any type, operators by domain
 * and version with counts (those in bodies of If, Loop and Scan and in functions that are called included), which of them are not
 * supported and all their nodes with path names, parameters, bytes of weights by element type, external data; whether it loads, and
 * why not; and, for the shapes that are known, an estimate of multiply-adds and of the peak memory of a run on the CPU (weights,
 * their packed copies, intermediate values as the planner shares them, inputs, outputs). Nodes that are not supported, or whose
 * shapes depend on data or on dims that are not known, are left out of the estimate, which then says that it is not complete. A
 * body of Loop or Scan is counted for all iterations where the model says how many there are at most, and else for one.
 *   path     an ONNX file, or NULL: `data` of the options. What lies outside the file is kept out as evn_model_load_file keeps it
 *   format   EVN_FORMAT_TEXT or EVN_FORMAT_JSON: {"ir_version", "opsets", "functions", "inputs" (that a run must be given),
 *            "defaults" (inputs with a default), "outputs", "node_count", "operators": [{"domain", "name", "opset", "since",
 *            "count", "supported"}], "parameters", "weight_bytes", "weights": [{"dtype", "tensors", "parameters", "bytes"}],
 *            "external_data": {"bytes", "files"}, "unsupported": [{"domain", "name", "count", "reason", "nodes"}], "loads",
 *            "error", "estimate": {"shapes", "complete", "multiply_adds", "multiply_adds_by_operator", "peak_bytes",
 *            "weights_bytes", "packed_bytes", "arena_bytes", "input_bytes", "output_bytes", ...} or null}
 * Returns EVN_ERROR_IO (the file itself), EVN_ERROR_INVALID_MODEL (no ONNX model at all), EVN_ERROR_LIMIT, EVN_ERROR_TIMEOUT,
 * EVN_ERROR_INVALID_ARGUMENT (shapes that the model cannot have). Reads, checks and rewrites the model as loading does: blocks;
 * allocates; each call does so anew, that which asks for the size too. */
EVN_API evn_status evn_model_inspect(evn_runtime runtime, const char *path, const evn_inspect_options *options, evn_format format,
                                     char *buffer, size_t capacity, size_t *size, evn_error *error);

/* -------------------------------------------------------------------------------------------------- session -- */

/* How a cache file is used. */
enum {
  EVN_CACHE_READ_ONLY = 1, /* it is never written */
  EVN_CACHE_MAP = 2        /* its weights are used where they lie, in pages that are read when they are first touched and that
                              processes share. They are not checked, and if somebody cuts the file off, the process ends */
};

/* The lowest precision to which products (convolutions, products of matrices, those of attention and of recurrent operators) may
 * round their operands. Their sums, all else that is computed, and the values that a host can see are float32 as the model has
 * them; a value that such products alone read may be kept rounded. A device that has no such products computes the node in float32,
 * and explain says so. */
typedef int32_t evn_precision;
enum {
  EVN_PRECISION_DEFAULT = 0, /* as the configuration says; float32 where it does not */
  EVN_PRECISION_FP32 = 1,
  EVN_PRECISION_BF16 = 2,
  EVN_PRECISION_FP16 = 3,
  EVN_PRECISION_AUTO = 4     /* the one that is fastest on the node's device */
};

/* How far float32 sums may be from plain ones. What is strict has no Winograd kernels, keeps numbers below 2^-126 in what it reads
 * and computes, and its products are float32 whatever EVN_PRECISION_... allows: an element of a product or convolution of n terms
 * is off by at most n 2^-24 / (1 - n 2^-24) of the sum of the terms' magnitudes, and n 2^-150. Sums may still be added in any
 * order. A device that cannot keep such numbers (OpenCL without CL_FP_DENORM) does not run strict nodes, and explain says so.
 * @since 0.2 */
typedef int32_t evn_numerics;
enum {
  EVN_NUMERICS_DEFAULT = 0, /* as the configuration says; fast where it does not */
  EVN_NUMERICS_FAST = 1,
  EVN_NUMERICS_STRICT = 2
};

/* Which library multiplies matrices: the nodes MatMul and Gemm, of float32 and float64. Others run on kernels of this library
 * whatever this says, and so does a product that the library asked for cannot multiply: it is not there, the device has none, a
 * dtype, a shape. evn_session_explain says so and why, and a rule of the configuration can make that an error. OpenBLAS and CLBlast
 * multiply in float32 whatever EVN_PRECISION_... allows. @since 0.2 */
typedef int32_t evn_products;
enum {
  EVN_PRODUCTS_DEFAULT = 0,  /* as the configuration says; auto where it does not */
  EVN_PRODUCTS_OWN = 1,      /* this library's kernels; float64, for which it has none that is optimized, by the reference's */
  EVN_PRODUCTS_OPENBLAS = 2, /* libevener_openblas.so, on the CPU */
  EVN_PRODUCTS_CLBLAST = 3,  /* libclblast.so.1, on OpenCL devices, where its results are right on the device */
  EVN_PRODUCTS_AUTO = 4,     /* float32 by this library's kernels, or CLBlast where it is faster there; float64 by OpenBLAS */
  EVN_PRODUCTS_MEASURED = 5  /* as auto, but on the CPU float32 is multiplied by what was faster for the operands' shapes when a
                                plan was first made for them: this library's kernel or OpenBLAS's. In one session the choice
                                stays, and with it the bits; another one may choose otherwise. Constant matrices are in memory
                                both as they are and packed. A session with batching does not measure */
};

/* How much memory a session may take for speed. What each does: docs/memory.md. @since 0.2 */
typedef int32_t evn_memory_plan;
enum {
  EVN_MEMORY_PLAN_DEFAULT = 0, /* as the configuration says; fast where it does not */
  EVN_MEMORY_PLAN_FAST = 1,    /* the fastest kernels; where they do not fit under a device's limit, as small */
  EVN_MEMORY_PLAN_SMALL = 2    /* from the beginning: no convolution by Winograd's method, whose packed weights are up to four times
                                  as large, and of each plan the order of steps in which the fewest bytes live at a time. Results
                                  are within the operators' tolerances of those of fast */
};

/* How requests of a session are joined to batches: those whose inputs agree in dtype and dims but for the batch axis run as one,
 * and their outputs are parts of its outputs, without a copy where the batch axis is the outermost. The batch axis is axis 0, or
 * where that dim is fixed (states [layers, batch, width]) the axis with the other inputs' batch name or the first open one. A
 * session is made with it only where the model's graph proves that no row of a batch depends on another; else EVN_ERROR_UNSUPPORTED
 * names the node that mixes rows. Results have the bits that requests have alone.
 *
 * Requests that ask for other random seeds or priorities, that have states, or whose inputs without a batch axis have other bytes
 * are not joined, nor are runs of evn_session_run; and all nodes must run on the CPU: the result is EVN_ERROR_UNSUPPORTED too if
 * the configuration has `placement.split`. One waits for others no longer than max_delay_ns from its submission on, nor longer than
 * its deadline leaves twice the mean run, nor while other work waits for its thread, nor once as many are in flight as lately were.
 * Batches have as many rows as make a row cheaper, which is measured while requests are served, and max_batch at most.
 * @since 0.2 */
typedef struct evn_batching_options {
  uint32_t struct_size;
  int32_t max_batch;     /* rows of a batch at most, 2 .. 65536; a request that has as many or more runs alone */
  uint64_t max_delay_ns; /* how long the first request of a batch waits for others at most; 0: only those that wait already are
                            joined */
  const char *mask;      /* nullable: the model's input of 1 for what counts and 0 for padding. With it, inputs that have the mask's
                            dims as their first ones may be of different lengths (axis 1): shorter ones are filled up with zeros,
                            to the next of `buckets`, and outputs are cut to their own lengths. Masked elements must have no
                            influence: then results are within rounding of those alone */
  const int64_t *buckets; /* lengths in rising order, bucket_count of them; longer requests are not filled up. Needs `mask` */
  uint32_t bucket_count;
  uint32_t reserved;     /* 0 */
} evn_batching_options;
#define EVN_BATCHING_OPTIONS_INIT {sizeof(evn_batching_options), 8, 0, NULL, NULL, 0, 0}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_batching_options_init(evn_batching_options *options, uint32_t struct_size);

/* Whose the memory is that runs of a session have for intermediate values. @since 0.2 */
typedef int32_t evn_arenas;
enum {
  EVN_ARENAS_DEFAULT = 0, /* as the configuration's `session.share_arenas` says, else EVN_ARENAS_OWN */
  EVN_ARENAS_OWN = 1,     /* the session's, which keeps it for its own runs to come */
  EVN_ARENAS_SHARED = 2   /* of all sessions of the runtime that have this: what runs one after the other needs it once. The first
                             of them says how much is kept (idle_arena_bytes) */
};

/* How a session is made. */
typedef struct evn_session_options {
  uint32_t struct_size;
  uint32_t reserved;
  const char *device; /* the device of nodes that no rule places, or several with commas between them, of which the first that can
                         runs a node; "auto": searched for by measured costs. NULL: the configuration's `default`, else the CPU */
  const char *cache_file; /* where packed weights of the CPU are kept from one process to the next; one that ends in / is a folder,
                             with a file for each model. NULL: the configuration's `cache`; "": none */
  uint32_t cache_flags;   /* EVN_CACHE_..., of cache_file; 0 without one */
  uint32_t reserved1;     /* 0 */
  evn_precision precision;  /* EVN_PRECISION_..., of nodes for which no rule has one */
  uint32_t keep_fp32_count; /* of keep_fp32 */
  const char *const *keep_fp32; /* nodes that stay float32 whatever else says otherwise, beside those of the configuration: globs of
                                   their names, or "type:Softmax" */
  evn_numerics numerics;  /* EVN_NUMERICS_..., of nodes for which no rule has one. @since 0.2 */
  uint32_t disabled_pass_count; /* of disabled_passes. @since 0.2 */
  const char *const *disabled_passes; /* passes of `when` "session" (evn_describe_passes) that are left out, beside those of the
                                         configuration's `passes: {disable: [...]}`. @since 0.2 */
  int32_t concurrency;    /* how many runs of the session compute at a time at most; others wait. 0: the configuration's, else as
                             many as there are cores. Each that computes holds memory of its own. @since 0.2 */
  uint32_t reserved2;     /* 0 */
  evn_cancel cancel;      /* nullable: once it is requested, evn_session_create ends with EVN_ERROR_CANCELLED: between nodes,
                             parts of weights that are packed, and trials of CLBlast's kernels; not while a driver compiles. Not
                             of the session's runs. @since 0.2 */
  uint64_t deadline_ns;   /* of CLOCK_MONOTONIC, or 0: it ends with EVN_ERROR_TIMEOUT then. @since 0.2 */
  const evn_batching_options *batching; /* nullable, copied: requests are joined to batches. Without it, the configuration's
                                           `session.batching`. @since 0.2 */
  uint64_t idle_arena_bytes; /* memory for intermediate values that the session keeps, on all devices together, for runs to come;
                                what was used last is kept first, and what one run needs is always kept. 0: the configuration's
                                `session.idle_arena_bytes`, else 1 GiB. @since 0.2 */
  const char *name;       /* nullable: what statistics call the session; NULL: the model's file name. @since 0.2 */
  evn_products products;  /* EVN_PRODUCTS_..., of nodes for which no rule has one. @since 0.2 */
  uint32_t reserved3;     /* 0 */
  evn_memory_plan memory; /* EVN_MEMORY_PLAN_... @since 0.2 */
  uint32_t reserved4;     /* 0 */
  evn_arenas arenas;      /* EVN_ARENAS_... @since 0.2 */
  uint32_t reserved5;     /* 0 */
  const char *const *overridable; /* inputs with a default that runs are going to give: the session is compiled with them open
                             from the start. Others are constants, folded and packed, until a run gives one, which compiles a
                             second graph then. @since 0.3 */
  uint32_t overridable_count;     /* of overridable. @since 0.3 */
  uint32_t reserved6;     /* 0 */
  uint64_t arena_limit;   /* intermediate values of a run take at most so many bytes, of which those that do not fit are computed
                             again where they are read; the bits of the results stay. The body of a Loop or Scan has the limit
                             for itself. A run that cannot keep to it fails with EVN_ERROR_LIMIT, and so does one whose nodes are
                             on several devices. 0: no limit. @since 0.3 */
} evn_session_options;
#define EVN_SESSION_OPTIONS_INIT \
  {sizeof(evn_session_options), 0, NULL, NULL, 0, 0, EVN_PRECISION_DEFAULT, 0, NULL, EVN_NUMERICS_DEFAULT, 0, NULL, 0, 0,\
   NULL, 0, NULL, 0, NULL, EVN_PRODUCTS_DEFAULT, 0, EVN_MEMORY_PLAN_DEFAULT, 0, EVN_ARENAS_DEFAULT, 0, NULL, 0, 0, 0}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_session_options_init(evn_session_options *options, uint32_t struct_size);

/* Writes the list of passes, which change how a model is computed and not what: JSON: [{"name", "when": "load" (rewrites of the
 * graph, for all sessions of a model) or "session" (which nodes run as one step, and where values lie), "summary"}]. The
 * configuration's `passes: {disable: [NAME, ...]}` leaves out any of them, evn_session_options.disabled_passes those of sessions;
 * evn_session_explain says which of them each node went through. Returns EVN_ERROR_INVALID_ARGUMENT, EVN_ERROR_BUFFER_TOO_SMALL.
 * Thread-safe. @since 0.2 */
EVN_API evn_status evn_describe_passes(evn_format format, char *buffer, size_t capacity, size_t *size, evn_error *error);

/* Places the model's nodes on the runtime's devices, as the configuration's rules say, chooses kernels, packs weights. Sessions
 * of one model share its weights and their packed copies.
 * With a cache file, weights that a session has packed before are read from there, and checked, in place of reading and packing the
 * model's. A file that is missing, damaged, or was written for another model, another build of the library or another instruction
 * set is not used, which the log says, and is written anew at the end of this call, in one step; where it cannot be written the
 * session is made all the same. A model from a file is taken for unchanged when its bytes outside of tensors of 16 KiB and more,
 * and its device, inode, size and time of change are the same; of other models all bytes are looked at. Results have the same bits
 * with and without. Who can write the file can make the session compute other numbers. The weights count as packed ones do, mapped
 * or not. Returns EVN_ERROR_UNSUPPORTED (a node that no allowed device can run, with every device's reason),
 * EVN_ERROR_OUT_OF_MEMORY, EVN_ERROR_DEVICE_UNAVAILABLE, EVN_ERROR_CANCELLED, EVN_ERROR_TIMEOUT. Blocks; allocates. `runtime`
 * must be the model's own. */
EVN_API evn_status evn_session_create(evn_runtime runtime, evn_model model, const evn_session_options *options,
                                      evn_session *session, evn_error *error);

/* Ends the caller's hold. Runs that are under way on other threads end normally. */
EVN_API evn_status evn_session_release(evn_session session);

/* What a session holds, in bytes, on all its devices together; weights and their packed copies are its model's. @since 0.2 */
typedef struct evn_session_memory_stats {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t arena_bytes;      /* intermediate values of runs: those under way, and those that are kept */
  uint64_t idle_arena_bytes; /* of these, kept for runs to come; at most the session's idle_arena_bytes, or what one run needs */
  uint64_t peak_arena_bytes; /* highest arena_bytes so far */
  uint64_t arena_count;      /* arenas that there are now, under way or kept: one for each run, each further part of a run whose
                                shapes depend on values, and each body */
  uint64_t arenas_made;      /* that were taken from a device's pool so far */
  uint64_t arenas_reused;    /* times that one was used which an earlier run had left */
  uint64_t arenas_dropped;   /* given back: least recently used, replaced by larger ones, or because a device needed the memory */
  uint64_t plan_count;       /* plans that are kept, one for each signature of shapes */
  uint64_t plan_bytes;       /* of their bookkeeping, with that of one run each; plans that sessions share count in each */
  uint64_t state_bytes;      /* what states of the session hold (state.h) */
} evn_session_memory_stats;
#define EVN_SESSION_MEMORY_STATS_INIT {sizeof(evn_session_memory_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_session_memory_stats_init(evn_session_memory_stats *stats, uint32_t struct_size);

/* Fills *stats, whose struct_size the caller sets. Takes the session's lock for a moment. @since 0.2 */
EVN_API evn_status evn_session_get_memory_stats(evn_session session, evn_session_memory_stats *stats, evn_error *error);

/* Set *count to the number of the model's inputs (weights are none) or outputs. No cost. */
EVN_API evn_status evn_session_input_count(evn_session session, uint32_t *count, evn_error *error);
EVN_API evn_status evn_session_output_count(evn_session session, uint32_t *count, evn_error *error);

/* Sets *count to the number of inputs that have a default, as evn_model_default_count does. @since 0.3 */
EVN_API evn_status evn_session_default_count(evn_session session, uint32_t *count, evn_error *error);

/* Fill *info, whose struct_size the caller sets, of the input or output at `index`, in the model's order. */
EVN_API evn_status evn_session_get_input_info(evn_session session, uint32_t index, evn_value_info *info, evn_error *error);
EVN_API evn_status evn_session_get_output_info(evn_session session, uint32_t index, evn_value_info *info, evn_error *error);

/* Write the whole name of the input or output at `index`. @since 0.2 */
EVN_API evn_status evn_session_input_name(evn_session session, uint32_t index, char *buffer, size_t capacity, size_t *size,
                                          evn_error *error);
EVN_API evn_status evn_session_output_name(evn_session session, uint32_t index, char *buffer, size_t capacity, size_t *size,
                                           evn_error *error);

/* Set *index to the position of the input or output called `name`. EVN_ERROR_INVALID_ARGUMENT lists the names there are. */
EVN_API evn_status evn_session_find_input(evn_session session, const char *name, uint32_t *index, evn_error *error);
EVN_API evn_status evn_session_find_output(evn_session session, const char *name, uint32_t *index, evn_error *error);

/* Flags of evn_run_options. @since 0.2 */
enum {
  EVN_RUN_OUTPUTS_ON_DEVICE = 1, /* a NULL slot of `outputs` gets a tensor on the device where the plan makes the output, and not a
                                    copy on the CPU */
  EVN_RUN_OVERWRITE_INPUTS = 2   /* a tensor of `outputs` may be one of `inputs`, which the run then overwrites: in place where
                                    the graph allows it, else by a copy at its end. After a failure its bytes are undefined */
};

/* How a run is made. */
typedef struct evn_run_options {
  uint32_t struct_size;
  uint32_t allow_copies; /* 1: inputs and outputs may lie on another device than the plan has them, and are copied.
                            0: that is EVN_ERROR_INVALID_ARGUMENT, naming both devices. Host tensors (CPU device) are always
                            copied to where the plan wants them */
  uint64_t timeout_ns;   /* 0: `run_time` of the configuration, else none. On the CPU it ends a run within a node, too. An OpenCL
                            device cannot be stopped: the run returns, the device goes on with what it has been given, and what that
                            uses is kept until it is done. A run that begins meanwhile on that device first waits for it, in its own
                            time. With a limit, runs on such devices read and write memory of the host's by way of the library's
                            own, where it is wrapped without a deleter or given for an output */
  uint64_t random_seed;  /* what operators that draw random numbers begin with, beside the seed that a node may have. One seed gives
                            the same bits in each run, another gives others */
  evn_cancel cancel;     /* nullable: once it is requested, the run ends with EVN_ERROR_CANCELLED, as soon and in the way that it
                            ends when its time is over. It may serve many runs. @since 0.2 */
  uint64_t deadline_ns;  /* of CLOCK_MONOTONIC; 0: none. The run ends with EVN_ERROR_TIMEOUT at this time or timeout_ns after its
                            begin, whichever is earlier; one that has passed already ends it at once. @since 0.2 */
  int32_t priority;      /* EVN_PRIORITY_LOWEST .. EVN_PRIORITY_HIGHEST: while a run computes, those of lower priorities stop at the
                            edge of the tiles that they compute and wait, for a second at a time at most. Among runs of one priority
                            that of the earliest deadline comes first. No meaning with an executor of the host's. @since 0.2 */
  uint32_t flags;        /* EVN_RUN_... @since 0.2 */
  evn_state state;       /* nullable: a state of the session (state.h), which gives and takes the inputs and outputs of its pairs.
                            Their slots in `inputs` and `outputs` are NULL, and stay so. @since 0.2 */
  const uint8_t *skipped_outputs; /* nullable: a byte for each output of the model. 1: it is not wanted: it is not computed where
                                     nothing else needs it, its slot is NULL and stays so. Copied by evn_session_submit. @since 0.2
                                     */
} evn_run_options;
#define EVN_RUN_OPTIONS_INIT {sizeof(evn_run_options), 0, 0, 0, NULL, 0, 0, 0, NULL, NULL}
#define EVN_PRIORITY_LOWEST -7
#define EVN_PRIORITY_HIGHEST 7

/* See evn_error_init. @since 0.2 */
EVN_API void evn_run_options_init(evn_run_options *options, uint32_t struct_size);

/* Makes a token by which work that it is given to (evn_run_options.cancel) can be asked to stop.
 * Returns EVN_ERROR_OUT_OF_MEMORY, EVN_ERROR_LIMIT. @since 0.2 */
EVN_API evn_status evn_cancel_create(evn_cancel *cancel, evn_error *error);

/* Asks all work that has the token to stop, and all that will be given it: there is no way back. Returns at once, without waiting
 * for the work. Thread-safe and async-signal-safe: a handler of a signal may call it. Returns EVN_ERROR_INVALID_HANDLE.
 * @since 0.2 */
EVN_API evn_status evn_cancel_request(evn_cancel cancel);

/* Ends the handle. Work that has the token goes on and can no longer be asked. NULL is allowed. @since 0.2 */
EVN_API evn_status evn_cancel_release(evn_cancel cancel);

/* Runs the model once and blocks until the outputs are there.
 *   inputs   input_count tensors in the model's order; not written. Behind them may stand tensors for inputs with a default
 *            (evn_session_default_count), or NULL for those whose default counts. The first run that gives such an input, which is
 *            a constant else, compiles the model with it open, as reconfiguration does, and the session keeps that for runs to come
 *   outputs  output_count slots in the model's order. A NULL slot gets a new tensor on the CPU device, which the caller
 *            releases; a tensor is written in place and must have the output's dtype and dims. Inputs and outputs must not
 *            overlap
 * Returns EVN_ERROR_INVALID_ARGUMENT (count, dtype, rank or dims do not fit; the message names the input),
 * EVN_ERROR_OUT_OF_MEMORY, EVN_ERROR_TIMEOUT, EVN_ERROR_CANCELLED, EVN_ERROR_DEVICE_LOST, EVN_ERROR_WRONG_STATE (a tensor is
 * mapped), EVN_ERROR_INVALID_HANDLE, EVN_ERROR_UNSUPPORTED, EVN_ERROR_LIMIT. On failure no slot of `outputs` changes; the bytes of
 * given output tensors are then undefined. Several threads may run one session at a time; each such run holds memory of its own.
 * No more runs of a runtime compute at a time than the process may use cores (or `thread_count`, where that is more): others wait,
 * also for more urgent ones (evn_run_options.priority). The first run with new input shapes plans and allocates. */
EVN_API evn_status evn_session_run(evn_session session, const evn_tensor *inputs, uint32_t input_count, evn_tensor *outputs,
                                   uint32_t output_count, const evn_run_options *options, evn_error *error);

/* The same for models that take or give more than tensors: inputs and outputs are values. A NULL slot of `outputs` gets a new
 * value, which the caller releases; a value of a tensor is written in place. Statuses as evn_session_run. */
EVN_API evn_status evn_session_run_values(evn_session session, const evn_value *inputs, uint32_t input_count, evn_value *outputs,
                                          uint32_t output_count, const evn_run_options *options, evn_error *error);

/* How costs are measured. @since 0.2 */
typedef struct evn_calibrate_options {
  uint32_t struct_size;
  uint32_t reserved;    /* 0 */
  evn_cancel cancel;    /* nullable: once it is requested, the call ends with EVN_ERROR_CANCELLED, between runs of a model */
  uint64_t deadline_ns; /* of CLOCK_MONOTONIC, or 0: the call ends with EVN_ERROR_TIMEOUT then */
} evn_calibrate_options;
#define EVN_CALIBRATE_OPTIONS_INIT {sizeof(evn_calibrate_options), 0, NULL, 0}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_calibrate_options_init(evn_calibrate_options *options, uint32_t struct_size);

/* Measures what steps, copies and submissions take on each device of the runtime, for the placement of `default: auto` and for
 * the predictions of evn_session_explain. The costs are the runtime's, and are kept in its `cache_dir` for later ones, by device,
 * driver and build of the library. Sessions that exist keep their placement.
 *   model    nullable, of this runtime: its steps, with zeros for inputs (a dim that the model leaves open is 1 on axis 0, else
 *            the first of 128, 64, 32, 48, 256, 512, 640, 16 and 1 that the model accepts). NULL: some 100 operators in sizes that
 *            networks have, by which steps of other sizes are estimated
 *   options  nullable
 *   format   EVN_FORMAT_TEXT or EVN_FORMAT_JSON: {"devices": [{"device", "refused" (why it was not measured, or ""), "steps",
 *            "run_ns", "steps_ns" (what its steps and copies are predicted to take together), "submission_ns" (between steps),
 *            "upload", "download": {"latency_ns", "ns_per_mib"}}]}
 * Takes a second or two for each device, on an idle machine; what else runs meanwhile makes costs too high. Asking for the size
 * alone measures too, and the next text may be longer: give room for it at once. Returns EVN_ERROR_CANCELLED, EVN_ERROR_TIMEOUT,
 * EVN_ERROR_INVALID_ARGUMENT, EVN_ERROR_INVALID_HANDLE, EVN_ERROR_BUFFER_TOO_SMALL, EVN_ERROR_UNSUPPORTED (an input that is no
 * tensor or has no rank). Blocks; allocates; thread-safe. @since 0.2 */
EVN_API evn_status evn_runtime_calibrate(evn_runtime runtime, evn_model model, const evn_calibrate_options *options,
                                         evn_format format, char *buffer, size_t capacity, size_t *size, evn_error *error);

/* Writes the placement: for each node its device, kernel, reason and the configuration's line; the copies between devices
 * (bytes are those of the last planned shapes, 0 before the first run); memory per device. JSON: {"nodes": [{"name", "op",
 * "device", "kernel", "reason", "rule_line", "refused", "predicted_ns" (what its step is predicted to take, where costs are known),
 * "measured_ns" (what it took on average in the latest trace; null for either: not known, or no step of its own), "precision",
 * "precision_reason", "numerics", "numerics_reason", "products" (the library whose kernel it is: "own", "openblas", "clblast"),
 * "products_reason", "fused" (names of nodes that rewrites put into it), "passes" (that it went through; those of the session once
 * it has run), "level" (0; 1 for nodes of its bodies, which follow it, 2 for those of theirs), "live_bytes" (of intermediate values
 * and work space that live on its device while it runs; null: no step of its own, or dims are not known), "inputs" (values that it
 * reads, but constants), "outputs" and their "types"}], "copies": [{"value", "from", "to", "bytes", "predicted_ns"}], "inputs" and
 * "outputs" (of the model), "memory": {device: {"arena_bytes", "current_bytes", "peak_bytes", "reserved_bytes", "weights_bytes",
 * "packed_bytes", "limit_bytes" (null: none), "planned_peak_bytes" (weights, packed weights and the arenas of one run, for the
 * latest dims, else those that a search would assume), "live_peak_bytes" (the most that lives in arenas at a time), "live_peak_at"
 * (the node, or "copy of VALUE", at which that is)}}, "memory_plan": {"plan" ("fast" or "small"), "spared" (how less memory is
 * taken than there would be, or ""), "drops_weights" (whether packed weights may be dropped and packed again)}, "split":
 * [{"device", "rows" (of the latest run), "row_ns"}] (of the configuration's `split`), "auto" (what a search for the placement
 * chose from, or null), "predicted_ns" (of all steps and copies, one after the other), "selections": [{"line" (of a rule; 0: a
 * pattern of keep_fp32), "text", "matched" (by a node of the model), "own" (true for a pattern of the session's options or of its
 * entry under `models`)}], "defaults": [{"name" (of an input with a default), "as" ("constant", "open", or "constant, and open in
 * another graph", which a run had compiled)}]}. DOT and SVG draw the nodes, coloured by device, and the values between them; copies
 * between devices are marked, values that are read only when a run is planned (shapes) are dashed. */
EVN_API evn_status evn_session_explain(evn_session session, evn_format format, char *buffer, size_t capacity, size_t *size,
                                       evn_error *error);

/* Runs two sessions over the same inputs, several times each in turns, and writes how far the float32 tensors of their outputs are
 * apart and how long each takes: what a lower precision, or a quantized model, loses and gains on this machine. Outputs are
 * compared by their places in the models; sequences, optionals and maps by the tensors in them. The text counts tensors that are
 * not float32, which are not compared.
 *   inputs  input_count tensors as evn_session_run takes them: those of the inputs without a default, in the model's order, and
 *           behind them any number for inputs with a default, or NULL for those whose default counts. Each session runs with the
 *           defaults of its own model. The tensors may lie on another device
 *   format  EVN_FORMAT_TEXT or EVN_FORMAT_JSON: {"outputs": [{"name", "cosine", "sqnr_db" (signal to error), "top1" (the share of
 *           rows, of the last axis, whose largest element is at the same place), "largest_error"}], "expected_ns", "got_ns"
 *           (medians)}; null for what is no number
 * Returns what evn_session_run returns; EVN_ERROR_INVALID_ARGUMENT (other outputs, an output of another type, shape or number of
 * parts, or an input with a default is given that the other model does not have: the message names the output or the input).
 * Blocks; asking for the size alone runs both too, and the next text may be longer: give room for it at once. */
EVN_API evn_status evn_session_compare(evn_session expected, evn_session got, const evn_tensor *inputs, uint32_t input_count,
                                       evn_format format, char *buffer, size_t capacity, size_t *size, evn_error *error);

/* Starts recording: each run that begins from now on records one event for each step (kernel or copy), for each time that it
 * waits or plans, for what other threads did of a kernel, and for the memory of each device, into memory that is taken here.
 * Runs do not allocate for it, but the first that gives an input with a default allocates a few bytes. OpenCL devices measure
 * with their own clock, on a queue that only traced runs use.
 *   event_capacity  how many events there is room for (about 350 bytes each, of the CPU device); later ones are counted, and
 *                   dropped
 * What an earlier trace recorded is dropped. Returns EVN_ERROR_WRONG_STATE when the session is being traced already,
 * EVN_ERROR_OUT_OF_MEMORY. Allocates. */
EVN_API evn_status evn_session_trace_start(evn_session session, uint32_t event_capacity, evn_error *error);

/* Ends recording; runs that are under way record to their end. What was recorded stays until the next start or the session's end.
 * Returns EVN_ERROR_WRONG_STATE when the session is not being traced. No cost but the session's lock. */
EVN_API evn_status evn_session_trace_stop(evn_session session, evn_error *error);

/* Writes what has been recorded so far. JSON is a trace that Chrome's and Perfetto's viewers open: a track for each thread that ran
 * the session, for each worker thread and for each OpenCL queue; events with name, op, kernel, shapes, bytes and flops; counters of
 * each device's memory; "dropped_events" in "otherData". Steps of a graph that a run had compiled by giving inputs with a default
 * have "open_inputs", and stand in rows of their own in TEXT, with the names of these inputs. The times of OpenCL devices are moved
 * onto the host's clock as well as the times of the calls allow. TEXT is a table by node: count, median and total time, share of
 * all steps, GFLOPS, GB/s, device, kernel. Returns EVN_ERROR_WRONG_STATE when the session has never been traced. Allocates. */
EVN_API evn_status evn_session_get_trace(evn_session session, evn_format format, char *buffer, size_t capacity, size_t *size,
                                         evn_error *error);

#ifdef __cplusplus
}
#endif
#endif
