// The barrier of the C API: nothing is thrown across it, and what a caller gives is checked here.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/guarded.h"
#include "base/text.h"

namespace evn {

void require(bool condition, const char* what);  // EVN_ERROR_INVALID_ARGUMENT "`what` is NULL"

// Reads an options struct of the client's size: what an older client does not have keeps its default from `defaults`; a larger
// struct must be zero behind what we know. Throws EVN_ERROR_INVALID_ARGUMENT, EVN_ERROR_VERSION.
template <typename T>
T read_options(const T* given, const T& defaults, std::size_t smallest) {
  T options = defaults;
  if (given == nullptr) return options;
  const std::size_t size = given->struct_size;
  if (size < smallest || size > 65536) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "struct_size is %zu, expected at least %zu", size, smallest);
  }
  // Such a size would cut a field in two: half a pointer is worse than none.
  if (size % alignof(T) != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "struct_size is %zu, no struct of any client has this size", size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) fail(EVN_ERROR_VERSION, "the client's options have %zu bytes, this library knows %zu", size, sizeof(T));
  }
  std::memcpy(static_cast<void*>(&options), given, std::min(size, sizeof(T)));
  return options;
}

// Checks an info struct before the work whose outcome is written into it. Throws EVN_ERROR_INVALID_ARGUMENT.
template <typename T>
void check_info(const T* out) {
  require(out != nullptr, "the info struct");
  const std::size_t size = out->struct_size;
  if (size < 8 || size > 65536) fail(EVN_ERROR_INVALID_ARGUMENT, "struct_size is %zu", size);
}

// Writes an info struct, as far as the client's size goes, and says in struct_size how far that was. Throws
// EVN_ERROR_INVALID_ARGUMENT.
template <typename T>
void write_info(T* out, T full) {
  check_info(out);
  const std::size_t filled = std::min<std::size_t>(out->struct_size, sizeof(T));
  full.struct_size = static_cast<std::uint32_t>(filled);
  std::memcpy(static_cast<void*>(out), &full, filled);
}

// The rule for functions that give text; see the header's conventions.
void write_text(const std::string& text, char* buffer, std::size_t capacity, std::size_t* size);

// Copies as many whole characters as fit.
template <std::size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  const std::size_t n = utf8_prefix(from, N - 1);
  std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

}  // namespace evn
