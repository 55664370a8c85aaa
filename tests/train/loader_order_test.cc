// The order of shuffled samples is the one of train.h, and is made in pieces that may be stopped.
#include "train/loader_order.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "ops/infra/philox.h"

namespace evn_train {
namespace {

evn_loader_options shuffled(std::uint64_t count) {
  evn_loader_options o = EVN_LOADER_OPTIONS_INIT;
  o.sample_count = count;
  o.batch = 100;
  o.flags = EVN_LOADER_SHUFFLE;
  o.seed = 0x123456789abcdef0;
  return o;
}

// The formula of EVN_LOADER_SHUFFLE, word for word.
std::vector<std::uint32_t> documented_order(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (std::uint64_t i = count; i-- > 1;) {
    const evn::PhiloxBlock block = evn::philox(seed, i, epoch);
    const std::uint64_t r = std::uint64_t{block.word[1]} << 32 | block.word[0];
    __extension__ using Wide = unsigned __int128;
    std::swap(order[i], order[static_cast<std::uint64_t>((Wide{r} * (i + 1)) >> 64)]);
  }
  return order;
}

TEST(LoaderOrder, IsTheDocumentedShuffle) {
  for (const std::uint64_t count : {1u, 2u, 3u, 127u, 128u, 129u, 130u, 257u, 4096u, 4097u, 4098u, 10001u}) {
    const evn_loader_options options = shuffled(count);
    LoaderOrder order(options);
    std::vector<std::uint32_t> memory(order.shuffled_count());
    ASSERT_EQ(memory.size(), count);
    order.use_memory(memory.data());
    for (const std::uint64_t epoch : {0u, 1u, 7u}) {
      ASSERT_TRUE(order.start(epoch, [] { return false; }));
      EXPECT_EQ(memory, documented_order(count, options.seed, epoch)) << count << " samples, epoch " << epoch;
    }
  }
}

TEST(LoaderOrder, IsStoppedAfterAnyPiece) {
  const std::uint64_t count = 10 * LoaderOrder::kPiece + 5;
  const evn_loader_options options = shuffled(count);
  LoaderOrder order(options);
  std::vector<std::uint32_t> memory(count);
  order.use_memory(memory.data());
  std::uint64_t looks = 0;
  ASSERT_TRUE(order.start(3, [&] {
    ++looks;
    return false;
  }));
  EXPECT_GE(looks, 2 * (count / LoaderOrder::kPiece));
  for (std::uint64_t stop = 1; stop <= looks; ++stop) {
    std::uint64_t seen = 0;
    EXPECT_FALSE(order.start(4, [&] { return ++seen == stop; }));
    EXPECT_EQ(seen, stop);
  }
  ASSERT_TRUE(order.start(3, [] { return false; }));
  EXPECT_EQ(memory, documented_order(count, options.seed, 3));
}

}  // namespace
}  // namespace evn_train
