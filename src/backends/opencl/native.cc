// What a host shares with an OpenCL device: its objects, memory of its context, and events.
#include <bit>

#include "backends/opencl/device.h"

namespace evn {
namespace {

template <typename T>
T read_memory(cl_mem memory, cl_mem_info what, const std::string& device) {
  T value{};
  check_given(cl_call(opencl().get_mem_object_info, memory, what, sizeof value, static_cast<void*>(&value),
                      static_cast<std::size_t*>(nullptr)),
              "clGetMemObjectInfo", device);
  return value;
}

cl_int status_of(cl_event event, cl_int* status) {
  return cl_call(opencl().get_event_info, event, cl_event_info{CL_EVENT_COMMAND_EXECUTION_STATUS}, sizeof *status,
                 static_cast<void*>(status), static_cast<std::size_t*>(nullptr));
}

}  // namespace

NativeObjects OpenClDevice::objects() {
  require_not_forked();
  return {context_.get(), found_.id, streams_[kKernels]->queue()};
}

// ------------------------------------------------------------------------------------------------------------- memory --

void* OpenClDevice::memory_of(const Buffer& buffer) const { return const_cast<void*>(opencl_memory_of(buffer)); }

// A part of a buffer is used as a part of the whole: kernels have offsets, and the order of commands goes by them.
NativeSharing::Wrapped OpenClDevice::wrap(void* given, std::uint64_t offset, std::size_t bytes, bool read_only) {
  require_not_forked();
  auto memory = static_cast<cl_mem>(given);
  const auto refuse = [&](evn_status status, const char* why) { throw make_error(status, "%s", why).with_device(name().c_str()); };
  if (read_memory<cl_mem_object_type>(memory, CL_MEM_TYPE, name()) != CL_MEM_OBJECT_BUFFER)
    refuse(EVN_ERROR_INVALID_ARGUMENT, "the memory is no buffer (an image or a pipe)");
  if (read_memory<cl_context>(memory, CL_MEM_CONTEXT, name()) != context_.get())
    refuse(EVN_ERROR_INVALID_ARGUMENT, "the buffer is of another context than the device");
  const auto flags = read_memory<cl_mem_flags>(memory, CL_MEM_FLAGS, name());
  if ((flags & CL_MEM_WRITE_ONLY) != 0) refuse(EVN_ERROR_UNSUPPORTED, "kernels cannot read the buffer (CL_MEM_WRITE_ONLY)");
  if ((flags & (CL_MEM_HOST_NO_ACCESS | CL_MEM_HOST_WRITE_ONLY)) != 0)
    refuse(EVN_ERROR_UNSUPPORTED, "the host cannot read the buffer (CL_MEM_HOST_NO_ACCESS or CL_MEM_HOST_WRITE_ONLY)");
  if (!read_only && (flags & (CL_MEM_READ_ONLY | CL_MEM_HOST_READ_ONLY)) != 0)
    refuse(EVN_ERROR_INVALID_ARGUMENT, "the buffer is read-only, and EVN_TENSOR_READ_ONLY is not given");
  const std::uint64_t size = read_memory<std::size_t>(memory, CL_MEM_SIZE, name());
  if (offset > size || bytes > size - offset) {
    throw make_error(EVN_ERROR_INVALID_ARGUMENT, "%zu bytes from byte %llu on end beyond the buffer, which has %llu bytes", bytes,
                     static_cast<unsigned long long>(offset), static_cast<unsigned long long>(size))
        .with_device(name().c_str())
        .with_bytes(bytes, size);
  }
  if (const auto whole = read_memory<cl_mem>(memory, CL_MEM_ASSOCIATED_MEMOBJECT, name()); whole != nullptr) {
    offset += read_memory<std::size_t>(memory, CL_MEM_OFFSET, name());
    memory = whole;
  }
  if (offset % traits_.alignment != 0) {
    throw make_error(EVN_ERROR_UNSUPPORTED,
                     "the tensor begins at byte %llu of the buffer, which is no multiple of the device's alignment of %zu bytes",
                     static_cast<unsigned long long>(offset), traits_.alignment)
        .with_device(name().c_str());
  }
  auto made = std::make_unique<OpenClMemory>();
  made->bytes = static_cast<std::size_t>(size);
  std::shared_ptr<OpenClMemory> keeper(made.release(), [](OpenClMemory* m) {
    if (m->buffer != nullptr) opencl().release_mem_object(m->buffer);
    delete m;
  });
  // Commands are given the whole buffer, also for a part of it, so that the whole is kept.
  check_cl(opencl().retain_mem_object(memory), "clRetainMemObject", name());
  keeper->buffer = memory;
  return {{keeper.get(), static_cast<std::size_t>(offset), bytes}, keeper};
}

NativeSharing::Programs OpenClDevice::store_programs(const std::string& folder, bool sources) {
  require_not_forked();
  return sources ? programs_.store_texts(folder) : programs_.store_all(folder);
}

// ------------------------------------------------------------------------------------------------------------- events --

void OpenClDevice::retain_event(void* given) {
  require_not_forked();
  const auto event = static_cast<cl_event>(given);
  cl_context context = nullptr;
  check_given(cl_call(opencl().get_event_info, event, cl_event_info{CL_EVENT_CONTEXT}, sizeof context, static_cast<void*>(&context),
                      static_cast<std::size_t*>(nullptr)),
              "clGetEventInfo", name());
  if (context != context_.get()) {
    throw make_error(EVN_ERROR_INVALID_ARGUMENT, "the event is of another context than the device").with_device(name().c_str());
  }
  check_cl(opencl().retain_event(event), "clRetainEvent", name());
}

void OpenClDevice::release_event(void* event) noexcept { opencl().release_event(static_cast<cl_event>(event)); }

void* OpenClDevice::event_of(Stream of, std::uint64_t number) {
  const OpenClStream::Kept kept = streams_[of]->find_pending(number);
  if (kept.event == nullptr) return nullptr;
  const cl_int code = streams_[of]->flush(kept.number);
  if (code != CL_SUCCESS) opencl().release_event(kept.event);
  check_cl(code, "clFlush", name());
  return kept.event;
}

void* OpenClDevice::make_event(const Event& event) {
  require_not_forked();
  cl_int code = CL_SUCCESS;
  const bool is_opencl = event.device != nullptr && event.device->traits().kind == EVN_DEVICE_OPENCL;
  if (is_opencl && event.device == this && event.native != nullptr) {
    check_cl(opencl().retain_event(static_cast<cl_event>(event.native)), "clRetainEvent", name());
    return event.native;
  }
  // That of a single queue is there already, or has come.
  bool has_ended = false;
  if (is_opencl && event.device == this) {
    for (int i = 0; i < kStreamCount; ++i) {
      if ((event.value & kAllStreams) != std::uint64_t{1} << i) continue;
      if (void* const made = event_of(static_cast<Stream>(i), event.value >> kStreamCount)) return made;
      report(event.value);
      has_ended = true;
    }
  }
  // A marker of the kernels' queue has one event for all that it waits for, whichever queues and device they are of.
  if (is_opencl && !has_ended) {
    OpenClStep step(streams_[kKernels]->queue());
    add_waits(step, {&event, 1}, false);
    Event marked;
    {
      const auto lock = lock_in_scope(mutex_);
      step.add_marker(name());
      marked = keep(step, kKernels, {}, 0);
    }
    if (void* const made = event_of(kKernels, marked.value >> kStreamCount)) return made;
    report(marked.value);
  } else if (event.device != nullptr) {
    event.device->wait(event);
  }
  const cl_event ended = cl_create(&code, opencl().create_user_event, context_.get());
  check_cl(code, "clCreateUserEvent", name());
  opencl().set_user_event_status(ended, CL_COMPLETE);
  return ended;
}

bool OpenClDevice::add_wait_of_host(OpenClStep& step, const Event& event) {
  if (step.is_full()) return false;
  const auto native = static_cast<cl_event>(event.native);
  check_cl(opencl().retain_event(native), "clRetainEvent", name());
  step.add_wait(native);
  return true;
}

void OpenClDevice::wait_for_host(const Event& event) {
  auto native = static_cast<cl_event>(event.native);
  cl_int code = cl_call(opencl().wait_for_events, cl_uint{1}, static_cast<const cl_event*>(&native));
  cl_int status = CL_COMPLETE;
  if (code == CL_SUCCESS || code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) code = status_of(native, &status);
  check_cl(code, "clWaitForEvents", name());
  if (status < 0) throw_if({.code = status, .command = "behind the event"});
}

bool OpenClDevice::wait_for_host_or_stop(const Event& event, const Cancel& cancel) {
  auto native = static_cast<cl_event>(event.native);
  bool watched = false;
  for (;;) {
    const std::uint64_t seen = notices_->count();
    cl_int status = CL_QUEUED;
    check_cl(status_of(native, &status), "clGetEventInfo", name());
    if (status < 0) throw_if({.code = status, .command = "behind the event"});
    if (status == CL_COMPLETE) return true;
    if (cancel.stop()) return false;
    if (!watched) watched = notices_->watch(native) == CL_SUCCESS;  // else it is looked at every millisecond
    notices_->wait(seen);
  }
}

void OpenClDevice::keep_until(const Event& event, std::shared_ptr<const void> held) noexcept {
  if (is_forked()) return;
  const auto stream = static_cast<std::size_t>(std::countr_zero(event.value | std::uint64_t{1} << (kStreamCount - 1)));
  if (kept_[stream].start() && kept_[stream].hold(event.value, held)) return;
  Device::hold_until(event, std::move(held));
}

// A marker in each queue: what comes behind it begins when it has ended.
void OpenClDevice::wait_before_all(std::span<const Event> waits) {
  require_not_forked();
  for (int i = 0; i < kStreamCount; ++i) {
    if (i >= kMeasuredKernels && !measures_.load(std::memory_order_acquire)) break;
    OpenClStep step(streams_[i]->queue());
    add_waits(step, waits, i == kUploads || i == kMeasuredUploads);
    if (!step.has_waits()) continue;
    const bool transfers = i != kKernels && i != kMeasuredKernels;
    const auto lock = lock_in_scope(transfers ? transfers_ : mutex_);
    step.add_marker(name());
    keep(step, static_cast<Stream>(i), {}, 0);
  }
}

}  // namespace evn
