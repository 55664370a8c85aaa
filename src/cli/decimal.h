// Decimal numbers in texts. libstdc++ 10, the C++ runtime of portable builds, has no std::from_chars of double; the command never
// leaves the C locale, which strtod goes by.
#pragma once

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

namespace evn::cli {

// The finite number that the whole text is, in digits with a point and, with `exponents`, a power of ten.
inline std::optional<double> decimal_of(const std::string& text, bool exponents) {
  if (text.empty() || text[0] == '+' || text.find_first_not_of(exponents ? "0123456789.-+eE" : "0123456789.-") != std::string::npos)
    return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size() || !std::isfinite(number)) return std::nullopt;
  return number;
}

}  // namespace evn::cli
