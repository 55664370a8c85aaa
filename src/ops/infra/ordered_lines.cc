#include "ops/infra/ordered_lines.h"

namespace evn {
namespace {

template <typename T>
using Ordered = std::conditional_t<std::is_floating_point_v<T>, T, std::int64_t>;

template <typename T>
Ordered<T> ordered(T x, bool largest) {
  if constexpr (std::is_floating_point_v<T>) {
    return largest ? x : -x;
  } else {
    const std::uint64_t sign = std::is_same_v<T, std::uint64_t> ? std::uint64_t{1} << 63 : 0;
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(x) ^ sign ^ (largest ? 0 : ~std::uint64_t{0}));
  }
}

}  // namespace

void OrderedLines::write(const void* from, std::int64_t rows, std::int64_t step, std::int64_t width, void* to) const {
  dispatch_numbers(dtype, [&](auto zero) {
    using T = decltype(zero);
    in_pieces(rows, width, [&](std::int64_t row, std::int64_t end) {
      const T* x = static_cast<const T*>(from) + row * step;
      Ordered<T>* y = static_cast<Ordered<T>*>(to) + row * width;
      for (; row < end; ++row, x += step, y += width) {
        for (std::int64_t i = 0; i < width; ++i) y[i] = ordered(x[i], largest);
      }
    });
  });
}

}  // namespace evn
