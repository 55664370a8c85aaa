// Waits for events of a device on a thread of its own: for what callers leave in flight, and for callers whose time may be over
// first, where a call of the driver has failed by which they would learn of the event. The thread starts when it is first needed,
// and may outlive the device: what it lets go of last may be all that kept the device.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "backends/opencl/loader.h"
#include "base/os/background.h"
#include "base/os/fork.h"
#include "device/kernel.h"

namespace evn {

class OpenClReaper {
 public:
  // Waits until the event has happened; how that went.
  using Finish = cl_int (*)(void* device, std::uint64_t value) noexcept;
  OpenClReaper(Finish finish, void* device) : finish_(finish), device_(device) {}
  ~OpenClReaper() { stop(); }
  OpenClReaper(const OpenClReaper&) = delete;
  OpenClReaper& operator=(const OpenClReaper&) = delete;

  // Ends the thread: the device goes, and nobody waits when it does. In a forked child there is nothing to stop.
  void stop() noexcept;

  // Lets go of what is still held when the thread has ended, whose owner need not keep a device that never came into use. The
  // device has ended all its commands, and its memory can still be given back.
  void let_go() noexcept;

  // False where the system refuses the thread, or memory. Before wait and hold.
  bool start() noexcept;

  // Until the event has happened (*code tells how), or `cancel` says stop: then false.
  bool wait(std::uint64_t value, const Cancel& cancel, cl_int* code);

  // Takes `held` and lets go of it when the event has happened. False, with `held` as it was, where memory is short.
  bool hold(std::uint64_t value, std::shared_ptr<const void>& held) noexcept;

  // Until nothing is held any more, or `cancel` says stop: then false.
  bool settle(const Cancel& cancel);

 private:
  struct State;
  static void thread_main(void* argument);
  static void loop(State& state);

  const Finish finish_;
  void* const device_;
  std::mutex starting_;
  std::shared_ptr<State> state_;  // null before the start
  std::unique_ptr<os::BackgroundThread> thread_;
  const std::uint32_t made_in_ = os::fork_generation();
};

}  // namespace evn
