// evn_event_*, and what gives and takes events.
#include "evener/event.h"

#include "api/barrier.h"
#include "api/objects.h"

using namespace evn;

namespace {

// What commands wait for, and what keeps that while they are enqueued.
struct Waits {
  Waits(const Runtime& runtime, const evn_event* events, uint32_t count) {
    require(events != nullptr || count == 0, "wait_for");
    for (uint32_t i = 0; i < count; ++i) {
      kept.push_back(*Pin<EventPtr>(events[i]));
      waits.push_back(kept.back()->of(runtime));
    }
  }
  std::vector<EventPtr> kept;
  std::vector<Event> waits;
};

}  // namespace

extern "C" {

evn_status evn_tensor_copy_async(evn_tensor source, evn_tensor target, const evn_event* wait_for, uint32_t wait_count,
                                 evn_event* event, evn_error* error) {
  return guarded(error, [&] {
    const Pin<TensorPtr> from(source);
    const Pin<TensorPtr> to(target);
    require(event != nullptr, "event");
    const RuntimePtr& runtime = (*from)->runtime();
    if ((*to)->runtime() != runtime) fail(EVN_ERROR_INVALID_ARGUMENT, "the source and the target are of two runtimes");
    const Waits waits(*runtime, wait_for, wait_count);
    void* const handle = make_handle<EventPtr>(std::make_shared<HostEvent>(runtime, Event{}));
    try {
      const Event copied = copy_tensor_behind(*from, *to, waits.waits);
      (*Pin<EventPtr>(handle))->set(copied);
    } catch (...) {
      g_handles.release(handle, HandleKind::kEvent);
      throw;
    }
    *event = static_cast<evn_event>(handle);
  });
}

evn_status evn_event_wait(evn_event event, uint64_t timeout_ns, evn_error* error) {
  return guarded(error, [&] {
    const EventPtr e = *Pin<EventPtr>(event);
    Cancel cancel;
    cancel.over = "the event has not happened yet";
    const std::uint64_t now = deadline_clock_ns();
    if (timeout_ns < UINT64_MAX - now) cancel.deadline_ns = now + timeout_ns;
    if (!e->wait(cancel)) cancel.fail();
  });
}

evn_status evn_event_release(evn_event event) { return release_handle(event, HandleKind::kEvent); }

evn_status evn_device_record_event(evn_device device, evn_event* event, evn_error* error) {
  return guarded(error, [&] {
    const Pin<DeviceView> d(device);
    require(event != nullptr, "event");
    Device* const inner = (*d).device;
    Runtime::require_not_forked(*inner);
    inner->submit();
    *event = static_cast<evn_event>(make_handle<EventPtr>(std::make_shared<HostEvent>((*d).runtime, inner->all_enqueued())));
  });
}

evn_status evn_device_wait_event(evn_device device, evn_event event, evn_error* error) {
  return guarded(error, [&] {
    const Pin<DeviceView> d(device);
    const Waits waits(*(*d).runtime, &event, 1);
    (*d).device->wait_before_all(waits.waits);
  });
}

}  // extern "C"
