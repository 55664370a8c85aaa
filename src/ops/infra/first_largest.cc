#include "ops/infra/first_largest.h"

#include "base/cancel.h"

namespace evn {

template <typename T>
std::int64_t first_largest(const T* x, std::int64_t length, bool last) {
  constexpr std::int64_t kBlock = 16;
  std::int64_t found = last ? length - 1 : 0;
  T best = x[found];
  const auto look_at = [&](std::int64_t i) {
    if (!is_above(x[i], best)) return;
    best = x[i];
    found = i;
  };
  // Seldom is there one in a block that is above all before it.
  in_pieces(length, 1, [&](std::int64_t i, std::int64_t end) {
    for (; end - i >= kBlock && best == best; i += kBlock) {
      const T* const block = x + (last ? length - i - kBlock : i);
      int any = 0;
      for (int n = 0; n < kBlock; ++n) any |= block[n] <= best ? 0 : 1;
      for (int n = 0; n < kBlock && any != 0; ++n) look_at(last ? length - 1 - i - n : i + n);
    }
    for (; i < end && best == best; ++i) look_at(last ? length - 1 - i : i);
  });
  return found;
}

template std::int64_t first_largest(const float*, std::int64_t, bool);
template std::int64_t first_largest(const double*, std::int64_t, bool);
template std::int64_t first_largest(const std::int64_t*, std::int64_t, bool);

}  // namespace evn
