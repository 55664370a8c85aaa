#include "api/handles.h"

namespace evn {
namespace {

// Constant-initialized and never destroyed: zero pages until they are used, gone with the library.
HandleTable::Slot g_slots[1u << 18];

}  // namespace

constinit HandleTable g_handles(g_slots);

}  // namespace evn
