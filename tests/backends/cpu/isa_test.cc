// The instruction sets that the CPU's tests run on: each of the machine's, and once more the program with each that EVN_CPU_ISA
// names.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "backends/cpu/isa.h"
#include "tests/support/named_isa.h"

namespace evn {
namespace {

const testing::Environment* const named_isa = testing::AddGlobalTestEnvironment(new test::NamedIsa);

TEST(CpuIsa, TheEnvironmentNamesTheClusterThatRuns) {
  const char* name = std::getenv("EVN_CPU_ISA");
  const Isa expected = choose_isa(name == nullptr ? "" : name);
  EXPECT_STREQ(isa_name(cpu_isa()), isa_name(cluster_of(expected)));
}

TEST(CpuIsa, AForcedOneIsPutBackWhole) {
  for (const Isa isa : test::available_isas(true)) {
    const test::ForcedIsa outer(isa);
    { const test::ForcedIsa inner(Isa::k_baseline); }
    EXPECT_STREQ(isa_name(ChosenIsa::get()), isa_name(isa));
  }
}

}  // namespace
}  // namespace evn
