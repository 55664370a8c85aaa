#include "backends/opencl/discovery.h"

namespace evn {
namespace {

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

bool describe(OpenClFound* d) {
  const auto text = [&](cl_device_info what, std::string* out) { return read_text(opencl().get_device_info, d->id, what, out); };
  cl_uint units = 1, lanes = 1;
  cl_ulong memory = 0, largest = 0;
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
  d->compute_units = units;
  d->float_lanes = lanes;
  d->memory_bytes = memory;
  d->largest_buffer = largest;
  d->usable = available == CL_TRUE && compiler == CL_TRUE && little == CL_TRUE;
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
    if (describe(&d)) {
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

const char* opencl_kind(const OpenClFound& device) {
  if (device.type & CL_DEVICE_TYPE_GPU) return "gpu";
  return device.type & CL_DEVICE_TYPE_CPU ? "cpu" : "accelerator";
}

}  // namespace evn
