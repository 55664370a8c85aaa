// evn_abi_layout.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "api/barrier.h"
#include "api/layouts.h"

namespace {

using namespace evn;

// Names one after the other, each with its NUL, and at the same place in the other list where they lie: no addresses that a loader
// would have to fill in. A struct's fields stand behind it.
constexpr char kNames[] =
#define EVN_STRUCT_NAME(structure) #structure "\0"
#define EVN_FIELD_NAME(structure, field) #field "\0"
    EVN_LAYOUTS(EVN_STRUCT_NAME, EVN_FIELD_NAME);
#undef EVN_STRUCT_NAME
#undef EVN_FIELD_NAME

struct Place {
  std::uint16_t is_struct : 1;
  std::uint16_t offset : 15;
  std::uint16_t size;
};

#define EVN_STRUCT_PLACE(structure) {1, 0, sizeof(structure)},
#define EVN_FIELD_PLACE(structure, field) {0, offsetof(structure, field), sizeof(structure{}.field)},
constexpr Place kPlaces[] = {EVN_LAYOUTS(EVN_STRUCT_PLACE, EVN_FIELD_PLACE)};
#undef EVN_STRUCT_PLACE
#undef EVN_FIELD_PLACE

}  // namespace

extern "C" {

evn_status evn_abi_layout(const char* structure, const char* field, size_t* offset, size_t* size, evn_error* error) {
  return guarded(error, [&] {
    require(structure != nullptr, "structure");
    require(offset != nullptr, "offset");
    require(size != nullptr, "size");
    const char* name = kNames;
    bool found = false;  // the struct: what follows are its fields
    for (const Place& place : kPlaces) {
      if (place.is_struct != 0 && found) break;
      if (place.is_struct != 0 && std::strcmp(name, structure) == 0) found = true;
      if (found && (place.is_struct != 0 ? field == nullptr : field != nullptr && std::strcmp(name, field) == 0)) {
        *offset = place.offset;
        *size = place.size;
        return;
      }
      name += std::strlen(name) + 1;
    }
    if (!found) fail(EVN_ERROR_INVALID_ARGUMENT, "this library has no struct \"%.64s\"", structure);
    fail(EVN_ERROR_INVALID_ARGUMENT, "this library's struct %.64s has no field \"%.64s\"", structure, field);
  });
}

}  // extern "C"
