// The limits that a load and a run obey. Defaults are finite, except for run time.
#pragma once

#include <cstdint>

namespace evn {

struct Limits {
  std::uint64_t model_bytes = 2ull << 30;   // a model file without its external data, which tensor_bytes limits
  std::uint64_t nodes = 1'000'000;          // nodes of all graphs of a model together
  std::uint64_t nesting = 64;               // depth of messages in the file
  std::uint64_t tensor_bytes = 8ull << 30;  // any one tensor, while loading and running
  std::uint64_t load_time_ns = 300'000'000'000;
  std::uint64_t loop_iterations = 1'000'000;  // of one Loop or Scan
  std::uint64_t run_time_ns = 0;              // 0: unlimited
  std::uint64_t queued_requests = 65536;      // of all sessions of a runtime
  // How long a device may go on with work whose run or copy has ended for it, before it is in quarantine.
  std::uint64_t overdue_time_ns = 1'000'000'000;
};

}  // namespace evn
