// Numbers as text, against std::to_chars, and in a locale with another decimal point.
#include "base/number_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <clocale>
#include <cmath>
#include <cstdio>
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

// What std::from_chars reads, and out of range what is nearest.
template <typename T>
void expect_parsed(const std::string& text) {
  T want = 0, got = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), want);
  const bool is_number = end == text.data() + text.size() && error == std::errc();
  ASSERT_EQ(parse_decimal(text, &got), is_number) << text;
  if (is_number) {
    ASSERT_EQ(got, want) << text;
  }
}

TEST(NumberText, ParsesWhatTheStandardParses) {
  for (const char* text : {"0",
                           "1",
                           "1.",
                           ".5",
                           "0.1",
                           "1e5",
                           "1E-5",
                           "1e+5",
                           "123456789012345678901234567890",
                           "9007199254740993",
                           "2.2250738585072011e-308",
                           "4.9e-324",
                           "1.7976931348623157e308",
                           "",
                           ".",
                           "e5",
                           "1e",
                           "1e+",
                           "1e5x",
                           " 1",
                           "1 ",
                           "0x10",
                           "1,5",
                           "--1",
                           "1.5.2",
                           "1e5.0",
                           "1_0"}) {
    expect_parsed<double>(text);
  }
  for (const char* text : {"16777217", "3.4028235e38", "1.1754944e-38", "0.3", ".", "1e"}) expect_parsed<float>(text);
  std::mt19937_64 random(2);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t bits = random();
    const double d = std::fabs(std::bit_cast<double>(bits));
    const float f = std::fabs(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    if (std::isfinite(d)) {
      expect_parsed<double>(standard(d));
      char text[64];
      std::snprintf(text, sizeof text, "%.*e", static_cast<int>(bits % 25), d);
      expect_parsed<double>(text);
    }
    if (std::isfinite(f)) expect_parsed<float>(standard(f));
  }
  double d = -1;
  EXPECT_TRUE(parse_decimal("1e400", &d));
  EXPECT_EQ(d, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(parse_decimal("1e-400", &d));
  EXPECT_EQ(d, 0);
  float f = -1;
  EXPECT_TRUE(parse_decimal("1e39", &f));
  EXPECT_EQ(f, std::numeric_limits<float>::infinity());
  for (const char* text : {"-1", "+1", "inf", "nan", "0x1p3"}) EXPECT_FALSE(parse_decimal(text, &d)) << text;
  std::string many(1 << 20, '1');
  many.append("e-1048576");
  EXPECT_TRUE(parse_decimal(many, &d));
  EXPECT_NEAR(d, 0.1111111111111111, 1e-15);
  errno = 7;
  EXPECT_TRUE(parse_decimal("1e400", &d));
  EXPECT_EQ(errno, 7);
}

}  // namespace
}  // namespace evn
