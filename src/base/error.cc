#include "base/error.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace evn {
namespace {

// Copies text, escaping control bytes and DEL, cut to capacity - 1 bytes.
void copy_escaped(char* to, std::size_t capacity, const char* from) {
  static const char kHex[] = "0123456789abcdef";
  std::size_t n = 0;
  for (; *from != '\0'; ++from) {
    const auto c = static_cast<unsigned char>(*from);
    const bool control = c < 0x20 || c == 0x7f;
    const std::size_t need = control ? 4 : 1;
    if (n + need >= capacity) break;
    if (control) {
      to[n++] = '\\';
      to[n++] = 'x';
      to[n++] = kHex[c >> 4];
      to[n++] = kHex[c & 15];
    } else {
      to[n++] = static_cast<char>(c);
    }
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
