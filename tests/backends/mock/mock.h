// A backend for tests: memory that the host cannot address, work that is done only when it is waited for, operators that it
// refuses, calls that fail. It stands outside src/: that it works shows that a new backend needs no edit elsewhere.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "device/backend.h"

namespace evn {

struct MockSettings {
  std::vector<std::string> refused_ops;
  std::int64_t fail_call = 0;  // the k-th copy or kernel from now on fails with EVN_ERROR_DEVICE_LOST; 0: none
  // Devices opened from now on have queues that work by themselves (queues.h), where commands take so long.
  bool has_queues = false;
  std::uint64_t kernel_ns = 0, copy_ns = 0;
  std::map<std::string, double> element_ns;  // by device: what its clock says that a kernel takes for each 4 bytes that it makes
  std::string lost;  // names of devices, with commas between: every copy and kernel of theirs fails with EVN_ERROR_DEVICE_LOST
  // Segments of several nodes that devices opened from now on claim of what they are offered (Device::claim); empty: none.
  std::function<std::vector<std::vector<int>>(std::span<const OpDesc>)> segments;
  std::uint64_t memory_bytes = UINT64_MAX;  // above it, obtain() refuses
};

// Process-wide; read at each call.
MockSettings& mock_settings();

// Copies and kernels that mock devices have carried out so far, and packed weights that kernels have read.
struct MockCounters {
  std::int64_t uploads = 0;
  std::int64_t downloads = 0;
  std::int64_t kernels = 0;
  std::int64_t segment_nodes = 0;  // nodes that kernels of segments have run
  std::int64_t packed_reads = 0;
};
MockCounters& mock_counters();
// A copy, for a test that reads them while a device works.
MockCounters counters_of_working_mocks();

extern const Backend mock_backend;

}  // namespace evn
