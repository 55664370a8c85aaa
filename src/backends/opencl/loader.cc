#include "backends/opencl/loader.h"

#include <atomic>
#include <mutex>
#include <tuple>
#include <type_traits>

#include "backends/opencl/discovery.h"
#include "base/mutex.h"
#include "base/os/fork.h"
#include "base/os/os.h"

namespace evn {
namespace {

struct LoaderState {
  Mutex mutex;
  std::atomic<bool> open{false};
  OpenClApi* api = nullptr;  // once it is open
  std::uint32_t opened_in = 0;
};
constinit LoaderState g_loader;

constexpr cl_int kForked = -9998;  // no code of OpenCL's

// In a child the drivers' threads are not there, and their locks are held by nobody: whatever is called there says so.
template <typename R, typename... Args>
void refuse(R (*&slot)(Args...)) {
  slot = [](Args... args) -> R {
    if constexpr (std::is_same_v<R, cl_int>) {
      return kForked;
    } else {
      *std::get<sizeof...(Args) - 1>(std::tuple<Args...>(args...)) = kForked;
      return nullptr;
    }
  };
}

template <typename... Slots>
void refuse_all(Slots&... slots) {
  (refuse(slots), ...);
}

void refuse_calls() noexcept {
  OpenClApi& a = *g_loader.api;
  refuse_all(a.get_platform_ids, a.get_platform_info, a.get_device_ids, a.get_device_info, a.create_context, a.release_context,
             a.retain_context, a.get_context_info, a.retain_command_queue, a.get_command_queue_info, a.retain_mem_object,
             a.get_mem_object_info, a.create_command_queue, a.release_command_queue, a.create_buffer, a.release_mem_object,
             a.create_program_with_source, a.create_program_with_binary, a.create_program_with_il, a.build_program,
             a.get_program_info, a.get_program_build_info, a.release_program, a.create_kernel, a.set_kernel_arg, a.release_kernel,
             a.enqueue_nd_range_kernel, a.enqueue_read_buffer, a.enqueue_write_buffer, a.enqueue_copy_buffer, a.enqueue_map_buffer,
             a.enqueue_unmap_mem_object, a.enqueue_marker_with_wait_list, a.get_event_profiling_info, a.get_event_info,
             a.set_event_callback, a.wait_for_events, a.create_user_event, a.set_user_event_status, a.retain_event, a.release_event,
             a.flush, a.finish);
}
constinit os::ForkedChild g_child{&refuse_calls};

// nullptr, and *why, in a child.
const OpenClApi* api_unless_forked(std::string* why) {
  if (g_loader.opened_in == os::fork_generation()) return g_loader.api;
  *why = "the process was forked when it had opened OpenCL, whose drivers do not work in the child";
  return nullptr;
}

template <typename Function>
bool bind(void* library, const char* symbol, Function* slot, std::string* why) {
  void* address = os::find_symbol(library, symbol);
  if (address == nullptr) {
    *why = "it has no function ";
    *why += symbol;
    return false;
  }
  *slot = reinterpret_cast<Function>(address);
  return true;
}

bool bind_objects(void* library, OpenClApi* api, std::string* why) {
  return bind(library, "clGetPlatformIDs", &api->get_platform_ids, why) &&
         bind(library, "clGetPlatformInfo", &api->get_platform_info, why) &&
         bind(library, "clGetDeviceIDs", &api->get_device_ids, why) &&
         bind(library, "clGetDeviceInfo", &api->get_device_info, why) &&
         bind(library, "clCreateContext", &api->create_context, why) &&
         bind(library, "clReleaseContext", &api->release_context, why) &&
         bind(library, "clCreateCommandQueue", &api->create_command_queue, why) &&
         bind(library, "clReleaseCommandQueue", &api->release_command_queue, why) &&
         bind(library, "clCreateBuffer", &api->create_buffer, why) &&
         bind(library, "clReleaseMemObject", &api->release_mem_object, why) &&
         bind(library, "clRetainContext", &api->retain_context, why) &&
         bind(library, "clGetContextInfo", &api->get_context_info, why) &&
         bind(library, "clRetainCommandQueue", &api->retain_command_queue, why) &&
         bind(library, "clGetCommandQueueInfo", &api->get_command_queue_info, why) &&
         bind(library, "clRetainMemObject", &api->retain_mem_object, why) &&
         bind(library, "clGetMemObjectInfo", &api->get_mem_object_info, why);
}

bool bind_programs(void* library, OpenClApi* api, std::string* why) {
  return bind(library, "clCreateProgramWithSource", &api->create_program_with_source, why) &&
         bind(library, "clCreateProgramWithBinary", &api->create_program_with_binary, why) &&
         bind(library, "clBuildProgram", &api->build_program, why) &&
         bind(library, "clGetProgramInfo", &api->get_program_info, why) &&
         bind(library, "clGetProgramBuildInfo", &api->get_program_build_info, why) &&
         bind(library, "clReleaseProgram", &api->release_program, why) &&
         bind(library, "clCreateKernel", &api->create_kernel, why) && bind(library, "clSetKernelArg", &api->set_kernel_arg, why) &&
         bind(library, "clReleaseKernel", &api->release_kernel, why);
}

bool bind_commands(void* library, OpenClApi* api, std::string* why) {
  return bind(library, "clEnqueueNDRangeKernel", &api->enqueue_nd_range_kernel, why) &&
         bind(library, "clEnqueueReadBuffer", &api->enqueue_read_buffer, why) &&
         bind(library, "clEnqueueWriteBuffer", &api->enqueue_write_buffer, why) &&
         bind(library, "clEnqueueCopyBuffer", &api->enqueue_copy_buffer, why) &&
         bind(library, "clEnqueueMapBuffer", &api->enqueue_map_buffer, why) &&
         bind(library, "clEnqueueUnmapMemObject", &api->enqueue_unmap_mem_object, why) &&
         bind(library, "clEnqueueMarkerWithWaitList", &api->enqueue_marker_with_wait_list, why) &&
         bind(library, "clGetEventProfilingInfo", &api->get_event_profiling_info, why) &&
         bind(library, "clFlush", &api->flush, why) && bind(library, "clFinish", &api->finish, why);
}

bool bind_events(void* library, OpenClApi* api, std::string* why) {
  return bind(library, "clGetEventInfo", &api->get_event_info, why) &&
         bind(library, "clSetEventCallback", &api->set_event_callback, why) &&
         bind(library, "clWaitForEvents", &api->wait_for_events, why) &&
         bind(library, "clCreateUserEvent", &api->create_user_event, why) &&
         bind(library, "clSetUserEventStatus", &api->set_user_event_status, why) &&
         bind(library, "clRetainEvent", &api->retain_event, why) && bind(library, "clReleaseEvent", &api->release_event, why);
}

}  // namespace

bool open_opencl_library(const char* name, OpenClApi* api, std::string* why) {
  std::string reason;
  void* library = fault_hit(Seam::kDevice) ? nullptr : os::open_library(name, &reason);
  if (library == nullptr) {
    *why = std::string(name) + " cannot be opened: " + (reason.empty() ? "the system refused" : reason);
    return false;
  }
  std::string older;  // a loader of before OpenCL 2.1
  if (!bind(library, "clCreateProgramWithIL", &api->create_program_with_il, &older)) api->create_program_with_il = nullptr;
  if (bind_objects(library, api, &reason) && bind_programs(library, api, &reason) && bind_commands(library, api, &reason) &&
      bind_events(library, api, &reason))
    return true;
  os::close_library(library);
  *why = std::string(name) + " is no OpenCL library: " + reason;
  return false;
}

constinit OpenClApi OpenClLibrary::api_{};

const OpenClApi* opencl_api(std::string* why) {
  if (g_loader.open.load(std::memory_order_acquire)) return api_unless_forked(why);
  const std::lock_guard<Mutex> lock(g_loader.mutex);
  if (g_loader.open.load(std::memory_order_relaxed)) return api_unless_forked(why);
  if (!open_opencl_library("libOpenCL.so.1", &OpenClLibrary::api_, why)) return nullptr;
  g_loader.api = &OpenClLibrary::api_;
  g_loader.opened_in = os::fork_generation();
  os::call_in_children(g_child);
  g_loader.open.store(true, std::memory_order_release);
  return &OpenClLibrary::api_;
}

bool opencl_is_forked() { return g_loader.open.load(std::memory_order_acquire) && g_loader.opened_in != os::fork_generation(); }

const char* cl_error_name(cl_int code) {
  switch (code) {
    case CL_SUCCESS: return "CL_SUCCESS";
    case CL_DEVICE_NOT_FOUND: return "CL_DEVICE_NOT_FOUND";
    case CL_DEVICE_NOT_AVAILABLE: return "CL_DEVICE_NOT_AVAILABLE";
    case CL_COMPILER_NOT_AVAILABLE: return "CL_COMPILER_NOT_AVAILABLE";
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: return "CL_MEM_OBJECT_ALLOCATION_FAILURE";
    case CL_OUT_OF_RESOURCES: return "CL_OUT_OF_RESOURCES";
    case CL_OUT_OF_HOST_MEMORY: return "CL_OUT_OF_HOST_MEMORY";
    case CL_MEM_COPY_OVERLAP: return "CL_MEM_COPY_OVERLAP";
    case CL_BUILD_PROGRAM_FAILURE: return "CL_BUILD_PROGRAM_FAILURE";
    case CL_MAP_FAILURE: return "CL_MAP_FAILURE";
    case CL_MISALIGNED_SUB_BUFFER_OFFSET: return "CL_MISALIGNED_SUB_BUFFER_OFFSET";
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: return "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST";
    case CL_INVALID_VALUE: return "CL_INVALID_VALUE";
    case CL_INVALID_PLATFORM: return "CL_INVALID_PLATFORM";
    case CL_INVALID_DEVICE: return "CL_INVALID_DEVICE";
    case CL_INVALID_CONTEXT: return "CL_INVALID_CONTEXT";
    case CL_INVALID_COMMAND_QUEUE: return "CL_INVALID_COMMAND_QUEUE";
    case CL_INVALID_HOST_PTR: return "CL_INVALID_HOST_PTR";
    case CL_INVALID_MEM_OBJECT: return "CL_INVALID_MEM_OBJECT";
    case CL_INVALID_BINARY: return "CL_INVALID_BINARY";
    case CL_INVALID_BUILD_OPTIONS: return "CL_INVALID_BUILD_OPTIONS";
    case CL_INVALID_PROGRAM: return "CL_INVALID_PROGRAM";
    case CL_INVALID_PROGRAM_EXECUTABLE: return "CL_INVALID_PROGRAM_EXECUTABLE";
    case CL_INVALID_KERNEL_NAME: return "CL_INVALID_KERNEL_NAME";
    case CL_INVALID_KERNEL: return "CL_INVALID_KERNEL";
    case CL_INVALID_ARG_INDEX: return "CL_INVALID_ARG_INDEX";
    case CL_INVALID_ARG_VALUE: return "CL_INVALID_ARG_VALUE";
    case CL_INVALID_ARG_SIZE: return "CL_INVALID_ARG_SIZE";
    case CL_INVALID_KERNEL_ARGS: return "CL_INVALID_KERNEL_ARGS";
    case CL_INVALID_WORK_DIMENSION: return "CL_INVALID_WORK_DIMENSION";
    case CL_INVALID_WORK_GROUP_SIZE: return "CL_INVALID_WORK_GROUP_SIZE";
    case CL_INVALID_WORK_ITEM_SIZE: return "CL_INVALID_WORK_ITEM_SIZE";
    case CL_INVALID_GLOBAL_OFFSET: return "CL_INVALID_GLOBAL_OFFSET";
    case CL_INVALID_EVENT: return "CL_INVALID_EVENT";
    case CL_INVALID_OPERATION: return "CL_INVALID_OPERATION";
    case CL_INVALID_BUFFER_SIZE: return "CL_INVALID_BUFFER_SIZE";
    case CL_INVALID_GLOBAL_WORK_SIZE: return "CL_INVALID_GLOBAL_WORK_SIZE";
    case kForked: return "the process has forked";
    case -1001: return "CL_PLATFORM_NOT_FOUND_KHR";
    default: return "an unknown OpenCL error";
  }
}

evn_status cl_status(cl_int code) {
  switch (code) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY: return EVN_ERROR_OUT_OF_MEMORY;
    case CL_OUT_OF_RESOURCES:
    case CL_DEVICE_NOT_AVAILABLE:
    case CL_INVALID_COMMAND_QUEUE:
    case CL_INVALID_CONTEXT:
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST:
    case -9999: return EVN_ERROR_DEVICE_LOST;  // some drivers' code for a kernel that was stopped
    case kForked: return EVN_ERROR_FORKED;
    default: return EVN_ERROR_INTERNAL;
  }
}

void check_cl(cl_int code, const char* call, const std::string& device) {
  if (code == CL_SUCCESS) return;
  throw make_error(cl_status(code), "%s failed: %s (%d)", call, cl_error_name(code), static_cast<int>(code))
      .with_device(device.c_str());
}

void check_given(cl_int code, const char* call, const std::string& device) {
  switch (code) {
    case CL_INVALID_CONTEXT:
    case CL_INVALID_DEVICE:
    case CL_INVALID_COMMAND_QUEUE:
    case CL_INVALID_MEM_OBJECT:
    case CL_INVALID_EVENT:
    case CL_INVALID_PLATFORM:
      throw make_error(EVN_ERROR_INVALID_ARGUMENT, "%s failed for what the host gave: %s (%d)", call, cl_error_name(code),
                       static_cast<int>(code))
          .with_device(device.c_str());
    default: check_cl(code, call, device);
  }
}

}  // namespace evn
