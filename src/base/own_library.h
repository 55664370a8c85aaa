// Keeping the library's code in memory.
#pragma once

#include "base/os/os.h"

namespace evn {

// From the first call on the shared library stays loaded until the process ends: a host's dlclose unloads neither the code that
// threads and objects need nor that which returns to a host from the release of the last of them.
inline void keep_own_library_loaded() noexcept { [[maybe_unused]] static void* const reference = os::reference_own_library(); }

}  // namespace evn
