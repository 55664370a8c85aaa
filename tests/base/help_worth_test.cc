// When short runs go on without helpers, for times that are told.
#include "base/help_worth.h"

#include <gtest/gtest.h>

namespace evn {
namespace {

constexpr std::uint64_t kUs = 1000;

int alone_of(HelpWorth& worth, int runs, std::uint64_t run_ns, std::uint64_t saved_ns) {
  int alone = 0;
  for (int i = 0; i < runs; ++i) {
    if (worth.begin_alone()) ++alone;
    else worth.note(run_ns, saved_ns);
  }
  return alone;
}

TEST(HelpWorth, ShortRunsThatHelpersDoNotShortenGoOnAlone) {
  HelpWorth worth;
  EXPECT_GT(alone_of(worth, 10'000, 60 * kUs, kUs), 9'000);
}

TEST(HelpWorth, ShortRunsThatAreShortenedAreHelped) {
  HelpWorth worth;
  EXPECT_EQ(alone_of(worth, 10'000, 60 * kUs, 20 * kUs), 0);
}

TEST(HelpWorth, LongRunsAreHelpedWhateverIsSaved) {
  HelpWorth worth;
  EXPECT_EQ(alone_of(worth, 10'000, scheduling::kShortRunNs, 0), 0);
}

TEST(HelpWorth, ItIsMeasuredAgain) {
  HelpWorth worth;
  alone_of(worth, 10'000, 60 * kUs, 0);
  alone_of(worth, 2'000, 60 * kUs, 30 * kUs);
  EXPECT_EQ(alone_of(worth, 10'000, 60 * kUs, 30 * kUs), 0);
}

}  // namespace
}  // namespace evn
