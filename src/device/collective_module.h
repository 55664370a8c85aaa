/* Functions that libevener_mpi.so and libevener_gloo.so export: all-reduce over the processes that train a model together. A
 * trainer opens the one that evn_trainer_options.collective names. C, because each has a C++ runtime of its own.
 */
#ifndef EVN_DEVICE_COLLECTIVE_MODULE_H
#define EVN_DEVICE_COLLECTIVE_MODULE_H

#include "evener/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with this file. */
#define EVN_COLLECTIVE_MODULE_ABI 2u
#define EVN_COLLECTIVE_MODULE_SYMBOL "evn_collective_module"

typedef struct evn_collective_settings {
  uint32_t rank, rank_count; /* 0, 0: as the launcher says */
  uint32_t timeout_ms;       /* for each reduction, and for the ranks to meet */
  const char* store;         /* a folder; nullable */
} evn_collective_settings;

typedef struct evn_collective_module_table {
  uint32_t abi;
  uint32_t version; /* EVN_VERSION_NUMBER */
  /* Waits until all ranks are there. */
  evn_status (*open)(const evn_collective_settings* settings, void** collective, uint32_t* rank, uint32_t* rank_count,
                     evn_error* error);
  evn_reduce reduce; /* its context is what `open` gives */
  /* Ends all reductions of this rank: a sum that the module did not make has failed. Nothing waits for the other ranks any more,
   * at the end of the process either. `reduce` fails from then on. */
  void (*give_up)(void* collective);
  void (*close)(void* collective);
} evn_collective_module_table;

typedef const evn_collective_module_table* (*evn_collective_module_function)(void);

#ifdef __cplusplus
}
#endif

#endif
