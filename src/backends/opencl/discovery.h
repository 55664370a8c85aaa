// What OpenCL devices this machine has. Opens nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/opencl/loader.h"
#include "device/device.h"

namespace evn {

struct OpenClFound {
  cl_platform_id platform = nullptr;
  cl_device_id id = nullptr;
  std::string name;
  std::string vendor;
  std::string platform_name;
  std::string platform_version;
  std::string driver_version;
  cl_device_type type = 0;
  std::uint32_t compute_units = 1;
  std::uint64_t memory_bytes = 0;
  std::uint64_t largest_buffer = 0;  // bytes
  std::uint32_t float_lanes = 1;     // the native vector width
  bool dot_product = false;          // cl_khr_integer_dot_product
  bool half = false;                 // cl_khr_fp16
  bool denormals = false;            // keeps floats below 2^-126 (CL_FP_DENORM)
  bool unified_memory = false;       // CL_DEVICE_HOST_UNIFIED_MEMORY
  bool system_svm = false;           // kernels see all memory of the host (CL_DEVICE_SVM_FINE_GRAIN_SYSTEM)
  std::uint32_t base_alignment = 0;  // bytes (CL_DEVICE_MEM_BASE_ADDR_ALIGN); 0: not told
  bool subgroups = false;
  std::uint64_t local_bytes = 32768;    // local memory of a work group (CL_DEVICE_LOCAL_MEM_SIZE)
  bool subgroup_functions = false;      // kernels may use them: OpenCL C 3.0
  std::string identity;                 // DeviceProfile::identity
  std::optional<bool> kernels_of_cpus;  // where the configuration says so
  bool has_compiler = true;             // else programs come as binaries or SPIR-V
  bool takes_il = false;                // SPIR-V (CL_DEVICE_IL_VERSION)
  bool usable = true;                   // available and little-endian

  bool is_cpu() const { return (type & CL_DEVICE_TYPE_CPU) != 0; }
  // Long loops for cores, else tiles in local memory for the lanes of a GPU.
  bool has_kernels_of_cpus() const { return kernels_of_cpus.value_or(is_cpu()); }
};

// All devices of all platforms, in the loader's order. *why tells of each platform that has none or fails, and why there is nothing
// at all: it is not empty when the result is. Throws only when memory is short.
std::vector<OpenClFound> find_opencl_devices(std::string* why);
// A device that the host names, such as a part of another. False and *why where the driver does not tell what it is.
bool describe_opencl_device(cl_device_id id, OpenClFound* found, std::string* why);
// Whether there are none because the parent of this forked process opened OpenCL.
bool opencl_is_forked();

DeviceProfile opencl_profile(const OpenClFound& device);

// "gpu", "cpu" or "accelerator".
const char* opencl_kind(const OpenClFound& device);

}  // namespace evn
