// An OpenCL device: one context and one in-order queue; a second one, which measures, for the runs of traced sessions. All of a run
// goes to one queue. An event's value counts what was enqueued before it, on either. Whoever cannot wait to the end has the reaper
// do it. A forked child cannot use the device: EVN_ERROR_FORKED.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "backends/opencl/clblast.h"
#include "backends/opencl/reaper.h"
#include "base/os/fork.h"
#include "device/backend.h"

namespace evn {

extern const Backend opencl_backend;

class OpenClDevice final : public Device {
 public:
  // `clblast`: the library, where it is not to be the system's.
  OpenClDevice(const DeviceRequest& request, const OpenClFound& found, ClContext context, ClQueue queue,
               const ClBlastApi* clblast = nullptr);
  ~OpenClDevice() override;

  void* obtain(std::size_t bytes, bool pinned) override;
  void give_back(void* memory, std::size_t bytes, bool pinned) noexcept override;
  Event copy(const Location& from, const Location& to, std::span<const Event> waits) override;
  Event enqueue(const KernelCall& call, std::span<const Event> waits) override;
  void wait(const Event& event) override;
  bool wait_or_stop(const Event& event, const Cancel& cancel) override;
  Event all_enqueued() override { return event(); }
  void hold_until(const Event& event, std::shared_ptr<const void> held) noexcept override;
  bool settle(const Cancel& cancel) override;
  void prepare_tracing() noexcept override;
  Event copy_traced(const Location& from, const Location& to, std::span<const Event> waits, StepTrace* trace) override;
  void finish_trace(StepTrace* trace) noexcept override;
  void* map(const Buffer& buffer, bool read, bool write) override;
  void unmap(const Buffer& buffer, void* address) override;
  std::span<const KernelFamily* const> kernels() const override;

  // CLBlast's kernel where that is to be used.
  const Kernel* find_kernel(const OpDesc& desc, std::string* reason) const override;
  Precision lowest_precision(Precision wanted, std::string* why) const override;
  const char* why_not_by(Products library, const OpDesc& desc) const override;

  // Strict nodes (OpDesc::strict) run here.
  bool keeps_denormals() const { return found_.denormals; }
  const OpenClPrograms& programs() const { return programs_; }
  const ClBlast& clblast() const { return *clblast_; }
  ClBlastVerdict clblast_trial(std::uint64_t (*now)()) { return clblast_->measure(now); }

 private:
  bool is_forked() const { return opened_in_ != os::fork_generation(); }
  void require_not_forked() const;
  void unmap(OpenClMemory* memory);
  cl_command_queue queue_of(const StepTrace* trace) const;
  cl_int finish();
  OpenClReaper::Finished finish_all() noexcept;
  void run(const KernelCall& call);
  void wait_for_others(std::span<const Event> waits);
  void drain() noexcept;
  Event event();

  const std::uint32_t opened_in_ = os::fork_generation();
  const OpenClFound found_;
  ClContext context_;
  ClQueue queue_;
  ClQueue measuring_owner_;                           // set once, under mutex_
  std::atomic<cl_command_queue> measuring_{nullptr};  // null until a session is traced
  std::mutex mutex_;  // of programs_ and of setting arguments: a kernel object's arguments are shared state
  OpenClPrograms programs_;
  const std::unique_ptr<ClBlast> clblast_;
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> done_{0};
  OpenClReaper reaper_{[](void* device) noexcept { return static_cast<OpenClDevice*>(device)->finish_all(); }, this};
};

}  // namespace evn
