// An OpenCL device's events and waits, and the work that it is given.
#include "backends/opencl/device.h"

namespace evn {

// ------------------------------------------------------------------------------------------------------------- events --

// Past the seam: whatever has failed, memory that is in use must not be given up.
void OpenClDevice::drain(std::uint64_t streams) noexcept {
  each_stream(streams, [](OpenClStream& stream, std::uint64_t) { return opencl().finish(stream.queue()), true; });
}

// Until the event has happened, whatever fails.
cl_int OpenClDevice::finish(std::uint64_t value) noexcept {
  cl_int code = CL_SUCCESS;
  each_stream(value, [&](OpenClStream& stream, std::uint64_t number) { return (code = stream.wait(number)) == CL_SUCCESS; });
  if (code != CL_SUCCESS) drain(value);
  return code;
}

void OpenClDevice::throw_if(const OpenClStream::Failure& failure) const {
  if (failure.command == nullptr) return;
  throw make_error(EVN_ERROR_DEVICE_LOST, "the command %s ended with an error: %s (%d)", failure.command,
                   cl_error_name(failure.code), static_cast<int>(failure.code))
      .with_device(name().c_str());
}

// Throws the error of what has happened.
void OpenClDevice::report(std::uint64_t value) {
  each_stream(value, [this](OpenClStream& stream, std::uint64_t number) { return throw_if(stream.failure_of(number)), true; });
}

void OpenClDevice::check_since(const Event& begin) {
  each_stream(begin.value,
              [this](OpenClStream& stream, std::uint64_t number) { return throw_if(stream.failure_since(number)), true; });
}

void OpenClDevice::wait(const Event& event) {
  require_not_forked();
  if (event.device != this) return;
  if (event.native != nullptr) return wait_for_host(event);
  check_cl(finish(event.value), "clWaitForEvents", name());
  report(event.value);
}

bool OpenClDevice::wait_or_stop(const Event& event, const Cancel& cancel) {
  require_not_forked();
  if (event.device != this) return true;
  if (!cancel.exists()) {
    wait(event);
    return true;
  }
  if (event.native != nullptr) return wait_for_host_or_stop(event, cancel);
  using Ended = OpenClStream::Waited;
  Ended waited = Ended::kEnded;
  each_stream(event.value, [&](OpenClStream& stream, std::uint64_t number) {
    return (waited = stream.wait_or_stop(number, cancel, *notices_)) == Ended::kEnded;
  });
  if (waited == Ended::kStopped) return false;
  if (waited == Ended::kFailed) {
    if (!reaper_.start()) {
      wait(event);
      return true;
    }
    cl_int code = CL_SUCCESS;
    if (!reaper_.wait(event.value, cancel, &code)) return false;
    check_cl(code, "clWaitForEvents", name());
  }
  report(event.value);
  return true;
}

bool OpenClDevice::settle(const Cancel& cancel) {
  require_not_forked();
  return reaper_.settle(cancel);
}

void OpenClDevice::hold_until(const Event& event, std::shared_ptr<const void> held) noexcept {
  if (is_forked()) return;
  if (reaper_.start() && reaper_.hold(event.value, held)) return;
  Device::hold_until(event, std::move(held));
}

void OpenClDevice::submit() {
  require_not_forked();
  cl_int code = CL_SUCCESS;
  each_stream(kAllStreams, [&](OpenClStream& stream, std::uint64_t) { return (code = stream.flush(UINT64_MAX)) == CL_SUCCESS; });
  check_cl(code, "clFlush", name());
}

// -------------------------------------------------------------------------------------------------------------- waits --

// Has the step wait for an event of this device's. False: the host must.
bool OpenClDevice::add_wait(OpenClStep& step, const Event& event) {
  if (event.native != nullptr) return add_wait_of_host(step, event);
  return each_stream(event.value, [&](OpenClStream& stream, std::uint64_t number) {
    if (stream.queue() == step.queue()) return true;
    const OpenClStream::Kept kept = stream.find_pending(number);
    if (kept.event == nullptr) return true;
    const cl_int code = stream.flush(kept.number);
    const bool taken = code == CL_SUCCESS && !step.is_full();
    if (taken) step.add_wait(kept.event);
    else opencl().release_event(kept.event);
    check_cl(code, "clFlush", name());
    return taken;
  });
}

cl_event OpenClDevice::pass_on(OpenClDevice& other, cl_event theirs, cl_int* code) {
  cl_event mine = cl_create(code, opencl().create_user_event, context_.get());
  if (mine == nullptr) return nullptr;
  opencl().retain_event(mine);  // the callback's; it may come at once
  *code = other.notices_->pass_on(theirs, mine);
  if (*code == CL_SUCCESS) return mine;
  opencl().release_event(mine);
  opencl().release_event(mine);
  return nullptr;
}

// The same for another device, which has another context: its callback sets an event of the user's in this one.
bool OpenClDevice::add_wait_of_other(OpenClStep& step, OpenClDevice& other, const Event& event) {
  if (event.native != nullptr) {
    cl_int code = CL_OUT_OF_RESOURCES;
    cl_event mine = step.is_full() ? nullptr : pass_on(other, static_cast<cl_event>(event.native), &code);
    if (mine != nullptr) step.add_wait(mine);
    return mine != nullptr;
  }
  return other.each_stream(event.value, [&](OpenClStream& stream, std::uint64_t number) {
    const OpenClStream::Kept kept = stream.find_pending(number);
    if (kept.event == nullptr) return true;
    cl_int code = step.is_full() ? CL_OUT_OF_RESOURCES : stream.flush(kept.number);
    cl_event mine = code == CL_SUCCESS ? pass_on(other, kept.event, &code) : nullptr;
    if (mine != nullptr) step.add_wait(mine);
    opencl().release_event(kept.event);
    return mine != nullptr;
  });
}

// NVIDIA's driver reads up to 64 KiB of pageable memory of the host when a copy is enqueued, where the copy waits for a command of
// the same context; where it waits for an event of the user's, when that has been set.
void OpenClDevice::add_waits(OpenClStep& step, std::span<const Event> waits, bool of_host_memory) {
  const bool by_user_event = of_host_memory && !found_.unified_memory;
  for (const Event& event : waits) {
    if (event.device == nullptr) continue;
    const bool is_opencl = event.device->traits().kind == EVN_DEVICE_OPENCL;
    const bool waits_itself = event.device == this && !by_user_event
                                  ? add_wait(step, event)
                                  : is_opencl && add_wait_of_other(step, static_cast<OpenClDevice&>(*event.device), event);
    if (!waits_itself) event.device->wait_in_scope(event);
  }
}

void OpenClDevice::add_conflicts(OpenClStep& step, Stream of, const OpenClUse& use) {
  for (int i = 0; i < kStreamCount; ++i) {
    if (i >= kMeasuredKernels && !measures_.load(std::memory_order_acquire)) break;
    const std::uint64_t number = i != of ? streams_[i]->conflict(use) : 0;
    if (number == 0) continue;
    const Event before = event(number, std::uint64_t{1} << i);
    if (!add_wait(step, before)) wait_in_scope(before);
  }
}

// A step without commands has nothing to wait for.
Event OpenClDevice::keep(OpenClStep& step, Stream of, const OpenClUse& use, double flops) {
  if (!step.has_commands()) return {};
  const std::uint64_t number = issued_.fetch_add(1) + 1;
  streams_[of]->add(step, number, use, flops);
  return event(number, std::uint64_t{1} << of);
}

// --------------------------------------------------------------------------------------------------------------- work --

Event OpenClDevice::copy(const Location& from, const Location& to, std::span<const Event> waits) {
  return copy_traced(from, to, waits, nullptr);
}

Event OpenClDevice::copy_traced(const Location& from, const Location& to, std::span<const Event> waits, StepTrace* trace) {
  require_not_forked();
  EVN_CHECK(from.buffer.size == to.buffer.size && (from.device == this || to.device == this));
  const bool within = from.device == this && to.device == this;
  const Stream of = stream_for(within ? kKernels : to.device == this ? kUploads : kDownloads, trace);
  OpenClStep step(streams_[of]->queue(), trace);
  add_waits(step, waits, from.device != this);
  if (from.buffer.size == 0) return {};
  OpenClUse use;
  if (from.device == this) use.reads = {&from.buffer, 1};
  if (to.device == this) use.writes = {&to.buffer, 1};
  const auto lock = lock_in_scope(within ? mutex_ : transfers_);
  add_conflicts(step, of, use);
  enqueue_copy(step, from, to);
  return keep(step, of, use, 0);
}

void OpenClDevice::enqueue_copy(OpenClStep& step, const Location& from, const Location& to) {
  const auto host = [](const Buffer& buffer) { return static_cast<char*>(buffer.memory) + buffer.offset; };
  const auto device = [](const Buffer& buffer) { return static_cast<OpenClMemory*>(buffer.memory)->buffer; };
  if (from.device != this) {
    OpenClCommand command(step, "clEnqueueWriteBuffer");
    check_cl(
        cl_call(opencl().enqueue_write_buffer, step.queue(), device(to.buffer), cl_bool{CL_FALSE}, to.buffer.offset, to.buffer.size,
                static_cast<const void*>(host(from.buffer)), command.wait_count(), command.waits(), command.out()),
        "clEnqueueWriteBuffer", name());
  } else if (to.device != this) {
    OpenClCommand command(step, "clEnqueueReadBuffer");
    check_cl(cl_call(opencl().enqueue_read_buffer, step.queue(), device(from.buffer), cl_bool{CL_FALSE}, from.buffer.offset,
                     from.buffer.size, static_cast<void*>(host(to.buffer)), command.wait_count(), command.waits(), command.out()),
             "clEnqueueReadBuffer", name());
  } else {
    Launcher(programs_, step, found_, *this, tuning_).copy(from.buffer, to.buffer, from.buffer.size);
  }
}

void OpenClDevice::run(const KernelCall& call, OpenClStep& step) {
  static const Cancel kNever;
  Launcher context(programs_, step, found_, *this, tuning_, clblast_.get());
  KernelArgs args = call.args;
  args.context = &context;
  call.kernel->run(args, 0, args.plan->tiles, call.cancel != nullptr ? *call.cancel : kNever);
}

Event OpenClDevice::enqueue(const KernelCall& call, std::span<const Event> waits) {
  require_not_forked();
  const Stream of = stream_for(kKernels, call.trace);
  OpenClStep step(streams_[of]->queue(), call.trace);
  add_waits(step, waits, false);
  const OpenClUse use{call.args.inputs, call.args.outputs, call.args.scratch};
  const auto lock = lock_in_scope(mutex_);
  add_conflicts(step, of, use);
  try {
    run(call, step);
  } catch (...) {
    const Event begun = keep(step, of, use, 0);
    if (call.begun != nullptr && begun.device != nullptr) *call.begun = begun;
    throw;
  }
  return keep(step, of, use, call.args.plan->flops);
}

}  // namespace evn
