// Tensors, the devices that they lie on, and values that are made of them. Included by evener.hpp.
#ifndef EVENER_TENSOR_HPP
#define EVENER_TENSOR_HPP

#include "core.hpp"

namespace evener {
inline namespace EVENER_SPANS {

// ------------------------------------------------------------------------------------------------------------ tensors --

// Host access to a tensor's elements for as long as it lives. The tensor must outlive it.
template <typename T>
class Mapped {
 public:
  Mapped(Mapped&& other) noexcept
      : tensor_(std::exchange(other.tensor_, nullptr)), data_(other.data_), size_(other.size_) {}
  Mapped& operator=(Mapped&&) = delete;
  ~Mapped() {
    if (tensor_ != nullptr) evn_tensor_unmap(tensor_, nullptr);
  }

  // Ends the map now, and says when what was written cannot be brought to the device.
  void unmap() {
    if (evn_tensor t = std::exchange(tensor_, nullptr)) detail::check([&](evn_error* e) { return evn_tensor_unmap(t, e); });
  }

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T& operator[](std::size_t i) const { return data_[i]; }
  T* begin() const noexcept { return data_; }
  T* end() const noexcept { return data_ + size_; }
  Span<T> span() const noexcept { return Span<T>(data_, size_); }

 private:
  friend class Tensor;
  Mapped(evn_tensor tensor, Access access) {
    void* bytes = nullptr;
    std::size_t size = 0;
    detail::check([&](evn_error* e) { return evn_tensor_map(tensor, static_cast<std::uint32_t>(access), &bytes, &size, e); });
    tensor_ = tensor;
    data_ = static_cast<T*>(bytes);
    size_ = size / sizeof(T);
  }

  evn_tensor tensor_ = nullptr;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

class Device;
class Quantizer;
class Trainer;
struct OpenCl;

class Tensor : public detail::Object<evn_tensor, evn_tensor_release> {
 public:
  Tensor() noexcept = default;

  evn_tensor_info info() const {
    evn_tensor_info info = EVN_TENSOR_INFO_INIT;
    detail::check([&](evn_error* e) { return evn_tensor_get_info(get(), &info, e); });
    return info;
  }
  DType dtype() const { return static_cast<DType>(info().dtype); }
  Dims dims() const {
    const evn_tensor_info i = info();
    return Dims(Span<const std::int64_t>(i.dims, i.rank));
  }
  std::size_t size_bytes() const { return static_cast<std::size_t>(info().size_bytes); }
  std::string device() const { return info().device; }
  bool read_only() const { return (info().flags & EVN_TENSOR_READ_ONLY) != 0; }

  // The elements, which must be of T, to read and write. Any number of maps to read can be there at a time, or one that writes.
  template <typename T>
  Mapped<T> data(Access access = Access::kReadWrite) {
    check_dtype<T>();
    return Mapped<T>(get(), access);
  }
  // To read.
  template <typename T>
  Mapped<const T> data() const {
    check_dtype<T>();
    return Mapped<const T>(get(), Access::kRead);
  }
  // The bytes of any dtype.
  Mapped<std::byte> bytes(Access access = Access::kReadWrite) { return Mapped<std::byte>(get(), access); }
  Mapped<const std::byte> bytes() const { return Mapped<const std::byte>(get(), Access::kRead); }

  template <typename T>
  std::vector<T> to_vector() const {
    const Mapped<const T> from = data<T>();
    return std::vector<T>(from.begin(), from.end());
  }

  // All elements of a tensor of DType::kString, in row-major order.
  void set_strings(Span<const std::string> strings) {
    std::vector<const char*> data;
    std::vector<std::size_t> sizes;
    for (const std::string& s : strings) {
      data.push_back(s.data());
      sizes.push_back(s.size());
    }
    detail::check([&](evn_error* e) { return evn_tensor_set_strings(get(), data.data(), sizes.data(), data.size(), e); });
  }
  std::string string_at(std::size_t index) const {
    return detail::text(
        [&](char* b, std::size_t c, std::size_t* s, evn_error* e) { return evn_tensor_get_string(get(), index, b, c, s, e); });
  }
  std::vector<std::string> strings() const {
    std::size_t count = 1, size = 0;
    for (const std::int64_t dim : dims()) count *= static_cast<std::size_t>(dim);
    std::vector<std::size_t> begins(count + 1);
    std::string text;
    evn_status status = EVN_ERROR_BUFFER_TOO_SMALL;
    while (status == EVN_ERROR_BUFFER_TOO_SMALL) {  // others may set longer ones meanwhile
      detail::check([&](evn_error* e) { return evn_tensor_get_strings(get(), nullptr, 0, nullptr, count, &size, e); });
      text.resize(size);
      detail::check([&](evn_error* e) {
        status = evn_tensor_get_strings(get(), &text[0], size, begins.data(), count, nullptr, e);
        return status == EVN_ERROR_BUFFER_TOO_SMALL ? EVN_OK : status;
      });
    }
    std::vector<std::string> all;
    all.reserve(count);
    for (std::size_t i = 0; i < count; ++i) all.push_back(text.substr(begins[i], begins[i + 1] - begins[i] - 1));
    return all;
  }

  // A tensor over a part of this one's memory, which it keeps: elements from number `first` on, in row-major order, seen with dims
  // of their own.
  Tensor view(std::uint64_t first, const Dims& dims) const {
    Tensor t;
    detail::check([&](evn_error* e) { return evn_tensor_create_view(get(), first, dims.data(), dims.rank(), t.handle_.out(), e); });
    return t;
  }

  // Copies all bytes into a tensor of the same dtype and dims.
  void copy_to(Tensor& target) const {
    detail::check([&](evn_error* e) { return evn_tensor_copy(get(), target.get(), e); });
  }
  // Makes a tensor with the same elements on a device.
  Tensor copy_to(const Device& device) const;

  // A DLManagedTensorVersioned, or with `legacy` a DLManagedTensor, over the same memory; whoever takes it calls its deleter.
  void* to_dlpack(bool legacy = false) const {
    void* managed = nullptr;
    detail::check([&](evn_error* e) { return evn_tensor_to_dlpack(get(), detail::dlpack_flags(legacy), &managed, e); });
    return managed;
  }

 private:
  friend class Device;
  friend class Runtime;
  friend class Request;
  friend struct OpenCl;
  friend class Quantizer;
  friend class Trainer;
  friend class Session;
  friend class Value;

  template <typename T>
  void check_dtype() const {
    const DType have = dtype();
    if (have != dtype_of<T>()) {
      throw Error(EVN_ERROR_INVALID_ARGUMENT, "the tensor has elements of dtype " + std::to_string(static_cast<int>(have)) +
                                                  ", not " + std::to_string(static_cast<int>(dtype_of<T>())));
    }
  }
};

// ------------------------------------------------------------------------------------------------------------ devices --

class Device : public detail::Object<evn_device, evn_device_release> {
 public:
  Device() noexcept = default;

  evn_device_info info() const {
    evn_device_info info = EVN_DEVICE_INFO_INIT;
    detail::check([&](evn_error* e) { return evn_device_get_info(get(), &info, e); });
    return info;
  }
  std::string name() const { return info().name; }
  // What it is, and what drives it: whole, where `info` cuts them.
  std::string description() const {
    return detail::text(
        [&](char* b, std::size_t c, std::size_t* s, evn_error* e) { return evn_device_description(get(), b, c, s, e); });
  }
  std::string driver() const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) { return evn_device_driver(get(), b, c, s, e); });
  }
  // Whether it has all of these: EVN_DEVICE_FP16 | ...
  bool has(std::uint32_t features) const { return (info().features & features) == features; }
  evn_memory_stats memory_stats() const {
    evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
    detail::check([&](evn_error* e) { return evn_device_get_memory_stats(get(), &stats, e); });
    return stats;
  }
  void reset_memory_peak() const {
    detail::check([&](evn_error* e) { return evn_device_reset_memory_peak(get(), e); });
  }
  // UINT64_MAX: none.
  void set_memory_limit(std::uint64_t limit_bytes) const {
    detail::check([&](evn_error* e) { return evn_device_set_memory_limit(get(), limit_bytes, e); });
  }
  // Gives cached blocks, and what sessions keep for runs to come, back to the system.
  void trim_memory() const {
    detail::check([&](evn_error* e) { return evn_device_trim_memory(get(), e); });
  }

  // What the pool keeps of blocks that nobody uses, and until when. UINT64_MAX: all that the memory limit has room for.
  void set_cache_policy(std::uint64_t cache_limit_bytes, Trim trim = Trim::kNever) const {
    detail::check(
        [&](evn_error* e) { return evn_device_set_cache_policy(get(), cache_limit_bytes, static_cast<evn_trim>(trim), e); });
  }
  // Whether it can be used now, and why not: "" where it is ready.
  DeviceState state() const { return static_cast<DeviceState>(info().state); }
  std::string condition() const {
    return detail::text(
        [&](char* b, std::size_t c, std::size_t* s, evn_error* e) { return evn_device_condition(get(), b, c, s, e); });
  }

  // A tensor of zeros. `flags` is 0 or EVN_TENSOR_PINNED.
  Tensor tensor(DType dtype, const Dims& dims, std::uint32_t flags = 0) const {
    Tensor t;
    detail::check([&](evn_error* e) {
      return evn_tensor_create(get(), static_cast<evn_dtype>(dtype), dims.data(), dims.rank(), flags, t.handle_.out(), e);
    });
    return t;
  }

 private:
  friend class Runtime;
  friend struct OpenCl;
};

inline Tensor Tensor::copy_to(const Device& device) const {
  Tensor t;
  detail::check([&](evn_error* e) { return evn_tensor_copy_to(get(), device.get(), t.handle_.out(), e); });
  return t;
}

// ------------------------------------------------------------------------------------------------------------- values --

// What a model takes or gives: a tensor, or a sequence, optional or map of tensors. Never changes.
class Value : public detail::Object<evn_value, evn_value_release> {
 public:
  Value() noexcept = default;
  // Of a tensor, whose memory it shares.
  explicit Value(const Tensor& tensor) {
    detail::check([&](evn_error* e) { return evn_value_from_tensor(tensor.get(), handle_.out(), e); });
  }

  // "tensor(float32)", "seq(tensor(int64))", "optional(...)", "map(string,...)"
  std::string type() const {
    return detail::text(
        [&](char* b, std::size_t c, std::size_t* s, evn_error* e) { return evn_value_get_type(get(), b, c, s, e); });
  }
  // The elements of a sequence, none or one of an optional, keys and values of a map.
  std::size_t size() const {
    std::uint32_t count = 0;
    detail::check([&](evn_error* e) { return evn_value_part_count(get(), &count, e); });
    return count;
  }
  Value operator[](std::size_t index) const {
    Value part;
    detail::check([&](evn_error* e) { return evn_value_part_at(get(), static_cast<std::uint32_t>(index), part.handle_.out(), e); });
    return part;
  }
  // Throws EVN_ERROR_INVALID_ARGUMENT when it is no tensor.
  Tensor tensor() const {
    Tensor t;
    detail::check([&](evn_error* e) { return evn_value_get_tensor(get(), t.handle_.out(), e); });
    return t;
  }

 private:
  friend class Request;
  friend class Runtime;
  friend class Session;
};

}  // inline namespace
}  // namespace evener
#endif
