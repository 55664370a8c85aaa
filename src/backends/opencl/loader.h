// The OpenCL library, opened at first use and never closed, as a table of the functions that this backend calls; and the one seam
// that every call passes. Functions that retain and release, and the one that sets a user event, do not pass it: they must not
// fail, and a test that made them would only leak, or leave a command waiting for ever.
#pragma once

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>

#include <string>

#include "base/error.h"
#include "base/fault.h"
#include "base/heap.h"
#include "base/test_access.h"

namespace evn {

struct OpenClApi {
  decltype(&::clGetPlatformIDs) get_platform_ids;
  decltype(&::clGetPlatformInfo) get_platform_info;
  decltype(&::clGetDeviceIDs) get_device_ids;
  decltype(&::clGetDeviceInfo) get_device_info;
  decltype(&::clCreateContext) create_context;
  decltype(&::clReleaseContext) release_context;
  decltype(&::clRetainContext) retain_context;
  decltype(&::clGetContextInfo) get_context_info;
  decltype(&::clCreateCommandQueue) create_command_queue;
  decltype(&::clReleaseCommandQueue) release_command_queue;
  decltype(&::clRetainCommandQueue) retain_command_queue;
  decltype(&::clGetCommandQueueInfo) get_command_queue_info;
  decltype(&::clCreateBuffer) create_buffer;
  decltype(&::clReleaseMemObject) release_mem_object;
  decltype(&::clRetainMemObject) retain_mem_object;
  decltype(&::clGetMemObjectInfo) get_mem_object_info;
  decltype(&::clCreateProgramWithSource) create_program_with_source;
  decltype(&::clCreateProgramWithBinary) create_program_with_binary;
  // Since OpenCL 2.1; nullptr where the loader does not have it.
  cl_program(CL_API_CALL* create_program_with_il)(cl_context, const void*, std::size_t, cl_int*);
  decltype(&::clBuildProgram) build_program;
  decltype(&::clGetProgramInfo) get_program_info;
  decltype(&::clGetProgramBuildInfo) get_program_build_info;
  decltype(&::clReleaseProgram) release_program;
  decltype(&::clCreateKernel) create_kernel;
  decltype(&::clSetKernelArg) set_kernel_arg;
  decltype(&::clReleaseKernel) release_kernel;
  decltype(&::clEnqueueNDRangeKernel) enqueue_nd_range_kernel;
  decltype(&::clEnqueueReadBuffer) enqueue_read_buffer;
  decltype(&::clEnqueueWriteBuffer) enqueue_write_buffer;
  decltype(&::clEnqueueCopyBuffer) enqueue_copy_buffer;
  decltype(&::clEnqueueMapBuffer) enqueue_map_buffer;
  decltype(&::clEnqueueUnmapMemObject) enqueue_unmap_mem_object;
  decltype(&::clEnqueueMarkerWithWaitList) enqueue_marker_with_wait_list;
  decltype(&::clGetEventProfilingInfo) get_event_profiling_info;
  decltype(&::clGetEventInfo) get_event_info;
  decltype(&::clSetEventCallback) set_event_callback;
  decltype(&::clWaitForEvents) wait_for_events;
  decltype(&::clCreateUserEvent) create_user_event;
  decltype(&::clSetUserEventStatus) set_user_event_status;
  decltype(&::clRetainEvent) retain_event;
  decltype(&::clReleaseEvent) release_event;
  decltype(&::clFlush) flush;
  decltype(&::clFinish) finish;
};

// Opens a library of that name and fills *api. False and *why when it cannot be opened or lacks a function.
bool open_opencl_library(const char* name, OpenClApi* api, std::string* why);

// The process's table, or nullptr and *why. A failure is not remembered: the next call tries again.
const OpenClApi* opencl_api(std::string* why);

class OpenClLibrary {
 public:
  static const OpenClApi& api() { return api_; }

 private:
  friend const OpenClApi* opencl_api(std::string* why);
  friend struct test::Access<OpenClLibrary>;
  static OpenClApi api_;
};

// The table after opencl_api has succeeded.
inline const OpenClApi& opencl() { return OpenClLibrary::api(); }

// One call that returns a code. Nothing counts what the driver allocates: where its operator new is the library's (a program that
// is linked with the library statically), a refusal would be thrown through the driver, which would keep its locks for ever.
template <typename Function, typename... Args>
cl_int cl_call(Function function, Args... args) {
  if (fault_hit(Seam::kDevice)) return CL_OUT_OF_RESOURCES;
  const HeapPause uncounted;
  return function(args...);
}

// One call that returns an object and gives its code through its last parameter.
template <typename Function, typename... Args>
auto cl_create(cl_int* code, Function function, Args... args) -> decltype(function(args..., code)) {
  if (fault_hit(Seam::kDevice)) {
    *code = CL_OUT_OF_RESOURCES;
    return nullptr;
  }
  const HeapPause uncounted;
  return function(args..., code);
}

// "CL_OUT_OF_RESOURCES"; "an unknown OpenCL error" for a number that has no name here.
const char* cl_error_name(cl_int code);

// The library's status for a code of a device that was open: out of memory, device lost, else internal.
evn_status cl_status(cl_int code);

// Throws when code is not CL_SUCCESS, naming the call, the code and the device.
void check_cl(cl_int code, const char* call, const std::string& device);

// Checks a call on an object that a host gave: EVN_ERROR_INVALID_ARGUMENT where the driver says that it is none.
void check_given(cl_int code, const char* call, const std::string& device);

// Owns one OpenCL object.
template <typename T, auto Release>
class ClObject {
 public:
  ClObject() = default;
  explicit ClObject(T object) : object_(object) {}
  ClObject(ClObject&& o) noexcept : object_(o.object_) { o.object_ = nullptr; }
  ClObject& operator=(ClObject&& o) noexcept {
    T other = o.object_;
    o.object_ = object_;
    object_ = other;
    return *this;
  }
  ~ClObject() {
    if (object_ != nullptr) (opencl().*Release)(object_);
  }
  T get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T object_ = nullptr;
};
using ClContext = ClObject<cl_context, &OpenClApi::release_context>;
using ClQueue = ClObject<cl_command_queue, &OpenClApi::release_command_queue>;
using ClMemory = ClObject<cl_mem, &OpenClApi::release_mem_object>;
using ClProgram = ClObject<cl_program, &OpenClApi::release_program>;
using ClKernel = ClObject<cl_kernel, &OpenClApi::release_kernel>;

}  // namespace evn
