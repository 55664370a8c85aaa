// For test programs that run once more with EVN_CPU_ISA: an instruction set that this CPU lacks skips the whole program, as does
// EVN_LONG_FORM without EVN_TEST_FULL, and no test leaves another instruction set behind.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "backends/cpu/isa.h"
#include "base/error.h"
#include "tests/support/isas.h"

namespace evn::test {

// A test that leaves another instruction set than it found fails: those behind it would run on the wrong one.
class IsaStays : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { before_ = ChosenIsa::get(); }
  void OnTestEnd(const testing::TestInfo&) override {
    EXPECT_STREQ(isa_name(ChosenIsa::get()), isa_name(before_)) << "the test forced it and left it so";
    Access<ChosenIsa>::set(before_);
  }

  Isa before_ = Isa::k_baseline;
};

// Has every test of the program watched.
struct WatchedIsa : testing::Environment {
  void SetUp() override { testing::UnitTest::GetInstance()->listeners().Append(new IsaStays); }
};

// Every test would fail with an EVN_CPU_ISA that this CPU has not.
class NamedIsa : public WatchedIsa {
 public:
  void SetUp() override {
    WatchedIsa::SetUp();
    const char* name = std::getenv("EVN_CPU_ISA");
    if (std::getenv("EVN_LONG_FORM") != nullptr && std::getenv("EVN_TEST_FULL") == nullptr) {
      GTEST_SKIP() << "set EVN_TEST_FULL=1 for one more run of everything on this instruction set";
    }
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
