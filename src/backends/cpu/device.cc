// The CPU as a device: host memory, a thread pool, and the kernel tables with the reference code behind them. Everything is done
// when a call returns, so its events carry nothing.
#include "device/backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "backends/cpu/attention/attention_loops.h"
#include "backends/cpu/cascade.h"
#include "backends/cpu/float_mode.h"
#include "backends/cpu/gemm/blas.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/kernel_table.h"
#include "backends/cpu/move/relayout.h"
#include "backends/cpu/reference.h"
#include "base/checked.h"
#include "base/error.h"

namespace evn {

namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kTwoLines = 128;  // as the buffers of other devices lie, which may use large ones of the host (host_share.h)
constexpr std::size_t kTwoLinesFrom = std::size_t{512} << 10;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kPagedFrom = std::size_t{1} << 20;
constexpr int kRangesPerThread = 8;  // how finely the tiles of a call are dealt out

// A call of less than some 3 us is done by the thread that asks for it: to wake another takes as long.
constexpr double kBriefFlops = 100'000;
constexpr double kBriefBytes = 48 << 10;
bool is_brief(const KernelPlan& plan) {
  return plan.flops + plan.bytes > 0 && plan.flops <= kBriefFlops && plan.bytes <= kBriefBytes;
}

// Where one thread does all, so that runs make way for others within a kernel too: parts of some milliseconds.
constexpr double kFlopsPerRange = 1e8;
constexpr double kBytesPerRange = 1e7;
std::int64_t long_ranges(const KernelPlan& plan) {
  return 1 + static_cast<std::int64_t>(std::min(1e6, std::max(plan.flops / kFlopsPerRange, plan.bytes / kBytesPerRange)));
}

// What is cold is compiled for size: it is done once for a device, or for a node when a session is made.
[[gnu::cold]] std::string cpu_description() {
  std::string text;
#if defined(__x86_64__)
  unsigned words[12] = {};
  unsigned top = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000000u, &top, &b, &c, &d) != 0 && top >= 0x80000004u) {
    for (unsigned i = 0; i < 3; ++i) {
      __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]);
    }
    char name[sizeof words + 1] = {};
    std::memcpy(name, words, sizeof words);
    text = name;
    while (!text.empty() && text.back() == ' ') text.pop_back();
  }
#endif
  if (text.empty()) text = "CPU";
  return text;
}

[[gnu::cold]] DeviceProfile cpu_profile() {
  DeviceProfile p;
  p.device_class = EVN_DEVICE_CLASS_CPU;
  p.features = EVN_DEVICE_UNIFIED_MEMORY;
  if (float16_isa() != Isa::k_baseline) p.features |= EVN_DEVICE_FP16;
  if (bfloat16_isa() != Isa::k_baseline) p.features |= EVN_DEVICE_BF16;
  if (integer_isa() != cluster_of(integer_isa())) p.features |= EVN_DEVICE_INT8_DOT;
  p.largest_allocation = os::physical_memory_bytes();
  p.identity = "host, " + cpu_description();
  return p;
}

class CpuDevice final : public Device {
 public:
  [[gnu::cold]] explicit CpuDevice(const DeviceRequest& request)
      : Device(request.name, request.memory_limit),
        memory_{request.allocator},
        threads_(thread_count(request), request.executor, request.settings.number("spin", kDefaultSpinNs), request.scheduler) {
    pool().set_host_memory(memory_);
    traits_.host_addressable = true;
    traits_.alignment = kLine;
    traits_.kind = EVN_DEVICE_CPU;
    traits_.description = cpu_description();
    traits_.driver = isa_name(cpu_isa());
    traits_.compute_units = static_cast<std::uint32_t>(threads_.thread_count());
    traits_.memory_bytes = os::physical_memory_bytes();
    traits_.profile = cpu_profile();
  }
  [[gnu::cold]] ~CpuDevice() override { close_pool(); }

  void* obtain(std::size_t bytes, bool) override {
    return memory_.obtain(bytes, bytes >= kPagedFrom ? kPage : bytes >= kTwoLinesFrom ? kTwoLines : kLine);
  }
  void give_back(void* memory, std::size_t bytes, bool) noexcept override { memory_.give_back(memory, bytes); }

  Event copy(const Location& from, const Location& to, std::span<const Event> waits) override {
    wait_all(waits);
    if (to.buffer.size != 0) std::memmove(to.buffer.address(), from.buffer.address(), to.buffer.size);
    return {};
  }

  Event enqueue(const KernelCall& call, std::span<const Event> waits) override {
    wait_all(waits);
    const KernelPlan& plan = *call.args.plan;
    if (plan.tiles <= 0) return {};
    Call c{&call, nullptr, align_up(plan.thread_scratch_bytes, kLine)};
    if (plan.thread_scratch_bytes != 0)
      c.thread_scratch = static_cast<char*>(call.args.scratch.address()) + align_up(plan.scratch_bytes, kLine);
    if (plan.cleared_bytes != 0) std::memset(call.args.scratch.address(), 0, plan.cleared_bytes);
    const int threads = threads_.thread_count();
    const std::int64_t ranges = threads == 1 ? long_ranges(plan) : static_cast<std::int64_t>(threads) * kRangesPerThread;
    threads_.parallel_for(plan.tiles, is_brief(plan) ? plan.tiles : plan.tiles / ranges, &run_range, &c, call.run);
    return {};
  }

  void wait(const Event&) override {}
  std::span<const KernelFamily* const> kernels() const override { return cpu_kernel_families(); }

  [[gnu::cold]] const Kernel* find_kernel(const OpDesc& desc, std::string* reason) const override {
    if (const Kernel* kernel = Device::find_kernel(desc, reason)) return kernel;
    const Refusal refusal = cpu_reference_kernel.supports(desc);
    if (refusal == nullptr) return &cpu_reference_kernel;
    if (reason != nullptr) {
      if (!reason->empty()) *reason += "; ";
      *reason += std::string(cpu_reference_kernel.name) + ": " + refusal;
    }
    return nullptr;
  }

  [[gnu::cold]] Precision lowest_precision(Precision wanted, std::string* why) const override {
    if (wanted == Precision::kFloat16Operands) return wanted;
    if (wanted == Precision::kFloat16) {
      if (float16_isa() != Isa::k_baseline) return Precision::kFloat16;
      *why = "this CPU has no AVX512-FP16";
      return Precision::kFloat32;
    }
    const Isa isa = bfloat16_isa();
    if (isa == Isa::k_baseline) {
      *why = "this CPU has no AMX or AVX512-BF16";
    } else if (wanted == Precision::kAuto && !has_fast_bfloat16()) {
      *why = "this CPU has AVX512-BF16, by which bf16 may be slower";
    } else {
      return Precision::kBfloat16;
    }
    return Precision::kFloat32;
  }

  const Kernel* relayout_kernel() const override { return &cpu_relayout_kernel; }
  const RowLoops* row_loops() const override { return &simd_attention::loops(cpu_isa()).rows; }
  const Cascades* cascades() const override { return &cpu_cascades; }

  const Kernel* reference_kernel(const OpDesc& desc) const override {
    return cpu_reference_kernel.supports(desc) == nullptr ? &cpu_reference_kernel : nullptr;
  }

 private:
  struct Call {
    const KernelCall* call;
    char* thread_scratch;
    std::size_t scratch_stride;
    std::atomic<bool> stopped{false};  // what is left need not ask
  };

  [[gnu::cold]] static int thread_count(const DeviceRequest& request) {
    const auto wanted = static_cast<int>(request.settings.number("threads", 0));
    return std::min(wanted > 0 ? wanted : os::usable_cores(), ThreadPool::kMaxThreads);
  }

  static void wait_all(std::span<const Event> waits) {
    for (const Event& e : waits) {
      if (e.device != nullptr) e.device->wait(e);
    }
  }

  static void run_range(void* context, int thread, std::int64_t begin, std::int64_t end) {
    static constinit const Cancel never{};
    Call& c = *static_cast<Call*>(context);
    const Cancel& cancel = c.call->cancel != nullptr ? *c.call->cancel : never;
    if (c.stopped.load(std::memory_order_relaxed)) return;
    if (cancel.stop()) return c.stopped.store(true, std::memory_order_relaxed);
    const CancelScope scope(cancel);
    const HeapReclaim allowed(true);
    KernelArgs args = c.call->args;
    if (c.thread_scratch != nullptr) args.thread_scratch = c.thread_scratch + static_cast<std::size_t>(thread) * c.scratch_stride;
    const FloatMode mode(*c.call->kernel, args.desc != nullptr && args.desc->strict);
    StepTrace* const trace = c.call->trace;
    if (trace == nullptr || trace->threads == nullptr || thread >= StepTrace::kThreads) {
      c.call->kernel->run(args, begin, end, cancel);
      return;
    }
    ThreadSpan& span = trace->threads[thread];
    if (span.tiles == 0) span.start_ns = os::now_ns();
    c.call->kernel->run(args, begin, end, cancel);
    span.end_ns = os::now_ns();
    span.tiles += end - begin;
  }

  const HostMemory memory_;
  ThreadPool threads_;
};

[[gnu::cold]] std::shared_ptr<Device> open_cpu(const DeviceRequest& request) {
  if (request.index != 0) {
    throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "there is one CPU and nothing else here").with_device(request.name.c_str());
  }
  (void)cpu_isa();  // an EVN_CPU_ISA that cannot be had is an error before any thread is started
  return std::make_shared<CpuDevice>(request);
}

[[gnu::cold]] std::vector<DeviceListing> list_cpu(std::string*) {
  std::vector<DeviceListing> all(1);
  DeviceListing& cpu = all[0];
  cpu.id = "cpu";
  cpu.description = cpu_description();
  cpu.platform = "host";
  cpu.driver = isa_name(cpu_isa());
  cpu.kind = "cpu";
  cpu.compute_units = static_cast<std::uint32_t>(os::usable_cores());
  cpu.memory_bytes = os::physical_memory_bytes();
  cpu.libraries = blas_outlook();
  cpu.profile = cpu_profile();
  return all;
}

constexpr DeviceOption kOptions[] = {
    {{"threads", SettingType::kInteger, "auto", 1, 1024, "auto"}},
    {{"spin", SettingType::kDuration, "30us", 1, 10'000'000, "none"}},
};
static_assert(kDefaultSpinNs == 30'000);

}  // namespace

extern const Backend cpu_backend;
const Backend cpu_backend = {{"cpu", kOptions}, open_cpu, list_cpu};

}  // namespace evn
