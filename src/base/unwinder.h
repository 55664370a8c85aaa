// Errors that cross between the library and a module which has a C++ runtime of its own.
#pragma once

namespace evn {

// An unwinder that has never thrown anything does not know the sizes of registers, and aborts in frames that another one has begun
// to unwind. To be called once on each side, before an error can cross.
inline void prepare_unwinder() {
  try {
    throw 0;
  } catch (int) {}
}

}  // namespace evn
