// Blocks out of one range of addresses.
#include "base/slab.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/error.h"

namespace evn::test {
namespace {

struct CountingLedger final : Ledger {
  std::size_t charged = 0, most = SIZE_MAX;
  HostMemory memory;
  HostMemory host_memory() const noexcept override { return memory; }
  void charge(std::size_t bytes, MemoryClass) override {
    if (charged + bytes > most) throw make_error(EVN_ERROR_OUT_OF_MEMORY, "the cap");
    charged += bytes;
  }
  void discharge(std::size_t bytes, MemoryClass) noexcept override { charged -= bytes; }
};

constexpr std::size_t kRoom = std::size_t{5} << 20;

#if !defined(__SANITIZE_ADDRESS__)
TEST(Slab, GivesAlignedBlocksThatDoNotOverlapUntilItIsFull) {
  const auto ledger = std::make_shared<CountingLedger>();
  std::vector<std::shared_ptr<void>> blocks;
  {
    const std::shared_ptr<Slab> slab = Slab::make(ledger, kRoom);
    ASSERT_NE(slab, nullptr);
    std::size_t used = 0;
    for (std::size_t bytes : {1u, 100u, 4096u, 3u << 20, 64u}) {
      blocks.push_back(slab->take(bytes, MemoryClass::kPacked));
      ASSERT_NE(blocks.back(), nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().get()) % 64, 0u);
      std::memset(blocks.back().get(), static_cast<int>(blocks.size()), bytes);
      used += Slab::room_of(bytes);
    }
    EXPECT_EQ(slab->take(kRoom - used + 1, MemoryClass::kPacked), nullptr);
    EXPECT_NE(slab->take(kRoom - used, MemoryClass::kPacked), nullptr);
    EXPECT_EQ(slab->take(1, MemoryClass::kPacked), nullptr);
  }
  EXPECT_EQ(ledger->charged, 1u + 100 + 4096 + (3u << 20) + 64);
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(*static_cast<unsigned char*>(blocks[i].get()), i + 1);
  blocks.clear();
  EXPECT_EQ(ledger->charged, 0u);
}

TEST(Slab, ARefusalOfTheLedgerTakesNothing) {
  const auto ledger = std::make_shared<CountingLedger>();
  const std::shared_ptr<Slab> slab = Slab::make(ledger, kRoom);
  ASSERT_NE(slab, nullptr);
  ledger->most = 100;
  EXPECT_THROW(slab->take(101, MemoryClass::kPacked), Error);
  EXPECT_EQ(ledger->charged, 0u);
  ledger->most = SIZE_MAX;
  EXPECT_NE(slab->take(kRoom, MemoryClass::kPacked), nullptr);
}
#endif

TEST(Slab, IsNotMadeOfAHostsAllocator) {
  const auto ledger = std::make_shared<CountingLedger>();
  ledger->memory.host.allocate = [](void*, size_t, size_t) -> void* { return nullptr; };
  EXPECT_EQ(Slab::make(ledger, kRoom), nullptr);
}

}  // namespace
}  // namespace evn::test
