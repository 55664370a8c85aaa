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
  full.struct_size = static_cast<std::uint32_t>(size);
  full.status = e.status;
  std::memcpy(full.message, e.message, sizeof full.message);
  std::memcpy(full.node, e.node, sizeof full.node);
  std::memcpy(full.device, e.device, sizeof full.device);
  full.bytes_requested = e.bytes_requested;
  full.bytes_available = e.bytes_available;
  std::memcpy(out, &full, std::min(size, sizeof full));
  if (size > offsetof(evn_error, message) && size < offsetof(evn_error, node)) reinterpret_cast<char*>(out)[size - 1] = '\0';
  return e.status;
}

}  // namespace evn
