#include "base/number_text.h"

#include <locale.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace evn {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// printf of the number at `text`, with whatever the locale puts for the point replaced by one '.'.
void normalize_point(char* text) {
  char* to = text + (*text == '-');
  for (const char* from = to; *from != '\0'; ++from) {
    if (is_digit(*from)) {
      *to++ = *from;
    } else if (to[-1] != '.') {
      *to++ = '.';
    }
  }
  *to = '\0';
}

const char* word_of(double x) {
  if (std::isnan(x)) return std::signbit(x) ? "-nan" : "nan";
  return x < 0 ? "-inf" : "inf";
}

// |x| = 0.d1 d2 ... dn * 10^(exponent + 1)
struct Decimal {
  char digits[18];
  int count;
  int exponent;
};

// |x| with `count` digits, rounded to nearest.
Decimal rounded(double x, int count) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*e", count - 1, std::fabs(x));
  Decimal d{};
  const char* p = text;
  for (; *p != 'e'; ++p) {
    if (is_digit(*p)) d.digits[d.count++] = *p;
  }
  const bool negative = p[1] == '-';
  for (p += 2; is_digit(*p); ++p) d.exponent = d.exponent * 10 + (*p - '0');
  if (negative) d.exponent = -d.exponent;
  while (d.count > 1 && d.digits[d.count - 1] == '0') --d.count;
  return d;
}

std::string scientific(const Decimal& d) {
  std::string s(1, d.digits[0]);
  if (d.count > 1) s.append(1, '.').append(d.digits + 1, static_cast<std::size_t>(d.count - 1));
  const int e = d.exponent < 0 ? -d.exponent : d.exponent;
  s.append(d.exponent < 0 ? "e-" : "e+");
  if (e < 10) s += '0';
  return s + std::to_string(e);
}

std::string plain(const Decimal& d, double x) {
  if (d.exponent >= d.count) return fixed_text(std::fabs(x), 0);  // an integer: all of its digits
  if (d.exponent < 0)
    return "0." + std::string(static_cast<std::size_t>(-d.exponent - 1), '0').append(d.digits, static_cast<std::size_t>(d.count));
  const auto whole = static_cast<std::size_t>(d.exponent) + 1;
  std::string s(d.digits, whole);
  if (static_cast<std::size_t>(d.count) > whole)
    s.append(1, '.').append(d.digits + whole, static_cast<std::size_t>(d.count) - whole);
  return s;
}

template <typename T>
std::string shortest(T x, int most_digits) {
  if (!std::isfinite(x)) return word_of(static_cast<double>(x));
  const std::string sign = std::signbit(x) ? "-" : "";
  if (x == 0) return sign + "0";
  for (int count = 1;; ++count) {
    const Decimal d = rounded(static_cast<double>(x), count);
    const std::string with_exponent = scientific(d);
    T again = 0;
    if (count < most_digits && (!parse_decimal(with_exponent, &again) || again != std::fabs(x))) continue;
    // A long way from the point the plain form is not the shorter one.
    if (d.exponent < -20 || d.exponent > 40) return sign + with_exponent;
    const std::string without = plain(d, static_cast<double>(x));
    return sign + (without.size() <= with_exponent.size() ? without : with_exponent);
  }
}

bool is_decimal(std::string_view text) {
  std::size_t at = 0;
  const auto skip_digits = [&] {
    const std::size_t first = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at - first;
  };
  std::size_t digits = skip_digits();
  if (at < text.size() && text[at] == '.') {
    ++at;
    digits += skip_digits();
  }
  if (digits == 0) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (skip_digits() == 0) return false;
  }
  return at == text.size();
}

float convert(const char* text, locale_t locale, float) { return strtof_l(text, nullptr, locale); }
double convert(const char* text, locale_t locale, double) { return strtod_l(text, nullptr, locale); }

template <typename T>
bool parse(std::string_view text, T* value) {
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);  // which the C library has: nothing is allocated
  if (c_locale == nullptr || !is_decimal(text)) return false;
  const int before = errno;
  *value = convert(std::string(text).c_str(), c_locale, T{});
  errno = before;
  return true;
}

}  // namespace

bool parse_decimal(std::string_view text, float* value) { return parse(text, value); }
bool parse_decimal(std::string_view text, double* value) { return parse(text, value); }

std::string fixed_text(double x, int digits) {
  if (!std::isfinite(x)) return word_of(x);
  char text[512];
  const int length = std::snprintf(text, sizeof text, "%.*f", digits, x);
  if (length < 0 || static_cast<std::size_t>(length) >= sizeof text) return "0";
  normalize_point(text);
  return text;
}

std::string shortest_text(float x) { return shortest(x, 9); }
std::string shortest_text(double x) { return shortest(x, 17); }

}  // namespace evn
