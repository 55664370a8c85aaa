#include "memory/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "base/alloc.h"
#include "base/error.h"
#include "base/fault.h"

namespace evn {
namespace {

class CountingBacking : public Backing {
 public:
  void* obtain(std::size_t bytes, bool) override {
    void* p = allocate_bytes(bytes, 64);
    if (p != nullptr) {
      live.insert(p);
      ++obtained;
    }
    return p;
  }
  void give_back(void* memory, std::size_t, bool) noexcept override {
    live.erase(memory);
    free_bytes(memory);
  }
  std::set<void*> live;
  int obtained = 0;
};

struct PoolTest : testing::Test {
  CountingBacking backing;
  std::shared_ptr<Pool> pool = std::make_shared<Pool>(&backing, "cpu", 1 << 20);
  void TearDown() override {
    pool->close();
    EXPECT_TRUE(backing.live.empty());
  }
};

TEST_F(PoolTest, AFreedBlockIsHandedOutAgainWithoutAskingTheSystem) {
  void* first;
  {
    const PooledMemory m(pool, 1000, MemoryClass::kArenas);
    first = m.memory();
  }
  const PooledMemory again(pool, 990, MemoryClass::kArenas);
  EXPECT_EQ(again.memory(), first);
  EXPECT_EQ(backing.obtained, 1);
  EXPECT_EQ(pool->stats().cache_hits, 1u);
  EXPECT_EQ(pool->stats().allocations, 2u);
}

TEST_F(PoolTest, ABlockOfPagesOfTheSystemSaysThatItIsZeroUnlessItWasUsedBefore) {
  struct Pages : Backing {
    void* obtain(std::size_t bytes, bool) override { return host.obtain(bytes, 4096); }
    void give_back(void* memory, std::size_t bytes, bool) noexcept override { host.give_back(memory, bytes); }
    HostMemory host;
  } pages;
  const auto host_pool = std::make_shared<Pool>(&pages, "cpu", UINT64_MAX);
  constexpr std::size_t kBytes = 2 * HostMemory::kPagesFrom;
  EXPECT_FALSE(PooledMemory(host_pool, kBytes, MemoryClass::kTensors).is_zero());
  host_pool->set_host_memory(pages.host);
  {
    const PooledMemory m(host_pool, 2 * kBytes, MemoryClass::kTensors);
    EXPECT_EQ(m.is_zero(), pages.host.gives_zeros(2 * kBytes));
    const auto* const bytes = static_cast<const unsigned char*>(m.memory());
    EXPECT_TRUE(!m.is_zero() || std::all_of(bytes, bytes + 2 * kBytes, [](unsigned char b) { return b == 0; }));
    std::memset(m.memory(), 1, 2 * kBytes);
  }
  EXPECT_FALSE(PooledMemory(host_pool, 2 * kBytes, MemoryClass::kTensors).is_zero());
  host_pool->close();
}

TEST_F(PoolTest, TheLatestOfSeveralBlocksOfASizeComesFirstAndTheSmallestThatFits) {
  std::vector<std::unique_ptr<PooledMemory>> blocks;
  for (const std::size_t bytes : {1000, 1000, 1200, 1000})
    blocks.push_back(std::make_unique<PooledMemory>(pool, bytes, MemoryClass::kArenas));
  void* const second = blocks[1]->memory();
  void* const larger = blocks[2]->memory();
  for (const std::size_t i : {0, 3, 1, 2}) blocks[i].reset();
  const PooledMemory latest(pool, 1000, MemoryClass::kArenas);
  EXPECT_EQ(latest.memory(), second) << "not the larger one, which was freed later";
  const PooledMemory fits(pool, 1150, MemoryClass::kArenas);
  EXPECT_EQ(fits.memory(), larger);
  EXPECT_EQ(backing.obtained, 4);
}

TEST_F(PoolTest, StatisticsCountByClassAndKeepThePeak) {
  PooledMemory a(pool, 1000, MemoryClass::kTensors);
  {
    const PooledMemory b(pool, 500, MemoryClass::kPacked);
    const PoolStats s = pool->stats();
    EXPECT_EQ(s.current, 1500u);
    EXPECT_EQ(s.by_class[EVN_MEMORY_TENSORS], 1000u);
    EXPECT_EQ(s.by_class[EVN_MEMORY_PACKED], 500u);
    EXPECT_GE(s.reserved, s.current);
  }
  EXPECT_EQ(pool->stats().current, 1000u);
  EXPECT_EQ(pool->stats().peak, 1500u);
  EXPECT_GE(pool->stats().largest_free_block, 500u);
  pool->reset_peak();
  EXPECT_EQ(pool->stats().peak, 1000u);
}

TEST_F(PoolTest, AboveTheCapIsAnErrorWithTheBytesAskedAndLeft) {
  const PooledMemory a(pool, 900 << 10, MemoryClass::kArenas);
  try {
    const PooledMemory b(pool, 200 << 10, MemoryClass::kArenas);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(e.bytes_requested, 200u << 10);
    EXPECT_EQ(e.bytes_available, (1u << 20) - pool->stats().reserved);
    EXPECT_STREQ(e.device, "cpu");
  }
  EXPECT_EQ(pool->stats().current, 900u << 10);
}

TEST_F(PoolTest, TheWholeCapCanBeUsed) {
  const PooledMemory all(pool, 1 << 20, MemoryClass::kArenas);
  EXPECT_EQ(pool->stats().reserved, 1u << 20);
}

TEST_F(PoolTest, CachedBlocksMakeWayForALargerOne) {
  { const PooledMemory a(pool, 700 << 10, MemoryClass::kArenas); }
  EXPECT_GT(pool->stats().reserved, 0u);
  const PooledMemory b(pool, 1000 << 10, MemoryClass::kArenas);
  EXPECT_LE(pool->stats().reserved, 1u << 20);
}

TEST_F(PoolTest, ChargesCountAgainstTheCap) {
  pool->charge(1000 << 10, MemoryClass::kWeights);
  EXPECT_THROW(PooledMemory(pool, 100 << 10, MemoryClass::kArenas), Error);
  EXPECT_THROW(pool->charge(100 << 10, MemoryClass::kWeights), Error);
  pool->discharge(1000 << 10, MemoryClass::kWeights);
  EXPECT_EQ(pool->stats().current, 0u);
  const PooledMemory fits(pool, 100 << 10, MemoryClass::kArenas);
}

TEST_F(PoolTest, TrimGivesTheCacheBack) {
  { const PooledMemory a(pool, 5000, MemoryClass::kArenas); }
  pool->trim();
  EXPECT_EQ(pool->stats().reserved, 0u);
  EXPECT_TRUE(backing.live.empty());
}

TEST_F(PoolTest, PinnedAndPlainBlocksAreNotMixed) {
  { const PooledMemory a(pool, 4096, MemoryClass::kTensors, true); }
  const PooledMemory b(pool, 4096, MemoryClass::kTensors, false);
  EXPECT_EQ(pool->stats().cache_hits, 0u);
}

TEST_F(PoolTest, ZeroBytesAreNoBlock) {
  const PooledMemory a(pool, 0, MemoryClass::kTensors);
  EXPECT_EQ(a.memory(), nullptr);
  EXPECT_EQ(backing.obtained, 0);
}

TEST_F(PoolTest, EveryFailedAllocationLeavesThePoolAsItWas) {
  for (int k = 1; k < 20; ++k) {
    fault_arm(Seam::kAlloc, k, true);
    bool failed = false;
    try {
      const PooledMemory a(pool, 3000, MemoryClass::kTensors);
    } catch (const Error& e) {
      failed = e.status == EVN_ERROR_OUT_OF_MEMORY;
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    fault_arm(Seam::kAlloc, 0, false);
    EXPECT_EQ(pool->stats().current, 0u);
    pool->trim();
    if (!failed) return;
  }
  FAIL() << "the allocation never succeeded";
}

// Keeps blocks of a pool until it asks for them.
struct Keeper : Reclaimer {
  explicit Keeper(std::shared_ptr<Pool> p) : pool(std::move(p)) {}
  void keep(std::size_t bytes) { kept.push_back(pool->allocate(bytes, MemoryClass::kArenas)); }
  bool reclaim(const Pool& of, std::size_t bytes) noexcept override {
    EXPECT_EQ(&of, pool.get());
    asked.push_back(bytes);
    std::size_t freed = 0;
    while (!kept.empty() && freed < bytes) {
      freed += kept.back().size;
      pool->free(kept.back());
      kept.pop_back();
    }
    return freed > 0;
  }
  std::shared_ptr<Pool> pool;
  std::vector<Pool::Block> kept;
  std::vector<std::size_t> asked;
};

TEST_F(PoolTest, WhatOthersKeepIsAskedForBeforeARequestIsRefused) {
  const auto keeper = std::make_shared<Keeper>(pool);
  Keeper first(pool);
  pool->set_reclaimer(keeper);
  for (int i = 0; i < 3; ++i) keeper->keep(256 << 10);
  first.keep(100 << 10);
  {
    const PooledMemory fits(pool, 50 << 10, MemoryClass::kArenas);
    EXPECT_TRUE(keeper->asked.empty());
  }
  // As many as are needed, of the first one before the others.
  Pool::Block block = pool->allocate(200 << 10, MemoryClass::kArenas, false, &first);
  EXPECT_EQ(first.kept.size(), 0u);
  EXPECT_EQ(keeper->kept.size(), 3u);
  pool->free(block);
  block = pool->allocate(500 << 10, MemoryClass::kTensors, false, &first);
  EXPECT_EQ(keeper->kept.size(), 2u);
  // Charges ask too, and what nobody has is refused.
  pool->charge(400 << 10, MemoryClass::kWeights);
  EXPECT_EQ(keeper->kept.size(), 0u);
  EXPECT_THROW(pool->charge(400 << 10, MemoryClass::kWeights), Error);
  pool->discharge(400 << 10, MemoryClass::kWeights);
  pool->free(block);
  pool->set_reclaimer(nullptr);
}

TEST_F(PoolTest, WhatOthersKeepIsAskedForWhenTheSystemRefuses) {
  const auto keeper = std::make_shared<Keeper>(pool);
  pool->set_reclaimer(keeper);
  int thrown = 0;
  for (int k = 1; k < 6; ++k) {
    keeper->keep(1000);
    fault_arm(Seam::kAlloc, k, false);
    try {
      pool->free(pool->allocate(5000, MemoryClass::kArenas));
    } catch (const std::bad_alloc&) {
      ++thrown;
    }
    fault_arm(Seam::kAlloc, 0, false);
    pool->trim();
    EXPECT_EQ(keeper->kept.size(), 0u) << "trimming takes them as well";
  }
  EXPECT_LE(thrown, 1);
  EXPECT_EQ(pool->stats().reserved, 0u);
  pool->set_reclaimer(nullptr);
}

TEST_F(PoolTest, TheCapMayChange) {
  const auto keeper = std::make_shared<Keeper>(pool);
  pool->set_reclaimer(keeper);
  const Pool::Block held = pool->allocate(100 << 10, MemoryClass::kTensors);
  pool->free(pool->allocate(200 << 10, MemoryClass::kTensors));
  keeper->keep(100 << 10);
  keeper->keep(100 << 10);
  pool->set_limit(350 << 10);
  EXPECT_EQ(pool->stats().limit, 350u << 10);
  EXPECT_EQ(keeper->kept.size(), 2u) << "the cache was enough";
  EXPECT_EQ(pool->stats().largest_free_block, 0u);
  pool->set_limit(250 << 10);
  EXPECT_EQ(keeper->kept.size(), 1u);
  EXPECT_LE(pool->stats().reserved, 250u << 10);
  pool->set_limit(4096);
  EXPECT_EQ(keeper->kept.size(), 0u);
  EXPECT_GE(pool->stats().reserved, 100u << 10) << "what is in use stays";
  EXPECT_THROW(pool->allocate(64, MemoryClass::kTensors), Error);
  pool->free(held);
  EXPECT_EQ(pool->stats().reserved, 0u) << "above the cap nothing is kept";
  pool->free(pool->allocate(1024, MemoryClass::kTensors));
  EXPECT_GE(pool->stats().reserved, 1024u);
  pool->set_limit(UINT64_MAX);
  pool->free(pool->allocate(2 << 20, MemoryClass::kTensors));
  pool->set_reclaimer(nullptr);
}

TEST_F(PoolTest, KeepsNoMoreThanItsPolicySays) {
  pool->set_cache_policy({5000, TrimWhen::kNever});
  {
    const PooledMemory a(pool, 4096, MemoryClass::kArenas), b(pool, 1024, MemoryClass::kArenas),
        c(pool, 2048, MemoryClass::kArenas);
    EXPECT_EQ(pool->stats().cached, 0u);
    EXPECT_EQ(pool->stats().fragmentation(), 0.0);
  }
  const PoolStats s = pool->stats();
  EXPECT_EQ(s.cached, 3072u) << "the largest goes";
  EXPECT_EQ(s.free_blocks, 2u);
  EXPECT_EQ(s.largest_free_block, 2048u);
  EXPECT_NEAR(s.fragmentation(), 1.0 / 3, 1e-9);
  EXPECT_EQ(s.reserved, s.cached);
  EXPECT_EQ(s.unused(), 0u);
}

TEST_F(PoolTest, KeepsNothingWhereItAlwaysTrims) {
  pool->set_cache_policy({UINT64_MAX, TrimWhen::kAlways});
  { const PooledMemory a(pool, 4096, MemoryClass::kArenas); }
  EXPECT_EQ(pool->stats().reserved, 0u);
  EXPECT_EQ(pool->stats().free_blocks, 0u);
}

TEST_F(PoolTest, CountsWhatBlocksHaveBeyondWhatWasAskedFor) {
  pool->set_limit(UINT64_MAX);
  const PooledMemory a(pool, 4097, MemoryClass::kArenas);
  const PoolStats s = pool->stats();
  EXPECT_EQ(s.unused(), s.reserved - 4097);
  EXPECT_GT(s.unused(), 0u);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which have heads of their own

struct HeapPoolTest : PoolTest {
  void SetUp() override { Pool::hold_heap(pool); }
  void TearDown() override {
    PoolTest::TearDown();
    const std::weak_ptr<Pool> known = pool;
    pool.get()->let_go();
    pool.reset();
    EXPECT_TRUE(known.expired());
  }
};

TEST_F(HeapPoolTest, CountsBlocksOfTheHeapAgainstTheLimit) {
  const PooledMemory a(pool, 512 << 10, MemoryClass::kArenas);
  PoolStats s;
  std::uint64_t left = 0;
  Error of_block, of_arena;
  {
    const HeapScope scope(pool.get());  // without macros of the test's in it, which allocate
    const std::vector<char> fits(400 << 10);
    s = pool->stats();
    left = pool->left();
    try {
      const std::vector<char> more(200 << 10);
    } catch (const HeapRefused& refused) {
      of_block = refused.error;
    }
    try {
      const PooledMemory more(pool, 200 << 10, MemoryClass::kArenas);
    } catch (const Error& e) {
      of_arena = e;
    }
  }
  const std::uint64_t heap = s.by_class[static_cast<int>(MemoryClass::kHeap)];
  EXPECT_GE(heap, std::uint64_t{400} << 10);
  EXPECT_EQ(s.current, (std::uint64_t{512} << 10) + heap);
  EXPECT_EQ(s.reserved, s.current);
  EXPECT_LE(left, std::uint64_t{112} << 10);
  EXPECT_EQ(of_block.status, EVN_ERROR_OUT_OF_MEMORY);
  EXPECT_GE(of_block.bytes_requested, std::uint64_t{200} << 10);
  EXPECT_LE(of_block.bytes_available, std::uint64_t{112} << 10);
  EXPECT_STREQ(of_block.device, "cpu");
  EXPECT_EQ(of_arena.status, EVN_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(pool->stats().current, std::uint64_t{512} << 10);
  EXPECT_GE(pool->stats().peak, std::uint64_t{912} << 10);
  pool->reset_peak();
  EXPECT_EQ(pool->stats().peak, std::uint64_t{512} << 10);
}

TEST_F(HeapPoolTest, CachedBlocksMakeWayForTheHeap) {
  { const PooledMemory a(pool, 900 << 10, MemoryClass::kArenas); }
  EXPECT_EQ(pool->stats().free_blocks, 1u);
  const HeapScope scope(pool.get());
  const std::vector<char> block(600 << 10);
  EXPECT_EQ(pool->stats().free_blocks, 0u);
}

TEST_F(HeapPoolTest, IdleMemoryMakesWayWhereTheCallerAllowsIt) {
  struct Idle final : Reclaimer {
    std::unique_ptr<PooledMemory> kept;
    bool reclaim(const Pool&, std::size_t) noexcept override { return std::exchange(kept, nullptr) != nullptr; }
  };
  const auto idle = std::make_shared<Idle>();
  pool->set_reclaimer(idle);
  idle->kept = std::make_unique<PooledMemory>(pool, 900 << 10, MemoryClass::kArenas);
  const HeapScope scope(pool.get());
  EXPECT_THROW(std::vector<char>(600 << 10), HeapRefused);
  const HeapReclaim allowed(true);
  const std::vector<char> block(600 << 10);
  EXPECT_EQ(idle->kept, nullptr);
}

// The memory of a device may come with blocks of operator new, under the lock that freed memory of the device needs.
TEST_F(HeapPoolTest, ABackingThatAllocatesFreesNoIdleMemory) {
  struct Allocating final : Backing {
    void* obtain(std::size_t, bool) override {
      const std::vector<char> block(2 << 20);
      return nullptr;
    }
    void give_back(void*, std::size_t, bool) noexcept override {}
  } backing_of_device;
  struct Idle final : Reclaimer {
    bool was_called = false;
    bool reclaim(const Pool&, std::size_t) noexcept override {
      was_called = true;
      return false;
    }
  };
  const auto idle = std::make_shared<Idle>();
  pool->set_reclaimer(idle);
  const auto device = std::make_shared<Pool>(&backing_of_device, "gpu", UINT64_MAX);
  bool refused = false;
  {
    const HeapScope scope(pool.get());
    const HeapReclaim allowed(true);
    try {
      device->allocate(100, MemoryClass::kArenas);
    } catch (const HeapRefused&) {
      refused = true;
    }
  }
  EXPECT_TRUE(refused);
  EXPECT_FALSE(idle->was_called);
  device->close();
}

TEST_F(HeapPoolTest, LivesAsLongAsBlocksOfItsHeap) {
  std::vector<char> block;
  {
    const HeapScope scope(pool.get());
    block.resize(100 << 10);
  }
  const std::weak_ptr<Pool> known = pool;
  pool->close();
  pool->hold();  // as the fixture's
  pool->let_go();
  EXPECT_GE(pool->bytes(), 100 << 10);
  std::vector<char>().swap(block);
  EXPECT_EQ(pool->bytes(), 0);
  EXPECT_FALSE(known.expired());
}

#endif

}  // namespace
}  // namespace evn
