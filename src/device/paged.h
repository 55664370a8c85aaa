// A value whose rows lie in pages: a cache of keys or values that grows, and never moves.
#pragma once

#include <cstdint>

namespace evn {

// Of a value [outer][rows][inner], row r lies in page r >> shift, which has, for each of `outer`, its rows one behind the other.
struct PageTable {
  void* const* pages = nullptr;
  int shift = 0;
  std::int64_t outer = 1;
  std::int64_t row_bytes = 0;

  std::int64_t page_rows() const { return std::int64_t{1} << shift; }
  std::int64_t page_bytes() const { return outer * row_bytes * page_rows(); }
  // Row r of number `of` of the outer ones.
  char* row(std::int64_t of, std::int64_t r) const {
    return static_cast<char*>(pages[r >> shift]) + ((of << shift) + (r & (page_rows() - 1))) * row_bytes;
  }
};

}  // namespace evn
