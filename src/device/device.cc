#include "device/device.h"

#include <algorithm>

#include "base/error.h"
#include "base/scheduling_constants.h"

namespace evn {

Device::Device(std::string name, std::uint64_t memory_limit)
    : name_(std::move(name)), pool_(std::make_shared<Pool>(this, name_, memory_limit)) {
  Pool::hold_heap(pool_);
}

void Device::set_memory_limit(std::uint64_t limit) {
  const bool bounded = !traits_.host_addressable && traits_.memory_bytes != 0;
  pool_->set_limit(bounded ? std::min(limit, traits_.memory_bytes) : limit);
}

bool Device::mark_lost(const Error& why) noexcept {
  if (losing_.exchange(true)) return false;
  why_lost_ = why;
  lost_.store(true, std::memory_order_release);
  return true;
}

namespace {

std::string no_kernel(const OpDesc& desc) { return "no kernel for " + desc.node->op_type; }

}  // namespace

const Kernel* Device::find_kernel(const OpDesc& desc, std::string* reason) const {
  const Kernel* best = nullptr;
  for (const KernelFamily* family : kernels()) {
    for (const Kernel& kernel : family->kernels) {
      if (!kernel.is_for(*desc.node)) continue;
      if (best != nullptr && best->rank >= kernel.rank) continue;
      if (kernel.operands != Precision::kFloat32 && kernel.operands != desc.precision) continue;
      if (const Refusal refusal = kernel.supports(desc); refusal == nullptr) {
        best = &kernel;
      } else if (reason != nullptr) {
        if (!reason->empty()) *reason += "; ";
        *reason += kernel.name;
        *reason += ": ";
        *reason += refusal;
      }
    }
  }
  if (best == nullptr && reason != nullptr && reason->empty()) *reason = no_kernel(desc);
  return best;
}

const Kernel* Device::any_kernel(const Node& node) const {
  for (const KernelFamily* family : kernels()) {
    for (const Kernel& kernel : family->kernels) {
      if (kernel.is_for(node)) return &kernel;
    }
  }
  return nullptr;
}

const char* Device::why_not_by(Products library, const OpDesc& desc) const {
  const char* why = "this device does not have it";
  for (const KernelFamily* family : kernels()) {
    for (const Kernel& kernel : family->kernels) {
      if (kernel.library != library) continue;
      if (kernel.is_for(*desc.node)) return kernel.supports(desc);
      why = kNoSuchProduct;
    }
  }
  return why;
}

void Device::hold_until(const Event& event, std::shared_ptr<const void> held) noexcept {
  try {
    wait(event);
  } catch (const Error&) {  // it has ended
  }
  held.reset();
}

std::string Device::why_out() const {
  if (is_lost()) return std::string("it is lost: ") + why_lost();
  return quarantine_.is_on() ? "it is in quarantine: it has not ended work whose time was over" : "";
}

void Device::refuse_quarantined() const {
  if (quarantine_.is_on()) fail_quarantined();
}

void Device::fail_quarantined() const {
  throw make_error(EVN_ERROR_DEVICE_LOST, "device %s is in quarantine: it has not ended work whose time was over", name_.c_str())
      .with_device(name_.c_str());
}

namespace {

constexpr std::uint64_t kBetweenLooksNs = 100'000'000;  // between two looks at the quarantine

Cancel cancel_of_scope() {
  const Cancel* const scope = CancelScope::current();
  return scope != nullptr ? *scope : Cancel();
}

}  // namespace

// The first look does not wait, so that the clock is read only where something was left to the device.
void Device::require_ready(const Cancel& cancel) {
  refuse_quarantined();
  Cancel limited;
  limited.deadline_ns = 1;
  while (!settle(limited)) {
    if (cancel.stop()) cancel.fail();
    refuse_quarantined();
    limited = cancel;
    limited.join({deadline_clock_ns() + kBetweenLooksNs, nullptr});
  }
}

namespace {

struct LeftWork {
  explicit LeftWork(Quarantine& of) : quarantine(of) { quarantine.note_left(); }
  ~LeftWork() { quarantine.note_ended(); }
  LeftWork(const LeftWork&) = delete;
  LeftWork& operator=(const LeftWork&) = delete;

  std::shared_ptr<const void> held;  // goes last, perhaps with the device
  Quarantine& quarantine;
};

}  // namespace

void Device::leave_until(const Event& event, std::shared_ptr<const void> held) noexcept {
  try {
    const auto left = std::make_shared<LeftWork>(quarantine_);
    left->held = held;
    held = left;
  } catch (const std::bad_alloc&) {  // who comes later waits for it as long as it takes
  }
  hold_until(event, std::move(held));
}

// A backend's wait looks at `cancel` alone, so that the quarantine is looked at between two of some time. Where nobody's time can
// be over, nobody pays for that: what comes later is behind this event.
Device::Waited Device::wait_bounded(const Event& event, const Cancel& cancel) {
  if (!cancel.exists() && !quarantine_.may_begin()) {
    wait(event);
    return Waited::kEnded;
  }
  for (;;) {
    Cancel limited = cancel;
    limited.join({deadline_clock_ns() + kBetweenLooksNs, nullptr});
    if (wait_or_stop(event, limited)) return Waited::kEnded;
    if (cancel.stop()) return Waited::kStopped;
    if (quarantine_.is_on()) return Waited::kQuarantined;
  }
}

void Device::wait_or_leave(const Event& event, const Cancel& cancel, std::shared_ptr<const void> held) {
  const Waited waited = wait_bounded(event, cancel);
  if (waited == Waited::kEnded) return;
  leave_until(event, std::move(held));
  if (waited == Waited::kStopped) cancel.fail();
  fail_quarantined();
}

void Device::wait_in_scope(const Event& event) {
  const Cancel cancel = cancel_of_scope();
  const Waited waited = wait_bounded(event, cancel);
  if (waited == Waited::kStopped) cancel.fail();
  if (waited == Waited::kQuarantined) fail_quarantined();
}

std::unique_lock<Mutex> Device::lock_in_scope(Mutex& mutex) const {
  const Cancel cancel = cancel_of_scope();
  while (!mutex.try_lock_for(scheduling::kWatchIntervalNs)) {
    if (cancel.stop()) cancel.fail();
    refuse_quarantined();
  }
  return std::unique_lock<Mutex>(mutex, std::adopt_lock);
}

void Device::wait_before_all(std::span<const Event> waits) {
  for (const Event& event : waits) {
    if (event.device != nullptr) event.device->wait(event);
  }
}

Claim Device::claim(std::span<const OpDesc> nodes) {
  Claim claim;
  claim.refusals.resize(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (const Kernel* kernel = find_kernel(nodes[i], &claim.refusals[i])) {
      claim.segments.push_back({{static_cast<int>(i)}, kernel});
      // Worth knowing where there are faster ones, and only the reference takes the node.
      if (kernel != reference_kernel(nodes[i]) || claim.refusals[i] == no_kernel(nodes[i])) claim.refusals[i].clear();
    }
  }
  return claim;
}

}  // namespace evn
