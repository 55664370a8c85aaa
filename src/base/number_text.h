// Numbers as text, the same in every locale, and without the 150 KiB of tables that std::to_chars brings for floating point.
#pragma once

#include <string>

namespace evn {

// So many digits behind the point, as printf's %.*f: "0.50", "-3", "inf", "nan".
std::string fixed_text(double x, int digits);

// The fewest digits that give the number again, as std::to_chars writes them: plain or with an exponent, whichever is shorter.
std::string shortest_text(float x);
std::string shortest_text(double x);

}  // namespace evn
