// A value whose rows lie in pages: a cache of keys or values that grows, and never moves.
#pragma once

#include <cstdint>

namespace evn {

// How a page stores the elements of a row.
enum class RowFormat : std::uint8_t {
  kPlain,  // as the value has them
  // The others store values of float32, float16 or bfloat16.
  kFloat16,
  kBfloat16,
  kInt8  // a scale of float32, then an int8 for each element, symmetric to 0
};

// The value has the dims [outer][rows][inner]; row r lies in page r >> shift. A page is [outer][1 << shift][inner].
struct PageTable {
  void* const* pages = nullptr;
  int shift = 0;
  std::int64_t outer = 1;
  std::int64_t row_bytes = 0;
  std::int64_t row_elements = 0;  // of a format that is not plain
  RowFormat format = RowFormat::kPlain;

  std::int64_t page_rows() const { return std::int64_t{1} << shift; }
  std::int64_t page_bytes() const { return outer * row_bytes * page_rows(); }
  char* row(std::int64_t at_outer, std::int64_t r) const {
    return static_cast<char*>(pages[r >> shift]) + ((at_outer << shift) + (r & (page_rows() - 1))) * row_bytes;
  }
};

// Conversions of rows, which a device may have.
struct RowLoops {
  // A row of n elements in 16 or 8 bits, to float32; writes up to kRowRoom - 1 floats beyond the last.
  void (*widen)(RowFormat format, const char* row, std::int64_t n, float* to);
  // One of float32 to what a page stores.
  void (*store)(RowFormat format, const float* x, std::int64_t n, char* row);
};
inline constexpr std::int64_t kRowRoom = 16;

}  // namespace evn
