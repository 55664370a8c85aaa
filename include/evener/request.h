/* Evener: asynchronous runs. The conventions of evener.h hold. */
#ifndef EVENER_REQUEST_H
#define EVENER_REQUEST_H

#include "evener/evener.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------- requests -- */

typedef struct evn_request_handle *evn_request; /* one asynchronous run. @since 0.2 */
typedef struct evn_queue_handle *evn_queue;     /* requests that have ended, for one or more threads to take. @since 0.2 */

/* Called once when a request has ended, in whatever way: `request` is then done (evn_request_take). On a thread of the
 * library's, or in a task that the host's executor was given (evn_runtime_options.post); never inside of evn_session_submit. It
 * may submit, cancel, take, and release anything, its own session too; it may block, and other requests go on meanwhile, on up
 * to 64 further threads. Exceptions of C++ that leave it are caught, and lost. */
typedef void (*evn_request_done)(void *user, evn_request request);

/* Flags of evn_submit_options. */
enum {
  EVN_SUBMIT_FAIL_WHEN_FULL = 1 /* EVN_ERROR_BUSY where evn_session_submit would wait for room */
};

/* How a request tells of its end. Any number of the three ways may be used: `queue`, `done`, and evn_request_wait. @since 0.2 */
typedef struct evn_submit_options {
  uint32_t struct_size;
  uint32_t flags;           /* EVN_SUBMIT_... */
  evn_queue queue;          /* nullable: gets the request when it has ended and `done` has returned */
  evn_request_done done;    /* nullable */
  void *user;               /* handed to done; evn_request_user gives it */
  evn_user_release release; /* nullable: takes `user` back, once, when done has returned (or, without one, when the request has
                               ended and its handle has been released). Where the submission fails, `user` stays the caller's */
} evn_submit_options;
#define EVN_SUBMIT_OPTIONS_INIT {sizeof(evn_submit_options), 0, NULL, NULL, NULL, NULL}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_submit_options_init(evn_submit_options *options, uint32_t struct_size);

/* Has the session run the model on threads of the library's, and returns at once. The results have the bits of evn_session_run.
 *   inputs   input_count tensors in the model's order. The request keeps them; memory that was wrapped must stay, and all bytes
 *            must stay as they are, until the request has ended
 *   outputs  output_count slots, or NULL for slots that are all NULL: a tensor is written in place; for the others evn_request_take
 *            gives new ones
 *   options  nullable, copied. Here timeout_ns counts from now on. Requests wait in the order of their priorities, then of their
 *            deadlines, then of their submission; a second of waiting counts as one step of priority. A request that is expected to
 *            miss its deadline stays behind later ones of its session and priority that are expected to meet theirs
 *   submit   nullable, copied
 *   request  out, nullable. The caller releases it. Where it is NULL the handle that `done` gets is released when that returns,
 *            and one that a queue gives is released by who took it; one of the two must be there
 * So many threads work on requests as the CPU device has (`thread_count`), which start when they are first needed: the caller of
 * evn_session_submit takes no part. With an executor of the host's (parallel_for) none starts: each request is one task that
 * `post` is given. When limits.queued_requests of the configuration are waiting in the runtime, this waits for room; in a
 * callback of a request it fails with EVN_ERROR_BUSY instead.
 * Returns EVN_ERROR_INVALID_ARGUMENT (counts; a tensor of another runtime; nobody would learn of the end), EVN_ERROR_UNSUPPORTED
 * (an executor of the host's without `post`; a node of an operator with EVN_OPERATOR_CALLER_THREAD), EVN_ERROR_NO_THREADS,
 * EVN_ERROR_BUSY, EVN_ERROR_LIMIT, EVN_ERROR_TIMEOUT and EVN_ERROR_CANCELLED (while it waited for room). What fits no model's input
 * is the request's own error, as are all that evn_session_run returns. Thread-safe. Allocates some 1.5 KiB. @since 0.2 */
EVN_API evn_status evn_session_submit(evn_session session, const evn_tensor *inputs, uint32_t input_count, const evn_tensor
*outputs, uint32_t output_count, const evn_run_options *options, const evn_submit_options *submit,
                                      evn_request *request, evn_error *error);

/* The same for models that take or give more than tensors. @since 0.2 */
EVN_API evn_status evn_session_submit_values(evn_session session, const evn_value *inputs, uint32_t input_count,
                                             const evn_value *outputs, uint32_t output_count, const evn_run_options *options,
                                             const evn_submit_options *submit, evn_request *request, evn_error *error);

/* Waits until the request has ended, or so long: sets *done to whether it has, which is no error either way. Other threads may wait
 * for it too, and it may be asked again.
 *   timeout_ns  0: only looks; UINT64_MAX: as long as it takes
 * Blocks. Thread-safe. @since 0.2 */
EVN_API evn_status evn_request_wait(evn_request request, uint64_t timeout_ns, bool *done, evn_error *error);

/* Gives the outcome of a request that has ended: its run's own status and error. With EVN_OK the slots for which no tensor was
 * submitted get the outputs, which the caller releases; the others stay as they are.
 * Returns what evn_session_run returns; EVN_ERROR_BUSY (it has not ended), EVN_ERROR_WRONG_STATE (its outputs have been taken).
 * Thread-safe: one of several threads gets the outputs. @since 0.2 */
EVN_API evn_status evn_request_take(evn_request request, evn_tensor *outputs, uint32_t output_count, evn_error *error);

/* The same as values. @since 0.2 */
EVN_API evn_status evn_request_take_values(evn_request request, evn_value *outputs, uint32_t output_count, evn_error *error);

/* Gives evn_submit_options.user: how who takes requests from a queue knows them. After `release` has been called it is the
 * caller's to know what that means. No cost. @since 0.2 */
EVN_API evn_status evn_request_user(evn_request request, void **user, evn_error *error);

/* Ends the caller's hold. A request that is under way goes on, and tells of its end as it was asked to; to end it, request the
 * cancel token of its run options. @since 0.2 */
EVN_API evn_status evn_request_release(evn_request request);

/* Makes a queue. Returns EVN_ERROR_OUT_OF_MEMORY, EVN_ERROR_LIMIT. @since 0.2 */
EVN_API evn_status evn_queue_create(evn_queue *queue, evn_error *error);

/* Gives the request that ended first of those that are in the queue, and takes it from there; waits so long for one. *request
 * becomes NULL where none came, which is no error. It is the handle that the submission gave, or, where that gave none, one that
 * the caller releases. Requests whose handles have been released are passed over.
 *   timeout_ns  0: only looks; UINT64_MAX: as long as it takes
 * Blocks. Thread-safe: each request goes to one of those who wait. @since 0.2 */
EVN_API evn_status evn_queue_next(evn_queue queue, uint64_t timeout_ns, evn_request *request, evn_error *error);

/* Gives a descriptor for poll, epoll and event loops: it can be read from while there are requests in the queue. It is the
 * queue's, which closes it when it ends; it must not be read from, written to or closed. Returns EVN_ERROR_LIMIT (the process
 * has no descriptor left). Thread-safe. @since 0.2 */
EVN_API evn_status evn_queue_fd(evn_queue queue, int32_t *fd, evn_error *error);

/* Ends the handle. Who waits in evn_queue_next goes on waiting. When nobody does, and all requests of the queue have ended, it
 * goes, and with it those that nobody took and whose submission gave no handle. NULL is allowed. @since 0.2 */
EVN_API evn_status evn_queue_release(evn_queue queue);

/* Ends the caller's hold on a session as evn_session_release does, and waits until all requests that were submitted to it have
 * ended, their callbacks have returned and what these were given has been taken back. Runs on other threads are not waited for.
 *   timeout_ns  UINT64_MAX: as long as it takes
 * Returns EVN_ERROR_TIMEOUT: the handle has ended all the same, and requests go on; EVN_ERROR_WRONG_STATE in a callback of a
 * request of this session: nothing has happened. Blocks. @since 0.2 */
EVN_API evn_status evn_session_finish(evn_session session, uint64_t timeout_ns, evn_error *error);

/* ----------------------------------------------------------------------------------------------- statistics -- */

/* Writes what runs and requests of the session have come to so far, those of evn_session_run included: how many are queued and
 * running now; for each priority that was used, and for all, how many have ended well, failed, were cancelled, late
 * (EVN_ERROR_TIMEOUT) and rejected (EVN_ERROR_BUSY); how long those that came to compute waited before, and how long those that
 * ended well ran, as percentiles; with batching, how many rows its runs had (exact up to 256, then up to the next power of two).
 * Times are kept in histograms whose buckets are at most 3.2 % wide, so that percentiles are off by at most that.
 *   format  EVN_FORMAT_TEXT or EVN_FORMAT_JSON: {"name", "queued", "running", "batches": [{"rows", "count"}], "priorities":
 *           [{"priority", "completed", "failed", "cancelled", "late", "rejected", "wait_ns" and "run_ns": {"count", "mean", "p50",
 *           "p90", "p99", "p999", "max"}}], "all": the same of all priorities}, and "uncounted" where times were not kept for want
 *           of memory
 * Returns EVN_ERROR_BUFFER_TOO_SMALL: they go on meanwhile, and the next text may be longer: give room for it at once.
 * @since 0.2 */
EVN_API evn_status evn_session_get_statistics(evn_session session, evn_format format, char *buffer, size_t capacity, size_t *size,
                                              evn_error *error);

/* Writes the statistics of all sessions of the runtime, and the memory of its devices. Where several sessions have one name, the
 * later ones are "name#2", "name#3", as long as they live.
 *   format  EVN_FORMAT_TEXT, EVN_FORMAT_JSON ({"sessions": [...], "devices": [{"name", "condition" (evn_device_condition),
 *           "quarantines" (so far), "current_bytes", "peak_bytes", "reserved_bytes", "cached_bytes", "unused_bytes",
 *           "free_blocks", "largest_free_block_bytes", "fragmentation_percent", "weights_dropped_bytes",
 *           "weights_restored_bytes" (see evn_memory_stats), "limit_bytes" (null: no limit)}]}) or EVN_FORMAT_PROMETHEUS:
 *           counters evener_requests_total{session, priority, outcome} (completed, failed, cancelled, late, rejected), gauges
 *           evener_requests_queued and evener_requests_running{session}, histograms evener_request_wait_seconds and
 *           evener_request_run_seconds{session, priority}, evener_batch_rows{session}, gauges evener_memory_bytes{device, kind}
 *           (current, peak, reserved, cached, unused, largest_free_block, limit) and evener_device_usable{device} (1, or 0 where
 *           it is lost or in quarantine), and the counter evener_device_quarantines_total{device}; for the host to serve
 * @since 0.2 */
EVN_API evn_status evn_runtime_get_statistics(evn_runtime runtime, evn_format format, char *buffer, size_t capacity, size_t *size,
                                              evn_error *error);

#ifdef __cplusplus
}
#endif
#endif
