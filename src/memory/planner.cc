#include "memory/planner.h"

#include <algorithm>

#include "base/checked.h"

namespace evn {

std::size_t plan_arena(std::vector<Lifetime>& values, std::size_t alignment) {
  std::vector<std::int32_t> by_size;
  by_size.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].bytes > 0) by_size.push_back(static_cast<std::int32_t>(i));
  }
  std::sort(by_size.begin(), by_size.end(),
            [&](int a, int b) { return values[a].bytes != values[b].bytes ? values[a].bytes > values[b].bytes : a < b; });

  std::vector<std::int32_t> placed;  // by offset
  placed.reserve(by_size.size());
  std::size_t total = 0;
  for (const std::int32_t id : by_size) {
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

}  // namespace evn
