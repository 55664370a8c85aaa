// The one exception type of the library, and the ways to throw it. Statuses are the public header's own numbers, so that there
// is one list of them. An Error owns no memory: it can be thrown and copied when every allocation fails.
#pragma once

#include <cstdint>

#include "evener/evener.h"

namespace evn {

struct Error {
  evn_status status = EVN_ERROR_INTERNAL;
  char message[512] = {};
  char node[128] = {};
  char device[64] = {};
  std::uint64_t bytes_requested = 0;
  std::uint64_t bytes_available = 0;

  // Text is cut to fit and its control bytes are escaped (`\x1b`), so that a hostile name cannot steer a terminal or a log.
  Error& with_node(const char* name);
  Error& with_device(const char* name);
  Error& with_bytes(std::uint64_t requested, std::uint64_t available);
};

// printf-style; never pass floats (the locale's decimal point would show).
[[gnu::format(printf, 2, 3)]] Error make_error(evn_status status, const char* format, ...);
[[noreturn, gnu::format(printf, 2, 3)]] void fail(evn_status status, const char* format, ...);

// For what no input can cause. Throws EVN_ERROR_INTERNAL, in release builds too.
#define EVN_CHECK(condition)                                                                                \
  do {                                                                                                      \
    if (__builtin_expect(!(condition), 0)) {                                                                \
      ::evn::fail(EVN_ERROR_INTERNAL, "internal check failed: %s (%s:%d)", #condition, __FILE__, __LINE__); \
    }                                                                                                       \
  } while (0)

}  // namespace evn
