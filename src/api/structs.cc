// evn_..._init.
#include "api/structs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

// Makes a struct of the client's size: what both know is as in `defaults`, and what the client alone knows is zero.
void init(void* out, std::uint32_t struct_size, const void* defaults, std::size_t known) noexcept {
  if (out == nullptr || struct_size < sizeof struct_size || struct_size > 65536) return;
  const std::size_t both = std::min<std::size_t>(struct_size, known);
  std::memcpy(out, defaults, both);
  std::memset(static_cast<char*>(out) + both, 0, struct_size - both);
  std::memcpy(out, &struct_size, sizeof struct_size);  // the first field of all of them
}

}  // namespace

#define EVN_STRUCT(name, macro)                                  \
  extern "C" void name##_init(name* out, uint32_t struct_size) { \
    static_assert(offsetof(name, struct_size) == 0);             \
    static const name defaults = macro;                          \
    init(out, struct_size, &defaults, sizeof defaults);          \
  }
EVN_STRUCTS(EVN_STRUCT)
