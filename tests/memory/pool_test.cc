#include "memory/pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

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

}  // namespace
}  // namespace evn
