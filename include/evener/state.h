/* Evener: state of streams: tensors that go from an output of one run to an input of the next. The conventions of evener.h hold.
 *
 *   evn_state_pair pairs[] = {{"present_k0", "past_k0", 2048}, {"present_v0", "past_v0", 2048}, ...};
 *   evn_state_create(session, pairs, pair_count, NULL, &state, &error);      one for each stream, as many as there are
 *   run_options.state = state;
 *   for (...) evn_session_run(session, inputs, n, outputs, m, &run_options, &error);
 *
 * A state is of one session, and one run uses it at a time: another that comes meanwhile is EVN_ERROR_BUSY. A run that fails leaves
 * the state as it was before. */
#ifndef EVENER_STATE_H
#define EVENER_STATE_H

#include "evener/evener.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------------------------- states -- */

/* An output of the model that is an input of the next run. Arrays of it are handed over: it never grows. @since 0.2 */
typedef struct evn_state_pair {
  const char *output;
  const char *input;
  int64_t capacity; /* 0: the output has the dims that the input has in each run, as the state of an LSTM has. More: the most
                       positions on the axis on which it grows, as a cache of keys or values does; it begins with none */
} evn_state_pair;

/* Flags of evn_state_options. */
enum {
  EVN_STATE_ON_DEMAND = 1, /* memory for positions is taken page by page as the state grows, and not all at once when it is made;
                              then a run can fail with EVN_ERROR_OUT_OF_MEMORY */
  EVN_STATE_FLOAT16 = 2,   /* pages of float32 values store float16: half the memory, and faster where attention waits for it. A row
                              is rounded when it is stored: attention reads what the same run adds rounded where a Concat appends
                              it, and unrounded from GroupQueryAttention. Infinite beyond 65504 */
  EVN_STATE_INT8 = 4       /* pages of float32, float16 and bfloat16 values store 8 bits: each row of the innermost axis as whole
                              numbers from -127 to 127 times a scale, its largest magnitude / 127. A row with a value that is not
                              finite becomes NaN. Not together with EVN_STATE_FLOAT16 */
};

/* How a state is made. @since 0.2 */
typedef struct evn_state_options {
  uint32_t struct_size;
  uint32_t flags;              /* EVN_STATE_... */
  const evn_input_shape *dims; /* dim_count inputs of pairs whose dims the model leaves open, and what these are; the axis on
                                  which a pair grows is 0 here. Dims with one symbol are one: what is given for it holds for all.
                                  NULL where none is needed: dims that nothing gives are
                                  those of the output where the graph tells them, else 1 */
  uint32_t dim_count;
  uint32_t reserved;           /* 0 */
} evn_state_options;
#define EVN_STATE_OPTIONS_INIT {sizeof(evn_state_options), 0, NULL, 0, 0}

/* See evn_error_init. @since 0.2 */
EVN_API void evn_state_options_init(evn_state_options *options, uint32_t struct_size);

/* Makes a state, with zeros in pairs without a capacity and no positions in those with one.
 * Where a pair with a capacity is appended to on the CPU (Concat of the input and what is new, or GroupQueryAttention's past and
 * present), its positions lie in pages that never move: a run writes what is new, and attention reads the pages where they lie.
 * Pages of float16 and bfloat16 values are read and written as they are also where the model computes in float32 between them.
 * Other pairs are tensors on the device that makes them: two that are swapped after each run (double-buffered) where dims stay the
 * same, else the one that the latest run made. evn_state_describe says which it is, and why.
 *   pairs    pair_count of them; copied
 *   options  nullable
 * Returns EVN_ERROR_INVALID_ARGUMENT (a name that the model does not have, a name twice, dtypes or ranks that differ, an axis that
 * cannot be told), EVN_ERROR_UNSUPPORTED (values that are no tensors, and strings), EVN_ERROR_OUT_OF_MEMORY. Allocates: bytes are
 * the device's, of EVN_MEMORY_STATES. @since 0.2 */
EVN_API evn_status evn_state_create(evn_session session, const evn_state_pair *pairs, uint32_t pair_count,
                                    const evn_state_options *options, evn_state *state, evn_error *error);

/* Makes it as it was when it was made, and keeps its memory. Returns EVN_ERROR_BUSY (a run uses it). @since 0.2 */
EVN_API evn_status evn_state_reset(evn_state state, evn_error *error);

/* Makes another state of the same contents, which goes its own way from now on: a beam of a search. Full pages are shared; of
 * each pair with pages no more than one page is copied, other pairs are copied whole. Returns EVN_ERROR_BUSY,
 * EVN_ERROR_OUT_OF_MEMORY. @since 0.2 */
EVN_API evn_status evn_state_fork(evn_state state, evn_state *copy, evn_error *error);

/* Sets *positions to the number of positions of the pair at `index` on the axis on which it grows; of a pair without a capacity 0.
 * @since 0.2 */
EVN_API evn_status evn_state_length(evn_state state, uint32_t index, int64_t *positions, evn_error *error);

/* Cuts pairs with a capacity back to their first `positions` positions, where they have more. Returns EVN_ERROR_BUSY,
 * EVN_ERROR_INVALID_ARGUMENT (negative). @since 0.2 */
EVN_API evn_status evn_state_truncate(evn_state state, int64_t positions, evn_error *error);

/* Writes the contents as bytes: with buffer NULL and capacity 0 it only sets *size. The bytes are for this version of the library
 * and any machine of the same byte order. Returns EVN_ERROR_BUFFER_TOO_SMALL, EVN_ERROR_BUSY. Blocks: copies from devices.
 * @since 0.2 */
EVN_API evn_status evn_state_save(evn_state state, void *buffer, size_t capacity, size_t *size, evn_error *error);

/* Puts what evn_state_save wrote in the place of the contents, of a state with the same pairs; checked. Returns
 * EVN_ERROR_INVALID_ARGUMENT (bytes that evn_state_save did not write, or wrote for other pairs; the state is as it was),
 * EVN_ERROR_LIMIT (more positions than the capacity), EVN_ERROR_BUSY, EVN_ERROR_OUT_OF_MEMORY. @since 0.2 */
EVN_API evn_status evn_state_restore(evn_state state, const void *data, size_t size, evn_error *error);

/* Writes the pairs: names, dtype, dims, positions and capacity, bytes, pages, and how they are stored, as EVN_FORMAT_TEXT or
 * EVN_FORMAT_JSON ([{"output", "input", "dtype", "dims", "positions", "capacity", "bytes", "pages", "storage", "reason"}],
 * "storage" one of "pages", "double_buffered", "tensor"). @since 0.2 */
EVN_API evn_status evn_state_describe(evn_state state, evn_format format, char *buffer, size_t capacity, size_t *size,
                                      evn_error *error);

/* Ends the handle. Runs that use the state end normally. NULL is allowed. @since 0.2 */
EVN_API evn_status evn_state_release(evn_state state);

#ifdef __cplusplus
}
#endif
#endif
