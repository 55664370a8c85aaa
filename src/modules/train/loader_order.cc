#include "modules/train/loader_order.h"

#include <algorithm>
#include <numeric>

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
  if (shuffles_) shuffled_.resize(count_);
}

std::pair<std::uint32_t, std::uint32_t> LoaderOrder::part_of(std::uint32_t samples) const {
  const auto bound = [&](std::uint32_t rank) { return static_cast<std::uint32_t>(std::uint64_t{samples} * rank / ranks_); };
  return {bound(rank_), bound(rank_ + 1) - bound(rank_)};
}

std::uint32_t LoaderOrder::least() const {
  const std::uint32_t of_batch = full_part(), of_rest = part_of(rest_).second;
  return of_batch == of_rest ? 0 : std::min(of_batch, of_rest);
}

void LoaderOrder::start(std::uint64_t epoch) {
  if (!shuffles_) return;
  std::iota(shuffled_.begin(), shuffled_.end(), 0u);
  for (std::uint64_t i = count_; i-- > 1;) {
    const evn::PhiloxBlock block = evn::philox(seed_, i, epoch);
    const std::uint64_t bits = std::uint64_t{block.word[1]} << 32 | block.word[0];
    __extension__ using Wide = unsigned __int128;
    std::swap(shuffled_[i], shuffled_[static_cast<std::uint64_t>((Wide{bits} * (i + 1)) >> 64)]);
  }
}

std::uint32_t LoaderOrder::samples(std::uint64_t batch, std::uint64_t* numbers) const {
  const std::uint32_t whole = !is_stream_ && batch + 1 == batches_ && rest_ > 0 ? rest_ : batch_;
  const auto [first, count] = part_of(whole);
  const std::uint64_t begin = batch * batch_ + first;
  for (std::uint32_t i = 0; i < count; ++i) numbers[i] = shuffled_.empty() ? begin + i : shuffled_[begin + i];
  return count;
}

}  // namespace evn_train
