// Functions of C++20's standard library that libstdc++ 10, the C++ runtime of portable builds, does not have.
#pragma once

#include <memory>

namespace evn {

// std::bit_cast.
template <typename To, typename From>
constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}

// std::make_unique_for_overwrite, of arrays.
template <typename Array>
std::unique_ptr<Array> make_unique_for_overwrite(std::size_t count) {
  return std::unique_ptr<Array>(new std::remove_extent_t<Array>[count]);
}

}  // namespace evn
