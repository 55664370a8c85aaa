#include "backends/opencl/stream.h"

#include <algorithm>

#include "device/device.h"

namespace evn {
namespace {

constexpr int kLooksPerQuestion = 16;  // at the clock, for one at the event where no callback has come

cl_int status_of(cl_event event, cl_int* status) {
  return cl_call(opencl().get_event_info, event, cl_event_info{CL_EVENT_COMMAND_EXECUTION_STATUS}, sizeof *status,
                 static_cast<void*>(status), static_cast<std::size_t*>(nullptr));
}

}  // namespace

// --------------------------------------------------------------------------------------------------------------- step --

OpenClStep::~OpenClStep() {
  for (cl_uint i = 0; i < wait_count_; ++i) opencl().release_event(waits_[i]);
  if (last_ != nullptr) opencl().release_event(last_);
}

void OpenClStep::add_marker(const std::string& device) {
  OpenClCommand marker(*this, "clEnqueueMarkerWithWaitList");
  check_cl(cl_call(opencl().enqueue_marker_with_wait_list, queue_, marker.wait_count(), marker.waits(), marker.out()),
           "clEnqueueMarkerWithWaitList", device);
}

void OpenClStep::finish(Device& device) {
  add_marker(device.name());
  check_cl(cl_call(opencl().flush, queue_), "clFlush", device.name());
  device.wait_in_scope({&device, 0, last_});
}

// The driver gives an event where it has taken the command, and only there.
OpenClCommand::~OpenClCommand() {
  if (event_ == nullptr) return;
  OpenClStep& s = step_;
  for (; s.wait_count_ > 0; --s.wait_count_) opencl().release_event(s.waits_[s.wait_count_ - 1]);
  if (s.last_ != nullptr) opencl().release_event(s.last_);
  s.last_ = event_;
  s.name_ = name_;
  ++s.count_;
  if (s.trace_ == nullptr || opencl().retain_event(event_) != CL_SUCCESS) return;
  void*& kept = s.trace_->first == nullptr ? s.trace_->first : s.trace_->last;
  if (kept != nullptr) opencl().release_event(static_cast<cl_event>(kept));
  kept = event_;
}

// ------------------------------------------------------------------------------------------------------------- stream --

OpenClStream::OpenClStream(ClQueue queue, const std::atomic<std::uint64_t>& issued) : queue_(std::move(queue)), issued_(issued) {}

OpenClStream::~OpenClStream() {
  for (; count_ > 0; --count_) {
    opencl().release_event(entries_[first_].event);
    first_ = (first_ + 1) % kEvents;
  }
}

void OpenClStream::keep(const Buffer& buffer, bool written, std::uint64_t number) {
  if (buffer.memory == nullptr || buffer.size == 0) return;
  Range& range = ranges_[next_range_];
  forgotten_ = std::max(forgotten_, range.number);
  range = {opencl_memory_of(buffer), buffer.offset, buffer.offset + buffer.size, number, written};
  next_range_ = (next_range_ + 1) % kRanges;
}

// Asks how it ended where it has. One that is under way is left to those behind it: in the drivers that are known, they end with an
// error too.
void OpenClStream::drop_oldest() {
  const Entry& e = entries_[first_];
  cl_int status = CL_COMPLETE;
  const cl_int code = status_of(e.event, &status);
  if (code != CL_SUCCESS || status < 0) {
    failures_[next_failure_] = {e.number, issued_.load(), code != CL_SUCCESS ? code : status, e.command};
    next_failure_ = (next_failure_ + 1) % kFailures;
  }
  opencl().release_event(e.event);
  first_ = (first_ + 1) % kEvents;
  --count_;
}

void OpenClStream::add(OpenClStep& step, std::uint64_t number, const OpenClUse& use, double flops) {
  {
    const std::lock_guard<Mutex> lock(mutex_);
    if (count_ == kEvents) drop_oldest();
    entries_[(first_ + count_) % kEvents] = {number, step.last_, step.name_};
    step.last_ = nullptr;
    ++count_;
    for (const Buffer& b : use.reads) keep(b, false, number);
    for (const Buffer& b : use.writes) keep(b, true, number);
    keep(use.scratch, true, number);
    last_ = number;
    kept_back_ += step.count_;
    kept_back_flops_ += flops;
    if (kept_back_ < kWindow && kept_back_flops_ < kWindowFlops) return;
  }
  flush(number);
}

OpenClStream::Kept OpenClStream::find(std::uint64_t number) {
  const std::lock_guard<Mutex> lock(mutex_);
  if (number <= ended_ || count_ == 0) return {};
  std::size_t i = 0;
  while (i + 1 < count_ && entries_[(first_ + i) % kEvents].number < number) ++i;
  const Entry& e = entries_[(first_ + i) % kEvents];
  opencl().retain_event(e.event);
  return {e.event, e.number};
}

OpenClStream::Kept OpenClStream::find_pending(std::uint64_t number) {
  const Kept kept = find(number);
  cl_int status = CL_QUEUED;
  if (kept.event == nullptr || status_of(kept.event, &status) != CL_SUCCESS || status > CL_COMPLETE) return kept;
  opencl().release_event(kept.event);
  note_ended(kept.number);
  return {};
}

std::uint64_t OpenClStream::conflict(const OpenClUse& use) {
  const std::lock_guard<Mutex> lock(mutex_);
  if (last_ <= ended_) return 0;
  std::uint64_t latest = forgotten_;
  const auto touches = [](const Range& range, const Buffer& b) {
    return range.memory != nullptr && opencl_memory_of(b) == range.memory && b.offset < range.end &&
           range.begin < b.offset + b.size;
  };
  for (const Range& range : ranges_) {
    if (range.number <= latest || range.number <= ended_) continue;
    bool any = touches(range, use.scratch);
    for (std::size_t i = 0; !any && i < use.writes.size(); ++i) any = touches(range, use.writes[i]);
    for (std::size_t i = 0; !any && range.written && i < use.reads.size(); ++i) any = touches(range, use.reads[i]);
    if (any) latest = range.number;
  }
  return latest <= ended_ ? 0 : latest;
}

cl_int OpenClStream::flush(std::uint64_t number) {
  std::uint64_t upto = 0;
  {
    const std::lock_guard<Mutex> lock(mutex_);
    if (std::min(number, last_) <= flushed_) return CL_SUCCESS;
    upto = last_;
  }
  const cl_int code = cl_call(opencl().flush, queue_.get());
  if (code != CL_SUCCESS) return code;
  const std::lock_guard<Mutex> lock(mutex_);
  flushed_ = std::max(flushed_, upto);
  if (flushed_ != last_) return CL_SUCCESS;
  kept_back_ = 0;
  kept_back_flops_ = 0;
  return CL_SUCCESS;
}

void OpenClStream::note_ended(std::uint64_t number) {
  const std::lock_guard<Mutex> lock(mutex_);
  while (count_ > 0 && entries_[first_].number <= number) drop_oldest();
  ended_ = std::max(ended_, number);
}

// Which of the commands failed is in their events.
cl_int OpenClStream::wait(std::uint64_t number) {
  const Kept kept = find(number);
  if (kept.event == nullptr) return CL_SUCCESS;
  cl_int code = flush(kept.number);
  if (code == CL_SUCCESS) code = cl_call(opencl().wait_for_events, cl_uint{1}, &kept.event);
  if (code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) code = CL_SUCCESS;
  if (code == CL_SUCCESS) note_ended(kept.number);
  opencl().release_event(kept.event);
  return code;
}

OpenClStream::Waited OpenClStream::wait_or_stop(std::uint64_t number, const Cancel& cancel, OpenClNotices& notices) {
  const Kept kept = find(number);
  if (kept.event == nullptr) return Waited::kEnded;
  const auto give = [&](Waited waited) {
    opencl().release_event(kept.event);
    return waited;
  };
  if (flush(kept.number) != CL_SUCCESS) return give(Waited::kFailed);
  bool watched = false;
  for (;;) {
    const std::uint64_t seen = notices.count();
    cl_int status = CL_QUEUED;
    if (status_of(kept.event, &status) != CL_SUCCESS) return give(Waited::kFailed);
    if (status <= CL_COMPLETE) break;
    if (!watched && notices.watch(kept.event) != CL_SUCCESS) return give(Waited::kFailed);
    watched = true;
    for (int look = 0; look < kLooksPerQuestion && notices.count() == seen; ++look) {
      if (cancel.stop()) return give(Waited::kStopped);
      notices.wait(seen);
    }
  }
  note_ended(kept.number);
  return give(Waited::kEnded);
}

template <typename F>
OpenClStream::Failure OpenClStream::first_failure(F&& is_meant) {
  const std::lock_guard<Mutex> lock(mutex_);
  Failure first;
  for (const Failure& f : failures_) {
    if (f.command != nullptr && is_meant(f) && (first.command == nullptr || f.from < first.from)) first = f;
  }
  return first;
}

OpenClStream::Failure OpenClStream::failure_of(std::uint64_t number) {
  return first_failure([number](const Failure& f) { return f.from <= number && number <= f.upto; });
}

OpenClStream::Failure OpenClStream::failure_since(std::uint64_t number) {
  return first_failure([number](const Failure& f) { return number < f.from; });
}

}  // namespace evn
