#include "ops/infra/ordered_lines.h"

#include <algorithm>

namespace evn {
namespace {

constexpr std::int64_t kBlock = 32;

template <typename T>
T reversed(T x) {
  if constexpr (std::is_floating_point_v<T>) return -x;
  else return static_cast<T>(~x);
}

}  // namespace

template <typename T>
void OrderedLines<T>::write(const T* from, std::int64_t rows, std::int64_t step, std::int64_t width, T* to) const {
  if (step == 1 && !largest) {  // width is 1
    in_pieces(rows, 1, [&](std::int64_t row, std::int64_t end) {
      for (; end - row >= kBlock; row += kBlock) {
        T block[kBlock];
        for (std::int64_t i = 0; i < kBlock; ++i) block[i] = reversed(from[row + i]);
        std::copy_n(block, kBlock, to + row);
      }
      for (; row < end; ++row) to[row] = reversed(from[row]);
    });
    return;
  }
  in_pieces(rows, width, [&](std::int64_t row, std::int64_t end) {
    for (const T* x = from + row * step; row < end; ++row, x += step) {
      for (std::int64_t i = 0; i < width; ++i) to[i * rows + row] = largest ? x[i] : reversed(x[i]);
    }
  });
}

template struct OrderedLines<float>;
template struct OrderedLines<double>;
template struct OrderedLines<std::int8_t>;
template struct OrderedLines<std::uint8_t>;
template struct OrderedLines<std::int16_t>;
template struct OrderedLines<std::uint16_t>;
template struct OrderedLines<std::int32_t>;
template struct OrderedLines<std::uint32_t>;
template struct OrderedLines<std::int64_t>;
template struct OrderedLines<std::uint64_t>;

}  // namespace evn
