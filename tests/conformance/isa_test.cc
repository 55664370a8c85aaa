// Which instruction-set clusters the conformance tests run on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "tests/conformance/targets.h"
#include "tests/support/named_isa.h"

namespace evn::conformance {
namespace {

const testing::Environment* const named_isa = testing::AddGlobalTestEnvironment(new test::NamedIsa);

TEST(Isa, ConformanceRunsOnAllOrOnTheOneThatTheEnvironmentNames) {
  const char* name = std::getenv("EVN_CPU_ISA");
  const std::vector<Isa> all = isas();
  if (name == nullptr || name[0] == '\0') {
    for (const Isa isa : test::kIsas) {
      const bool is_in_share = std::ranges::count(test::available_isas(true), isa) == 1;
      EXPECT_EQ(std::ranges::count(all, isa), is_in_share ? 1 : 0) << isa_name(isa);
      if (test::shares(2) == 1) {
        EXPECT_EQ(is_in_share, isa_available(isa)) << isa_name(isa);
      }
    }
    EXPECT_TRUE(std::ranges::count(all, cpu_isa()) == 1) << "the best is in each share";
    return;
  }
  ASSERT_EQ(all.size(), 1u);
  EXPECT_STREQ(isa_name(all[0]), name);
}

}  // namespace
}  // namespace evn::conformance
