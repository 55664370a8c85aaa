// An in-order command queue whose steps have numbers: by which events others wait for them, which memory they use, and how the
// commands of a step are enqueued.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/opencl/loader.h"
#include "backends/opencl/notices.h"
#include "base/cancel.h"
#include "base/mutex.h"
#include "device/kernel.h"
#include "device/step_trace.h"

namespace evn {

class Device;

// A device's memory handle (Buffer::memory).
struct OpenClMemory {
  cl_mem buffer = nullptr;
  std::size_t bytes = 0;
  bool pinned = false;
  void* mapped = nullptr;  // where the host sees it, while it does
};

// Which memory a buffer is of: what a host shares may have several handles here.
inline const void* opencl_memory_of(const Buffer& buffer) {
  return buffer.memory != nullptr ? static_cast<const OpenClMemory*>(buffer.memory)->buffer : nullptr;
}

// The commands of one step. The first has the wait list; the others come behind it in the queue. Keeps the event of the last one.
class OpenClStep {
 public:
  explicit OpenClStep(cl_command_queue queue, StepTrace* trace = nullptr)
      : queue_(queue), trace_(trace != nullptr && trace->wanted ? trace : nullptr) {}
  ~OpenClStep();
  OpenClStep(const OpenClStep&) = delete;
  OpenClStep& operator=(const OpenClStep&) = delete;

  cl_command_queue queue() const { return queue_; }
  bool is_measured() const { return trace_ != nullptr; }
  bool has_commands() const { return last_ != nullptr; }
  bool has_waits() const { return wait_count_ != 0; }
  bool is_full() const { return wait_count_ == kMaxWaits; }
  // Takes the event over. Unless is_full().
  void add_wait(cl_event event) { waits_[wait_count_++] = event; }

  // Behind all that was enqueued so far. `device`: for the error.
  void add_marker(const std::string& device);
  // Waits until what was enqueued so far has ended, as Device::wait_in_scope does.
  void finish(Device& device);

 private:
  friend class OpenClCommand;
  friend class OpenClStream;
  static constexpr cl_uint kMaxWaits = 8;

  const cl_command_queue queue_;
  StepTrace* const trace_;
  cl_event waits_[kMaxWaits];
  cl_uint wait_count_ = 0;
  cl_event last_ = nullptr;
  const char* name_ = "";  // of the last command
  std::uint32_t count_ = 0;
};

// One command: what it waits for, and where the driver puts its event, which the step takes over.
class OpenClCommand {
 public:
  // `name` has static storage.
  OpenClCommand(OpenClStep& step, const char* name) : step_(step), name_(name) {}
  ~OpenClCommand();
  OpenClCommand(const OpenClCommand&) = delete;
  OpenClCommand& operator=(const OpenClCommand&) = delete;

  cl_uint wait_count() const { return step_.wait_count_; }
  const cl_event* waits() const { return step_.wait_count_ != 0 ? step_.waits_ : nullptr; }
  cl_event* out() { return &event_; }

 private:
  OpenClStep& step_;
  const char* const name_;
  cl_event event_ = nullptr;
};

// The device's memory that a step uses.
struct OpenClUse {
  std::span<const Buffer> reads;
  std::span<const Buffer> writes;
  Buffer scratch;
};

class OpenClStream {
 public:
  // `issued`: the number of the device's latest step, of any stream.
  OpenClStream(ClQueue queue, const std::atomic<std::uint64_t>& issued);
  ~OpenClStream();
  OpenClStream(const OpenClStream&) = delete;
  OpenClStream& operator=(const OpenClStream&) = delete;

  cl_command_queue queue() const { return queue_.get(); }

  // Keeps the event of a step whose commands have been enqueued, in the order of the queue; `number` is greater than those before.
  // Has the driver begin when enough has come together (kWindow). A flush that fails there is repeated, and its error given, by
  // who waits.
  void add(OpenClStep& step, std::uint64_t number, const OpenClUse& use, double flops);

  // An event that comes with the end of step `number`, or of a later one where it is no longer kept; of the latest step where all
  // are earlier. No event: it has ended. The caller releases it.
  struct Kept {
    cl_event event = nullptr;
    std::uint64_t number = 0;
  };
  Kept find(std::uint64_t number);
  // The same, and no event where the driver says that it has come.
  Kept find_pending(std::uint64_t number);

  // The latest step that is not known to have ended and must end before memory may be used so; 0: none.
  std::uint64_t conflict(const OpenClUse& use);

  // Has the driver begin all up to the number.
  cl_int flush(std::uint64_t number);

  // Until the step has ended; what failed then is failure_of. An error is one of waiting: the step may be under way.
  cl_int wait(std::uint64_t number);
  enum class Waited : std::uint8_t { kEnded, kStopped, kFailed };
  Waited wait_or_stop(std::uint64_t number, const Cancel& cancel, OpenClNotices& notices);

  // What ended with an error among the steps up to the number, and was under way with that one: who waits for a step learns of all
  // that may have spoilt it. No command: nothing.
  struct Failure {
    std::uint64_t from = 0;
    std::uint64_t upto = 0;
    cl_int code = CL_SUCCESS;
    const char* command = nullptr;
  };
  Failure failure_of(std::uint64_t number);
  // The same among the steps behind the number that are known to have ended.
  Failure failure_since(std::uint64_t number);

 private:
  static constexpr std::size_t kEvents = 64;    // that are kept
  static constexpr std::size_t kRanges = 256;   // of memory that are known
  static constexpr std::size_t kFailures = 4;   // that are remembered
  static constexpr std::uint32_t kWindow = 16;  // commands that the driver may keep back
  static constexpr double kWindowFlops = 20e6;  // work of these: some of a device's time to begin

  struct Entry {
    std::uint64_t number;
    cl_event event;
    const char* command;
  };
  struct Range {
    const void* memory;
    std::size_t begin, end;
    std::uint64_t number;
    bool written;
  };
  template <typename F>
  Failure first_failure(F&& is_meant);
  void keep(const Buffer& buffer, bool written, std::uint64_t number);
  void drop_oldest();
  void note_ended(std::uint64_t number);

  const ClQueue queue_;
  const std::atomic<std::uint64_t>& issued_;
  Mutex mutex_;                          // guards what follows; a leaf
  std::vector<Entry> entries_{kEvents};  // a ring
  std::size_t first_ = 0, count_ = 0;
  std::vector<Range> ranges_{kRanges};  // a ring
  std::size_t next_range_ = 0;
  std::uint64_t forgotten_ = 0;  // the latest step of which a range is no longer known
  std::uint64_t last_ = 0;
  std::uint64_t ended_ = 0;    // all up to it have
  std::uint64_t flushed_ = 0;  // all up to it are
  std::uint32_t kept_back_ = 0;
  double kept_back_flops_ = 0;
  Failure failures_[kFailures];
  std::size_t next_failure_ = 0;
};

}  // namespace evn
