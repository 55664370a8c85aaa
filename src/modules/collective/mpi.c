/* libevener_mpi.so: all-reduce by MPI (MPI 3: MPI_Iallreduce), among the processes that one launcher has started. MPI is
 * initialized here where the host has not done it, and finalized at exit unless a reduction has failed or is under way: then nobody
 * may wait for anybody. A host that calls MPI while its trainers do initializes it with MPI_THREAD_MULTIPLE.
 */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "modules/collective/report.h"

enum { kPartBytes = 1 << 22 }; /* of one call */

typedef struct Collective {
  MPI_Comm comm;
  int timeout_ms;
  int is_broken;
  void* part; /* kPartBytes: what is being reduced */
} Collective;

/* Held over each call of MPI: trainers may be used by several threads, and MPI_THREAD_SERIALIZED allows one call at a time. */
static pthread_mutex_t g_mpi = PTHREAD_MUTEX_INITIALIZER;
static atomic_int g_process; /* the process that has used MPI first; 0: none has */
static int g_finalizes;      /* MPI was initialized here */
static int g_any_broken;     /* a reduction has failed: MPI_Finalize could wait for ever */
static int g_outstanding;    /* requests that have begun and are not complete; one that has failed stays counted */

/* A forked child has no MPI of its own: its calls would be those of its parent's rank. */
static int is_forked_child(void) { return g_process != 0 && g_process != getpid(); }

static void finalize(void) {
  if (is_forked_child()) return;
  pthread_mutex_lock(&g_mpi);
  int done = 0;
  MPI_Finalized(&done);
  if (!g_any_broken && g_outstanding == 0 && !done) MPI_Finalize();
  pthread_mutex_unlock(&g_mpi);
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Status of what a call of MPI returned. Called with the mutex held. */
static evn_status status_of(evn_error* error, const char* call, int code) {
  if (code == MPI_SUCCESS) return EVN_OK;
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return collective_fail(error, EVN_ERROR_DEVICE_LOST, "%s: %.300s", call, text);
}

/* Fails once MPI is finalized: other calls of MPI would end the process. Called with the mutex held. */
static evn_status require_mpi(evn_error* error) {
  int is_over = 0;
  MPI_Finalized(&is_over);
  return is_over ? collective_fail(error, EVN_ERROR_WRONG_STATE, "MPI was finalized: it cannot be used any more") : EVN_OK;
}

/* Ends the reductions of a communicator, and has the process end without MPI_Finalize, which waits for other ranks. */
static void give_up(void* collective) {
  Collective* const c = collective;
  pthread_mutex_lock(&g_mpi);
  c->is_broken = g_any_broken = 1;
  pthread_mutex_unlock(&g_mpi);
}

/* Waits for an outstanding request, at first without letting go of the core. Other threads may call MPI between two looks, and the
 * host may finalize it.
 */
static evn_status wait_for(Collective* c, MPI_Request* request, evn_error* error) {
  const int64_t begin = now_ns(), end = begin + (int64_t)c->timeout_ms * 1000000;
  for (;;) {
    int done = 0;
    pthread_mutex_lock(&g_mpi);
    evn_status status = require_mpi(error);
    if (status == EVN_OK) status = status_of(error, "MPI_Test", MPI_Test(request, &done, MPI_STATUS_IGNORE));
    if (status == EVN_OK && done) --g_outstanding;
    pthread_mutex_unlock(&g_mpi);
    if (status != EVN_OK || done) return status;
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
  pthread_mutex_lock(&g_mpi);
  evn_status status = require_mpi(error);
  if (status == EVN_OK) {
    const int code = MPI_Iallreduce(MPI_IN_PLACE, c->part, count, type, MPI_SUM, c->comm, &request);
    status = status_of(error, "MPI_Iallreduce", code);
    if (status == EVN_OK) ++g_outstanding;
  }
  pthread_mutex_unlock(&g_mpi);
  if (status == EVN_OK) status = wait_for(c, &request, error);
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
  if (status != EVN_OK) give_up(c);
  return status;
}

/* Called with the mutex held. */
static evn_status initialize(evn_error* error) {
  int is_there = 0, level = MPI_THREAD_SINGLE;
  evn_status status = require_mpi(error);
  if (status != EVN_OK) return status;
  MPI_Initialized(&is_there);
  g_process = getpid();
  if (is_there) {
    MPI_Query_thread(&level);
  } else {
    status = status_of(error, "MPI_Init_thread", MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level));
    if (status != EVN_OK) return status;
    g_finalizes = 1;
    atexit(finalize);
  }
  if (level >= MPI_THREAD_SERIALIZED) return EVN_OK;
  return collective_fail(error, EVN_ERROR_UNSUPPORTED, "MPI was initialized for one thread; MPI_THREAD_SERIALIZED is needed");
}

/* Begins to make a communicator. Called with the mutex held. */
static evn_status begin_meeting(Collective* c, const evn_collective_settings* s, int* own, int* all, MPI_Request* request,
                                evn_error* error) {
  const evn_status status = initialize(error);
  if (status != EVN_OK) return status;
  MPI_Comm_rank(MPI_COMM_WORLD, own);
  MPI_Comm_size(MPI_COMM_WORLD, all);
  if (s->rank_count != 0 && ((int)s->rank_count != *all || (int)s->rank != *own)) {
    return collective_fail(error, EVN_ERROR_INVALID_ARGUMENT, "the launcher of MPI made rank %d of %d, the options say %u of %u",
                           *own, *all, s->rank, s->rank_count);
  }
  if (g_finalizes) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* else it is the host's */
  return status_of(error, "MPI_Comm_idup", MPI_Comm_idup(MPI_COMM_WORLD, &c->comm, request));
}

/* All ranks are there when a first sum over them is. */
static evn_status meet(Collective* c, const evn_collective_settings* s, uint32_t* rank, uint32_t* rank_count, evn_error* error) {
  if (is_forked_child()) return collective_fail(error, EVN_ERROR_FORKED, "a forked child is no rank");
  int own = 0, all = 0;
  MPI_Request request;
  pthread_mutex_lock(&g_mpi);
  evn_status status = begin_meeting(c, s, &own, &all, &request, error);
  if (status == EVN_OK) ++g_outstanding;
  pthread_mutex_unlock(&g_mpi);
  if (status != EVN_OK) return status;
  status = wait_for(c, &request, error);
  if (status != EVN_OK) {
    give_up(c);
    return status;
  }
  pthread_mutex_lock(&g_mpi);
  status = require_mpi(error);
  if (status == EVN_OK) MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN);
  pthread_mutex_unlock(&g_mpi);
  if (status != EVN_OK) return status;
  *rank = (uint32_t)own;
  *rank_count = (uint32_t)all;
  float one = 1;
  return reduce(c, &one, 1, EVN_DTYPE_FLOAT32, error);
}

static void close_collective(void* collective) {
  Collective* const c = collective;
  if (c->is_broken) return; /* what was given up may still write to it */
  if (c->comm != MPI_COMM_NULL) {
    int done = 0;
    pthread_mutex_lock(&g_mpi);
    MPI_Finalized(&done);
    if (!done) MPI_Comm_free(&c->comm);
    pthread_mutex_unlock(&g_mpi);
  }
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
  const evn_status status = meet(c, settings, rank, rank_count, error);
  if (status != EVN_OK) {
    close_collective(c);
    return status;
  }
  *collective = c;
  return EVN_OK;
}

__attribute__((visibility("default"))) const evn_collective_module_table* evn_collective_module(void) {
  static const evn_collective_module_table table = {EVN_COLLECTIVE_MODULE_ABI, EVN_VERSION_NUMBER, open_collective, reduce, give_up,
                                                    close_collective};
  return &table;
}
