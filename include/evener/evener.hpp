// Evener for C++17 and later: owners, exceptions and views over the C API of evener.h. Header only; it needs the standard library and
// libevener, nothing else. Operators of a program's own are in operator.hpp.
//
//  Owners      Runtime, Device, Tensor, Model and Session are moved, not copied; a default-made or moved-from one is empty and may only
//              be destroyed, assigned and tested. They may be destroyed in any order. Destructors never throw.
//  Errors      Whatever fails throws evener::Error (a std::runtime_error) with the status, the node, the device and the bytes concerned.
//  Threads     As the C API: const members may be called from several threads at a time.
//  Callbacks   std::functions in options live until the last object made of the runtime has gone. An exception that one throws is
//              dropped, as nothing may be thrown through the library.
#ifndef EVENER_EVENER_HPP
#define EVENER_EVENER_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "evener.h"

#if defined(__has_include)
#if __cplusplus >= 202002L && __has_include(<span>)
#include <span>
#endif
#endif

namespace evener {

#if defined(__cpp_lib_span)
inline namespace with_std_span {  // so that units of either kind can be linked into one program
template <typename T>
using Span = std::span<T>;
#else
inline namespace with_own_span {
// A view of elements that lie one after the other: as much of std::span as is needed here.
template <typename T>
class Span {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  constexpr Span() noexcept = default;
  constexpr Span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
  template <std::size_t N>
  constexpr Span(T (&array)[N]) noexcept : data_(array), size_(N) {}
  // Of anything with data() and size(): vectors, arrays, strings, other spans.
  template <typename C, typename = std::enable_if_t<std::is_convertible_v<
                            std::remove_pointer_t<decltype(std::declval<C&>().data())> (*)[], T (*)[]>>,
            typename = decltype(std::declval<C&>().size())>
  constexpr Span(C&& container) noexcept : data_(container.data()), size_(container.size()) {}

  constexpr T* data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T& operator[](std::size_t i) const { return data_[i]; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};
#endif

// ------------------------------------------------------------------------------------------------------------ errors --

// What a failed call reports. what() is "EVN_ERROR_...: message"; the node and the device follow where there are any.
class Error : public std::runtime_error {
 public:
  explicit Error(const evn_error& e)
      : std::runtime_error(text(e)), status_(e.status), message_(std::make_shared<const evn_error>(e)) {}
  Error(evn_status status, const std::string& message) : Error(make(status, message)) {}

  evn_status status() const noexcept { return status_; }
  const char* message() const noexcept { return message_->message; }
  const char* node() const noexcept { return message_->node; }      // "" where none is concerned
  const char* device() const noexcept { return message_->device; }  // ""
  std::uint64_t bytes_requested() const noexcept { return message_->bytes_requested; }
  std::uint64_t bytes_available() const noexcept { return message_->bytes_available; }

 private:
  static std::string text(const evn_error& e) {
    std::string s = std::string(evn_status_name(e.status)) + ": " + e.message;
    if (e.node[0] != '\0') s += std::string(" (node ") + e.node + ")";
    if (e.device[0] != '\0') s += std::string(" (device ") + e.device + ")";
    return s;
  }
  static evn_error make(evn_status status, const std::string& message) {
    evn_error e = EVN_ERROR_INIT;
    e.status = status;
    message.copy(e.message, sizeof e.message - 1);
    return e;
  }

  evn_status status_;
  std::shared_ptr<const evn_error> message_;  // shared: copying an exception must not throw
};

namespace detail {

// Calls `f(evn_error*)` and throws when it does not return EVN_OK.
template <typename F>
void check(F&& f) {
  evn_error error = EVN_ERROR_INIT;
  const evn_status status = f(&error);
  if (status == EVN_OK) return;
  error.status = status;
  throw Error(error);
}

// The text that `f(buffer, capacity, size, error)` gives.
template <typename F>
std::string text(F&& f) {
  std::string out;
  for (;;) {
    std::size_t size = 0;
    check([&](evn_error* e) { return f(nullptr, std::size_t{0}, &size, e); });
    out.resize(size);
    bool grew = false;
    check([&](evn_error* e) {
      const evn_status status = f(out.data(), out.size(), &size, e);
      grew = status == EVN_ERROR_BUFFER_TOO_SMALL;
      return grew ? EVN_OK : status;
    });
    if (grew) continue;
    out.resize(size - 1);
    return out;
  }
}

// What the callbacks of a runtime need for as long as anything made of it is there.
struct Callbacks;

// Owns a handle. `Release` does nothing on an empty one and cannot throw.
template <typename T, evn_status (*Release)(T)>
class Handle {
 public:
  Handle() noexcept = default;
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, T{})) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      Release(handle_);
      handle_ = std::exchange(other.handle_, T{});
    }
    return *this;
  }
  ~Handle() { Release(handle_); }

  T get() const noexcept { return handle_; }
  T* out() noexcept { return &handle_; }

 private:
  T handle_{};
};

// An owner of one object of the library.
template <typename T, evn_status (*Release)(T)>
class Object {
 public:
  Object() noexcept = default;
  Object(Object&&) noexcept = default;
  Object& operator=(Object&& other) noexcept {
    handle_ = std::move(other.handle_);  // before its callbacks
    callbacks_ = std::move(other.callbacks_);
    return *this;
  }
  explicit operator bool() const noexcept { return handle_.get() != nullptr; }
  // The handle, for calls of the C API; it stays this object's.
  T get() const noexcept { return handle_.get(); }

 protected:
  explicit Object(std::shared_ptr<Callbacks> callbacks) noexcept : callbacks_(std::move(callbacks)) {}
  ~Object() = default;
  std::shared_ptr<Callbacks> callbacks_;  // outlives the handle: members go in reverse order
  Handle<T, Release> handle_;
};

}  // namespace detail

// ------------------------------------------------------------------------------------------------------- plain values --

enum class DType : std::int32_t {
  kUndefined = EVN_DTYPE_UNDEFINED,
  kFloat32 = EVN_DTYPE_FLOAT32,
  kUint8 = EVN_DTYPE_UINT8,
  kInt8 = EVN_DTYPE_INT8,
  kUint16 = EVN_DTYPE_UINT16,
  kInt16 = EVN_DTYPE_INT16,
  kInt32 = EVN_DTYPE_INT32,
  kInt64 = EVN_DTYPE_INT64,
  kString = EVN_DTYPE_STRING,
  kBool = EVN_DTYPE_BOOL,
  kFloat16 = EVN_DTYPE_FLOAT16,
  kFloat64 = EVN_DTYPE_FLOAT64,
  kUint32 = EVN_DTYPE_UINT32,
  kUint64 = EVN_DTYPE_UINT64,
  kComplex64 = EVN_DTYPE_COMPLEX64,
  kComplex128 = EVN_DTYPE_COMPLEX128,
  kBfloat16 = EVN_DTYPE_BFLOAT16,
  kFloat8E4M3FN = EVN_DTYPE_FLOAT8E4M3FN,
  kFloat8E4M3FNUZ = EVN_DTYPE_FLOAT8E4M3FNUZ,
  kFloat8E5M2 = EVN_DTYPE_FLOAT8E5M2,
  kFloat8E5M2FNUZ = EVN_DTYPE_FLOAT8E5M2FNUZ,
  kUint4 = EVN_DTYPE_UINT4,
  kInt4 = EVN_DTYPE_INT4,
  kFloat4E2M1 = EVN_DTYPE_FLOAT4E2M1,
  kFloat8E8M0 = EVN_DTYPE_FLOAT8E8M0,
  kUint2 = EVN_DTYPE_UINT2,
  kInt2 = EVN_DTYPE_INT2
};

// The dtype whose elements are of the C++ type T.
template <typename T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>) return DType::kFloat32;
  else if constexpr (std::is_same_v<U, double>) return DType::kFloat64;
  else if constexpr (std::is_same_v<U, bool>) return DType::kBool;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 1) return std::is_signed_v<U> ? DType::kInt8 : DType::kUint8;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 2) return std::is_signed_v<U> ? DType::kInt16 : DType::kUint16;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 4) return std::is_signed_v<U> ? DType::kInt32 : DType::kUint32;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 8) return std::is_signed_v<U> ? DType::kInt64 : DType::kUint64;
  else static_assert(sizeof(U) == 0, "no dtype has elements of this type: use bytes()");
}

// Dimensions of a tensor; a plain value. From a list, a vector, an array.
class Dims {
 public:
  Dims() noexcept = default;  // a scalar's
  Dims(std::initializer_list<std::int64_t> dims) { assign(dims.begin(), dims.size()); }
  Dims(Span<const std::int64_t> dims) { assign(dims.data(), dims.size()); }
  Dims(const std::vector<std::int64_t>& dims) { assign(dims.data(), dims.size()); }

  std::size_t size() const noexcept { return rank_; }
  std::uint32_t rank() const noexcept { return rank_; }
  const std::int64_t* data() const noexcept { return dims_.data(); }
  const std::int64_t* begin() const noexcept { return dims_.data(); }
  const std::int64_t* end() const noexcept { return dims_.data() + rank_; }
  std::int64_t operator[](std::size_t i) const { return dims_[i]; }
  friend bool operator==(const Dims& a, const Dims& b) noexcept { return a.rank_ == b.rank_ && a.dims_ == b.dims_; }
  friend bool operator!=(const Dims& a, const Dims& b) noexcept { return !(a == b); }

 private:
  void assign(const std::int64_t* dims, std::size_t count) {
    if (count > EVN_MAX_RANK) throw Error(EVN_ERROR_LIMIT, "a tensor has at most " + std::to_string(EVN_MAX_RANK) + " dimensions");
    rank_ = static_cast<std::uint32_t>(count);
    for (std::size_t i = 0; i < count; ++i) dims_[i] = dims[i];
  }

  std::array<std::int64_t, EVN_MAX_RANK> dims_{};
  std::uint32_t rank_ = 0;
};

// An input or output of a session.
struct ValueInfo {
  std::string name;
  DType dtype = DType::kUndefined;
  bool has_rank = false;             // false: the rank is known only when it runs, and dims is empty
  std::vector<std::int64_t> dims;    // -1: known only when it runs
  std::vector<std::string> symbols;  // per dim, the model's name of one that is -1, or ""
  std::string type;                  // "tensor(float32)", "seq(tensor(int64))"
};

enum class LogLevel : std::int32_t { kError = EVN_LOG_ERROR, kWarning = EVN_LOG_WARNING, kInfo = EVN_LOG_INFO, kDebug = EVN_LOG_DEBUG };

enum class Format : std::int32_t { kText = EVN_FORMAT_TEXT, kJson = EVN_FORMAT_JSON, kDot = EVN_FORMAT_DOT, kSvg = EVN_FORMAT_SVG };

enum class Access : std::uint32_t { kRead = EVN_MAP_READ, kWrite = EVN_MAP_WRITE, kReadWrite = EVN_MAP_READ | EVN_MAP_WRITE };

// Receives what happens; see evn_log_record. It must not call the library.
using LogSink = std::function<void(const evn_log_record&)>;

// Calls task(i) once for each i < count, on any threads, and returns when all have returned; see evn_parallel_for.
using ParallelFor = std::function<void(std::uint32_t count, const std::function<void(std::uint32_t)>& task)>;

// How a runtime is made. What is left alone gives the CPU with all cores this process may use, no caps.
struct RuntimeOptions {
  int thread_count = 0;                      // 0: from the configuration, else as many as this process may use
  std::string config_path;                   // a YAML file; "": none
  std::string config_text;                   // the same as text; "": none
  LogSink log;                               // empty: no log
  LogLevel log_level = LogLevel::kWarning;   // the last level that is delivered
  std::optional<std::string> cache_dir;      // of compiled OpenCL programs; "" for no cache
  std::uint64_t cpu_memory_limit_bytes = 0;  // 0: from the configuration, else none
  ParallelFor parallel_for;                  // empty: threads of the library
  evn_allocator allocator{};                 // memory of the CPU device; all zero: the system's
};

struct ModelOptions {
  std::string external_dir;  // folder of the external data of a model that comes from a buffer; "": none is allowed
};

struct SessionOptions {
  std::string device;  // of nodes that no rule places; "": the configuration's default
};

struct RunOptions {
  bool allow_copies = false;     // inputs and outputs may lie on another device than the plan has them
  std::uint64_t timeout_ns = 0;  // 0: as the configuration says
  std::uint64_t random_seed = 0; // another one makes operators that draw random numbers draw others
};

namespace detail {

struct Callbacks {
  LogSink log;
  ParallelFor parallel_for;

  static void on_log(void* user, const evn_log_record* record) noexcept {
    try {
      static_cast<Callbacks*>(user)->log(*record);
    } catch (...) {  // a log line is lost, nothing else
    }
  }
  static void on_parallel_for(void* user, std::uint32_t count, evn_task task, void* context) noexcept {
    try {
      static_cast<Callbacks*>(user)->parallel_for(count, [task, context](std::uint32_t i) { task(context, i); });
    } catch (...) {  // the library does what was left out
    }
  }
};

inline std::uint32_t dlpack_flags(bool legacy) { return legacy ? static_cast<std::uint32_t>(EVN_DLPACK_LEGACY) : 0u; }

// A C string for an optional text.
inline const char* c_str_or_null(const std::string& s) { return s.empty() ? nullptr : s.c_str(); }

}  // namespace detail

inline std::string version() { return evn_version(); }

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

  // The elements, which must be of T, to read and write. Only one map of a tensor can be there at a time.
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
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) { return evn_tensor_get_string(get(), index, b, c, s, e); });
  }
  std::vector<std::string> strings() const {
    std::size_t count = 1;
    for (const std::int64_t dim : dims()) count *= static_cast<std::size_t>(dim);
    std::vector<std::string> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(string_at(i));
    return all;
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
  friend class Session;
  friend class Value;
  explicit Tensor(std::shared_ptr<detail::Callbacks> callbacks) noexcept : Object(std::move(callbacks)) {}

  template <typename T>
  void check_dtype() const {
    const DType have = dtype();
    if (have != dtype_of<T>()) {
      throw Error(EVN_ERROR_INVALID_ARGUMENT, "the tensor has elements of dtype " + std::to_string(static_cast<int>(have)) + ", not " +
                                                  std::to_string(static_cast<int>(dtype_of<T>())));
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
  evn_memory_stats memory_stats() const {
    evn_memory_stats stats = EVN_MEMORY_STATS_INIT;
    detail::check([&](evn_error* e) { return evn_device_get_memory_stats(get(), &stats, e); });
    return stats;
  }
  void reset_memory_peak() const {
    detail::check([&](evn_error* e) { return evn_device_reset_memory_peak(get(), e); });
  }
  void trim_memory() const {
    detail::check([&](evn_error* e) { return evn_device_trim_memory(get(), e); });
  }

  // A tensor of zeros. `flags` is 0 or EVN_TENSOR_PINNED.
  Tensor tensor(DType dtype, const Dims& dims, std::uint32_t flags = 0) const {
    Tensor t(callbacks_);
    detail::check([&](evn_error* e) {
      return evn_tensor_create(get(), static_cast<evn_dtype>(dtype), dims.data(), dims.rank(), flags, t.handle_.out(), e);
    });
    return t;
  }

 private:
  friend class Runtime;
  explicit Device(std::shared_ptr<detail::Callbacks> callbacks) noexcept : Object(std::move(callbacks)) {}
};

inline Tensor Tensor::copy_to(const Device& device) const {
  Tensor t(callbacks_);
  detail::check([&](evn_error* e) { return evn_tensor_copy_to(get(), device.get(), t.handle_.out(), e); });
  return t;
}

// ------------------------------------------------------------------------------------------------------------- values --

// What a model takes or gives: a tensor, or a sequence, optional or map of tensors. Never changes.
class Value : public detail::Object<evn_value, evn_value_release> {
 public:
  Value() noexcept = default;
  // Of a tensor, whose memory it shares.
  explicit Value(const Tensor& tensor) : Object(tensor.callbacks_) {
    detail::check([&](evn_error* e) { return evn_value_from_tensor(tensor.get(), handle_.out(), e); });
  }

  // "tensor(float32)", "seq(tensor(int64))", "optional(...)", "map(string,...)"
  std::string type() const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) { return evn_value_get_type(get(), b, c, s, e); });
  }
  // The elements of a sequence, none or one of an optional, keys and values of a map.
  std::size_t size() const {
    std::uint32_t count = 0;
    detail::check([&](evn_error* e) { return evn_value_part_count(get(), &count, e); });
    return count;
  }
  Value operator[](std::size_t index) const {
    Value part(callbacks_);
    detail::check([&](evn_error* e) { return evn_value_part_at(get(), static_cast<std::uint32_t>(index), part.handle_.out(), e); });
    return part;
  }
  // Throws EVN_ERROR_INVALID_ARGUMENT when it is no tensor.
  Tensor tensor() const {
    Tensor t(callbacks_);
    detail::check([&](evn_error* e) { return evn_value_get_tensor(get(), t.handle_.out(), e); });
    return t;
  }

 private:
  friend class Runtime;
  friend class Session;
  explicit Value(std::shared_ptr<detail::Callbacks> callbacks) noexcept : Object(std::move(callbacks)) {}
};

// ------------------------------------------------------------------------------------------------- models and sessions --

class Model : public detail::Object<evn_model, evn_model_release> {
 public:
  Model() noexcept = default;

  std::string describe(Format format = Format::kText) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_model_describe(get(), static_cast<evn_format>(format), b, c, s, e);
    });
  }
  // Throws EVN_ERROR_INVALID_ARGUMENT when there is none.
  std::string metadata(const std::string& key) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_model_get_metadata(get(), key.c_str(), b, c, s, e);
    });
  }

 private:
  friend class Runtime;
  explicit Model(std::shared_ptr<detail::Callbacks> callbacks) noexcept : Object(std::move(callbacks)) {}
};

// An input by its name, for Session::run. Refers to both.
struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};

class Session : public detail::Object<evn_session, evn_session_release> {
 public:
  Session() noexcept = default;

  std::size_t input_count() const { return count(evn_session_input_count); }
  std::size_t output_count() const { return count(evn_session_output_count); }
  ValueInfo input(std::size_t index) const { return value(evn_session_get_input_info, index); }
  ValueInfo output(std::size_t index) const { return value(evn_session_get_output_info, index); }
  std::vector<ValueInfo> inputs() const { return values(evn_session_get_input_info, input_count()); }
  std::vector<ValueInfo> outputs() const { return values(evn_session_get_output_info, output_count()); }
  // The position of the input or output of that name. Throws EVN_ERROR_INVALID_ARGUMENT listing the names there are.
  std::size_t find_input(const std::string& name) const { return find(evn_session_find_input, name.c_str()); }
  std::size_t find_output(const std::string& name) const { return find(evn_session_find_output, name.c_str()); }

  // Runs the model once: inputs in the model's order, new tensors on the CPU in the model's order.
  std::vector<Tensor> run(Span<const Tensor> inputs, const RunOptions& options = {}) const {
    std::vector<Tensor> outputs(output_count());
    run(inputs, outputs, options);
    return outputs;
  }
  // Of a model with one input.
  std::vector<Tensor> run(const Tensor& input, const RunOptions& options = {}) const {
    return run(Span<const Tensor>(&input, 1), options);
  }
  // By name: session.run({{"x", x}, {"y", y}}).
  std::vector<Tensor> run(std::initializer_list<NamedTensor> inputs, const RunOptions& options = {}) const {
    std::vector<evn_tensor> in(input_count());
    for (const NamedTensor& n : inputs) in[find(evn_session_find_input, n.name)] = n.tensor.get();
    std::vector<Tensor> outputs(output_count());
    run_handles(in, outputs, options);
    return outputs;
  }
  // Into given tensors; empty ones are replaced by new tensors on the CPU. When it throws, none is replaced.
  void run(Span<const Tensor> inputs, Span<Tensor> outputs, const RunOptions& options = {}) const {
    std::vector<evn_tensor> in;
    in.reserve(inputs.size());
    for (const Tensor& t : inputs) in.push_back(t.get());
    run_handles(in, outputs, options);
  }

  // Of a model that takes or gives more than tensors.
  std::vector<Value> run_values(Span<const Value> inputs, const RunOptions& options = {}) const {
    std::vector<evn_value> in;
    for (const Value& v : inputs) in.push_back(v.get());
    std::vector<evn_value> out(output_count());
    std::vector<Value> outputs;
    outputs.reserve(out.size());
    const evn_run_options o = c_options(options);
    detail::check([&](evn_error* e) {
      return evn_session_run_values(get(), in.data(), static_cast<std::uint32_t>(in.size()), out.data(),
                                    static_cast<std::uint32_t>(out.size()), &o, e);
    });
    for (const evn_value v : out) {
      outputs.push_back(Value(callbacks_));
      *outputs.back().handle_.out() = v;
    }
    return outputs;
  }

  // Where each node runs and why.
  std::string explain(Format format = Format::kText) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_session_explain(get(), static_cast<evn_format>(format), b, c, s, e);
    });
  }
  void start_trace(std::uint32_t event_capacity) const {
    detail::check([&](evn_error* e) { return evn_session_trace_start(get(), event_capacity, e); });
  }
  void stop_trace() const {
    detail::check([&](evn_error* e) { return evn_session_trace_stop(get(), e); });
  }
  std::string trace(Format format = Format::kText) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_session_get_trace(get(), static_cast<evn_format>(format), b, c, s, e);
    });
  }

 private:
  friend class Runtime;
  explicit Session(std::shared_ptr<detail::Callbacks> callbacks) noexcept : Object(std::move(callbacks)) {}

  static evn_run_options c_options(const RunOptions& options) noexcept {
    evn_run_options o = EVN_RUN_OPTIONS_INIT;
    o.allow_copies = options.allow_copies ? 1 : 0;
    o.timeout_ns = options.timeout_ns;
    o.random_seed = options.random_seed;
    return o;
  }

  void run_handles(const std::vector<evn_tensor>& in, Span<Tensor> outputs, const RunOptions& options) const {
    std::vector<evn_tensor> out;
    out.reserve(outputs.size());
    for (const Tensor& t : outputs) out.push_back(t.get());
    const evn_run_options o = c_options(options);
    detail::check([&](evn_error* e) {
      return evn_session_run(get(), in.data(), static_cast<std::uint32_t>(in.size()), out.data(),
                             static_cast<std::uint32_t>(out.size()), &o, e);
    });
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (outputs[i]) continue;
      outputs[i].callbacks_ = callbacks_;
      *outputs[i].handle_.out() = out[i];
    }
  }

  template <typename F>
  std::size_t count(F f) const {
    std::uint32_t n = 0;
    detail::check([&](evn_error* e) { return f(get(), &n, e); });
    return n;
  }
  template <typename F>
  std::size_t find(F f, const char* name) const {
    std::uint32_t index = 0;
    detail::check([&](evn_error* e) { return f(get(), name, &index, e); });
    return index;
  }
  template <typename F>
  ValueInfo value(F f, std::size_t index) const {
    evn_value_info info = EVN_VALUE_INFO_INIT;
    detail::check([&](evn_error* e) { return f(get(), static_cast<std::uint32_t>(index), &info, e); });
    ValueInfo v;
    v.name = info.name;
    v.dtype = static_cast<DType>(info.dtype);
    v.type = info.type;
    v.has_rank = info.rank <= EVN_MAX_RANK;
    for (std::uint32_t i = 0; v.has_rank && i < info.rank; ++i) {
      v.dims.push_back(info.dims[i]);
      v.symbols.emplace_back(info.symbols[i]);
    }
    return v;
  }
  template <typename F>
  std::vector<ValueInfo> values(F f, std::size_t n) const {
    std::vector<ValueInfo> all;
    for (std::size_t i = 0; i < n; ++i) all.push_back(value(f, i));
    return all;
  }
};

// ------------------------------------------------------------------------------------------------------------ runtime --

class Runtime : public detail::Object<evn_runtime, evn_runtime_release> {
 public:
  // With the default options: the CPU, all cores.
  Runtime() : Runtime(RuntimeOptions{}) {}
  explicit Runtime(RuntimeOptions options) {
    callbacks_ = std::make_shared<detail::Callbacks>();
    callbacks_->log = std::move(options.log);
    callbacks_->parallel_for = std::move(options.parallel_for);
    evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
    o.thread_count = options.thread_count;
    o.config_path = detail::c_str_or_null(options.config_path);
    o.config_text = detail::c_str_or_null(options.config_text);
    o.config_size = options.config_text.size();
    o.log_level = static_cast<evn_log_level>(options.log_level);
    o.cache_dir = options.cache_dir ? options.cache_dir->c_str() : nullptr;
    o.cpu_memory_limit_bytes = options.cpu_memory_limit_bytes;
    if (callbacks_->log) {
      o.log_sink = detail::Callbacks::on_log;
      o.log_sink_user = callbacks_.get();
    }
    if (callbacks_->parallel_for) {
      o.parallel_for = detail::Callbacks::on_parallel_for;
      o.parallel_user = callbacks_.get();
    }
    o.allocator = options.allocator;
    detail::check([&](evn_error* e) { return evn_runtime_create(&o, handle_.out(), e); });
  }

  std::size_t device_count() const {
    std::uint32_t n = 0;
    detail::check([&](evn_error* e) { return evn_runtime_device_count(get(), &n, e); });
    return n;
  }
  // By number: 0 is the CPU.
  Device device(std::uint32_t index = 0) const {
    Device d(callbacks_);
    detail::check([&](evn_error* e) { return evn_runtime_device_at(get(), index, d.handle_.out(), e); });
    return d;
  }
  // "cpu", "gpu", "gpu:1", "opencl:0", or a name of the configuration; opens it when it was not open.
  Device device(const std::string& name) const {
    Device d(callbacks_);
    detail::check([&](evn_error* e) { return evn_runtime_device_find(get(), name.c_str(), d.handle_.out(), e); });
    return d;
  }
  Device device(const char* name) const { return device(std::string(name)); }
  std::string describe_devices(Format format = Format::kText) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_runtime_describe_devices(get(), static_cast<evn_format>(format), b, c, s, e);
    });
  }

  // A sequence, optional or map of a type such as "seq(tensor(float32))".
  Value value(const std::string& type, Span<const Value> parts) const {
    std::vector<evn_value> handles;
    for (const Value& p : parts) handles.push_back(p.get());
    Value v(callbacks_);
    detail::check([&](evn_error* e) {
      return evn_value_create(get(), type.c_str(), handles.data(), static_cast<std::uint32_t>(handles.size()), v.handle_.out(), e);
    });
    return v;
  }

  // A tensor on the CPU with a copy of the elements.
  template <typename T>
  Tensor tensor(const Dims& dims, Span<const T> elements) const {
    Tensor t = device().tensor(dtype_of<T>(), dims);
    {
      const Mapped<T> to = t.template data<T>(Access::kWrite);
      if (to.size() != elements.size()) {
        throw Error(EVN_ERROR_INVALID_ARGUMENT, "the dims give " + std::to_string(to.size()) + " elements, " +
                                                    std::to_string(elements.size()) + " are given");
      }
      if (!elements.empty()) std::memcpy(to.data(), elements.data(), elements.size() * sizeof(T));
    }
    return t;
  }
  template <typename T>
  Tensor tensor(const Dims& dims, const std::vector<T>& elements) const {
    return tensor<T>(dims, Span<const T>(elements.data(), elements.size()));
  }
  template <typename T>
  Tensor tensor(const Dims& dims, std::initializer_list<T> elements) const {
    return tensor<T>(dims, Span<const T>(elements.begin(), elements.size()));
  }
  // A tensor on the CPU over the caller's memory, without a copy: it must stay for as long as the tensor is used.
  template <typename T>
  Tensor wrap(const Dims& dims, Span<T> elements) const {
    return wrap(dtype_of<T>(), dims, elements.data(), elements.size() * sizeof(T), nullptr, nullptr);
  }
  // A tensor on the CPU that takes over the vector's memory.
  template <typename T>
  Tensor take(const Dims& dims, std::vector<T>&& elements) const {
    static_assert(!std::is_same_v<T, bool>, "vector<bool> has no bytes to hand over");
    auto owner = std::make_unique<std::vector<T>>(std::move(elements));
    Tensor t = wrap(dtype_of<T>(), dims, owner->data(), owner->size() * sizeof(T),
                    [](void* user, void*) { delete static_cast<std::vector<T>*>(user); }, owner.get());
    static_cast<void>(owner.release());  // the deleter has it now
    return t;
  }
  // Any dtype, with a deleter; see evn_tensor_wrap. When it throws, the memory stays the caller's.
  Tensor wrap(DType dtype, const Dims& dims, void* data, std::size_t size_bytes, evn_deleter deleter, void* user) const {
    Tensor t(callbacks_);
    detail::check([&](evn_error* e) {
      return evn_tensor_wrap(get(), data, size_bytes, static_cast<evn_dtype>(dtype), dims.data(), dims.rank(), deleter, user,
                             t.handle_.out(), e);
    });
    return t;
  }
  // Takes over a DLManagedTensorVersioned, or with `legacy` a DLManagedTensor; when it throws, that stays the caller's.
  Tensor from_dlpack(void* managed, bool legacy = false) const {
    Tensor t(callbacks_);
    detail::check([&](evn_error* e) {
      return evn_tensor_from_dlpack(get(), managed, detail::dlpack_flags(legacy), t.handle_.out(), e);
    });
    return t;
  }

  Model load(const std::string& path) const {
    Model m(callbacks_);
    detail::check([&](evn_error* e) { return evn_model_load_file(get(), path.c_str(), nullptr, m.handle_.out(), e); });
    return m;
  }
  // From bytes, which are copied.
  Model load(const void* data, std::size_t size, const ModelOptions& options = {}) const {
    evn_model_options o = EVN_MODEL_OPTIONS_INIT;
    o.external_dir = detail::c_str_or_null(options.external_dir);
    Model m(callbacks_);
    detail::check([&](evn_error* e) { return evn_model_load_buffer(get(), data, size, &o, m.handle_.out(), e); });
    return m;
  }

  Session session(const Model& model, const SessionOptions& options = {}) const {
    evn_session_options o = EVN_SESSION_OPTIONS_INIT;
    o.device = detail::c_str_or_null(options.device);
    Session s(callbacks_);
    detail::check([&](evn_error* e) { return evn_session_create(get(), model.get(), &o, s.handle_.out(), e); });
    return s;
  }
  Session session(const std::string& path, const SessionOptions& options = {}) const { return session(load(path), options); }

  // What a model needs, also when it cannot be loaded; `shapes` are of inputs whose dims the model leaves open.
  std::string inspect(const std::string& path, const std::map<std::string, Dims>& shapes = {}, Format format = Format::kText) const {
    std::vector<evn_input_shape> rows;
    for (const auto& [name, dims] : shapes) rows.push_back({name.c_str(), dims.data(), dims.rank(), 0});
    evn_inspect_options o = EVN_INSPECT_OPTIONS_INIT;
    o.shapes = rows.data();
    o.shape_count = static_cast<std::uint32_t>(rows.size());
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_model_inspect(get(), path.c_str(), &o, static_cast<evn_format>(format), b, c, s, e);
    });
  }
};

}  // inline namespace
}  // namespace evener
#endif
