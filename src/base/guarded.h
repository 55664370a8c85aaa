// Where exceptions end: a status and the caller's evn_error come out.
#pragma once

#include <cstring>
#include <new>
#include <optional>

#include "base/error.h"
#include "base/float_environment.h"
#include "base/heap.h"

namespace evn {

// Copies an error into the caller's struct, as far as its size goes. Returns the status.
evn_status report(const Error& e, evn_error* out) noexcept;

// Runs `body` in the library's floating-point environment and turns exceptions into a status. The only catch-all of the library and
// of its modules in C++.
template <typename F>
evn_status guarded(evn_error* error, F&& body) noexcept {
  const LibraryFloatEnvironment floats;
  try {
    body();
    return EVN_OK;
  } catch (const Error& e) {
    return report(e, error);
  } catch (const HeapRefused& refused) {
    return report(refused.error, error);
  } catch (const std::bad_alloc&) {
    Error e;
    e.status = EVN_ERROR_OUT_OF_MEMORY;
    std::strcpy(e.message, "the system has no memory");
    return report(e, error);
  } catch (...) {
    Error e;
    e.status = EVN_ERROR_INTERNAL;
    std::strcpy(e.message, "an unexpected exception was caught");
    return report(e, error);
  }
}

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

}  // namespace evn
