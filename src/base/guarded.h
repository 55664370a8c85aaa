// Where exceptions end: a status and the caller's evn_error come out.
#pragma once

#include <new>
#include <optional>

#include "base/error.h"
#include "base/float_environment.h"
#include "base/heap.h"

namespace evn {

// Copies an error into the caller's struct, as far as its size goes. Returns the status.
evn_status report(const Error& e, evn_error* out) noexcept;

// Error that `body` throws, or none. Lack of memory is an Error of status EVN_ERROR_OUT_OF_MEMORY, whether a pool, the memory limit
// of the heap or the system has refused the memory: code that has a fallback with less memory asks this status.
template <typename F>
std::optional<Error> error_of(F&& body) {
  try {
    body();
    return {};
  } catch (const Error& e) {
    return e;
  } catch (const HeapRefused& refused) {
    return refused.error;
  } catch (const std::bad_alloc&) {
    return make_error(EVN_ERROR_OUT_OF_MEMORY, "the system has no memory");
  }
}

// As error_of, for callers that may not throw: any other exception is an Error of status EVN_ERROR_INTERNAL.
template <typename F>
std::optional<Error> any_error_of(F&& body) noexcept {
  try {
    return error_of(body);
  } catch (...) {
    return make_error(EVN_ERROR_INTERNAL, "an unexpected exception was caught");
  }
}

// Runs `body` in the library's floating-point environment and turns exceptions into a status.
template <typename F>
evn_status guarded(evn_error* error, F&& body) noexcept {
  const LibraryFloatEnvironment floats;
  const std::optional<Error> e = any_error_of(body);
  return e ? report(*e, error) : EVN_OK;
}

}  // namespace evn
