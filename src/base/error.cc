#include "base/error.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/text.h"

namespace evn {
namespace {

// Copies whole UTF-8 characters, cut to capacity - 1 bytes. Control characters (C0, DEL, C1) and bytes that are no UTF-8 become
// \xNN: names come from hostile models, and messages end on terminals and in decoders.
void copy_escaped(char* to, std::size_t capacity, const char* from) {
  static const char kHex[] = "0123456789abcdef";
  std::size_t n = 0;
  for (std::string_view rest(from); !rest.empty();) {
    const std::size_t length = printable_character(rest);
    const auto c = static_cast<unsigned char>(rest[0]);
    const std::size_t take = std::max<std::size_t>(length, 1);
    if (n + (length > 0 ? take : 4) >= capacity) break;
    if (length > 0) {
      std::memcpy(to + n, rest.data(), take);
      n += take;
    } else {
      to[n++] = '\\';
      to[n++] = 'x';
      to[n++] = kHex[c >> 4];
      to[n++] = kHex[c & 15];
    }
    rest.remove_prefix(take);
  }
  to[n] = '\0';
}

Error make_error_v(evn_status status, const char* format, std::va_list args) {
  Error e;
  e.status = status;
  char raw[sizeof e.message];
  std::vsnprintf(raw, sizeof raw, format, args);
  copy_escaped(e.message, sizeof e.message, raw);
  return e;
}

}  // namespace

Error& Error::with_node(const char* name) {
  copy_escaped(node, sizeof node, name);
  return *this;
}

Error& Error::with_device(const char* name) {
  copy_escaped(device, sizeof device, name);
  return *this;
}

Error& Error::with_bytes(std::uint64_t requested, std::uint64_t available) {
  bytes_requested = requested;
  bytes_available = available;
  return *this;
}

Error make_error(evn_status status, const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  Error e = make_error_v(status, format, args);
  va_end(args);
  return e;
}

void fail(evn_status status, const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  Error e = make_error_v(status, format, args);
  va_end(args);
  throw e;
}

}  // namespace evn
