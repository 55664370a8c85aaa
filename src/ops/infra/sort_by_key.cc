#include "ops/infra/sort_by_key.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/cancel.h"

namespace evn {
namespace {

constexpr std::int64_t kFew = 24;  // that are sorted by insertion alone

// Sorts by insertion. Returns false, with equal keys still in their order, where it would take more than `steps` for an item.
bool insert_all(Keyed* items, std::int64_t count, std::int64_t steps) {
  bool is_done = true;
  in_pieces(count, steps, [&](std::int64_t i, std::int64_t end) {
    std::int64_t left = steps * (end - i);
    for (; i < end && is_done; ++i) {
      const Keyed item = items[i];
      std::int64_t to = i;
      for (; to > 0 && item.key < items[to - 1].key && left > 0; --to, --left) items[to] = items[to - 1];
      items[to] = item;
      is_done = left > 0;
    }
  });
  return is_done;
}

// Sorts by the `digits` bytes of key - low from bit `shift` on, one after the other from the lowest one on.
void sort_by_digits(Keyed* items, Keyed* scratch, std::int64_t count, std::uint64_t low, int shift, int digits) {
  Keyed *from = items, *to = scratch;
  for (int digit = 0; digit < digits; ++digit, shift += 8) {
    std::int64_t place[256] = {};
    in_pieces(count, 1, [&, from](std::int64_t i, std::int64_t end) {
      for (; i < end; ++i) ++place[(from[i].key - low) >> shift & 255];
    });
    std::int64_t sum = 0;
    for (std::int64_t& p : place) sum += std::exchange(p, sum);
    in_pieces(count, 1, [&, from, to](std::int64_t i, std::int64_t end) {
      for (; i < end; ++i) to[place[(from[i].key - low) >> shift & 255]++] = from[i];
    });
    std::swap(from, to);
  }
  if (from != items) copy_in_pieces(from, count, items);
}

}  // namespace

void sort_by_key(Keyed* items, Keyed* scratch, std::int64_t count) {
  if (count <= kFew) {
    insert_all(items, count, kFew);
    return;
  }
  std::uint64_t low = items[0].key, high = low;
  in_pieces(count, 1, [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) low = std::min(low, items[i].key), high = std::max(high, items[i].key);
  });
  // The upper digits, of which there are many more values than items, leave little to do for a sort by insertion, unless the keys
  // are crowded.
  const auto bits = static_cast<int>(std::bit_width(high - low));
  const int all = (bits + 7) / 8;
  const int upper = std::min(all, (static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count))) + 10) / 8);
  const int shift = std::max(0, bits - 8 * upper);
  sort_by_digits(items, scratch, count, low, shift, upper);
  if (shift > 0 && !insert_all(items, count, 2)) sort_by_digits(items, scratch, count, low, 0, all);
}

}  // namespace evn
