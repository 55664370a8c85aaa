// No test of this program leaves another instruction set behind than it found.
#include "tests/support/named_isa.h"

namespace evn {
namespace {

const testing::Environment* const watched_isa = testing::AddGlobalTestEnvironment(new test::WatchedIsa);

}  // namespace
}  // namespace evn
