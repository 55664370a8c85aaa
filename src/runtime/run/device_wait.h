// A run that waits for devices.
#pragma once

namespace evn {

// While it lives, the calling thread, if it executes requests, waits for devices other than the host. Other requests are executed
// meanwhile, as many as their session's devices have use for (SessionRequests::set_depth): that fills a pipeline of devices also
// where there are few cores. Implemented by request/dispatcher.cc.
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
