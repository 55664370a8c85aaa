#include "train/loader_order.h"

#include <algorithm>

#include "ops/infra/philox.h"

namespace evn_train {

LoaderOrder::LoaderOrder(const evn_loader_options& o)
    : seed_(o.seed),
      count_(o.sample_count),
      batch_(o.batch),
      rank_(o.rank),
      ranks_(std::max<std::uint32_t>(1, o.rank_count)),
      shuffles_((o.flags & EVN_LOADER_SHUFFLE) != 0),
      is_stream_((o.flags & EVN_LOADER_STREAM) != 0) {
  if (is_stream_) return;
  rest_ = static_cast<std::uint32_t>(count_ % batch_);
  if ((o.flags & EVN_LOADER_DROP_LAST) != 0 || rest_ < ranks_) rest_ = 0;
  batches_ = count_ / batch_ + (rest_ > 0 ? 1 : 0);
}

std::pair<std::uint32_t, std::uint32_t> LoaderOrder::part_of(std::uint32_t samples) const {
  const auto bound = [&](std::uint32_t rank) { return static_cast<std::uint32_t>(std::uint64_t{samples} * rank / ranks_); };
  return {bound(rank_), bound(rank_ + 1) - bound(rank_)};
}

std::uint32_t LoaderOrder::least() const {
  const std::uint32_t of_batch = full_part(), of_rest = part_of(rest_).second;
  return of_batch == of_rest ? 0 : std::min(of_batch, of_rest);
}

namespace {

constexpr std::uint64_t kGroup = 128;  // swaps whose lines are prefetched together

// The sample that sample i changes places with.
std::uint32_t partner_of(std::uint64_t seed, std::uint64_t epoch, std::uint64_t i) {
  const evn::PhiloxBlock block = evn::philox(seed, i, epoch);
  const std::uint64_t bits = std::uint64_t{block.word[1]} << 32 | block.word[0];
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint32_t>((Wide{bits} * (i + 1)) >> 64);
}

}  // namespace

// The partners of a group of swaps are computed, and their lines prefetched, while the group before it is swapped: swaps far apart
// in memory do not wait for each other.
bool LoaderOrder::start(std::uint64_t epoch, const std::function<bool()>& stops) {
  if (!shuffles_) return true;
  for (std::uint64_t i = 0; i < count_;) {
    const std::uint64_t end = std::min(count_, i + kPiece);
    for (; i < end; ++i) shuffled_[i] = static_cast<std::uint32_t>(i);
    if (stops()) return false;
  }
  static_assert(kPiece % kGroup == 0);
  std::uint32_t groups[2][kGroup];
  const auto prepare = [&](std::uint32_t* partners, std::uint64_t last, std::uint64_t count) {
    for (std::uint64_t k = 0; k < count; ++k) {
      partners[k] = partner_of(seed_, epoch, last - k);
      __builtin_prefetch(shuffled_ + partners[k], 1);
    }
  };
  const auto size_at = [](std::uint64_t left) { return std::min(left, kGroup); };
  std::uint64_t left = count_ - 1;  // samples left .. 1 are still to be swapped
  std::uint32_t *now = groups[0], *next = groups[1];
  prepare(now, left, size_at(left));
  for (std::uint64_t done = 0; left > 0; std::swap(now, next)) {
    const std::uint64_t count = size_at(left);
    prepare(next, left - count, size_at(left - count));
    for (std::uint64_t k = 0; k < count; ++k) std::swap(shuffled_[left - k], shuffled_[now[k]]);
    left -= count;
    done += count;
    if (done % kPiece == 0 && stops()) return false;
  }
  return true;
}

std::uint32_t LoaderOrder::samples(std::uint64_t batch, std::uint64_t* numbers) const {
  const std::uint32_t whole = !is_stream_ && batch + 1 == batches_ && rest_ > 0 ? rest_ : batch_;
  const auto [first, count] = part_of(whole);
  const std::uint64_t begin = batch * batch_ + first;
  for (std::uint32_t i = 0; i < count; ++i) numbers[i] = shuffled_ == nullptr ? begin + i : shuffled_[begin + i];
  return count;
}

}  // namespace evn_train
