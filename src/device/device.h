// A device: memory, copies, kernels and events. Asynchronous: copy and enqueue return at once with an
// event; on the CPU all events are done when they are returned.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "device/cascade.h"
#include "device/host_share.h"
#include "device/paged.h"
#include "device/quarantine.h"
#include "device/step_trace.h"
#include "memory/pool.h"

namespace evn {

class Device;
class NativeSharing;

// The end of one copy or kernel, as the device numbers them. No device: done.
struct Event {
  Device* device = nullptr;
  std::uint64_t value = 0;
  void* native = nullptr;  // an event of the device's driver, in place of a number; the owner of this object keeps it alive
};

// A place in some device's memory.
struct Location {
  Device* device = nullptr;  // nullptr: host memory, as is that of a host-addressable device
  Buffer buffer;
};

// What tells devices apart that are not open.
struct DeviceProfile {
  evn_device_class device_class = EVN_DEVICE_CLASS_UNKNOWN;
  std::uint32_t features = 0;  // EVN_DEVICE_FP16, ...
  std::uint64_t largest_allocation = 0;
  std::string identity;
};

struct DeviceTraits {
  bool host_addressable = false;  // Buffer::address() is valid on the host
  std::size_t alignment = 64;     // of buffers inside an arena
  evn_device_kind kind = EVN_DEVICE_OTHER;
  std::string description;
  std::string driver;
  std::uint32_t compute_units = 1;
  std::uint64_t memory_bytes = 0;
  DeviceProfile profile;
  bool claims_segments = false;  // claim may return segments of several nodes
};

// One call of a kernel. Everything it points to lives until the device has been waited for.
struct KernelCall {
  const Kernel* kernel = nullptr;
  KernelArgs args;
  const Cancel* cancel = nullptr;
  ScheduledRun* run = nullptr;  // what the call is a part of; it makes way for others between tiles
  StepTrace* trace = nullptr;   // not null: the run is traced; prepare_tracing has been called
  Event* begun = nullptr;       // receives the end of the commands that the call has enqueued, if it throws
};

// What a device takes of a graph: nodes that one kernel of it runs as one step. The kernel of several nodes has no prepack and no
// layouts, and takes empty inputs; `plan` and `run` are asked with OpDesc::values and OpDesc::nodes. Constants are inputs like
// others.
struct Segment {
  std::vector<int> nodes;  // indices into the span that claim was given
  const Kernel* kernel = nullptr;
};

struct Claim {
  std::vector<Segment> segments;
  std::vector<std::string> refusals;  // per node: why it is in no segment, or only the reference takes it; or ""
};

// Why a library of products has no kernel for a node.
inline constexpr char kNoSuchProduct[] = "it multiplies for MatMul and Gemm alone";

class Device : public Backing {
 public:
  Device(std::string name, std::uint64_t memory_limit);
  ~Device() override { pool_->let_go(); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  const DeviceTraits& traits() const { return traits_; }

  // Whether it has stopped working: nothing is placed on it any more. Why, once it has.
  bool is_lost() const noexcept { return lost_.load(std::memory_order_acquire); }
  const char* why_lost() const noexcept { return why_lost_.message; }
  // False: it was already.
  bool mark_lost(const Error& why) noexcept;

  // What keeps work from a device that does not end what it has. Not before the device is shared by threads: begin_quarantines.
  void begin_quarantines(const LogSink& log, std::uint64_t grace_ns) noexcept { quarantine_.begin(log, grace_ns); }
  Quarantine& quarantine() noexcept { return quarantine_; }
  const Quarantine& quarantine() const noexcept { return quarantine_; }
  // Whether nothing is to be placed on it now: it is lost, or in quarantine. And why: "it is lost: ..."; "": it is ready.
  bool is_out() const noexcept { return is_lost() || quarantine_.is_on(); }
  std::string why_out() const;
  // Waits for the work that was left to the device. Throws EVN_ERROR_DEVICE_LOST if the device is in quarantine or comes into it
  // meanwhile, and the Error of `cancel` if that says stop.
  void require_ready(const Cancel& cancel);
  void refuse_quarantined() const;
  [[noreturn]] void fail_quarantined() const;
  // Lets go of `held` when the event has happened, as hold_until does; work whose time is over, so that the device must end it
  // soon.
  void leave_until(const Event& event, std::shared_ptr<const void> held) noexcept;
  Pool& pool() { return *pool_; }

  // Memory of the device's pool (Pool::allocate). The result keeps the pool; the device must outlive it.
  PooledMemory allocate(std::size_t bytes, MemoryClass cls, bool pinned = false, Reclaimer* first = nullptr) {
    return PooledMemory(pool_, bytes, cls, pinned, first);
  }
  // Changes the cap on what the pool holds; it stays within what a device with memory of its own has.
  void set_memory_limit(std::uint64_t limit);
  LedgerPtr ledger() const { return pool_; }

  // What uses the same memory of this device happens in the order in which copy and enqueue were called, unless both only read. The
  // rest may overlap. `waits`: what must have happened before, of this device or others: what the order of this device does not
  // imply, as memory of the host is used by several. A device that cannot wait by itself has the caller wait.

  // Copies buffer.size bytes (equal on both sides) between this device and the host (a host-addressable device), or within this
  // device. The memory must stay valid until the event. Throws EVN_ERROR_DEVICE_LOST, EVN_ERROR_OUT_OF_MEMORY; a copy that throws
  // has enqueued nothing.
  virtual Event copy(const Location& from, const Location& to, std::span<const Event> waits) = 0;

  // Runs a kernel of this device's tables. When it throws, a part of the kernel's commands may be under way: what the call points
  // to must stay until *KernelCall::begun has happened.
  virtual Event enqueue(const KernelCall& call, std::span<const Event> waits) = 0;

  // Has the device begin what was enqueued, which a driver may keep back. `wait` implies it.
  virtual void submit() {}

  // Blocks until the event has happened; an error of the device is thrown here at the latest. What throws, here or below, has
  // waited.
  virtual void wait(const Event& event) = 0;

  // The same, but false, with the event still to come, when `cancel` says stop. Waits to the end where the system refuses a thread.
  virtual bool wait_or_stop(const Event& event, const Cancel& /*cancel*/) {
    wait(event);
    return true;
  }

  // Waits as wait_or_stop does, for work that the caller can leave to the device: also comes back where the device is in
  // quarantine, as work that was enqueued before it has not ended. Then, and where `cancel` says stop, what the work uses must stay
  // until the device has ended it (leave_until).
  enum class Waited : std::uint8_t { kEnded, kStopped, kQuarantined };
  Waited wait_bounded(const Event& event, const Cancel& cancel);
  // Waits so; where the event has not happened then, leaves the work to the device, which lets go of `held` when it has ended it,
  // and throws: EVN_ERROR_DEVICE_LOST in quarantine, else the Error of `cancel`.
  void wait_or_leave(const Event& event, const Cancel& cancel, std::shared_ptr<const void> held);
  // Waits as wait_bounded does, as long as the calling thread's CancelScope allows. Throws where the event has not happened then:
  // EVN_ERROR_DEVICE_LOST in quarantine, else the Error of the scope.
  void wait_in_scope(const Event& event);
  // Locks a mutex that another thread may hold while it waits for this device. Throws as wait_in_scope does.
  std::unique_lock<Mutex> lock_in_scope(Mutex& mutex) const;

  // All that was enqueued so far, by whomever. Without a device: what enqueue and copy gave are all there is.
  virtual Event all_enqueued() { return {}; }

  // Throws the error of anything that was enqueued after `begin`, which is all_enqueued() of then, and has ended since: for who has
  // waited for the last events alone.
  virtual void check_since(const Event& /*begin*/) {}

  // Lets go of `held` when the event has happened, without holding up the caller; on whichever thread, and perhaps as the last
  // thing that kept this device. Waits where the system refuses a thread or memory.
  virtual void hold_until(const Event& event, std::shared_ptr<const void> held) noexcept;

  // Lets go of `held` when the event has happened, as hold_until does, but settle does not wait for it: a caller expects the work.
  virtual void keep_until(const Event& event, std::shared_ptr<const void> held) noexcept { hold_until(event, std::move(held)); }

  // What is enqueued from now on begins behind the events. A device that cannot wait by itself has the caller wait. Throws
  // EVN_ERROR_DEVICE_LOST.
  virtual void wait_before_all(std::span<const Event> waits);

  // The driver's objects that a host can share. nullptr: the device has none.
  virtual NativeSharing* native() { return nullptr; }

  // Waits until all that hold_until was given has been let go of. False when `cancel` says stop.
  virtual bool settle(const Cancel& /*cancel*/) { return true; }

  // Tracing. Before the first step of a traced run the device is asked to prepare; then all steps of that run have a StepTrace.
  // finish_trace, after the step's event has happened, fills in the times and lets go of what was kept. The defaults measure
  // nothing.
  virtual void prepare_tracing() noexcept {}
  virtual Event copy_traced(const Location& from, const Location& to, std::span<const Event> waits, StepTrace* /*trace*/) {
    return copy(from, to, waits);
  }
  virtual void finish_trace(StepTrace* /*trace*/) noexcept {}

  // Gives the host access to pinned memory until unmap, behind all that was enqueued; nullptr when it is not pinned. `read`: its
  // bytes are wanted; otherwise they are undefined. Nothing that uses the memory may be enqueued meanwhile. unmap blocks too. Throw
  // EVN_ERROR_DEVICE_LOST, EVN_ERROR_OUT_OF_MEMORY.
  virtual void* map(const Buffer& /*buffer*/, bool /*read*/, bool /*write*/) { return nullptr; }
  virtual void unmap(const Buffer& /*buffer*/, void* /*address*/) {}

  // How memory of the host must lie for share_host. By default there is none.
  virtual HostSharing host_sharing() const { return {}; }
  // Memory of the host as a buffer of this device; the same memory gives the same buffer. nullptr: it does not fit, is a part of
  // memory that is shared otherwise, or the driver refuses it.
  virtual HostSharePtr share_host(void* /*address*/, std::size_t /*bytes*/) { return nullptr; }

  // The kernels of this device.
  virtual std::span<const KernelFamily* const> kernels() const = 0;

  // Asks which of the nodes this device runs. The default goes node by node through the kernel tables. Where claims_segments is
  // set, nodes of a graph are offered together, in topological order; connected by the ids in Node::inputs and outputs. Not offered
  // are nodes in a branch of an If, with inputs that are read by value and not constant, or of unknown rank. Segments whose nodes
  // rules send to several devices, or give several precisions, and those that would close a cycle are not used: then the device is
  // asked again, with fewer nodes or one alone.
  virtual Claim claim(std::span<const OpDesc> nodes);

  // The kernel of highest rank that takes the node; else nullptr, and *reason says what each one said.
  virtual const Kernel* find_kernel(const OpDesc& desc, std::string* reason) const;

  // A kernel for the operator, whatever it says of types and shapes; else nullptr.
  const Kernel* any_kernel(const Node& node) const;

  // The kernel that takes shapes which no other needs to: inputs without elements, and ranks that are not known when nodes are
  // placed (there its `supports` must not look at shapes). nullptr: this device has none.
  virtual const Kernel* reference_kernel(const OpDesc& /*desc*/) const { return nullptr; }

  // The lowest precision of operands that products have here where `wanted`, which is not kDefault, is allowed. kFloat32 for a
  // lower one: *why says why.
  virtual Precision lowest_precision(Precision /*wanted*/, std::string* why) const {
    *why = "this device has float32 products alone";
    return Precision::kFloat32;
  }

  // Why no kernel of a library (Kernel::library) runs the node, which another kernel takes: there is no such library here, it has
  // no such operator, or what its kernel says. nullptr: one does.
  virtual const char* why_not_by(Products library, const OpDesc& desc) const;

  // Writes a value in another layout: one input, one output, no node. nullptr: the device has plain values only, and no kernel of
  // it asks for others.
  virtual const Kernel* relayout_kernel() const { return nullptr; }
  // Conversions of rows of a cache to 16 and 8 bits and back. nullptr: the device has none.
  virtual const RowLoops* row_loops() const { return nullptr; }

  // How nodes that follow each other run as a cascade. nullptr: each is a step of its own.
  virtual const Cascades* cascades() const { return nullptr; }

 protected:
  DeviceTraits traits_;
  // A backend's destructor calls this first: the pool gives its memory back through the backend's give_back.
  void close_pool() { pool_->close(); }

 private:
  std::string name_;
  std::shared_ptr<Pool> pool_;
  Quarantine quarantine_{name_};
  std::atomic<bool> losing_{false}, lost_{false};
  Error why_lost_;  // written once, before lost_
};

}  // namespace evn
