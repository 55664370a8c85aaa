// Arguments for random calls of the C API: numbers at the edges of their types, memory that ends at an unreadable page, and checks
// of what a call has written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "evener/api.h"

namespace evn::fuzz {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u | 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1du;
  }
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : (next() >> 11) % n; }
  bool chance(int percent) { return below(100) < static_cast<std::uint64_t>(percent); }
  // A number at the edge of some integer type, or any.
  std::uint64_t odd();
  template <typename T, std::size_t N>
  const T& one_of(const T (&list)[N]) {
    return list[below(N)];
  }
  // `usual` mostly, else an odd number.
  template <typename T>
  T mostly(T usual, int percent = 90) {
    return chance(percent) ? usual : static_cast<T>(odd());
  }

 private:
  std::uint64_t state_;
};

// Zeroed memory of `size` bytes that ends at an unreadable page. It is used again after 64 further calls of the same thread.
char* guarded(std::size_t size);
// A copy there. Text has its NUL as the last byte.
void* guarded_copy(const void* data, std::size_t size);
const char* guarded_text(const std::string& text);

// A broken promise of the header; the first forty are printed, and the program fails in the end.
void complain(const char* what, const char* function, evn_status status);
std::uint64_t complaint_count();

// Calls a function in a floating-point environment that a host may have set, and checks that it is as it was afterwards.
class SomeEnvironment {
 public:
  SomeEnvironment(Random& random, const char* function);
  ~SomeEnvironment();
  SomeEnvironment(const SomeEnvironment&) = delete;
  SomeEnvironment& operator=(const SomeEnvironment&) = delete;

 private:
  const char* const function_;
  int rounding_, traps_;
};

// The error argument: NULL, or a struct of the right, a wrong or a later size.
class ErrorArgument {
 public:
  explicit ErrorArgument(Random& random);
  evn_error* get() const { return given_; }
  void check(const char* function, evn_status status) const;

 private:
  evn_error* given_ = nullptr;
  std::size_t size_ = 0;
  unsigned char before_[sizeof(evn_error)];
};

// Size of a struct argument: mostly the right one.
std::size_t some_struct_size(Random& random, std::size_t right);

// A struct that the library fills.
template <typename T>
class InfoArgument {
 public:
  explicit InfoArgument(Random& random) : size_(some_struct_size(random, sizeof(T))) {
    const std::size_t room = (size_ < 4 ? 8 : (size_ + 7) / 8 * 8);
    given_ = guarded(room);
    std::memset(given_, kFill, room);
    const auto size = static_cast<std::uint32_t>(size_);
    std::memcpy(given_, &size, sizeof size);
  }
  T* get() const { return reinterpret_cast<T*>(given_); }
  void check(const char* function, evn_status status) const {
    std::uint32_t filled;
    std::memcpy(&filled, given_, sizeof filled);
    if (status != EVN_OK && filled != size_) complain("an info struct was changed by a call that failed", function, status);
    if (status != EVN_OK) return;
    if (filled > size_ || filled > sizeof(T)) complain("struct_size is too large", function, status);
    for (std::size_t i = filled; i < size_; ++i) {
      if (static_cast<unsigned char>(given_[i]) != kFill)
        return complain("bytes behind struct_size were written", function, status);
    }
  }

 private:
  static constexpr unsigned char kFill = 0x5a;
  const std::size_t size_;
  char* given_;
};

// A struct that the library reads: of its size, a smaller or a larger one.
template <typename T>
const T* options_argument(Random& random, const T& options) {
  const std::size_t size = some_struct_size(random, sizeof(T));
  char* const given = guarded((size < 4 ? 8 : (size + 7) / 8 * 8));
  std::memcpy(given, &options, size < sizeof(T) ? size : sizeof(T));
  if (size > sizeof(T) && random.chance(30)) given[size - 1] = 1;
  const auto stated = static_cast<std::uint32_t>(size);
  std::memcpy(given, &stated, sizeof stated);
  return reinterpret_cast<const T*>(given);
}

// A buffer for text, and where its size goes.
class TextArgument {
 public:
  explicit TextArgument(Random& random);
  char* buffer() const { return buffer_; }
  std::size_t capacity() const { return capacity_; }
  std::size_t* size() { return asks_size_ ? &size_ : nullptr; }
  void check(const char* function, evn_status status) const;

 private:
  static constexpr std::size_t kUntouched = 0xdeadbeefcafe1234u;
  char* buffer_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t size_ = kUntouched;
  bool asks_size_;
};

// Dims, mostly few and small.
struct Dims {
  explicit Dims(Random& random);
  std::int64_t values[16];
  std::uint32_t rank;
};

}  // namespace evn::fuzz
