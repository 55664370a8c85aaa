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
      EXPECT_EQ(std::count(all.begin(), all.end(), isa), isa_available(isa) ? 1 : 0) << isa_name(isa);
    }
    return;
  }
  ASSERT_EQ(all.size(), 1u);
  EXPECT_STREQ(isa_name(all[0]), name);
}

}  // namespace
}  // namespace evn::conformance
