#include "api/barrier.h"

namespace evn {

void require(bool condition, const char* what) {
  if (!condition) fail(EVN_ERROR_INVALID_ARGUMENT, "%s is NULL", what);
}

void write_text(const std::string& text, char* buffer, std::size_t capacity, std::size_t* size) {
  const std::size_t need = text.size() + 1;
  if (buffer == nullptr) {
    require(size != nullptr, "size");
    if (capacity != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "buffer is NULL, but capacity is %zu", capacity);
    *size = need;
    return;
  }
  if (capacity < need) {
    throw make_error(EVN_ERROR_BUFFER_TOO_SMALL, "the text has %zu bytes, the buffer %zu", need, capacity)
        .with_bytes(need, capacity);
  }
  std::memcpy(buffer, text.c_str(), need);
  if (size != nullptr) *size = need;
}

}  // namespace evn
