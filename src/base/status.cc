#include "base/status.h"

#include <cstddef>
#include <iterator>

namespace evn {
namespace {

constexpr const char* kNames[] = {
    "EVN_OK",
    "EVN_ERROR_INVALID_ARGUMENT",
    "EVN_ERROR_INVALID_HANDLE",
    "EVN_ERROR_INVALID_MODEL",
    "EVN_ERROR_UNSUPPORTED",
    "EVN_ERROR_LIMIT",
    "EVN_ERROR_OUT_OF_MEMORY",
    "EVN_ERROR_IO",
    "EVN_ERROR_CONFIG",
    "EVN_ERROR_DEVICE_UNAVAILABLE",
    "EVN_ERROR_DEVICE_LOST",
    "EVN_ERROR_TIMEOUT",
    "EVN_ERROR_CANCELLED",
    "EVN_ERROR_NO_THREADS",
    "EVN_ERROR_WRONG_STATE",
    "EVN_ERROR_VERSION",
    "EVN_ERROR_BUFFER_TOO_SMALL",
    "EVN_ERROR_INTERNAL",
    "EVN_ERROR_BUSY",
    "EVN_ERROR_FORKED",
};

}  // namespace

bool is_status(evn_status status) { return status >= 0 && static_cast<std::size_t>(status) < std::size(kNames); }

const char* status_name(evn_status status) { return is_status(status) ? kNames[status] : "EVN_ERROR_UNKNOWN"; }

}  // namespace evn
