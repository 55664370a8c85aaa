// Numbers as text, against std::to_chars, and in a locale with another decimal point.
#include "base/number_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <charconv>
#include <clocale>
#include <limits>
#include <random>

namespace evn {
namespace {

template <typename T>
std::string standard(T x) {
  char text[512];
  return std::string(text, std::to_chars(text, text + sizeof text, x).ptr);
}

std::string standard_fixed(double x, int digits) {
  char text[512];
  return std::string(text, std::to_chars(text, text + sizeof text, x, std::chars_format::fixed, digits).ptr);
}

TEST(NumberText, ShortestIsWhatTheStandardWrites) {
  for (const float x :
       {0.0f, -0.0f, 1.0f, 0.1f, 1e5f, 123456.0f, 1e-5f, 0.00123f, 1e20f, 16777216.0f, 3.4028235e38f, 1e-45f, 1.17549435e-38f}) {
    EXPECT_EQ(shortest_text(x), standard(x));
    EXPECT_EQ(shortest_text(-x), standard(-x));
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t bits = random();
    const auto f = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const auto d = std::bit_cast<double>(bits);
    const double near = static_cast<double>(static_cast<std::int64_t>(bits) >> (bits & 63)) / 1024;
    if (f == f) {
      ASSERT_EQ(shortest_text(f), standard(f));
    }
    if (d == d) {
      ASSERT_EQ(shortest_text(d), standard(d));
    }
    ASSERT_EQ(shortest_text(near), standard(near));
  }
}

TEST(NumberText, FixedIsWhatTheStandardWrites) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t bits = random();
    const double x = static_cast<double>(static_cast<std::int64_t>(bits) >> (bits & 63)) / 4096;
    for (const int digits : {0, 1, 3, 6}) ASSERT_EQ(fixed_text(x, digits), standard_fixed(x, digits));
  }
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::max(), 6), standard_fixed(std::numeric_limits<double>::max(), 6));
}

TEST(NumberText, InfinityAndNanAreWords) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(shortest_text(inf), "inf");
  EXPECT_EQ(shortest_text(-std::numeric_limits<float>::infinity()), "-inf");
  EXPECT_EQ(fixed_text(inf, 3), "inf");
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::quiet_NaN(), 3), "nan");
}

TEST(NumberText, TheLocaleDoesNotMatter) {
  const char* set = nullptr;
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "ps_AF.UTF-8"}) {
    if (set == nullptr) set = std::setlocale(LC_NUMERIC, name);
  }
  if (set == nullptr) GTEST_SKIP() << "no locale with another point is installed";
  EXPECT_EQ(fixed_text(-1234.5, 2), "-1234.50");
  EXPECT_EQ(shortest_text(0.125f), "0.125");
  EXPECT_EQ(shortest_text(1.5e300), "1.5e+300");
  std::setlocale(LC_NUMERIC, "C");
}

}  // namespace
}  // namespace evn
