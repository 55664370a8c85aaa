// Which instruction-set clusters the conformance tests run on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "tests/conformance/targets.h"

namespace evn::conformance {
namespace {

// Every test here would fail with an EVN_CPU_ISA that this CPU has not: they are skipped as one.
class NamedIsa : public testing::Environment {
 public:
  void SetUp() override {
    const char* name = std::getenv("EVN_CPU_ISA");
    for (const Isa isa : test::kIsas) {
      if (name == nullptr || isa_name(isa) != std::string(name)) continue;
      try {
        choose_isa(name);
      } catch (const Error& e) {
        GTEST_SKIP() << e.message;
      }
    }
  }
};
const testing::Environment* const named_isa = testing::AddGlobalTestEnvironment(new NamedIsa);

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
