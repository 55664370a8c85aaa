#include "base/status.h"

#include <cstdint>

namespace evn {

const char* status_name(evn_status status) {
  static const char* const kNames[] = {
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
  const auto i = static_cast<std::uint32_t>(status);
  return i < sizeof kNames / sizeof kNames[0] ? kNames[i] : "EVN_ERROR_UNKNOWN";
}

}  // namespace evn
