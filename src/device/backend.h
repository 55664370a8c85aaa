// A backend: one folder, src/backends/<type>/, which the build finds by its backend.cmake and which defines `<type>_backend`. It
// says its own name and options, so that nothing outside the folder knows it; docs/adding-a-backend.md shows one.
#pragma once

#include "core/device_type.h"
#include "device/device.h"
#include "device/native.h"

namespace evn {

// What a backend needs to open a device.
struct DeviceRequest {
  std::string name;         // for errors, statistics and explain
  int index = 0;            // as in "opencl:1": among the devices that the backend lists
  DeviceSettings settings;  // of the backend's own options
  std::uint64_t memory_limit = UINT64_MAX;
  CachePolicy cache;
  std::string cache_dir;              // "": no cache on disk
  HostExecutor executor;              // threads of the host, for a device that computes on them
  RunScheduler* scheduler = nullptr;  // of the runs, for such a device; outlives it
  evn_allocator allocator{};          // memory of the host, for a device that uses it
  LogSink log;
};

// One device that this machine offers, opened or not.
struct DeviceListing {
  std::string id;  // "cpu", "opencl:0"
  std::string description;
  std::string platform;
  std::string driver;
  std::string kind;  // "cpu", "gpu", "accelerator"
  std::uint32_t compute_units = 0;
  std::uint64_t memory_bytes = 0;
  std::string libraries;  // which other libraries it may call, and whether they are there
  DeviceProfile profile = {};
};

// Another name for devices of a backend, which stands for an option: "gpu:1" is the second device with match.kind gpu.
struct DeviceAlias {
  const char* name;
  const char* option;
  const char* text;
};

// A set of drivers that a process of its own can be made to load alone.
struct DriverSet {
  std::string name;                                            // for messages: "mesa.icd"
  std::vector<std::pair<std::string, std::string>> variables;  // of its environment, which say so
};

struct Backend {
  DeviceType type;
  // Throws EVN_ERROR_DEVICE_UNAVAILABLE with the reason and what there is.
  std::shared_ptr<Device> (*open)(const DeviceRequest& request);
  // Lists what there is; when nothing, *why says so ("libOpenCL.so.1 cannot be opened: ...").
  std::vector<DeviceListing> (*list)(std::string* why);
  // What tells the physical device that `open` would open from others: requests with one identity are requests for one device.
  // Throws as `open`, and opens nothing. nullptr: each request has a device of its own.
  const void* (*identify)(const DeviceRequest& request) = nullptr;
  std::span<const DeviceAlias> aliases = {};
  // Makes a device of objects that the host has made, and keeps references of them. `objects.device` is its identity. Throws
  // EVN_ERROR_INVALID_ARGUMENT where they do not fit together, and as `open`. nullptr: a host can give none.
  std::shared_ptr<Device> (*attach)(const DeviceRequest& request, const NativeObjects& objects) = nullptr;
  // The drivers that listing would load, one by one, as far as that can be told without loading any. nullptr: the backend loads
  // nothing that could end the process, and is never probed.
  std::vector<DriverSet> (*drivers)() = nullptr;
};

}  // namespace evn
