// Threads that may outlive the object that started them.
#pragma once

#include <cstdint>

namespace evn::os {

// A thread with all signals blocked. The destructor joins it; on that thread itself it lets go of it, and the thread ends by
// itself; in a forked child, where the thread is not, it does nothing.
class BackgroundThread {
 public:
  BackgroundThread(void (*body)(void*), void* argument);  // throws EVN_ERROR_NO_THREADS
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

 private:
  unsigned long handle_ = 0;
  std::uint32_t started_in_;
};

}  // namespace evn::os
