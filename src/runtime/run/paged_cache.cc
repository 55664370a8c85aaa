#include "runtime/run/paged_cache.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/cancel.h"
#include "base/checked.h"
#include "base/error.h"

namespace evn {
namespace {

// A page is what a fork copies at most, and what is too much at the end of each cache. Within it the rows of a head lie together:
// the more, the faster attention reads them from memory, as hardware prefetchers fetch in vain at the end of every head's rows.
constexpr std::int64_t kLeastPageBytes = 64 << 10, kMostPageBytes = 256 << 10;
constexpr std::int64_t kPagesOfCache = 8;  // at least so many are a cache whose pages are larger than the least
constexpr int kLeastShift = 4;
constexpr int kMostShift = 10;

int shift_for(std::int64_t row_bytes, std::int64_t capacity) {
  const std::int64_t bytes = std::clamp(checked_mul(row_bytes, capacity) / kPagesOfCache, kLeastPageBytes, kMostPageBytes);
  int shift = kLeastShift;
  while (shift < kMostShift && row_bytes << (shift + 1) <= bytes) ++shift;
  return shift;
}

std::int64_t bytes_of_row(std::int64_t elements, DType dtype, RowFormat format) {
  if (elements == 0) return 0;
  if (format == RowFormat::kInt8) return checked_add<std::int64_t>(elements, sizeof(float));
  return checked_mul(elements, static_cast<std::int64_t>(format == RowFormat::kPlain ? dtype_size(dtype) : sizeof(std::uint16_t)));
}

// Converts rows from the dtype of a value to what pages store, and back.
class RowConverter {
 public:
  RowConverter(const RowLoops& loops, RowFormat format, DType dtype, std::int64_t elements)
      : loops_(loops),
        format_(format),
        plain_(format_of(dtype)),
        elements_(elements),
        row_(static_cast<std::size_t>(checked_add(elements, kRowRoom))) {}

  void store(const char* plain, char* row) { convert(plain_, plain, format_, row); }
  void load(const char* row, char* plain) { convert(format_, row, plain_, plain); }

 private:
  void convert(RowFormat from_format, const char* from, RowFormat to_format, char* to) {
    cancellation_point();
    if (from_format == RowFormat::kPlain) {
      std::memcpy(row_.data(), from, static_cast<std::size_t>(elements_) * sizeof(float));
    } else {
      loops_.widen(from_format, from, elements_, row_.data());
    }
    loops_.store(to_format, row_.data(), elements_, to);
  }

  const RowLoops& loops_;
  const RowFormat format_, plain_;
  const std::int64_t elements_;
  std::vector<float> row_;
};

}  // namespace

PagedCache::PagedCache(Device& device, std::int64_t outer_count, std::int64_t elements_of_row, DType dtype, RowFormat row_format,
                       std::int64_t capacity)
    : device_(device), capacity_(capacity) {
  row_bytes = bytes_of_row(elements_of_row, dtype, row_format);
  const std::int64_t all = checked_mul(outer_count, row_bytes);
  outer = outer_count;
  row_elements = elements_of_row;
  format = row_format;
  shift = shift_for(all, capacity);
  page_size_ = static_cast<std::size_t>(checked_mul(all, page_rows()));
  (void)checked_mul(all, checked_add(capacity, page_rows()));
  const auto most = static_cast<std::size_t>(pages_for(capacity));
  owned_.reserve(most);
  addresses_.resize(most);
  pages = addresses_.data();
}

void PagedCache::fork(const PagedCache& from, std::int64_t rows) {
  if (page_size_ == 0) return;
  const auto full = static_cast<std::size_t>(rows >> shift);
  for (std::size_t i = 0; i < full; ++i) {
    from.owned_[i]->share();
    owned_.push_back(from.owned_[i]);
    addresses_[i] = from.addresses_[i];
  }
  add_pages(rows);
  const std::int64_t first = static_cast<std::int64_t>(full) << shift;
  for (std::int64_t o = 0; o < outer && rows > first; ++o)
    move_in_pieces(row(o, first), from.row(o, first), static_cast<std::uint64_t>((rows - first) * row_bytes));
}

PagedCache::~PagedCache() {
  for (CachePage* p : owned_) CachePage::let_go(p);
}

void PagedCache::add_pages(std::int64_t rows) {
  while (static_cast<std::int64_t>(owned_.size()) < pages_for(rows)) {
    auto page = std::make_unique<CachePage>(device_, page_size_);
    addresses_[owned_.size()] = page->memory();
    owned_.push_back(page.release());
  }
}

// Before rows of a page are written, behind its first `rows`: another cache may have it too.
void PagedCache::own_page(std::size_t index, std::int64_t rows) {
  if (!owned_[index]->is_shared()) return;
  auto page = std::make_unique<CachePage>(device_, page_size_);
  for (std::int64_t o = 0; o < outer && rows > 0; ++o) {
    const std::int64_t at = (o << shift) * row_bytes;
    move_in_pieces(static_cast<char*>(page->memory()) + at, static_cast<const char*>(addresses_[index]) + at,
                   static_cast<std::uint64_t>(rows * row_bytes));
  }
  CachePage::let_go(owned_[index]);
  addresses_[index] = page->memory();
  owned_[index] = page.release();
}

void PagedCache::own(std::int64_t rows) {
  add_pages(rows);
  for (std::int64_t i = 0; i < pages_for(rows); ++i) own_page(static_cast<std::size_t>(i), page_rows());
}

void PagedCache::replace(std::int64_t rows, const void* from) noexcept {
  if (page_size_ == 0) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < outer; ++o)
      std::memcpy(row(o, r), static_cast<const char*>(from) + (o * rows + r) * row_bytes, static_cast<std::size_t>(row_bytes));
  }
}

void PagedCache::extend(std::int64_t first, std::int64_t count) {
  const std::int64_t end = checked_add(first, count);
  if (end > capacity_) {
    fail(EVN_ERROR_LIMIT, "the state has room for %lld positions, the run makes them %lld", static_cast<long long>(capacity_),
         static_cast<long long>(end));
  }
  add_pages(end);
  for (std::int64_t i = first >> shift; count > 0 && i < pages_for(end); ++i)
    own_page(static_cast<std::size_t>(i), std::max<std::int64_t>(first - (i << shift), 0));
  appended_ = end;
}

// The parts of rows [first, first + count) that lie in one page: f(first of it, how many).
template <typename F>
void PagedCache::each_part(std::int64_t first, std::int64_t count, F&& f) const {
  for (std::int64_t r = first, n = 0; r < first + count; r += n) {
    n = std::min(first + count - r, page_rows() - (r & (page_rows() - 1)));
    f(r, n);
  }
}

// Whether values of `dtype` are other bytes in pages.
bool PagedCache::converts(DType dtype) const { return format != RowFormat::kPlain && format != format_of(dtype); }

void PagedCache::write(std::int64_t first, std::int64_t count, DType dtype, const void* from) {
  const char* const rows = static_cast<const char*>(from);
  if (!converts(dtype)) {
    return each_part(first, count, [&](std::int64_t r, std::int64_t n) {
      for (std::int64_t o = 0; o < outer; ++o)
        move_in_pieces(row(o, r), rows + (o * count + (r - first)) * row_bytes, static_cast<std::uint64_t>(n * row_bytes));
    });
  }
  RowConverter converter(*device_.row_loops(), format, dtype, row_elements);
  const std::int64_t bytes = row_elements * static_cast<std::int64_t>(dtype_size(dtype));
  for (std::int64_t i = 0; i < outer * count; ++i) converter.store(rows + i * bytes, row(i / count, first + i % count));
}

void PagedCache::gather(std::int64_t first, std::int64_t count, DType dtype, void* to) const {
  char* const rows = static_cast<char*>(to);
  if (!converts(dtype)) {
    return each_part(first, count, [&](std::int64_t r, std::int64_t n) {
      for (std::int64_t o = 0; o < outer; ++o)
        move_in_pieces(rows + (o * count + (r - first)) * row_bytes, row(o, r), static_cast<std::uint64_t>(n * row_bytes));
    });
  }
  RowConverter converter(*device_.row_loops(), format, dtype, row_elements);
  const std::int64_t bytes = row_elements * static_cast<std::int64_t>(dtype_size(dtype));
  for (std::int64_t i = 0; i < outer * count; ++i) converter.load(row(i / count, first + i % count), rows + i * bytes);
}

void PagedCache::save(std::int64_t rows, void* to) const {
  each_part(0, rows, [&](std::int64_t r, std::int64_t n) {
    for (std::int64_t o = 0; o < outer; ++o)
      move_in_pieces(static_cast<char*>(to) + (o * rows + r) * row_bytes, row(o, r), static_cast<std::uint64_t>(n * row_bytes));
  });
}

}  // namespace evn
