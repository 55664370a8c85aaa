// Some tests start their own program again with the name of one test. The child runs that test, whatever share of the program's
// tests this process has.
#include <gtest/gtest.h>

#include <cstdlib>

namespace evn::test {
namespace {

struct WholeChildren : testing::Environment {
  void SetUp() override {
    unsetenv("GTEST_TOTAL_SHARDS");
    unsetenv("GTEST_SHARD_INDEX");
  }
};

[[maybe_unused]] testing::Environment* const registered = testing::AddGlobalTestEnvironment(new WholeChildren);

}  // namespace
}  // namespace evn::test
