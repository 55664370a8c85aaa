// What runs of a session do and when: events in memory that is taken when tracing starts, and their rendering as a Chrome trace or
// a table by node. Recording takes no lock and allocates nothing.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/mutex.h"
#include "runtime/lower/plan.h"

namespace evn {

enum class TraceKind : std::uint8_t {
  kRun,      // all of Session::run
  kQueue,    // the run waited for a core
  kPrepare,  // finding or making the plan, and its memory
  kKernel,
  kCopy,
  kWait,    // the caller waits for devices
  kHost,    // a node that runs on the host between the parts of a plan
  kTiles,   // what a thread besides the caller did of a kernel
  kMemory,  // a sample of a device's memory
};

struct TraceEvent {
  std::atomic<bool> ready{false};  // everything below is written
  TraceKind kind = TraceKind::kRun;
  std::uint8_t slot = 0;
  std::uint8_t from_slot = 0;  // kCopy
  std::uint8_t to_slot = 0;
  std::uint16_t worker = 0;  // kTiles: number of the pool's thread
  std::int32_t node = -1;    // kKernel, kTiles
  ValueId value = kNoValue;  // kCopy
  const CompiledGraph* graph = nullptr;
  const Kernel* kernel = nullptr;
  std::uint64_t caller = 0;    // tells the threads apart that run the session
  std::uint64_t start_ns = 0;  // os::now_ns(); of a device with a queue: when the step was handed over
  std::uint64_t end_ns = 0;
  std::uint64_t bytes = 0;        // read and written; kMemory: in use
  std::uint64_t arena_bytes = 0;  // kMemory
  double flops = 0;               // a multiply-add is two
  StepTrace device;               // times by the device's own clock
  TraceEvent* next = nullptr;     // while the run goes on: steps whose device times are still to come
  char shapes[128] = {};          // "float32[1,3] float32[3] -> float32[1,3]", cut to fit

  // How long the device worked on a step.
  std::uint64_t busy_ns() const { return device.end != 0 ? device.end - device.start : end_ns - start_ns; }
};

class Trace {
 public:
  // Takes the memory for `capacity` events from the CPU's pool, and lets the devices prepare.
  // `serial`: each step is waited for before the next is begun, so that its time is all that it takes.
  Trace(const CompiledGraph& graph, std::uint32_t capacity, bool serial = false);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Keeps a graph, of which runs are going to be recorded, as long as the trace: the traced one, or another of the same session.
  void add_graph(const std::shared_ptr<const CompiledGraph>& graph);

  // The next event, or nullptr when all are used, which is counted.
  TraceEvent* reserve() noexcept;

  std::string to_json() const;
  std::string to_text() const;

  const CompiledGraph& graph() const { return graph_; }
  std::uint64_t origin_ns() const { return origin_ns_; }
  bool is_serial() const { return serial_; }
  std::uint32_t capacity() const { return capacity_; }
  std::uint64_t dropped() const;
  std::vector<const TraceEvent*> events() const;  // those that are ready, in the order in which they began
  std::vector<Device*> devices() const;           // of all graphs; first those of graph()

 private:
  const CompiledGraph& graph_;
  mutable Mutex mutex_;                                       // guards graphs_
  std::vector<std::shared_ptr<const CompiledGraph>> graphs_;  // they keep the devices, whose memory is used
  PooledMemory memory_;
  TraceEvent* events_ = nullptr;
  std::uint32_t capacity_;
  bool serial_;
  std::atomic<std::uint64_t> used_{0};  // may pass capacity_
  std::uint64_t origin_ns_;
};

// Records one run, of `graph`. Lives on the stack of the thread that runs; when it ends, what devices measured is fetched.
class RunTrace {
 public:
  RunTrace(std::shared_ptr<Trace> trace, const CompiledGraph& graph);
  bool is_serial() const { return trace_->is_serial(); }
  ~RunTrace();
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  // Around a step. What begin_step gives goes to the device with the step.
  StepTrace* begin_step(const PlanStep& step);
  void end_step(const PlanStep& step, std::uint64_t copied_bytes);

  // Something that began at start_ns and ends now.
  void add_span(TraceKind kind, std::uint64_t start_ns);

  // A node that ran on the host from start_ns until now.
  void add_host_node(std::int32_t node, std::uint64_t start_ns);

  // A sample of every device's memory. `plan`: whose arenas are held, or nullptr.
  void sample_memory(const Plan* plan);

 private:
  TraceEvent* reserve(TraceKind kind) noexcept;
  void add_workers(const PlanStep& step);

  std::shared_ptr<Trace> trace_;
  const CompiledGraph& graph_;
  std::uint64_t caller_;
  std::uint64_t run_start_;
  std::uint64_t step_start_ = 0;
  TraceEvent* current_ = nullptr;  // of the step under way; nullptr: no room for it
  TraceEvent* pending_ = nullptr;  // steps of devices with a queue
  StepTrace spare_;                // where there is no room
  ThreadSpan threads_[StepTrace::kThreads];
};

}  // namespace evn
