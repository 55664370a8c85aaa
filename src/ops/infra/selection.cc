#include "ops/infra/selection.h"

#include "base/cancel.h"
#include "base/cxx20.h"

namespace evn {

template <typename W>
Selection<W>::Selection(std::int64_t length, std::int64_t k, bool nan_is_last)
    : k_(k), most_(std::min(length, 4 * k + 64)), nan_is_last_(nan_is_last) {
  const auto size = static_cast<std::size_t>(most_ + kBlock);
  items_ = make_unique_for_overwrite<Keyed[]>(size);
  scratch_ = make_unique_for_overwrite<Keyed[]>(size);
  bests_ = make_unique_for_overwrite<W[]>(size);
}

template <typename W>
std::uint64_t Selection<W>::key(W x) const {
  if constexpr (std::is_floating_point_v<W>) {
    if (nan_is_last_ && std::isnan(x)) return ~std::uint64_t{0};
  }
  return ~ordered_key(x);
}

template <typename W>
bool Selection<W>::any_within(const W* x) const {
  int any = 0;
  if (is_strict_) {
    for (int i = 0; i < kBlock; ++i) any |= x[i] <= limit_ ? 0 : 1;
  } else {
    for (int i = 0; i < kBlock; ++i) any |= x[i] < limit_ ? 0 : 1;
  }
  return any != 0;
}

template <typename W>
bool Selection<W>::find_limit(std::int64_t length) {
  const std::int64_t rows = length / (k_ + k_ / 2 + kLanes);
  if (rows < 2) return false;
  const std::int64_t sets = length / (rows * kLanes) * kLanes;
  for (std::int64_t first = 0; first < sets; first += kLanes) {
    const W* from = x_ + first * rows;
    W best[kLanes];
    std::copy_n(from, kLanes, best);
    // A NaN may be missed: any element of a set will do.
    in_pieces(rows, kLanes, [&](std::int64_t row, std::int64_t end) {
      for (; row < end; ++row, from += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) best[lane] = from[lane] > best[lane] ? from[lane] : best[lane];
      }
    });
    for (int lane = 0; lane < kLanes; ++lane) {
      items_[first + lane] = {key(best[lane]), first + lane};
      bests_[first + lane] = best[lane];
    }
  }
  sort_by_key(items_.get(), scratch_.get(), sets);
  limit_ = bests_[items_[k_ - 1].at];
  return true;
}

template <typename W>
void Selection<W>::keep_first() {
  in_pieces(count_ - keyed_, 1, [&](std::int64_t i, std::int64_t end) {
    for (Keyed* item = items_.get() + keyed_ + i; i < end; ++i, ++item) item->key = key(x_[item->at]);
  });
  sort_by_key(items_.get(), scratch_.get(), count_);
  count_ = keyed_ = k_;
}

template <typename W>
void Selection<W>::add(std::int64_t begin, std::int64_t end) {
  if (count_ > most_) {
    keep_first();
    limit_ = x_[items_[k_ - 1].at];
    is_strict_ = true;
  }
  for (std::int64_t i = begin; i < end; ++i) {
    items_[count_].at = i;
    count_ += is_within(x_[i]) ? 1 : 0;
  }
}

template <typename W>
const Keyed* Selection<W>::find(const W* x, std::int64_t length) {
  x_ = x;
  count_ = keyed_ = 0;
  is_strict_ = false;
  if (find_limit(length)) {
    in_pieces(length, 1, [&](std::int64_t i, std::int64_t end) {
      for (; end - i >= kBlock; i += kBlock) {
        if (any_within(x + i)) add(i, i + kBlock);
      }
      add(i, end);
    });
  } else {
    in_pieces(length, 1, [&](std::int64_t i, std::int64_t end) {
      for (; i < end; ++i) items_[count_++].at = i;
    });
  }
  keep_first();
  return items_.get();
}

template class Selection<float>;
template class Selection<double>;
template class Selection<std::int8_t>;
template class Selection<std::uint8_t>;
template class Selection<std::int16_t>;
template class Selection<std::uint16_t>;
template class Selection<std::int32_t>;
template class Selection<std::uint32_t>;
template class Selection<std::int64_t>;
template class Selection<std::uint64_t>;

}  // namespace evn
