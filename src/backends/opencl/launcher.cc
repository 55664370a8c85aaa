#include "backends/opencl/launcher.h"

#include "backends/opencl/clblast.h"

namespace evn {

void Launcher::begin(const OpenClFunction& function) {
  kernel_ = programs_.kernel(function);
  next_ = 0;
}

void Launcher::set_bytes(std::size_t size, const void* value) {
  check_cl(cl_call(opencl().set_kernel_arg, kernel_, next_, size, value), "clSetKernelArg", device_.name());
  ++next_;
}

void Launcher::set_buffer(const Buffer& buffer) {
  const auto* memory = static_cast<const OpenClMemory*>(buffer.memory);
  const cl_mem object = memory != nullptr ? memory->buffer : nullptr;
  const cl_ulong first = buffer.offset / sizeof(float);
  EVN_CHECK(buffer.offset % sizeof(float) == 0);
  set_bytes(sizeof object, &object);
  set_bytes(sizeof first, &first);
}

void Launcher::enqueue(const OpenClFunction& function, Grid grid) {
  const std::size_t local_x = function.group != 0 ? function.group : static_cast<std::size_t>(group_items());
  const std::size_t local[3] = {local_x, 1, 1};
  const std::size_t global[3] = {align_up(static_cast<std::size_t>(grid.x), local_x), static_cast<std::size_t>(grid.y),
                                 static_cast<std::size_t>(grid.z)};
  OpenClCommand command(step_, function.name);
  const cl_int code =
      cl_call(opencl().enqueue_nd_range_kernel, step_.queue(), kernel_, cl_uint{3}, static_cast<const std::size_t*>(nullptr),
              global, local, command.wait_count(), command.waits(), command.out());
  if (code == CL_SUCCESS) return;
  // Some drivers compile a kernel when it is first enqueued.
  const bool is_of_build = code == CL_BUILD_PROGRAM_FAILURE || code == CL_INVALID_PROGRAM_EXECUTABLE;
  throw make_error(is_of_build ? status_of_build(code, "") : cl_status(code), "clEnqueueNDRangeKernel of %s failed: %s (%d)",
                   function.name, cl_error_name(code), static_cast<int>(code))
      .with_device(device_.name().c_str());
}

void Launcher::multiply(const ClBlastProduct& product, const Buffer& a, const Buffer& b, const Buffer& c) {
  EVN_CHECK(clblast_ != nullptr);
  clblast_->multiply(step_, product, a, b, c);
}

void Launcher::copy(const Buffer& from, const Buffer& to, std::size_t bytes) {
  if (bytes == 0) return;
  const cl_mem source = static_cast<const OpenClMemory*>(from.memory)->buffer;
  const cl_mem target = static_cast<const OpenClMemory*>(to.memory)->buffer;
  OpenClCommand command(step_, "clEnqueueCopyBuffer");
  check_cl(cl_call(opencl().enqueue_copy_buffer, step_.queue(), source, target, from.offset, to.offset, bytes, command.wait_count(),
                   command.waits(), command.out()),
           "clEnqueueCopyBuffer", device_.name());
}

}  // namespace evn
