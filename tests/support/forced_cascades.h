// Which nodes run as cascades while a test runs.
#pragma once

#include "backends/cpu/cascade.h"

namespace evn::test {

template <>
struct Access<CascadeChoice> {
  static void set(CascadeUse use) { CascadeChoice::use_.store(use); }
};

// From now on; plans that exist stay as they are. The test puts kWhereItPays back.
inline void force_cascades(CascadeUse use) { Access<CascadeChoice>::set(use); }

}  // namespace evn::test
