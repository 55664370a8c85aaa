// A value whose rows lie in pages: a cache of keys or values that grows, and never moves.
#pragma once

#include <cstdint>

namespace evn {

// The value has the dims [outer][rows][inner]; row r lies in page r >> shift. A page is [outer][1 << shift][inner].
struct PageTable {
  void* const* pages = nullptr;
  int shift = 0;
  std::int64_t outer = 1;
  std::int64_t row_bytes = 0;

  std::int64_t page_rows() const { return std::int64_t{1} << shift; }
  std::int64_t page_bytes() const { return outer * row_bytes * page_rows(); }
  char* row(std::int64_t at_outer, std::int64_t r) const {
    return static_cast<char*>(pages[r >> shift]) + ((at_outer << shift) + (r & (page_rows() - 1))) * row_bytes;
  }
};

}  // namespace evn
