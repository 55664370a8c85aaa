// Sources that are built with EVN_HALF keep constants of type T, float or Float16, in memory.
#pragma once

#include <type_traits>

#include "ops/infra/numeric.h"

namespace evn {

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16>;

template <typename T>
T rounded_to(float x) {
  if constexpr (kIsHalf<T>) return Float16::from(static_cast<double>(x));
  else return x;
}

}  // namespace evn
