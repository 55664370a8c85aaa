// Scopes in which a thread that executes requests lets other threads execute them. Implemented by dispatch/dispatcher.cc; on other
// threads they do nothing.
#pragma once

#include <cstdint>

namespace evn {

// While it lives, the calling thread is in a callback of the host. When that takes long, another thread takes its place.
class InHostCallback {
 public:
  InHostCallback() noexcept;
  ~InHostCallback();
  InHostCallback(const InHostCallback&) = delete;
  InHostCallback& operator=(const InHostCallback&) = delete;

 private:
  std::uint64_t outer_begin_ns_ = 0;  // time at which the callback began in which this one was called
};

// While it lives, the calling thread waits for devices other than the host. As many requests are executed meanwhile as their
// session's devices have use for (SessionRequests::set_depth): that fills a pipeline of devices also where there are few cores.
class DeviceWait {
 public:
  DeviceWait() noexcept;
  ~DeviceWait();
  DeviceWait(const DeviceWait&) = delete;
  DeviceWait& operator=(const DeviceWait&) = delete;

 private:
  bool stands_aside_ = false;
};

}  // namespace evn
