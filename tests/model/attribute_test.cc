// Copies of attributes that run out of memory.
#include "core/attribute.h"

#include <gtest/gtest.h>

#include <new>

#include "base/error.h"
#include "base/fault.h"

namespace evn {
namespace {

TEST(Attribute, ACopyThatRunsOutOfMemoryLeavesNothingBehind) {
  const std::vector<Attribute> all = {{"a name that is too long to be held in place", std::string(100, 'x')},
                                      {"ints", std::vector<std::int64_t>(50, 7)},
                                      {"strings", std::vector<std::string>(3, std::string(60, 'y'))},
                                      {"none", {}, std::string(40, 'z')}};
  int failed = 0;
  for (int k = 1;; ++k) {
    fault_arm(Seam::kAlloc, k, false);
    bool copied = true;
    try {
      const std::vector<Attribute> copy = all;
      EXPECT_EQ(copy.size(), all.size());
    } catch (const std::bad_alloc&) {
      copied = false;
    } catch (const Error&) {
      copied = false;
    }
    fault_arm(Seam::kAlloc, 0, false);
    if (copied) break;
    ++failed;
  }
  EXPECT_GE(failed, 8);
}

}  // namespace
}  // namespace evn
