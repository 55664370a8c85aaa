#include "backends/opencl/discovery.h"

#include <algorithm>
#include <cstdio>

#include "base/mutex.h"

namespace evn {
namespace {

// Drivers make their devices when they are first asked for them, and PoCL 3.1 crashes where two threads do at once.
constinit Mutex g_asking;

template <typename Get, typename Object>
bool read_text(Get get, Object object, unsigned what, std::string* text) {
  std::size_t size = 0;
  if (cl_call(get, object, what, std::size_t{0}, static_cast<void*>(nullptr), &size) != CL_SUCCESS || size > 65536) return false;
  text->resize(size);
  if (size > 0 &&
      cl_call(get, object, what, size, static_cast<void*>(text->data()), static_cast<std::size_t*>(nullptr)) != CL_SUCCESS) {
    return false;
  }
  while (!text->empty() && (text->back() == '\0' || text->back() == ' ')) text->pop_back();
  const std::size_t first = text->find_first_not_of(' ');
  text->erase(0, first == std::string::npos ? 0 : first);
  return true;
}

template <typename T>
bool read_value(cl_device_id device, cl_device_info what, T* value) {
  return cl_call(opencl().get_device_info, device, what, sizeof(T), static_cast<void*>(value),
                 static_cast<std::size_t*>(nullptr)) == CL_SUCCESS;
}

// Of extensions that the header for OpenCL 1.2 need not have.
constexpr cl_device_info kSvmCapabilities = 0x1053;  // CL_DEVICE_SVM_CAPABILITIES of OpenCL 2.0
constexpr cl_bitfield kSvmFineGrainSystem = 4;       // CL_DEVICE_SVM_FINE_GRAIN_SYSTEM
constexpr cl_device_info kMaxSubGroups = 0x105c;     // CL_DEVICE_MAX_NUM_SUB_GROUPS of OpenCL 2.1
constexpr cl_device_info kIlVersion = 0x105b;        // CL_DEVICE_IL_VERSION of OpenCL 2.1 and of cl_khr_il_program
constexpr cl_device_info kPciBusInfo = 0x410f;       // CL_DEVICE_PCI_BUS_INFO_KHR
constexpr cl_device_info kUuid = 0x106a;             // CL_DEVICE_UUID_KHR
struct PciBusInfo {
  cl_uint domain, bus, device, function;
};

// "pci 0000:01:00.0" or "uuid 01234567-...", as far as the driver says so, else "".
std::string hardware_of(cl_device_id id, const std::string& extensions) {
  char text[64];
  PciBusInfo pci{};
  if (extensions.find("cl_khr_pci_bus_info") != std::string::npos && read_value(id, kPciBusInfo, &pci)) {
    std::snprintf(text, sizeof text, "pci %04x:%02x:%02x.%x", pci.domain, pci.bus, pci.device, pci.function);
    return text;
  }
  unsigned char uuid[16] = {};
  if (extensions.find("cl_khr_device_uuid") == std::string::npos || !read_value(id, kUuid, &uuid)) return "";
  std::string digits = "uuid ";
  for (int i = 0; i < 16; ++i) {
    std::snprintf(text, sizeof text, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    digits += text;
  }
  return digits;
}

// A driver may give several devices one identity, as one that is there twice; then they have a number.
void identify(OpenClFound* d, const std::vector<OpenClFound>& found, const std::string& extensions) {
  const std::string hardware = hardware_of(d->id, extensions);
  const std::string name = hardware.empty() ? d->platform_name + ", " + d->name : hardware;
  d->identity = name;
  const auto is_there = [&](const OpenClFound& other) { return other.platform == d->platform && other.identity == d->identity; };
  for (int i = 1; std::any_of(found.begin(), found.end(), is_there); ++i) d->identity = name + ", " + std::to_string(i);
}

bool describe(OpenClFound* d, const std::vector<OpenClFound>& before) {
  const auto text = [&](cl_device_info what, std::string* out) { return read_text(opencl().get_device_info, d->id, what, out); };
  cl_uint units = 1, lanes = 1;
  cl_ulong memory = 0, largest = 0, local = 0;
  cl_device_fp_config floats = 0;
  cl_bool available = CL_FALSE, compiler = CL_FALSE, little = CL_FALSE;
  const bool ok = text(CL_DEVICE_NAME, &d->name) && text(CL_DEVICE_VENDOR, &d->vendor) &&
                  text(CL_DRIVER_VERSION, &d->driver_version) && read_value(d->id, CL_DEVICE_TYPE, &d->type) &&
                  read_value(d->id, CL_DEVICE_MAX_COMPUTE_UNITS, &units) && read_value(d->id, CL_DEVICE_GLOBAL_MEM_SIZE, &memory) &&
                  read_value(d->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, &largest) &&
                  read_value(d->id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, &lanes) &&
                  read_value(d->id, CL_DEVICE_SINGLE_FP_CONFIG, &floats) && read_value(d->id, CL_DEVICE_AVAILABLE, &available) &&
                  read_value(d->id, CL_DEVICE_COMPILER_AVAILABLE, &compiler) && read_value(d->id, CL_DEVICE_ENDIAN_LITTLE, &little);
  std::string extensions;
  if (!text(CL_DEVICE_EXTENSIONS, &extensions)) return false;
  d->dot_product = extensions.find("cl_khr_integer_dot_product") != std::string::npos;
  d->half = extensions.find("cl_khr_fp16") != std::string::npos;
  d->denormals = (floats & CL_FP_DENORM) != 0;
  cl_bool unified = CL_FALSE;
  cl_uint subgroups = 0;
  d->unified_memory = read_value(d->id, CL_DEVICE_HOST_UNIFIED_MEMORY, &unified) && unified == CL_TRUE;
  cl_bitfield svm = 0;
  cl_uint base_bits = 0;
  d->system_svm = d->unified_memory && read_value(d->id, kSvmCapabilities, &svm) && (svm & kSvmFineGrainSystem) != 0;
  if (d->unified_memory && read_value(d->id, CL_DEVICE_MEM_BASE_ADDR_ALIGN, &base_bits)) d->base_alignment = base_bits / 8;
  d->subgroups =
      (read_value(d->id, kMaxSubGroups, &subgroups) && subgroups > 0) || extensions.find("_subgroups") != std::string::npos;
  std::string version, il;
  d->takes_il = opencl().create_program_with_il != nullptr && text(kIlVersion, &il) && il.find("SPIR-V") != std::string::npos;
  const bool is_3 = text(CL_DEVICE_VERSION, &version) && version.starts_with("OpenCL 3");
  d->subgroup_functions = is_3 && (subgroups > 0 || (extensions + " ").find("cl_khr_subgroups ") != std::string::npos);
  identify(d, before, extensions);
  d->compute_units = units;
  d->float_lanes = lanes;
  d->memory_bytes = memory;
  d->largest_buffer = largest;
  if (read_value(d->id, CL_DEVICE_LOCAL_MEM_SIZE, &local)) d->local_bytes = local;  // else the least that OpenCL guarantees
  d->has_compiler = compiler == CL_TRUE;
  d->usable = available == CL_TRUE && little == CL_TRUE;
  return ok;
}

void note(std::string* why, const std::string& text) {
  if (!why->empty()) *why += "; ";
  *why += text;
}

void add_platform(cl_platform_id platform, std::vector<OpenClFound>* found, std::string* why) {
  OpenClFound d;
  d.platform = platform;
  if (!read_text(opencl().get_platform_info, platform, CL_PLATFORM_NAME, &d.platform_name) ||
      !read_text(opencl().get_platform_info, platform, CL_PLATFORM_VERSION, &d.platform_version)) {
    return note(why, "a platform does not tell its name");
  }
  cl_uint count = 0;
  const cl_device_type all = CL_DEVICE_TYPE_ALL;
  cl_int code = cl_call(opencl().get_device_ids, platform, all, cl_uint{0}, static_cast<cl_device_id*>(nullptr), &count);
  std::vector<cl_device_id> ids(code == CL_SUCCESS ? count : 0);
  if (!ids.empty()) code = cl_call(opencl().get_device_ids, platform, all, count, ids.data(), static_cast<cl_uint*>(nullptr));
  if (code != CL_SUCCESS || ids.empty()) {
    const bool none = code == CL_SUCCESS || code == CL_DEVICE_NOT_FOUND;
    return note(why,
                "platform \"" + d.platform_name + "\" " + (none ? "has no device" : std::string("fails: ") + cl_error_name(code)));
  }
  for (cl_device_id id : ids) {
    d.id = id;
    if (describe(&d, *found)) {
      found->push_back(d);
    } else {
      note(why, "a device of platform \"" + d.platform_name + "\" does not tell what it is");
    }
  }
}

}  // namespace

std::vector<OpenClFound> find_opencl_devices(std::string* why) {
  std::vector<OpenClFound> found;
  why->clear();
  const OpenClApi* api = opencl_api(why);
  if (api == nullptr) return found;
  const std::lock_guard<Mutex> one(g_asking);
  cl_uint count = 0;
  cl_int code = cl_call(api->get_platform_ids, cl_uint{0}, static_cast<cl_platform_id*>(nullptr), &count);
  std::vector<cl_platform_id> platforms(code == CL_SUCCESS ? count : 0);
  if (!platforms.empty()) code = cl_call(api->get_platform_ids, count, platforms.data(), static_cast<cl_uint*>(nullptr));
  if (code != CL_SUCCESS && code != -1001) {
    *why = std::string("clGetPlatformIDs failed: ") + cl_error_name(code);
    return found;
  }
  if (platforms.empty()) {
    *why = "the OpenCL loader has no platform: no driver is installed";
    return found;
  }
  for (cl_platform_id platform : platforms) add_platform(platform, &found, why);
  return found;
}

bool describe_opencl_device(cl_device_id id, OpenClFound* found, std::string* why) {
  for (const OpenClFound& listed : find_opencl_devices(why)) {
    if (listed.id != id) continue;
    *found = listed;
    return true;
  }
  if (opencl_api(why) == nullptr) return false;
  *why = "the device does not tell what it is";
  *found = {};
  found->id = id;
  return read_value(id, CL_DEVICE_PLATFORM, &found->platform) &&
         read_text(opencl().get_platform_info, found->platform, CL_PLATFORM_NAME, &found->platform_name) &&
         read_text(opencl().get_platform_info, found->platform, CL_PLATFORM_VERSION, &found->platform_version) &&
         describe(found, {});
}

DeviceProfile opencl_profile(const OpenClFound& device) {
  DeviceProfile p;
  p.device_class = (device.type & CL_DEVICE_TYPE_GPU) != 0 ? EVN_DEVICE_CLASS_GPU
                   : device.is_cpu()                       ? EVN_DEVICE_CLASS_CPU
                                                           : EVN_DEVICE_CLASS_ACCELERATOR;
  if (device.half) p.features |= EVN_DEVICE_FP16;
  if (device.dot_product) p.features |= EVN_DEVICE_INT8_DOT;
  if (device.unified_memory) p.features |= EVN_DEVICE_UNIFIED_MEMORY;
  if (device.subgroups) p.features |= EVN_DEVICE_SUBGROUPS;
  p.largest_allocation = device.largest_buffer;
  p.identity = device.identity;
  return p;
}

const char* opencl_kind(const OpenClFound& device) {
  if (device.type & CL_DEVICE_TYPE_GPU) return "gpu";
  return device.type & CL_DEVICE_TYPE_CPU ? "cpu" : "accelerator";
}

}  // namespace evn
