#include "ops/infra/first_largest.h"

#include "base/cancel.h"

namespace evn {
namespace {

// As wide as the elements, so that vectors of comparisons need not be widened.
template <std::size_t kSize>
using Word =
    std::conditional_t<kSize == 1, std::uint8_t,
                       std::conditional_t<kSize == 2, std::uint16_t, std::conditional_t<kSize == 4, std::uint32_t, std::uint64_t>>>;

}  // namespace

template <typename T, bool kLargest>
std::int64_t first_extreme(const T* x, std::int64_t length, bool last) {
  constexpr std::int64_t kBlock = sizeof(T) < 4 ? 64 / static_cast<std::int64_t>(sizeof(T)) : 16;
  std::int64_t found = last ? length - 1 : 0;
  T best = x[found];
  const auto look_at = [&](std::int64_t i) {
    if (!is_beyond<kLargest>(x[i], best)) return;
    best = x[i];
    found = i;
  };
  // Seldom is there one in a block that is beyond all before it.
  in_pieces(length, 1, [&](std::int64_t i, std::int64_t end) {
    for (; end - i >= kBlock && best == best; i += kBlock) {
      const T* const block = x + (last ? length - i - kBlock : i);
      Word<sizeof(T)> any = 0;
      for (std::int64_t n = 0; n < kBlock; ++n) any |= (kLargest ? block[n] <= best : block[n] >= best) ? 0 : 1;
      for (std::int64_t n = 0; n < kBlock && any != 0; ++n) look_at(last ? length - 1 - i - n : i + n);
    }
    for (; i < end && best == best; ++i) look_at(last ? length - 1 - i : i);
  });
  return found;
}

#define EVN_EXTREMES(T)                                                       \
  template std::int64_t first_extreme<T, true>(const T*, std::int64_t, bool); \
  template std::int64_t first_extreme<T, false>(const T*, std::int64_t, bool);
EVN_EXTREMES(float)
EVN_EXTREMES(double)
EVN_EXTREMES(std::int8_t)
EVN_EXTREMES(std::uint8_t)
EVN_EXTREMES(std::int16_t)
EVN_EXTREMES(std::uint16_t)
EVN_EXTREMES(std::int32_t)
EVN_EXTREMES(std::uint32_t)
EVN_EXTREMES(std::int64_t)
EVN_EXTREMES(std::uint64_t)
#undef EVN_EXTREMES

}  // namespace evn
