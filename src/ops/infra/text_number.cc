#include "ops/infra/text_number.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "base/error.h"

namespace evn {
namespace {

bool same_letters(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

[[noreturn]] void fail_text(std::string_view text) {
  fail(EVN_ERROR_INVALID_ARGUMENT, "\"%.64s\" is no number", std::string(text.substr(0, 64)).c_str());
}

}  // namespace

double number_of_text(std::string_view text) {
  std::string_view digits = text;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (same_letters(digits, "inf") || same_letters(digits, "infinity"))
    return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  if (same_letters(digits, "nan")) return std::numeric_limits<double>::quiet_NaN();
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || end != digits.data() + digits.size() || digits[0] == '-') fail_text(text);
  if (error == std::errc::result_out_of_range)
    value = std::numeric_limits<double>::infinity();  // of underflow 0 would be right, too
  else if (error != std::errc()) fail_text(text);
  return negative ? -value : value;
}

}  // namespace evn
