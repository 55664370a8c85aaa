// What the headers of the C++ wrapper share: spans, the exception, owners of handles, and plain values (types, options). Included
// by evener.hpp.
#ifndef EVENER_CORE_HPP
#define EVENER_CORE_HPP

#include <array>
#include <chrono>
#include <complex>
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

// Units with either kind of Span can be linked into one program: all that has one in its type is in a namespace of that kind.
#if defined(__cpp_lib_span)
#define EVENER_SPANS with_std_span
#else
#define EVENER_SPANS with_own_span
#endif

inline namespace EVENER_SPANS {

#if defined(__cpp_lib_span)
template <typename T>
using Span = std::span<T>;
#else
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
  Object& operator=(Object&&) noexcept = default;
  explicit operator bool() const noexcept { return handle_.get() != nullptr; }
  // The handle, for calls of the C API; it stays this object's.
  T get() const noexcept { return handle_.get(); }

 protected:
  ~Object() = default;
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
  else if constexpr (std::is_same_v<U, std::complex<float>>) return DType::kComplex64;
  else if constexpr (std::is_same_v<U, std::complex<double>>) return DType::kComplex128;
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

enum class LogLevel : std::int32_t {
  kError = EVN_LOG_ERROR,
  kWarning = EVN_LOG_WARNING,
  kInfo = EVN_LOG_INFO,
  kDebug = EVN_LOG_DEBUG
};

enum class Format : std::int32_t {
  kText = EVN_FORMAT_TEXT,
  kJson = EVN_FORMAT_JSON,
  kDot = EVN_FORMAT_DOT,
  kSvg = EVN_FORMAT_SVG,
  kPrometheus = EVN_FORMAT_PROMETHEUS
};

enum class Access : std::uint32_t { kRead = EVN_MAP_READ, kWrite = EVN_MAP_WRITE, kReadWrite = EVN_MAP_READ | EVN_MAP_WRITE };

// Receives what happens; see evn_log_record. It must not call the library.
using LogSink = std::function<void(const evn_log_record&)>;

// Calls task(i) once for each i < count, on any threads, and returns when all have returned; see evn_parallel_for.
using ParallelFor = std::function<void(std::uint32_t count, const std::function<void(std::uint32_t)>& task)>;

// How a runtime is made. What is left alone gives the CPU with all cores this process may use, no caps.
struct RuntimeOptions {
  int thread_count = 0;                      // 0: from the configuration, else as many as this process may use
  std::string config_path;                   // a YAML file; "": none
  std::optional<std::string> config_text;    // the same as text, which must not be ""
  LogSink log;                               // empty: no log
  LogLevel log_level = LogLevel::kWarning;   // the last level that is delivered
  std::optional<std::string> cache_dir;      // of compiled OpenCL programs; "" for no cache
  std::uint64_t cpu_memory_limit_bytes = 0;  // 0: from the configuration, else none
  ParallelFor parallel_for;                  // empty: threads of the library
  evn_allocator allocator{};                 // memory of the CPU device; all zero: the system's
  std::function<void()> ended;               // called last, when the runtime and all that was made of it have gone
  std::string probe_program;           // the `evener` command, which tries drivers before they are loaded; "": as configured
  std::uint64_t probe_timeout_ns = 0;  // for each set of drivers; 0: as configured, else 5 s
};

struct ModelOptions {
  std::string external_dir;  // folder of the external data of a model that comes from a buffer; "": none is allowed
  // Folders beneath which files of external data may lie that are reached through links. A folder that does not exist allows
  // nothing.
  std::vector<std::string> allowed_roots;
  bool map_files = false;  // large tensors are used where they lie in mapped files, which nobody truncates
};

enum class Precision : std::int32_t {
  kDefault = EVN_PRECISION_DEFAULT,
  kFp32 = EVN_PRECISION_FP32,
  kBf16 = EVN_PRECISION_BF16,
  kFp16 = EVN_PRECISION_FP16,
  kAuto = EVN_PRECISION_AUTO,
};

enum class Numerics : std::int32_t {
  kDefault = EVN_NUMERICS_DEFAULT,
  kFast = EVN_NUMERICS_FAST,
  kStrict = EVN_NUMERICS_STRICT,
};

enum class Products : std::int32_t {
  kDefault = EVN_PRODUCTS_DEFAULT,
  kOwn = EVN_PRODUCTS_OWN,
  kOpenBlas = EVN_PRODUCTS_OPENBLAS,
  kClBlast = EVN_PRODUCTS_CLBLAST,
  kAuto = EVN_PRODUCTS_AUTO,
  kMeasured = EVN_PRODUCTS_MEASURED,
};

enum class MemoryPlan : std::int32_t {
  kDefault = EVN_MEMORY_PLAN_DEFAULT,
  kFast = EVN_MEMORY_PLAN_FAST,
  kSmall = EVN_MEMORY_PLAN_SMALL,
};

// Whose the memory of intermediate values is (EVN_ARENAS_...).
enum class Arenas : std::int32_t { kDefault = EVN_ARENAS_DEFAULT, kOwn = EVN_ARENAS_OWN, kShared = EVN_ARENAS_SHARED };

// When cached blocks of a device go back to the system (EVN_TRIM_...).
enum class Trim : std::int32_t { kNever = EVN_TRIM_NEVER, kIdle = EVN_TRIM_IDLE, kAlways = EVN_TRIM_ALWAYS };

enum class DeviceState : std::int32_t {
  kReady = EVN_DEVICE_READY,
  kQuarantined = EVN_DEVICE_QUARANTINED,
  kLost = EVN_DEVICE_LOST
};

// How requests are joined to batches (evn_batching_options).
struct Batching {
  std::int32_t max_batch = 8;             // rows
  std::chrono::nanoseconds max_delay{0};  // for which the first request of a batch waits for others
  std::string mask;                       // the input that says what is padding; "": none
  std::vector<std::int64_t> buckets;      // lengths that requests are filled up to
};

struct SessionOptions {
  std::string device;             // of nodes that no rule places; "": the configuration's default
  std::string cache_file;         // of packed weights; "": as the configuration says
  std::uint32_t cache_flags = 0;  // EVN_CACHE_...
  Precision precision = Precision::kDefault;  // the lowest that products may round their operands to
  std::vector<std::string> keep_fp32;         // nodes that stay float32: globs of names, or "type:Softmax"
  Numerics numerics = Numerics::kDefault;     // kStrict: no Winograd, and numbers below 2^-126 are kept
  std::vector<std::string> disabled_passes;   // left out, beside those of the configuration: names of describe_passes()
  std::int32_t concurrency = 0;   // runs that compute at a time; 0: as the configuration says, else as many as there are cores
  std::optional<Batching> batching;  // nullopt: as the configuration says
  std::uint64_t idle_arena_bytes = 0;  // of intermediate values, kept for runs to come; 0: as the configuration says, else 1 GiB
  std::uint64_t arena_limit = 0;       // of the intermediate values of a run: what does not fit is computed again; 0: none
  std::string name;               // in statistics; "": the model's file name
  Products products = Products::kDefault;  // the library that multiplies matrices
  MemoryPlan memory = MemoryPlan::kDefault;  // how much memory may be taken for speed
  Arenas arenas = Arenas::kDefault;          // whether it shares memory of intermediate values with other sessions
  std::vector<std::string> overridable;      // inputs with a default that runs are going to give
};

// Asks work that has the token to stop.
class Cancel : public detail::Object<evn_cancel, evn_cancel_release> {
 public:
  Cancel() {
    detail::check([&](evn_error* e) { return evn_cancel_create(handle_.out(), e); });
  }
  // For good. From any thread, and from a signal's handler.
  void request() const noexcept { evn_cancel_request(get()); }
};

class State;

struct RunOptions {
  bool allow_copies = false;     // inputs and outputs may lie on another device than the plan has them
  std::uint64_t timeout_ns = 0;  // 0: as the configuration says
  std::uint64_t random_seed = 0; // another one makes operators that draw random numbers draw others
  const Cancel* cancel = nullptr; // ends the run once it is requested
  std::uint64_t deadline_ns = 0;  // of CLOCK_MONOTONIC; 0: none
  std::int32_t priority = 0;      // EVN_PRIORITY_LOWEST .. EVN_PRIORITY_HIGHEST; runs of lower ones make way
  const State* state = nullptr;   // gives and takes the inputs and outputs of its pairs, which are empty Tensors here
  bool outputs_on_device = false; // new outputs lie where the plan makes them, not on the CPU
  bool overwrite_inputs = false;  // outputs that are given may be inputs
  std::vector<std::uint8_t> skipped_outputs;  // one for each output: 1: it is not wanted, and stays empty. Empty: all are wanted
};

namespace detail {

// What the callbacks of a runtime need; the runtime has it until it ends.
struct Callbacks {
  LogSink log;
  ParallelFor parallel_for;
  std::function<void()> ended;

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

// Of a runtime that has ended.
inline void release_callbacks(void* user) noexcept {
  const std::unique_ptr<Callbacks> callbacks(static_cast<Callbacks*>(user));
  if (!callbacks->ended) return;
  try {
    callbacks->ended();
  } catch (...) {  // nobody is there to be told
  }
}

inline std::uint32_t dlpack_flags(bool legacy) { return legacy ? static_cast<std::uint32_t>(EVN_DLPACK_LEGACY) : 0u; }

// Calls what a host gave for a callback; an exception ends here, and is the status and the message.
template <typename F>
evn_status guarded(evn_error* error, F&& f) noexcept {
  const auto tell = [error](std::string_view text) { error->message[text.copy(error->message, sizeof error->message - 1)] = '\0'; };
  try {
    f();
    return EVN_OK;
  } catch (const Error& e) {
    tell(e.message());
    return e.status() == EVN_OK ? static_cast<evn_status>(EVN_ERROR_INTERNAL) : e.status();
  } catch (const std::bad_alloc&) {
    return EVN_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& e) {
    tell(e.what());
  } catch (...) {
    tell("an exception of an unknown type");
  }
  return EVN_ERROR_INTERNAL;
}

// A C string for an optional text.
inline const char* c_str_or_null(const std::string& s) { return s.empty() ? nullptr : s.c_str(); }

}  // namespace detail

inline std::string version() { return evn_version(); }

}  // inline namespace
}  // namespace evener
#endif
