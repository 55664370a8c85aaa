#include "quant/observer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/cancel.h"

namespace evn {
namespace {

// Vectors that every machine has, several to hide the time that each step takes.
typedef float Vector __attribute__((vector_size(16)));
constexpr std::size_t kVectors = 8, kLanes = 4 * kVectors;
constexpr std::int64_t kLanesWork = kLanes * sizeof(float) / kBytesPerWork;

struct Seen {
  Vector low[kVectors], high[kVectors];
  Vector odd[kVectors] = {};  // sums of 0 * x, which are 0 unless an x is NaN or infinite

  void add(const float* from) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kVectors; ++v) {
      Vector x;
      std::memcpy(&x, from + 4 * v, sizeof x);
      low[v] = x < low[v] ? x : low[v];
      high[v] = x > high[v] ? x : high[v];
      odd[v] += x * 0.0f;
    }
  }
};

}  // namespace

void Observer::make_room(float largest) {
  if (bins_.empty()) {
    bins_.assign(2 * kHalf, 0);
    reach_ = std::max(static_cast<double>(largest) * 1.001, 1e-30);
  }
  while (static_cast<double>(largest) >= reach_) {  // pairs of bins become one
    cancellation_point(2 * kHalf);
    std::vector<std::uint64_t> wider(2 * kHalf, 0);
    for (int i = 0; i < 2 * kHalf; ++i) wider[static_cast<std::size_t>((i + kHalf) / 2)] += bins_[static_cast<std::size_t>(i)];
    bins_ = std::move(wider);
    reach_ *= 2;
  }
}

bool Observer::add(std::span<const float> elements) {
  if (elements.empty()) return true;
  Seen seen;
  float rest[kLanes];  // the last elements, and the first one again
  std::fill_n(rest, kLanes, elements[0]);
  const std::size_t whole = elements.size() / kLanes * kLanes;
  std::copy(elements.begin() + static_cast<std::ptrdiff_t>(whole), elements.end(), rest);
  std::memcpy(seen.low, rest, sizeof rest);
  std::memcpy(seen.high, rest, sizeof rest);
  seen.add(rest);
  in_pieces(static_cast<std::int64_t>(whole / kLanes), kLanesWork, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) seen.add(elements.data() + static_cast<std::size_t>(i) * kLanes);
  });
  float least = seen.low[0][0], most = seen.high[0][0];
  for (std::size_t l = 0; l < kLanes; ++l) {
    if (!(seen.odd[l / 4][l % 4] == 0)) return false;
    least = std::min(least, seen.low[l / 4][l % 4]);
    most = std::max(most, seen.high[l / 4][l % 4]);
  }
  low_ = count_ == 0 ? least : std::min(low_, least);
  high_ = count_ == 0 ? most : std::max(high_, most);
  count_ += elements.size();
  const float largest = std::max(std::fabs(least), std::fabs(most));
  if (!wants_histogram_ || (largest == 0 && bins_.empty())) return true;
  make_room(largest);
  const double scale = kHalf / reach_;
  in_pieces(std::ssize(elements), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto bin = static_cast<std::int32_t>(static_cast<double>(elements[static_cast<std::size_t>(i)]) * scale + kHalf);
      ++bins_[static_cast<std::size_t>(std::clamp(bin, 0, 2 * kHalf - 1))];
    }
  });
  return true;
}

}  // namespace evn
