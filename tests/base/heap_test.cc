// Blocks of operator new are counted by the heap of the thread's scope, wherever they are freed, and refused by it.
#include "base/heap.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/guarded.h"
#include "base/os/os.h"
#include "tests/support/sanitized.h"

namespace evn::test {
namespace {

constexpr std::int64_t kKiB = 1024;

// A block that the compiler does not leave out.
std::unique_ptr<char[]> block_of(std::int64_t bytes) {
  std::unique_ptr<char[]> block(new char[static_cast<std::size_t>(bytes)]);
  asm volatile("" : : "r"(block.get()) : "memory");
  return block;
}

class FakeHeap final : public Heap {
 public:
  explicit FakeHeap(std::int64_t limit = INT64_MAX) : limit_(limit) { hold(); }
  bool admit(std::int64_t bytes, bool may_reclaim, Error* why) noexcept override {
    reclaimed = may_reclaim;
    if (bytes > limit_ - this->bytes()) {
      *why = make_error(EVN_ERROR_OUT_OF_MEMORY, "too much")
                 .with_bytes(static_cast<std::uint64_t>(bytes), static_cast<std::uint64_t>(limit_ - this->bytes()));
      return false;
    }
    add(bytes);
    return true;
  }
  void end() noexcept override { ended = true; }

  bool reclaimed = false;
  bool ended = false;

 private:
  const std::int64_t limit_;
};

struct HeapTest : testing::Test {
  void SetUp() override {
    if (kIsSanitized) GTEST_SKIP() << "sanitizers have heads of their own";
  }
};

TEST_F(HeapTest, CountsWhatAScopeTakesAndFrees) {
  FakeHeap heap;
  std::unique_ptr<char[]> small, large;
  {
    const HeapScope scope(&heap);
    small = block_of(100);
    large = block_of(3000 * kKiB);
    EXPECT_GE(heap.bytes(), 3000 * kKiB) << "a large block is reported at once";
  }
  EXPECT_GE(heap.bytes(), 3000 * kKiB + 100);
  EXPECT_LE(heap.bytes(), 3008 * kKiB);
  EXPECT_GE(heap.small_bytes(), 100);
  EXPECT_LE(heap.small_bytes(), 200) << "the large block has pages of its own";
  large.reset();  // without a scope
  EXPECT_EQ(heap.small_bytes(), heap.bytes());
  EXPECT_GE(heap.bytes(), 100);
  EXPECT_LE(heap.bytes(), 200);
  {
    const HeapScope scope(&heap);
    small.reset();
  }
  EXPECT_EQ(heap.bytes(), 0);
}

TEST_F(HeapTest, CountsManySmallBlocksNearlyExactly) {
  FakeHeap heap;
  const HeapScope scope(&heap);
  std::vector<std::unique_ptr<std::uint64_t>> all;
  all.reserve(100'000);
  const std::int64_t list = heap.bytes();
  for (int i = 0; i < 100'000; ++i) all.push_back(std::make_unique<std::uint64_t>(1));
  EXPECT_NEAR(static_cast<double>(heap.bytes() - list), 100'000.0 * 32, HeapMeter::kReportBytes);
  all.clear();
  EXPECT_LE(heap.bytes() - list, HeapMeter::kReportBytes);
}

TEST_F(HeapTest, CountsWhatAnotherThreadFrees) {
  FakeHeap heap;
  std::vector<std::string> texts;
  {
    const HeapScope scope(&heap);
    for (int i = 0; i < 1000; ++i) texts.emplace_back(500, 'x');
  }
  EXPECT_GE(heap.bytes(), 500'000);
  std::thread([&] { std::vector<std::string>().swap(texts); }).join();
  EXPECT_EQ(heap.bytes(), 0);
}

TEST_F(HeapTest, CountsForThreadsThatAScopeStarts) {
  FakeHeap heap;
  std::unique_ptr<char[]> block;
  {
    const HeapScope scope(&heap);
    const os::Thread thread([](void* to) { *static_cast<std::unique_ptr<char[]>*>(to) = block_of(5000); }, &block);
  }
  EXPECT_GE(heap.bytes(), 5000);
  EXPECT_LE(heap.bytes(), 5100);
  block.reset();
  EXPECT_EQ(heap.bytes(), 0);
}

TEST_F(HeapTest, RefusesBeforeItTakes) {
  FakeHeap heap(1000 * kKiB);
  const HeapScope scope(&heap);
  std::vector<char> fits(static_cast<std::size_t>(600 * kKiB));
  const evn_status status = guarded(nullptr, [&] { std::vector<char> more(static_cast<std::size_t>(600 * kKiB)); });
  const std::int64_t small = heap.small_bytes();
  EXPECT_EQ(status, EVN_ERROR_OUT_OF_MEMORY);
  EXPECT_GE(small, 0);
  EXPECT_LE(small, HeapMeter::kReportBytes) << "a refused block is not counted";
  try {
    std::vector<std::string> many;
    for (;;) many.emplace_back(100, 'x');
  } catch (const HeapRefused& refused) {
    EXPECT_GT(refused.error.bytes_requested, refused.error.bytes_available);
  }
  EXPECT_LE(heap.bytes(), 1000 * kKiB);
  EXPECT_EQ(::operator new(static_cast<std::size_t>(600 * kKiB), std::nothrow), nullptr);
  EXPECT_THROW(static_cast<void>(::operator new(SIZE_MAX / 2)), std::bad_alloc);
  std::vector<char>().swap(fits);
  std::vector<char> again(static_cast<std::size_t>(600 * kKiB));
}

TEST_F(HeapTest, NamesTheNodeOfWhatIsRefused) {
  FakeHeap heap(100 * kKiB);
  const HeapScope scope(&heap);
  try {
    naming_node(std::string("a node"), [] { std::vector<char> more(static_cast<std::size_t>(200 * kKiB)); });
    ADD_FAILURE() << "was not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_OUT_OF_MEMORY);
    EXPECT_STREQ(e.node, "a node");
  }
}

TEST_F(HeapTest, AlignsBlocks) {
  FakeHeap heap;
  const HeapScope scope(&heap);
  for (const std::size_t alignment : {8u, 16u, 64u, 256u, 4096u, 8192u}) {
    for (const std::size_t bytes : {1u, 100u, 700u << 10}) {
      void* const block = ::operator new (bytes, std::align_val_t{alignment});
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0u) << bytes;
      std::memset(block, 1, bytes);
      ::operator delete (block, std::align_val_t{alignment});
    }
  }
}

TEST_F(HeapTest, NestsScopes) {
  FakeHeap outer, inner;
  std::unique_ptr<char[]> a, b, c;
  {
    const HeapScope first(&outer);
    a = block_of(1000);
    {
      const HeapReclaim allowed(true);
      const HeapScope second(&inner);
      EXPECT_FALSE(heap_meter().may_reclaim);
      b = block_of(2000);
    }
    c = block_of(4000);
  }
  EXPECT_NEAR(static_cast<double>(outer.bytes()), 5000, 100);
  EXPECT_NEAR(static_cast<double>(inner.bytes()), 2000, 100);
  a.reset();
  b.reset();
  c.reset();
  EXPECT_EQ(outer.bytes() + inner.bytes(), 0);
}

TEST_F(HeapTest, EndsWithItsLastHolderAndBlock) {
  FakeHeap heap;
  std::unique_ptr<char[]> block;
  {
    const HeapScope scope(&heap);
    block = block_of(1000);
  }
  heap.let_go();
  EXPECT_FALSE(heap.ended);
  block.reset();
  EXPECT_TRUE(heap.ended);
}

TEST_F(HeapTest, ChargesWhatOthersTake) {
  FakeHeap heap(100 * kKiB);
  const HeapScope scope(&heap);
  {
    HeapCharge charge;
    Error why;
    EXPECT_TRUE(charge.add(60 * kKiB, &why));
    EXPECT_FALSE(charge.add(60 * kKiB, &why));
    EXPECT_EQ(why.status, EVN_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(heap.bytes(), 60 * kKiB);
  }
  EXPECT_EQ(heap.bytes(), 0);
}

}  // namespace
}  // namespace evn::test
