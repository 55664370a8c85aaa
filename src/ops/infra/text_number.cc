#include "ops/infra/text_number.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/number_text.h"

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
  if (!parse_decimal(digits, &value)) fail_text(text);
  return negative ? -value : value;
}

}  // namespace evn
