// The elements of tensors in the host's memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/library.h"

namespace evn::cli {

// Host access to a tensor's bytes.
class Map {
 public:
  Map(const Tensor& tensor, std::uint32_t flags) : tensor_(tensor.get()) {
    Call call;
    call.check(evn_tensor_map(tensor_, flags, &data_, &size_, call));
  }
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;
  ~Map() { evn_tensor_unmap(tensor_, nullptr); }
  void* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  evn_tensor tensor_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

template <typename Info>
std::vector<std::int64_t> dims_of(const Info& info) {
  return {info.dims, info.dims + std::min<std::uint32_t>(info.rank, EVN_MAX_RANK)};
}

inline evn_tensor_info tensor_info(const Tensor& tensor) {
  evn_tensor_info info = EVN_TENSOR_INFO_INIT;
  Call call;
  call.check(evn_tensor_get_info(tensor.get(), &info, call));
  return info;
}

// The elements of a tensor of strings.
inline std::vector<std::string> strings_of(const Tensor& tensor) {
  const evn_tensor_info info = tensor_info(tensor);
  std::size_t count = 1, size = 0;
  for (std::uint32_t i = 0; i < info.rank; ++i) count *= static_cast<std::size_t>(info.dims[i]);
  std::vector<std::size_t> offsets(count + 1);
  Call call;
  call.check(evn_tensor_get_strings(tensor.get(), nullptr, 0, offsets.data(), count, &size, call));
  std::string all(size, '\0');
  call.check(evn_tensor_get_strings(tensor.get(), all.data(), all.size(), offsets.data(), count, &size, call));
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) texts.push_back(all.substr(offsets[i], offsets[i + 1] - offsets[i] - 1));
  return texts;
}

}  // namespace evn::cli
