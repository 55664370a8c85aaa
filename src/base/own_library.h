// Keeping the library's code in memory while something runs it.
#pragma once

#include "base/library_work.h"
#include "base/os/os.h"

namespace evn {

// Reference to the shared library itself: while it lives, a host's dlclose does not unload the code that threads and objects need.
// On a thread of the library the destructor keeps the reference, because that thread still runs the library's code.
class OwnLibrary {
 public:
  OwnLibrary() noexcept : reference_(os::reference_own_library()) {}
  ~OwnLibrary() {
    if (!LibraryWork::is_here()) os::close_library(reference_);
  }
  OwnLibrary(const OwnLibrary&) = delete;
  OwnLibrary& operator=(const OwnLibrary&) = delete;

 private:
  void* const reference_;
};

}  // namespace evn
