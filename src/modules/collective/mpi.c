/* libevener_mpi.so: all-reduce by MPI (MPI 3: MPI_Iallreduce), among the processes that one launcher has started. MPI is
 * initialized here where the host has not done it, and finalized at exit unless a reduction has failed: then nobody may wait for
 * anybody.
 */
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "modules/collective/report.h"

enum { kPartBytes = 1 << 22 }; /* of one call */

typedef struct Collective {
  MPI_Comm comm;
  int timeout_ms;
  int is_broken;
  void* part; /* kPartBytes: what is being reduced */
} Collective;

static int g_finalizes;  /* MPI was initialized here */
static int g_any_broken; /* a reduction has failed: MPI_Finalize could wait for ever */

static void finalize(void) {
  int done = 0;
  MPI_Finalized(&done);
  if (g_finalizes && !g_any_broken && !done) MPI_Finalize();
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static evn_status fail_mpi(evn_error* error, const char* call, int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return collective_fail(error, EVN_ERROR_DEVICE_LOST, "%s: %.300s", call, text);
}

/* Waits for the request, at first without letting go of the core. */
static evn_status wait_for(Collective* c, MPI_Request* request, evn_error* error) {
  const int64_t begin = now_ns(), end = begin + (int64_t)c->timeout_ms * 1000000;
  for (;;) {
    int done = 0;
    const int code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) return fail_mpi(error, "MPI_Test", code);
    if (done) return EVN_OK;
    const int64_t now = now_ns();
    if (now > end)
      return collective_fail(error, EVN_ERROR_TIMEOUT, "a rank did not come to the reduction within %d ms", c->timeout_ms);
    if (now - begin < 2000000) {
      sched_yield();
    } else {
      const struct timespec pause = {0, 50000};
      nanosleep(&pause, NULL);
    }
  }
}

static evn_status reduce_part(Collective* c, void* data, int count, MPI_Datatype type, size_t bytes, evn_error* error) {
  MPI_Request request;
  memcpy(c->part, data, bytes);
  const int code = MPI_Iallreduce(MPI_IN_PLACE, c->part, count, type, MPI_SUM, c->comm, &request);
  if (code != MPI_SUCCESS) return fail_mpi(error, "MPI_Iallreduce", code);
  const evn_status status = wait_for(c, &request, error);
  if (status == EVN_OK) memcpy(data, c->part, bytes);
  return status;
}

static evn_status reduce(void* context, void* data, uint64_t count, evn_dtype dtype, evn_error* error) {
  Collective* const c = context;
  const int is_double = dtype == EVN_DTYPE_FLOAT64;
  if (!is_double && dtype != EVN_DTYPE_FLOAT32)
    return collective_fail(error, EVN_ERROR_UNSUPPORTED, "dtype %d cannot be summed over ranks", (int)dtype);
  if (c->is_broken) return collective_fail(error, EVN_ERROR_WRONG_STATE, "an earlier reduction has failed");
  const size_t size = is_double ? sizeof(double) : sizeof(float);
  const uint64_t most = kPartBytes / size;
  evn_status status = EVN_OK;
  for (uint64_t at = 0; at < count && status == EVN_OK; at += most) {
    const uint64_t part = count - at < most ? count - at : most;
    status = reduce_part(c, (char*)data + at * size, (int)part, is_double ? MPI_DOUBLE : MPI_FLOAT, part * size, error);
  }
  if (status != EVN_OK) c->is_broken = g_any_broken = 1;
  return status;
}

static evn_status initialize(evn_error* error) {
  int is_there = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&is_there);
  if (is_there) {
    MPI_Query_thread(&level);
  } else {
    const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS) return fail_mpi(error, "MPI_Init_thread", code);
    g_finalizes = 1;
    atexit(finalize);
  }
  if (level >= MPI_THREAD_SERIALIZED) return EVN_OK;
  return collective_fail(error, EVN_ERROR_UNSUPPORTED, "MPI was initialized for one thread; MPI_THREAD_SERIALIZED is needed");
}

/* All ranks are there when a first sum over them is. */
static evn_status meet(Collective* c, const evn_collective_settings* s, uint32_t* rank, uint32_t* rank_count, evn_error* error) {
  int own = 0, all = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  MPI_Comm_size(MPI_COMM_WORLD, &all);
  if (s->rank_count != 0 && ((int)s->rank_count != all || (int)s->rank != own)) {
    return collective_fail(error, EVN_ERROR_INVALID_ARGUMENT, "the launcher of MPI made rank %d of %d, the options say %u of %u",
                           own, all, s->rank, s->rank_count);
  }
  if (g_finalizes) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* else it is the host's */
  MPI_Request request;
  const int code = MPI_Comm_idup(MPI_COMM_WORLD, &c->comm, &request);
  if (code != MPI_SUCCESS) return fail_mpi(error, "MPI_Comm_idup", code);
  const evn_status status = wait_for(c, &request, error);
  if (status != EVN_OK) {
    c->is_broken = g_any_broken = 1;
    return status;
  }
  MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN);
  *rank = (uint32_t)own;
  *rank_count = (uint32_t)all;
  float one = 1;
  return reduce(c, &one, 1, EVN_DTYPE_FLOAT32, error);
}

static void close_collective(void* collective) {
  Collective* const c = collective;
  int done = 0;
  MPI_Finalized(&done);
  if (!done && !c->is_broken && c->comm != MPI_COMM_NULL) MPI_Comm_free(&c->comm);
  if (c->is_broken) return; /* what was given up may still write to it */
  free(c->part);
  free(c);
}

static evn_status open_collective(const evn_collective_settings* settings, void** collective, uint32_t* rank, uint32_t* rank_count,
                                  evn_error* error) {
  Collective* const c = calloc(1, sizeof *c);
  if (c != NULL) c->part = malloc(kPartBytes);
  if (c == NULL || c->part == NULL) {
    free(c);
    return collective_fail(error, EVN_ERROR_OUT_OF_MEMORY, "the system has no memory");
  }
  c->comm = MPI_COMM_NULL;
  c->timeout_ms = (int)(settings->timeout_ms < 2000000000u ? settings->timeout_ms : 2000000000u);
  evn_status status = initialize(error);
  if (status == EVN_OK) status = meet(c, settings, rank, rank_count, error);
  if (status != EVN_OK) {
    close_collective(c);
    return status;
  }
  *collective = c;
  return EVN_OK;
}

__attribute__((visibility("default"))) const evn_collective_module_table* evn_collective_module(void) {
  static const evn_collective_module_table table = {EVN_COLLECTIVE_MODULE_ABI, EVN_VERSION_NUMBER, open_collective, reduce,
                                                    close_collective};
  return &table;
}
