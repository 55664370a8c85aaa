// What steps, copies and submissions cost on the devices of a runtime, as they were measured. A table for each device, kept in the
// folder for caches from one process to the next.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/os/fork.h"
#include "device/device.h"

namespace evn {

// A step, as costs know it: one that is made of the same kernel, shapes, attributes and fusions has the same key on any run.
struct StepFeatures {
  std::uint64_t key = 0;
  std::uint64_t family = 0;  // of the kernel and the operator
  double flops = 0;
  double bytes = 0;  // read and written
};

// A copy of n bytes takes latency_ns + n * ns_per_byte, with the wait for its end.
struct CopyCost {
  double latency_ns = 0;
  double ns_per_byte = 0;
  double of(double bytes) const { return latency_ns + bytes * ns_per_byte; }
};

class CostTable {
 public:
  // The time of the step where it was measured.
  std::optional<double> measured(std::uint64_t key) const;

  // The time of a step by those of its family that are nearest to it in work: theirs, times the ratio of the work. Without any, by
  // the best rates that the table has seen: a lower bound. nullopt: the table is empty.
  std::optional<double> estimate(const StepFeatures& step) const;

  // Adds what was measured, in the place of what it had for the key.
  void add(const StepFeatures& step, double ns);

  // Copies from the host and to it; the time that a step takes beside its kernel's: handing it over, and gaps. All 0 for a device
  // that shares the host's memory and computes at once.
  CopyCost upload, download;
  double submission_ns = 0;
  bool has_copies = false;  // the two were measured

  std::size_t size() const { return entries_.size(); }
  std::string to_bytes() const;
  // Takes what to_bytes wrote; leaves the table empty where it is not that.
  void from_bytes(std::string_view bytes);

 private:
  struct Entry {
    std::uint64_t family;
    double flops, bytes, ns;
  };
  std::unordered_map<std::uint64_t, Entry> entries_;
};

// Those of a runtime. Thread-safe: a table is looked at and changed with its lock held.
class CostTables {
 public:
  explicit CostTables(std::string cache_dir) : cache_dir_(std::move(cache_dir)) {}

  // Calls use(CostTable&) with the device's table, which is read from its file the first time.
  template <typename F>
  auto with(const Device& device, F&& use) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return use(table_of(device));
  }
  // Writes the device's table to its file, where there is a folder; what fails is not written.
  void save(const Device& device);
  // Lets go of what is known of the device, here and in its file.
  void forget(const Device& device);
  // The device goes, and its table here with it.
  void drop(const Device& device) noexcept;

 private:
  struct Known {
    const Device* device;
    std::unique_ptr<CostTable> table;
  };
  CostTable& table_of(const Device& device);

  const std::string cache_dir_;
  std::mutex mutex_;  // held for moments
  const os::HeldOverForks held_{mutex_};
  std::vector<Known> known_;
};

}  // namespace evn
