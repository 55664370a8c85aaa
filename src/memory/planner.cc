#include "memory/planner.h"

#include <algorithm>

#include "base/cancel.h"
#include "base/checked.h"
#include "memory/occupied.h"

namespace evn {

namespace {

using Order = std::vector<std::int32_t>;

// Moments at which values begin to live, numbered. Two values live together if and only if their numbered lives overlap.
class Moments {
 public:
  explicit Moments(const std::vector<Lifetime>& values) {
    firsts_.reserve(values.size());
    for (const Lifetime& v : values) {
      if (v.bytes > 0) firsts_.push_back(v.first);
    }
    std::sort(firsts_.begin(), firsts_.end(), [](std::int32_t a, std::int32_t b) {
      cancellation_point();
      return a < b;
    });
    firsts_.erase(std::unique(firsts_.begin(), firsts_.end()), firsts_.end());
    lives_.reserve(values.size());
    for (const Lifetime& v : values) {
      cancellation_point();
      lives_.push_back(v.bytes > 0 ? Life{upto(v.first) - 1, upto(v.last) - 1} : Life{});
    }
  }

  struct Life {
    std::int32_t first = 0, last = 0;
  };
  const Life& of(std::int32_t id) const { return lives_[static_cast<std::size_t>(id)]; }
  std::int32_t count() const { return static_cast<std::int32_t>(firsts_.size()); }

 private:
  // Number of moments up to a step.
  std::int32_t upto(std::int32_t step) const {
    return static_cast<std::int32_t>(std::upper_bound(firsts_.begin(), firsts_.end(), step) - firsts_.begin());
  }

  std::vector<std::int32_t> firsts_;
  std::vector<Life> lives_;
};

// The same answers as OccupiedRanges, by a scan of all values: faster if these are few.
class FewOccupied {
 public:
  void add(std::int32_t first, std::int32_t last, std::size_t begin, std::size_t end) {
    const auto at = std::upper_bound(all_.begin(), all_.end(), begin, [](std::size_t b, const Place& p) { return b < p.begin; });
    all_.insert(at, {first, last, begin, end});
  }

  std::size_t find_gap(std::int32_t first, std::int32_t last, std::size_t bytes) const {
    cancellation_point(static_cast<std::int64_t>(all_.size()));
    std::size_t top = 0, best_offset = SIZE_MAX, best_gap = SIZE_MAX;
    for (const Place& p : all_) {
      if (p.last < first || p.first > last) continue;
      if (p.begin >= top && p.begin - top >= bytes && p.begin - top < best_gap) {
        best_gap = p.begin - top;
        best_offset = top;
      }
      top = std::max(top, p.end);
    }
    return best_offset != SIZE_MAX ? best_offset : top;
  }

 private:
  struct Place {
    std::int32_t first, last;
    std::size_t begin, end;
  };
  std::vector<Place> all_;  // by address
};

template <typename Occupied>
std::size_t place_in(Occupied occupied, const Order& order, const Moments& moments, std::vector<Lifetime>& values,
                     std::size_t alignment) {
  std::size_t total = 0;
  for (const std::int32_t id : order) {
    cancellation_point();
    Lifetime& v = values[id];
    const std::size_t bytes = align_up(v.bytes, alignment);
    const Moments::Life& life = moments.of(id);
    v.offset = occupied.find_gap(life.first, life.last, bytes);
    const std::size_t end = checked_add(v.offset, bytes);
    occupied.add(life.first, life.last, v.offset, end);
    total = std::max(total, end);
  }
  return total;
}

constexpr std::size_t kFew = 256;

// Places each value, in this order, into the smallest gap that fits.
std::size_t place(const Order& order, const Moments& moments, std::vector<Lifetime>& values, std::size_t alignment) {
  return order.size() <= kFew ? place_in(FewOccupied(), order, moments, values, alignment)
                              : place_in(OccupiedRanges(moments.count()), order, moments, values, alignment);
}

// Values with bytes, the one of the least key first; of equal keys the largest value, and of equal sizes the first one.
template <typename Key>
Order ordered_by(const std::vector<Lifetime>& values, Key key) {
  Order order;
  order.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].bytes > 0) order.push_back(static_cast<std::int32_t>(i));
  }
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    cancellation_point();
    if (key(values[a]) != key(values[b])) return key(values[a]) < key(values[b]);
    return values[a].bytes != values[b].bytes ? values[a].bytes > values[b].bytes : a < b;
  });
  return order;
}

Order by_size(const std::vector<Lifetime>& values) {
  return ordered_by(values, [](const Lifetime&) { return 0; });
}

// The bytes that live at the fullest moment: no arena is smaller.
std::size_t most_live(const std::vector<Lifetime>& values, std::size_t alignment) {
  std::int32_t last = 0;
  for (const Lifetime& v : values) last = std::max(last, v.last);
  std::vector<std::size_t> begin(static_cast<std::size_t>(last) + 2), end(begin.size());
  for (const Lifetime& v : values) {
    cancellation_point();
    if (v.bytes == 0) continue;
    begin[static_cast<std::size_t>(v.first)] += align_up(v.bytes, alignment);
    end[static_cast<std::size_t>(v.last) + 1] += align_up(v.bytes, alignment);
  }
  std::size_t live = 0, most = 0;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    cancellation_point();
    live = live + begin[i] - end[i];
    most = std::max(most, live);
  }
  return most;
}

// Number of orders that plan_small_arena tries, and the number of values beyond which it tries fewer.
constexpr std::size_t kTries = 48, kMostPlaced = std::size_t{1} << 18;

}  // namespace

std::size_t plan_arena(std::vector<Lifetime>& values, std::size_t alignment) {
  return place(by_size(values), Moments(values), values, alignment);
}

std::size_t plan_small_arena(std::vector<Lifetime>& values, std::size_t alignment) {
  const Order sizes = by_size(values);
  const Moments moments(values);
  const std::size_t bound = most_live(values, alignment);
  Order best = sizes;
  std::size_t least = place(sizes, moments, values, alignment);
  const Order lives = ordered_by(values, [](const Lifetime& v) { return v.first - v.last; });  // the longest first
  const Order firsts = ordered_by(values, [](const Lifetime& v) { return v.first; });
  const std::size_t tries = std::clamp<std::size_t>(kMostPlaced / std::max<std::size_t>(sizes.size(), 1), 3, kTries);
  for (Order order : {sizes, lives, firsts}) {
    // Each time, what ends where the arena does is placed before all others.
    for (std::size_t i = 0; i < tries / 3 && least > bound; ++i) {
      const std::size_t total = place(order, moments, values, alignment);
      if (total < least) {
        least = total;
        best = order;
      }
      const auto top = std::find_if(order.begin(), order.end(), [&](int v) {
        cancellation_point();
        return values[v].offset + align_up(values[v].bytes, alignment) == total;
      });
      std::rotate(order.begin(), top, top + 1);
    }
  }
  return place(best, moments, values, alignment);
}

}  // namespace evn
