// Measurements that a device makes of one step of a traced run (runtime/run/trace.h reads them). Plain values that
// stand ready before the run: a device allocates nothing for them.
#pragma once

#include <cstdint>

namespace evn {

// What one thread of a host-addressable device did of a step: from its first tile to its last.
struct alignas(64) ThreadSpan {  // threads write side by side
  std::uint64_t start_ns = 0;    // os::now_ns()
  std::uint64_t end_ns = 0;
  std::int64_t tiles = 0;  // 0: took no part
};

struct StepTrace {
  static constexpr int kThreads = 64;  // threads beyond are not seen
  ThreadSpan* threads = nullptr;       // kThreads of them; the first is the caller. nullptr: not wanted
  bool wanted = false;                 // a device with a clock of its own is to measure
  void* first = nullptr;               // the device's own, until Device::finish_trace: first and last command of the step
  void* last = nullptr;
  std::uint64_t queued = 0;  // the device's clock in ns, after finish_trace
  std::uint64_t start = 0;
  std::uint64_t end = 0;  // 0: not measured
};

}  // namespace evn
