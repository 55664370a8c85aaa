#include "base/guarded.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace evn {

evn_status report(const Error& e, evn_error* out) noexcept {
  if (out == nullptr) return e.status;
  const std::size_t size = out->struct_size;
  if (size < offsetof(evn_error, message) || size > 65536) return e.status;
  evn_error full = EVN_ERROR_INIT;
  const std::size_t filled = std::min(size, sizeof full);
  full.struct_size = static_cast<std::uint32_t>(filled);
  full.status = e.status;
  std::memcpy(full.message, e.message, sizeof full.message);
  std::memcpy(full.node, e.node, sizeof full.node);
  std::memcpy(full.device, e.device, sizeof full.device);
  full.bytes_requested = e.bytes_requested;
  full.bytes_available = e.bytes_available;
  // A text that an older client's struct cuts ends within it.
  const auto cut = [&](const char* text, std::size_t bytes) {
    const auto begin = static_cast<std::size_t>(text - reinterpret_cast<const char*>(&full));
    if (filled > begin && filled < begin + bytes) reinterpret_cast<char*>(&full)[filled - 1] = '\0';
  };
  cut(full.message, sizeof full.message);
  cut(full.node, sizeof full.node);
  cut(full.device, sizeof full.device);
  std::memcpy(out, &full, filled);
  return e.status;
}

}  // namespace evn
