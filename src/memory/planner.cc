#include "memory/planner.h"

#include <algorithm>

#include "base/checked.h"
#include "base/sort.h"

namespace evn {

namespace {

using Order = std::vector<std::int32_t>;

// Each value, in this order, into the smallest gap that fits.
std::size_t place(const Order& order, std::vector<Lifetime>& values, std::size_t alignment) {
  Order placed;  // by offset
  placed.reserve(order.size());
  std::size_t total = 0;
  for (const std::int32_t id : order) {
    Lifetime& v = values[id];
    const std::size_t bytes = align_up(v.bytes, alignment);
    std::size_t end = 0;  // end of the placed values seen so far that live together with v
    std::size_t best_offset = SIZE_MAX;
    std::size_t best_gap = SIZE_MAX;
    for (const std::int32_t other : placed) {
      const Lifetime& o = values[other];
      if (o.last < v.first || o.first > v.last) continue;
      if (o.offset >= end && o.offset - end >= bytes && o.offset - end < best_gap) {
        best_gap = o.offset - end;
        best_offset = end;
      }
      end = std::max(end, checked_add(o.offset, align_up(o.bytes, alignment)));
    }
    v.offset = best_offset != SIZE_MAX ? best_offset : end;
    total = std::max(total, checked_add(v.offset, bytes));
    const auto at =
        std::upper_bound(placed.begin(), placed.end(), id, [&](int a, int b) { return values[a].offset < values[b].offset; });
    placed.insert(at, id);
  }
  return total;
}

Order by_size(const std::vector<Lifetime>& values) {
  Order order;
  order.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].bytes > 0) order.push_back(static_cast<std::int32_t>(i));
  }
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return values[a].bytes != values[b].bytes ? values[a].bytes > values[b].bytes : a < b; });
  return order;
}

// The bytes that live at the fullest moment: no arena is smaller.
std::size_t most_live(const std::vector<Lifetime>& values, std::size_t alignment) {
  std::int32_t last = 0;
  for (const Lifetime& v : values) last = std::max(last, v.last);
  std::vector<std::size_t> begin(static_cast<std::size_t>(last) + 2), end(begin.size());
  for (const Lifetime& v : values) {
    if (v.bytes == 0) continue;
    begin[static_cast<std::size_t>(v.first)] += align_up(v.bytes, alignment);
    end[static_cast<std::size_t>(v.last) + 1] += align_up(v.bytes, alignment);
  }
  std::size_t live = 0, most = 0;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    live = live + begin[i] - end[i];
    most = std::max(most, live);
  }
  return most;
}

constexpr int kTries = 48;

}  // namespace

std::size_t plan_arena(std::vector<Lifetime>& values, std::size_t alignment) { return place(by_size(values), values, alignment); }

std::size_t plan_small_arena(std::vector<Lifetime>& values, std::size_t alignment) {
  const Order sizes = by_size(values);
  const std::size_t bound = most_live(values, alignment);
  Order best = sizes;
  std::size_t least = place(sizes, values, alignment);
  const auto life = [&](int i) { return values[i].last - values[i].first; };
  Order lives = sizes, firsts = sizes;
  sort_stably(lives, [&](int a, int b) { return life(a) > life(b); });
  sort_stably(firsts, [&](int a, int b) { return values[a].first < values[b].first; });
  for (Order order : {sizes, lives, firsts}) {
    // Each time, what ends where the arena does is placed before all others.
    for (int i = 0; i < kTries / 3 && least > bound; ++i) {
      const std::size_t total = place(order, values, alignment);
      if (total < least) {
        least = total;
        best = order;
      }
      const auto top = std::find_if(order.begin(), order.end(),
                                    [&](int v) { return values[v].offset + align_up(values[v].bytes, alignment) == total; });
      std::rotate(order.begin(), top, top + 1);
    }
  }
  return place(best, values, alignment);
}

}  // namespace evn
