// For test programs that run once more with EVN_CPU_ISA: an instruction set that this CPU lacks skips the whole program.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "backends/cpu/isa.h"
#include "base/error.h"
#include "tests/support/isas.h"

namespace evn::test {

// Every test would fail with an EVN_CPU_ISA that this CPU has not.
class NamedIsa : public testing::Environment {
 public:
  void SetUp() override {
    const char* name = std::getenv("EVN_CPU_ISA");
    for (const Isa isa : kIsas) {
      if (name == nullptr || isa_name(isa) != std::string(name)) continue;
      try {
        choose_isa(name);
      } catch (const Error& e) {
        GTEST_SKIP() << e.message;
      }
    }
  }
};

}  // namespace evn::test
