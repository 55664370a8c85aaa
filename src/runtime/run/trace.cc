// Recording. The rendering is in trace_render.cc.
#include "runtime/run/trace.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <new>
#include <thread>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "memory/pool.h"

namespace evn {
namespace {

constexpr std::size_t kMaxTracedInputs = 4;  // of which the shapes are kept

// Text in a fixed array; what does not fit is left out.
class FixedText {
 public:
  template <std::size_t N>
  explicit FixedText(char (&to)[N]) : at_(to), end_(to + N - 1) {}
  ~FixedText() { *at_ = '\0'; }
  FixedText(const FixedText&) = delete;
  FixedText& operator=(const FixedText&) = delete;

  void add(const char* text) {
    const std::size_t n = std::min(std::strlen(text), static_cast<std::size_t>(end_ - at_));
    std::memcpy(at_, text, n);
    at_ += n;
  }
  void add(std::int64_t number) {
    char digits[24];
    *std::to_chars(digits, digits + sizeof digits - 1, number).ptr = '\0';
    add(digits);
  }
  void add(const TensorDesc& d) {
    add(dtype_name(d.dtype));
    for (int i = 0; i < d.shape.rank(); ++i) {
      add(i == 0 ? "[" : ",");
      add(d.shape[i]);
    }
    add(d.shape.rank() == 0 ? "[]" : "]");
  }

 private:
  char* at_;
  char* end_;
};

void write_shapes(const OpDesc& desc, char (&to)[128]) {
  FixedText text(to);
  for (std::size_t i = 0; i < std::min(desc.inputs.size(), kMaxTracedInputs); ++i) {
    if (i != 0) text.add(" ");
    if (desc.inputs[i].dtype == DType::kUndefined) {
      text.add("-");
    } else {
      text.add(desc.inputs[i]);
    }
  }
  if (desc.inputs.size() > kMaxTracedInputs) text.add(" ...");
  text.add(" ->");
  for (const TensorDesc& d : desc.outputs) {
    if (d.dtype == DType::kUndefined) continue;
    text.add(" ");
    text.add(d);
  }
}

std::uint64_t bytes_of(const OpDesc& desc) {
  std::uint64_t bytes = 0;
  for (const auto& side : {desc.inputs, desc.outputs}) {
    for (const TensorDesc& d : side) bytes += d.dtype == DType::kUndefined ? 0 : d.size_bytes();
  }
  return bytes;
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------- trace --

Trace::Trace(const CompiledGraph& graph, std::uint32_t capacity, bool serial)
    : graph_(graph), capacity_(capacity), serial_(serial), origin_ns_(os::now_ns()) {
  static_assert(alignof(TraceEvent) <= 64 && std::is_trivially_destructible_v<TraceEvent>);
  const std::size_t bytes = checked_mul(std::size_t{capacity}, sizeof(TraceEvent));
  memory_ = graph.devices[0]->allocate(bytes, MemoryClass::kScratch);
  events_ = static_cast<TraceEvent*>(memory_.memory());
  std::uninitialized_default_construct_n(events_, capacity);
  for (Device* device : graph.devices) device->prepare_tracing();
}

Trace::~Trace() = default;

void Trace::add_graph(const std::shared_ptr<const CompiledGraph>& graph) {
  const std::lock_guard<Mutex> lock(mutex_);
  if (std::find(graphs_.begin(), graphs_.end(), graph) != graphs_.end()) return;
  if (graph.get() != &graph_) {
    for (Device* device : graph->devices) device->prepare_tracing();
  }
  graphs_.push_back(graph);
}

std::vector<Device*> Trace::devices() const {
  std::vector<Device*> devices = graph_.devices;
  const std::lock_guard<Mutex> lock(mutex_);
  for (const auto& graph : graphs_) {
    for (Device* device : graph->devices) {
      if (std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
    }
  }
  return devices;
}

TraceEvent* Trace::reserve() noexcept {
  const std::uint64_t i = used_.fetch_add(1, std::memory_order_relaxed);
  return i < capacity_ ? &events_[i] : nullptr;
}

std::uint64_t Trace::dropped() const {
  const std::uint64_t used = used_.load(std::memory_order_relaxed);
  return used > capacity_ ? used - capacity_ : 0;
}

std::vector<const TraceEvent*> Trace::events() const {
  std::vector<const TraceEvent*> list;
  const std::uint64_t n = std::min<std::uint64_t>(used_.load(std::memory_order_relaxed), capacity_);
  for (std::uint64_t i = 0; i < n; ++i) {
    if (events_[i].ready.load(std::memory_order_acquire)) list.push_back(&events_[i]);
  }
  std::ranges::stable_sort(list, [](const TraceEvent* a, const TraceEvent* b) { return a->start_ns < b->start_ns; });
  return list;
}

// --------------------------------------------------------------------------------------------------------------- run --

RunTrace::RunTrace(std::shared_ptr<Trace> trace, const CompiledGraph& graph)
    : trace_(std::move(trace)),
      graph_(graph),
      caller_(std::hash<std::thread::id>{}(std::this_thread::get_id())),
      run_start_(os::now_ns()) {
  sample_memory(nullptr);
}

RunTrace::~RunTrace() {
  // A step that failed keeps its place but is never ready.
  if (current_ != nullptr) graph_.devices[current_->slot]->finish_trace(&current_->device);
  while (pending_ != nullptr) {
    TraceEvent* const event = pending_;
    pending_ = event->next;
    graph_.devices[event->slot]->finish_trace(&event->device);
    event->ready.store(true, std::memory_order_release);
  }
  add_span(TraceKind::kRun, run_start_);
}

TraceEvent* RunTrace::reserve(TraceKind kind) noexcept {
  TraceEvent* const event = trace_->reserve();
  if (event == nullptr) return nullptr;
  event->kind = kind;
  event->graph = &graph_;
  event->caller = caller_;
  return event;
}

StepTrace* RunTrace::begin_step(const PlanStep& step) {
  const bool on_host = graph_.devices[step.slot]->traits().host_addressable;
  current_ = reserve(step.kind == PlanStep::Kind::kKernel ? TraceKind::kKernel : TraceKind::kCopy);
  StepTrace* const device = current_ != nullptr ? &current_->device : &spare_;
  device->wanted = current_ != nullptr && !on_host;
  if (on_host) {
    device->threads = threads_;
    for (ThreadSpan& span : threads_) span.tiles = 0;
  }
  if (current_ != nullptr) current_->slot = step.slot;
  step_start_ = os::now_ns();
  return device;
}

void RunTrace::end_step(const PlanStep& step, std::uint64_t copied_bytes) {
  const std::uint64_t now = os::now_ns();
  TraceEvent* const event = std::exchange(current_, nullptr);
  if (event == nullptr) return;
  event->device.threads = nullptr;
  event->start_ns = step_start_;
  event->end_ns = now;
  event->node = step.node;
  event->value = step.value;
  event->kernel = step.kernel;
  event->from_slot = step.from_slot;
  event->to_slot = step.to_slot;
  if (step.kind == PlanStep::Kind::kKernel) {
    event->flops = step.plan.flops;
    event->bytes = step.plan.bytes > 0 ? static_cast<std::uint64_t>(step.plan.bytes) : bytes_of(step.desc);
    write_shapes(step.desc, event->shapes);
  } else {
    event->bytes = copied_bytes;
  }
  if (event->device.wanted) {
    event->next = pending_;
    pending_ = event;
    return;
  }
  event->ready.store(true, std::memory_order_release);
  if (step.kind == PlanStep::Kind::kKernel) add_workers(step);
}

void RunTrace::add_workers(const PlanStep& step) {
  for (int thread = 1; thread < StepTrace::kThreads; ++thread) {
    const ThreadSpan& span = threads_[thread];
    if (span.tiles == 0) continue;
    TraceEvent* const event = reserve(TraceKind::kTiles);
    if (event == nullptr) return;
    event->slot = step.slot;
    event->worker = static_cast<std::uint16_t>(thread);
    event->node = step.node;
    event->kernel = step.kernel;
    event->start_ns = span.start_ns;
    event->end_ns = span.end_ns;
    event->ready.store(true, std::memory_order_release);
  }
}

void RunTrace::add_span(TraceKind kind, std::uint64_t start_ns) {
  TraceEvent* const event = reserve(kind);
  if (event == nullptr) return;
  event->start_ns = start_ns;
  event->end_ns = os::now_ns();
  event->ready.store(true, std::memory_order_release);
}

void RunTrace::add_host_node(std::int32_t node, std::uint64_t start_ns) {
  TraceEvent* const event = reserve(TraceKind::kHost);
  if (event == nullptr) return;
  event->node = node;
  event->start_ns = start_ns;
  event->end_ns = os::now_ns();
  event->ready.store(true, std::memory_order_release);
}

void RunTrace::sample_memory(const Plan* plan) {
  for (std::size_t slot = 0; slot < graph_.devices.size(); ++slot) {
    TraceEvent* const event = reserve(TraceKind::kMemory);
    if (event == nullptr) return;
    event->slot = static_cast<std::uint8_t>(slot);
    event->start_ns = event->end_ns = os::now_ns();
    event->bytes = graph_.devices[slot]->pool().stats().current;
    event->arena_bytes = plan != nullptr ? plan->arena_bytes[slot] : 0;
    event->ready.store(true, std::memory_order_release);
  }
}

}  // namespace evn
