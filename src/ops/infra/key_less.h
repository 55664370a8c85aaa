// Order of the keys of a mapping, and of words in sorted lists.
#pragma once

#include <cmath>
#include <string_view>
#include <type_traits>

#include "base/cancel.h"
#include "core/text.h"

namespace evn {

// Orders texts by their bytes and numbers by their values, NaN behind all others. A comparison counts as work, one of texts by the
// bytes that are compared.
struct KeyLess {
  template <typename T>
  bool operator()(const T& a, const T& b) const {
    if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      return compare_texts(a, b) < 0;
    } else {
      cancellation_point();
      if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(a) || std::isnan(b)) return std::isnan(b) && !std::isnan(a);
      }
      return a < b;
    }
  }
};

}  // namespace evn
