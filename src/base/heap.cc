#include "base/heap.h"

#include <algorithm>
#include <type_traits>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/ledger.h"
#include "base/os/os.h"

namespace evn {

[[gnu::tls_model("initial-exec")]] constinit thread_local HeapMeter t_heap_meter;

// A sanitizer has its own heads, and its runtime library frees blocks of ours and the reverse: nothing is counted there.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

void* take_block(std::size_t bytes, std::size_t alignment, void (* /*refuse*/)(const Error&)) {
  return allocate_bytes(bytes, alignment);
}
void free_block(void* block, std::size_t /*alignment*/) noexcept { free_bytes(block); }

#else

namespace {

// Before each block.
struct Head {
  Heap* heap;            // that counts the block; nullptr: none
  std::uint64_t memory;  // bytes that the block takes of the system, a multiple of 16; kPages added: in pages of its own
};
static_assert(sizeof(Head) == 16 && std::is_trivial_v<Head>);
constexpr std::uint64_t kPages = 1;

constexpr std::size_t kMostBytes = std::size_t{1} << 46;  // what an address space has room for, and a heap can count

// From the memory's begin to the block's.
std::size_t offset_of(std::size_t alignment) { return std::max(alignment, sizeof(Head)); }

Head& head_of(void* block) { return static_cast<Head*>(block)[-1]; }

// Size of a block of the C library: 8 bytes of header, rounded up to 16.
std::size_t memory_of(std::size_t bytes, std::size_t alignment) {
  return align_up(bytes + 8, 16) + (alignment > alignof(std::max_align_t) ? alignment : 0);
}

// Takes back what take_block has counted for a block.
void uncount(HeapMeter& meter, Heap& heap, std::size_t memory, bool in_pages) noexcept {
  meter.pending -= static_cast<std::int64_t>(memory);
  if (in_pages) heap.add_paged(-static_cast<std::int64_t>(memory));
}

// Reports what is pending, `memory` included, which is taken back if the heap refuses it.
[[gnu::cold, gnu::noinline]] bool ask(HeapMeter& meter, std::size_t memory, bool in_pages, void (*refuse)(const Error&)) {
  Error why;
  const std::int64_t asked = meter.pending;
  if (meter.heap->admit(asked, meter.may_reclaim, &why)) {
    meter.pending -= asked;  // it may have freed blocks meanwhile
    return true;
  }
  uncount(meter, *meter.heap, memory, in_pages);
  if (refuse != nullptr) refuse(why);
  return false;
}

}  // namespace

void* take_block(std::size_t bytes, std::size_t alignment, void (*refuse)(const Error&)) {
  const std::size_t offset = offset_of(alignment);
  if (bytes > kMostBytes || offset > kMostBytes) return nullptr;
  const std::size_t whole = bytes + offset;
  const bool in_pages = whole >= HostMemory::kPagesFrom && alignment <= os::kPageBytes;
  const std::size_t memory = in_pages ? align_up(whole, os::kPageBytes) : memory_of(whole, alignment);
  HeapMeter& meter = heap_meter();
  Heap* const heap = meter.heap;
  if (heap != nullptr) {
    if (in_pages) heap->add_paged(static_cast<std::int64_t>(memory));
    meter.pending += static_cast<std::int64_t>(memory);
    if (meter.pending > HeapMeter::kReportBytes && !ask(meter, memory, in_pages, refuse)) [[unlikely]]
      return nullptr;
  }
  void* const begin = in_pages ? os::map_pages(memory, os::Touch::kDense) : allocate_bytes(whole, alignment);
  if (begin == nullptr) {
    if (heap != nullptr) uncount(meter, *heap, memory, in_pages);
    return nullptr;
  }
  void* const block = static_cast<char*>(begin) + offset;
  head_of(block) = {heap, memory + (in_pages ? kPages : 0)};
  return block;
}

void free_block(void* block, std::size_t alignment) noexcept {
  if (block == nullptr) return;
  const Head head = head_of(block);
  const auto memory = static_cast<std::int64_t>(head.memory & ~kPages);
  void* const begin = static_cast<char*>(block) - offset_of(alignment);
  if ((head.memory & kPages) != 0) {
    os::unmap_pages(begin, static_cast<std::size_t>(memory));
  } else {
    free_bytes(begin);
  }
  if (head.heap == nullptr) return;
  if ((head.memory & kPages) != 0) head.heap->add_paged(-memory);
  HeapMeter& meter = heap_meter();
  if (meter.heap != head.heap) return head.heap->add(-memory);
  meter.pending -= memory;
  if (meter.pending < -HeapMeter::kReportBytes) meter.report();
}

#endif

}  // namespace evn
