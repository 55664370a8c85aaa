// Devices that stop working: how that is told from a command that failed, and where runs go on.
#include "runtime/loss/lost_device.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/os/os.h"
#include "runtime/request/session_identity.h"
#include "runtime/session/session.h"

namespace evn {
namespace {

constexpr std::size_t kProbeBytes = 64;
constexpr std::uint64_t kProbeNs = 5'000'000'000;

// A small copy to the device and back. Keeps the runtime, and with it the device, until both copies have ended.
struct DeviceProbe {
  DeviceProbe(std::shared_ptr<const Runtime> runtime, Device& device)
      : owner(std::move(runtime)), memory(device.allocate(kProbeBytes, MemoryClass::kScratch)) {}
  std::shared_ptr<const Runtime> owner;
  PooledMemory memory;
  std::array<unsigned char, kProbeBytes> there{}, back{};
};

enum class Answer { kRight, kWrong, kNone, kStopped };

// Throws what the device says. kNone: it says nothing for long.
Answer ask(std::shared_ptr<const Runtime> runtime, Device& device, const StopCondition& stop) {
  const auto probe = std::make_shared<DeviceProbe>(std::move(runtime), device);
  for (std::size_t i = 0; i < kProbeBytes; ++i) probe->there[i] = static_cast<unsigned char>(37 * i + 1);
  const Location far{&device, {probe->memory.memory(), 0, kProbeBytes}};
  const Event up = device.copy({nullptr, {probe->there.data(), 0, kProbeBytes}}, far, {});
  Event down;
  try {
    down = device.copy(far, {nullptr, {probe->back.data(), 0, kProbeBytes}}, std::span<const Event>(&up, 1));
  } catch (...) {
    device.keep_until(up, probe);
    throw;
  }
  Cancel cancel;
  cancel.deadline_ns = deadline_clock_ns() + kProbeNs;
  cancel.join(stop);
  if (!device.wait_or_stop(down, cancel)) {
    device.leave_until(down, probe);
    return Cancel{stop}.stop() ? Answer::kStopped : Answer::kNone;
  }
  return probe->back == probe->there ? Answer::kRight : Answer::kWrong;
}

}  // namespace

bool Runtime::examine(Device& device, const Error& failure, const StopCondition& stop) {
  if (device.is_out()) return true;
  if (device.traits().host_addressable) return false;
  try {
    const Answer answer = ask(shared_from_this(), device, stop);
    if (answer == Answer::kRight || answer == Answer::kStopped) return false;
  } catch (const Error& e) {
    // A device that has no memory for so little, where its cap is not the reason, is as one that does not answer.
    const PoolStats stats = device.pool().stats();
    const bool is_refused = e.status == EVN_ERROR_OUT_OF_MEMORY && stats.current + kProbeBytes <= stats.limit;
    if (e.status != EVN_ERROR_DEVICE_LOST && e.status != EVN_ERROR_INTERNAL && !is_refused) return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (!device.mark_lost(failure)) return true;
  lost_devices_.fetch_add(1, std::memory_order_acq_rel);
  LogEvent(log(), EVN_LOG_ERROR, "device.lost")
      .device(device.name().c_str())
      .field("reason", failure.message)
      .write("device %s is lost: %s", device.name().c_str(), failure.message);
  return true;
}

namespace {

// Returns what runs in the place of the session, after a run of it has failed so. Throws where nothing does.
std::shared_ptr<Session> after_loss(const Session& session, const Error& failure, const RunRequest& request) {
  // The thread of a warm run keeps the owner, and may hold its lock.
  const bool may_move = session.identity() != nullptr && !request.is_warm;
  const std::shared_ptr<PlacementOwner> owner = may_move ? session.identity()->owner.lock() : nullptr;
  if ((owner == nullptr && !request.is_warm) || !session.compiled().settings->config.moves_off_lost_devices) throw Error(failure);
  bool is_lost = false;
  for (Device* const device : session.devices()) {
    const bool is_meant = failure.device[0] == '\0' || device->name() == failure.device;
    if (is_meant && session.runtime()->examine(*device, failure, request.stop)) is_lost = true;
  }
  if (!is_lost || owner == nullptr) throw Error(failure);
  if (request.overwrite_inputs || request.listener.ready != nullptr) {
    throw make_error(EVN_ERROR_DEVICE_LOST, "%s; %s, so that the run is not repeated elsewhere", failure.message,
                     request.overwrite_inputs ? "inputs may have been overwritten" : "outputs may be in use already")
        .with_device(failure.device);
  }
  try {
    return owner->without_lost_devices(session, request.stop)->open_inputs().with(session.compiled().model->open_inputs);
  } catch (const Error& e) {
    const bool waited = e.status == EVN_ERROR_TIMEOUT || e.status == EVN_ERROR_CANCELLED;
    if (waited && Cancel{request.stop}.stop()) throw;
    throw make_error(EVN_ERROR_DEVICE_LOST, "%s; the session cannot do without the device: %s", failure.message, e.message)
        .with_device(failure.device)
        .with_node(e.node);
  }
}

class LossStage final : public RunStage {
 public:
  void run(Session& session, StagedRun& run, const RunRest& rest) override {
    std::shared_ptr<Session> other;
    try {
      return rest(run);
    } catch (const Error& e) {
      // One device after the other may be lost.
      if (e.status != EVN_ERROR_DEVICE_LOST || run.moves == session.runtime()->device_count()) throw;
      ++run.moves;
      other = after_loss(session, e, run.request);
    }
    other->run(run);
  }
};

}  // namespace

std::unique_ptr<RunStage> make_loss_stage() { return std::make_unique<LossStage>(); }

}  // namespace evn
