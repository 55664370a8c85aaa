// Owners of the library's handles.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "train/library.h"

namespace evn_train {

// A device of the runtime.
class Device {
 public:
  explicit Device(evn_runtime runtime);  // the host
  Device(evn_runtime runtime, const char* name);
  ~Device() { evn_device_release(handle_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  evn_device get() const { return handle_; }
  evn_device_info info() const;
  bool is_host() const { return info().kind == EVN_DEVICE_CPU; }

 private:
  evn_device handle_ = nullptr;
};

class Tensor {
 public:
  Tensor() = default;
  Tensor(const Device& device, evn_dtype dtype, const std::vector<std::int64_t>& dims, std::uint32_t flags);
  // On the host.
  Tensor(evn_runtime runtime, evn_dtype dtype, const std::vector<std::int64_t>& dims);
  // A view of a part of another one, from element `first` on.
  Tensor(evn_tensor of, std::uint64_t first, const std::vector<std::int64_t>& dims);
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) evn_tensor_release(handle_);
  }
  evn_tensor get() const { return handle_; }
  evn_tensor release() { return std::exchange(handle_, nullptr); }

  void write(const void* data, std::size_t size);
  void read(void* data, std::size_t size) const;
  template <typename T>
  T scalar() const {
    T value{};
    read(&value, sizeof value);
    return value;
  }
  void zero(std::size_t size);

 private:
  evn_tensor handle_ = nullptr;
};

// What the library says of a tensor.
evn_tensor_info info_of(evn_tensor tensor);

// View of rows [first, first + rows) of a tensor of rank 1 or more.
Tensor rows_of(evn_tensor tensor, std::size_t first, std::size_t rows);

inline void append(std::vector<evn_tensor>* handles, const std::vector<Tensor>& tensors) {
  for (const Tensor& t : tensors) handles->push_back(t.get());
}

// The bytes of a tensor on the host, for as long as this lives.
class Mapped {
 public:
  explicit Mapped(const Tensor& tensor, std::uint32_t flags = EVN_MAP_READ | EVN_MAP_WRITE);
  ~Mapped() { evn_tensor_unmap(tensor_, nullptr); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  void* data() const { return data_; }

 private:
  evn_tensor tensor_;
  void* data_ = nullptr;
};

class Session {
 public:
  Session() = default;
  explicit Session(evn_session handle) : handle_(handle) {}
  Session(Session&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Session& operator=(Session&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Session() {
    if (handle_ != nullptr) evn_session_release(handle_);
  }
  evn_session get() const { return handle_; }

 private:
  evn_session handle_ = nullptr;
};

class Queue {
 public:
  Queue() = default;
  ~Queue() {
    if (handle_ != nullptr) evn_queue_release(handle_);
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  evn_queue get() const { return handle_; }
  evn_queue* out() { return &handle_; }

 private:
  evn_queue handle_ = nullptr;
};

class Model {
 public:
  Model() = default;
  ~Model() {
    if (handle_ != nullptr) evn_model_release(handle_);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  evn_model get() const { return handle_; }
  evn_model* out() { return &handle_; }
  evn_model release() { return std::exchange(handle_, nullptr); }

 private:
  evn_model handle_ = nullptr;
};

}  // namespace evn_train
