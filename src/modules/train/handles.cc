#include "modules/train/handles.h"

#include <cstring>

namespace evn_train {
namespace {

// The device handle of the host, for the length of a call.
struct HostDevice {
  explicit HostDevice(evn_runtime runtime) { call(api().runtime_device_at, runtime, 0u, &handle); }
  ~HostDevice() { api().device_release(handle); }
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;
  evn_device handle = nullptr;
};

}  // namespace

Tensor::Tensor(evn_runtime runtime, evn_dtype dtype, const std::vector<std::int64_t>& dims) {
  const HostDevice host(runtime);
  call(api().tensor_create, host.handle, dtype, dims.data(), static_cast<std::uint32_t>(dims.size()), 0u, &handle_);
}

Tensor::Tensor(evn_tensor of, std::uint64_t first, const std::vector<std::int64_t>& dims) {
  call(api().tensor_create_view, of, first, dims.data(), static_cast<std::uint32_t>(dims.size()), &handle_);
}

void Tensor::write(const void* data, std::size_t size) {
  const Mapped mapped(*this);
  if (size > 0) std::memcpy(mapped.data(), data, size);
}

void Tensor::read(void* data, std::size_t size) const {
  const Mapped mapped(*this);
  if (size > 0) std::memcpy(data, mapped.data(), size);
}

void Tensor::zero(std::size_t size) {
  const Mapped mapped(*this);
  if (size > 0) std::memset(mapped.data(), 0, size);
}

Mapped::Mapped(const Tensor& tensor) : tensor_(tensor.get()) {
  std::size_t size = 0;
  call(api().tensor_map, tensor_, static_cast<std::uint32_t>(EVN_MAP_READ | EVN_MAP_WRITE), &data_, &size);
}

}  // namespace evn_train
