// Numbers that stand in strings.
#pragma once

#include <string_view>

namespace evn {

// Decimal, plain or scientific; inf and nan in any case, with a sign or without. Throws EVN_ERROR_INVALID_ARGUMENT where it is no
// number.
double number_of_text(std::string_view text);

}  // namespace evn
