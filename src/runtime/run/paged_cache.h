// The rows of one cache of a state, in pages that never move and that forks share.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "device/device.h"
#include "device/paged.h"

namespace evn {

// A page, counted by the caches that have it. Once its rows are behind the end of what a cache has of it, only that cache, alone,
// writes to it.
class CachePage {
 public:
  CachePage(Device& device, std::size_t bytes) : memory_(device.allocate(bytes, MemoryClass::kStates)) {}
  void* memory() const { return memory_.memory(); }
  void share() noexcept { owners_.fetch_add(1, std::memory_order_relaxed); }
  bool is_shared() const noexcept { return owners_.load(std::memory_order_acquire) > 1; }
  static void let_go(CachePage* page) noexcept {
    if (page->owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete page;
  }

 private:
  PooledMemory memory_;
  std::atomic<std::uint32_t> owners_{1};
};

// The format in which a row has the bytes of a value of `dtype`.
inline RowFormat format_of(DType dtype) {
  return dtype == DType::kFloat16 ? RowFormat::kFloat16 : dtype == DType::kBfloat16 ? RowFormat::kBfloat16 : RowFormat::kPlain;
}

// As what runs see of it (kernels as a PageTable), which is the first thing in it. Used by one thread at a time.
class PagedCache : public PageTable {
 public:
  // Holds `outer` times up to `capacity` rows, each of so many elements of `dtype` and stored as `row_format`, on the CPU device,
  // which must outlive it; as yet without pages. Throws EVN_ERROR_LIMIT (sizes).
  PagedCache(Device& device, std::int64_t outer_count, std::int64_t elements_of_row, DType dtype, RowFormat row_format,
             std::int64_t capacity);
  ~PagedCache();
  PagedCache(const PagedCache&) = delete;
  PagedCache& operator=(const PagedCache&) = delete;

  // Takes the first `rows` rows of another cache of the same sizes, whose full pages it shares; only the rows of the last page,
  // where it is not full, are copied. This cache must have no pages yet.
  void fork(const PagedCache& from, std::int64_t rows);

  // Sees to it that there are pages for that many rows. Throws EVN_ERROR_OUT_OF_MEMORY.
  void add_pages(std::int64_t rows);

  // Makes rows [first, first + count), behind which there are none, ready to be written. Throws EVN_ERROR_LIMIT where these are
  // more than the capacity, EVN_ERROR_OUT_OF_MEMORY.
  void extend(std::int64_t first, std::int64_t count);
  // Writes such rows from [outer][count] of `dtype`, and reads rows. Where they are stored otherwise, `dtype` is float32,
  // float16 or bfloat16.
  void write(std::int64_t first, std::int64_t count, DType dtype, const void* from);
  void gather(std::int64_t first, std::int64_t count, DType dtype, void* to) const;

  // The first `rows` rows as they are stored, [outer][rows].
  std::size_t stored_bytes(std::int64_t rows) const { return static_cast<std::size_t>(outer * row_bytes * rows); }
  void save(std::int64_t rows, void* to) const;
  // Sees to it that the pages of the first `rows` rows are this cache's alone, as they are; then replace() writes these rows, as
  // they are stored.
  void own(std::int64_t rows);
  void replace(std::int64_t rows, const void* from) noexcept;

  std::int64_t capacity() const { return capacity_; }
  // Where the last extend() ended.
  std::int64_t appended() const { return appended_; }
  void set_appended(std::int64_t rows) { appended_ = rows; }

  std::size_t page_size() const { return page_size_; }
  std::size_t bytes() const { return owned_.size() * page_size_; }

 private:
  bool converts(DType dtype) const;
  template <typename F>
  void each_part(std::int64_t first, std::int64_t count, F&& f) const;
  void own_page(std::size_t index, std::int64_t rows);
  // Rows without elements have no pages.
  std::int64_t pages_for(std::int64_t rows) const { return page_size_ == 0 ? 0 : (rows + page_rows() - 1) >> shift; }

  Device& device_;
  const std::int64_t capacity_;
  std::size_t page_size_ = 0;
  std::int64_t appended_ = 0;
  std::vector<CachePage*> owned_;
  std::vector<void*> addresses_;  // of these; has room for all pages, and does not move
};

}  // namespace evn
