/* Evener: events, and copies that devices do while the caller goes on. The conventions of evener.h hold.
 *
 *   evn_tensor_copy_async(on_host, on_device, NULL, 0, &copied, &error);        returns at once
 *   evn_device_wait_event(device, copied, &error);                              what the device gets from now on begins after it
 *   ...
 *   evn_event_wait(copied, UINT64_MAX, &error);                                 here the copy's own error is learned
 *   evn_event_release(copied);
 *
 * Work of a device that uses the same memory of the device is in order whether events say so or not. Events are for memory of the
 * host, for work of other devices, and for work of the host's own on the device (opencl.h). */
#ifndef EVENER_EVENT_H
#define EVENER_EVENT_H

#include "evener/evener.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------------------------- events -- */

typedef struct evn_event_handle *evn_event; /* the end of something that a device does. It keeps its runtime. @since 0.2 */

/* Has a device copy all bytes of `source` into `target`, of the same dtype and dims, behind the events, and returns at once. Copies
 * between a device and the host go to the device's queue of transfers and overlap with its kernels, those within a device to its
 * queue of kernels; between two devices they go through memory of the host. A copy that waits for an event holds up later work of
 * its queue. Where no device but the CPU is concerned (and for strings, and for tensors without elements) the call waits for the
 * events, copies, and gives an event that has happened.
 * Both tensors are kept until the copy has ended, and those on devices are in use until then: evn_tensor_map of them waits. Memory
 * of the host is not guarded: it must stay, and neither be written (the source's) nor looked at (the target's) before the event.
 *   wait_for  wait_count events of the same runtime, NULL where there are none; they may be released at once
 *   event     out, released by the caller
 * Returns EVN_ERROR_INVALID_ARGUMENT (dtype or dims differ; a read-only target; a tensor or event of another runtime),
 * EVN_ERROR_WRONG_STATE (a tensor is mapped), EVN_ERROR_OUT_OF_MEMORY, EVN_ERROR_DEVICE_LOST; then what the target holds is
 * undefined. What goes wrong later evn_event_wait tells. Thread-safe. @since 0.2 */
EVN_API evn_status evn_tensor_copy_async(evn_tensor source, evn_tensor target, const evn_event *wait_for, uint32_t wait_count,
                                         evn_event *event, evn_error *error);

/* Waits until the event has happened, or so long.
 *   timeout_ns  0: only looks; UINT64_MAX: as long as it takes
 * Returns EVN_ERROR_TIMEOUT (it has not happened yet: nothing else has changed), EVN_ERROR_DEVICE_LOST (what it stands for, or what
 * was under way with that, ended with an error: every later call says so too). Blocks. Thread-safe. @since 0.2 */
EVN_API evn_status evn_event_wait(evn_event event, uint64_t timeout_ns, evn_error *error);

/* Ends the handle. What it stands for goes on. NULL is allowed. @since 0.2 */
EVN_API evn_status evn_event_release(evn_event event);

/* Gives an event of all that the device has been given so far, by whichever thread, and has the device begin that. Work of the CPU
 * device ends in the call that gives it: its event has happened. A run that is under way in another thread counts as far as it has
 * got. Returns EVN_ERROR_DEVICE_LOST, EVN_ERROR_OUT_OF_MEMORY. Thread-safe. @since 0.2 */
EVN_API evn_status evn_device_record_event(evn_device device, evn_event *event, evn_error *error);

/* Has what the device is given from now on begin after the event, and returns at once. The CPU device, which cannot wait by itself,
 * has the caller wait. Where the event ends with an error, what waits for it ends so too (EVN_ERROR_DEVICE_LOST).
 * Returns EVN_ERROR_INVALID_ARGUMENT (an event of another runtime), EVN_ERROR_DEVICE_LOST. Thread-safe. @since 0.2 */
EVN_API evn_status evn_device_wait_event(evn_device device, evn_event event, evn_error *error);

#ifdef __cplusplus
}
#endif
#endif
