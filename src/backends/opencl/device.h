// An OpenCL device: one context with an in-order queue for kernels and one for transfers between the device and the host; two more,
// which measure, for the runs of traced sessions. What uses the same memory of the device happens in the order in which it was
// enqueued, whichever queue it is in: a command waits for the events of others. An event's value says in which queues it is, and
// the number of its step. A forked child cannot use the device: EVN_ERROR_FORKED. docs/decisions/0069-opencl-events.md
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "backends/opencl/clblast.h"
#include "backends/opencl/reaper.h"
#include "backends/opencl/tuning.h"
#include "base/os/fork.h"
#include "device/backend.h"
#include "device/native.h"

namespace evn {

extern const Backend opencl_backend;

class OpenClHostShare;

class OpenClDevice final : public Device, public NativeSharing {
 public:
  // `queue`: for kernels. `clblast`: the library, where it is not to be the system's.
  OpenClDevice(const DeviceRequest& request, const OpenClFound& found, ClContext context, ClQueue queue,
               const ClBlastApi* clblast = nullptr);
  ~OpenClDevice() override;

  void* obtain(std::size_t bytes, bool pinned) override;
  void give_back(void* memory, std::size_t bytes, bool pinned) noexcept override;
  Event copy(const Location& from, const Location& to, std::span<const Event> waits) override;
  Event enqueue(const KernelCall& call, std::span<const Event> waits) override;
  void wait(const Event& event) override;
  bool wait_or_stop(const Event& event, const Cancel& cancel) override;
  Event all_enqueued() override { return event(issued_.load(), kAllStreams); }
  void submit() override;
  void check_since(const Event& begin) override;
  void hold_until(const Event& event, std::shared_ptr<const void> held) noexcept override;
  void keep_until(const Event& event, std::shared_ptr<const void> held) noexcept override;
  void wait_before_all(std::span<const Event> waits) override;
  bool settle(const Cancel& cancel) override;
  NativeSharing* native() override { return this; }
  NativeObjects objects() override;
  Wrapped wrap(void* memory, std::uint64_t offset, std::size_t bytes, bool read_only) override;
  void* memory_of(const Buffer& buffer) const override;
  void retain_event(void* event) override;
  void release_event(void* event) noexcept override;
  void* make_event(const Event& event) override;
  Programs store_programs(const std::string& folder, bool sources) override;
  void prepare_tracing() noexcept override;
  Event copy_traced(const Location& from, const Location& to, std::span<const Event> waits, StepTrace* trace) override;
  void finish_trace(StepTrace* trace) noexcept override;
  void* map(const Buffer& buffer, bool read, bool write) override;
  void unmap(const Buffer& buffer, void* address) override;
  HostSharing host_sharing() const override { return sharing_; }
  HostSharePtr share_host(void* address, std::size_t bytes) override;
  std::span<const KernelFamily* const> kernels() const override;

  // CLBlast's kernel where that is to be used.
  const Kernel* find_kernel(const OpDesc& desc, std::string* reason) const override;
  Precision lowest_precision(Precision wanted, std::string* why) const override;
  const char* why_not_by(Products library, const OpDesc& desc) const override;

  // Strict nodes (OpDesc::strict) run here.
  bool keeps_denormals() const { return found_.denormals; }
  const OpenClPrograms& programs() const { return programs_; }
  const ClBlast& clblast() const { return *clblast_; }
  const OpenClTuning& tuning() const { return tuning_; }
  ClBlastVerdict clblast_trial(std::uint64_t (*now)()) { return clblast_->measure(now); }

 private:
  friend class OpenClHostShare;
  // In an event's value: bit i of the lowest says that it is in stream i.
  // Copies to the device and from it are not in one queue: those of the next run would wait for the end of the one before.
  enum Stream : std::uint8_t {
    kKernels,
    kUploads,
    kDownloads,
    kMeasuredKernels,
    kMeasuredUploads,
    kMeasuredDownloads,
    kStreamCount
  };
  static constexpr std::uint64_t kAllStreams = (1u << kStreamCount) - 1;
  Event event(std::uint64_t number, std::uint64_t streams) { return {this, number << kStreamCount | streams}; }
  // Calls f(stream, number) for the streams in which the event is, until it says false.
  template <typename F>
  bool each_stream(std::uint64_t value, F&& f) {
    for (int i = 0; i < kStreamCount; ++i) {
      if (i >= kMeasuredKernels && !measures_.load(std::memory_order_acquire)) break;
      if ((value >> i & 1) != 0 && !f(*streams_[i], value >> kStreamCount)) return false;
    }
    return true;
  }

  bool is_forked() const { return opened_in_ != os::fork_generation(); }
  void require_not_forked() const;
  void unmap(OpenClMemory* memory);
  Stream stream_for(Stream kind, const StepTrace* trace) const;
  // What a step must wait for: what it is told, and what uses the same memory in other streams. `of_host_memory`: it is a copy from
  // there, which something else may be about to write.
  void add_waits(OpenClStep& step, std::span<const Event> waits, bool of_host_memory);
  bool add_wait(OpenClStep& step, const Event& event);
  bool add_wait_of_other(OpenClStep& step, OpenClDevice& other, const Event& event);
  bool add_wait_of_host(OpenClStep& step, const Event& event);
  // An event of this context that ends as `theirs` does, which is of another's; null: *code says why.
  cl_event pass_on(OpenClDevice& other, cl_event theirs, cl_int* code);
  // The event of a step, which the caller releases. Null: it has ended.
  void* event_of(Stream of, std::uint64_t number);
  void wait_for_host(const Event& event);
  bool wait_for_host_or_stop(const Event& event, const Cancel& cancel);
  void add_conflicts(OpenClStep& step, Stream of, const OpenClUse& use);
  Event keep(OpenClStep& step, Stream of, const OpenClUse& use, double flops);
  void enqueue_copy(OpenClStep& step, const Location& from, const Location& to);
  void run(const KernelCall& call, OpenClStep& step);
  // What a share does: memory goes to the device, behind what was enqueued, and back to the host, who maps all of it.
  Event give_to_device(OpenClMemory& memory, const Buffer& buffer);
  Event give_to_host(OpenClMemory& memory, const Buffer& buffer);
  void end_sharing(OpenClMemory& memory, const Buffer& buffer) noexcept;
  cl_int finish(std::uint64_t value) noexcept;
  void report(std::uint64_t value);
  void throw_if(const OpenClStream::Failure& failure) const;
  void drain(std::uint64_t streams) noexcept;

  const std::uint32_t opened_in_ = os::fork_generation();
  const OpenClFound found_;
  ClContext context_;
  std::atomic<std::uint64_t> issued_{0};  // the number of the latest step
  std::array<std::unique_ptr<OpenClStream>, kStreamCount> streams_;
  std::atomic<bool> measures_{false};  // the streams that measure are there
  // Of programs_, of setting arguments (those of a kernel object are shared state), and of the order of kernels.
  Mutex mutex_;
  Mutex transfers_;  // of the order of transfers
  OpenClPrograms programs_;
  OpenClTuning tuning_;
  const std::unique_ptr<ClBlast> clblast_;
  HostSharing sharing_;
  std::mutex sharing_mutex_;  // of what follows; a leaf
  struct KnownShare {
    std::uintptr_t begin, end;
    std::weak_ptr<OpenClHostShare> share;
  };
  std::vector<KnownShare> shares_;
  OpenClNoticesPtr notices_{OpenClNotices::make()};
  static cl_int finish_of(void* device, std::uint64_t value) noexcept { return static_cast<OpenClDevice*>(device)->finish(value); }
  OpenClReaper reaper_{&finish_of, this};
  // Reapers of keep_until, one for each stream: an event of the host may keep a stream waiting for ever, and only that one.
  std::array<OpenClReaper, kStreamCount> kept_{
      {{&finish_of, this}, {&finish_of, this}, {&finish_of, this}, {&finish_of, this}, {&finish_of, this}, {&finish_of, this}}};
};

}  // namespace evn
