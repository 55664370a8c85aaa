// Numbers as text and back, the same in every locale. libstdc++ 10, the C++ runtime of portable builds, has no std::to_chars and no
// std::from_chars of floating point.
#pragma once

#include <string>
#include <string_view>

namespace evn {

// So many digits behind the point, as printf's %.*f: "0.50", "-3", "inf", "nan".
std::string fixed_text(double x, int digits);

// The fewest digits that give the number again, as std::to_chars writes them: plain or with an exponent, whichever is shorter.
std::string shortest_text(float x);
std::string shortest_text(double x);

// Whether the whole text is a decimal number without a sign: digits with or without a point, and perhaps an exponent. `value` is
// then the nearest number: infinity of what is too large, 0 of what is too small.
bool parse_decimal(std::string_view text, float* value);
bool parse_decimal(std::string_view text, double* value);

}  // namespace evn
