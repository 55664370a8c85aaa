#include "train/handles.h"

#include <cstring>

namespace evn_train {

evn_tensor_info info_of(evn_tensor tensor) {
  evn_tensor_info info = EVN_TENSOR_INFO_INIT;
  call(evn_tensor_get_info, tensor, &info);
  return info;
}

Tensor rows_of(evn_tensor tensor, std::size_t first, std::size_t rows) {
  const evn_tensor_info info = info_of(tensor);
  std::vector<std::int64_t> dims(info.dims, info.dims + info.rank);
  std::uint64_t row = 1;
  for (std::size_t i = 1; i < dims.size(); ++i) row *= static_cast<std::uint64_t>(dims[i]);
  dims[0] = static_cast<std::int64_t>(rows);
  return Tensor(tensor, first * row, dims);
}

Device::Device(evn_runtime runtime) { call(evn_runtime_device_at, runtime, 0u, &handle_); }

Device::Device(evn_runtime runtime, const char* name) { call(evn_runtime_device_find, runtime, name, &handle_); }

evn_device_info Device::info() const {
  evn_device_info info = EVN_DEVICE_INFO_INIT;
  call(evn_device_get_info, handle_, &info);
  return info;
}

Tensor::Tensor(const Device& device, evn_dtype dtype, const std::vector<std::int64_t>& dims, std::uint32_t flags) {
  call(evn_tensor_create, device.get(), dtype, dims.data(), static_cast<std::uint32_t>(dims.size()), flags, &handle_);
}

Tensor::Tensor(evn_runtime runtime, evn_dtype dtype, const std::vector<std::int64_t>& dims)
    : Tensor(Device(runtime), dtype, dims, 0) {}

Tensor::Tensor(evn_tensor of, std::uint64_t first, const std::vector<std::int64_t>& dims) {
  call(evn_tensor_create_view, of, first, dims.data(), static_cast<std::uint32_t>(dims.size()), &handle_);
}

void Tensor::write(const void* data, std::size_t size) {
  const Mapped mapped(*this, EVN_MAP_WRITE);
  if (size > 0) std::memcpy(mapped.data(), data, size);
}

void Tensor::read(void* data, std::size_t size) const {
  const Mapped mapped(*this, EVN_MAP_READ);
  if (size > 0) std::memcpy(data, mapped.data(), size);
}

void Tensor::zero(std::size_t size) {
  const Mapped mapped(*this, EVN_MAP_WRITE);
  if (size > 0) std::memset(mapped.data(), 0, size);
}

Mapped::Mapped(const Tensor& tensor, std::uint32_t flags) : tensor_(tensor.get()) {
  std::size_t size = 0;
  call(evn_tensor_map, tensor_, flags, &data_, &size);
}

}  // namespace evn_train
