// MaxPool and AveragePool: attribute indices, geometry, and the walk over windows that the references share.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/checked.h"
#include "ops/infra/window.h"

namespace evn {

// Attributes that an older version lacks read as "not given".
struct MaxPoolAttr {
  enum : int { kAutoPad, kKernelShape, kPads, kStrides, kStorageOrder, kCeilMode, kDilations };
};
struct AveragePoolAttr {  // kChannelsLast: of QLinearAveragePool
  enum : int { kAutoPad, kKernelShape, kPads, kStrides, kCountIncludePad, kCeilMode, kDilations, kChannelsLast };
};

// In this order; older versions have the first rows only.
inline constexpr AttributeSpec kMaxPoolAttributes[] = {
    string_attribute("auto_pad", "NOTSET"),
    required_attribute("kernel_shape", AttributeType::kInts),
    optional_attribute("pads", AttributeType::kInts),
    optional_attribute("strides", AttributeType::kInts),
    int_attribute("storage_order", 0),
    int_attribute("ceil_mode", 0),
    optional_attribute("dilations", AttributeType::kInts),
};
inline constexpr AttributeSpec kAveragePoolAttributes[] = {
    kMaxPoolAttributes[0],
    kMaxPoolAttributes[1],
    kMaxPoolAttributes[2],
    kMaxPoolAttributes[3],
    int_attribute("count_include_pad", 0),
    kMaxPoolAttributes[5],
    kMaxPoolAttributes[6],
};

// The window of either pool over `x` [N, C, spatial...]. With ceil_mode the last window may reach beyond input + pad_end: taps
// there count neither for the maximum nor, with count_include_pad, for the average.
Window pool_window(const Node& node, const Shape& x);

// The taps of one axis that lie inside the input, and those that an average with padding counts.
struct Taps {
  std::int64_t first;   // input position of the first tap inside
  std::int64_t count;   // taps inside
  std::int64_t padded;  // taps inside the input and its padding
};

inline Taps taps_of(const WindowAxis& a, std::int64_t output) {
  const std::int64_t start = output * a.stride - a.pad_begin;
  if (start >= 0 && start + (a.kernel - 1) * a.dilation < a.input) return {start, a.kernel, a.kernel};
  const std::int64_t skip = start < 0 ? ceil_div(-start, a.dilation) : 0;
  const auto below = [&](std::int64_t limit) {
    return std::clamp<std::int64_t>(start >= limit ? 0 : ceil_div(limit - start, a.dilation), 0, a.kernel);
  };
  return {start + skip * a.dilation, std::max<std::int64_t>(below(a.input) - skip, 0), below(a.input + a.pad_end)};
}

// Calls f(taps of the three axes) for each window of a plane, in the order of the outputs.
template <typename F>
void for_each_window(const Window& window, F&& f) {
  for (std::int64_t o0 = 0; o0 < window.axis[0].output; ++o0) {
    cancellation_point();
    for (std::int64_t o1 = 0; o1 < window.axis[1].output; ++o1) {
      cancellation_point();
      for (std::int64_t o2 = 0; o2 < window.axis[2].output; ++o2) {
        cancellation_point();
        const Taps taps[kMaxSpatial] = {taps_of(window.axis[0], o0), taps_of(window.axis[1], o1), taps_of(window.axis[2], o2)};
        f(taps);
      }
    }
  }
}

// Calls f(i0, i1, i2) for the input positions of a window.
template <typename F>
void for_each_tap(const Window& window, const Taps (&taps)[kMaxSpatial], F&& f) {
  for (std::int64_t k0 = 0; k0 < taps[0].count; ++k0) {
    cancellation_point();
    for (std::int64_t k1 = 0; k1 < taps[1].count; ++k1) {
      cancellation_point();
      for (std::int64_t k2 = 0; k2 < taps[2].count; ++k2) {
        cancellation_point();
        f(taps[0].first + k0 * window.axis[0].dilation, taps[1].first + k1 * window.axis[1].dilation,
          taps[2].first + k2 * window.axis[2].dilation);
      }
    }
  }
}

// Whether MaxPool takes x rather than what it has.
template <typename T>
bool beats(T x, T best) {
  if constexpr (std::is_floating_point_v<T>) {
    return x > best || (std::isnan(x) && !std::isnan(best));
  } else {
    return x > best;
  }
}

}  // namespace evn
